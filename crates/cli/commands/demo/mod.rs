//! `nicstripe demo`: a real daemon and a real `cp` on two simulated hosts, over 2 and then 4
//! cables.
//!
//! [`stage`] provides the hosts, [`folders`] their directories, [`sample`] the file to copy and
//! [`round`] one copy with its daemon. This module runs the rounds and prints the results.

mod folders;
mod round;
mod sample;
mod stage;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use clap::{Args, builder::styling::Style};
use nicstripe::{
    Digest,
    trust::{IdentityError, PeersError},
};
use nicstripe_lab::LabError;

use self::{
    folders::Folders,
    round::{Outcome, Round},
    sample::Sample,
    stage::{Isolation, Stage},
};
use crate::{
    failure::Failure,
    output::{stdout, terminal::Terminal},
    process::{runtime, signals::Signals},
    text::quantity::{Size, parse_size},
};

/// Copy a file between two hosts inside this machine, over 2 and then 4 gigabit cables
///
/// Needs no setup and leaves nothing behind. The hosts are network namespaces, joined by virtual
/// cables with the rate of gigabit Ethernet; the daemon and the copy are the commands that two
/// machines would run. If this machine does not allow namespaces, loopback addresses stand in for
/// cables, without a rate limit.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Numbers of cables, one copy each, 1 to 16
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(1..=16))]
    links: Vec<u8>,

    /// Size of the file: bytes, or with K, M, G [default: 256M per cable, which takes 2.3 s]
    #[arg(long, value_parser = parse_size, conflicts_with = "file")]
    size: Option<u64>,

    /// Copy this file [default: one built from programs and libraries of this machine]
    #[arg(long)]
    file: Option<PathBuf>,
}

impl Demo {
    /// Runs all copies of the demo. Must be called while the process has one thread.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let ground = Isolation::find();
        let runtime = runtime::local()?;
        let result = runtime.block_on(async {
            let mut signals = Signals::take()?;
            // Dropping the future removes everything made for the demo: children, namespaces,
            // files.
            tokio::select! {
                result = self.play(&ground, terminal) => result,
                stop = signals.stop() => Err(Failure::Interrupted { stop, resumable: false }),
            }
        });
        runtime.shutdown_background();
        result
    }

    async fn play(&self, ground: &Isolation, terminal: &Terminal) -> Result<(), Failure> {
        stdout::line(ground)?;
        let folders = Folders::make(self.room())?;
        for cables in self.links.iter().copied().map(usize::from) {
            let sample = self.sample(&folders, cables).await?;
            stdout::line("")?;
            stdout::line(heading(cables, &sample))?;
            let stage = Stage::build(ground, cables)?;
            let round = Round {
                stage: &stage,
                folders: &folders,
                sample: &sample,
            };
            let outcome = round.run(terminal).await?;
            print(&outcome, cables)?;
            folders.clear(self.file.is_none().then_some(&sample.path))?;
        }
        stdout::line("")?;
        stdout::line(
            "Everything was removed. With two machines: `nicstripe serve` on one and\n`nicstripe cp FILE HOST:` on the other; `nicstripe --help` has the first steps.",
        )
    }

    /// Returns the maximum bytes that the files of the demo occupy at a time.
    fn room(&self) -> u64 {
        let most = self
            .links
            .iter()
            .map(|cables| self.size(usize::from(*cables)))
            .max()
            .unwrap_or(0);
        match &self.file {
            Some(path) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
            None => 2 * most,
        }
    }

    fn size(&self, cables: usize) -> u64 {
        self.size.unwrap_or(cables as u64 * SIZE_A_CABLE)
    }

    async fn sample(&self, folders: &Folders, cables: usize) -> Result<Sample, Failure> {
        let (file, path, size) = (self.file.clone(), folders.sample(), self.size(cables));
        let made = tokio::task::spawn_blocking(move || match file {
            Some(file) => Sample::of(file),
            None => Sample::make(path, size),
        });
        Ok(made
            .await
            .map_err(|error| DemoError::Sample(io::Error::other(error)))??)
    }
}

fn heading(cables: usize, sample: &Sample) -> String {
    let bold = Style::new().bold();
    let plural = if cables == 1 { "" } else { "s" };
    format!(
        "{bold}{cables} cable{plural}{bold:#}: {} of {}",
        Size(sample.size),
        sample.origin
    )
}

/// Prints the outcome of one copy.
fn print(outcome: &Outcome, cables: usize) -> Result<(), Failure> {
    outcome.lines(cables).into_iter().try_for_each(stdout::line)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The network namespaces or virtual cables cannot be created.
    #[error("cannot create the demo's hosts and cables")]
    Lab(#[from] LabError),
    /// No file system has enough free space for the files. Sizes are in bytes.
    #[error("{} of free space are needed, {} has {}: expected a smaller --size", Size(*.needed), path.display(), Size(*.free))]
    Room {
        needed: u64,
        /// Directory that was to hold the files.
        path: PathBuf,
        free: u64,
    },
    #[error("cannot create the demo's folders")]
    Folders(#[source] io::Error),
    #[error("cannot create the file to copy")]
    Sample(#[source] io::Error),
    /// The file to copy or the received file cannot be read.
    #[error("cannot read {path:?}")]
    File { path: PathBuf, source: io::Error },
    /// No program or library of this machine is readable, so that no sample can be built.
    #[error("no readable file to build the sample from: expected --file")]
    NothingToRead,
    /// The key of a simulated host cannot be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The peers file of a simulated host cannot be written.
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error("cannot start nicstripe {command}")]
    Start {
        command: &'static str,
        source: io::Error,
    },
    /// The daemon ended before it listened, or did not listen in time.
    #[error("the daemon does not listen: {said}")]
    Daemon {
        /// Last line that the daemon printed.
        said: String,
    },
    /// `nicstripe cp` failed, and has printed its error.
    #[error("the copy over {cables} cables failed: {status}")]
    Copy { cables: usize, status: ExitStatus },
    #[error("the copy's report cannot be read")]
    Report(#[source] serde_json::Error),
    /// The received file differs from the sent one.
    #[error("the received file differs from the sent one: BLAKE3 {sent} sent, {received} received")]
    Digest {
        /// Digest of the sent file.
        sent: Digest,
        /// Digest of the received file.
        received: Digest,
    },
}

/// Bytes of the default file per cable. At the 117.7 MB/s of gigabit Ethernet they take 2.3 s: long
/// enough to see, short enough to wait for.
const SIZE_A_CABLE: u64 = 256 * 1024 * 1024;

/// Returns the last component of a path, or the whole path if it has none.
fn file_name(path: &Path) -> PathBuf {
    path.file_name()
        .map_or_else(|| path.to_owned(), PathBuf::from)
}
