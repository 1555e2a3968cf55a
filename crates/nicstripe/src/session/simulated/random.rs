//! Tests with random links, faults and cancellations: each file is delivered once and intact.
//!
//! `NICSTRIPE_SEEDS=1000 cargo test --release -p nicstripe --lib whatever_happens` runs more seeds,
//! `NICSTRIPE_SEED=7` only that one.

use std::time::Duration;

use nicstripe_proto::{PathId, SessionConfig};
use nicstripe_sim::{End, LinkConfig, Rng};
use tokio::time::sleep;

use super::lab::{Direction, Lab, in_virtual_time, ms, plan, secs};
use crate::session::Command;

const SEEDS: u64 = 25;

/// Virtual time by which all faults have ended, in milliseconds.
const FAULTS_UNTIL: u64 = 12_000;

/// Time limit of a copy: 5 MiB at 5 Mbit/s take 9 s.
const LIMIT: Duration = secs(200);

#[test]
fn whatever_happens_the_file_arrives_once_and_whole() {
    let number = |name| Some(std::env::var(name).ok()?.parse().unwrap());
    let seeds = match number("NICSTRIPE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NICSTRIPE_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        println!("seed {seed}");
        in_virtual_time(run(seed));
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let mut found = None;
        in_virtual_time(async {
            let mut lab = Lab::new(seed, &[100, 30]).await;
            lab.at(ms(200), |links| links.cut(0));
            lab.at(ms(700), |links| links.heal(0));
            lab.at(ms(900), |links| links.silence(1, End::A));
            let copy = lab.copy(Direction::Put, 16 << 20).await;
            let (_, tally) = copy.end(LIMIT).await.unwrap();
            found = Some((lab.now(), tally.stats));
        });
        found.unwrap()
    };
    assert_eq!(run(7), run(7));
}

async fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let chunks = pick(&mut rng, &[0, 1, 2, 5, 20]);
    let size = (chunks << 18).saturating_sub(rng.below(4096) * rng.below(2));
    let direction = Direction::BOTH[rng.below(2) as usize];
    let links: Vec<LinkConfig> = (0..=pick(&mut rng, &[0, 1, 1, 2, 3]))
        .map(|_| random_link(&mut rng))
        .collect();
    let mut lab = Lab::over(seed, links, SessionConfig::default()).await;
    // The receiver may have the file although the client cancelled it.
    lab.options.replace = true;
    for disk in &lab.disks {
        disk.set_delay(Duration::from_micros(rng.below(3_000)));
    }
    let count = lab.links.count();
    for _ in 0..rng.below(7) {
        add_fault(&lab, &mut rng, count);
    }
    let paths = (0..count).map(|index| (PathId(index as u16), plan(index)));
    lab.command(Command::AddPaths(paths.collect())).await;
    let mut copy = lab.copy(direction, size).await;
    for _ in 0..rng.below(3) {
        sleep(ms(rng.below(1_000))).await;
        lab.command(Command::Cancel(copy.transfer)).await;
        if copy.end(LIMIT).await.is_ok() {
            lab.assert_delivered();
        }
        copy = lab.copy_again(direction).await;
    }
    let (outcome, _) = copy.end(LIMIT).await.unwrap();
    assert_eq!(outcome.size, size);
    lab.assert_delivered();
    // Delivers what is still in flight, to check that the result stays.
    sleep(secs(3)).await;
    lab.assert_delivered();
    assert!(
        lab.sessions
            .iter()
            .all(|session| !session.ended.is_cancelled())
    );
}

pub(super) fn random_link(rng: &mut Rng) -> LinkConfig {
    let farthest = pick(rng, &[300, 5_000, 50_000]);
    let (delay, jitter) = (rng.below(farthest), rng.below(3_000));
    let mbit = pick(rng, &[5, 10, 50, 50, 200, 200]);
    LinkConfig::new(mbit * 1_000_000, Duration::from_micros(delay))
        .jitter(Duration::from_micros(jitter))
        .handshake_round_trips(1)
}

fn pick(rng: &mut Rng, of: &[u64]) -> u64 {
    of[rng.below(of.len() as u64) as usize]
}

/// Schedules a random fault. Most faults begin in the first second, during the transfer.
pub(super) fn add_fault(lab: &Lab, rng: &mut Rng, links: usize) {
    let at = {
        let latest = pick(rng, &[30, 300, 1_000, 8_000]);
        rng.below(latest)
    };
    let until = ms(at + rng.below(FAULTS_UNTIL - at));
    let (at, index) = (ms(at), rng.below(links as u64) as usize);
    let end = End::BOTH[rng.below(2) as usize];
    match rng.below(6) {
        0 => {
            lab.at(at, move |links| links.cut(index));
            lab.at(until, move |links| links.heal(index));
        }
        1 => {
            lab.at(at, move |links| {
                End::BOTH.iter().for_each(|end| links.silence(index, *end));
            });
            lab.at(until, move |links| links.heal_silently(index));
        }
        2 => {
            lab.at(at, move |links| links.silence(index, end));
            lab.at(until, move |links| links.heal_silently(index));
        }
        3 => {
            let mbit = pick(rng, &[0, 1, 10, 1_000]);
            lab.at(at, move |links| links.set_rate(index, mbit * 1_000_000));
            lab.at(until, move |links| links.set_rate(index, 10_000_000));
        }
        4 => lab.disks[end as usize].stall(at, until),
        _ => {
            // All links one by one, healed in the same order.
            for index in 0..links {
                lab.at(at + ms(100 * index as u64), move |links| links.cut(index));
                lab.at(until + ms(200 * index as u64), move |links| {
                    links.heal(index);
                });
            }
        }
    }
}
