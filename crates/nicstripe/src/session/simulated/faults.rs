//! Tests with links that are cut, silenced, slowed and healed, and with disks that stall.

use std::{os::unix::fs::FileExt, time::Duration};

use nicstripe_proto::{FailCode, SessionConfig};
use nicstripe_sim::End;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::lab::{Direction, Lab, Links, both_ways, in_virtual_time, mib, ms, secs};
use crate::{
    report::{error::Error, event::Event},
    session::{Command, Tally},
};

/// Size of the file in bytes: 16 MiB take 1.34 s over two links of 50 Mbit/s.
const SIZE: u64 = mib(16);

const RATE: f64 = 50e6;

const LIMIT: Duration = secs(120);

/// Number of data frames in flight on a path.
const CREDIT: u64 = 32;

/// Time after the start by which the connections are established.
const CONNECTED: Duration = ms(10);

async fn two_links() -> Lab {
    Lab::new(3, &[50, 50]).await
}

/// Copies a file of [`SIZE`] bytes. Returns the duration and the client's statistics.
async fn copy(lab: &mut Lab, direction: Direction) -> (Duration, Tally) {
    let began = lab.now();
    let copy = lab.copy(direction, SIZE).await;
    let (outcome, tally) = copy.end(LIMIT).await.unwrap();
    lab.assert_delivered();
    assert_eq!(outcome.size, SIZE);
    (lab.now() - began, tally)
}

/// Returns the ideal duration of the transfer over two links; one fails at `at`.
fn ideal_on_one(at: Duration) -> Duration {
    Duration::from_secs_f64(SIZE as f64 * 8.0 / RATE) - at
}

#[test]
fn a_cut_link_costs_at_most_half_a_second_more_than_the_rest_carries() {
    for direction in Direction::BOTH {
        for (index, at) in [(0, ms(500)), (1, ms(500)), (0, ms(10)), (1, ms(1300))] {
            in_virtual_time(async move {
                let mut lab = two_links().await;
                lab.at(at, move |links| links.cut(index));
                let (took, tally) = copy(&mut lab, direction).await;
                assert_eq!(tally.failovers, 1);
                assert!(
                    took <= ideal_on_one(at) + ms(500),
                    "{direction:?}, link {index} at {at:?}: {took:?}"
                );
            });
        }
    }
}

#[test]
fn a_link_that_falls_silent_costs_at_most_one_point_seven_seconds_more() {
    for direction in Direction::BOTH {
        for silent in [&End::BOTH[..], &[End::A], &[End::B]] {
            for at in [ms(500), ms(1250)] {
                in_virtual_time(async move {
                    let mut lab = two_links().await;
                    lab.at(at, move |links| {
                        silent.iter().for_each(|end| links.silence(0, *end));
                    });
                    let (took, _) = copy(&mut lab, direction).await;
                    assert!(
                        took <= ideal_on_one(at) + ms(1700),
                        "{direction:?}, silent {silent:?} at {at:?}: {took:?}"
                    );
                });
            }
        }
    }
}

#[test]
fn a_link_that_is_cut_and_healed_carries_data_again_within_two_seconds() {
    for direction in Direction::BOTH {
        for away in [ms(100), ms(700), ms(1300)] {
            in_virtual_time(async move {
                let mut lab = Lab::new(3, &[50, 10]).await;
                lab.at(ms(500), |links| links.cut(0));
                lab.at(ms(500) + away, |links| links.heal(0));
                let again = carries_again(&lab, direction.sender(), ms(500) + away);
                copy(&mut lab, direction).await;
                assert!(again.await.unwrap() <= secs(2));
            });
        }
    }
}

#[test]
fn a_link_that_was_silent_carries_data_again_within_two_seconds() {
    // Long enough for the longest back-off; the other link is slow, so that the transfer lasts.
    for fifths in 0..10 {
        in_virtual_time(async move {
            let heal = secs(8) + ms(200 * fifths);
            let mut lab = Lab::new(3, &[50, 5]).await;
            lab.at(ms(500), |links| {
                End::BOTH.iter().for_each(|end| links.silence(0, *end));
            });
            lab.at(heal, |links| links.heal_silently(0));
            let again = carries_again(&lab, End::A, heal);
            copy(&mut lab, Direction::Put).await;
            assert!(again.await.unwrap() <= secs(2), "healed at {heal:?}");
        });
    }
}

/// Measures the time from `heal` until link 0 has delivered 256 KiB from this end.
pub(super) fn carries_again(
    lab: &Lab,
    from: End,
    heal: Duration,
) -> tokio::task::JoinHandle<Duration> {
    let (links, wait) = (lab.links.clone(), heal - lab.now());
    tokio::spawn(async move {
        sleep(wait).await;
        let (healed, before) = (Instant::now(), links.delivered(0, from));
        while links.delivered(0, from) < before + (256 << 10) {
            sleep(ms(5)).await;
        }
        healed.elapsed()
    })
}

#[test]
fn a_session_outlives_a_minute_without_any_link() {
    both_ways(async move |direction| {
        let mut lab = two_links().await;
        lab.at(ms(500), |links| (0..2).for_each(|index| links.cut(index)));
        lab.at(ms(60_500), |links| {
            (0..2).for_each(|index| links.heal(index));
        });
        let (took, tally) = copy(&mut lab, direction).await;
        assert!(took <= secs(65), "{took:?}");
        // Acknowledged data is not retransmitted; at most two windows were in flight.
        let repeated = tally.stats.repeated_bytes;
        assert!(repeated <= (2 * CREDIT) << 18, "{repeated}");
    });
}

#[test]
fn a_wait_without_any_link_is_told_after_two_seconds_and_each_minute() {
    in_virtual_time(async {
        let mut lab = two_links().await;
        let (sender, mut events) = mpsc::channel(8192);
        lab.audience.join(&sender);
        lab.at(ms(500), |links| (0..2).for_each(|link| links.cut(link)));
        lab.at(secs(150), |links| (0..2).for_each(|link| links.heal(link)));
        let copy = lab.copy(Direction::Put, SIZE).await;
        copy.end(secs(200)).await.unwrap();
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Unreachable { since, .. } = event {
                told.push(since.as_secs());
            }
        }
        assert_eq!(told, [2, 62, 122]);
    });
}

fn have_ended(lab: &Lab) -> [bool; 2] {
    let sessions = lab.sessions.each_ref();
    sessions.map(|session| session.ended.is_cancelled())
}

#[test]
fn a_session_without_links_is_abandoned_when_its_patience_ends() {
    in_virtual_time(async {
        let config = SessionConfig {
            patience: secs(30),
            ..SessionConfig::default()
        };
        let mut lab = Lab::with(1, &[100], config, None).await;
        lab.at(secs(1), |links| links.cut(0));
        let copy = lab.copy(Direction::Put, SIZE).await;
        sleep(ms(30_900) - lab.now()).await;
        assert_eq!(have_ended(&lab), [false; 2]);
        sleep(ms(1_300)).await;
        assert_eq!(have_ended(&lab), [true; 2]);
        let ended = copy.end(ms(1)).await;
        assert!(matches!(ended, Err(Error::Abandoned { .. })), "{ended:?}");
    });
}

#[test]
fn a_session_that_never_had_a_link_is_abandoned() {
    in_virtual_time(async {
        let config = SessionConfig {
            patience: secs(30),
            ..SessionConfig::default()
        };
        let lab = Lab::with(1, &[100], config, None).await;
        lab.links.cut(0);
        sleep(secs(32)).await;
        assert_eq!(have_ended(&lab), [true; 2]);
    });
}

#[test]
fn a_disk_that_stalls_kills_no_path_and_memory_stays_bounded() {
    both_ways(async move |direction| {
        let mut lab = two_links().await;
        let disk = &lab.disks[direction.sender().other() as usize];
        disk.stall(CONNECTED, secs(31));
        let disk = disk.clone();
        let (took, tally) = copy(&mut lab, direction).await;
        assert_eq!(tally.failovers, 0);
        let most = disk.most_waiting();
        assert!(most <= 2 * CREDIT + 2, "{most}");
        assert!(took <= ms(1400) + secs(31), "{took:?}");
    });
}

#[test]
fn links_that_flap_while_the_disk_stalls_do_not_fill_the_memory() {
    in_virtual_time(async {
        let mut lab = two_links().await;
        let disk = lab.disks[1].clone();
        disk.stall(ms(500), secs(31));
        for second in 1..30 {
            lab.at(secs(second), |links| links.cut(0));
            lab.at(secs(second) + ms(500), |links| links.heal(0));
        }
        copy(&mut lab, Direction::Put).await;
        let most = disk.most_waiting();
        assert!(most <= 2 * CREDIT + 2, "{most}");
    });
}

#[test]
fn a_source_disk_that_stalls_kills_no_path() {
    in_virtual_time(async {
        let mut lab = two_links().await;
        lab.disks[0].stall(ms(500), secs(31));
        let (_, tally) = copy(&mut lab, Direction::Put).await;
        assert_eq!(tally.failovers, 0);
    });
}

#[test]
fn a_source_that_changed_is_told_to_the_peer() {
    both_ways(async move |direction| {
        let mut lab = two_links().await;
        let copy = lab.copy(direction, SIZE).await;
        sleep(ms(500)).await;
        let file = lab.file(direction.sender());
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        file.write_all_at(b"other bytes", SIZE - 11).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let ended = copy.end(LIMIT).await;
        let code = ended.as_ref().err().and_then(Error::fail_code);
        assert_eq!(code, Some(FailCode::SourceChanged), "{ended:?}");
        assert!(!lab.file(direction.sender().other()).exists());
        // The session continues.
        let copy = lab.copy_again(direction).await;
        copy.end(LIMIT).await.unwrap();
        lab.assert_delivered();
    });
}

#[test]
fn a_cancelled_copy_is_resumed_by_the_next() {
    both_ways(async move |direction| {
        let mut lab = two_links().await;
        let copy = lab.copy(direction, SIZE).await;
        sleep(secs(1)).await;
        lab.command(Command::Cancel(copy.transfer)).await;
        let ended = copy.end(LIMIT).await;
        assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
        let began = lab.now();
        let again = lab.copy_again(direction).await;
        let (_, tally) = again.end(LIMIT).await.unwrap();
        lab.assert_delivered();
        let (took, resumed) = (lab.now() - began, tally.stats.resumed_bytes);
        assert!(resumed > SIZE / 2, "{resumed}");
        assert!(took < ms(900), "{took:?}");
    });
}

#[test]
fn a_link_that_becomes_slow_does_not_hold_up_the_end() {
    in_virtual_time(async {
        let mut lab = two_links().await;
        lab.at(ms(500), |links: &Links| links.set_rate(0, 1_000_000));
        let (took, _) = copy(&mut lab, Direction::Put).await;
        let ideal = ideal_on_one(ms(500));
        assert!(took <= ideal.mul_f64(1.01), "{took:?}, ideal {ideal:?}");
    });
}
