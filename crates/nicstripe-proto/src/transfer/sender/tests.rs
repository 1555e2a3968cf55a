use super::*;
use crate::file::grid::ChunkSize;

const A: PathId = PathId(0);
const B: PathId = PathId(1);

#[allow(clippy::disallowed_methods)]
fn origin() -> Instant {
    Instant::now()
}

fn sender(chunks: u64) -> Sender {
    let grid = Grid::new(chunks * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT);
    Sender::new(Shape::File(grid), &[], None)
}

/// Returns the sender of a source that is given bit by bit.
fn pipe() -> Sender {
    Sender::new(Shape::Pipe(ChunkSize::DEFAULT), &[], None)
}

const FULL: u32 = ChunkSize::DEFAULT.bytes() as u32;
const VALUE: ChainingValue = ChainingValue([1; 32]);
const GIGABIT: Option<BitRate> = Some(BitRate(1_000_000_000));

#[test]
fn a_chunk_that_is_not_sent_leaves_the_books_once() {
    let (mut sender, now) = (sender(2), origin());
    let chunks: Vec<ChunkId> = std::iter::from_fn(|| sender.next_chunk(A, None, 1, now)).collect();
    assert!(sender.on_send(A, chunks[0]) && sender.on_send(A, chunks[1]));
    sender.on_acknowledged(A, chunks[0].into());
    sender.on_not_sent(A, chunks[0]); // acknowledged during a second read
    assert_eq!(sender.in_flight_bytes(A), ChunkSize::DEFAULT.bytes());
    sender.on_not_sent(A, chunks[1]);
    assert_eq!(sender.in_flight_bytes(A), 0);
}

#[test]
fn an_idle_path_takes_over_what_the_other_has_not_begun_to_read() {
    let (mut sender, now) = (sender(8), origin());
    assert_eq!(sender.next_chunk(A, GIGABIT, 1, now), Some(ChunkId(0)));
    let hedge = sender.next_hedge(B, |_| (GIGABIT, false), now);
    assert_eq!(hedge, Some(ChunkId(7)));
    assert!(!sender.on_send(A, ChunkId(7)) && sender.on_send(B, ChunkId(7)));
    let mine: Vec<ChunkId> = std::iter::from_fn(|| sender.next_chunk(A, GIGABIT, 1, now)).collect();
    assert_eq!(mine.last(), Some(&ChunkId(6)));
}

#[test]
fn what_was_given_is_released_when_it_is_acknowledged_also_after_its_path_was_lost() {
    let (mut sender, now) = (pipe(), origin());
    assert_eq!(sender.give(FULL, VALUE, false), Some(ChunkId(0)));
    assert_eq!(sender.give(7, VALUE, true), Some(ChunkId(1)));
    assert_eq!(sender.give(7, VALUE, false), None, "it had ended");
    for chunk in [ChunkId(0), ChunkId(1)] {
        assert_eq!(sender.next_chunk(A, None, 2, now), Some(chunk));
        assert!(sender.on_send(A, chunk));
    }
    let released = sender.on_acknowledged(A, ChunkId(1).into()).released;
    assert_eq!(released, [ChunkId(1)]);
    sender.on_path_lost(A);
    let released = sender.on_acknowledged(B, ChunkId(0).into()).released;
    assert_eq!(released, [ChunkId(0)]);
    let (chunks, size) = (2, u64::from(FULL) + 7);
    assert_eq!(sender.end(), Some(End { chunks, size }));
}

#[test]
fn what_a_source_gives_slower_than_paths_take_it_is_sent_once_until_the_end() {
    let (mut sender, now) = (pipe(), origin());
    for chunk in 0..4 {
        sender.give(FULL, VALUE, false);
        let next = sender.next_chunk(A, GIGABIT, 2, now);
        assert_eq!(next, Some(ChunkId(chunk)));
    }
    // 8.4 ms on a gigabit path, which is less than the acknowledgement delay of 10 ms.
    let gigabit = |_| (GIGABIT, false);
    assert_eq!(sender.next_hedge(B, gigabit, now), None);
    // A chunk on a slow path delays the chunks queued after it for a long time.
    let slow = |path| match path {
        A => (Some(BitRate(10_000_000)), false),
        _ => (GIGABIT, false),
    };
    assert_eq!(sender.next_hedge(B, slow, now), Some(ChunkId(3)));
    sender.close();
    assert_eq!(sender.next_hedge(B, gigabit, now), Some(ChunkId(2)));
}

#[test]
fn short_chunks_in_flight_count_as_long_as_they_are() {
    let (mut sender, now) = (
        Sender::new(Shape::Batches(ChunkSize::DEFAULT), &[], None),
        origin(),
    );
    for _ in 0..3 {
        sender.give(100, ChainingValue([1; 32]), false);
        let chunk = sender.next_chunk(A, None, 1, now).unwrap();
        assert!(sender.on_send(A, chunk));
        assert_eq!(sender.in_flight_bytes(A), 100);
        sender.on_acknowledged(A, chunk.into());
        assert_eq!(sender.in_flight_bytes(A), 0);
    }
}

#[test]
fn what_the_receiver_has_no_room_for_is_not_sent() {
    let grid = Grid::new(10 * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT);
    let (mut sender, now) = (Sender::new(Shape::File(grid), &[], Some(3)), origin());
    let sendable =
        |sender: &mut Sender| std::iter::from_fn(|| sender.next_chunk(A, None, 1, now)).count();
    assert_eq!(sendable(&mut sender), 3);
    sender.on_window(2);
    assert_eq!(sendable(&mut sender), 0);
    sender.on_window(8);
    assert_eq!(sendable(&mut sender), 5);
    sender.on_window(u64::MAX);
    assert_eq!(sendable(&mut sender), 2);
}

#[test]
fn a_small_file_is_shared_by_the_paths() {
    let (mut sender, now) = (sender(4), origin());
    sender.next_chunk(A, None, 2, now);
    assert_eq!(sender.in_flight_bytes(A), 2 * ChunkSize::DEFAULT.bytes());
    assert_eq!(sender.next_chunk(B, None, 2, now), Some(ChunkId(2)));
}

#[test]
fn a_source_that_may_change_is_read_when_nothing_has_to_be_read_again_and_says_if_it_did() {
    let value = |byte| ChainingValue([byte; 32]);
    for second in [1, 2] {
        let (mut sender, now) = (sender(2), origin());
        sender.allow_changing();
        for chunk in [ChunkId(0), ChunkId(1)] {
            assert_eq!(sender.next_chunk(A, None, 1, now), Some(chunk));
            sender.on_read(chunk, value(1));
            assert!(sender.on_send(A, chunk));
        }
        sender.on_acknowledged(A, ChunkId(1).into());
        assert!(
            sender.digest().is_some() && !sender.is_read(),
            "chunk 0 may be read again"
        );
        sender.on_path_lost(A);
        assert_eq!(sender.next_chunk(B, None, 1, now), Some(ChunkId(0)));
        sender.on_read(ChunkId(0), value(second));
        assert_eq!(sender.is_changing, second == 2);
        sender.on_send(B, ChunkId(0));
        sender.on_acknowledged(B, ChunkId(0).into());
        assert!(sender.is_read());
    }
}

#[test]
fn a_chunk_that_differs_is_queued_and_one_that_does_not_counts_as_unsent() {
    let (mut sender, now) = (sender(3), origin());
    sender.compare_first(2);
    assert_eq!(sender.next_chunk(A, None, 1, now), Some(ChunkId(2)));
    assert!(
        [0, 1]
            .map(ChunkId)
            .into_iter()
            .all(|chunk| sender.comparison.on_value(chunk, VALUE))
    );
    for (chunk, byte) in [(ChunkId(0), 1), (ChunkId(1), 2)] {
        assert_eq!(sender.next_to_hash(), Some(chunk));
        sender.on_hashed(chunk, ChainingValue([byte; 32]));
    }
    assert_eq!(sender.comparison.poll_kept(), Some(vec![ChunkId(0).into()]));
    assert_eq!(sender.next_chunk(A, None, 1, now), Some(ChunkId(1)));
    assert_eq!(sender.stats().unsent_bytes, ChunkSize::DEFAULT.bytes());
}
