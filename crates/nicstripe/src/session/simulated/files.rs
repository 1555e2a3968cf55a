//! Tests with files that have holes or that the receiver has in part: only the missing data is
//! sent.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
};

use nicstripe_proto::{ChunkSize, TransferStats, hole::HOLES_PER_MESSAGE, message::PutOptions};
use nicstripe_sim::End;
use rustix::fs::{FallocateFlags, fallocate};

use super::lab::{Direction, Lab, both_ways, in_virtual_time, ms, secs};

const CHUNK: u64 = 256 << 10;

/// Copies a file whose chunk ranges `holes` are holes. In a delta transfer, the receiver already
/// has the first `old` chunks, with every `every`th of them changed. Returns the client's
/// statistics.
pub(super) async fn copy(
    lab: &mut Lab,
    direction: Direction,
    (chunks, holes): (u64, &[(u64, u64)]),
    (old, every): (u64, u64),
) -> TransferStats {
    lab.write(direction.sender(), chunks * CHUNK);
    let source = lab.file(direction.sender());
    let file = OpenOptions::new().write(true).open(&source).unwrap();
    for (first, count) in holes {
        punch(&file, first * CHUNK, count * CHUNK);
    }
    if lab.options.delta {
        let target = lab.file(direction.sender().other());
        std::fs::copy(source, &target).unwrap();
        let target = OpenOptions::new().write(true).open(target).unwrap();
        target.set_len(old * CHUNK).unwrap();
        for chunk in (0..old).step_by(every as usize) {
            target.write_all_at(b"other bytes", chunk * CHUNK).unwrap();
        }
    }
    let copy = lab.copy_again(direction).await;
    let (_, tally) = copy.end(secs(60)).await.unwrap();
    lab.assert_delivered();
    tally.stats
}

fn punch(file: &File, offset: u64, len: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, offset, len).unwrap();
}

/// Starts a lab whose transfers are delta transfers.
pub(super) async fn with_delta(rates: &[u64]) -> Lab {
    let mut lab = Lab::new(3, rates).await;
    lab.options = PutOptions {
        delta: true,
        ..PutOptions::default()
    };
    lab
}

#[test]
fn only_chunks_that_differ_are_sent() {
    for direction in Direction::BOTH {
        for (new, old) in [(40, 40), (40, 25), (40, 0), (1, 1)] {
            in_virtual_time(async move {
                let mut lab = with_delta(&[100, 10]).await;
                let stats = copy(&mut lab, direction, (new, &[]), (old, 10)).await;
                let differing = old.div_ceil(10) + new - old;
                assert_eq!(
                    (stats.delivered_bytes, stats.unsent_bytes),
                    (differing * CHUNK, (new - differing) * CHUNK),
                    "{direction:?} {new} {old}"
                );
            });
        }
    }
}

#[test]
fn a_file_that_is_the_same_costs_values_only() {
    in_virtual_time(async {
        let mut lab = with_delta(&[100]).await;
        let stats = copy(&mut lab, Direction::Put, (100, &[]), (100, 200)).await;
        // The first chunk differs.
        assert_eq!(stats.delivered_bytes, CHUNK);
        assert!(lab.now() < ms(500), "{:?}", lab.now());
    });
}

#[test]
fn a_file_that_differs_everywhere_is_sent_at_the_speed_of_the_links() {
    in_virtual_time(async {
        let mut lab = with_delta(&[100, 100]).await;
        let began = lab.now();
        copy(&mut lab, Direction::Put, (128, &[]), (128, 1)).await;
        // 32 MiB over 200 Mbit/s: 1.34 s.
        let took = lab.now() - began;
        assert!(took < ms(1480), "{took:?}");
    });
}

#[test]
fn only_data_is_sent_and_the_holes_arrive_also_those_of_a_whole_file() {
    for direction in Direction::BOTH {
        for (chunks, holes, data) in [
            (80, &[(0, 17), (20, 1), (30, 50)][..], 12),
            (1, &[(0, 1)], 0),
            (2, &[(0, 2)], 0),
            (300, &[(0, 300)], 0),
        ] {
            in_virtual_time(async move {
                let mut lab = Lab::new(3, &[100, 10]).await;
                let stats = copy(&mut lab, direction, (chunks, holes), (0, 1)).await;
                let sent = (stats.delivered_bytes, stats.unsent_bytes);
                assert_eq!(sent, (data * CHUNK, (chunks - data) * CHUNK));
            });
        }
    }
}

#[test]
fn more_holes_than_fit_into_a_message_are_announced_in_several() {
    in_virtual_time(async {
        let mut lab = Lab::new(3, &[100]).await;
        lab.chunk_size = ChunkSize::MIN;
        let (chunk, chunks) = (lab.chunk_size.bytes(), 2 * HOLES_PER_MESSAGE as u64 + 200);
        lab.write(End::A, chunks * chunk);
        let source = OpenOptions::new().write(true).open(lab.file(End::A));
        let source = source.unwrap();
        (0..chunks)
            .step_by(2)
            .for_each(|number| punch(&source, number * chunk, chunk));
        let copy = lab.copy_again(Direction::Put).await;
        let (_, tally) = copy.end(secs(60)).await.unwrap();
        lab.assert_delivered();
        assert_eq!(tally.stats.delivered_bytes, chunks / 2 * chunk);
    });
}

#[test]
fn holes_and_a_delta_go_together() {
    both_ways(async move |direction| {
        let mut lab = with_delta(&[100]).await;
        let stats = copy(&mut lab, direction, (100, &[(10, 30)]), (90, 5)).await;
        // Every fifth of the 60 compared chunks, and the 10 behind them.
        assert_eq!(stats.delivered_bytes, (12 + 10) * CHUNK);
    });
}
