//! TCP proxy of an attacker on the path, who knows record boundaries but not the contents of
//! records.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Index of the connection through this proxy, from 0.
    pub(super) connection: usize,
    pub(super) to_daemon: bool,
    /// Index of the TLS record in its direction, from 0.
    pub(super) record: usize,
}

/// Action that the proxy takes on a TLS record.
pub(super) enum Fate {
    /// Forwards these bytes instead of the record.
    Pass(Vec<u8>),
    /// Ends the connection before the record with a regular FIN, and accepts no more connections.
    Cut,
    /// Ends the connection before the record; accepts further connections.
    End,
}

type Tamper = dyn Fn(At, Vec<u8>) -> Fate + Send + Sync;

/// TCP proxy that forwards connections to a daemon and can manipulate their TLS records.
pub(super) struct Proxy {
    pub(super) connections: Arc<AtomicUsize>,
    /// Bytes that the client sent to the daemon on the first connection.
    pub(super) recorded: Arc<Mutex<Vec<u8>>>,
    stop: CancellationToken,
}

impl Proxy {
    /// Starts a proxy that listens at `from` and forwards to `to`. `from` has the daemon's port,
    /// because a client uses one port for all links.
    pub(super) fn start(
        from: SocketAddr,
        to: SocketAddr,
        tamper: impl Fn(At, Vec<u8>) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind(from).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let proxy = Self {
            connections: Arc::default(),
            recorded: Arc::default(),
            stop: CancellationToken::new(),
        };
        let (connections, stop) = (proxy.connections.clone(), proxy.stop.clone());
        let attack = Attack {
            tamper: Arc::new(tamper),
            recorded: proxy.recorded.clone(),
            cut: CancellationToken::new(),
            stop: proxy.stop.clone(),
        };
        tokio::spawn(async move {
            loop {
                let client = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    () = stop.cancelled() => return,
                };
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let Ok(daemon) = TcpStream::connect(to).await else {
                    continue;
                };
                let _ = (client.set_nodelay(true), daemon.set_nodelay(true));
                let (from_client, to_client) = client.into_split();
                let (from_daemon, to_daemon) = daemon.into_split();
                let at = |to_daemon| At {
                    connection: number,
                    to_daemon,
                    record: 0,
                };
                let attack = Attack {
                    cut: CancellationToken::new(),
                    ..attack.clone()
                };
                tokio::spawn(attack.clone().pass(at(true), from_client, to_daemon));
                tokio::spawn(attack.pass(at(false), from_daemon, to_client));
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Attack on one connection.
#[derive(Clone)]
struct Attack {
    tamper: Arc<Tamper>,
    recorded: Arc<Mutex<Vec<u8>>>,
    /// Token that ends both directions of the connection.
    cut: CancellationToken,
    stop: CancellationToken,
}

impl Attack {
    /// Forwards one direction of the connection.
    async fn pass(self, at: At, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        tokio::select! {
            () = self.cut.cancelled() => {}
            () = self.pass_records(at, &mut from, &mut to) => {}
        }
        self.cut.cancel();
        let _ = to.shutdown().await;
        // Unread bytes would cause a reset.
        let _ = tokio::time::timeout(
            Duration::from_millis(300),
            tokio::io::copy(&mut from, &mut tokio::io::sink()),
        )
        .await;
    }

    async fn pass_records(&self, mut at: At, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
        while let Ok(bytes) = next_record(from).await {
            if at.to_daemon && at.connection == 0 {
                self.recorded.lock().unwrap().extend_from_slice(&bytes);
            }
            match (self.tamper)(at, bytes) {
                Fate::Pass(bytes) if to.write_all(&bytes).await.is_ok() => {}
                Fate::Cut => return self.stop.cancel(),
                Fate::Pass(_) | Fate::End => return,
            }
            at.record += 1;
        }
    }
}

async fn next_record(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let mut record = vec![0; 5];
    from.read_exact(&mut record).await?;
    let len = u16::from_be_bytes([record[3], record[4]]);
    record.resize(5 + usize::from(len), 0);
    from.read_exact(&mut record[5..]).await?;
    Ok(record)
}
