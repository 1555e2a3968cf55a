//! Tests with random links, faults, cancellations, kills and power cuts: each file is delivered
//! once and intact.
//!
//! `NICSTRIPE_SEEDS=1000 cargo test --release -p nicstripe --lib whatever_happens` runs more seeds,
//! `NICSTRIPE_FIRST=9` from seed 9 on, `NICSTRIPE_SEED=7` only that one, `NICSTRIPE_LONG=1` twenty
//! times as many.

use std::{fs, fs::File, io::Write as _, sync::Arc, time::Duration};

use nicstripe_proto::{FailCode, SessionConfig, TransferId, message::PutOptions};
use nicstripe_sim::{End, LinkConfig, Rng};
use nicstripe_testkit::trial::amount;
use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    damage::Damage,
    lab::{Copy, Direction, Lab, in_virtual_time, mib, ms, new_folder, plan, secs},
    power::{Down, Remains},
};
use crate::{file::DiskCall, report::error::Error, session::Command};

const SEEDS: u64 = 25;

/// Virtual time by which all faults have ended, in milliseconds, except for cuts of all links
/// together.
const FAULTS_UNTIL: u64 = 12_000;

const ALL_CUT_FOR: u64 = 60_000;

/// Time limit of a transfer: 5 MiB at 5 Mbit/s take 9 s.
pub(super) const LIMIT: Duration = secs(200);

/// Maximum number of failed runs of a transfer; the injected disk errors and stalls cause fewer.
const RERUNS: usize = 20;

/// Size of a chunk in bytes.
const CHUNK: u64 = 256 << 10;

/// Number of data frames in flight on a path.
const CREDIT: u64 = 32;

#[test]
fn whatever_happens_the_file_arrives_once_and_whole() {
    for seed in seeds(SEEDS) {
        println!("seed {seed}");
        run(seed);
    }
}

/// Returns the seeds to run: `usual`, twenty times as many, or those that the environment names.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| Some(std::env::var(name).ok()?.parse().unwrap());
    if let Some(seed) = number("NICSTRIPE_SEED") {
        return seed..seed + 1;
    }
    let first = number("NICSTRIPE_FIRST").unwrap_or(0);
    first..first + number("NICSTRIPE_SEEDS").unwrap_or(amount(usual, 20 * usual))
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        in_virtual_time(async {
            let mut lab = Lab::new(seed, &[100, 30]).await;
            lab.at(ms(200), |links| links.cut(0));
            lab.at(ms(700), |links| links.heal(0));
            lab.at(ms(900), |links| links.silence(1, End::A));
            let copy = lab.copy(Direction::Put, 16 << 20).await;
            let (_, tally) = copy.end(LIMIT).await.unwrap();
            (lab.now(), tally.stats)
        })
    };
    assert_eq!(run(7), run(7));
}

/// Copies one file, whatever happens. Both ends may stop and start again several times.
fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let plan = Plan::random(seed, &mut rng);
    let mut folder = new_folder();
    for _ in 0..pick(&mut rng, &[0, 0, 1, 1, 2, 3]) {
        match in_virtual_time(stopped(&plan, folder, &mut rng)) {
            Some(remains) => folder = remains.restore(),
            None => return,
        }
    }
    in_virtual_time(async {
        let mut life = Life::start(&plan, folder, &mut rng).await;
        let copy = life.lab.copy_again(plan.direction).await;
        let copy = life.cancelled(copy, &mut rng).await;
        life.finish(copy).await;
    });
}

/// Starts to copy, and stops both ends at a random moment. Returns `None` if the file had arrived
/// before.
async fn stopped(plan: &Plan, folder: Arc<TempDir>, rng: &mut Rng) -> Option<Remains> {
    let mut life = Life::start(plan, folder, rng).await;
    let copy = life.lab.copy_again(plan.direction).await;
    let latest = pick(rng, &[50, 500, 3_000]);
    sleep(ms(rng.below(latest))).await;
    if copy.has_ended() {
        life.finish(copy).await;
        return None;
    }
    let ways = [Down::InOrder, Down::Killed, Down::PowerCut, Down::PowerCut];
    let mut how = || ways[rng.below(4) as usize];
    let how = [how(), how()];
    Some(life.lab.stop(how, rng).await)
}

/// One copy, and the links that it has.
struct Plan {
    seed: u64,
    direction: Direction,
    size: u64,
    links: Vec<LinkConfig>,
    /// Holes of the source: offset and length.
    holes: Vec<(u64, u64)>,
    /// Content of the receiver's old file; `None` if no delta is requested.
    old: Option<Vec<u8>>,
    allow_changing: bool,
    sync_bytes: u64,
}

impl Plan {
    fn random(seed: u64, rng: &mut Rng) -> Self {
        let chunks = pick(rng, &[0, 1, 2, 5, 20]);
        let size = (chunks * CHUNK).saturating_sub(rng.below(4096) * rng.below(2));
        let direction = Direction::BOTH[rng.below(2) as usize];
        let mut plan = Self {
            seed,
            direction,
            size,
            links: random_links(rng),
            holes: Vec::new(),
            old: None,
            allow_changing: rng.below(4) == 0,
            sync_bytes: pick(rng, &[CHUNK, mib(1), mib(16)]),
        };
        if rng.below(3) == 0 {
            plan.add_holes(chunks, rng);
        }
        if rng.below(3) == 0 {
            plan.add_old_file(rng);
        }
        plan
    }

    fn add_holes(&mut self, chunks: u64, rng: &mut Rng) {
        let mut first = rng.below(4);
        while first < chunks {
            let count = 1 + rng.below(6);
            self.holes.push((first * CHUNK, count * CHUNK));
            first += count + 1 + rng.below(6);
        }
    }

    /// Adds an old file at the receiver, with some chunks equal to the new one's. It is empty, half
    /// as long, as long as the new one, or longer.
    fn add_old_file(&mut self, rng: &mut Rng) {
        let mut old = self.content();
        let len = pick(
            rng,
            &[0, self.size / 2, self.size, self.size, self.size + 9],
        );
        old.resize(len as usize, 7);
        let like = pick(rng, &[0, 1, 3, 4]);
        for chunk in old.chunks_mut(CHUNK as usize) {
            if rng.below(4) >= like {
                chunk[0] ^= 1;
            }
        }
        self.old = Some(old);
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.size as usize];
        blake3::Hasher::new()
            .update(&self.seed.to_le_bytes())
            .finalize_xof()
            .fill(&mut content);
        for (offset, len) in &self.holes {
            let end = (offset + len).min(self.size);
            content[*offset as usize..end as usize].fill(0);
        }
        content
    }

    /// Writes the files of both ends, before the first start.
    fn write(&self, lab: &Lab) {
        let sender = self.direction.sender();
        let mut source = File::create(lab.file(sender)).unwrap();
        source.write_all(&self.content()).unwrap();
        for (offset, len) in &self.holes {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&source, flags, *offset, *len).unwrap();
        }
        if let Some(old) = &self.old {
            fs::write(lab.file(sender.other()), old).unwrap();
        }
    }
}

/// Both ends from a start to a stop.
struct Life<'a> {
    plan: &'a Plan,
    lab: Lab,
    /// True if disks fail.
    is_spoiled: bool,
}

impl<'a> Life<'a> {
    async fn start(plan: &'a Plan, folder: Arc<TempDir>, rng: &mut Rng) -> Self {
        let config = SessionConfig {
            sync_bytes: plan.sync_bytes,
            ..SessionConfig::default()
        };
        let mut lab = Lab::on(folder, rng.next_u64(), plan.links.clone(), config).await;
        // The receiver may have the file although the client does not know.
        lab.options = PutOptions {
            replace: true,
            delta: plan.old.is_some(),
            ..PutOptions::default()
        };
        lab.allow_changing = plan.allow_changing;
        if !lab.file(plan.direction.sender()).exists() {
            plan.write(&lab);
        }
        lab.watch();
        for disk in &lab.disks {
            disk.set_delay(Duration::from_micros(rng.below(3_000)));
            disk.slow_every_fifth(ms(rng.below(300) * rng.below(2)));
        }
        let mut life = Self {
            plan,
            lab,
            is_spoiled: false,
        };
        if rng.below(3) == 0 {
            life.spoil_disks(rng);
        }
        add_faults(&life.lab, rng, plan.size.div_ceil(CHUNK));
        life.lab.add((0..plan.links.len()).map(self::plan)).await;
        life
    }

    /// Cancels the copy some times, and starts it again.
    async fn cancelled(&mut self, mut copy: Copy, rng: &mut Rng) -> Copy {
        for _ in 0..rng.below(3) {
            sleep(ms(rng.below(1_000))).await;
            self.lab.command(Command::Cancel(copy.transfer)).await;
            let copies_before = copy.transfer.0 - 1;
            match copy.end(LIMIT).await {
                Ok(_) => self.assert_intact(),
                Err(Error::Cancelled { .. }) => {}
                Err(error) => self.assert_may_fail(&error, copies_before),
            }
            copy = self.lab.copy_again(self.plan.direction).await;
        }
        copy
    }

    /// Waits until the file has arrived. Starts the copy again after each failure that the disks
    /// may cause.
    async fn finish(&mut self, mut copy: Copy) {
        for rerun in 0.. {
            self.assert_acknowledged_is_written(&copy).await;
            let copies_before = copy.transfer.0 - 1;
            match copy.end(ms(1)).await {
                Ok((outcome, tally)) => {
                    assert_eq!(outcome.size, self.plan.size);
                    if self.plan.direction == Direction::Put {
                        let repeated = tally.stats.repeated_bytes / CHUNK;
                        // Each chunk is sent by a second path at most once, and those of a lost
                        // path are sent twice more.
                        let lost = 2 * CREDIT * (u64::from(tally.failovers) + 1);
                        let chunks = self.plan.size.div_ceil(CHUNK);
                        assert!(repeated <= chunks + lost, "{repeated} of {chunks} chunks");
                    }
                    break;
                }
                Err(error) => self.assert_may_fail(&error, copies_before),
            }
            assert!(rerun < RERUNS, "failed repeatedly");
            sleep(secs(1)).await;
            copy = self.lab.copy_again(self.plan.direction).await;
        }
        self.assert_intact();
        // Delivers what is still in flight, to check that the result stays.
        sleep(secs(3)).await;
        self.assert_intact();
        let receiver = self.plan.direction.sender().other();
        let (disk, links) = (
            &self.lab.disks[receiver as usize],
            self.plan.links.len() as u64,
        );
        // Besides the chunks of all links, a file is opened, compared, synced and committed.
        assert!(disk.most_waiting() <= links * CREDIT + 16);
        assert!(!disk.has_retried_sync());
        let sessions = &self.lab.sessions;
        assert!(sessions.iter().all(|session| !session.ended.is_cancelled()));
    }

    /// Waits for the end of the copy. Asserts meanwhile that the sender counts no more bytes as
    /// delivered than the receiver has written.
    async fn assert_acknowledged_is_written(&self, copy: &Copy) {
        let (sender, transfer, began) =
            (self.plan.direction.sender(), copy.transfer, self.lab.now());
        while !copy.has_ended() {
            assert!(self.lab.now() - began < LIMIT, "the transfer does not end");
            let acknowledged = self.delivered(sender, transfer).await;
            let written = self.delivered(sender.other(), transfer).await;
            if let (Some(acknowledged), Some(written)) = (acknowledged, written) {
                assert!(acknowledged <= written, "{acknowledged}, {written} written");
            }
            sleep(ms(100)).await;
        }
    }

    async fn delivered(&self, end: End, transfer: TransferId) -> Option<u64> {
        let look = self.lab.inspect(end, move |session| {
            let goes_on = session.is_under_way(transfer);
            goes_on.then(|| session.stats(transfer).delivered_bytes)
        });
        look.await
    }

    /// Asserts that a failure is the disks', and that no wrong file is there.
    fn assert_may_fail(&self, error: &Error, copies_before: u32) {
        match error.fail_code() {
            Some(FailCode::Io) if self.is_spoiled => {}
            // A slow disk still writes what the copy before has received.
            Some(FailCode::Busy) if copies_before > 0 => {}
            _ => panic!("{error:?}"),
        }
        let file = self.lab.file(self.plan.direction.sender().other());
        let found = fs::read(file).ok();
        assert!(
            found == self.plan.old || found == Some(self.plan.content()),
            "a wrong file is there"
        );
    }

    /// Asserts that the file has arrived. After a power cut, a part file may stay whose journal was
    /// emptied.
    fn assert_intact(&self) {
        let sent = self.plan.content();
        for end in End::BOTH {
            let found = fs::read(self.lab.file(end)).unwrap();
            assert!(found == sent, "another file is at {end:?}");
        }
    }

    /// Makes random reads, writes and syncs fail once each.
    fn spoil_disks(&mut self, rng: &mut Rng) {
        self.is_spoiled = true;
        let (sender, chunks) = (self.plan.direction.sender(), self.plan.size.div_ceil(CHUNK));
        let [source, target] = [sender, sender.other()].map(|end| &self.lab.disks[end as usize]);
        for _ in 0..rng.below(3) {
            source.fail(DiskCall::Read, rng.below(chunks));
            target.fail(DiskCall::Write, rng.below(chunks));
        }
        if rng.below(2) == 0 {
            target.fail(DiskCall::Sync, rng.below(8));
        }
    }
}

/// Returns one to eight random links.
pub(super) fn random_links(rng: &mut Rng) -> Vec<LinkConfig> {
    let links = 0..=pick(rng, &[0, 1, 1, 2, 3, 7]);
    links.map(|_| random_link(rng)).collect()
}

pub(super) fn random_link(rng: &mut Rng) -> LinkConfig {
    let farthest = pick(rng, &[300, 5_000, 50_000]);
    let (delay, jitter) = (rng.below(farthest), rng.below(3_000));
    let mbit = pick(rng, &[5, 10, 50, 50, 200, 200]);
    LinkConfig::new(mbit * 1_000_000, Duration::from_micros(delay))
        .jitter(Duration::from_micros(jitter))
        .handshake_round_trips(1)
}

pub(super) fn pick(rng: &mut Rng, of: &[u64]) -> u64 {
    of[rng.below(of.len() as u64) as usize]
}

/// Schedules random faults during a transfer of `chunks` chunks, and damages some of these.
pub(super) fn add_faults(lab: &Lab, rng: &mut Rng, chunks: u64) {
    let (mut damage, links) = (Damage::new(rng.next_u64()), lab.links.count());
    for _ in 0..rng.below(4) {
        damage.once(rng.below(chunks.max(1)));
    }
    for _ in 0..rng.below(7) {
        if rng.below(12) > 0 {
            add_fault(lab, rng, links);
            continue;
        }
        let (from, lasts) = (ms(rng.below(1_000)), ms(rng.below(8_000)));
        let (link, time) = (rng.below(links as u64) as usize, from..from + lasts);
        // A session ends after five damaged chunks in a row.
        damage.during(link, time, pick(rng, &[10, 20, 40]));
    }
    damage.begin(&lab.links);
}

/// Schedules a random fault. Most faults begin in the first second, during the transfer.
pub(super) fn add_fault(lab: &Lab, rng: &mut Rng, links: usize) {
    let latest = pick(rng, &[30, 300, 1_000, 8_000]);
    let at = rng.below(latest);
    let until = ms(at + rng.below(FAULTS_UNTIL - at));
    let (at, index) = (ms(at), rng.below(links as u64) as usize);
    let end = End::BOTH[rng.below(2) as usize];
    match rng.below(11) {
        0 | 1 => {
            lab.at(at, move |links| links.cut(index));
            lab.at(until, move |links| links.heal(index));
        }
        2 => {
            lab.at(at, move |links| {
                End::BOTH.iter().for_each(|end| links.silence(index, *end));
            });
            lab.at(until, move |links| links.heal_silently(index));
        }
        3 => {
            lab.at(at, move |links| links.silence(index, end));
            lab.at(until, move |links| links.heal_silently(index));
        }
        4 => {
            let mbit = pick(rng, &[0, 1, 10, 1_000]);
            lab.at(at, move |links| links.set_rate(index, mbit * 1_000_000));
            lab.at(until, move |links| links.set_rate(index, 10_000_000));
        }
        5 => lab.disks[end as usize].stall(at, until),
        6 => lose_packets(lab, rng, at, index, end),
        7 => lab.at(at, move |links| links.set_rate(index, 1_000_000)),
        8 => swizzle(lab, rng, at, links),
        9 => lab.at(at, move |links| links.reset(index, end)),
        _ => flap(lab, rng, at, until, index),
    }
}

/// Schedules a swizzle: cuts all links one by one, and heals them in another order.
fn swizzle(lab: &Lab, rng: &mut Rng, at: Duration, links: usize) {
    let (mut cut, longest) = (at, pick(rng, &[500, 3_000, ALL_CUT_FOR]));
    for index in 0..links {
        lab.at(cut, move |links| links.cut(index));
        cut += ms(rng.below(300));
    }
    for index in 0..links {
        let healed = cut + ms(rng.below(longest));
        lab.at(healed, move |links| links.heal(index));
    }
}

/// Schedules short silences of one direction, which simulate packet loss: TCP turns it into pauses.
fn lose_packets(lab: &Lab, rng: &mut Rng, mut at: Duration, index: usize, end: End) {
    for _ in 0..=rng.below(12) {
        let longest = pick(rng, &[10, 200, 1_800]);
        let healed = at + ms(rng.below(longest));
        lab.at(at, move |links| links.silence(index, end));
        lab.at(healed, move |links| links.heal_silently(index));
        at = healed + ms(rng.below(1_000));
    }
}

fn flap(lab: &Lab, rng: &mut Rng, mut at: Duration, until: Duration, index: usize) {
    let (there, away) = (10 + rng.below(2_000), 10 + rng.below(2_000));
    let with_carrier = rng.below(2) == 0;
    while at < until {
        lab.at(at, move |links| match with_carrier {
            true => links.cut(index),
            false => End::BOTH.iter().for_each(|end| links.silence(index, *end)),
        });
        lab.at(at + ms(away), move |links| match with_carrier {
            true => links.heal(index),
            false => links.heal_silently(index),
        });
        at += ms(away + there);
    }
}
