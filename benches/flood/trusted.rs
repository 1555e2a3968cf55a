//! Trusted peer that exhausts the daemon's resources.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nicstripe::{
    Client, CopyOptions, Name, TreeOptions,
    trust::{Home, Identity, Peers},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

/// Resource that a trusted peer exhausts in an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum Greed {
    /// Number of connections: 40 idle sessions with 16 connections each.
    Connections,
    /// Connections that complete the TLS handshake but send no `Hello`.
    Unsaid,
    /// Number of sessions: 100 with one connection each.
    Sessions,
    /// Send buffers: connections that request a large file but do not read it.
    Unread,
    /// Transfers: 8 sessions with 1,000 concurrent puts of small files each.
    Puts,
    /// Disk space and memory: 32 concurrent puts of 15 TiB files that consist of holes.
    Holes,
    /// Directory trees of 10,000 small files, which the clients list, fetch and send.
    Trees,
    /// I/O threads: two keys compare sparse images of 64 GiB by checksum.
    Checksums,
}

impl Greed {
    /// Returns the number of concurrent clients in this attack.
    fn clients(self) -> u32 {
        match self {
            Self::Connections => 40,
            Self::Unsaid => 300,
            Self::Sessions => 100,
            Self::Unread => 60,
            Self::Puts => 8,
            Self::Holes => 4,
            Self::Trees => 32,
            Self::Checksums => 2,
        }
    }

    /// Returns the number of keys that attack together.
    pub(crate) fn keys(self) -> usize {
        if self == Self::Checksums { 2 } else { 1 }
    }
}

/// Attack by a trusted peer; runs in a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attacker {
    pub(crate) greed: Greed,
    pub(crate) daemon: SocketAddr,
    /// Folder with the attacker's key, list of trusted peers and files.
    pub(crate) home: PathBuf,
}

impl Attacker {
    /// Creates the files of an attack: the attacker's files in `home`, the daemon's files in
    /// `served`.
    pub(crate) fn prepare(greed: Greed, home: &Path, served: &Path) -> io::Result<()> {
        match greed {
            Greed::Connections | Greed::Unsaid | Greed::Sessions => Ok(()),
            Greed::Unread => fs::write(served.join(BAIT), vec![7; 64 << 20]),
            Greed::Puts => fs::write(home.join(SMALL), [7; 1000]),
            Greed::Holes => fs::File::create(home.join(HOLES))?.set_len(15 << 40),
            Greed::Checksums => [home, served]
                .iter()
                .try_for_each(|folder| fs::File::create(folder.join(IMAGE))?.set_len(64 << 30)),
            Greed::Trees => [
                served.join(TREES[0]),
                home.join(TREES[0]),
                home.join(TREES[1]),
            ]
            .iter()
            .try_for_each(|tree| make_tree(tree)),
        }
    }

    /// Connects all clients of the attack. Reconnects each client after the loss of its session,
    /// forever.
    pub(crate) fn run(self) -> nicstripe_testkit::bench::Result<()> {
        let home = Home::at(&self.home);
        let identity = Identity::load_or_create(home.identity_file())?;
        let peers = Peers::load(home.peers_file())?;
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?
            .block_on(async {
                let fault = match self.greed {
                    Greed::Unsaid => Some(Fault::KeepsTheLastRecord),
                    Greed::Unread => Some(Fault::StopsReading),
                    _ => None,
                };
                let (host, port) = match fault {
                    Some(fault) => Relay::start(self.daemon, fault).await?,
                    None => (self.daemon.ip().to_string(), self.daemon.port()),
                };
                let streams = if self.greed == Greed::Connections {
                    16
                } else {
                    1
                };
                let builder = Client::builder()
                    .identity(identity)
                    .peers(peers)
                    .port(port)
                    .streams(streams);
                for number in 0..self.greed.clients() {
                    let (builder, host, home) = (builder.clone(), host.clone(), self.home.clone());
                    tokio::spawn(async move {
                        loop {
                            if let Ok(client) = builder.clone().connect(&host).await {
                                take(self.greed, number, &Arc::new(client), &home).await;
                            }
                            tokio::time::sleep(PAUSE).await;
                        }
                    });
                }
                std::future::pending::<nicstripe_testkit::bench::Result<()>>().await
            })
    }
}

/// Runs one client of the attack until its session ends.
async fn take(greed: Greed, number: u32, client: &Arc<Client>, home: &Path) {
    match greed {
        Greed::Unread => drop(
            client
                .get_pipe(name(BAIT), io::sink(), CopyOptions::default())
                .finish()
                .await,
        ),
        Greed::Connections | Greed::Unsaid | Greed::Sessions => {
            while client.links().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Greed::Puts => {
            put(client, &home.join(SMALL), 1000, |index| {
                format!("put-{number}-{index}")
            })
            .await;
        }
        Greed::Holes => {
            put(client, &home.join(HOLES), 8, |index| {
                format!("holes-{number}-{index}")
            })
            .await;
        }
        Greed::Trees => trees(client, number, home).await,
        Greed::Checksums => {
            let comparing = TreeOptions {
                checksum: true,
                ..TreeOptions::default()
            };
            let image = || vec![home.join(IMAGE)];
            while client
                .put_tree(image(), None, comparing.clone())
                .finish()
                .await
                .is_ok()
            {}
        }
    }
}

/// Sends a file under `names` different names, concurrently and repeatedly, until the session ends.
async fn put(client: &Arc<Client>, file: &Path, names: u32, name_of: impl Fn(u32) -> String) {
    let mut puts = JoinSet::new();
    for index in 0..names {
        let (client, file, to) = (client.clone(), file.to_owned(), name(&name_of(index)));
        puts.spawn(async move {
            while client
                .put(&file, Some(to.clone()), replacing())
                .finish()
                .await
                .is_ok()
            {}
        });
    }
    puts.join_all().await;
}

/// Lists the daemon's tree, fetches it, or sends two different trees alternately, depending on
/// `number` modulo 3. Repeats this until the session ends.
async fn trees(client: &Client, number: u32, home: &Path) {
    let own = format!("trees-{number}");
    let listing = TreeOptions {
        recursive: true,
        dry_run: true,
        ..TreeOptions::default()
    };
    let copying = TreeOptions {
        recursive: true,
        files: replacing(),
        ..TreeOptions::default()
    };
    for round in 0.. {
        let copy = match number % 3 {
            0 => client.get_tree(
                vec![nicstripe::TreeSource::named(name(TREES[0]))],
                home.join(&own),
                TreeOptions {
                    as_name: true,
                    ..listing.clone()
                },
            ),
            1 => client.get_tree(
                vec![nicstripe::TreeSource::named(name(TREES[0]))],
                home.join(format!("{own}-{round}")),
                TreeOptions {
                    as_name: true,
                    ..copying.clone()
                },
            ),
            _ => client.put_tree(
                vec![home.join(TREES[round % 2])],
                Some(name(&own)),
                TreeOptions {
                    as_name: true,
                    ..copying.clone()
                },
            ),
        };
        let copied = copy.finish().await;
        if number % 3 == 1 {
            let fetched = home.join(format!("{own}-{round}"));
            let _ = tokio::task::spawn_blocking(move || fs::remove_dir_all(fetched)).await;
        }
        if copied.is_err() {
            return;
        }
    }
}

/// Creates a tree of 100 directories with 100 files of 1,000 bytes each.
fn make_tree(tree: &Path) -> io::Result<()> {
    for dir in 0..100 {
        let dir = tree.join(format!("dir{dir}"));
        fs::create_dir_all(&dir)?;
        (0..100).try_for_each(|file| fs::write(dir.join(format!("file{file}")), [7; 1000]))?;
    }
    Ok(())
}

fn replacing() -> CopyOptions {
    CopyOptions {
        replace: true,
        ..CopyOptions::default()
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a relative name")
}

/// Behavior of a relay that simulates a misbehaving client.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Holds back each TLS record until the next one arrives. The handshake completes, but the
    /// `Hello` never reaches the daemon.
    KeepsTheLastRecord,
    /// Stops reading from the daemon after the first [`READ_AT_FIRST`] bytes.
    StopsReading,
}

/// TCP relay between client and daemon that applies a [`Fault`].
struct Relay;

impl Relay {
    /// Starts the relay. Returns the host and port on which the relay listens.
    async fn start(daemon: SocketAddr, fault: Fault) -> io::Result<(String, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(daemon) = TcpStream::connect(daemon).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_daemon, to_daemon)) =
                        (client.into_split(), daemon.into_split());
                    match fault {
                        Fault::KeepsTheLastRecord => {
                            tokio::select! {
                                _ = pass_but_last(from_client, to_daemon) => {}
                                _ = pass(from_daemon, to_client, u64::MAX) => {}
                            }
                        }
                        Fault::StopsReading => {
                            tokio::select! {
                                _ = pass(from_client, to_daemon, u64::MAX) => {}
                                _ = pass(from_daemon, to_client, READ_AT_FIRST) => {}
                            }
                        }
                    }
                });
            }
        });
        Ok((Ipv4Addr::LOCALHOST.to_string(), port))
    }
}

async fn pass_but_last(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    // The daemon answers the first message before the client sends the next one.
    to.write_all(&next_record(&mut from).await?).await?;
    let mut last = next_record(&mut from).await?;
    loop {
        let next = next_record(&mut from).await?;
        to.write_all(&last).await?;
        last = next;
    }
}

async fn next_record(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut record = vec![0; 5];
    from.read_exact(&mut record).await?;
    record.resize(
        5 + usize::from(u16::from_be_bytes([record[3], record[4]])),
        0,
    );
    from.read_exact(&mut record[5..]).await?;
    Ok(record)
}

/// Relays up to `most` bytes in one direction, then blocks forever.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, most: u64) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    let mut passed = 0;
    while passed < most {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
        passed += read as u64;
    }
    std::future::pending().await
}

/// Name of a file of 64 MiB that the daemon serves.
const BAIT: &str = "bait";

/// Name of the attacker's file of 1,000 bytes.
const SMALL: &str = "small";

/// Name of the attacker's file of 15 TiB that consists of holes.
const HOLES: &str = "holes";

/// Name of a sparse image that attackers and daemon have.
const IMAGE: &str = "image";

/// Names of two trees that differ in their modification times. The daemon serves the first.
const TREES: [&str; 2] = ["tree", "other-tree"];

/// Pause before a client of the attack reconnects.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes that the relay reads from the daemon before it stops reading: handshake, `Welcome` and
/// first chunks.
const READ_AT_FIRST: u64 = 1 << 20;
