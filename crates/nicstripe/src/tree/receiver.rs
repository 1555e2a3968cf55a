//! Receives a tree: compares announced entries with existing files, and writes the wanted ones.
//!
//! One thread owns all state. It reads batches, examines the existing file of each entry, and
//! creates directories and links. The I/O threads hash and write contents, and commit small files
//! in groups ([`commit_group`]). A standalone file is opened as a [`Target`](crate::file::Target).
//! No file gets its final name before its content is durable, and the receiver reports the end only
//! when everything is durable.
//!
//! A peer cannot reach anything outside the target. The kernel opens directories beneath it without
//! following symbolic links ([`place`]). Every operation on a name takes a single component in an
//! open directory.
//!
//! Memory is bounded by [`MOST_PENDING`] and [`MOST_UNDECIDED`] entries, [`MOST_OPEN_DIRECTORIES`]
//! open directories and [`MOST_WEIGHT`] bytes of attributes; a correct peer stays below these.
//! [`Receiving`] limits batches and the footprints of entries. Three cases add about 16 bytes each:
//! every name in an unfinished directory if surplus is deleted, every failed file, and every file
//! that has further names.

mod commit_group;
mod directories;
mod dirs;
mod files;
mod links;
mod outbox;
mod part;
mod placed;
mod placing;
mod promised;
mod spelling;
mod surplus;
#[cfg(test)]
mod tests;
mod writing;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ffi::OsString,
    io,
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
        BatchReader, Content, Entry, EntryId, MOST_PENDING, MOST_PENDING_WEIGHT, MOST_UNDECIDED,
        OwnerNames, Record, TreeRules, Verdict,
    },
};

pub(crate) use self::promised::Promised;
use self::{
    commit_group::{CommitGroup, Committed},
    directories::{Directory, Spot, Top},
    dirs::TreeDir,
    files::{Candidate, IncomingFile},
    links::Link,
    outbox::Outbox,
    placed::PlacedInodes,
    spelling::Spellings,
    surplus::AnnouncedNames,
    writing::{Writing, Wrote},
};
use super::{
    acl,
    allowance::Receiving,
    channel::{ReceiverChannel, ReceiverInput, ReceiverRun},
    filter::Filters,
    halt::Halt,
    owners::Owners,
};
use crate::file::{Attributes, FileError, Inode, IoPool, Root, umask};

/// Request to receive a tree: its target and options.
pub(crate) struct ReceiverRequest {
    /// Directory to which the peer's paths are confined.
    pub(crate) root: Arc<Root>,
    /// Path of the target beneath `root`; `None` is the root itself.
    pub(crate) target: Option<Name>,
    /// True if the single top-level entry is stored under the target's name, unless the target is
    /// an existing directory.
    pub(crate) as_name: bool,
    pub(crate) rules: TreeRules,
    pub(crate) peer_key: [u8; 32],
    pub(crate) append_only: bool,
    /// True if the sender may set set-user-ID and similar attributes; see
    /// [`Attributes::privileged`](crate::file::Attributes).
    pub(crate) privileged: bool,
    /// True if the local user gets an event for each entry.
    pub(crate) list: bool,
    /// Entries that the sender must announce; `None` unless the local side requested them.
    pub(crate) promised: Option<Promised>,
    pub(crate) filters: Filters,
    pub(crate) allowance: Receiving,
}

impl ReceiverRequest {
    /// Prepares the receiver for its thread, which drops `held` when the tree has ended.
    pub(crate) fn into_run(self, held: impl Send + 'static) -> ReceiverRun {
        ReceiverRun::new(
            self.allowance,
            "nicstripe-receive",
            move |inputs, handle, pool, channel| {
                run(self, inputs, handle, pool, channel);
                drop(held);
            },
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

/// Result of a job on the I/O threads.
pub(crate) enum Completion {
    /// Digest of an existing file; `None` if the file cannot be read.
    Hashed(EntryId, Option<Digest>),
    /// Inode of a standalone file that was opened for writing.
    Opened(EntryId, Inode),
    /// Results of writing pieces of files.
    Wrote(Vec<Wrote>),
    /// Results of a group commit.
    Committed(Vec<Committed>),
}

struct Receiver {
    request: ReceiverRequest,
    umask: u32,
    owners: Owners,
    jobs: mpsc::Sender<ReceiverInput>,
    pool: IoPool,
    out: Outbox,
    /// Target of the top-level entries, determined by the first one.
    top: Option<Top>,
    next: u64,
    directories: HashMap<EntryId, Directory>,
    /// Number of announced directories that the sender has not ended.
    open_directories: usize,
    /// One directory on each file system in the tree, by device number.
    devices: BTreeMap<u64, Arc<TreeDir>>,
    /// Announced names in unfinished directories; only used if surplus is deleted.
    announced: AnnouncedNames,
    /// Files that wait for their comparison by BLAKE3.
    undecided: HashMap<EntryId, Candidate>,
    /// Files to compare by BLAKE3 whose hashing has not begun.
    to_hash: VecDeque<EntryId>,
    hashing: usize,
    /// True once the tree has ended early, which cancels running hash jobs.
    is_stopped: Arc<AtomicBool>,
    files: HashMap<EntryId, IncomingFile>,
    /// Number of packed files that are not completely written.
    coming: usize,
    /// Sizes in bytes of failed files whose pieces still arrive.
    dropped: HashMap<EntryId, u64>,
    failed: HashSet<EntryId>,
    /// Keys of names whose file is undecided or being received. A second file of such a name is
    /// rejected as busy.
    busy_names: HashSet<u64>,
    placed_inodes: PlacedInodes,
    spellings: Spellings,
    /// Units in which the target's file systems keep times, in nanoseconds, by device number.
    time_units: HashMap<u64, u64>,
    /// Hard links that wait until their file is in place, by the file's ID.
    links: HashMap<EntryId, Vec<Link>>,
    waiting_links: usize,
    writing: Writing,
    commit_group: CommitGroup,
    is_committing: bool,
    /// Number of batches that were processed but not yet reported as consumed.
    owed: usize,
    /// Size of buffered extended attributes in bytes.
    weight: usize,
    /// Memory footprint of waiting entries in bytes.
    footprint: usize,
    /// True once the receiver has processed the sender's last batch.
    has_ended: bool,
    /// True if a write failed for lack of space and no free space was seen since.
    is_full: bool,
}

impl Receiver {
    fn new(
        request: ReceiverRequest,
        jobs: mpsc::Sender<ReceiverInput>,
        pool: IoPool,
        channel: Box<dyn ReceiverChannel>,
    ) -> Self {
        let out = Outbox::new(
            channel,
            request.list,
            request.allowance.entries / SHARE_OF_SPECIALS,
        );
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
            announced: AnnouncedNames::default(),
            undecided: HashMap::new(),
            to_hash: VecDeque::new(),
            hashing: 0,
            is_stopped: Arc::default(),
            files: HashMap::new(),
            coming: 0,
            dropped: HashMap::new(),
            failed: HashSet::new(),
            busy_names: HashSet::new(),
            placed_inodes: PlacedInodes::default(),
            spellings: Spellings::default(),
            time_units: HashMap::new(),
            links: HashMap::new(),
            waiting_links: 0,
            writing: Writing::default(),
            commit_group: CommitGroup::default(),
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
                None => inputs
                    .recv()
                    .map_err(|_| mpsc::RecvTimeoutError::Disconnected),
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

    /// Returns the maximum wait for input before a group commit is due; `None` waits without limit.
    fn patience(&self) -> Option<Duration> {
        if self.is_committing {
            return None;
        }
        let patience = self.commit_group.patience()?;
        Some(if self.is_idle() {
            patience.min(IDLE_COMMIT)
        } else {
            patience
        })
    }

    /// Returns true if no file is being compared or received. Small files may still wait for a
    /// group commit.
    fn is_idle(&self) -> bool {
        self.undecided.is_empty() && self.coming == 0
    }

    fn handle(&mut self, input: ReceiverInput) -> Result<(), Halt> {
        match input {
            ReceiverInput::Batch(_) | ReceiverInput::End if self.has_ended => {
                Err(Halt::protocol("peer sent a batch after the last"))
            }
            ReceiverInput::Batch(batch) => self.on_batch(batch),
            ReceiverInput::End => {
                self.has_ended = true;
                self.out.progress.complete = true;
                Ok(())
            }
            ReceiverInput::OpenStandalone {
                id,
                offer,
                options,
                answer,
            } => {
                self.open_standalone(id, offer, options, answer);
                Ok(())
            }
            ReceiverInput::StandaloneEnded { id, result } => self.on_standalone_ended(id, result),
            ReceiverInput::Job(job) => self.on_job(job),
            ReceiverInput::Stop => Err(Halt::Stopped),
        }
    }

    fn on_job(&mut self, job: Completion) -> Result<(), Halt> {
        match job {
            Completion::Hashed(id, digest) => self.on_hashed(id, digest),
            Completion::Opened(id, inode) => {
                self.on_opened(id, inode);
                Ok(())
            }
            Completion::Wrote(pieces) => self.on_wrote(pieces),
            Completion::Committed(results) => self.on_committed(results),
        }
    }

    /// Starts jobs and sends results that are due. `is_quiet` is true if no input arrived within
    /// [`Receiver::patience`].
    fn turn(&mut self, is_quiet: bool) -> Result<(), Halt> {
        self.hash_more();
        self.write_more();
        let is_due = self.commit_group.patience().is_some_and(|patience| {
            patience.is_zero() || is_quiet || (self.has_ended && self.is_idle())
        });
        if is_due && !self.is_committing {
            self.commit_batch();
        }
        self.out.flush()?;
        while self.owed > 0 && self.writing.batches() < self.request.allowance.written {
            self.owed -= 1;
            self.out.consumed()?;
        }
        Ok(())
    }

    fn on_batch(&mut self, batch: crate::file::ChunkBuffer) -> Result<(), Halt> {
        let batch = self.writing.begin(batch);
        for record in BatchReader::new(batch.bytes()) {
            match record.map_err(|error| Halt::protocol(error.to_string()))? {
                Record::Entry(entry) => self.on_entry(*entry)?,
                Record::EndDirectory { id, complete } => {
                    if let Some(promised) = &mut self.request.promised {
                        promised.ended(id, &self.request.filters);
                    }
                    self.on_end_directory(id, complete)?;
                }
                Record::Piece {
                    id,
                    offset,
                    last,
                    bytes,
                } => {
                    let start = bytes.as_ptr() as usize - batch.bytes().as_ptr() as usize;
                    self.on_piece(id, offset, last, &batch, start..start + bytes.len())?;
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
            let what = format!("peer sent entry {}, expected {}", entry.id, self.next);
            return Err(Halt::protocol(what));
        }
        // Twice the limit of a correct sender, as verdicts may still be in flight to it.
        let pending = self.files.len() + self.waiting_links + self.directories.len();
        if pending >= MOST_PENDING + 2 * MOST_UNDECIDED
            || self.out.undecided() >= 2 * MOST_UNDECIDED
        {
            return Err(Halt::protocol("peer exceeded the limit of pending entries"));
        }
        self.check_memory()?;
        self.next += 1;
        if let Content::File { size, .. } = entry.content {
            self.out.progress.files += 1;
            self.out.progress.bytes = self.out.progress.bytes.saturating_add(size);
        }
        self.own_by_name(&mut entry);
        if self
            .request
            .promised
            .as_mut()
            .is_some_and(|promised| !promised.announced(&entry, &self.request.filters))
        {
            return Err(Halt::protocol("peer sent an entry that was not requested"));
        }
        let spot = self.locate(&entry)?;
        self.out.expect_verdict();
        if !self.request.privileged
            && matches!(spot, Spot::Leaf(_) | Spot::Whole)
            && Attributes::takes_privilege(&entry, &self.request.rules)
        {
            self.out.stripped(1);
        }
        if let Some(parent) = entry
            .parent
            .and_then(|parent| self.directories.get_mut(&parent))
        {
            parent.pending += 1;
        }
        match spot {
            Spot::Blocked => self.pass_over(entry, Verdict::Blocked),
            Spot::Refused(shown, error) => self.refuse(entry, shown, error),
            Spot::Whole => self.on_whole(entry),
            Spot::Leaf(leaf) if entry.content == Content::Directory => {
                self.on_directory(entry, leaf)
            }
            Spot::Leaf(leaf) => self.on_leaf(entry, leaf),
        }
    }

    /// Checks that the entries stay within their memory limit. A sender that honours the announced
    /// limit does.
    fn check_memory(&self) -> Result<(), Halt> {
        if self.footprint + self.out.footprint() <= self.request.allowance.entries {
            return Ok(());
        }
        let most = self.request.allowance.entries >> 20;
        Err(Halt::protocol(format!(
            "peer exceeded the limit of pending entries: they exceed {most} MiB of memory"
        )))
    }

    /// Replaces the sender's user and group IDs, also those in ACLs, by local ones. Drops the
    /// names, so that they take no memory while the entry waits.
    fn own_by_name(&mut self, entry: &mut Entry) {
        let rules = &self.request.rules;
        let Some(OwnerNames { user, group, acl }) =
            entry.owner_names.take().filter(|_| !rules.numeric_ids)
        else {
            return;
        };
        if rules.owners {
            entry.owner = entry
                .owner
                .map(|owner| self.owners.local(owner, user, group));
        }
        if let (Some(xattrs), Some(names), true) = (&mut entry.xattrs, acl, rules.xattrs) {
            acl::make_local(xattrs, &names, &mut self.owners);
        }
    }

    fn on_leaf(&mut self, entry: Entry, leaf: Leaf) -> Result<(), Halt> {
        self.note_announced(&entry, Some(&leaf));
        if self.busy_names.contains(&leaf.key()) {
            let error = leaf
                .error(
                    "receive",
                    io::Error::other("a file of this name is being received"),
                )
                .with_code(FailCode::Busy);
            return self.refuse(entry, leaf.shown(), error);
        }
        match entry.content.clone() {
            Content::Symlink { target } => self.on_symlink(entry, leaf, &target),
            Content::Node(node) => self.on_node(entry, leaf, node),
            Content::HardLink { to, path } => self.on_hard_link(entry, leaf, to, path),
            _ => self.on_file(entry, leaf),
        }
    }

    fn refuse(&mut self, entry: Entry, shown: Option<Name>, error: FileError) -> Result<(), Halt> {
        self.out.fail(Some(entry.id), shown, &error)?;
        self.pass_over(entry, Verdict::Refused)
    }

    /// Skips an entry that cannot be received, and all entries of such a directory. The failure has
    /// already been reported.
    fn pass_over(&mut self, entry: Entry, verdict: Verdict) -> Result<(), Halt> {
        self.out.decide(entry.id, verdict);
        self.note_skipped(&entry);
        self.note_failed(&entry);
        if entry.content == Content::Directory {
            self.insert(&entry, None, verdict, Attributes::default(), true);
            return Ok(());
        }
        self.settle(entry.parent, true)
    }

    fn note_failed(&mut self, entry: &Entry) {
        if matches!(entry.content, Content::File { .. } | Content::Node(_)) {
            self.failed.insert(entry.id);
        }
    }

    /// Remembers the inode of an entry that is in place, if hard links to the entry may follow.
    fn note_inode(&mut self, entry: &Entry, inode: Inode) {
        if entry.linked && self.request.rules.hard_links {
            self.placed_inodes.insert(entry.id, inode);
        }
    }

    /// Returns the creation mask in the directory of an entry.
    fn mask_of(&self, leaf: &Leaf) -> u32 {
        leaf.parent.creation_mask(self.umask)
    }

    /// Counts a file that need not be sent in the progress.
    fn note_skipped(&mut self, entry: &Entry) {
        if let Content::File { size, .. } = entry.content {
            self.out.progress.files_done += 1;
            self.out.progress.skipped_bytes = self.out.progress.skipped_bytes.saturating_add(size);
        }
    }

    /// Runs a job on the I/O threads. Its result arrives as an input.
    fn run(&self, job: impl FnOnce() -> Completion + Send + 'static) {
        let jobs = self.jobs.clone();
        // Sending fails once the receiver is gone; the result is then not needed.
        self.pool
            .run(move || drop(jobs.send(ReceiverInput::Job(job()))));
    }

    fn is_done(&self) -> Result<bool, Halt> {
        let is_working = self.hashing > 0
            || !self.undecided.is_empty()
            || self.writing.is_busy()
            || self.is_committing;
        if !self.has_ended || is_working || !self.commit_group.is_empty() {
            return Ok(false);
        }
        if self.coming > 0 || self.open_directories > 0 {
            let (files, directories) = (self.coming, self.open_directories);
            let what = format!(
                "peer ended the tree, but {files} files and {directories} directories are unfinished"
            );
            return Err(Halt::protocol(what));
        }
        Ok(self.files.is_empty() && self.directories.is_empty() && self.waiting_links == 0)
    }

    /// Checks that the sender has announced all requested entries or reported a failure. The user
    /// would not notice an omission.
    fn check_promised(&self) -> Result<(), Halt> {
        match self.request.promised.as_ref().and_then(Promised::missing) {
            Some(missing) if self.out.report.failed == 0 => Err(Halt::protocol(format!(
                "peer ended the tree without \"{missing}\", which was requested"
            ))),
            _ => Ok(()),
        }
    }

    /// Syncs all file systems of the tree.
    ///
    /// This includes unchanged files: a killed attempt or another program may have written them
    /// without a sync, and `Committed` promises that they are on disk.
    fn sync_all(&mut self) -> Result<(), Halt> {
        self.out.flush()?;
        self.out.report_progress()?;
        if self.request.rules.dry_run {
            return Ok(());
        }
        let synced = self
            .devices
            .values()
            .try_for_each(|dir| commit_group::sync_file_system(&*dir.open_to_sync()?));
        synced.map_err(|error| FileError::new("sync", "the tree", error).into())
    }

    /// Stops an unfinished tree: waits for running jobs, and deletes partial files.
    fn abort(&mut self, inputs: &mpsc::Receiver<ReceiverInput>) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.writing.forget_waiting();
        while self.hashing > 0 || self.writing.is_busy() || self.is_committing {
            let Ok(input) = inputs.recv() else { break };
            let ReceiverInput::Job(job) = input else {
                continue;
            };
            match job {
                Completion::Hashed(..) => self.hashing -= 1,
                Completion::Wrote(_) => self.writing.finished(),
                Completion::Committed(_) => self.is_committing = false,
                Completion::Opened(..) => {}
            }
        }
        self.files.values().for_each(IncomingFile::discard);
        self.commit_group
            .take()
            .into_iter()
            .for_each(|(_, part)| part.discard());
    }

    fn close(self, result: Result<(), FileError>) {
        if let Some(top) = &self.top {
            top.ground.close_all();
        }
        self.out.finish(result);
    }
}

/// Local directory and name of an entry other than the root directory.
#[derive(Debug, Clone)]
struct Leaf {
    parent: Arc<TreeDir>,
    name: OsString,
    /// Name of the entry at the sender; `None` for a directory whose name the target determines.
    announced: Option<Vec<u8>>,
    /// True if the entry is a source itself, false if it lies in one.
    is_source: bool,
}

impl Leaf {
    /// Returns the path of the entry relative to the target; `None` for the target itself.
    fn shown(&self) -> Option<Name> {
        Name::new(
            self.parent
                .announced()
                .into_iter()
                .chain(self.announced.as_deref()),
        )
        .ok()
    }

    /// Returns the path of the entry relative to the target, for display.
    fn text(&self) -> String {
        self.shown().map_or_else(
            || escaped(self.name.as_encoded_bytes()),
            |name| name.to_string(),
        )
    }

    fn error(&self, operation: &'static str, error: io::Error) -> FileError {
        FileError::new(operation, self.text(), error)
    }

    fn key(&self) -> u64 {
        self.parent.key_of(&self.name)
    }
}

/// Maximum number of inputs processed before results are sent.
const MOST_INPUTS: usize = 64;

/// Time without input after which a pending group commit starts. The sender then probably waits for
/// results, since gaps in a stream are shorter (picked by eye).
const IDLE_COMMIT: Duration = Duration::from_millis(10);

/// Divisor of the entry memory: 1/4 of it may hold names of special files.
const SHARE_OF_SPECIALS: usize = 4;

/// Maximum number of directories that the sender has announced and not ended. A depth-first walk
/// has at most one per component of a name.
const MOST_OPEN_DIRECTORIES: usize = 1024;

/// Limit on the extended attributes of unfinished entries in bytes. Four times the limit of a
/// correct sender, because a directory counts at the receiver before its end is announced.
const MOST_WEIGHT: usize = 4 * MOST_PENDING_WEIGHT;
