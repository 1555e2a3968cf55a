//! Small incremental backup tool. Splits files into content-defined chunks and sends only the
//! chunks that the daemon lacks.
//!
//! ```text
//! cargo run --release --example backup -- init HOST:DIR
//! cargo run --release --example backup -- backup HOST:DIR FOLDER
//! cargo run --release --example backup -- list HOST:DIR
//! cargo run --release --example backup -- restore HOST:DIR latest FOLDER
//! cargo run --release --example backup -- check HOST:DIR
//! ```
//!
//! Uses the key and the trusted peers of the `nicstripe` command; `HOST` runs `nicstripe serve`.
//! Files of a repository:
//!
//! - `packs/`: concatenated chunks, about 16 MiB per file;
//! - `indexes/`: one file per backup, which lists the packs that the backup added, with their
//!   chunks;
//! - `snapshots/`: one file per backup, which lists the chunks of the backup's manifest. The
//!   manifest lists all files and their chunks, and is itself split into chunks and packed like a
//!   file;
//! - `config`: marks the directory as a repository.
//!
//! The name of each file is the BLAKE3 hash of its content. A file gets its name only once it is
//! complete and durable, and never changes. Packs are written first, then the index, then the
//! snapshot. A killed backup therefore leaves only unreferenced packs. The next backup of the same
//! files produces the same packs and reuses them. Nothing is encrypted at the daemon. Hard links,
//! extended attributes and owners are not preserved.

mod content;
mod format;
mod packer;
mod repo;
mod restore;

use std::{
    error::Error,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use nicstripe::{
    Client, DEFAULT_PORT, LinkRequest, Name,
    trust::{Home, Identity, Peers},
};

use crate::repo::Repo;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Back up directories to a daemon, incrementally
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// TCP port of the daemon
    #[arg(long, global = true, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Use only this link, LOCAL[=REMOTE]; may be repeated
    #[arg(long = "link", global = true)]
    links: Vec<LinkRequest>,
    /// Approximate size of a pack in bytes
    #[arg(long, global = true, default_value_t = 16 << 20, value_parser = clap::value_parser!(u32).range(1 << 16..1 << 30))]
    pack_size: u32,
}

/// Subcommand. `repo` is the repository as `HOST:DIR`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Create a repository
    Init { repo: String },
    /// Back up a directory
    Backup { repo: String, folder: PathBuf },
    /// Restore a snapshot, `latest` or a prefix of its name, to a new directory
    Restore {
        repo: String,
        snapshot: String,
        folder: PathBuf,
    },
    /// List the snapshots
    List { repo: String },
    /// Check that all data of the snapshots exists, and with --read-data that it is undamaged
    Check {
        repo: String,
        #[arg(long)]
        read_data: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", nicstripe::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let (Command::Init { repo }
    | Command::Backup { repo, .. }
    | Command::Restore { repo, .. }
    | Command::List { repo }
    | Command::Check { repo, .. }) = &args.command;
    let (host, dir) = repo
        .split_once(':')
        .ok_or("expected HOST:DIR as the repository")?;
    let dir = Name::parse(dir.as_bytes())?;
    let home = Home::from_env()?;
    let client = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(args.port)
        .links(args.links)
        .connect(host)
        .await?;
    let repo = Repo { client, dir };
    match args.command {
        Command::Init { .. } => repo.init().await?,
        Command::Backup { folder, .. } => repo.backup(folder, args.pack_size as usize).await?,
        Command::Restore {
            snapshot, folder, ..
        } => repo.restore(&snapshot, folder).await?,
        Command::List { .. } => repo.list().await?,
        Command::Check { read_data, .. } => repo.check(read_data).await?,
    }
    repo.client.close().await;
    Ok(())
}

/// Retries a call until it succeeds, fails permanently, or has failed for [`PATIENCE`]. The client
/// itself waits for lost links; the retries are for a restart of the daemon.
async fn retried<T, F: Future<Output = Result<T, nicstripe::Error>>>(
    call: impl Fn() -> F,
) -> Result<T, nicstripe::Error> {
    let mut since = None;
    loop {
        match call().await {
            Err(error)
                if error.is_retryable()
                    && since.get_or_insert_with(Instant::now).elapsed() < PATIENCE =>
            {
                eprintln!("retrying: {}", nicstripe::chain(&error));
                tokio::time::sleep(PAUSE).await;
            }
            ended => return ended,
        }
    }
}

/// Maximum time during which the daemon may be unreachable, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(500);
