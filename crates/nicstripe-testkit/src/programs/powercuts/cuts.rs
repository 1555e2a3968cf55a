//! Repeated simulated power cuts of a disk that logs its writes.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nicstripe_sim::Rng;

use super::{
    disk::{Disk, Loss, Position},
    history::{Copy, History, Thing},
    inspection::Findings,
    room::{Daemons, Room, Skipped},
    volume::{Kind, Mounted},
    workload::{self, Amount},
};
use crate::bench::{CpReport, Process, Result};

/// Parameters of the power cuts on one file system.
#[derive(Debug)]
pub struct Plan<'a> {
    pub room: &'a Room,
    pub kind: Kind,
    pub skipped: Skipped,
    pub cuts: u32,
    /// Number of power cuts per recorded log.
    pub per_log: u32,
    pub amount: Amount,
    /// Interval, in cuts, at which interrupted copies are rerun; 0 disables reruns. Copies are also
    /// rerun after each cut with a journal that claims durable chunks.
    pub again_every: usize,
}

/// Results of the power cuts on one file system.
#[derive(Debug, Default)]
pub struct Outcome {
    pub cuts: u32,
    /// Number of cuts with at least one violation.
    pub bad_cuts: u32,
    pub findings: Findings,
    /// Number of lost blocks, and number of blocks written since the last flush.
    pub blocks: [u64; 2],
    /// Number of interrupted copies that were rerun.
    pub again: u64,
    /// Number of reruns of interrupted copies that failed.
    pub again_failed: u64,
    /// Bytes that successful reruns did not retransmit.
    pub kept: u64,
}

impl Outcome {
    /// Returns the share of cuts with a violation, from 0 to 1.
    pub fn bad_share(&self) -> f64 {
        f64::from(self.bad_cuts) / f64::from(self.cuts.max(1))
    }
}

/// Disk with a log of writes, and the copies that produced it.
struct Recording {
    disk: Disk,
    history: History,
    /// Log position at which the copies start. The entries before it created the empty file system.
    begin: Position,
    end: Position,
}

impl Plan<'_> {
    /// Records logs of copies, and simulates power cuts of each log until `cuts` power cuts are
    /// made.
    pub fn carry_out(&self, rng: &mut Rng) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        while outcome.cuts < self.cuts {
            let recording = self.record(rng)?;
            let began = Instant::now();
            let acknowledged = recording.history.acknowledgements().len();
            let before = (outcome.cuts, outcome.bad_cuts);
            self.cut_all(&recording, rng, &mut outcome)?;
            let (cuts, bad) = (outcome.cuts - before.0, outcome.bad_cuts - before.1);
            let (kind, disk, time) = (self.kind, recording.disk.summary(), began.elapsed());
            eprintln!(
                "{kind}, skipped {:?}: {acknowledged} copies, {disk}: {cuts} cuts in {time:.1?}, {bad} with a fault",
                self.skipped
            );
        }
        Ok(outcome)
    }

    fn record(&self, rng: &mut Rng) -> Result<Recording> {
        self.room.clear_sources()?;
        self.kind.make(&self.room.image())?;
        let disk = Disk::serve(&self.room.image(), &self.room.disk())?;
        let mounted = self.kind.mount(disk.path(), &self.room.targets())?;
        let daemons = Daemons::start(self.room, self.skipped)?;
        let begin = disk.position();
        let copies = workload::run(self.room, &disk, &daemons, self.amount, rng)?;
        let end = disk.stop_logging();
        drop(daemons);
        mounted.unmount()?;
        Ok(Recording {
            disk,
            history: History::new(copies),
            begin,
            end,
        })
    }

    fn cut_all(&self, recording: &Recording, rng: &mut Rng, outcome: &mut Outcome) -> Result<()> {
        let count = self.per_log.min(self.cuts - outcome.cuts);
        let positions = recording.positions(count as usize, rng);
        for (index, position) in positions.into_iter().enumerate() {
            let loss = [Loss::All, Loss::Tail, Loss::Blocks][rng.below(3) as usize];
            let mut findings = self.cut(recording, position, loss, index, rng, outcome)?;
            outcome.cuts += 1;
            outcome.bad_cuts += u32::from(!findings.is_clean());
            let place = format!(
                "{}, cut at {position} of {}, lost {loss:?}: ",
                self.kind, recording.end
            );
            findings
                .notes
                .iter_mut()
                .for_each(|note| note.insert_str(0, &place));
            if let Some(note) = findings
                .notes
                .first()
                .filter(|_| self.skipped == Skipped::None)
            {
                eprintln!("{note}");
            }
            outcome.findings.add(findings);
        }
        Ok(())
    }

    fn cut(
        &self,
        recording: &Recording,
        position: Position,
        loss: Loss,
        index: usize,
        rng: &mut Rng,
        outcome: &mut Outcome,
    ) -> Result<Findings> {
        let lost = recording.disk.lose_power(position, loss, rng)?;
        outcome.blocks[0] += lost.lost as u64;
        outcome.blocks[1] += lost.of as u64;
        let mounted = match self.kind.mount(recording.disk.path(), &self.room.targets()) {
            Ok(mounted) => mounted,
            // A file system that cannot be mounted has lost everything. It should survive even
            // without sync calls, because it flushes its own journal.
            Err(error) => {
                return Ok(Findings {
                    notes: vec![error.to_string()],
                    ..Findings::default()
                });
            }
        };
        let mut findings = Findings::of(&mounted.folder, &recording.history, position)?;
        let interrupted = recording.history.interrupted(position);
        let is_due = self.again_every > 0
            && (index.is_multiple_of(self.again_every) || findings.claimed > 0);
        if is_due && !interrupted.is_empty() && findings.is_clean() {
            let daemons = Daemons::start(self.room, Skipped::None)?;
            for copy in interrupted {
                outcome.again += 1;
                match self.run_again(&daemons, copy, &mounted) {
                    Ok(kept) => outcome.kept += kept,
                    Err(error) => {
                        outcome.again_failed += 1;
                        findings.notes.push(format!("rerun, {copy:?}: {error}"));
                    }
                }
            }
        }
        mounted.unmount()?;
        Ok(findings)
    }

    /// Reruns an interrupted copy. Returns the bytes that the rerun did not retransmit.
    ///
    /// # Errors
    ///
    /// The copy fails, or its result is wrong.
    fn run_again(&self, daemons: &Daemons<'_>, copy: &Copy, mounted: &Mounted) -> Result<u64> {
        let mut copy = copy.clone();
        // The limit only kept the copy running until the power cut.
        if let Some(at) = copy.options.iter().position(|option| option == "--bwlimit") {
            copy.options.drain(at..at + 2);
        }
        if !copy.options.iter().any(|option| option == "--force") {
            // The file may have been renamed to its final name just before the power cut.
            copy.options.push("--force".to_owned());
        }
        // Recreates the folder, as its creator would do after a power cut.
        if let Some(folder) = Path::new(&copy.target).parent() {
            fs::create_dir_all(mounted.folder.join(folder))?;
        }
        let mut client = Process::spawn(daemons.client(&copy), "again", &self.room.logs())?;
        client.await_end(Instant::now() + AGAIN_TIMEOUT)?;
        client.succeeded()?;
        for (path, thing) in &copy.things {
            let found = Thing::at(&mounted.folder.join(path))?;
            if !thing.is(&found) {
                return Err(format!("{} is {found:?}, expected {thing:?}", path.display()).into());
            }
        }
        Ok(CpReport::parse(&client.output()?)?
            .resumed_bytes
            .unwrap_or(0))
    }
}

impl Recording {
    /// Returns `count` cut positions in ascending order. Half of them are at or right after
    /// acknowledgements, each used equally often; the rest are random.
    fn positions(&self, count: usize, rng: &mut Rng) -> Vec<Position> {
        let acknowledgements = self.history.acknowledgements();
        let first = rng.below(acknowledgements.len() as u64) as usize;
        let mut positions: Vec<Position> = acknowledgements
            .into_iter()
            .cycle()
            .skip(first)
            .take(count / 2)
            .collect();
        for position in &mut positions {
            *position =
                (*position + [0, rng.below(SOON) as usize][rng.below(2) as usize]).min(self.end);
        }
        positions.resize_with(count, || {
            self.begin + rng.below((self.end - self.begin + 1) as u64) as usize
        });
        positions.sort_unstable();
        positions
    }
}

/// Maximum distance, in log entries, between an acknowledgement and a cut right after it.
const SOON: u64 = 8;

/// Timeout of a rerun on a loaded machine.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(120);
