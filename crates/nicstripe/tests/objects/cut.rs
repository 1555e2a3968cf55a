//! Tests of object calls while a link is cut, and after the only link is restored.

use std::{net::SocketAddr, time::Duration};

use nicstripe::{CancellationToken, Client};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::harness::{PLAIN, Served, content, name, ok, within};

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
    ok(builder.patience(PATIENCE).connect("127.0.1.1")).await
}

/// Time that the client waits for a lost daemon, longer than any outage in these tests.
const PATIENCE: Duration = Duration::from_secs(15);

/// Links over the cable, and directly to the daemon.
const BOTH: [&str; 2] = ["127.0.0.1=127.0.7.1", "127.0.0.2=127.0.1.1"];

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_when_the_only_link_is_mended() {
    let (served, mut cable) = served().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = connect(&served, &BOTH[..1]).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    let mut writer = client.create(&name("new"), PLAIN);
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
async fn a_daemon_that_goes_away_ends_what_is_open_with_an_error_that_may_be_tried_again() {
    let (served, _cable) = served().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = connect(&served, &BOTH[1..]).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    ok(reader.read_exact(&mut vec![0; 2 << 20])).await;
    let mut writer = client.create(&name("new"), PLAIN);
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
    served.tidied().await;
    assert_eq!(std::fs::read_dir(served.root.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_where_it_was_when_its_daemon_is_back() {
    let mut served = Served::start().await;
    let bytes = content(SIZE);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = served.builder(1).patience(PATIENCE);
    let client = within(client.connect("127.0.0.1")).await.unwrap();
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    let mut read = vec![0; 2 << 20];
    within(reader.read_exact(&mut read)).await.unwrap();
    served.shutdown.cancel();
    within(&mut served.running).await.unwrap().unwrap();
    let error = within(reader.read_to_end(&mut read)).await.unwrap_err();
    let error = error.downcast::<nicstripe::Error>().unwrap();
    assert!(error.is_retryable());
    assert_eq!(reader.position(), read.len() as u64);
    served.start_again().await;
    within(reader.read_to_end(&mut read)).await.unwrap();
    assert!(read == bytes);
}
