//! Writing of received pieces of small files on the I/O threads.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use nicstripe_proto::tree::EntryId;

use super::part::Part;
use crate::file::ChunkBuffer;

/// Buffer of a received batch with pieces of files that are not written yet.
#[derive(Debug)]
pub(super) struct Batch {
    buffer: ChunkBuffer,
    held: Arc<AtomicUsize>,
}

impl Batch {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) id: EntryId,
    pub(super) part: Arc<Part>,
    pub(super) offset: u64,
    pub(super) last: bool,
    pub(super) batch: Arc<Batch>,
    pub(super) range: Range<usize>,
}

impl Piece {
    fn write(&self) -> io::Result<()> {
        let bytes = self
            .batch
            .bytes()
            .get(self.range.clone())
            .unwrap_or_default();
        self.part.write(self.offset, bytes, self.last)
    }
}

/// Queue of pieces to write, in groups: one job writes several small files.
#[derive(Debug, Default)]
pub(super) struct Writing {
    group: Vec<Piece>,
    group_bytes: usize,
    waiting: VecDeque<Vec<Piece>>,
    running: usize,
    held: Arc<AtomicUsize>,
}

impl Writing {
    /// Wraps the buffer of a received batch, which counts as held until all its pieces are written.
    pub(super) fn begin(&self, buffer: ChunkBuffer) -> Arc<Batch> {
        self.held.fetch_add(1, Ordering::AcqRel);
        Arc::new(Batch {
            buffer,
            held: self.held.clone(),
        })
    }

    /// Returns the number of received batches held in memory.
    pub(super) fn batches(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Queues a piece for writing. The caller ensures that no other piece of its file is queued or
    /// being written.
    pub(super) fn push(&mut self, piece: Piece) {
        self.group_bytes += piece.range.len();
        self.group.push(piece);
        if self.group.len() >= GROUP_FILES || self.group_bytes >= GROUP_BYTES {
            self.close_group();
        }
    }

    fn close_group(&mut self) {
        self.group_bytes = 0;
        let group = std::mem::take(&mut self.group);
        if !group.is_empty() {
            self.waiting.push_back(group);
        }
    }

    /// Returns the next group of pieces to write; `None` if no piece waits or too many groups are
    /// running.
    pub(super) fn next(&mut self) -> Option<Vec<Piece>> {
        if self.running >= MOST_RUNNING {
            return None;
        }
        if self.waiting.is_empty() {
            self.close_group();
        }
        let next = self.waiting.pop_front()?;
        self.running += 1;
        Some(next)
    }

    pub(super) fn finished(&mut self) {
        self.running -= 1;
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty() || !self.group.is_empty()
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.group.clear();
    }
}

#[derive(Debug)]
pub(crate) struct Wrote {
    pub(super) id: EntryId,
    pub(super) last: bool,
    pub(super) result: io::Result<()>,
}

/// Writes the pieces of a group to their files, and releases their batches.
pub(super) fn write(group: Vec<Piece>) -> Vec<Wrote> {
    let write = |piece: Piece| {
        let result = piece.write();
        if result.is_err() {
            piece.part.discard();
        }
        Wrote {
            id: piece.id,
            last: piece.last,
            result,
        }
    };
    group.into_iter().map(write).collect()
}

/// Maximum number of files in a group that one job writes. This and `GROUP_BYTES` keep the overhead
/// per job small (picked by eye).
const GROUP_FILES: usize = 16;
const GROUP_BYTES: usize = 128 * 1024;

/// Maximum number of groups queued on the I/O threads at once, because other transfers use the same
/// queue.
const MOST_RUNNING: usize = 16;
