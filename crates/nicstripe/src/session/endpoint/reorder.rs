//! Reorder buffers: hold chunks that arrive in any order, until a stream's sink can take them in
//! order.

use std::collections::BTreeMap;

use nicstripe_proto::{Acceptance, ChunkId, ChunkSize};

use crate::file::{ChunkBuffer, options::PIPE_WINDOW};

/// Capacity of a pipe's reorder buffer, in chunks.
const REORDER_CHUNKS: u64 = PIPE_WINDOW / ChunkSize::DEFAULT.bytes();

/// Returns the acceptance of a stream, with the capacity of its reorder buffer.
pub(super) fn in_order() -> Acceptance {
    Acceptance {
        room: Some(REORDER_CHUNKS),
        ..Acceptance::default()
    }
}

/// Reorder buffer of one transfer.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    waiting: BTreeMap<ChunkId, ChunkBuffer>,
    next: ChunkId,
}

impl ReorderBuffer {
    pub(crate) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            next: ChunkId(0),
        }
    }

    pub(crate) fn insert(&mut self, chunk: ChunkId, buffer: ChunkBuffer) {
        self.waiting.insert(chunk, buffer);
    }

    /// Returns the next chunk in order; `None` if it has not arrived.
    pub(crate) fn pop(&mut self) -> Option<ChunkBuffer> {
        let buffer = self.waiting.remove(&self.next)?;
        self.next = ChunkId(self.next.0 + 1);
        Some(buffer)
    }
}
