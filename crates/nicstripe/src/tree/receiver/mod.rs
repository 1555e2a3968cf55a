//! Receiving a tree: what the sender tells is compared with what is there, and what is wanted is written.
//!
//! One thread has all the state. It reads parcels, looks at what is at the place of each entry, makes directories and links, and leaves
//! contents to the I/O threads: small files are hashed, written and, many at a time, made durable there ([`batch`]); a file that is a
//! transfer of its own is opened as a [`Target`](crate::file::Target). Nothing has its name before its content is durable. The end is told
//! when all is.
//!
//! Nothing that a peer says leads out of the target: directories are opened beneath it by the kernel without following symbolic links
//! ([`place`]), and whatever is done to a name is done to that one component in an open directory.
//!
//! Memory is bounded: by [`MOST_PENDING`] and [`MOST_UNDECIDED`] entries, [`MOST_OPEN_DIRECTORIES`] open directories and [`MOST_WEIGHT`]
//! bytes of attributes, which a peer that keeps to the protocol does not exceed, and by what [`Receiving`] allows of parcels and of entries'
//! footprints. Only where surplus is deleted, a directory that is not done takes some 16 bytes for each name in it, and only where many files
//! fail, each takes as many.

mod batch;
mod directories;
mod files;
mod links;
mod nodes;
mod outbox;
mod part;
mod place;
mod promised;
mod surplus;
#[cfg(test)]
mod tests;
mod writing;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use nicstripe_proto::{
    Digest, FailCode, Name,
    name::escaped,
    tree::{
        Content, Entry, EntryId, MOST_PENDING, MOST_PENDING_WEIGHT, MOST_UNDECIDED, OwnerNames, ParcelReader, Record, TreeRules, Verdict,
    },
};

pub(crate) use self::promised::Promised;
use self::{
    batch::{Batch, Committed},
    directories::{Directory, Spot, Top},
    files::{Arriving, Candidate},
    links::Link,
    outbox::Outbox,
    place::Place,
    surplus::ToldNames,
    writing::{Writing, Wrote},
};
use super::{
    acl,
    allowance::Receiving,
    owners::Owners,
    port::{ReceiverInput, ReceiverPort, ReceiverRun},
};
use crate::file::{Attributes, FileError, IoPool, Root, umask};

/// What a tree's receiver is to do.
pub(crate) struct ReceiverRequest {
    /// The directory that bounds what a user's path may lead to.
    pub(crate) root: Arc<Root>,
    /// Where the tree goes: the root itself for `None`.
    pub(crate) target: Option<Name>,
    /// Whether the one top-level entry gets the target's own name, unless the target is a directory already.
    pub(crate) as_name: bool,
    /// How to treat what is there.
    pub(crate) rules: TreeRules,
    /// The sender's key.
    pub(crate) peer_key: [u8; 32],
    /// Whether the sender may only add.
    pub(crate) append_only: bool,
    /// Whether the sender may give set-user-ID and the like; see [`Attributes::privileged`](crate::file::Attributes).
    pub(crate) privileged: bool,
    /// Whether the owner is told of each entry.
    pub(crate) list: bool,
    /// Entries that the sender has to announce, where this end has asked for them.
    pub(crate) promised: Option<Promised>,
    /// What the filters of the rules leave out.
    pub(crate) excludes: Excludes,
    /// Memory that it may take.
    pub(crate) allowance: Receiving,
}

/// Says whether filters leave out a path beneath the source, which is a directory or not.
pub(crate) type Excludes = Box<dyn Fn(&Path, bool) -> bool + Send>;

impl ReceiverRequest {
    /// Gets it ready for a thread, which lets go of what it is to hold when it has ended.
    pub(crate) fn into_run(self, held: impl Send + 'static) -> ReceiverRun {
        ReceiverRun::new(self.allowance, move |inputs, pool, port| {
            run(self, inputs.receiver, inputs.sender, pool, port);
            drop(held);
        })
    }
}

/// Receives a tree, on a thread of its own, until its end is told to `port`.
///
/// `self_handle` is the other end of `inputs`: what the I/O threads have done comes by it.
fn run(
    request: ReceiverRequest,
    inputs: mpsc::Receiver<ReceiverInput>,
    self_handle: mpsc::Sender<ReceiverInput>,
    pool: IoPool,
    port: Box<dyn ReceiverPort>,
) {
    let mut receiver = Receiver::new(request, self_handle, pool, port);
    let result = match receiver.receive(&inputs) {
        Ok(()) => Ok(()),
        Err(halt) => {
            receiver.abort(&inputs);
            Err(halt.into_error())
        }
    };
    receiver.close(result);
}

/// Why nothing more is received.
#[derive(Debug)]
enum Halt {
    /// The transfer has ended without this.
    Stopped,
    /// It cannot go on.
    Failed(FileError),
}

impl Halt {
    /// The peer did what it must not.
    fn protocol(what: impl Into<String>) -> Self {
        Self::Failed(FileError::new("receive", "the tree", io::Error::other(what.into())).with_code(FailCode::Protocol))
    }

    fn into_error(self) -> FileError {
        match self {
            Self::Stopped => {
                FileError::new("receive", "the tree", io::Error::other("the transfer was stopped")).with_code(FailCode::Cancelled)
            }
            Self::Failed(error) => error,
        }
    }
}

/// What was done on the I/O threads.
enum Job {
    /// An existing file was read; `None` where it cannot be.
    Hashed(EntryId, Option<Digest>),
    /// Pieces were written, or not.
    Wrote(Vec<Wrote>),
    /// A batch got its names, or did not.
    Committed(Vec<Committed>),
}

struct Receiver {
    request: ReceiverRequest,
    /// File creation mask.
    umask: u32,
    owners: Owners,
    jobs: mpsc::Sender<ReceiverInput>,
    pool: IoPool,
    out: Outbox,
    /// Where top-level entries go, once there was one.
    top: Option<Top>,
    /// Number of the next entry.
    next: u64,
    /// Directories that are not done.
    directories: HashMap<EntryId, Directory>,
    /// How many of them have not ended.
    open_directories: usize,
    /// One place on each file system that directories are on.
    devices: BTreeMap<u64, Arc<Place>>,
    /// Names told in directories that are not done, where surplus is deleted.
    told: ToldNames,
    /// Files that are compared by their BLAKE3.
    undecided: HashMap<EntryId, Candidate>,
    /// Those whose reading has not begun.
    to_hash: VecDeque<EntryId>,
    hashing: usize,
    /// Set when nothing is received any more: what is being hashed is given up.
    is_stopped: Arc<AtomicBool>,
    /// Files that are wanted.
    files: HashMap<EntryId, Arriving>,
    /// How many of them come in pieces and are not all written.
    coming: usize,
    /// Sizes of files that failed while their content comes.
    dropped: HashMap<EntryId, u64>,
    /// Files that failed.
    failed: HashSet<EntryId>,
    /// Keys of names that are undecided or wanted: a second file of that name has to wait for another time.
    busy_names: HashSet<u64>,
    /// Hard links that wait for their file, by that.
    links: HashMap<EntryId, Vec<Link>>,
    waiting_links: usize,
    writing: Writing,
    batch: Batch,
    is_committing: bool,
    /// Parcels that were taken in, and not told to be.
    owed: usize,
    /// What the extended attributes that are kept weigh.
    weight: usize,
    /// The footprints of entries that wait.
    footprint: usize,
    /// Whether the last parcel was taken in.
    has_ended: bool,
    /// Whether a write found the disk full, since space was last found.
    is_full: bool,
}

impl Receiver {
    fn new(request: ReceiverRequest, jobs: mpsc::Sender<ReceiverInput>, pool: IoPool, port: Box<dyn ReceiverPort>) -> Self {
        let out = Outbox::new(port, request.list, request.allowance.entries / SHARE_OF_SPECIALS);
        Self {
            request,
            umask: umask(),
            owners: Owners::default(),
            jobs,
            pool,
            out,
            top: None,
            next: 0,
            directories: HashMap::new(),
            open_directories: 0,
            devices: BTreeMap::new(),
            told: ToldNames::default(),
            undecided: HashMap::new(),
            to_hash: VecDeque::new(),
            hashing: 0,
            is_stopped: Arc::default(),
            files: HashMap::new(),
            coming: 0,
            dropped: HashMap::new(),
            failed: HashSet::new(),
            busy_names: HashSet::new(),
            links: HashMap::new(),
            waiting_links: 0,
            writing: Writing::default(),
            batch: Batch::default(),
            is_committing: false,
            owed: 0,
            weight: 0,
            footprint: 0,
            has_ended: false,
            is_full: false,
        }
    }

    fn receive(&mut self, inputs: &mpsc::Receiver<ReceiverInput>) -> Result<(), Halt> {
        loop {
            let patience = self.patience();
            let input = match patience {
                Some(patience) => inputs.recv_timeout(patience),
                None => inputs.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
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

    /// How long an input is waited for before something else is due.
    fn patience(&self) -> Option<Duration> {
        if self.is_committing {
            return None;
        }
        let patience = self.batch.patience()?;
        Some(if self.is_idle() { patience.min(IDLE_COMMIT) } else { patience })
    }

    /// Whether nothing small is on its way but what waits for its name.
    fn is_idle(&self) -> bool {
        self.undecided.is_empty() && self.coming == 0
    }

    fn handle(&mut self, input: ReceiverInput) -> Result<(), Halt> {
        match input {
            ReceiverInput::Parcel(_) | ReceiverInput::End if self.has_ended => Err(Halt::protocol("peer sent a parcel after the last")),
            ReceiverInput::Parcel(parcel) => self.on_parcel(parcel),
            ReceiverInput::End => {
                self.has_ended = true;
                self.out.progress.complete = true;
                Ok(())
            }
            ReceiverInput::OpenAlone { id, offer, options, answer } => {
                self.open_alone(id, offer, options, answer);
                Ok(())
            }
            ReceiverInput::AloneEnded { id, result } => self.on_alone_ended(id, result),
            ReceiverInput::Job(job) => match job.downcast() {
                Ok(job) => self.on_job(*job),
                Err(_) => Ok(()),
            },
            ReceiverInput::Stop => Err(Halt::Stopped),
        }
    }

    fn on_job(&mut self, job: Job) -> Result<(), Halt> {
        match job {
            Job::Hashed(id, digest) => self.on_hashed(id, digest),
            Job::Wrote(pieces) => self.on_wrote(pieces),
            Job::Committed(results) => self.on_committed(results),
        }
    }

    /// Does what is due after inputs; `is_quiet` if there were none for as long as [`Receiver::patience`] said.
    fn turn(&mut self, is_quiet: bool) -> Result<(), Halt> {
        self.hash_more();
        self.write_more();
        let is_due = self.batch.patience().is_some_and(|patience| patience.is_zero() || is_quiet || (self.has_ended && self.is_idle()));
        if is_due && !self.is_committing {
            self.commit_batch();
        }
        self.out.flush()?;
        while self.owed > 0 && self.writing.parcels() < self.request.allowance.written {
            self.owed -= 1;
            self.out.consumed()?;
        }
        Ok(())
    }

    fn on_parcel(&mut self, parcel: crate::file::ChunkBuffer) -> Result<(), Halt> {
        let parcel = self.writing.begin(parcel);
        for record in ParcelReader::new(parcel.bytes()) {
            match record.map_err(|error| Halt::protocol(error.to_string()))? {
                Record::Entry(entry) => self.on_entry(*entry)?,
                Record::EndDirectory { id, complete } => {
                    if let Some(promised) = &mut self.request.promised {
                        promised.ended(id, &self.request.excludes);
                    }
                    self.on_end_directory(id, complete)?;
                }
                Record::Piece { id, offset, last, bytes } => {
                    let start = bytes.as_ptr() as usize - parcel.bytes().as_ptr() as usize;
                    self.on_piece(id, offset, last, &parcel, start..start + bytes.len())?;
                }
                Record::Abandoned { id, reason } => self.on_abandoned(id, &reason)?,
                Record::Trouble(trouble) => self.out.trouble(*trouble)?,
                Record::Special(special) => self.out.special(special.name)?,
            }
        }
        self.owed += 1;
        self.turn(false)
    }

    fn on_entry(&mut self, mut entry: Entry) -> Result<(), Halt> {
        if entry.id.0 != self.next {
            return Err(Halt::protocol(format!("peer sent entry {}, expected {}", entry.id.0, self.next)));
        }
        // Twice what an honest sender lets be undecided: what is decided here may not have reached it.
        let pending = self.files.len() + self.waiting_links + self.directories.len();
        if pending >= MOST_PENDING + 2 * MOST_UNDECIDED || self.out.untold() >= 2 * MOST_UNDECIDED {
            return Err(Halt::protocol("peer sent more entries than may wait"));
        }
        self.check_memory()?;
        self.next += 1;
        if let Content::File { size, .. } = entry.content {
            self.out.progress.files += 1;
            self.out.progress.bytes = self.out.progress.bytes.saturating_add(size);
        }
        self.own_by_name(&mut entry);
        if self.request.promised.as_mut().is_some_and(|promised| !promised.announced(&entry, &self.request.excludes)) {
            return Err(Halt::protocol("peer sent a top-level entry that was not asked for"));
        }
        let spot = self.locate(&entry)?;
        self.out.expect_verdict();
        if !self.request.privileged
            && matches!(spot, Spot::Leaf(_) | Spot::Whole)
            && Attributes::takes_privilege(&entry, &self.request.rules)
        {
            self.out.stripped();
        }
        if let Some(parent) = entry.parent.and_then(|parent| self.directories.get_mut(&parent)) {
            parent.pending += 1;
        }
        match spot {
            Spot::Blocked => self.pass_over(entry),
            Spot::Refused(shown, error) => self.refuse(entry, shown, error),
            Spot::Whole => self.on_whole(entry),
            Spot::Leaf(leaf) if entry.content == Content::Directory => self.on_directory(entry, leaf),
            Spot::Leaf(leaf) => self.on_leaf(entry, leaf),
        }
    }

    /// Fails if more is kept of entries than may be, which a sender that goes by what it was told does not bring about.
    fn check_memory(&self) -> Result<(), Halt> {
        if self.footprint + self.out.kept() <= self.request.allowance.entries {
            return Ok(());
        }
        let most = self.request.allowance.entries >> 20;
        Err(Halt::protocol(format!("peer sent more entries than may wait: they take more than {most} MiB of memory")))
    }

    /// Makes the numbers of the owner and in ACLs this machine's, and drops the names: they do not weigh while the entry waits.
    fn own_by_name(&mut self, entry: &mut Entry) {
        let rules = &self.request.rules;
        let Some(OwnerNames { user, group, acl }) = entry.owner_names.take().filter(|_| !rules.numeric_ids) else { return };
        if rules.owners {
            entry.owner = entry.owner.map(|owner| self.owners.local(owner, user, group));
        }
        if let (Some(xattrs), Some(names), true) = (&mut entry.xattrs, acl, rules.xattrs) {
            acl::make_local(xattrs, &names, &mut self.owners);
        }
    }

    fn on_leaf(&mut self, entry: Entry, leaf: Leaf) -> Result<(), Halt> {
        self.note_told(&entry, Some(&leaf));
        if self.busy_names.contains(&leaf.key()) {
            let error = leaf.error("receive", io::Error::other("a file of this name is being received")).with_code(FailCode::Busy);
            return self.refuse(entry, leaf.shown(), error);
        }
        match entry.content.clone() {
            Content::Symlink { target } => self.on_symlink(entry, leaf, &target),
            Content::Node(node) => self.on_node(entry, leaf, node),
            Content::HardLink { to, path } => self.on_hard_link(entry, leaf, to, path),
            _ => self.on_file(entry, leaf),
        }
    }

    /// An entry cannot be received.
    fn refuse(&mut self, entry: Entry, shown: Option<Name>, error: FileError) -> Result<(), Halt> {
        self.out.decide(entry.id, Verdict::Refused);
        if entry.content == Content::Directory {
            self.block(&entry, Verdict::Refused);
        }
        self.note_skipped(&entry);
        self.note_failed(&entry);
        self.out.fail(Some(entry.id), shown, &error)?;
        if entry.content == Content::Directory { Ok(()) } else { self.settle(entry.parent, true) }
    }

    /// An entry is in a directory that cannot be received, which was told.
    fn pass_over(&mut self, entry: Entry) -> Result<(), Halt> {
        self.out.decide(entry.id, Verdict::Blocked);
        self.note_skipped(&entry);
        self.note_failed(&entry);
        if entry.content == Content::Directory {
            self.block(&entry, Verdict::Blocked);
            return Ok(());
        }
        self.settle(entry.parent, true)
    }

    fn note_failed(&mut self, entry: &Entry) {
        if matches!(entry.content, Content::File { .. } | Content::Node(_)) {
            self.failed.insert(entry.id);
        }
    }

    /// A file need not be sent.
    fn note_skipped(&mut self, entry: &Entry) {
        if let Content::File { size, .. } = entry.content {
            self.out.progress.files_done += 1;
            self.out.progress.skipped_bytes = self.out.progress.skipped_bytes.saturating_add(size);
        }
    }

    /// Lets the I/O threads do something, and tells this one of it.
    fn run(&self, job: impl FnOnce() -> Job + Send + 'static) {
        let jobs = self.jobs.clone();
        // Nobody listens any more when the receiver is gone: then what was done does not matter either.
        self.pool.run(move || drop(jobs.send(ReceiverInput::Job(Box::new(job())))));
    }

    /// Whether everything has arrived and has its name.
    fn is_done(&self) -> Result<bool, Halt> {
        let is_working = self.hashing > 0 || !self.undecided.is_empty() || self.writing.is_busy() || self.is_committing;
        if !self.has_ended || is_working || !self.batch.is_empty() {
            return Ok(false);
        }
        if self.coming > 0 || self.open_directories > 0 {
            let (files, directories) = (self.coming, self.open_directories);
            let what = format!("peer ended the tree, but {files} files and {directories} directories have no end");
            return Err(Halt::protocol(what));
        }
        Ok(self.files.is_empty() && self.directories.is_empty() && self.waiting_links == 0)
    }

    /// Fails if the sender left out something that was asked for and told of no failure: the user would learn nothing of it.
    fn check_promised(&self) -> Result<(), Halt> {
        match self.request.promised.as_ref().and_then(Promised::missing) {
            Some(missing) if self.out.report.failed == 0 => {
                Err(Halt::protocol(format!("peer ended the tree without \"{missing}\", which was asked for")))
            }
            _ => Ok(()),
        }
    }

    /// Makes names durable, and with them all that was there and needed no copy: whoever wrote that, an attempt that was killed or
    /// another program, may not have synced it, and Committed says that it is on disk.
    fn sync_all(&mut self) -> Result<(), Halt> {
        self.out.flush()?;
        self.out.tell_progress()?;
        if self.request.rules.dry_run {
            return Ok(());
        }
        let synced = self.devices.values().try_for_each(|place| batch::sync_file_system(&*place.open_to_sync()?));
        synced.map_err(|error| Halt::Failed(FileError::new("sync", "the tree", error)))
    }

    /// Waits for the I/O threads, and removes what has no name.
    fn abort(&mut self, inputs: &mpsc::Receiver<ReceiverInput>) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.writing.forget_waiting();
        while self.hashing > 0 || self.writing.is_busy() || self.is_committing {
            let Ok(input) = inputs.recv() else { break };
            let ReceiverInput::Job(job) = input else { continue };
            match job.downcast().map(|job| *job) {
                Ok(Job::Hashed(..)) => self.hashing -= 1,
                Ok(Job::Wrote(_)) => self.writing.finished(),
                Ok(Job::Committed(_)) => self.is_committing = false,
                Err(_) => {}
            }
        }
        self.files.values().for_each(Arriving::discard);
        self.batch.take().into_iter().for_each(|(_, part)| part.discard());
    }

    fn close(self, result: Result<(), FileError>) {
        if let Some(top) = &self.top {
            top.ground.close_all();
        }
        self.out.finish(result);
    }
}

/// Where an entry that is not a whole target goes.
#[derive(Debug, Clone)]
struct Leaf {
    /// The directory.
    place: Arc<Place>,
    /// Its name there.
    name: OsString,
    /// What the sender calls it; `None` for a directory that has its name from the target.
    told: Option<Vec<u8>>,
    /// Whether it is what the sender was asked for, not something in it.
    is_source: bool,
}

impl Leaf {
    /// Its place beneath the target; `None` for the target itself.
    fn shown(&self) -> Option<Name> {
        Name::new(self.place.told().into_iter().chain(self.told.as_deref())).ok()
    }

    /// Its place beneath the target, for people.
    fn text(&self) -> String {
        self.shown().map_or_else(|| escaped(self.name.as_encoded_bytes()), |name| name.to_string())
    }

    /// A failure of it.
    fn error(&self, operation: &'static str, error: io::Error) -> FileError {
        FileError::new(operation, self.text(), error)
    }

    fn key(&self) -> u64 {
        self.place.key_of(&self.name)
    }
}

/// Inputs that are taken in before results of them are told.
const MOST_INPUTS: usize = 64;

/// Pause without inputs after which a batch is not kept waiting: the sender waits for results, and a gap in a stream is shorter (picked by
/// eye).
const IDLE_COMMIT: Duration = Duration::from_millis(10);

/// Part of the memory for entries that names of what is not copied may have.
const SHARE_OF_SPECIALS: usize = 4;

/// Most directories that were told and have not ended. A walk in depth has as many as a name has components.
const MOST_OPEN_DIRECTORIES: usize = 1024;

/// Most that extended attributes of entries that are not done may weigh: four times what an honest sender lets be, as a directory whose end
/// was not told counts here.
const MOST_WEIGHT: usize = 4 * MOST_PENDING_WEIGHT;
