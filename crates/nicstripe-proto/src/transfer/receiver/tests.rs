use super::*;
use crate::{
    file::{grid::ChunkSize, hash_tree::chunk_value},
    id::TransferId,
};

const A: PathId = PathId(0);
const B: PathId = PathId(1);

#[allow(clippy::disallowed_methods)]
fn origin() -> Instant {
    Instant::now()
}

fn grid(chunks: u64) -> Grid {
    Grid::new(chunks * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT)
}

fn len() -> u32 {
    ChunkSize::DEFAULT.bytes() as u32
}

#[test]
fn a_second_copy_is_dropped_and_acknowledged() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Write(_))
    ));
    receiver.on_written(
        A,
        Some(A),
        ChunkId(0),
        len().into(),
        ChainingValue([1; 32]),
        now,
    );
    assert_eq!(
        receiver.on_arrival(B, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Duplicate)
    );
    let later = now + ACK_DELAY;
    assert_eq!(
        receiver.poll_ack(B, later),
        Some(vec![ChunkRange {
            first: ChunkId(0),
            count: 1
        }])
    );
    assert_eq!(receiver.stats().repeated_bytes, u64::from(len()));
}

#[test]
fn chunks_outside_the_file_or_of_the_wrong_length_are_refused() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(2), len(), false), now),
        Err(ArrivalError::OutOfRange { .. })
    ));
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(u64::MAX), len(), false), now),
        Err(ArrivalError::OutOfRange { .. })
    ));
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(1), 1, false), now),
        Err(ArrivalError::WrongLength { .. })
    ));
}

#[test]
fn the_end_of_a_pipe_fits_what_arrived_or_is_refused() {
    let pipe = || Receiver::new(Shape::Pipe(ChunkSize::DEFAULT), &[], None);
    let now = origin();
    let full = ChunkSize::DEFAULT.bytes();
    let arrive = |receiver: &mut Receiver, chunk, len, last| {
        receiver.on_arrival(A, &header(ChunkId(chunk), len, last), now)
    };
    let mut short = pipe();
    assert!(
        matches!(
            arrive(&mut short, 0, 5, false),
            Err(ArrivalError::WrongLength { .. })
        ),
        "short but not the last"
    );
    assert!(
        matches!(arrive(&mut short, 3, 5, true), Ok(Arrival::Write(extent)) if extent.len == 5)
    );
    assert!(
        arrive(&mut short, 4, 5, true).is_err() && arrive(&mut short, 4, len(), false).is_err(),
        "behind the last"
    );
    assert!(arrive(&mut short, 3, 6, true).is_err(), "another last");
    for (chunks, size) in [
        (3, 2 * full + 5),
        (4, 3 * full + 6),
        (5, 3 * full + 5),
        (4, u64::MAX),
        (0, 0),
    ] {
        assert!(
            short.on_end(End { chunks, size }).is_err(),
            "{chunks} {size}"
        );
    }
    assert_eq!(
        short.on_end(End {
            chunks: 4,
            size: 3 * full + 5
        }),
        Ok(())
    );
    assert!(
        short
            .on_end(End {
                chunks: 4,
                size: 3 * full + 5
            })
            .is_err(),
        "told twice"
    );
}

#[test]
fn what_is_kept_in_memory_is_never_more_than_there_is_room_for() {
    let (mut receiver, now) = (
        Receiver::new(Shape::Batches(ChunkSize::DEFAULT), &[], Some(16)),
        origin(),
    );
    assert!(
        receiver
            .on_arrival(A, &header(ChunkId(15), 1, false), now)
            .is_ok()
    );
    let beyond = receiver.on_arrival(A, &header(ChunkId(16), 1, false), now);
    assert_eq!(
        beyond,
        Err(ArrivalError::NoRoom {
            chunk: 16,
            granted: 16
        })
    );
    assert_eq!(
        (receiver.on_taken(1), receiver.on_taken(1)),
        (None, Some(18))
    );
    assert!(
        receiver
            .on_arrival(A, &header(ChunkId(17), 1, false), now)
            .is_ok()
    );
    assert!(receiver.on_written(A, None, ChunkId(17), 1, ChainingValue([0; 32]), now));
    assert!(
        !receiver.on_written(A, None, ChunkId(17), 1, ChainingValue([0; 32]), now),
        "the second copy is not kept"
    );
}

fn header(chunk: ChunkId, len: u32, last: bool) -> DataHeader {
    DataHeader {
        transfer: TransferId(1),
        chunk,
        value: ChainingValue([1; 32]),
        len,
        raw_len: 0,
        last,
    }
}

#[test]
fn a_copy_that_is_not_the_same_waits_until_the_other_is_written() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    let other = DataHeader {
        value: ChainingValue([2; 32]),
        ..header(ChunkId(0), len(), false)
    };
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Write(_))
    ));
    assert_eq!(receiver.on_arrival(B, &other, now), Ok(Arrival::Later));
    receiver.on_not_written(ChunkId(0)); // the copy from A was damaged
    assert!(matches!(
        receiver.on_arrival(B, &other, now),
        Ok(Arrival::Write(_))
    ));
    assert_eq!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Later)
    );
    receiver.on_written(B, Some(B), ChunkId(0), len().into(), other.value, now);
    assert_eq!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Duplicate)
    );
}

#[test]
fn a_damaged_chunk_may_come_again() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    receiver
        .on_arrival(A, &header(ChunkId(0), len(), false), now)
        .unwrap();
    receiver.on_not_written(ChunkId(0));
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Write(_))
    ));
}

#[test]
fn a_copy_that_comes_while_the_first_is_written_is_written_too_and_counts_once() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    for path in [A, B] {
        assert!(matches!(
            receiver.on_arrival(path, &header(ChunkId(0), len(), false), now),
            Ok(Arrival::Write(_))
        ));
    }
    receiver.on_not_written(ChunkId(0)); // the copy from A was damaged
    receiver.on_written(
        B,
        Some(B),
        ChunkId(0),
        len().into(),
        ChainingValue([1; 32]),
        now,
    );
    assert_eq!(
        (
            receiver.stats().delivered_bytes,
            receiver.stats().repeated_bytes
        ),
        (u64::from(len()), 0)
    );
}

#[test]
fn what_is_owed_on_a_lost_path_waits_for_any_other_without_a_deadline() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(9)), &[], None), origin());
    receiver
        .on_arrival(A, &header(ChunkId(3), len(), false), now)
        .unwrap();
    receiver.on_written(
        A,
        Some(A),
        ChunkId(3),
        len().into(),
        ChainingValue([1; 32]),
        now,
    );
    receiver.on_path_lost(A);
    assert_eq!(receiver.ack_deadline(), None);
    assert_eq!(
        receiver.poll_ack(B, now + ACK_DELAY),
        Some(vec![ChunkId(3).into()])
    );
}

#[test]
fn what_was_durable_before_may_overlap_or_make_no_sense() {
    let value = |byte| ChainingValue([byte; 32]);
    let have = [
        Subtree {
            first: ChunkId(0),
            level: 1,
            value: value(1),
        },
        Subtree::of_chunk(ChunkId(1), value(2)),
        Subtree {
            first: ChunkId(1),
            level: 1,
            value: value(3),
        },
        Subtree::of_chunk(ChunkId(99), value(4)),
    ];
    let receiver = Receiver::new(Shape::File(grid(4)), &have, None);
    assert_eq!(receiver.tree.subtrees().collect::<Vec<_>>(), [have[0]]);
    assert_eq!(receiver.stats().resumed_bytes, 2 * u64::from(len()));
}

#[test]
fn a_chunk_that_is_being_written_cannot_be_kept() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    receiver.compare_first(2);
    for _ in 0..2 {
        let chunk = receiver.next_to_compare().unwrap();
        receiver.basis.on_read(chunk, Some(ChainingValue([1; 32])));
    }
    assert_eq!(
        receiver.basis.poll_values().map(|values| values.len()),
        Some(2)
    );
    assert!(matches!(
        receiver.on_arrival(A, &header(ChunkId(0), len(), false), now),
        Ok(Arrival::Write(_))
    ));
    assert!(
        !receiver.on_kept(ChunkId(0), now),
        "its bytes are being overwritten"
    );
    assert!(receiver.on_kept(ChunkId(1), now));
}

#[test]
fn acknowledgements_wait_for_company_but_not_long() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(9)), &[], None), origin());
    for chunk in 0..3 {
        receiver
            .on_arrival(A, &header(ChunkId(chunk), len(), false), now)
            .unwrap();
        receiver.on_written(
            A,
            Some(A),
            ChunkId(chunk),
            len().into(),
            ChainingValue([0; 32]),
            now,
        );
    }
    assert_eq!(receiver.poll_ack(A, now), None);
    assert_eq!(receiver.ack_deadline(), Some(now + ACK_DELAY));
    receiver
        .on_arrival(A, &header(ChunkId(3), len(), false), now)
        .unwrap();
    receiver.on_written(
        A,
        Some(A),
        ChunkId(3),
        len().into(),
        ChainingValue([0; 32]),
        now,
    );
    assert_eq!(
        receiver.poll_ack(A, now),
        Some(vec![ChunkRange {
            first: ChunkId(0),
            count: 4
        }])
    );
}

#[test]
fn only_what_was_written_before_the_sync_is_durable_after_it() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(9)), &[], None), origin());
    let second = Duration::from_secs(1);
    let write = |receiver: &mut Receiver, chunk| {
        receiver
            .on_arrival(A, &header(ChunkId(chunk), len(), false), now)
            .unwrap();
        receiver.on_written(
            A,
            Some(A),
            ChunkId(chunk),
            len().into(),
            ChainingValue([0; 32]),
            now,
        );
    };
    write(&mut receiver, 0);
    assert_eq!(receiver.poll_sync(1 << 30, second, now), None);
    let batch = receiver.poll_sync(1 << 30, second, now + second).unwrap();
    assert_eq!(
        batch
            .iter()
            .map(|subtree| subtree.first)
            .collect::<Vec<_>>(),
        [ChunkId(0)]
    );
    write(&mut receiver, 1);
    assert_eq!(receiver.poll_sync(1, second, now), None); // one sync at a time
    receiver.syncing = false;
    assert_eq!(
        receiver.poll_sync(1, second, now).unwrap()[0].first,
        ChunkId(1)
    );
}

#[test]
fn it_is_finished_when_all_is_written_and_the_senders_digest_is_known() {
    let grid = grid(2);
    let (mut receiver, now) = (Receiver::new(Shape::File(grid), &[], None), origin());
    let bytes = vec![5; len() as usize];
    for chunk in [ChunkId(1), ChunkId(0)] {
        receiver
            .on_arrival(A, &header(chunk, len(), false), now)
            .unwrap();
        receiver.on_written(
            A,
            Some(A),
            chunk,
            len().into(),
            chunk_value(grid, chunk, &bytes).unwrap(),
            now,
        );
    }
    assert_eq!(receiver.poll_finished(), None);
    let whole = Digest(*blake3::hash(&vec![5; 2 * len() as usize]).as_bytes());
    receiver.on_complete(whole);
    assert_eq!(receiver.poll_finished(), Some((whole, whole)));
    assert_eq!(receiver.poll_finished(), None);
}

#[test]
fn it_is_not_finished_before_the_sync_that_is_under_way_is() {
    let (mut receiver, now) = (Receiver::new(Shape::File(grid(2)), &[], None), origin());
    for chunk in [0, 1] {
        receiver
            .on_arrival(A, &header(ChunkId(chunk), len(), false), now)
            .unwrap();
        receiver.on_written(
            A,
            Some(A),
            ChunkId(chunk),
            len().into(),
            ChainingValue([0; 32]),
            now,
        );
        if chunk == 0 {
            assert!(receiver.poll_sync(1, Duration::from_secs(1), now).is_some());
        }
    }
    receiver.on_complete(Digest([0; 32]));
    assert_eq!(receiver.poll_finished(), None, "the sync may fail");
    receiver.syncing = false;
    assert!(receiver.poll_finished().is_some());
    assert_eq!(
        receiver.poll_sync(1, Duration::from_secs(1), now),
        None,
        "the commit makes the rest durable"
    );
}
