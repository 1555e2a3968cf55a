//! Streamed sources, which cannot be read twice: pipes and the batches of a tree. Sent chunks stay
//! in the retransmit buffer until acknowledged.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use nicstripe_proto::{ChainingValue, ChunkId, ChunkSize, Grid, TransferId, hash_tree::piece_value};
use tokio::sync::{Notify, mpsc};

use super::{input::Input, open_files::Fault};
use crate::file::{BufferPool, ChunkBuffer, FileError};

/// Send window of a streamed source, in chunks: 8 MiB, which four gigabit links carry in 18 ms, or
/// one 10 Gbit/s link in 7 ms.
pub(crate) const LIVE_CHUNKS: usize = 32;

/// Items of a streamed source.
#[derive(Debug)]
pub(crate) enum Given {
    Chunk(LiveChunk),
    End,
    Failed(FileError),
}

/// Chunk that cannot be read again.
#[derive(Debug)]
pub(crate) struct LiveChunk {
    pub(super) buffer: Arc<ChunkBuffer>,
    pub(super) value: ChainingValue,
    /// True if the source knows of no data after it.
    pub(super) last: bool,
    _place: Place,
}

/// Retransmit buffer of one transfer.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) chunks: BTreeMap<ChunkId, LiveChunk>,
    room: Room,
}

impl Live {
    pub(super) fn new(room: Room) -> Self {
        Self { chunks: BTreeMap::new(), room }
    }
}

/// Wakes a source that waits for the send window; its wait fails.
impl Drop for Live {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// Sends the chunks of one source to its session. Used by one thread or task.
#[derive(Debug)]
pub(crate) struct Giver {
    transfer: TransferId,
    inputs: mpsc::Sender<Input>,
    buffers: BufferPool,
    room: Room,
    next: ChunkId,
}

impl Giver {
    pub(super) fn new(transfer: TransferId, inputs: mpsc::Sender<Input>, buffers: BufferPool, room: Room) -> Self {
        Self { transfer, inputs, buffers, room, next: ChunkId(0) }
    }

    pub(crate) fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    /// Returns the send window.
    pub(crate) fn room(&self) -> Room {
        self.room.clone()
    }

    /// Waits for a permit, in a task. Returns `None` if the transfer has ended.
    pub(crate) async fn enter(&self) -> Option<Place> {
        self.room.enter_async().await
    }

    /// Hashes and sends a chunk that has its permit, in a task. Returns false if the transfer has
    /// ended.
    pub(crate) async fn give_into(&mut self, place: Place, buffer: ChunkBuffer) -> bool {
        let Some(hashed) = self.hash(buffer, false) else { return false };
        let chunk = self.next_chunk(hashed, place);
        self.tell(chunk).await
    }

    /// Hashes a chunk and sends it when the send window has room. Blocks the thread. Pass `last` if
    /// no data is known to follow. Returns false if the transfer has ended.
    pub(crate) fn give(&mut self, buffer: ChunkBuffer, last: bool) -> bool {
        let Some(hashed) = self.hash(buffer, last) else { return false };
        let Some(place) = self.room.enter() else { return false };
        let chunk = self.next_chunk(hashed, place);
        self.say(chunk)
    }

    /// Hashes the chunk that will be sent next.
    pub(crate) fn hash(&self, buffer: ChunkBuffer, last: bool) -> Option<Hashed> {
        let value = piece_value(Grid::open(ChunkSize::DEFAULT), self.next, buffer.bytes(), last).ok()?;
        Some(Hashed { buffer, value, last })
    }

    /// Sends a hashed chunk when the send window has room, in a task. Returns false if the transfer
    /// has ended.
    pub(crate) async fn give_hashed(&mut self, hashed: Hashed) -> bool {
        let Some(place) = self.enter().await else { return false };
        let chunk = self.next_chunk(hashed, place);
        self.tell(chunk).await
    }

    fn next_chunk(&mut self, Hashed { buffer, value, last }: Hashed, place: Place) -> Given {
        self.next = ChunkId(self.next.0 + 1);
        Given::Chunk(LiveChunk { buffer: Arc::new(buffer), value, last, _place: place })
    }

    /// Signals the end of the data.
    pub(crate) async fn end_of_all(&self) -> bool {
        self.tell(Given::End).await
    }

    async fn tell(&self, given: Given) -> bool {
        self.inputs.send(Input::Given { transfer: self.transfer, given }).await.is_ok()
    }

    pub(crate) fn end(&self, result: Result<(), FileError>) -> bool {
        self.say(result.map_or_else(Given::Failed, |()| Given::End))
    }

    fn say(&self, given: Given) -> bool {
        self.inputs.blocking_send(Input::Given { transfer: self.transfer, given }).is_ok()
    }
}

/// Hashed chunk that is not sent yet.
#[derive(Debug)]
pub(crate) struct Hashed {
    buffer: ChunkBuffer,
    value: ChainingValue,
    last: bool,
}

/// Starts a thread that sends the bytes of `reader` until its end.
pub(super) fn read_pipe(mut giver: Giver, mut reader: Box<dyn io::Read + Send>) -> io::Result<()> {
    let fault = Fault::of(&giver.inputs);
    let run = move || {
        let _fault = fault;
        let result = give_all(&mut giver, &mut *reader).map_err(|error| FileError::new("read", "standard input", error));
        giver.end(result);
    };
    thread::Builder::new().name("nicstripe-pipe".into()).spawn(run).map(drop)
}

/// Sends all bytes of a reader. Holds the first chunk back until the next read, since its hash
/// depends on whether it is the only one.
fn give_all(giver: &mut Giver, reader: &mut dyn io::Read) -> io::Result<()> {
    let full = ChunkSize::DEFAULT.bytes() as usize;
    let mut first = None;
    loop {
        let mut buffer = giver.buffer();
        let begun = read_some(reader, buffer.bytes_mut(full))?;
        let going_on = first.take().is_none_or(|first| giver.give(first, begun == 0));
        if begun == 0 || !going_on {
            return Ok(());
        }
        let len = begun + fill(reader, &mut buffer.bytes_mut(full)[begun..])?;
        buffer.bytes_mut(len);
        if len == full && giver.next == ChunkId(0) {
            first = Some(buffer);
        } else if !giver.give(buffer, len < full) || len < full {
            return Ok(());
        }
    }
}

/// Fills `bytes` until the reader ends. Returns the length.
fn fill(reader: &mut dyn io::Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match read_some(reader, &mut bytes[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

fn read_some(reader: &mut dyn io::Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Send window: a fixed number of permits.
#[derive(Clone)]
pub(crate) struct Room(Arc<Places>);

struct Places {
    state: Mutex<RoomState>,
    changed: Condvar,
    /// Wakes the task that waits for a permit. At most one task waits.
    task: Notify,
}

struct RoomState {
    free: usize,
    is_closed: bool,
    taken: usize,
}

/// Permit for one chunk in flight; returned on drop.
pub(crate) struct Place(Room);

impl Room {
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Places {
            state: Mutex::new(RoomState { free: places, taken: 0, is_closed: false }),
            changed: Condvar::new(),
            task: Notify::new(),
        }))
    }

    /// Blocks until a permit is free. Returns `None` if the window is closed.
    fn enter(&self) -> Option<Place> {
        let mut state = self.lock();
        while state.free == 0 && !state.is_closed {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.take(state)
    }

    /// Like [`enter`](Self::enter), for a task.
    async fn enter_async(&self) -> Option<Place> {
        loop {
            {
                let state = self.lock();
                if state.free > 0 || state.is_closed {
                    return self.take(state);
                }
            }
            // `Notify` stores a permit returned in between, so none is missed.
            self.0.task.notified().await;
        }
    }

    fn take(&self, mut state: MutexGuard<'_, RoomState>) -> Option<Place> {
        if state.is_closed {
            return None;
        }
        state.free -= 1;
        state.taken += 1;
        Some(Place(self.clone()))
    }

    /// Returns true if no permit is in use.
    pub(crate) fn is_free(&self) -> bool {
        self.lock().taken == 0
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        drop(state);
        self.0.changed.notify_all();
        self.0.task.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.free += 1;
        state.taken -= 1;
        drop(state);
        self.0.0.changed.notify_one();
        self.0.0.task.notify_one();
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("free", &self.lock().free).finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}
