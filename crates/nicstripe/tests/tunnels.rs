//! Tests of TCP tunnels through the library's API.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use nicstripe::{
    CancellationToken, Client, Daemon, Error, TargetRefusal,
    trust::{Identity, Peers, PublicLine},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

/// Daemon and connected client, with a TCP service that the client may reach through a tunnel.
struct Stage {
    _root: TempDir,
    client: Client,
    target: String,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
    shutdown: CancellationToken,
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
        let (client, daemon) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let trusting = |identity: &Identity, options: &str| {
            let mut peers = Peers::default();
            peers
                .add(
                    &PublicLine::new(identity.public_key(), "peer"),
                    Some("peer"),
                )
                .unwrap();
            peers
                .set_options(&identity.public_key(), options.parse().unwrap())
                .unwrap();
            peers
        };
        let root = tempfile::tempdir().unwrap();
        let bound = Daemon::builder()
            .peers(trusting(&client, &format!("dial={address}")))
            .root(root.path().to_owned())
            .port(0)
            .interfaces(vec!["lo".into()])
            .identity(daemon.clone());
        let bound = bound.bind().await.unwrap();
        let port = bound.addresses()[0].address.port();
        let shutdown = CancellationToken::new();
        tokio::spawn(bound.run(shutdown.clone()));
        let links = vec![
            "127.0.0.1=127.0.1.1".parse().unwrap(),
            "127.0.0.2=127.0.1.2".parse().unwrap(),
        ];
        let client = Client::builder()
            .identity(client)
            .peers(trusting(&daemon, "read-only"))
            .port(port)
            .links(links);
        let client = client.connect("127.0.0.1").await.unwrap();
        Self {
            _root: root,
            client,
            target: address.to_string(),
            accepted,
            shutdown,
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future)
        .await
        .expect("took too long")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_is_read_and_written_and_each_way_ends_by_itself() {
    let mut stage = Stage::new().await;
    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let mut service = within(stage.accepted.recv()).await.unwrap();
    tunnel.write_all(b"question").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    within(service.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(bytes, b"question");
    service.write_all(b"answer").await.unwrap();
    drop(service);
    let mut bytes = Vec::new();
    within(tunnel.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(bytes, b"answer");
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
    assert_eq!(
        within(service.read(&mut [0; 9])).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );

    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let service = within(stage.accepted.recv()).await.unwrap();
    service.set_zero_linger().unwrap();
    drop(service);
    assert_eq!(
        within(tunnel.read(&mut [0; 9])).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
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
    assert_eq!(
        within(tunnel.read(&mut [0; 9])).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_end_with_a_reset_when_the_daemon_does() {
    let mut stage = Stage::new().await;
    let mut tunnel = within(stage.client.dial(&stage.target)).await.unwrap();
    let _service = within(stage.accepted.recv()).await.unwrap();
    stage.shutdown.cancel();
    assert_eq!(
        within(tunnel.read(&mut [0; 9])).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
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
