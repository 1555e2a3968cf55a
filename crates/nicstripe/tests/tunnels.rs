//! Tests of tunnels and listeners through the library's API.

use crate::harness::{Served, ok, within};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use nicstripe::{Client, Error, TargetRefusal, blocking};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

/// Daemon and connected client, with a TCP service that the client may reach through a tunnel. The
/// client may listen at any free port, and at a socket file.
struct Stage {
    served: Served,
    client: Client,
    target: String,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
}

impl Stage {
    async fn new() -> Self {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = service.local_addr().unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = service.accept().await {
                if sender.send(tcp).is_err() {
                    break;
                }
            }
        });
        let options = |root: &TempDir| {
            let file = root.path().join("x.sock");
            format!("dial={address},listen=0,listen=unix:{}", file.display())
        };
        let served = Served::start_granting(options, |builder| builder).await;
        let client = served.builder(2).patience(Duration::from_secs(5));
        Self {
            client: client.connect("127.0.0.1").await.unwrap(),
            served,
            target: address.to_string(),
            accepted,
        }
    }

    /// Returns the path of the socket file at which the client may listen.
    fn socket_file(&self) -> PathBuf {
        self.served.path("x.sock")
    }

    async fn socket_file_goes(&self) {
        let gone = async {
            while self.socket_file().exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within(gone).await;
    }

    fn socket_address(&self) -> String {
        format!("unix:{}", self.socket_file().display())
    }
}

async fn all_of(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    bytes
}

/// Asserts that the next read fails because of a reset.
async fn is_reset(stream: &mut (impl AsyncReadExt + Unpin)) {
    let error = within(stream.read(&mut [0; 9])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_is_read_and_written_and_each_way_ends_by_itself() {
    let mut stage = Stage::new().await;
    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let mut service = within(stage.accepted.recv()).await.unwrap();
    tunnel.write_all(b"question").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(all_of(&mut service).await, b"question");
    service.write_all(b"answer").await.unwrap();
    drop(service);
    assert_eq!(all_of(&mut tunnel).await, b"answer");
    assert!(tunnel.write_all(b"more").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_allowed_is_refused_and_the_next_may_be() {
    let mut stage = Stage::new().await;
    for target in ["localhost:22", "", &"x".repeat(1000)] {
        let error = within(stage.client.dial(target)).await.unwrap_err();
        assert!(matches!(error, Error::Target { .. }), "{error}");
        assert_eq!(
            matches!(
                error,
                Error::Target {
                    code: TargetRefusal::NotAllowed,
                    ..
                }
            ),
            target == "localhost:22",
            "{error}"
        );
    }
    let _tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    within(stage.accepted.recv()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_is_dropped_is_reset_and_one_whose_service_resets_it_too() {
    let mut stage = Stage::new().await;
    let tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let mut service = within(stage.accepted.recv()).await.unwrap();
    drop(tunnel);
    is_reset(&mut service).await;

    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let service = within(stage.accepted.recv()).await.unwrap();
    service.set_zero_linger().unwrap();
    drop(service);
    is_reset(&mut tunnel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_and_ended_arrives_although_the_client_is_closed() {
    let mut stage = Stage::new().await;
    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let mut service = within(stage.accepted.recv()).await.unwrap();
    let bytes = vec![7; 200_000];
    let reader = tokio::spawn(async move {
        // Simulates a slow reader.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut bytes = Vec::new();
        service.read_to_end(&mut bytes).await.map(|_| bytes)
    });
    tunnel.write_all(&bytes).await.unwrap();
    tunnel.shutdown().await.unwrap();
    within(stage.client.clone().close()).await;
    assert!(within(reader).await.unwrap().unwrap() == bytes);
    is_reset(&mut tunnel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_end_with_a_reset_when_the_daemon_does() {
    let mut stage = Stage::new().await;
    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let _service = within(stage.accepted.recv()).await.unwrap();
    stage.served.shutdown.cancel();
    is_reset(&mut tunnel).await;
    assert!(within(stage.client.dial(&stage.target)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dials_that_are_dropped_while_they_wait_leave_room_for_others() {
    let mut stage = Stage::new().await;
    for number in 0..5000_u64 {
        let dial = stage.client.dial(&stage.target);
        let _ = timeout(Duration::from_micros(number % 50), dial).await;
        while stage.accepted.try_recv().is_ok() {}
    }
    let mut dials = JoinSet::new();
    for _ in 0..200 {
        let (client, target) = (stage.client.clone(), stage.target.clone());
        dials.spawn(async move { within(client.dial(&target)).await.unwrap() });
    }
    assert_eq!(within(dials.join_all()).await.len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_listener_of_the_daemon_are_tunnels_of_the_client() {
    let stage = Stage::new().await;
    let mut listener = within(stage.client.listen("0")).await.unwrap();
    let mut ports = vec![listener.port()];
    for number in 0..100_u32 {
        let mut local = TcpStream::connect(("127.0.0.1", listener.port()))
            .await
            .unwrap();
        let mut tunnel = within(listener.accept()).await.unwrap();
        local.write_all(&number.to_le_bytes()).await.unwrap();
        local.shutdown().await.unwrap();
        assert_eq!(all_of(&mut tunnel).await, number.to_le_bytes());
        tunnel.write_all(b"answer").await.unwrap();
        tunnel.shutdown().await.unwrap();
        assert_eq!(all_of(&mut local).await, b"answer");
    }
    let other = within(stage.client.listen("127.0.0.1:0")).await.unwrap();
    ports.push(other.port());
    assert!(ports[0] != ports[1] && !ports.contains(&0), "{ports:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_is_where_the_line_permits_and_nowhere_else() {
    let stage = Stage::new().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let elsewhere = format!("{}x", stage.socket_address());
    for address in [
        port.as_str(),
        "0.0.0.0:0",
        &elsewhere,
        "",
        "localhost",
        "1/2",
    ] {
        let code = match within(stage.client.listen(address)).await {
            Err(Error::Listen { code, .. }) => code,
            other => panic!("{address}: {other:?}"),
        };
        assert_eq!(code, TargetRefusal::NotAllowed, "{address}");
    }
    std::fs::write(stage.socket_file(), "kept").unwrap();
    let error = within(stage.client.listen(&stage.socket_address()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the file exists"), "{error}");
    assert_eq!(std::fs::read(stage.socket_file()).unwrap(), b"kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_dropped_closes_its_socket_and_keeps_what_it_returned() {
    let stage = Stage::new().await;
    let mut listener = ok(stage.client.listen(&stage.socket_address())).await;
    assert_eq!(listener.port(), 0);
    let mut local = UnixStream::connect(stage.socket_file()).await.unwrap();
    let mut tunnel = within(listener.accept()).await.unwrap();
    drop(listener);
    stage.socket_file_goes().await;
    local.write_all(b"late").await.unwrap();
    drop(local);
    assert_eq!(all_of(&mut tunnel).await, b"late");
    // The place is free again.
    ok(stage.client.listen(&stage.socket_address())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_ends_with_an_error_when_the_daemon_does_and_leaves_no_file() {
    let stage = Stage::new().await;
    let mut listener = ok(stage.client.listen(&stage.socket_address())).await;
    stage.served.shutdown.cancel();
    let error = within(listener.accept()).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(within(listener.accept()).await.is_err());
    stage.socket_file_goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_that_are_dropped_while_they_wait_lose_no_connection() {
    let stage = Stage::new().await;
    let mut listener = within(stage.client.listen("0")).await.unwrap();
    let port = listener.port();
    let mut locals = Vec::new();
    for number in 0..200_u64 {
        locals.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        let accept = timeout(Duration::from_micros(number), listener.accept());
        if let Ok(accepted) = accept.await {
            accepted.unwrap();
        } else {
            within(listener.accept()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_without_async_code_dial_and_listen() {
    let mut stage = Stage::new().await;
    let (client, target) = (stage.client.clone(), stage.target.clone());
    let dialled = spawn_blocking(move || {
        let client = blocking::Client::from(client);
        let mut listener = client.listen("0").unwrap();
        let mut outside = std::net::TcpStream::connect(("127.0.0.1", listener.port())).unwrap();
        outside.write_all(b"from there").unwrap();
        outside.shutdown(std::net::Shutdown::Write).unwrap();
        let mut accepted = Vec::new();
        listener
            .accept()
            .unwrap()
            .read_to_end(&mut accepted)
            .unwrap();
        assert_eq!(accepted, b"from there");

        let (mut reader, mut writer) = client.dial(&target).unwrap().split();
        let reading = std::thread::spawn(move || {
            let mut answer = Vec::new();
            reader.read_to_end(&mut answer).map(|_| answer)
        });
        writer.write_all(b"question").unwrap();
        writer.shutdown().unwrap();
        reading.join().unwrap().unwrap()
    });
    let mut service = within(stage.accepted.recv()).await.unwrap();
    let mut asked = Vec::new();
    within(service.read_to_end(&mut asked)).await.unwrap();
    service.write_all(b"answer").await.unwrap();
    service.shutdown().await.unwrap();
    assert_eq!(asked, b"question");
    assert_eq!(within(dialled).await.unwrap(), b"answer");
}
