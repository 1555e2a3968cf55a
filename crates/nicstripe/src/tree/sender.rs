//! Sends a tree: walks it, packs entries and small files into batches, and handles the receiver's
//! messages.
//!
//! [`run`] is the thread's function. Its loop handles input, packs contents that were read, and
//! continues the walk while the receiver keeps up. If it has nothing to add, it flushes a partial
//! batch and then waits. The I/O threads read contents ahead of packing, in any order.
//!
//! Each wanted file that is not standalone ends with its last piece or with an `Abandoned` record,
//! even if it failed at the receiver meanwhile.

mod answers;
mod ledger;
mod outlet;
mod reads;

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender as InputSender, TryRecvError},
    time::Duration,
};

use nicstripe_proto::{
    Digest, FailCode,
    frame::MAX_PAYLOAD,
    message::WalkRules,
    tree::{
        Content, EntryFailure, EntryId, Reason, Record, Special, TreeMessage, TreeRules, Trouble,
        Verdict, batch::PIECE_HEADER,
    },
};

use self::{
    ledger::{Announced, Kind, Ledger, LedgerError},
    outlet::Outlet,
    reads::{ReadRequest, Reads, open_standalone},
};
use super::{
    allowance::Sending,
    channel::{OnOpened, SenderChannel, SenderInput, SenderRun},
    filter::Filters,
    halt::Halt,
    walk::{FoundEntry, SendSource, Walk, WalkItem},
};
use crate::file::{FileError, IoPool, Source};

/// Maximum time that a partial batch waits while files are being read, or while the walk finds more
/// and none is read.
///
/// Without it, each file read by the two I/O threads is sent in a separate batch: 375 batches for
/// 1000 files of 500 bytes on average. Longer than a read and too short for a user to notice
/// (picked by eye).
const BATCH_PATIENCE: Duration = Duration::from_millis(5);

/// Request to send a tree: its sources and options.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderRequest {
    /// Sources to send. Each has a name at the target, or its contents are copied into the target
    /// itself.
    pub(crate) sources: Vec<SendSource>,
    /// Rules sent to the receiver. They determine which metadata the sender reads and which files
    /// it excludes.
    pub(crate) rules: TreeRules,
    pub(crate) walk: WalkRules,
    /// True to report each entry, see [`crate::TreeOptions::list`].
    pub(crate) list: bool,
    /// True to report large files whose pieces the caller copies.
    pub(crate) reports_large: bool,
    pub(crate) allowance: Sending,
}

impl SenderRequest {
    /// Prepares the sender for its thread, which drops `held` when the tree has ended.
    pub(crate) fn into_run(self, held: impl Send + 'static) -> SenderRun {
        SenderRun::new(
            self.allowance,
            "nicstripe-send",
            held,
            move |inputs, handle, pool, channel| run(self, inputs, handle, pool, channel),
        )
    }
}

/// Sends a tree and returns when it has ended.
///
/// Reports the result through `channel`, unless the channel is closed or [`SenderInput::Stop`]
/// arrives. The I/O threads report finished jobs through `self_handle`, the sending half of
/// `inputs`.
fn run(
    request: SenderRequest,
    inputs: Receiver<SenderInput>,
    self_handle: InputSender<SenderInput>,
    pool: IoPool,
    channel: Box<dyn SenderChannel>,
) {
    let outlet = Outlet::new(channel, &request);
    let filters = match Filters::new(&request.rules.filters) {
        Ok(filters) => filters,
        Err(error) => return outlet.finish(Err(error.into())),
    };
    let reads = Reads::new(
        pool,
        self_handle,
        request.walk.allow_changing,
        request.allowance.read,
    );
    let memory = outlet.receivers_memory().min(request.allowance.entries);
    let mut sender = Sender::new(request, filters, inputs, reads, outlet, Ledger::new(memory));
    let ended = sender.work();
    sender.outlet.finish(ended);
}

struct Sender {
    rules: TreeRules,
    allow_changing: bool,
    compress: bool,
    /// Walk of the sources; `None` once it has ended.
    walk: Option<Walk>,
    /// Records that wait to be packed into a batch, in the order of the walk.
    outgoing: VecDeque<Record<'static>>,
    /// Digests of queued files that need one, once they are computed. A file that cannot be read
    /// has none.
    digests: HashMap<EntryId, Option<Option<Digest>>>,
    ledger: Ledger,
    last_packed: Option<EntryId>,
    reads: Reads,
    inputs: Receiver<SenderInput>,
    outlet: Outlet,
    /// True once the sender has announced that no batch follows.
    is_last_told: bool,
    is_committed: bool,
}

impl Sender {
    fn new(
        request: SenderRequest,
        filters: Filters,
        inputs: Receiver<SenderInput>,
        reads: Reads,
        outlet: Outlet,
        ledger: Ledger,
    ) -> Self {
        let SenderRequest { rules, walk, .. } = request;
        Self {
            allow_changing: walk.allow_changing,
            compress: walk.compress,
            walk: Some(Walk::of_share(&rules, walk, filters, request.sources)),
            rules,
            outgoing: VecDeque::new(),
            digests: HashMap::new(),
            ledger,
            last_packed: None,
            reads,
            inputs,
            outlet,
            is_last_told: false,
            is_committed: false,
        }
    }

    fn work(&mut self) -> Result<(), Halt> {
        loop {
            self.take_in()?;
            self.begin_reads()?;
            if self.pack_content()? || self.pack_outgoing()? || self.walk_on()? {
                self.outlet.progress()?;
                self.flush_for_idle_receiver()?;
                continue;
            }
            let patience = self.patience();
            if patience.is_none() {
                self.flush()?;
                self.flush_last()?;
            }
            if self.is_committed {
                return Ok(());
            }
            self.wait(patience)?;
        }
    }

    fn take_in(&mut self) -> Result<(), Halt> {
        loop {
            match self.inputs.try_recv() {
                Ok(input) => self.handle(input)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Halt::Stopped),
            }
        }
    }

    /// Returns the time that a partial batch may still wait for running reads; `None` if it must
    /// not wait.
    fn patience(&self) -> Option<Duration> {
        let left = BATCH_PATIENCE.saturating_sub(self.outlet.batch_age()?);
        (self.reads.is_reading() && !left.is_zero()).then_some(left)
    }

    /// Waits for input for at most `patience`; `None` waits without limit. Reports progress in the
    /// meantime.
    fn wait(&mut self, patience: Option<Duration>) -> Result<(), Halt> {
        let until_progress = self.outlet.progress()?;
        let input = match patience.into_iter().chain(until_progress).min() {
            None => self.inputs.recv().map_err(|_| Halt::Stopped)?,
            Some(wait) => match self.inputs.recv_timeout(wait) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Halt::Stopped),
            },
        };
        self.handle(input)
    }

    /// Sends a partial batch during the walk if no file is read: then the receiver probably waits
    /// for entries, and this end for its verdicts.
    fn flush_for_idle_receiver(&mut self) -> Result<(), Halt> {
        let is_due = !self.reads.is_reading()
            && self
                .outlet
                .batch_age()
                .is_some_and(|age| age >= BATCH_PATIENCE);
        if is_due { self.flush() } else { Ok(()) }
    }

    /// Sends the last batch and announces the end, if no record can follow.
    fn flush_last(&mut self) -> Result<(), Halt> {
        let is_last = self.walk.is_none()
            && self.outgoing.is_empty()
            && self.ledger.is_decided()
            && self.reads.is_empty();
        if is_last && !self.is_last_told {
            self.is_last_told = true;
            self.outlet.last()?;
        }
        Ok(())
    }

    /// Continues the walk by one step unless the receiver is behind. Returns true if it did.
    fn walk_on(&mut self) -> Result<bool, Halt> {
        let Some(walk) = self
            .walk
            .as_mut()
            .filter(|_| self.ledger.has_room() && self.reads.has_room_for_digest())
        else {
            return Ok(false);
        };
        match walk.next() {
            Some(WalkItem::Entry(found)) => self.found(found),
            Some(WalkItem::EndDirectory { id, complete }) => {
                self.ledger.end_directory(id);
                self.outgoing
                    .push_back(Record::EndDirectory { id, complete });
            }
            Some(WalkItem::Special { name }) => {
                self.outlet.special(Some(&name))?;
                self.push(&Record::Special(Box::new(Special { name, large: None })))?;
            }
            Some(WalkItem::Large { name, large }) => {
                self.push(&Record::Special(Box::new(Special {
                    name: name.clone(),
                    large: Some(large.clone()),
                })))?;
                self.outlet.large(name, large);
            }
            Some(WalkItem::Failed { name, failure }) => {
                let reason = reason(failure.code, &failure.text);
                let label = name.is_none().then(|| short(&failure.name));
                self.outlet.fail(name.clone(), failure)?;
                self.push(&Record::Trouble(Box::new(Trouble {
                    name,
                    reason,
                    label,
                })))?;
            }
            Some(WalkItem::Counted) => {}
            None => {
                self.walk = None;
                self.outlet.complete();
            }
        }
        Ok(true)
    }

    fn found(&mut self, mut found: Box<FoundEntry>) {
        let announced = Announced::of(&mut found);
        self.outlet.found(announced.kind);
        if let (Content::File { digest, .. }, Some(bytes), true) = (
            &mut found.entry.content,
            &announced.content,
            self.rules.checksum,
        ) {
            *digest = Some(Digest(*blake3::hash(bytes).as_bytes()));
        }
        let needs_digest =
            self.rules.checksum && announced.kind.is_file() && announced.content.is_none();
        self.ledger.tell(found.entry.id, announced);
        if needs_digest {
            self.digests.insert(found.entry.id, None);
            self.reads.digest(ReadRequest {
                id: found.entry.id,
                location: found.location.clone(),
                identity: found.identity,
            });
        }
        self.outgoing
            .push_back(Record::Entry(Box::new(found.entry)));
    }

    /// Packs the next queued record into the batch; returns false if none is ready.
    fn pack_outgoing(&mut self) -> Result<bool, Halt> {
        let Some(mut record) = self.outgoing.pop_front() else {
            return Ok(false);
        };
        if let Record::Entry(entry) = &mut record
            && let Content::File { digest, .. } = &mut entry.content
            && let Some(computed) = self.digests.get(&entry.id)
        {
            let Some(computed) = *computed else {
                self.outgoing.push_front(record);
                return Ok(false);
            };
            *digest = computed;
            self.digests.remove(&entry.id);
        }
        self.push(&record)?;
        Ok(true)
    }

    fn begin_reads(&mut self) -> Result<(), Halt> {
        let unwanted = self.reads.begin(|id| self.ledger.is_pending(id));
        unwanted.into_iter().try_for_each(|id| self.give_up(id))
    }

    /// Packs the next file that was read into the batch; returns false if there is none.
    fn pack_content(&mut self) -> Result<bool, Halt> {
        let Some((id, content)) = self.reads.next() else {
            return Ok(false);
        };
        match content {
            Err(error) => self.abandon(id, error.reason())?,
            Ok(_) if !self.ledger.is_pending(id) => self.give_up(id)?,
            Ok(bytes) => self.send_content(id, &bytes)?,
        }
        Ok(true)
    }

    /// Packs the whole content of a file into batches. From then on the ledger accepts the
    /// receiver's result.
    fn send_content(&mut self, id: EntryId, bytes: &[u8]) -> Result<(), Halt> {
        self.push_pieces(id, bytes)?;
        self.ledger.on_sent(id);
        Ok(())
    }

    /// Packs the content of a file into the batch, in several pieces only if it exceeds an empty
    /// batch.
    fn push_pieces(&mut self, id: EntryId, bytes: &[u8]) -> Result<(), Halt> {
        let whole = PIECE_HEADER + bytes.len();
        if whole > self.outlet.room() && whole <= MAX_PAYLOAD {
            self.flush()?;
        }
        let mut offset = 0;
        loop {
            if self.outlet.room() <= PIECE_HEADER {
                self.flush()?;
            }
            let end = bytes.len().min(offset + self.outlet.room() - PIECE_HEADER);
            let last = end == bytes.len();
            self.push(&Record::Piece {
                id,
                offset: offset as u64,
                last,
                bytes: &bytes[offset..end],
            })?;
            if last {
                return Ok(());
            }
            offset = end;
        }
    }

    /// Packs a record into the current batch, or into the next one if this one is full.
    fn push(&mut self, record: &Record<'_>) -> Result<(), Halt> {
        if !self.outlet.try_push(record) {
            self.flush()?;
            if !self.outlet.try_push(record) {
                return Err(protocol(io::Error::other("record exceeds a batch")));
            }
        }
        if let Record::Entry(entry) = record {
            self.last_packed = Some(entry.id);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Halt> {
        self.outlet.flush()?;
        if let Some(last) = self.last_packed.take() {
            self.ledger.sent(last);
        }
        Ok(())
    }

    /// Announces that a requested file will not be sent, and counts the failure unless the receiver
    /// has already dropped the file.
    fn abandon(&mut self, id: EntryId, Reason { code, text }: Reason) -> Result<(), Halt> {
        let reason = reason(code, &text);
        if let Some(pending) = self.ledger.end(id) {
            self.outlet.will_not_be_sent(&pending.announced);
            self.outlet.failed(Some(&pending.announced), code, text)?;
        }
        self.push(&Record::Abandoned { id, reason })
    }

    /// Announces that a file is not sent because it has failed at the receiver.
    fn give_up(&mut self, id: EntryId) -> Result<(), Halt> {
        let reason = reason(FailCode::Io, "abandoned by the receiver");
        self.push(&Record::Abandoned { id, reason })
    }
}

/// Returns the reason for a failure, with the text truncated to the length limit of a record.
fn reason(code: FailCode, text: &str) -> Reason {
    Reason {
        code,
        text: short(text),
    }
}

fn short(text: &str) -> String {
    text.chars().take(MOST_REASON).collect()
}

/// Maximum number of characters in a reason or a label; at most 1 KiB in UTF-8.
const MOST_REASON: usize = 256;

fn protocol(error: impl std::error::Error + Send + Sync + 'static) -> Halt {
    Halt::Failed(FileError::violated("send", "the tree", error))
}

#[cfg(test)]
mod tests;
