//! Listeners of a client at its daemon.

use std::{io, time::Duration};

use nicstripe_proto::{
    FailCode,
    message::Feature,
    tunnel::{MOST_CONNECTIONS, Target},
};
use tokio::{io::AsyncReadExt as _, runtime::Handle, task::JoinSet, time::timeout};

use super::handle::Client;
use crate::{report::error::Error, tunnel::Tunnel};

/// Listener at the daemon, whose connections come as tunnels. Dropping it ends it, and removes its
/// socket file; connections that it has returned continue.
#[derive(Debug)]
pub struct Listener {
    host: String,
    /// Tunnel on which the daemon announces the connections that it accepts.
    announced: Tunnel,
    port: u16,
    /// Number of the last announced connection.
    last: u32,
    /// Received part of the next number, and its length in bytes.
    number: ([u8; NUMBER], usize),
    runtime: Handle,
    claims: JoinSet<Option<Tunnel>>,
}

impl Client {
    /// Listens at the daemon. `address` is `[ADDRESS:]PORT` or `unix:/PATH` as permitted by this
    /// machine's line in the daemon's peers file (`listen=`). The address is 127.0.0.1 by default;
    /// port 0 is any free one.
    ///
    /// The listener ends with its session, as tunnels do: when the client is
    /// [closed](Client::close), or has had no link for its patience. Call again to listen again.
    /// A session has at most 64 listeners. Cancel safe: a dropped call leaves no listener.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if the daemon does not permit it or cannot listen there;
    /// [`Error::Unsupported`] if the daemon has no listeners; otherwise as for
    /// [`dial`](Client::dial).
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let mut listener = client.listen("8080").await?;
    /// let tunnel = listener.accept().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn listen(&self, address: &str) -> Result<Listener, Error> {
        let (client, address) = (self.clone(), address.to_owned());
        let listening = async move { client.listen_here(&address).await };
        self.inner.runtime.run(listening).await?
    }

    async fn listen_here(&self, address: &str) -> Result<Listener, Error> {
        let session = self.inner.session().await?;
        session.peer.require(Feature::Listeners, &self.inner.host)?;
        let mux = session.mux(&self.inner).await?;
        let target = Target::Listen(address).to_string();
        let host = &self.inner.host;
        let request = async {
            let opened = mux.open(host, &target).await;
            let mut announced = opened.map_err(|error| of_listener(error, address))?;
            let mut port = [0; 2];
            let read = announced.read_exact(&mut port).await;
            read.map_err(|_| Error::ended(host, "before it listened"))?;
            Ok::<_, Error>(Listener {
                host: host.clone(),
                announced,
                port: u16::from_le_bytes(port),
                last: 0,
                number: Default::default(),
                runtime: self.inner.runtime.handle.clone(),
                claims: JoinSet::new(),
            })
        };
        self.answered(&session, request).await
    }
}

impl Listener {
    /// Returns the TCP port; 0 for a socket file.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the next connection. The daemon closes one that is not taken within 10 s, and holds
    /// at most 64. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] once the session or the listener has ended; [`Error::Peer`] if the daemon
    /// violates the protocol. No connection follows an error.
    pub async fn accept(&mut self) -> Result<Tunnel, Error> {
        loop {
            let has_room = self.claims.len() < MOST_CLAIMS;
            tokio::select! {
                Some(claimed) = self.claims.join_next() => {
                    if let Ok(Some(tunnel)) = claimed {
                        return Ok(tunnel);
                    }
                }
                read = read_number(&mut self.announced, &mut self.number), if has_room => {
                    let number = read.map_err(|_| self.ended())?;
                    self.claim(number)?;
                }
            }
        }
    }

    /// Requests the tunnel to an announced connection.
    fn claim(&mut self, number: u32) -> Result<(), Error> {
        if number <= self.last {
            let last = self.last;
            let text = format!("it announced connection {number} after {last}");
            return Err(Error::peer(&self.host, FailCode::Protocol, text));
        }
        self.last = number;
        let (mux, host) = (self.announced.mux(), self.host.clone());
        let claim = async move {
            let target = Target::Accepted(number).to_string();
            let claimed = timeout(CLAIM_TIMEOUT, mux.open(&host, &target)).await;
            // The program that connected may have gone again.
            claimed
                .ok()?
                .inspect_err(|error| tracing::debug!(number, %error, "connection was not claimed"))
                .ok()
        };
        self.claims.spawn_on(claim, &self.runtime);
        Ok(())
    }

    fn ended(&self) -> Error {
        Error::ended(&self.host, "its listener ended")
    }
}

/// Reads the rest of a number. Cancel safe: the part that was read stays in `number`.
async fn read_number(
    from: &mut Tunnel,
    (bytes, len): &mut ([u8; NUMBER], usize),
) -> io::Result<u32> {
    while *len < NUMBER {
        match from.read(&mut bytes[*len..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => *len += count,
        }
    }
    *len = 0;
    Ok(u32::from_le_bytes(*bytes))
}

fn of_listener(error: Error, address: &str) -> Error {
    match error {
        Error::Target {
            host, code, why, ..
        } => Error::Listen {
            host,
            address: address.to_owned(),
            code,
            why,
        },
        error => error,
    }
}

/// Length of a connection's number in bytes.
const NUMBER: usize = 4;

/// Maximum number of announced connections that are claimed at once: as many as a daemon holds. A
/// hostile daemon that announces more occupies no more tunnels.
const MOST_CLAIMS: usize = 64;

const _: () = assert!(MOST_CLAIMS < MOST_CONNECTIONS);

/// Timeout of a claim, which the daemon answers at once.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicstripe_proto::{
        Role,
        tunnel::{ConnId, TunnelEvent, Tunnels},
    };

    use super::*;
    use crate::tunnel::TunnelMux;

    /// Daemon that says what the test wants.
    struct Daemon {
        tunnels: Tunnels,
        client: Arc<TunnelMux>,
        listener: ConnId,
    }

    impl Daemon {
        /// Opens a listener at a hostile daemon.
        async fn with_listener() -> (Self, Listener) {
            let client = TunnelMux::new(None);
            let mut daemon = Self {
                tunnels: Tunnels::new(Role::Daemon),
                client: client.clone(),
                listener: ConnId(0),
            };
            let opening = tokio::spawn({
                let client = client.clone();
                async move { client.open("nas", "listen/127.0.0.1:0").await }
            });
            assert!(client.is_due().await);
            assert_eq!(daemon.asked(), 1);
            daemon.tunnels.accept(daemon.listener);
            daemon.send();
            let listener = Listener {
                host: "nas".into(),
                announced: opening.await.unwrap().unwrap(),
                port: 1,
                last: 0,
                number: Default::default(),
                runtime: Handle::current(),
                claims: JoinSet::new(),
            };
            (daemon, listener)
        }

        /// Receives the client's records. Returns the number of tunnels that they request.
        fn asked(&mut self) -> usize {
            let mut batch = vec![0; 1 << 18];
            let len = self.client.fill(&mut batch);
            self.tunnels.handle_batch(&batch[..len]).unwrap();
            let events = std::iter::from_fn(|| self.tunnels.poll_event());
            events
                .filter(|event| matches!(event, TunnelEvent::Asked { .. }))
                .count()
        }

        fn announce(&mut self, numbers: impl IntoIterator<Item = u32>) {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
            assert!(self.tunnels.room(self.listener).unwrap() >= bytes.len());
            self.tunnels.push(self.listener, &bytes).unwrap();
            self.send();
        }

        fn send(&mut self) {
            let mut batch = vec![0; 1 << 18];
            let len = self.tunnels.fill(&mut batch);
            self.client.take_in(&batch[..len]).unwrap();
        }
    }

    #[tokio::test]
    async fn a_number_that_is_not_new_ends_the_listener() {
        for numbers in [&[0][..], &[7, 7], &[7, 8, 3]] {
            let (mut daemon, mut listener) = Daemon::with_listener().await;
            daemon.announce(numbers.iter().copied());
            let error = listener.accept().await.unwrap_err();
            assert_eq!(error.fail_code(), Some(FailCode::Protocol), "{error}");
        }
    }

    #[tokio::test]
    async fn a_daemon_that_announces_without_end_makes_64_claims() {
        let (mut daemon, mut listener) = Daemon::with_listener().await;
        daemon.announce(1..=5000);
        let accepting = tokio::spawn(async move { listener.accept().await });
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(daemon.asked(), MOST_CLAIMS);
        assert!(!accepting.is_finished());
    }
}
