//! `nicstripe demo`: a real daemon and a real `cp` on two simulated hosts, over 2 and then 4
//! cables.
//!
//! [`stage`] provides the hosts, [`folders`] their directories, [`sample`] the file to copy and
//! [`round`] one copy with its daemon. This module runs the rounds and prints the results.

mod folders;
mod round;
mod sample;
mod stage;

use std::{error, fs, io, path::PathBuf};

use clap::{Args, builder::styling::Style};

use self::{
    folders::Folders,
    round::Round,
    sample::Sample,
    stage::{Isolation, Stage},
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::{stdout, terminal::Terminal},
    process::{runtime, signals::Signals},
    text::{
        counted,
        quantity::{Size, parse_size},
    },
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
        runtime::run_here(async {
            let mut signals = Signals::take()?;
            // Dropping the future removes everything made for the demo: children, namespaces,
            // files.
            signals.unless_stopped(self.play(&ground, terminal)).await
        })
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
            let mut lines = outcome.lines(cables).into_iter();
            lines.try_for_each(stdout::line)?;
            folders.clear(self.file.is_none().then_some(&sample.path))?;
        }
        stdout::line("")?;
        stdout::line(
            "Everything was removed. With two machines: `nicstripe serve` on one and\n`nicstripe cp FILE HOST:` on the other; `nicstripe --help` has the first steps.",
        )
    }

    /// Returns the maximum number of bytes that the files of the demo occupy at once.
    fn room(&self) -> u64 {
        let cables = self.links.iter().copied().max().unwrap_or(0);
        match &self.file {
            Some(path) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
            None => 2 * self.size(usize::from(cables)),
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
        let made = made.await.map_err(io::Error::other);
        Ok(made.map_err(failed("cannot create the file to copy"))??)
    }
}

/// Returns the wrapper of errors of a part of the demo.
fn failed<E: error::Error + Send + Sync + 'static>(text: &str) -> impl Fn(E) -> Fault + Copy {
    move |error| Fault::new(Exit::Failed, text).because(error)
}

fn heading(cables: usize, sample: &Sample) -> String {
    let bold = Style::new().bold();
    format!(
        "{bold}{}{bold:#}: {} of {}",
        counted(cables, "cable"),
        Size(sample.size),
        sample.origin
    )
}

/// Bytes of the default file per cable. At the 117.7 MB/s of gigabit Ethernet they take 2.3 s: long
/// enough to see, short enough to wait for.
const SIZE_A_CABLE: u64 = 256 * 1024 * 1024;
