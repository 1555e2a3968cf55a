//! Tests of object calls while a link is cut, and after the only link is restored.

use std::{net::SocketAddr, path::Path, time::Duration};

use nicstripe::{
    CancellationToken, Client, CopyOptions, Daemon,
    trust::{Identity, Peers, PublicLine},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::harness::{Served, content, leftovers, name, within};

const SIZE: usize = 24 << 20;

/// Simulated cable: a TCP proxy to the daemon. The test can cut the proxy's connections.
struct Cable {
    address: SocketAddr,
    to: SocketAddr,
    cut: CancellationToken,
}

impl Cable {
    async fn join(from: [u8; 4], to: SocketAddr) -> Self {
        let mut cable = Self {
            address: (from, to.port()).into(),
            to,
            cut: CancellationToken::new(),
        };
        cable.mend().await;
        cable
    }

    /// Accepts new connections after a cut. Connections that were cut stay closed.
    async fn mend(&mut self) {
        let (listener, to) = (TcpListener::bind(self.address).await.unwrap(), self.to);
        self.cut = CancellationToken::new();
        let cut = self.cut.clone();
        tokio::spawn(async move {
            loop {
                let (mut near, _) = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap(),
                    () = cut.cancelled() => return,
                };
                let cut = cut.clone();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(to).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
        });
    }

    async fn cut(&self) {
        self.cut.cancel();
        // Waits until the port has no listener.
        while TcpStream::connect(self.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts a daemon that clients reach directly and over a cable that the test can cut.
async fn served() -> (Served, Cable) {
    let root = tempfile::tempdir().unwrap();
    let listen = vec!["127.0.1.1:0".parse().unwrap()];
    let served = Served::start_built(root, |builder| {
        builder.interfaces(Vec::new()).listen(listen)
    })
    .await;
    let cable = Cable::join([127, 0, 7, 1], ([127, 0, 1, 1], served.port).into()).await;
    (served, cable)
}

async fn connect(served: &Served, links: &[&str]) -> Client {
    let links = links.iter().map(|link| link.parse().unwrap()).collect();
    let builder = Client::builder()
        .identity(served.client.clone())
        .peers(served.trusted.clone())
        .port(served.port)
        .links(links);
    within(builder.patience(PATIENCE).connect("127.0.1.1"))
        .await
        .unwrap()
}

/// Time that the client waits for a lost daemon, longer than any outage in these tests.
const PATIENCE: Duration = Duration::from_secs(15);

const BOTH: [&str; 2] = ["127.0.0.1=127.0.7.1", "127.0.0.2=127.0.1.1"];

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_goes_on_when_one_of_two_links_is_cut() {
    let (served, cable) = served().await;
    let client = connect(&served, &BOTH).await;
    let bytes = content(SIZE);
    let mut writer = client.create(&name("file"), CopyOptions::default());
    within(writer.write_all(&bytes[..SIZE / 2])).await.unwrap();
    within(cable.cut()).await;
    within(writer.write_all(&bytes[SIZE / 2..])).await.unwrap();
    within(writer.finish()).await.unwrap();
    assert!(std::fs::read(served.path("file")).unwrap() == bytes);
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_when_one_of_two_links_is_cut() {
    let (served, cable) = served().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = connect(&served, &BOTH).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    let mut first = vec![0; SIZE / 4];
    within(reader.read_exact(&mut first)).await.unwrap();
    within(cable.cut()).await;
    let mut rest = Vec::new();
    within(reader.read_to_end(&mut rest)).await.unwrap();
    assert!([first, rest].concat() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_when_the_only_link_is_mended() {
    let (served, mut cable) = served().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = connect(&served, &BOTH[..1]).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    let mut writer = client.create(&name("new"), CopyOptions::default());
    let mut read = vec![0; SIZE / 3];
    within(reader.read_exact(&mut read)).await.unwrap();
    within(writer.write_all(&bytes[..SIZE / 2])).await.unwrap();
    within(cable.cut()).await;
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.make_dir(&name("made/meanwhile")).await })
    };
    let writing = {
        let rest = bytes[SIZE / 2..].to_vec();
        tokio::spawn(async move {
            writer.write_all(&rest).await.unwrap();
            writer.finish().await
        })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asking.is_finished() && !writing.is_finished());
    cable.mend().await;
    within(reader.read_to_end(&mut read)).await.unwrap();
    assert!(read == bytes);
    within(asking).await.unwrap().unwrap();
    within(writing).await.unwrap().unwrap();
    assert!(
        served.path("made/meanwhile").is_dir()
            && std::fs::read(served.path("new")).unwrap() == bytes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_go_on_when_a_link_is_cut_under_them() {
    let (served, cable) = served().await;
    let client = connect(&served, &BOTH).await;
    let asks = (0..300).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.make_dir(&name(&format!("dir-{number}"))).await })
    });
    let asks: Vec<_> = asks.collect();
    within(cable.cut()).await;
    for ask in asks {
        within(ask).await.unwrap().unwrap();
    }
    assert_eq!(std::fs::read_dir(served.root.path()).unwrap().count(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_goes_away_ends_what_is_open_with_an_error_that_may_be_tried_again() {
    let (served, _cable) = served().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = connect(&served, &BOTH[1..]).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    within(reader.read_exact(&mut vec![0; 2 << 20]))
        .await
        .unwrap();
    let mut writer = client.create(&name("new"), CopyOptions::default());
    within(writer.write_all(&bytes[..SIZE / 2])).await.unwrap();
    served.shutdown.cancel();
    let (mut rest, file) = (Vec::new(), name("file"));
    let (read, written, looked) = within(async {
        tokio::join!(
            reader.read_to_end(&mut rest),
            writer.finish(),
            client.stat(&file)
        )
    })
    .await;
    let read = read.unwrap_err().downcast::<nicstripe::Error>().unwrap();
    for error in [read, written.unwrap_err(), looked.unwrap_err()] {
        assert!(error.is_retryable(), "{error:?}");
    }
    // The daemon ends the session before it has cleaned up.
    let names = || {
        std::fs::read_dir(served.root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    let tidied = async {
        while names() != ["file"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(10), tidied)
            .await
            .is_ok(),
        "{:?}",
        names()
    );
}

/// Starts a daemon at `port` of 127.0.1.1. Returns the port, the token that shuts the daemon down,
/// and the daemon's task.
async fn daemon_at(
    port: u16,
    identity: &Identity,
    client: &Identity,
    root: &Path,
) -> (u16, CancellationToken, JoinHandle<()>) {
    let mut peers = Peers::default();
    peers
        .add(
            &PublicLine::new(client.public_key(), "client"),
            Some("client"),
        )
        .unwrap();
    let listen = vec![([127, 0, 1, 1], port).into()];
    let builder = Daemon::builder()
        .identity(identity.clone())
        .peers(peers)
        .root(root.to_owned())
        .port(port)
        .listen(listen);
    let bound = builder.bind().await.unwrap();
    let (port, shutdown) = (
        bound.addresses()[0].address.port(),
        CancellationToken::new(),
    );
    let until = shutdown.clone();
    (
        port,
        shutdown,
        tokio::spawn(async move { bound.run(until).await.unwrap() }),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_where_it_was_when_its_daemon_is_back() {
    let (root, identity, client) = (
        tempfile::tempdir().unwrap(),
        Identity::generate().unwrap(),
        Identity::generate().unwrap(),
    );
    let bytes = content(SIZE);
    std::fs::write(root.path().join("file"), &bytes).unwrap();
    let (port, shutdown, first) = within(daemon_at(0, &identity, &client, root.path())).await;
    let mut trusted = Peers::default();
    trusted
        .add(
            &PublicLine::new(identity.public_key(), "daemon"),
            Some("daemon"),
        )
        .unwrap();
    let builder = Client::builder()
        .identity(client.clone())
        .peers(trusted)
        .port(port)
        .links(vec![BOTH[1].parse().unwrap()]);
    let connected = within(builder.patience(PATIENCE).connect("127.0.1.1"))
        .await
        .unwrap();
    let mut reader = within(connected.open(&name("file"))).await.unwrap();
    let mut read = vec![0; 2 << 20];
    within(reader.read_exact(&mut read)).await.unwrap();
    shutdown.cancel();
    within(first).await.unwrap();
    let error = within(reader.read_to_end(&mut read)).await.unwrap_err();
    assert!(
        error
            .get_ref()
            .and_then(|error| error.downcast_ref::<nicstripe::Error>())
            .unwrap()
            .is_retryable()
    );
    assert_eq!(reader.position(), read.len() as u64);
    let (_, _shutdown, _second) = within(daemon_at(port, &identity, &client, root.path())).await;
    within(reader.read_to_end(&mut read)).await.unwrap();
    assert!(read == bytes);
}
