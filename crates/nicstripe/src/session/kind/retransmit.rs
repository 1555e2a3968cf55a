//! Retransmit buffers of streamed sources. A source cannot be read twice, so the buffer keeps sent
//! chunks until they are acknowledged.

use std::{collections::BTreeMap, sync::Arc};

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkSize, Grid, TransferId, hash_tree::piece_value,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    file::{BufferPool, ChunkBuffer, FileError},
    session::{
        inbox::{Input, Said},
        jobs::Jobs,
    },
};

/// Send window of a streamed source, in chunks: 8 MiB, which four gigabit links carry in 18 ms, or
/// one 10 Gbit/s link in 7 ms.
pub(crate) const RETRANSMIT_CHUNKS: usize = 32;

/// Item that a streamed source produces: a chunk, the end or an error.
#[derive(Debug)]
pub(crate) enum Produced {
    Chunk(BufferedChunk),
    End,
    Failed(FileError),
}

/// Chunk in the retransmit buffer, since its source cannot be read again.
#[derive(Debug)]
pub(crate) struct BufferedChunk {
    pub(crate) buffer: Arc<ChunkBuffer>,
    pub(crate) value: ChainingValue,
    /// True if the source already knew that this chunk is its last one.
    pub(crate) last: bool,
    _permit: OwnedSemaphorePermit,
}

/// Retransmit buffer of one transfer, which holds its unacknowledged chunks.
#[derive(Debug)]
pub(crate) struct RetransmitBuffer {
    /// Guard that closes the send window, so that a source that waits for a permit fails. The first
    /// field, so that it is dropped before the chunks return their permits.
    _closes: DropGuard,
    pub(crate) chunks: BTreeMap<ChunkId, BufferedChunk>,
    pub(crate) has_ended: bool,
}

/// Returns the sender of a streamed source's chunks, and the retransmit buffer that holds up to
/// `permits` of them. Must be called within a tokio runtime.
pub(in crate::session) fn stream(
    transfer: TransferId,
    permits: usize,
    jobs: &Jobs,
) -> (ChunkSender, RetransmitBuffer) {
    let window = SendWindow {
        permits: Arc::new(Semaphore::new(permits)),
        size: permits,
        closed: CancellationToken::new(),
    };
    let buffer = RetransmitBuffer {
        chunks: BTreeMap::new(),
        has_ended: false,
        _closes: window.closed.clone().drop_guard(),
    };
    let chunks = ChunkSender {
        transfer,
        inputs: jobs.inputs(),
        buffers: jobs.buffers.clone(),
        window,
        next: ChunkId(0),
        runtime: Handle::current(),
    };
    (chunks, buffer)
}

/// Sender of a streamed source's chunks to its session, used by one thread or task.
#[derive(Debug)]
pub(crate) struct ChunkSender {
    transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    buffers: BufferPool,
    window: SendWindow,
    next: ChunkId,
    /// Runtime of the session, on which a thread waits for permits.
    runtime: Handle,
}

impl ChunkSender {
    pub(crate) fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    /// Hashes a chunk and sends it once the send window has a free permit. Blocks the thread.
    /// `last` is true if no data is known to follow. Returns false if the transfer has ended.
    pub(crate) fn send(&mut self, buffer: ChunkBuffer, last: bool) -> bool {
        let runtime = self.runtime.clone();
        self.hash(&buffer, last)
            .is_some_and(|value| runtime.block_on(self.send_hashed(buffer, value, last)))
    }

    /// Hashes the next chunk to send. `last` is true if no data is known to follow. Returns `None`
    /// if the chunk is not valid, for example empty.
    pub(crate) fn hash(&self, buffer: &ChunkBuffer, last: bool) -> Option<ChainingValue> {
        let grid = Grid::open(ChunkSize::DEFAULT);
        piece_value(grid, self.next, buffer.bytes(), last).ok()
    }

    /// Sends a hashed chunk once the send window has a free permit. Returns false if the transfer
    /// has ended.
    pub(crate) async fn send_hashed(
        &mut self,
        buffer: ChunkBuffer,
        value: ChainingValue,
        last: bool,
    ) -> bool {
        let Some(permit) = self.acquire().await else {
            return false;
        };
        self.send_with(permit, buffer, value, last).await
    }

    /// Sends a hashed chunk with a permit of the send window. Returns false if the transfer has
    /// ended.
    pub(super) async fn send_with(
        &mut self,
        permit: OwnedSemaphorePermit,
        buffer: ChunkBuffer,
        value: ChainingValue,
        last: bool,
    ) -> bool {
        self.next = ChunkId(self.next.0 + 1);
        self.push(Produced::Chunk(BufferedChunk {
            buffer: Arc::new(buffer),
            value,
            last,
            _permit: permit,
        }))
        .await
    }

    /// Waits for a permit of the send window. Returns `None` if the transfer has ended.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = self.window.closed.cancelled() => None,
            permit = self.window.permits.clone().acquire_owned() => permit.ok(),
        }
    }

    /// Returns a function that returns true while sent chunks are not acknowledged.
    pub(super) fn in_flight(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let window = self.window.clone();
        Arc::new(move || window.permits.available_permits() < window.size)
    }

    pub(super) fn is_new(&self) -> bool {
        self.next == ChunkId(0)
    }

    /// Waits until the transfer has ended.
    pub(super) async fn closed(&self) {
        self.window.closed.cancelled().await;
    }

    /// Signals the end of the data, or an error. Returns false if the transfer has ended.
    pub(crate) async fn end(&self, result: Result<(), FileError>) -> bool {
        self.push(result.map_or_else(Produced::Failed, |()| Produced::End))
            .await
    }

    /// Like [`end`](Self::end), but blocks the thread.
    pub(crate) fn end_blocking(&self, result: Result<(), FileError>) -> bool {
        self.runtime.block_on(self.end(result))
    }

    async fn push(&self, produced: Produced) -> bool {
        let transfer = self.transfer;
        let said = Said::Produced(produced);
        let input = Input::Said { transfer, said };
        self.inputs.send(input).await.is_ok()
    }
}

/// Send window of a streamed source: a fixed number of permits, one per chunk in flight.
#[derive(Debug, Clone)]
struct SendWindow {
    permits: Arc<Semaphore>,
    size: usize,
    /// Cancelled when the transfer has ended.
    closed: CancellationToken,
}
