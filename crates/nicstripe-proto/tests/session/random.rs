//! Random links, faults and crashes: whatever happens, the file arrives once and whole.

use std::{panic, time::Duration};

use nicstripe_proto::ChunkId;
use nicstripe_sim::{End, Rng};

use crate::harness::{Direction, Lab, Seed, ms, secs, us};

/// Seeds of a usual run.
const SEEDS: u64 = 300;

/// All faults begin before and are over then.
const FAULTS_UNTIL: Duration = secs(12);

/// Time for the rest, when nothing is in the way any more: 110 MiB at 5 Mbit/s take 185 s.
const LIMIT: Duration = secs(400);

#[test]
fn whatever_happens_the_file_arrives_once_and_whole() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match (number("NICSTRIPE_SEED"), number("NICSTRIPE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(SEEDS),
    };
    seeds.for_each(|seed| run(Seed(seed)));
}

fn run(seed: Seed) {
    let result = panic::catch_unwind(|| {
        let mut lab = random_lab(seed);
        lab.start();
        lab.run(LIMIT);
        lab.assert_delivered();
        // What is still under way lands, and nobody is in a hurry.
        let end = lab.net.now() + secs(3);
        lab.run_until(end);
        lab.assert_delivered();
    });
    if let Err(cause) = result {
        eprintln!("{seed:?} failed; repeat with: NICSTRIPE_SEED={} cargo test -p nicstripe-proto --test session random", seed.0);
        panic::resume_unwind(cause);
    }
}

fn random_lab(seed: Seed) -> Lab {
    let mut rng = Rng::new(seed.0);
    let chunks = pick(&mut rng, &[0, 1, 2, 5, 40, 150, 440]);
    let size = (chunks * 4096).saturating_sub(rng.below(4096) * rng.below(2));
    let mut lab = Lab::small(seed, size);
    if rng.below(2) == 0 {
        lab = lab.direction(Direction::Get);
    }
    for _ in 0..=pick(&mut rng, &[0, 1, 1, 2, 3, 7]) {
        let farthest = pick(&mut rng, &[300, 5_000, 50_000]);
        let (delay, jitter) = (us(rng.below(farthest)), us(rng.below(3_000)));
        lab = lab.link_with(pick(&mut rng, &[5, 10, 100, 100, 1000, 1000]), delay, jitter);
    }
    for end in End::BOTH {
        let disk = &mut lab.peer_mut(end).disk;
        (disk.read_delay, disk.write_delay) = (us(rng.below(2_000)), us(rng.below(5_000)));
        disk.sync_delay = ms(rng.below(300));
    }
    if rng.below(3) == 0 {
        add_holes(&mut lab, &mut rng);
    }
    if rng.below(3) == 0 {
        add_old_file(&mut lab, &mut rng);
    }
    lab.may_change = rng.below(4) == 0;
    lab.damage = (0..rng.below(4)).map(|_| ChunkId(rng.below(chunks.max(1)))).collect();
    for _ in 0..rng.below(7) {
        add_fault(&mut lab, &mut rng);
    }
    lab
}

fn pick(rng: &mut Rng, of: &[u64]) -> u64 {
    of[rng.below(of.len() as u64) as usize]
}

/// Of whole chunks, here and there.
fn add_holes(lab: &mut Lab, rng: &mut Rng) {
    let (chunks, mut first) = (lab.contents.grid.chunk_count(), rng.below(9));
    while first < chunks {
        let count = 1 + rng.below(60);
        lab.add_hole(first, count);
        first += count + 1 + rng.below(60);
    }
}

/// As long as the new one, or longer, or shorter; the same in some chunks.
fn add_old_file(lab: &mut Lab, rng: &mut Rng) {
    let (chunks, same) = (lab.contents.grid.chunk_count(), lab.sender().source);
    let count = pick(rng, &[0, chunks / 2, chunks, chunks, chunks + 9]);
    let like = pick(rng, &[0, 1, 3, 4]);
    let version = |rng: &mut Rng| if rng.below(4) < like { same } else { same ^ 1 };
    lab.old = Some((0..count.min(chunks)).map(|chunk| (ChunkId(chunk), version(rng))).collect());
}

/// Most faults happen in the first second, where the transfer is.
fn add_fault(lab: &mut Lab, rng: &mut Rng) {
    let latest = pick(rng, &[30, 300, 1_000, 8_000]);
    let at = ms(rng.below(latest));
    let until = at + ms(rng.below((FAULTS_UNTIL - at).as_millis() as u64));
    let index = rng.below(lab.links.len() as u64) as usize;
    let end = if rng.below(2) == 0 { End::A } else { End::B };
    match rng.below(7) {
        0 | 1 => {
            lab.at(at, move |lab| lab.cut(index));
            lab.at(until, move |lab| lab.heal(index));
        }
        2 => {
            lab.at(at, move |lab| End::BOTH.into_iter().for_each(|end| lab.silence(index, end)));
            lab.at(until, move |lab| lab.heal_silently(index));
        }
        3 => {
            lab.at(at, move |lab| lab.silence(index, end));
            lab.at(until, move |lab| lab.heal_silently(index));
        }
        4 => {
            let mbit = pick(rng, &[0, 1, 50, 10_000]);
            lab.at(at, move |lab| lab.net.set_rate(lab.links[index], end, mbit * 1_000_000 / 64));
            lab.at(until, move |lab| lab.net.set_rate(lab.links[index], end, 10_000_000 / 64));
        }
        5 => lab.at(at, move |lab| lab.peer_mut(end).disk.stalled_until = until),
        _ => lab.at(at, move |lab| {
            if lab.peers.iter().all(|peer| peer.outcomes.is_empty()) && lab.receiver().disk.committed.is_none() {
                lab.restart(end);
            }
        }),
    }
}
