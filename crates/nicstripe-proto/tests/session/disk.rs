//! Simulated files, whose content depends only on version and offset, and the disk that stores
//! them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
    time::Duration,
};

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkRange, ChunkSet, ChunkSize, Digest, Grid, HashTree,
    SourceIdentity, Subtree,
    hash_tree::{chunk_value, piece_value},
    journal::{Header, JournalId, RECORD_LEN, Record, replay},
};
use nicstripe_sim::Rng;

/// Version of a file's content, which seeds its bytes. Two versions differ in every chunk.
pub(crate) type Version = u64;

#[derive(Debug, Clone)]
pub(crate) struct Contents {
    pub(crate) grid: Grid,
    /// Length in bytes of each batch of a tree, one batch per chunk; `None` for a file.
    batches: Option<Rc<Vec<u32>>>,
    /// True if chunk values are BLAKE3 hashes of bytes, false if they are pseudo-random numbers,
    /// which take no time to compute.
    pub(crate) real: bool,
    /// Chunks that consist of zeros in every version.
    pub(crate) holes: ChunkSet,
    values: Rc<RefCell<HashMap<(Version, ChunkId), ChainingValue>>>,
}

impl Contents {
    pub(crate) fn new(grid: Grid, real: bool) -> Self {
        Self {
            grid,
            batches: None,
            real,
            holes: ChunkSet::new(),
            values: Rc::default(),
        }
    }

    /// Creates the contents of a tree from the lengths of its batches in bytes.
    pub(crate) fn batches(lens: Vec<u32>) -> Self {
        let grid = Grid::open(ChunkSize::DEFAULT);
        Self {
            grid,
            batches: Some(Rc::new(lens)),
            real: true,
            holes: ChunkSet::new(),
            values: Rc::default(),
        }
    }

    pub(crate) fn chunks(&self) -> ChunkRange {
        match &self.batches {
            Some(lens) => ChunkRange {
                first: ChunkId(0),
                count: lens.len() as u64,
            },
            None => self.grid.all_chunks(),
        }
    }

    pub(crate) fn len(&self, chunk: ChunkId) -> u32 {
        match &self.batches {
            Some(lens) => lens[chunk.0 as usize],
            None => self.grid.extent_of(chunk).unwrap().len as u32,
        }
    }

    pub(crate) fn bytes(&self, version: Version, chunk: ChunkId) -> Vec<u8> {
        let len = self.len(chunk) as usize;
        if self.holes.contains(chunk) {
            return vec![0; len];
        }
        let mut rng = Rng::new(version ^ chunk.0.rotate_left(17));
        let mut bytes: Vec<u8> = (0..len.div_ceil(8))
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    }

    pub(crate) fn value(&self, version: Version, chunk: ChunkId) -> ChainingValue {
        *self
            .values
            .borrow_mut()
            .entry((version, chunk))
            .or_insert_with(|| {
                if self.batches.is_some() {
                    return piece_value(self.grid, chunk, &self.bytes(version, chunk), false)
                        .unwrap();
                }
                if self.real {
                    return chunk_value(self.grid, chunk, &self.bytes(version, chunk)).unwrap();
                }
                let mut rng = Rng::new(version ^ chunk.0.rotate_left(17));
                let mut value = [0; 32];
                value
                    .chunks_exact_mut(8)
                    .for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()));
                ChainingValue(value)
            })
    }

    /// Returns the value of a received chunk, computed with the receiver's grid, which may be
    /// open-ended.
    pub(crate) fn value_found(
        &self,
        grid: Grid,
        version: Version,
        chunk: ChunkId,
        last: bool,
    ) -> ChainingValue {
        match self.real {
            true => piece_value(grid, chunk, &self.bytes(version, chunk), last).unwrap(),
            false => self.value(version, chunk),
        }
    }

    pub(crate) fn digest(&self, version: Version) -> Digest {
        if self.batches.is_some() {
            return Digest::NONE;
        }
        let mut tree = HashTree::new(self.grid);
        for chunk in self.grid.all_chunks().chunks() {
            tree.insert(Subtree::of_chunk(chunk, self.value(version, chunk)))
                .unwrap();
        }
        tree.root().unwrap()
    }
}

/// Simulated disk of a receiver, with the state of its file.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) read_delay: Duration,
    pub(crate) write_delay: Duration,
    pub(crate) sync_delay: Duration,
    /// Time before which no read or write completes.
    pub(crate) stalled_until: Duration,
    /// Number of written chunks at which further writes fail, as on a full disk.
    pub(crate) full_at: Option<usize>,
    /// Chunks whose next read fails.
    pub(crate) unreadable: BTreeSet<ChunkId>,
    /// Chunks whose next write fails.
    pub(crate) unwritable: BTreeSet<ChunkId>,
    /// Number of syncs and commits that succeed before one fails; `None` if none fails.
    pub(crate) sync_fails_after: Option<u64>,
    /// True after a failed sync. No further sync is allowed until the process restarts.
    poisoned: bool,
    /// Content version written to each chunk.
    pub(crate) written: BTreeMap<ChunkId, Version>,
    /// Journal records that survive a crash.
    pub(crate) journal: Vec<Subtree>,
    pub(crate) durable: ChunkSet,
    /// Chunks made durable since the last restart.
    synced: ChunkSet,
    pub(crate) committed: Option<Digest>,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            read_delay: Duration::from_micros(100),
            write_delay: Duration::from_micros(100),
            sync_delay: Duration::from_millis(5),
            stalled_until: Duration::ZERO,
            full_at: None,
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            sync_fails_after: None,
            poisoned: false,
            written: BTreeMap::new(),
            journal: Vec::new(),
            durable: ChunkSet::new(),
            synced: ChunkSet::new(),
            committed: None,
        }
    }
}

impl Disk {
    /// Returns true if the next sync succeeds.
    ///
    /// # Panics
    ///
    /// Panics if an earlier sync has failed.
    pub(crate) fn can_sync(&mut self) -> bool {
        assert!(!self.poisoned, "a sync after one that failed");
        self.poisoned = self.sync_fails_after == Some(0);
        self.sync_fails_after = if self.poisoned {
            None
        } else {
            self.sync_fails_after.map(|count| count - 1)
        };
        !self.poisoned
    }

    /// Makes chunks durable and appends them to the journal.
    ///
    /// # Panics
    ///
    /// Panics if a chunk was not written, or was already made durable.
    pub(crate) fn sync(&mut self, grid: Grid, subtrees: &[Subtree]) {
        for subtree in subtrees {
            let range = subtree.chunks(grid).unwrap();
            assert!(
                range
                    .chunks()
                    .all(|chunk| self.written.contains_key(&chunk)),
                "{range} is durable but not written"
            );
            assert_eq!(
                self.synced.insert(range),
                range.count,
                "{range} is made durable twice"
            );
            self.durable.insert(range);
        }
        self.journal.extend_from_slice(subtrees);
    }

    /// Simulates a power loss during the sync of `under_way`: its data may be durable, with some of
    /// its records and garbage after them. Afterwards the disk has only the chunks that the journal
    /// lists.
    pub(crate) fn crash(&mut self, grid: Grid, under_way: &[Subtree], rng: &mut Rng) {
        let mut tail = Vec::new();
        // The data are durable before the first record is written.
        if rng.below(3) > 0 {
            for subtree in under_way {
                self.durable.insert(subtree.chunks(grid).unwrap());
                tail.extend_from_slice(&Record { subtree: *subtree }.encode(JOURNAL));
            }
            tail.truncate(rng.below(tail.len() as u64 + 1) as usize);
        }
        garble(&mut tail, rng);
        let header = Header {
            grid,
            source: SourceIdentity::default(),
            peer_key: [1; 32],
            id: JOURNAL,
        };
        let mut bytes = header.encode().to_vec();
        self.journal.iter().for_each(|subtree| {
            bytes.extend_from_slice(&Record { subtree: *subtree }.encode(JOURNAL));
        });
        bytes.append(&mut tail);
        let replayed = replay(&bytes).unwrap();
        let claimed: ChunkSet = replayed
            .tree
            .subtrees()
            .map(|subtree| subtree.chunks(grid).unwrap())
            .collect();
        for range in claimed.ranges() {
            assert_eq!(
                self.durable.gaps(range).next(),
                None,
                "the journal claims {range}, which is not durable"
            );
        }
        for subtree in &self.journal {
            let range = subtree.chunks(grid).unwrap();
            assert_eq!(
                claimed.gaps(range).next(),
                None,
                "the journal lacks {range}, which was synced"
            );
        }
        self.journal = replayed.subtrees();
        self.durable = claimed;
        self.lose_unsynced();
    }

    /// Simulates the death of the process: chunks that are not durable are lost.
    fn lose_unsynced(&mut self) {
        self.written
            .retain(|chunk, _| self.durable.contains(*chunk));
        self.restart();
    }

    pub(crate) fn restart(&mut self) {
        self.synced = ChunkSet::new();
        self.poisoned = false;
    }
}

/// Corrupts the end of the journal at random: flips bits of its last records, appends zeros or
/// garbage, or leaves it unchanged.
fn garble(tail: &mut Vec<u8>, rng: &mut Rng) {
    let last = tail.len().saturating_sub(RECORD_LEN * 8);
    match rng.below(4) {
        0 if !tail.is_empty() => {
            for _ in 0..=rng.below(3) {
                let at = last + rng.below((tail.len() - last) as u64) as usize;
                tail[at] ^= 1 << rng.below(8);
            }
        }
        1 => tail.extend(std::iter::repeat_n(0, rng.below(300) as usize)),
        2 => tail.extend((0..rng.below(300)).map(|_| rng.next_u64() as u8)),
        _ => {}
    }
}

const JOURNAL: JournalId = JournalId([5; 16]);
