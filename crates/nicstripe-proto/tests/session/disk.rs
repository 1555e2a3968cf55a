//! Files whose content is a function of a version and an offset, and the disk that keeps them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::Duration,
};

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkRange, ChunkSet, ChunkSize, Digest, Grid, HashTree, Subtree,
    hash_tree::{chunk_value, piece_value},
    sender::NO_DIGEST,
};
use nicstripe_sim::Rng;

/// Which content a file has. Two versions differ in every chunk.
pub(crate) type Version = u64;

/// The contents of a file's versions.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    pub(crate) grid: Grid,
    /// Lengths of the chunks where they are parcels of a tree, whose grid has no end.
    parcels: Option<Rc<Vec<u32>>>,
    /// Whether values are hashes of bytes, or only numbers that take no time to make.
    pub(crate) real: bool,
    /// Chunks that are zeros in every version.
    pub(crate) holes: ChunkSet,
    values: Rc<RefCell<HashMap<(Version, ChunkId), ChainingValue>>>,
}

impl Contents {
    pub(crate) fn new(grid: Grid, real: bool) -> Self {
        Self { grid, parcels: None, real, holes: ChunkSet::new(), values: Rc::default() }
    }

    /// Parcels of these lengths.
    pub(crate) fn parcels(lens: Vec<u32>) -> Self {
        let grid = Grid::open(ChunkSize::DEFAULT);
        Self { grid, parcels: Some(Rc::new(lens)), real: true, holes: ChunkSet::new(), values: Rc::default() }
    }

    pub(crate) fn chunks(&self) -> ChunkRange {
        match &self.parcels {
            Some(lens) => ChunkRange { first: ChunkId(0), count: lens.len() as u64 },
            None => self.grid.all_chunks(),
        }
    }

    pub(crate) fn len(&self, chunk: ChunkId) -> u32 {
        match &self.parcels {
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
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    pub(crate) fn value(&self, version: Version, chunk: ChunkId) -> ChainingValue {
        *self.values.borrow_mut().entry((version, chunk)).or_insert_with(|| {
            if self.parcels.is_some() {
                return piece_value(self.grid, chunk, &self.bytes(version, chunk), false).unwrap();
            }
            if self.real {
                return chunk_value(self.grid, chunk, &self.bytes(version, chunk)).unwrap();
            }
            let mut rng = Rng::new(version ^ chunk.0.rotate_left(17));
            let mut value = [0; 32];
            value.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()));
            ChainingValue(value)
        })
    }

    /// The value that a receiver finds, whose grid may have no end yet.
    pub(crate) fn value_found(&self, grid: Grid, version: Version, chunk: ChunkId, last: bool) -> ChainingValue {
        match self.real {
            true => piece_value(grid, chunk, &self.bytes(version, chunk), last).unwrap(),
            false => self.value(version, chunk),
        }
    }

    pub(crate) fn digest(&self, version: Version) -> Digest {
        if self.parcels.is_some() {
            return NO_DIGEST;
        }
        let mut tree = HashTree::new(self.grid);
        for chunk in self.grid.all_chunks().chunks() {
            tree.insert(Subtree::of_chunk(chunk, self.value(version, chunk))).unwrap();
        }
        tree.root().unwrap()
    }
}

/// What a receiver's disk has of the file, and how it behaves.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) read_delay: Duration,
    pub(crate) write_delay: Duration,
    pub(crate) sync_delay: Duration,
    /// Nothing is read or written before.
    pub(crate) stalled_until: Duration,
    /// Writes from this number of chunks on fail.
    pub(crate) full_at: Option<usize>,
    /// What was written of each chunk.
    pub(crate) written: BTreeMap<ChunkId, Version>,
    /// What survives a crash.
    pub(crate) journal: Vec<Subtree>,
    pub(crate) durable: ChunkSet,
    /// Made durable since the last restart.
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
            written: BTreeMap::new(),
            journal: Vec::new(),
            durable: ChunkSet::new(),
            synced: ChunkSet::new(),
            committed: None,
        }
    }
}

impl Disk {
    /// Appends to the journal; checks that only what is written becomes durable, and once.
    pub(crate) fn sync(&mut self, grid: Grid, subtrees: &[Subtree]) {
        for subtree in subtrees {
            let range = subtree.chunks(grid).unwrap();
            assert!(range.chunks().all(|chunk| self.written.contains_key(&chunk)), "{range} is made durable and not written");
            assert_eq!(self.synced.insert(range), range.count, "{range} is made durable twice");
            self.durable.insert(range);
        }
        self.journal.extend_from_slice(subtrees);
    }

    /// The process is gone and what was not synced with it.
    pub(crate) fn crash(&mut self) {
        self.written.retain(|chunk, _| self.durable.contains(*chunk));
        self.restart();
    }

    /// A new session begins.
    pub(crate) fn restart(&mut self) {
        self.synced = ChunkSet::new();
    }
}
