//! Pieces of a file under way from several daemons into a part of it.

use std::{
    collections::BTreeMap,
    io,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, ChunkRange, ChunkSet, Digest, Grid, HashTree, Name, Outline,
    Subtree,
    deal::{Deal, Turn},
    message::GetRange,
    outline::value_of,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{LeftReplica, Replica, SYNC_BYTES, SYNC_TIME, Tell, ended};
use crate::{
    client::Client,
    report::{
        LinkReport, Report,
        error::Error,
        event::{Event, LinkProgress, Progress},
    },
    session::kind::object::Read,
    storage::LocalPart,
};

/// Replica that gives pieces.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Index among all replicas.
    index: usize,
    client: Client,
    name: Name,
}

impl Source {
    pub(super) fn of(index: usize, replica: &Replica) -> Self {
        Self {
            index,
            client: replica.client.clone(),
            name: replica.name.clone(),
        }
    }
}

/// Copy from several replicas.
pub(super) struct Draw {
    shared: Arc<Shared>,
}

pub(super) struct Ended {
    /// Digest of what arrived; `None` if it was stopped before all arrived.
    pub(super) result: Result<Option<Digest>, Error>,
}

struct Shared {
    part: Arc<LocalPart>,
    grid: Grid,
    sources: Vec<Source>,
    /// Values that the pieces must have, if they are known.
    outline: Option<Arc<Outline>>,
    state: Mutex<State>,
    /// Told when a piece is stored or becomes free.
    changed: Notify,
    stop: CancellationToken,
    tell: Tell,
}

struct State {
    deal: Deal,
    tree: HashTree,
    /// Source of each piece that arrived in this call.
    brought: BTreeMap<ChunkId, usize>,
    /// Pieces that are being written, so that no two sources write one.
    writing: ChunkSet,
    /// Pieces that are written and not recorded.
    unsynced: Vec<Subtree>,
    /// Reason for each source that gives no more.
    gone: Vec<Option<LeftReplica>>,
    /// True for each source that has not answered its latest request in time.
    silent: Vec<bool>,
    error: Option<Error>,
    report: Report,
    resumed: u64,
}

impl Draw {
    pub(super) fn new(
        part: Arc<LocalPart>,
        sources: Vec<Source>,
        have: Vec<Subtree>,
        (outline, stop): (Option<Arc<Outline>>, CancellationToken),
        tell: Tell,
    ) -> Self {
        let gone = sources.iter().map(|_| None).collect();
        let kept = (BTreeMap::new(), gone);
        let state = State::new(part.grid(), have, kept, Report::default());
        Self {
            shared: Arc::new(Shared {
                grid: part.grid(),
                part,
                sources,
                outline,
                state: Mutex::new(state),
                changed: Notify::new(),
                stop,
                tell,
            }),
        }
    }

    pub(super) fn bytes_stored(&self) -> u64 {
        self.shared.state.lock().deal.bytes_stored()
    }

    /// Fetches all pieces that are missing, and records them.
    pub(super) async fn run(&self) -> Ended {
        let shared = &self.shared;
        let mut tasks = JoinSet::new();
        for source in 0..shared.sources.len() {
            for _ in 0..AT_ONCE {
                tasks.spawn(shared.clone().give(source));
            }
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut synced = Instant::now();
        loop {
            tokio::select! {
                ended = tasks.join_next() => if ended.is_none() || shared.state.lock().deal.is_done() {
                    break;
                },
                () = shared.stop.cancelled() => break,
                _ = ticks.tick() => {
                    let (progress, unsynced) = shared.state.lock().look(&shared.grid);
                    (shared.tell)(Event::Progress(progress));
                    let is_due = unsynced >= SYNC_BYTES || synced.elapsed() >= SYNC_TIME;
                    if is_due && unsynced > 0 {
                        synced = Instant::now();
                        shared.sync().await;
                    }
                }
            }
        }
        {
            let (mut state, now) = (shared.state.lock(), Instant::now());
            for source in 0..shared.sources.len() {
                state.silent[source] |= state.deal.is_suspect(source, now);
            }
        }
        // Those that wait for a source that is lost.
        tasks.shutdown().await;
        shared.sync().await;
        let mut state = shared.state.lock();
        let result = match (state.error.take(), state.tree.root()) {
            (Some(error), _) => Err(error),
            (None, Some(digest)) => Ok(Some(digest)),
            (None, None) if shared.stop.is_cancelled() => Ok(None),
            (None, None) => Err(state.last_error()),
        };
        Ended { result }
    }

    /// Returns a copy that fetches what is wrong, from those that have sent nothing wrong.
    pub(super) async fn again(self, outline: Arc<Outline>) -> Result<Self, Error> {
        let shared = self.shared;
        let of = shared.clone();
        let right = outline.clone();
        let wrong = spawn_blocking(move || of.wrong(&right)).await;
        let wrong = wrong.map_err(ended)?;
        let wrong = wrong.map_err(|error| Error::failed("read back what arrived", error))?;
        let mut state = shared.state.lock();
        for piece in wrong.ranges().flat_map(ChunkRange::chunks) {
            if let Some(liar) = state.brought.remove(&piece) {
                state.gone[liar] = Some(LeftReplica::Lied);
            }
        }
        let all = ChunkRange::new(ChunkId(0), shared.grid.chunk_count());
        let values = outline.values();
        let right = all.chunks().filter(|piece| !wrong.contains(*piece));
        let have = right.map(|piece| Subtree::of_chunk(piece, values[piece.0 as usize]));
        let kept = (
            std::mem::take(&mut state.brought),
            std::mem::take(&mut state.gone),
        );
        let report = std::mem::take(&mut state.report);
        let state = State::new(shared.grid, have.collect(), kept, report);
        Ok(Self {
            shared: Arc::new(Shared {
                part: shared.part.clone(),
                grid: shared.grid,
                sources: shared.sources.clone(),
                outline: Some(outline),
                state: Mutex::new(state),
                changed: Notify::new(),
                stop: shared.stop.clone(),
                tell: shared.tell.clone(),
            }),
        })
    }

    /// Returns the replicas that give no more, by their indices among all.
    pub(super) fn take_left(&self) -> Vec<(usize, LeftReplica)> {
        let mut state = self.shared.state.lock();
        let mut gone = std::mem::take(&mut state.gone);
        for (why, _) in gone
            .iter_mut()
            .zip(&state.silent)
            .filter(|(_, silent)| **silent)
        {
            why.get_or_insert(LeftReplica::Silent);
        }
        let gone = self.shared.sources.iter().zip(gone);
        gone.filter_map(|(source, why)| Some((source.index, why?)))
            .collect()
    }

    /// Adds what the links carried.
    pub(super) fn add_to(&self, report: &mut Report) {
        let carried = &self.shared.state.lock().report;
        report.links.clone_from(&carried.links);
        // Of a run that was cut off, the latest bytes may not be counted.
        report.wire_bytes = carried.wire_bytes.max(report.size - report.resumed_bytes);
        report.failovers = carried.failovers;
    }
}

impl State {
    fn new(
        grid: Grid,
        have: Vec<Subtree>,
        (brought, gone): (BTreeMap<ChunkId, usize>, Vec<Option<LeftReplica>>),
        report: Report,
    ) -> Self {
        let (mut tree, mut durable) = (HashTree::new(grid), ChunkSet::new());
        for subtree in have {
            if let (Ok(()), Ok(chunks)) = (tree.insert(subtree), subtree.chunks(grid)) {
                durable.insert(chunks);
            }
        }
        let writing = durable.clone();
        let deal = Deal::new(grid, durable, gone.len());
        Self {
            resumed: deal.bytes_stored(),
            deal,
            tree,
            brought,
            writing,
            unsynced: Vec::new(),
            silent: vec![false; gone.len()],
            gone,
            error: None,
            report,
        }
    }

    /// Returns the progress, and the bytes that are not recorded.
    fn look(&self, grid: &Grid) -> (Progress, u64) {
        let now = Instant::now();
        let mut progress = Progress {
            size: grid.size,
            resumed: self.resumed,
            bytes: self.deal.bytes_stored(),
            ..Progress::default()
        };
        let rates = (0..self.gone.len()).map(|source| self.deal.of_link(source, now).1.0);
        progress.rate = BitRate(rates.sum());
        for link in &self.report.links {
            let mut of_link = LinkProgress::new(link.link.clone());
            (of_link.bytes, of_link.state) = (link.bytes, link.state.clone());
            progress.links.push(of_link);
        }
        let unsynced = self.unsynced.len() as u64 * grid.chunk_size.bytes();
        (progress, unsynced)
    }

    /// Returns why the last source gives no more.
    fn last_error(&mut self) -> Error {
        let failed = self.gone.iter_mut().rev().find_map(|why| match why.take() {
            Some(LeftReplica::Failed(error)) => Some(error),
            other => {
                *why = other;
                None
            }
        });
        failed.unwrap_or_else(|| Error::ended("replicas", "none is left that has the file right"))
    }
}

impl Shared {
    /// Fetches what the source is to give, until all is there or the source is of no more use.
    async fn give(self: Arc<Self>, source: usize) {
        let mut pause = FIRST_PAUSE;
        loop {
            let turn = {
                let mut state = self.state.lock();
                match state.gone[source].is_some() || state.error.is_some() {
                    true => Turn::Done,
                    false => state.deal.next(source, Instant::now()),
                }
            };
            match turn {
                Turn::Done => return,
                Turn::Wait(until) => {
                    let time = until.map(|until| until.saturating_duration_since(Instant::now()));
                    let time = time.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
                    let _ = timeout(time, self.changed.notified()).await;
                }
                Turn::Fetch(run) => match self.fetch(source, run).await {
                    Ok(()) => pause = FIRST_PAUSE,
                    Err(ControlFlow::Continue(())) => {
                        sleep(pause).await;
                        pause = (2 * pause).min(LONGEST_PAUSE);
                    }
                    Err(ControlFlow::Break(why)) => {
                        self.state.lock().gone[source].get_or_insert(why);
                        self.changed.notify_waiters();
                        return;
                    }
                },
            }
        }
    }

    /// Fetches a run of pieces. Continues if it is worth another try, and breaks with the reason if not.
    async fn fetch(&self, source: usize, run: ChunkRange) -> Result<(), ControlFlow<LeftReplica>> {
        let mut left = Unfinished {
            shared: self,
            source,
            left: run,
            unread: self.len(run),
            has_failed: true,
        };
        let range = GetRange {
            offset: run.first.0 * self.grid.chunk_size.bytes(),
            len: left.unread,
        };
        let of = &self.sources[source];
        let (transfer, chunks) = of.client.fetch(of.name.clone(), Some(range));
        match self.receive(&mut left, chunks).await {
            Ok(Received::All) => match transfer.finish().await {
                Ok(report) => {
                    left.has_failed = false;
                    self.state.lock().report.add(report);
                    Ok(())
                }
                Err(error) => Err(ControlFlow::Break(LeftReplica::Failed(error))),
            },
            Ok(Received::Less) => Err(ControlFlow::Break(match transfer.finish().await {
                // The file is shorter now.
                Ok(_) => LeftReplica::Lied,
                Err(error) => LeftReplica::Failed(error),
            })),
            other => {
                let carried = carried(&transfer.progress());
                self.state.lock().report.add(carried);
                left.has_failed = other.is_err();
                other.map(drop)
            }
        }
    }

    /// Stores the pieces of a run as they arrive.
    async fn receive(
        &self,
        left: &mut Unfinished<'_>,
        mut chunks: mpsc::Receiver<Read>,
    ) -> Result<Received, ControlFlow<LeftReplica>> {
        let source = left.source;
        let mut piece = Vec::with_capacity(self.grid.chunk_size.bytes() as usize);
        while left.left.count > 0 {
            let patience = match self.has_others(source) {
                true => SILENCE,
                false => Duration::MAX,
            };
            let chunk = match timeout(patience, chunks.recv()).await {
                Ok(Some(Read::Chunk(chunk))) => chunk,
                Ok(Some(Read::Begun(_))) => continue,
                Ok(None) => return Ok(Received::Less),
                Err(_) => {
                    self.state.lock().silent[source] = true;
                    return Err(ControlFlow::Continue(()));
                }
            };
            let mut bytes = chunk.bytes();
            left.heard(bytes.len());
            while !bytes.is_empty() && left.left.count > 0 {
                let (index, full) = (left.left.first, self.len(left.left.first.into()) as usize);
                let taken = bytes.len().min(full - piece.len());
                piece.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if piece.len() == full {
                    piece = self.store(source, index, piece).await?;
                    left.left = ChunkRange::new(ChunkId(index.0 + 1), left.left.count - 1);
                }
            }
            let is_wanted = |state: &State| {
                let mut chunks = left.left.chunks();
                chunks.any(|chunk| state.deal.wants(source, chunk))
            };
            if left.left.count > 0 && !is_wanted(&self.state.lock()) {
                return Ok(Received::Unwanted);
            }
        }
        Ok(Received::All)
    }

    /// Stores a piece, unless another source has. Returns a buffer for another.
    async fn store(
        &self,
        source: usize,
        piece: ChunkId,
        bytes: Vec<u8>,
    ) -> Result<Vec<u8>, ControlFlow<LeftReplica>> {
        let (part, grid) = (self.part.clone(), self.grid);
        let expected = self
            .outline
            .as_ref()
            .map(|outline| outline.values()[piece.0 as usize]);
        let value = value_of(grid.size, piece.0, &bytes);
        if expected.is_some_and(|expected| expected != value) {
            return Err(ControlFlow::Break(LeftReplica::Lied));
        }
        {
            let mut state = self.state.lock();
            if !state.deal.wants(source, piece) || state.writing.insert(piece) == 0 {
                return Ok(cleared(bytes));
            }
        }
        let offset = piece.0 * grid.chunk_size.bytes();
        let written = spawn_blocking(move || {
            part.write_all_at(&bytes, offset)?;
            Ok::<_, io::Error>(bytes)
        });
        let written = written
            .await
            .map_err(io::Error::other)
            .and_then(|written| written);
        match written {
            Ok(bytes) => {
                self.on_stored(source, piece, value);
                Ok(cleared(bytes))
            }
            Err(error) => {
                let mut state = self.state.lock();
                state
                    .error
                    .get_or_insert(Error::failed("write a part", error));
                Err(ControlFlow::Continue(()))
            }
        }
    }

    fn on_stored(&self, source: usize, piece: ChunkId, value: ChainingValue) {
        let mut state = self.state.lock();
        if state.deal.stored(source, piece) {
            let subtree = Subtree::of_chunk(piece, value);
            // A piece is stored once.
            let _ = state.tree.insert(subtree);
            state.brought.insert(piece, source);
            state.unsynced.push(subtree);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Makes what is written durable, and records it.
    async fn sync(&self) {
        let subtrees = std::mem::take(&mut self.state.lock().unsynced);
        if subtrees.is_empty() {
            return;
        }
        let part = self.part.clone();
        let synced = spawn_blocking(move || part.sync(subtrees)).await;
        if let Err(error) = synced.map_err(ended).and_then(|synced| Ok(synced?)) {
            self.state.lock().error.get_or_insert(error);
            self.changed.notify_waiters();
        }
    }

    /// Reads back what arrived. Returns the pieces that are not those of the file.
    fn wrong(&self, outline: &Outline) -> io::Result<ChunkSet> {
        let (mut wrong, mut bytes) = (ChunkSet::new(), Vec::new());
        for (value, index) in outline.values().iter().zip(0..) {
            let range = outline.range_of(index);
            bytes.resize((range.end - range.start) as usize, 0);
            self.part.read_exact_at(&mut bytes, range.start)?;
            if value_of(outline.size(), index, &bytes) != *value {
                wrong.insert(ChunkId(index));
            }
        }
        Ok(wrong)
    }

    /// Returns true if another source gives pieces.
    fn has_others(&self, source: usize) -> bool {
        let (state, now) = (self.state.lock(), Instant::now());
        let gives =
            |other: usize| state.gone[other].is_none() && !state.deal.is_suspect(other, now);
        (0..self.sources.len()).any(|other| other != source && gives(other))
    }

    fn len(&self, run: ChunkRange) -> u64 {
        let at = |index: u64| (index * self.grid.chunk_size.bytes()).min(self.grid.size);
        at(run.first.0 + run.count) - at(run.first.0)
    }
}

/// Run of pieces that a source is asked for. Dropped, what did not arrive returns to the queue.
struct Unfinished<'a> {
    shared: &'a Shared,
    source: usize,
    left: ChunkRange,
    /// Bytes that did not arrive.
    unread: u64,
    has_failed: bool,
}

impl Unfinished<'_> {
    fn heard(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.unread = self.unread.saturating_sub(bytes);
        let mut state = self.shared.state.lock();
        state.deal.heard(self.source, bytes, Instant::now());
        state.silent[self.source] = false;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state
            .deal
            .ended(self.source, self.left, self.unread, self.has_failed, now);
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

enum Received {
    All,
    /// The source has sent less.
    Less,
    /// Others have brought the rest.
    Unwanted,
}

/// Returns what the links have carried of a transfer that does not continue.
fn carried(progress: &Progress) -> Report {
    let links = progress.links.iter().map(|link| LinkReport {
        bytes: link.bytes,
        wire_bytes: link.bytes,
        state: link.state.clone(),
        ..LinkReport::new(link.link.clone())
    });
    Report {
        size: progress.bytes,
        wire_bytes: progress.bytes,
        links: links.collect(),
        ..Report::default()
    }
}

fn cleared(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

/// Runs that a source is asked for at a time: one arrives while the next is asked for.
const AT_ONCE: usize = 2;

const TICK: Duration = Duration::from_millis(100);

/// Silence after which a run is given up and its source asked again, while another source gives pieces.
const SILENCE: Duration = Duration::from_secs(3);

/// Longest wait for a change, in case one was missed.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Pause before a source that failed is asked again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
