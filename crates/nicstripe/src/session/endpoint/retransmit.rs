//! Retransmit buffers of streamed sources. A source cannot be read twice, so the buffer keeps sent
//! chunks until they are acknowledged.

use std::{collections::BTreeMap, fmt, sync::Arc};

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkSize, Grid, TransferId, hash_tree::piece_value,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};

use super::jobs::Jobs;
use crate::{
    file::{BufferPool, ChunkBuffer, FileError},
    session::input::Input,
    tunnel::BatchSender,
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
    _permit: Permit,
}

/// Retransmit buffer of one transfer, which holds its unacknowledged chunks.
#[derive(Debug)]
pub(crate) struct RetransmitBuffer {
    pub(crate) chunks: BTreeMap<ChunkId, BufferedChunk>,
    window: SendWindow,
}

/// Returns the sender of a streamed source's chunks, and the retransmit buffer that holds up to
/// `permits` of them.
pub(super) fn stream(
    transfer: TransferId,
    permits: usize,
    jobs: &Jobs,
) -> (ChunkSender, RetransmitBuffer) {
    let window = SendWindow::new(permits);
    let chunks = ChunkSender::new(
        transfer,
        jobs.inputs.clone(),
        jobs.buffers.clone(),
        window.clone(),
    );
    let buffer = RetransmitBuffer {
        chunks: BTreeMap::new(),
        window,
    };
    (chunks, buffer)
}

/// Closes the send window, so that a source that waits for a permit fails.
impl Drop for RetransmitBuffer {
    fn drop(&mut self) {
        self.window.close();
    }
}

/// Sender of a streamed source's chunks to its session, used by one thread or task.
#[derive(Debug)]
pub(crate) struct ChunkSender {
    transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    buffers: BufferPool,
    window: SendWindow,
    next: ChunkId,
}

impl ChunkSender {
    pub(crate) fn new(
        transfer: TransferId,
        inputs: mpsc::Sender<Input>,
        buffers: BufferPool,
        window: SendWindow,
    ) -> Self {
        Self {
            transfer,
            inputs,
            buffers,
            window,
            next: ChunkId(0),
        }
    }

    pub(crate) fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    /// Hashes a chunk and sends it once the send window has a free permit. Blocks the thread.
    /// `last` is true if no data is known to follow. Returns false if the transfer has ended.
    pub(crate) fn send(&mut self, buffer: ChunkBuffer, last: bool) -> bool {
        let Some(hashed) = self.hash(buffer, last) else {
            return false;
        };
        let Some(permit) = self.window.acquire() else {
            return false;
        };
        let chunk = self.next_chunk(hashed, permit);
        self.push_blocking(chunk)
    }

    /// Hashes the next chunk to send. `last` is true if no data is known to follow. Returns `None`
    /// if the chunk is not valid, for example empty.
    pub(crate) fn hash(&self, buffer: ChunkBuffer, last: bool) -> Option<Hashed> {
        let value = piece_value(
            Grid::open(ChunkSize::DEFAULT),
            self.next,
            buffer.bytes(),
            last,
        )
        .ok()?;
        Some(Hashed {
            buffer,
            value,
            last,
        })
    }

    /// Sends a hashed chunk once the send window has a free permit. Returns false if the transfer
    /// has ended.
    pub(crate) async fn send_hashed(&mut self, hashed: Hashed) -> bool {
        let Some(permit) = self.window.acquire_async().await else {
            return false;
        };
        self.push_chunk(hashed, permit).await
    }

    async fn push_chunk(&mut self, hashed: Hashed, permit: Permit) -> bool {
        let chunk = self.next_chunk(hashed, permit);
        self.push(chunk).await
    }

    fn next_chunk(
        &mut self,
        Hashed {
            buffer,
            value,
            last,
        }: Hashed,
        permit: Permit,
    ) -> Produced {
        self.next = ChunkId(self.next.0 + 1);
        Produced::Chunk(BufferedChunk {
            buffer: Arc::new(buffer),
            value,
            last,
            _permit: permit,
        })
    }

    /// Returns true if no chunk was sent yet.
    pub(super) fn is_new(&self) -> bool {
        self.next == ChunkId(0)
    }

    /// Waits until the transfer has ended. Must not be called while another call waits for a
    /// permit.
    pub(super) async fn closed(&self) {
        while !self.window.0.state.lock().is_closed {
            self.window.0.task.notified().await;
        }
    }

    /// Signals the end of the data. Returns false if the transfer has ended.
    pub(crate) async fn end_async(&self) -> bool {
        self.push(Produced::End).await
    }

    async fn push(&self, produced: Produced) -> bool {
        self.inputs
            .send(Input::Produced {
                transfer: self.transfer,
                produced,
            })
            .await
            .is_ok()
    }

    pub(crate) fn end(&self, result: Result<(), FileError>) -> bool {
        self.push_blocking(result.map_or_else(Produced::Failed, |()| Produced::End))
    }

    fn push_blocking(&self, produced: Produced) -> bool {
        self.inputs
            .blocking_send(Input::Produced {
                transfer: self.transfer,
                produced,
            })
            .is_ok()
    }
}

impl BatchSender for ChunkSender {
    type Permit = Permit;

    fn in_flight(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let window = self.window.clone();
        Arc::new(move || !window.is_free())
    }

    async fn acquire(&self) -> Option<Permit> {
        self.window.acquire_async().await
    }

    fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    async fn send_with(&mut self, permit: Permit, batch: ChunkBuffer) -> bool {
        let Some(hashed) = self.hash(batch, false) else {
            return false;
        };
        self.push_chunk(hashed, permit).await
    }
}

/// Chunk that is hashed and not yet sent.
#[derive(Debug)]
pub(crate) struct Hashed {
    buffer: ChunkBuffer,
    value: ChainingValue,
    last: bool,
}

/// Send window of a streamed source: a fixed number of permits, one per chunk in flight.
#[derive(Clone)]
pub(crate) struct SendWindow(Arc<WindowInner>);

struct WindowInner {
    state: Mutex<WindowState>,
    changed: Condvar,
    /// Notification for the task that waits for a permit. At most one task waits.
    task: Notify,
}

struct WindowState {
    free: usize,
    is_closed: bool,
    taken: usize,
}

/// Permit of a send window for one chunk in flight; returned on drop.
pub(crate) struct Permit(SendWindow);

impl SendWindow {
    pub(crate) fn new(permits: usize) -> Self {
        Self(Arc::new(WindowInner {
            state: Mutex::new(WindowState {
                free: permits,
                taken: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
            task: Notify::new(),
        }))
    }

    /// Blocks until a permit is free. Returns `None` if the window is closed.
    fn acquire(&self) -> Option<Permit> {
        let mut state = self.0.state.lock();
        while state.free == 0 && !state.is_closed {
            self.0.changed.wait(&mut state);
        }
        self.take(state)
    }

    /// Waits until a permit is free, without blocking the thread. Returns `None` if the window is
    /// closed.
    async fn acquire_async(&self) -> Option<Permit> {
        loop {
            {
                let state = self.0.state.lock();
                if state.free > 0 || state.is_closed {
                    return self.take(state);
                }
            }
            // `Notify` stores a permit returned in between, so none is missed.
            self.0.task.notified().await;
        }
    }

    fn take(&self, mut state: MutexGuard<'_, WindowState>) -> Option<Permit> {
        if state.is_closed {
            return None;
        }
        state.free -= 1;
        state.taken += 1;
        Some(Permit(self.clone()))
    }

    /// Returns true if no chunk is in flight.
    pub(crate) fn is_free(&self) -> bool {
        self.0.state.lock().taken == 0
    }

    fn close(&self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        drop(state);
        self.0.changed.notify_all();
        self.0.task.notify_one();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.free += 1;
        state.taken -= 1;
        drop(state);
        self.0.0.changed.notify_one();
        self.0.0.task.notify_one();
    }
}

impl fmt::Debug for SendWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendWindow")
            .field("free", &self.0.state.lock().free)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}
