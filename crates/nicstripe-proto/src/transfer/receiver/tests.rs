use super::*;
use crate::{
    file::{grid::ChunkSize, hash_tree::chunk_value},
    id::TransferId,
};

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const LEN: u32 = ChunkSize::DEFAULT.bytes() as u32;
const SECOND: Duration = Duration::from_secs(1);

fn grid(chunks: u64) -> Grid {
    Grid::new(chunks * u64::from(LEN), ChunkSize::DEFAULT)
}

fn header(chunk: u64, value: u8) -> DataHeader {
    DataHeader {
        transfer: TransferId(1),
        chunk: ChunkId(chunk),
        value: ChainingValue([value; 32]),
        len: LEN,
        raw_len: 0,
        last: false,
    }
}

/// Receiver of a file, at one time.
struct Taking {
    receiver: Receiver,
    now: Instant,
}

impl Taking {
    fn new(chunks: u64) -> Self {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let receiver = Receiver::new(Shape::File(grid(chunks)), &[], None);
        Self { receiver, now }
    }

    /// Takes the header of a whole chunk with this value.
    fn arrives(&mut self, path: PathId, chunk: u64, value: u8) -> Result<Arrival, ArrivalError> {
        let header = header(chunk, value);
        self.receiver.on_arrival(path, &header, self.now)
    }

    #[track_caller]
    fn is_to_write(&mut self, path: PathId, chunk: u64, value: u8) {
        let arrival = self.arrives(path, chunk, value);
        assert!(matches!(arrival, Ok(Arrival::Write(_))), "{arrival:?}");
    }

    fn written(&mut self, path: PathId, chunk: u64, value: ChainingValue) {
        let (chunk, len) = (ChunkId(chunk), LEN.into());
        self.receiver
            .on_written(path, Some(path), chunk, len, value, self.now);
    }

    /// Takes a whole chunk over [`A`] and writes it.
    #[track_caller]
    fn writes(&mut self, chunk: u64) {
        self.is_to_write(A, chunk, 1);
        self.written(A, chunk, ChainingValue([1; 32]));
    }

    /// Returns the first chunks of the subtrees that are to be synced.
    fn syncs(&mut self, bytes: u64, after: Duration) -> Option<Vec<u64>> {
        let batch = self.receiver.poll_sync(bytes, SECOND, self.now + after)?;
        Some(batch.iter().map(|subtree| subtree.first.0).collect())
    }
}

#[test]
fn a_second_copy_is_dropped_and_acknowledged() {
    let mut taking = Taking::new(2);
    taking.writes(0);
    assert_eq!(taking.arrives(B, 0, 1), Ok(Arrival::Duplicate));
    let acknowledged = taking.receiver.poll_ack(B, taking.now + ACK_DELAY);
    assert_eq!(acknowledged, Some(vec![ChunkId(0).into()]));
    assert_eq!(taking.receiver.stats().repeated_bytes, u64::from(LEN));
}

#[test]
fn what_is_taken_of_memory_is_granted_again_in_steps_and_a_second_copy_is_not_kept() {
    let mut receiver = Receiver::new(Shape::Batches(ChunkSize::DEFAULT), &[], Some(16));
    assert_eq!(receiver.on_taken(1), None);
    assert_eq!(receiver.on_taken(1), Some(18));
    let Taking { now, .. } = Taking::new(0);
    assert!(receiver.on_arrival(A, &header(17, 1), now).is_ok());
    let mut writes = || receiver.on_written(A, None, ChunkId(17), 1, ChainingValue([0; 32]), now);
    assert!(writes() && !writes());
}

#[test]
fn a_copy_that_is_not_the_same_waits_until_the_other_is_written() {
    let mut taking = Taking::new(2);
    taking.is_to_write(A, 0, 1);
    assert_eq!(taking.arrives(B, 0, 2), Ok(Arrival::Later));
    taking.receiver.on_not_written(ChunkId(0)); // the copy from A was damaged
    taking.is_to_write(B, 0, 2);
    assert_eq!(taking.arrives(A, 0, 1), Ok(Arrival::Later));
    taking.written(B, 0, ChainingValue([2; 32]));
    assert_eq!(taking.arrives(A, 0, 1), Ok(Arrival::Duplicate));
}

#[test]
fn a_copy_that_comes_while_the_first_is_written_is_written_too_and_counts_once() {
    let mut taking = Taking::new(2);
    taking.is_to_write(A, 0, 1);
    taking.is_to_write(B, 0, 1);
    taking.receiver.on_not_written(ChunkId(0)); // the copy from A was damaged
    taking.written(B, 0, ChainingValue([1; 32]));
    let stats = taking.receiver.stats();
    assert_eq!(
        (stats.delivered_bytes, stats.repeated_bytes),
        (u64::from(LEN), 0)
    );
}

#[test]
fn what_is_owed_on_a_lost_path_waits_for_any_other_without_a_deadline() {
    let mut taking = Taking::new(9);
    taking.writes(3);
    taking.receiver.on_path_lost(A);
    assert_eq!(taking.receiver.ack_deadline(), None);
    let acknowledged = taking.receiver.poll_ack(B, taking.now + ACK_DELAY);
    assert_eq!(acknowledged, Some(vec![ChunkId(3).into()]));
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
    assert_eq!(receiver.stats().resumed_bytes, 2 * u64::from(LEN));
}

#[test]
fn a_chunk_that_is_being_written_cannot_be_kept() {
    let mut taking = Taking::new(2);
    taking.receiver.compare_first(2);
    for _ in 0..2 {
        let chunk = taking.receiver.next_to_compare().unwrap();
        let value = Some(ChainingValue([1; 32]));
        taking.receiver.basis.on_read(chunk, value);
    }
    let values = taking.receiver.basis.poll_values();
    assert_eq!(values.map(|values| values.len()), Some(2));
    taking.is_to_write(A, 0, 1);
    let mut keeps = |chunk| taking.receiver.on_kept(ChunkId(chunk), taking.now);
    assert!(!keeps(0), "its bytes are being overwritten");
    assert!(keeps(1));
}

#[test]
fn acknowledgements_wait_for_company_but_not_long() {
    let mut taking = Taking::new(9);
    (0..3).for_each(|chunk| taking.writes(chunk));
    assert_eq!(taking.receiver.poll_ack(A, taking.now), None);
    assert_eq!(taking.receiver.ack_deadline(), Some(taking.now + ACK_DELAY));
    taking.writes(3);
    let acknowledged = taking.receiver.poll_ack(A, taking.now);
    assert_eq!(acknowledged, Some(vec![ChunkRange::new(ChunkId(0), 4)]));
}

#[test]
fn only_what_was_written_before_the_sync_is_durable_after_it() {
    let mut taking = Taking::new(9);
    taking.writes(0);
    assert_eq!(taking.syncs(1 << 30, Duration::ZERO), None);
    assert_eq!(taking.syncs(1 << 30, SECOND), Some(vec![0]));
    taking.writes(1);
    assert_eq!(taking.syncs(1, Duration::ZERO), None, "one sync at a time");
    taking.receiver.syncing = false;
    assert_eq!(taking.syncs(1, Duration::ZERO).unwrap()[0], 1);
}

#[test]
fn it_is_finished_when_all_is_written_and_the_senders_digest_is_known() {
    let mut taking = Taking::new(2);
    let bytes = vec![5; LEN as usize];
    for chunk in [1, 0] {
        taking.is_to_write(A, chunk, 1);
        let value = chunk_value(grid(2), ChunkId(chunk), &bytes).unwrap();
        taking.written(A, chunk, value);
    }
    assert_eq!(taking.receiver.poll_finished(), None);
    let whole = Digest(*blake3::hash(&bytes.repeat(2)).as_bytes());
    taking.receiver.on_complete(whole);
    assert_eq!(taking.receiver.poll_finished(), Some((whole, whole)));
    assert_eq!(taking.receiver.poll_finished(), None);
}

#[test]
fn it_is_not_finished_before_the_sync_that_is_under_way_is() {
    let mut taking = Taking::new(2);
    taking.writes(0);
    assert!(taking.syncs(1, Duration::ZERO).is_some());
    taking.writes(1);
    taking.receiver.on_complete(Digest([0; 32]));
    assert_eq!(taking.receiver.poll_finished(), None, "the sync may fail");
    taking.receiver.syncing = false;
    assert!(taking.receiver.poll_finished().is_some());
    let after = taking.syncs(1, Duration::ZERO);
    assert_eq!(after, None, "the commit makes the rest durable");
}
