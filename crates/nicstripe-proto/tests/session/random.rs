//! Tests with random links and faults: streams are always delivered once and intact. The library's
//! `session/simulated` tests run the shipped event loop with files.

use std::time::Duration;

use nicstripe_proto::{ChunkId, PathId, message::OfferKind};
use nicstripe_sim::{End, Rng};

use crate::{
    harness::{Direction, Lab, Seed, ms, secs, us},
    live::Plan,
    pipes::batches,
    seeds::run_all,
};

const SEEDS: u64 = 120;

/// Virtual time by which all faults have ended, except for cuts of all links together.
const FAULTS_UNTIL: Duration = secs(12);

const ALL_CUT_FOR: Duration = secs(60);

/// Time limit after the faults: 110 MiB at 5 Mbit/s take 185 s.
const LIMIT: Duration = secs(500);

/// Maximum number of failed runs of a transfer; the injected disk errors cause fewer.
const RERUNS: usize = 12;

#[test]
fn whatever_happens_pipes_batches_and_what_is_taken_in_order_arrive_once_and_whole() {
    run_all("whatever_happens_pipes", &[], SEEDS, |seed| {
        finish(&mut random_live_lab(seed));
    });
}

/// Runs a transfer until it is delivered. Restarts it after each failure that the injected faults
/// may cause.
pub(crate) fn finish(lab: &mut Lab) {
    lab.start();
    for rerun in 0.. {
        lab.run(lab.net.now() + LIMIT);
        if lab.is_delivered() {
            break;
        }
        assert!(rerun < RERUNS, "failed repeatedly: {}", lab.describe());
        lab.assert_failed();
        if lab.receiver().disk.committed.is_some() {
            return;
        }
        lab.crash_both();
    }
    lab.assert_delivered();
    assert_little_was_sent_twice(lab);
    // Delivers what is still in flight, to check that the result stays.
    let end = lab.net.now() + secs(3);
    lab.run_until(end);
    lab.assert_delivered();
}

/// Checks the number of retransmissions: each chunk is hedged at most once, and the chunks of a
/// lost path are sent and hedged once more.
fn assert_little_was_sent_twice(lab: &Lab) {
    let losses: usize = lab.peers.iter().map(|peer| peer.losses.len()).sum();
    let most = lab.contents.chunks().count + 2 * lab.config.credit_window * (losses as u64 + 1);
    let repeated = lab.sender_stats().repeated_bytes / lab.contents.grid.chunk_size.bytes();
    assert!(
        repeated <= most,
        "{repeated} chunks were sent twice, {losses} paths lost"
    );
}

/// Creates a lab with random links and faults, for a transfer with a streaming source or an
/// in-order sink.
fn random_live_lab(seed: Seed) -> Lab {
    let mut rng = Rng::new(!seed.0);
    let kind = [OfferKind::File, OfferKind::Pipe, OfferKind::Batches][rng.below(3) as usize];
    let chunks = pick(&mut rng, &[0, 1, 2, 5, 40, 150, 440]);
    let size = (chunks * 4096).saturating_sub(rng.below(4096) * rng.below(2));
    let needs_room = kind != OfferKind::Pipe || rng.below(2) == 0;
    let plan = Plan {
        kind,
        room: needs_room.then(|| pick(&mut rng, &[1, 2, 7, 8, 64, 1000])),
        ahead: pick(&mut rng, &[1, 2, 16, 64]) as usize,
        give_every: us(pick(&mut rng, &[0, 500, 10_000])),
        take_every: us(pick(&mut rng, &[0, 500, 10_000])),
        knows_last: rng.below(2) == 0,
        untold: (rng.below(2) == 0).then(|| 1 + rng.below(30)),
    };
    let untold = plan.untold.filter(|_| kind == OfferKind::Batches);
    let mut lab = Lab::small(seed, size).plan(Plan { untold, ..plan });
    if kind == OfferKind::Batches {
        lab.contents = batches(seed.0, chunks);
    }
    with_faults(lab, &mut rng, chunks)
}

fn with_faults(mut lab: Lab, rng: &mut Rng, chunks: u64) -> Lab {
    if rng.below(2) == 0 {
        lab = lab.direction(Direction::Get);
    }
    for _ in 0..=pick(rng, &[0, 1, 1, 2, 3, 7]) {
        let farthest = pick(rng, &[300, 5_000, 50_000]);
        let (delay, jitter) = (us(rng.below(farthest)), us(rng.below(3_000)));
        lab = lab.link_with(pick(rng, &[5, 10, 100, 100, 1000, 1000]), delay, jitter);
    }
    for end in End::BOTH {
        let disk = &mut lab.peer_mut(end).disk;
        (disk.read_delay, disk.write_delay) = (us(rng.below(2_000)), us(rng.below(5_000)));
        disk.sync_delay = ms(rng.below(300));
    }
    // A receiver with a window gets no holes; all data is sent.
    if rng.below(3) == 0 && lab.kind() == OfferKind::File {
        add_holes(&mut lab, rng);
    }
    if rng.below(3) == 0 && lab.live.is_none() {
        add_old_file(&mut lab, rng);
    }
    lab.may_change = rng.below(4) == 0 && lab.live.is_none();
    lab.damage = (0..rng.below(4))
        .map(|_| ChunkId(rng.below(chunks.max(1))))
        .collect();
    // Zeros are equal in every version, damaged or not.
    lab.damage
        .retain(|chunk| !lab.contents.holes.contains(*chunk));
    for _ in 0..rng.below(7) {
        add_fault(&mut lab, rng);
    }
    lab
}

fn pick(rng: &mut Rng, of: &[u64]) -> u64 {
    of[rng.below(of.len() as u64) as usize]
}

fn add_holes(lab: &mut Lab, rng: &mut Rng) {
    let (chunks, mut first) = (lab.contents.grid.chunk_count(), rng.below(9));
    while first < chunks {
        let count = 1 + rng.below(60);
        lab.add_hole(first, count);
        first += count + 1 + rng.below(60);
    }
}

/// Adds an old file at the receiver, with some chunks equal to the new one's. It is empty, half as
/// long or as long as the new one.
fn add_old_file(lab: &mut Lab, rng: &mut Rng) {
    let (chunks, same) = (lab.contents.grid.chunk_count(), lab.sender().source);
    let count = pick(rng, &[0, chunks / 2, chunks, chunks, chunks + 9]);
    let like = pick(rng, &[0, 1, 3, 4]);
    let version = |rng: &mut Rng| if rng.below(4) < like { same } else { same ^ 1 };
    lab.old = Some(
        (0..count.min(chunks))
            .map(|chunk| (ChunkId(chunk), version(rng)))
            .collect(),
    );
}

/// Schedules a random fault. Most begin in the first second, during the transfer.
fn add_fault(lab: &mut Lab, rng: &mut Rng) {
    let latest = pick(rng, &[30, 300, 1_000, 8_000]);
    let at = ms(rng.below(latest));
    let until = at + ms(rng.below((FAULTS_UNTIL - at).as_millis() as u64));
    let index = rng.below(lab.links.len() as u64) as usize;
    let end = if rng.below(2) == 0 { End::A } else { End::B };
    match rng.below(14) {
        0 | 1 => {
            lab.at(at, move |lab| lab.cut(index));
            lab.at(until, move |lab| lab.heal(index));
        }
        2 => {
            lab.at(at, move |lab| {
                End::BOTH
                    .into_iter()
                    .for_each(|end| lab.silence(index, end));
            });
            lab.at(until, move |lab| lab.heal_silently(index));
        }
        3 => {
            lab.at(at, move |lab| lab.silence(index, end));
            lab.at(until, move |lab| lab.heal_silently(index));
        }
        4 => {
            let mbit = pick(rng, &[0, 1, 50, 10_000]);
            lab.at(at, move |lab| {
                lab.net
                    .set_rate(lab.links[index], end, mbit * 1_000_000 / 64);
            });
            lab.at(until, move |lab| {
                lab.net.set_rate(lab.links[index], end, 10_000_000 / 64);
            });
        }
        5 => lab.at(at, move |lab| lab.peer_mut(end).disk.stalled_until = until),
        6 | 7 => {
            let both = rng.below(3) == 0;
            lab.at(at, move |lab| kill(lab, (!both).then_some(end)));
        }
        8 => lose_packets(lab, rng, at, index, end),
        9 => {
            // To a hundredth of a gigabit, in both directions.
            lab.at(at, move |lab| {
                End::BOTH
                    .into_iter()
                    .for_each(|end| lab.net.set_rate(lab.links[index], end, 10_000_000 / 64));
            });
        }
        10 => {
            let (path, one_in) = (PathId(index as u16), pick(rng, &[2, 3, 10, 40]));
            lab.at(at, move |lab| _ = lab.damages.insert(path, one_in));
            lab.at(until, move |lab| _ = lab.damages.remove(&path));
        }
        11 => swizzle(lab, rng, at),
        12 => flap(lab, rng, at, until, index),
        _ => spoil_disks(lab, rng),
    }
}

fn kill(lab: &mut Lab, end: Option<End>) {
    if lab.live.is_some()
        || lab.peers.iter().any(|peer| !peer.outcomes.is_empty())
        || lab.receiver().disk.committed.is_some()
    {
        return;
    }
    match end {
        Some(end) => lab.restart(end),
        None => lab.crash_both(),
    }
}

/// Schedules short silences of one direction, which simulate packet loss: TCP turns it into pauses.
fn lose_packets(lab: &mut Lab, rng: &mut Rng, mut at: Duration, index: usize, end: End) {
    for _ in 0..=rng.below(12) {
        let longest = pick(rng, &[10, 200, 1_800]);
        let healed = at + ms(rng.below(longest));
        lab.at(at, move |lab| lab.silence(index, end));
        lab.at(healed, move |lab| lab.heal_silently(index));
        at = healed + ms(rng.below(1_000));
    }
}

/// Schedules a swizzle: cuts all links one by one, and heals them in another order.
fn swizzle(lab: &mut Lab, rng: &mut Rng, at: Duration) {
    let (mut cut, longest) = (at, pick(rng, &[500, 3_000, ALL_CUT_FOR.as_millis() as u64]));
    let links = lab.links.len();
    for index in 0..links {
        lab.at(cut, move |lab| lab.cut(index));
        cut += ms(rng.below(300));
    }
    for index in 0..links {
        lab.at(cut + ms(rng.below(longest)), move |lab| lab.heal(index));
    }
}

fn flap(lab: &mut Lab, rng: &mut Rng, mut at: Duration, until: Duration, index: usize) {
    let (there, away, with_carrier) = (
        10 + rng.below(2_000),
        10 + rng.below(2_000),
        rng.below(2) == 0,
    );
    while at < until {
        lab.at(at, move |lab| match with_carrier {
            true => lab.cut(index),
            false => End::BOTH
                .into_iter()
                .for_each(|end| lab.silence(index, end)),
        });
        lab.at(at + ms(away), move |lab| {
            if with_carrier {
                lab.heal(index);
            } else {
                lab.heal_silently(index);
            }
        });
        at += ms(away + there);
    }
}

/// Makes random reads, writes and syncs fail once each. Does nothing for streams, which cannot be
/// repeated.
fn spoil_disks(lab: &mut Lab, rng: &mut Rng) {
    if lab.live.is_some() {
        return;
    }
    let (chunks, sender) = (
        lab.contents.grid.chunk_count().max(1),
        lab.direction.sender(),
    );
    for _ in 0..rng.below(3) {
        lab.peer_mut(sender)
            .disk
            .unreadable
            .insert(ChunkId(rng.below(chunks)));
        lab.peer_mut(sender.other())
            .disk
            .unwritable
            .insert(ChunkId(rng.below(chunks)));
    }
    if rng.below(2) == 0 {
        lab.peer_mut(sender.other()).disk.sync_fails_after = Some(rng.below(4));
    }
}
