//! Stages of a copy from disk to disk, run in sequence at both ends.

use std::{os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use nicstripe_proto::{BitRate, Name, message::DiskOrder, name::printable};

use super::Runner;
use crate::{
    client::{Client, Moved, StopOnDrop},
    control::Control,
    plan::DiskPlan,
    report::{Direction, DiskReport, Ends, Spread},
};

/// Measures the stages of a copy: read, network, write and the whole copy, repeated in this order.
/// Updates the report after each stage.
///
/// Notes a stage that fails, and skips it from then on.
pub(super) async fn measure<C: Client>(
    runner: &mut Runner<C>,
    talk: &mut Control<C>,
) -> Result<(), C::Error> {
    let Some(plan) = runner.plan.disk.clone() else {
        return Ok(());
    };
    let Some(name) = plan.name.clone().or_else(|| own_name(&plan.file)) else {
        runner.leave_out("the disks", "the file has no valid remote name");
        return Ok(());
    };
    let mut flow = Flow {
        copier: None,
        bytes: plan.bytes,
        plan,
        name,
        rates: Default::default(),
        left_out: [false; 4],
        systems: Default::default(),
    };
    let result = flow.rounds(runner, talk).await;
    if let Some(copier) = flow.copier.take() {
        copier.close().await;
    }
    result
}

fn own_name(file: &Path) -> Option<Name> {
    Name::new(file.file_name().map(|name| name.as_bytes().to_vec())).ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Read,
    Network,
    Write,
    All,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Read, Self::Network, Self::Write, Self::All];

    fn what(self) -> &'static str {
        match self {
            Self::Read => "reading the source",
            Self::Network => "the network between the disks",
            Self::Write => "writing the target",
            Self::All => "the disk-to-disk copy",
        }
    }
}

/// Disk measurement in progress: the plan and the rates of each stage.
struct Flow<C> {
    plan: DiskPlan,
    /// File name of the copy at the daemon.
    name: Name,
    /// Number of bytes moved by each stage: initially from the plan, then the size that was read.
    bytes: u64,
    /// Measured rates of each stage: read, network, write and the whole copy.
    rates: [Vec<BitRate>; 4],
    left_out: [bool; 4],
    systems: Ends<Option<String>>,
    /// Separate session for the copies, because a failed copy ends its session.
    copier: Option<C>,
}

/// Rate of one stage, or the reason why it was not measured.
type Measured = Result<BitRate, String>;

impl<C: Client> Flow<C> {
    /// Returns the minimum number of repeats, reduced for large files, which take long.
    fn repeats(&self, fewest: u32) -> u32 {
        if self.bytes > LARGE {
            fewest.min(MOST_OF_LARGE)
        } else {
            fewest
        }
    }

    async fn rounds(
        &mut self,
        runner: &mut Runner<C>,
        talk: &mut Control<C>,
    ) -> Result<(), C::Error> {
        let mut repeat = 1;
        while repeat <= self.repeats(*runner.plan.repeats.start()) {
            for stage in Stage::ALL {
                if runner.is_over() {
                    runner.leave_out("the rest of the disks", "time limit reached");
                    return Ok(());
                }
                if self.left_out[stage as usize] {
                    continue;
                }
                match self.stage(stage, repeat, runner, talk).await? {
                    Ok(rate) => self.rates[stage as usize].push(rate),
                    Err(why) => {
                        self.left_out[stage as usize] = true;
                        runner.leave_out(stage.what(), &why);
                        // The number of bytes to move is unknown.
                        if stage == Stage::Read {
                            return Ok(());
                        }
                    }
                }
                runner.report.disk = Some(self.report());
            }
            repeat += 1;
        }
        Ok(())
    }

    async fn stage(
        &mut self,
        stage: Stage,
        repeat: u32,
        runner: &Runner<C>,
        talk: &mut Control<C>,
    ) -> Result<Measured, C::Error> {
        let is_here = (stage == Stage::Read) != self.plan.reverse;
        Ok(match stage {
            Stage::Network => network(self.way(), repeat, runner, talk).await?,
            Stage::All => self.copy(runner).await,
            Stage::Read | Stage::Write if is_here => self.run_here(stage).await,
            Stage::Read | Stage::Write => self.run_there(stage, talk).await?,
        })
    }

    fn way(&self) -> Direction {
        if self.plan.reverse {
            Direction::ToClient
        } else {
            Direction::ToDaemon
        }
    }

    async fn run_here(&mut self, stage: Stage) -> Measured {
        let (file, bytes) = (self.plan.file.clone(), self.bytes);
        // Ends the work if this future is dropped.
        let stop = StopOnDrop::default();
        let flag = stop.flag();
        let done = tokio::task::spawn_blocking(move || match stage {
            Stage::Read => C::read_stage(&file, bytes, &flag),
            _ => C::write_stage(&file, bytes, &flag),
        });
        let moved = done
            .await
            .unwrap_or_else(|_| Err("internal error".into()))?;
        self.systems.client.clone_from(&moved.file_system);
        self.take(stage, moved)
    }

    async fn run_there(
        &mut self,
        stage: Stage,
        talk: &mut Control<C>,
    ) -> Result<Measured, C::Error> {
        let order = DiskOrder {
            bytes: self.bytes,
            name: Some(self.name.clone()),
            number: 0,
            read: stage == Stage::Read,
        };
        let done = talk.disk(order, LONGEST).await?;
        if let Some(error) = done.error {
            return Ok(Err(printable(error.as_bytes())));
        }
        let file_system = done.file_system.map(|name| printable(name.as_bytes()));
        self.systems.daemon.clone_from(&file_system);
        Ok(self.take(
            stage,
            Moved {
                bytes: done.bytes,
                elapsed: Duration::from_micros(done.micros),
                file_system,
            },
        ))
    }

    fn take(&mut self, stage: Stage, moved: Moved) -> Measured {
        if moved.bytes == 0 || moved.bytes > self.bytes {
            return Err("unexpected number of bytes moved".into());
        }
        if stage == Stage::Read {
            self.bytes = moved.bytes;
        }
        Ok(moved.rate())
    }

    /// Measures a whole copy from disk to disk, without keeping its target.
    async fn copy(&mut self, runner: &Runner<C>) -> Measured {
        let size = std::fs::metadata(&self.plan.file).map(|found| found.len());
        let is_all = if self.plan.reverse {
            self.bytes < self.plan.bytes
        } else {
            size.is_ok_and(|size| size <= self.bytes)
        };
        if !is_all {
            return Err(format!(
                "the file exceeds the {} bytes measured",
                self.plan.bytes
            ));
        }
        if self.copier.is_none() {
            self.copier = Some(
                runner
                    .client
                    .another(None, None)
                    .await
                    .map_err(|error| C::text(&error))?,
            );
        }
        let client = self.copier.as_ref().unwrap_or(&runner.client);
        client
            .try_copy(self.way(), &self.plan.file, &self.name)
            .await
            .map_err(|error| C::text(&error))
    }

    fn report(&self) -> DiskReport {
        let [read, network, write, all] = self.rates.clone().map(|rates| Spread::of(&rates));
        let stages = [("read", read), ("network", network), ("write", write)];
        let narrowest = stages
            .iter()
            .filter_map(|(name, rate)| Some((rate.as_ref()?.median_bps, *name)))
            .min();
        // Needs the rates of all stages.
        let narrowest = narrowest.filter(|_| stages.iter().all(|(_, rate)| rate.is_some()));
        DiskReport {
            way: self.way(),
            bytes: self.bytes,
            read,
            network,
            write,
            all,
            narrowest: narrowest.map(|(_, name)| name.to_owned()),
            file_systems: self.systems.clone(),
        }
    }
}

/// Measures the network rate over all links, from memory to memory.
async fn network<C: Client>(
    way: Direction,
    repeat: u32,
    runner: &Runner<C>,
    talk: &mut Control<C>,
) -> Result<Measured, C::Error> {
    let mut load = runner.load_of(way.phase(), repeat, &runner.links.ids());
    load.longest = load.longest.min(NETWORK_TIME);
    talk.load(&mut load, &runner.events).await?;
    let run = load.run(runner.began);
    Ok(run
        .map(|run| BitRate(run.total_bps))
        .ok_or_else(|| "nothing arrived".into()))
}

/// Maximum time for a disk stage at the daemon.
const LONGEST: Duration = Duration::from_secs(600);

/// Maximum duration of a network load between two disk stages.
const NETWORK_TIME: Duration = Duration::from_secs(3);

/// File size in bytes above which a stage takes seconds on any disk, so that noise matters less.
const LARGE: u64 = 256 << 20;

/// Upper limit of the minimum number of repeats for files larger than [`LARGE`].
const MOST_OF_LARGE: u32 = 3;
