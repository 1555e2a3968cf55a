//! One trusted peer that takes what it can get.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, ExitCode},
    str::FromStr,
    time::Duration,
};

use nicstripe::{
    Client, ClientBuilder, Name,
    trust::{Home, Identity, Peers},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// What it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greed {
    /// Sessions with 16 connections each, which do nothing.
    Connections,
    /// Connections that prove the key and never say hello.
    Unsaid,
    /// Sessions with one connection each.
    Sessions,
    /// Connections by which it asks for a large file, and that it does not read.
    Unread,
}

/// How each is called.
const NAMES: [(&str, Greed); 4] =
    [("connections", Greed::Connections), ("unsaid", Greed::Unsaid), ("sessions", Greed::Sessions), ("unread", Greed::Unread)];

impl FromStr for Greed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = NAMES.map(|(name, _)| name).join(", ");
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, greed)| *greed);
        found.ok_or_else(|| format!("no such attack; there are {all}"))
    }
}

impl Greed {
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, greed)| *greed == self).map_or("", |(name, _)| name)
    }

    /// How many clients try at once.
    fn clients(self) -> u32 {
        match self {
            Self::Connections => 40,
            Self::Unsaid => 300,
            Self::Sessions => 100,
            Self::Unread => 60,
        }
    }
}

/// What one process of the peer does.
pub(crate) struct Attacker {
    pub(crate) greed: Greed,
    pub(crate) daemon: SocketAddr,
    /// Its key and its peers.
    pub(crate) home: PathBuf,
    /// A large file that the daemon serves.
    pub(crate) file: String,
}

/// In the environment of its process: the words of an [`Attacker`].
const ATTACKER: &str = "NICSTRIPE_BENCH_ATTACKER";

impl Attacker {
    pub(crate) fn to_env(&self, command: &mut Command) {
        let Self { greed, daemon, home, file } = self;
        command.env(ATTACKER, format!("{} {daemon} {file} {}", greed.name(), home.display()));
    }

    pub(crate) fn from_env() -> Option<Self> {
        let text = std::env::var(ATTACKER).ok()?;
        let mut words = text.splitn(4, ' ');
        Some(Self {
            greed: words.next()?.parse().ok()?,
            daemon: words.next()?.parse().ok()?,
            file: words.next()?.into(),
            home: words.next()?.into(),
        })
    }

    /// Runs until it is killed.
    pub(crate) fn attack(self) -> ExitCode {
        match self.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(self) -> crate::bench_support::Result<()> {
        let home = Home::at(&self.home);
        let identity = Identity::load_or_create(&home.identity_file())?;
        let peers = Peers::load(&home.peers_file())?;
        let name = Name::parse(self.file.as_bytes())?;
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
            let fault = match self.greed {
                Greed::Unsaid => Some(Fault::KeepsTheLastRecord),
                Greed::Unread => Some(Fault::StopsReading),
                Greed::Connections | Greed::Sessions => None,
            };
            let (host, port) = match fault {
                Some(fault) => Relay::start(self.daemon, fault).await?,
                None => (self.daemon.ip().to_string(), self.daemon.port()),
            };
            for _ in 0..self.greed.clients() {
                let streams = if self.greed == Greed::Connections { 16 } else { 1 };
                let builder = Client::builder().identity(identity.clone()).peers(peers.clone()).port(port).streams(streams);
                tokio::spawn(take(self.greed, builder, host.clone(), name.clone()));
            }
            std::future::pending::<crate::bench_support::Result<()>>().await
        })
    }
}

/// Takes again and again what one client can get.
async fn take(greed: Greed, builder: ClientBuilder, host: String, name: Name) {
    loop {
        if let Ok(client) = builder.clone().connect(&host).await {
            if greed == Greed::Unread {
                let _ = client.get_pipe(name.clone(), io::sink(), nicstripe::CopyOptions::default()).finish().await;
            } else {
                // As long as its session lasts.
                while client.links().await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is wrong with a peer's connections.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Each record of TLS is sent when the next one is there: the handshake is done, and its hello never comes.
    KeepsTheLastRecord,
    /// After the first of its data nothing is read.
    StopsReading,
}

/// Passes on what a client and the daemon say, with a fault.
struct Relay;

impl Relay {
    /// Returns where it listens.
    async fn start(daemon: SocketAddr, fault: Fault) -> io::Result<(String, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(daemon) = TcpStream::connect(daemon).await else { return };
                    let ((from_client, to_client), (from_daemon, to_daemon)) = (client.into_split(), daemon.into_split());
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
    // The first message is answered before there is another.
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
    record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
    from.read_exact(&mut record[5..]).await?;
    Ok(record)
}

/// Passes on so many bytes, then nothing for ever.
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

/// Until it takes what it has lost again.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes that are read of a connection that is not read: its handshake, its welcome, and the first chunks.
const READ_AT_FIRST: u64 = 1 << 20;
