//! Receives a tree: compares announced entries with existing files, and writes the wanted ones.
//!
//! One thread owns all state, divided by [`Directories`], [`Comparison`], [`Files`], [`Links`] and
//! [`Outbox`]. It reads batches, examines the existing file of each entry, and creates directories
//! and links. The I/O threads hash and write contents, and commit small files
//! in groups ([`commit_group`]). A standalone file is opened as a [`Target`](crate::file::Target).
//! No file gets its final name before its content is durable, and the receiver reports the end only
//! when everything is durable.
//!
//! A peer cannot reach anything outside the target. The kernel opens directories beneath it without
//! following symbolic links ([`dirs`]). Every operation on a name takes a single component in an
//! open directory.
//!
//! Memory is bounded by `MOST_PENDING` and `MOST_UNDECIDED` entries, open directories
//! ([`directories`]) and bytes of attributes ([`context`]); a correct peer stays below these.
//! [`Receiving`] limits batches and the footprints of entries. Three cases add about 16 bytes each:
//! every name in an unfinished directory if surplus is deleted, every failed file, and every file
//! that has further names.

mod agreed;
mod commit_group;
mod comparison;
pub(super) mod completion;
mod context;
mod directories;
mod dirs;
mod entries;
mod files;
mod jobs;
mod leaf;
mod links;
mod outbox;
mod part;
mod placing;
mod promised;
mod request;
mod spelling;
mod surplus;
#[cfg(test)]
mod tests;
mod writing;

use std::{rc::Rc, sync::mpsc, time::Duration};

use nicstripe_proto::tree::{BatchReader, Record, Special};

pub(crate) use self::{agreed::Agreed, promised::Promised, request::ReceiverRequest};
use self::{
    comparison::Comparison, completion::Completion, context::Context, directories::Directories,
    files::Files, jobs::Jobs, links::Links, outbox::Outbox,
};
use super::{
    channel::{ReceiverChannel, ReceiverInput, ReceiverRun},
    halt::{Halt, breach},
    owners::Owners,
};
use crate::file::{ChunkBuffer, FileError, IoPool};

impl ReceiverRequest {
    /// Prepares the receiver for its thread, which drops `held` when the tree has ended.
    pub(crate) fn into_run(self, held: impl Send + 'static) -> ReceiverRun {
        ReceiverRun::new(
            self.allowance,
            "nicstripe-receive",
            held,
            move |inputs, handle, pool, channel| run(self, inputs, handle, pool, channel),
        )
    }
}

/// Receives a tree on its own thread, and reports the result through `channel`.
///
/// The I/O threads report finished jobs through `self_handle`, the sending half of `inputs`.
fn run(
    request: ReceiverRequest,
    inputs: mpsc::Receiver<ReceiverInput>,
    self_handle: mpsc::Sender<ReceiverInput>,
    pool: IoPool,
    channel: Box<dyn ReceiverChannel>,
) {
    let mut receiver = Receiver::new(request, self_handle, pool, channel);
    let result = match receiver.receive(&inputs) {
        Ok(()) => Ok(()),
        Err(halt) => {
            receiver.abort(&inputs);
            Err(halt.into_error())
        }
    };
    receiver.close(result);
}

/// State of the receiver's thread. Each part owns its state; this only connects them.
struct Receiver {
    context: Rc<Context>,
    /// Entries that the sender must announce; `None` unless the local side requested them.
    promised: Option<Promised>,
    owners: Owners,
    out: Outbox,
    directories: Directories,
    comparison: Comparison,
    files: Files,
    links: Links,
    /// Number of batches that were processed but not yet reported as consumed.
    owed: usize,
    /// True once the receiver has processed the sender's last batch.
    has_ended: bool,
}

impl Receiver {
    fn new(
        mut request: ReceiverRequest,
        inputs: mpsc::Sender<ReceiverInput>,
        pool: IoPool,
        channel: Box<dyn ReceiverChannel>,
    ) -> Self {
        let out = Outbox::new(
            channel,
            request.list,
            request.allowance.entries / SHARE_OF_SPECIALS,
        );
        let promised = request.promised.take();
        let context = Context::new(request, out.lost.clone());
        let jobs = Jobs { pool, inputs };
        Self {
            promised,
            owners: Owners::default(),
            out,
            directories: Directories::new(context.clone()),
            comparison: Comparison::new(context.clone(), jobs.clone()),
            files: Files::new(context.clone(), jobs),
            links: Links::new(context.clone()),
            owed: 0,
            has_ended: false,
            context,
        }
    }

    fn receive(&mut self, inputs: &mpsc::Receiver<ReceiverInput>) -> Result<(), Halt> {
        loop {
            let input = inputs.recv_timeout(self.patience());
            let is_quiet = matches!(input, Err(mpsc::RecvTimeoutError::Timeout));
            match input {
                Ok(input) => self.handle(input)?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Halt::Stopped),
            }
            for input in inputs.try_iter().take(MOST_INPUTS) {
                self.handle(input)?;
            }
            self.turn(is_quiet)?;
            if self.is_done()? {
                self.check_promised()?;
                return self.sync_all();
            }
        }
    }

    /// Returns the maximum wait for input before a group commit is due.
    fn patience(&self) -> Duration {
        match self.files.patience() {
            Some(patience) if self.is_idle() => patience.min(IDLE_COMMIT),
            patience => patience.unwrap_or(Duration::MAX),
        }
    }

    /// Returns true if no file is being compared or received. Small files may still wait for a
    /// group commit.
    fn is_idle(&self) -> bool {
        self.comparison.is_empty() && self.files.coming() == 0
    }

    fn handle(&mut self, input: ReceiverInput) -> Result<(), Halt> {
        match input {
            ReceiverInput::Batch(_) | ReceiverInput::End if self.has_ended => {
                breach!("peer sent a batch after the last")
            }
            ReceiverInput::Batch(batch) => self.on_batch(batch)?,
            ReceiverInput::End => {
                self.has_ended = true;
                self.out.progress.complete = true;
            }
            ReceiverInput::OpenStandalone {
                id,
                offer,
                options,
                answer,
            } => self.files.open_standalone(id, offer, options, answer),
            ReceiverInput::StandaloneEnded { id, result } => {
                let ended = self.files.on_standalone_ended(id, result);
                ended.into_iter().try_for_each(|file| self.on_ended(file))?;
            }
            ReceiverInput::Job(Completion::Hashed(id, digest)) => {
                if let Some(candidate) = self.comparison.finish(id, digest) {
                    self.judge(candidate)?;
                    self.resume_links(id)?;
                }
            }
            ReceiverInput::Job(Completion::Opened(id, inode)) => self.files.on_opened(id, inode),
            ReceiverInput::Job(Completion::Wrote(pieces)) => {
                let failed = self.files.on_wrote(pieces);
                failed
                    .into_iter()
                    .try_for_each(|file| self.on_ended(file))?;
            }
            ReceiverInput::Job(Completion::Committed(results)) => {
                let ended = self.files.on_committed(results);
                ended.into_iter().try_for_each(|file| self.on_ended(file))?;
            }
            ReceiverInput::Stop => return Err(Halt::Stopped),
        }
        Ok(())
    }

    fn on_batch(&mut self, batch: ChunkBuffer) -> Result<(), Halt> {
        let batch = self.files.begin(batch);
        for record in BatchReader::new(batch.bytes()) {
            match record.map_err(|error| Halt::protocol(error.to_string()))? {
                Record::Entry(entry) => self.on_entry(*entry)?,
                Record::EndDirectory { id, complete } => {
                    if let Some(promised) = &mut self.promised {
                        promised.ended(id, &self.context.request.filters);
                    }
                    self.directories.end(id, complete, &mut self.out)?;
                }
                Record::Piece {
                    id,
                    offset,
                    last,
                    bytes,
                } => {
                    let start = bytes.as_ptr() as usize - batch.bytes().as_ptr() as usize;
                    let range = start..start + bytes.len();
                    self.files.on_piece(id, offset, last, &batch, range)?;
                }
                Record::Abandoned { id, reason } => self.on_abandoned(id, &reason)?,
                Record::Trouble(trouble) => self.out.trouble(*trouble)?,
                Record::Special(special) => self.on_special(*special)?,
            }
        }
        self.owed += 1;
        self.turn(false)
    }

    /// Starts jobs and sends results that are due. `is_quiet` is true if no input arrived within
    /// [`Receiver::patience`].
    fn turn(&mut self, is_quiet: bool) -> Result<(), Halt> {
        self.comparison.begin();
        self.files.write();
        if self.files.patience().is_some_and(|patience| {
            patience.is_zero() || is_quiet || (self.has_ended && self.is_idle())
        }) {
            self.files.commit();
        }
        self.out.flush()?;
        while self.owed > 0 && self.files.batches() < self.context.request.allowance.written {
            self.owed -= 1;
            self.out.consumed()?;
        }
        Ok(())
    }

    fn is_done(&self) -> Result<bool, Halt> {
        let is_working = !self.comparison.is_empty() || self.files.has_jobs();
        if !self.has_ended || is_working || self.files.awaits_commit() {
            return Ok(false);
        }
        let (files, directories) = (self.files.coming(), self.directories.open());
        if files > 0 || directories > 0 {
            breach!(
                "peer ended the tree, but {files} files and {directories} directories are unfinished"
            );
        }
        Ok(self.files.len() + self.directories.unfinished() + self.links.waiting() == 0)
    }

    fn on_special(&mut self, Special { name, large }: Special) -> Result<(), Halt> {
        match large {
            Some(large) if self.promised.as_ref().is_some_and(Promised::takes_pieces) => {
                self.out.large(name, large)
            }
            _ => self.out.special(name),
        }
    }

    /// Checks that the sender has announced all requested entries or reported a failure. The user
    /// would not notice an omission.
    fn check_promised(&self) -> Result<(), Halt> {
        match self.promised.as_ref().and_then(Promised::missing) {
            Some(missing) if self.out.report.failed == 0 => Err(Halt::protocol(format!(
                "peer ended the tree without \"{missing}\", which was requested"
            ))),
            _ => Ok(()),
        }
    }

    fn sync_all(&mut self) -> Result<(), Halt> {
        self.out.flush()?;
        self.out.report_progress()?;
        if self.context.request.rules.changes_nothing() {
            return Ok(());
        }
        self.directories
            .sync_all()
            .map_err(|error| FileError::new("sync", "the tree", error).into())
    }

    /// Stops an unfinished tree: waits for running jobs, and deletes partial files.
    fn abort(&mut self, inputs: &mpsc::Receiver<ReceiverInput>) {
        self.comparison.stop();
        self.files.stop();
        while self.comparison.hashing() > 0 || self.files.has_jobs() {
            let Ok(input) = inputs.recv() else { break };
            match input {
                ReceiverInput::Job(Completion::Hashed(id, digest)) => {
                    self.comparison.finish(id, digest);
                }
                ReceiverInput::Job(Completion::Wrote(_)) => self.files.on_stopped(false),
                ReceiverInput::Job(Completion::Committed(_)) => self.files.on_stopped(true),
                _ => {}
            }
        }
        self.files.discard();
    }

    fn close(self, result: Result<(), FileError>) {
        self.directories.close();
        self.out.finish(result);
    }
}

/// Maximum number of inputs processed before results are sent.
const MOST_INPUTS: usize = 64;

/// Time without input after which a pending group commit starts. The sender then probably waits for
/// results, since gaps in a stream are shorter (picked by eye).
const IDLE_COMMIT: Duration = Duration::from_millis(10);

/// Divisor of the entry memory: 1/4 of it may hold names of special files.
const SHARE_OF_SPECIALS: usize = 4;
