//! Regular files at the receiver: comparison, writing and commit.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs::File,
    io,
    ops::{ControlFlow, Range},
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::Arc,
};

use nicstripe_proto::{
    Digest, FailCode, Offer, Subtree,
    message::PutOptions,
    tree::{
        Content, ENTRY_FOOTPRINT, Entry, EntryId, Existing, PACKED_MOST, Reason, Verdict, decide,
    },
};
use parking_lot::Mutex;
use rustix::fs::{FileType, OFlags, Stat, fstat, fstatvfs, readlinkat};

use super::{
    Completion, Halt, Leaf, MOST_WEIGHT, Receiver, ReceiverInput,
    commit_group::{self, Committed},
    outbox::announced,
    part::Part,
    placing::{only_adds, only_files},
    writing::{self, Batch, Piece, Wrote},
};
use crate::{
    file::{
        Attributes, FileError, Hashing, Inode, MOST_UNIT, Target, TargetRequest, hidden_name,
        inode_of, mtime_of, nanoseconds_between, open_entry, remove_earlier, stat_entry,
        time_unit_of,
    },
    tree::{channel::Answer, metadata::node_of, options::EntryOutcome},
};

/// Announced file that waits for its comparison with the existing file.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    pub(super) leaf: Leaf,
    existing: Option<(Existing, Stat)>,
}

#[derive(Debug)]
pub(super) struct IncomingFile {
    leaf: Leaf,
    parent: Option<EntryId>,
    size: u64,
    verdict: Verdict,
    way: Delivery,
    /// True if hard links to the file may follow.
    linked: bool,
    weight: usize,
    footprint: usize,
    /// True while pieces of the file are expected or not yet written.
    is_coming: bool,
}

#[derive(Debug)]
enum Delivery {
    Packed(PackedFile),
    Standalone {
        attributes: Attributes,
        /// Inode that receives the content; `None` until it is open.
        inode: Option<Inode>,
    },
}

/// File whose content arrives in batches.
#[derive(Debug)]
struct PackedFile {
    part: Arc<Part>,
    offset: u64,
    /// True once the last piece of the file has arrived.
    is_whole: bool,
    /// True while a piece of the file is being written or is queued for writing.
    is_busy: bool,
    /// Pieces that wait until the current one is written.
    queue: VecDeque<Piece>,
    /// True if the file is discarded after the current write.
    is_abandoned: bool,
}

impl IncomingFile {
    pub(super) fn discard(&self) {
        if let Delivery::Packed(packed) = &self.way {
            packed.part.discard();
        }
    }
}

impl Receiver {
    pub(super) fn on_file(&mut self, entry: Entry, leaf: Leaf) -> Result<(), Halt> {
        let Content::File {
            size,
            alone,
            digest,
        } = &entry.content
        else {
            return Ok(());
        };
        if !alone && *size > PACKED_MOST {
            return Err(Halt::protocol(format!(
                "peer packed a file of {size} bytes, limit is {PACKED_MOST}"
            )));
        }
        let (size, has_digest) = (*size, digest.is_some());
        let Some(candidate) = self.candidate(entry, leaf)? else {
            return Ok(());
        };
        let Candidate {
            entry,
            leaf,
            existing,
        } = &candidate;
        let is_alike =
            matches!(existing, Some((Existing::File { size: found, .. }, _)) if *found == size);
        if self.request.rules.checksum && has_digest && is_alike {
            self.keep_entry(entry.weight(), entry.footprint())?;
            self.busy_names.insert(leaf.key());
            self.to_hash.push_back(entry.id);
            self.undecided.insert(entry.id, candidate);
            return Ok(());
        }
        self.decide_file(candidate)
    }

    /// Looks for the existing file of an entry. Rejects the entry and returns `None` if that fails.
    pub(super) fn candidate(
        &mut self,
        entry: Entry,
        leaf: Leaf,
    ) -> Result<Option<Candidate>, Halt> {
        match self.look(&leaf) {
            Ok(mut existing) => {
                if let Some((existing, stat)) = &mut existing {
                    self.take_time(&entry, &leaf, existing, stat);
                }
                Ok(Some(Candidate {
                    entry,
                    leaf,
                    existing,
                }))
            }
            Err(error) => self
                .refuse(entry, leaf.shown(), leaf.error("look for", error))
                .map(|()| None),
        }
    }

    /// Gives an existing file the time of the entry if its file system could not keep that time more
    /// exactly. A dry run, which creates no file to find that out, compares the times as they are.
    fn take_time(&mut self, entry: &Entry, leaf: &Leaf, existing: &mut Existing, stat: &Stat) {
        let (Existing::File { size, mtime, .. }, Content::File { size: sent, .. }) =
            (existing, &entry.content)
        else {
            return;
        };
        let apart = nanoseconds_between(entry.mtime, *mtime);
        if size != sent || apart == 0 || apart >= MOST_UNIT || self.request.rules.dry_run {
            return;
        }
        let unit = self.time_units.entry(stat.st_dev).or_insert_with(|| {
            let dir = leaf.parent.open();
            dir.and_then(|dir| time_unit_of(&dir)).unwrap_or(1)
        });
        if apart < *unit {
            *mtime = entry.mtime;
        }
    }

    /// Starts jobs that hash existing files for comparison, up to [`MOST_HASHING`].
    pub(super) fn hash_more(&mut self) {
        while self.hashing < MOST_HASHING
            && let Some(id) = self.to_hash.pop_front()
        {
            let Some(Candidate {
                leaf,
                existing: Some((_, stat)),
                ..
            }) = self.undecided.get(&id)
            else {
                continue;
            };
            let size = stat.st_size as u64;
            let mut comparing = Comparing {
                leaf: leaf.clone(),
                size,
                file: None,
                hashing: Hashing::of(size),
            };
            self.hashing += 1;
            let jobs = self.jobs.clone();
            self.pool.run_in_turns(
                self.is_stopped.clone(),
                move || comparing.turn(),
                move |result| {
                    let hashed = Completion::Hashed(id, result.and_then(Result::ok));
                    // Fails once the receiver is gone.
                    let _ = jobs.send(ReceiverInput::Job(hashed));
                },
            );
        }
    }

    pub(super) fn on_hashed(&mut self, id: EntryId, digest: Option<Digest>) -> Result<(), Halt> {
        self.hashing -= 1;
        let Some(mut candidate) = self.undecided.remove(&id) else {
            return Ok(());
        };
        self.weight -= candidate.entry.weight();
        self.footprint -= candidate.entry.footprint();
        self.busy_names.remove(&candidate.leaf.key());
        if let Some((Existing::File { digest: found, .. }, _)) = &mut candidate.existing {
            *found = digest;
        }
        self.decide_file(candidate)?;
        self.resume_links(id)
    }

    fn decide_file(&mut self, candidate: Candidate) -> Result<(), Halt> {
        let keep = |receiver: &Self, entry: &Entry, leaf: &Leaf, stat: &Stat| {
            receiver.keep(entry, leaf, stat)?;
            receiver.forget_earlier(entry, leaf);
            Ok(())
        };
        match self.judge(candidate, keep)? {
            Some((entry, leaf, verdict)) => self.want(entry, leaf, verdict),
            None => Ok(()),
        }
    }

    /// Compares an entry with the existing file. Returns it with the verdict if it is wanted;
    /// otherwise skips or rejects it. `keep` updates an existing file that is equal.
    pub(super) fn judge(
        &mut self,
        candidate: Candidate,
        keep: impl FnOnce(&Self, &Entry, &Leaf, &Stat) -> io::Result<()>,
    ) -> Result<Option<(Entry, Leaf, Verdict)>, Halt> {
        let Candidate {
            entry,
            leaf,
            existing,
        } = candidate;
        let found = existing.as_ref().map(|(existing, _)| existing);
        let verdict = decide(&self.request.rules, &entry, found);
        let is_node = matches!(entry.content, Content::File { .. })
            && matches!(found, Some(Existing::Node(_) | Existing::Other));
        let refusal = match verdict {
            Verdict::Same => {
                let result = existing.map_or(Ok(()), |(_, stat)| {
                    keep(self, &entry, &leaf, &stat)?;
                    self.note_inode(&entry, inode_of(&stat));
                    Ok(())
                });
                result
                    .err()
                    .map(|error| leaf.error("set the attributes of", error))
            }
            Verdict::Exists if is_node => Some(only_files(&leaf)),
            _ if verdict.is_wanted() => self.objection(&entry, &leaf, verdict),
            _ => None,
        };
        if let Some(error) = refusal {
            self.refuse(entry, leaf.shown(), error)?;
            return Ok(None);
        }
        match verdict {
            Verdict::Create | Verdict::Replace => return Ok(Some((entry, leaf, verdict))),
            Verdict::Same => {
                self.out.report.unchanged += 1;
                self.skip(entry, &leaf, verdict)?;
            }
            Verdict::Newer => {
                self.out.report.newer += 1;
                self.skip(entry, &leaf, verdict)?;
            }
            _ => self.leave(entry, &leaf)?,
        }
        Ok(None)
    }

    /// Deletes the part file and journal that an earlier attempt left when it was killed right
    /// after its rename.
    fn forget_earlier(&self, entry: &Entry, leaf: &Leaf) {
        if matches!(entry.content, Content::File { alone: true, .. })
            && !self.request.rules.dry_run
            && let Ok(dir) = leaf.parent.open()
        {
            // Fails for an attempt that is still running, whose files stay.
            let _ = remove_earlier(&dir, &leaf.name, &self.request.peer_key);
        }
    }

    /// Sets the requested attributes of an existing file whose content is unchanged, if they
    /// differ.
    fn keep(&self, entry: &Entry, leaf: &Leaf, stat: &Stat) -> io::Result<()> {
        let attributes =
            Attributes::of_same(entry, &self.request.rules, self.request.rules.checksum)
                .privileged(self.request.privileged)
                .counted_by(&self.out.lost);
        let is_asked = attributes.xattrs.is_some() || attributes.differ(stat);
        if !is_asked || self.request.append_only || self.request.rules.dry_run {
            return Ok(());
        }
        let file = open_same(&*leaf.parent.open()?, &leaf.name, stat)?;
        attributes.apply(file)
    }

    /// Returns the reason to reject a wanted file or link: the sender may not replace it, or the
    /// disk is full.
    pub(super) fn objection(
        &mut self,
        entry: &Entry,
        leaf: &Leaf,
        verdict: Verdict,
    ) -> Option<FileError> {
        if verdict == Verdict::Replace && self.request.append_only {
            return Some(only_adds(leaf));
        }
        if self.is_full
            && let Content::File { size, .. } = entry.content
        {
            let free = leaf
                .parent
                .open()
                .and_then(|dir| Ok(fstatvfs(&*dir)?))
                .map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
            if free <= size {
                return Some(leaf.error("receive", io::ErrorKind::StorageFull.into()));
            }
            self.is_full = false;
        }
        None
    }

    /// Skips a file that the sender need not send, and sends the verdict.
    pub(super) fn skip(&mut self, entry: Entry, leaf: &Leaf, verdict: Verdict) -> Result<(), Halt> {
        self.out.decide(entry.id, verdict);
        self.note_skipped(&entry);
        self.out
            .tell(leaf.shown(), EntryOutcome::Skipped(verdict))?;
        self.settle(entry.parent, false)
    }

    /// Keeps an existing file that differs but may not be replaced. The sender derives the failure
    /// from the verdict.
    pub(super) fn leave(&mut self, entry: Entry, leaf: &Leaf) -> Result<(), Halt> {
        let cause = io::Error::new(io::ErrorKind::AlreadyExists, "it exists and differs");
        let text = leaf.error("replace", cause).one_line();
        self.out
            .note_failure(leaf.shown(), FailCode::Exists, text)?;
        self.pass_over(entry, Verdict::Exists)
    }

    fn want(&mut self, entry: Entry, leaf: Leaf, verdict: Verdict) -> Result<(), Halt> {
        let Content::File { size, alone, .. } = entry.content else {
            return Ok(());
        };
        self.out.decide(entry.id, verdict);
        if self.request.rules.dry_run {
            self.note_copied(&leaf, verdict, size)?;
            return self.settle(entry.parent, false);
        }
        let attributes = Attributes::of_new(&entry, &self.request.rules, self.mask_of(&leaf))
            .privileged(self.request.privileged)
            .counted_by(&self.out.lost);
        let (weight, footprint) = (attributes.weight(), entry.footprint());
        self.keep_entry(weight, footprint)?;
        self.busy_names.insert(leaf.key());
        let way = if alone {
            Delivery::Standalone {
                attributes,
                inode: None,
            }
        } else {
            let part = Part {
                parent: leaf.parent.clone(),
                name: leaf.name.clone(),
                hidden: hidden_name(&leaf.name, &self.request.peer_key, "part"),
                replace: verdict == Verdict::Replace,
                attributes,
                identity: Mutex::default(),
            };
            Delivery::Packed(PackedFile {
                part: Arc::new(part),
                offset: 0,
                is_whole: false,
                is_busy: false,
                queue: VecDeque::new(),
                is_abandoned: false,
            })
        };
        self.files.insert(
            entry.id,
            IncomingFile {
                leaf,
                parent: entry.parent,
                size,
                verdict,
                way,
                linked: entry.linked && self.request.rules.hard_links,
                weight,
                footprint,
                is_coming: !alone,
            },
        );
        self.coming += usize::from(!alone);
        if alone {
            self.out.start_standalone(entry.id, size)
        } else {
            Ok(())
        }
    }

    /// Adds the size of an entry's attributes and its footprint, in bytes, to the totals. Fails if
    /// too many attributes are pending.
    fn keep_entry(&mut self, weight: usize, footprint: usize) -> Result<(), Halt> {
        self.weight += weight;
        self.footprint += footprint;
        if self.weight > MOST_WEIGHT {
            Err(Halt::protocol(
                "peer exceeded the limit of pending attributes",
            ))
        } else {
            Ok(())
        }
    }

    fn note_copied(&mut self, leaf: &Leaf, verdict: Verdict, size: u64) -> Result<(), Halt> {
        self.out.report.files += 1;
        self.out.report.bytes = self.out.report.bytes.saturating_add(size);
        self.out.progress.files_done += 1;
        self.out.tell(
            leaf.shown(),
            EntryOutcome::Copied {
                verdict,
                bytes: size,
            },
        )
    }

    pub(super) fn on_piece(
        &mut self,
        id: EntryId,
        at: u64,
        last: bool,
        batch: &Arc<Batch>,
        range: Range<usize>,
    ) -> Result<(), Halt> {
        let end = at.checked_add(range.len() as u64);
        let Some(file) = self.files.get_mut(&id) else {
            return self.on_dropped_piece(id, end, last);
        };
        let size = file.size;
        let Delivery::Packed(packed) = &mut file.way else {
            return Err(Halt::protocol(format!(
                "peer sent data of entry {id}, which is a standalone file"
            )));
        };
        let is_next = at == packed.offset
            && !packed.is_whole
            && !packed.is_abandoned
            && (!range.is_empty() || size == 0);
        let Some(end) = end.filter(|end| is_next && *end <= size && last == (*end == size)) else {
            let what = format!("peer sent data of entry {id} out of order");
            return Err(Halt::protocol(what));
        };
        (packed.offset, packed.is_whole) = (end, last);
        let piece = Piece {
            id,
            part: packed.part.clone(),
            offset: at,
            last,
            batch: batch.clone(),
            range,
        };
        if packed.is_busy {
            packed.queue.push_back(piece);
        } else {
            packed.is_busy = true;
            self.writing.push(piece);
        }
        Ok(())
    }

    /// Discards a piece of a file that has failed, as the sender does not know of the failure yet.
    fn on_dropped_piece(&mut self, id: EntryId, end: Option<u64>, last: bool) -> Result<(), Halt> {
        match self.dropped.get(&id) {
            Some(size) if end.is_some_and(|end| end <= *size) => {
                if last {
                    self.dropped.remove(&id);
                }
                Ok(())
            }
            _ => Err(Halt::protocol(format!(
                "peer sent data of entry {id}, which was not requested"
            ))),
        }
    }

    pub(super) fn write_more(&mut self) {
        while let Some(group) = self.writing.next() {
            self.run(move || Completion::Wrote(writing::write(group)));
        }
    }

    pub(super) fn on_wrote(&mut self, pieces: Vec<Wrote>) -> Result<(), Halt> {
        self.writing.finished();
        for Wrote { id, last, result } in pieces {
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            let Delivery::Packed(packed) = &mut file.way else {
                continue;
            };
            packed.is_busy = false;
            if packed.is_abandoned {
                packed.part.discard();
                self.forget(id);
                continue;
            }
            match (result, packed.queue.pop_front()) {
                (Err(error), _) => self.fail_file(id, |leaf| leaf.error("write", error))?,
                (Ok(()), Some(piece)) => {
                    packed.is_busy = true;
                    self.writing.push(piece);
                }
                (Ok(()), None) if last => {
                    self.commit_group.push(id, packed.part.clone(), file.size);
                    file.is_coming = false;
                    self.coming -= 1;
                }
                (Ok(()), None) => {}
            }
        }
        Ok(())
    }

    pub(super) fn commit_batch(&mut self) {
        let parts = self.commit_group.take();
        self.is_committing = true;
        self.run(move || Completion::Committed(commit_group::commit(parts)));
    }

    pub(super) fn on_committed(&mut self, results: Vec<Committed>) -> Result<(), Halt> {
        self.is_committing = false;
        for Committed { id, result } in results {
            match result {
                Ok(()) => self.finish_file(id)?,
                Err((operation, error)) => {
                    self.fail_file(id, |leaf| leaf.error(operation, error))?;
                }
            }
        }
        Ok(())
    }

    /// Removes and returns the state of a file. The caller finishes its directory.
    fn forget(&mut self, id: EntryId) -> Option<IncomingFile> {
        let file = self.files.remove(&id)?;
        self.weight -= file.weight;
        self.footprint -= file.footprint;
        self.coming -= usize::from(file.is_coming);
        self.busy_names.remove(&file.leaf.key());
        Some(file)
    }

    fn finish_file(&mut self, id: EntryId) -> Result<(), Halt> {
        let Some(file) = self.forget(id) else {
            return Ok(());
        };
        let inode = match &file.way {
            Delivery::Packed(packed) => packed.part.identity(),
            Delivery::Standalone { inode, .. } => *inode,
        };
        if let Some(inode) = inode.filter(|_| file.linked) {
            self.placed_inodes.insert(id, inode);
        }
        self.out.done(id);
        self.note_copied(&file.leaf, file.verdict, file.size)?;
        self.resume_links(id)?;
        self.settle(file.parent, false)
    }

    fn fail_file(
        &mut self,
        id: EntryId,
        error: impl FnOnce(&Leaf) -> FileError,
    ) -> Result<(), Halt> {
        let Some(file) = self.forget(id) else {
            return Ok(());
        };
        let error = error(&file.leaf);
        if let Delivery::Packed(packed) = &file.way {
            self.is_full |= error.code == FailCode::NoSpace;
            if !packed.is_whole {
                self.dropped.insert(id, file.size);
            }
        }
        self.failed.insert(id);
        self.out.fail(Some(id), file.leaf.shown(), &error)?;
        self.resume_links(id)?;
        self.settle(file.parent, true)
    }

    /// Processes the sender's report that it cannot send a file. The sender has counted the
    /// failure.
    pub(super) fn on_abandoned(&mut self, id: EntryId, reason: &Reason) -> Result<(), Halt> {
        if self.dropped.remove(&id).is_some() || self.failed.contains(&id) {
            return Ok(());
        }
        let Some(file) = self.files.get_mut(&id) else {
            let what = format!("peer abandoned entry {id}, which was not requested");
            return Err(Halt::protocol(what));
        };
        let (leaf, parent) = (file.leaf.clone(), file.parent);
        match &mut file.way {
            Delivery::Packed(packed) if packed.is_whole => {
                let what = format!("peer abandoned entry {id} after its last data");
                return Err(Halt::protocol(what));
            }
            Delivery::Packed(packed) if packed.is_abandoned => {
                return Err(Halt::protocol(format!("peer abandoned entry {id} twice")));
            }
            Delivery::Packed(packed) if packed.is_busy => {
                packed.queue.clear();
                packed.is_abandoned = true;
            }
            _ => {
                file.discard();
                self.forget(id);
            }
        }
        self.failed.insert(id);
        self.out
            .note_failure(leaf.shown(), reason.code, announced(reason))?;
        self.resume_links(id)?;
        self.settle(parent, true)
    }

    /// Opens the target of a standalone file on an I/O thread, and answers the session.
    pub(super) fn open_standalone(
        &self,
        id: EntryId,
        offer: Box<Offer>,
        options: PutOptions,
        answer: Answer<(Target, Vec<Subtree>)>,
    ) {
        let Some(IncomingFile {
            leaf,
            verdict,
            way: Delivery::Standalone { attributes, .. },
            ..
        }) = self.files.get(&id)
        else {
            let why = io::Error::other(format!("entry {id} is not a requested standalone file"));
            let error = FileError::new("receive", "a file", why).with_code(FailCode::Protocol);
            return answer(Err(error));
        };
        let leaf = leaf.clone();
        // The sender may allow a changed file: its current modification time belongs to the
        // content.
        let attributes = Attributes {
            mtime: Some(offer.source.mtime),
            ..attributes.clone()
        };
        let replace = *verdict == Verdict::Replace;
        let options = PutOptions {
            replace,
            // Of a link; a device is refused because the request has attributes.
            force: replace,
            delta: replace && options.delta,
            in_place: replace && options.in_place,
            ..options
        };
        let (peer_key, jobs) = (self.request.peer_key, self.jobs.clone());
        self.pool.run(move || {
            let dir = leaf
                .parent
                .open()
                .and_then(|dir| dir.try_clone())
                .map_err(|error| leaf.error("open the directory of", error));
            let open = |dir| {
                Target::open(TargetRequest {
                    dir,
                    name: leaf.name.clone(),
                    offer: *offer,
                    options,
                    peer_key,
                    attributes: Some(attributes),
                })
            };
            let opened = dir.and_then(open).and_then(|(target, have)| {
                let inode = target
                    .inode()
                    .map_err(|error| leaf.error("look at", error))?;
                // Precedes the end of the transfer. Fails once the receiver is gone.
                let opened = Completion::Opened(id, inode);
                let _ = jobs.send(ReceiverInput::Job(opened));
                Ok((target, have))
            });
            answer(opened);
        });
    }

    pub(super) fn on_opened(&mut self, id: EntryId, opened: Inode) {
        if let Some(file) = self.files.get_mut(&id)
            && let Delivery::Standalone { inode, .. } = &mut file.way
        {
            *inode = Some(opened);
        }
    }

    pub(super) fn on_standalone_ended(
        &mut self,
        id: EntryId,
        result: Result<(), Reason>,
    ) -> Result<(), Halt> {
        if !matches!(
            self.files.get(&id),
            Some(IncomingFile {
                way: Delivery::Standalone { .. },
                ..
            })
        ) {
            return Ok(());
        }
        match result {
            Ok(()) => self.finish_file(id),
            Err(Reason { code, text }) => self.fail_file(id, |leaf| {
                leaf.error("receive", io::Error::other(text))
                    .with_code(code)
            }),
        }
    }
}

/// Returns type and metadata of a name in a directory, if it exists; does not follow symbolic
/// links.
pub(super) fn look_at(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<(Existing, Stat)>> {
    let Some(stat) = stat_entry(dir, name)? else {
        return Ok(None);
    };
    let existing = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Existing::File {
            size: stat.st_size as u64,
            mtime: mtime_of(&stat),
            digest: None,
        },
        FileType::Directory => Existing::Directory,
        FileType::Symlink => Existing::Symlink(readlinkat(dir, name, Vec::new())?.into_bytes()),
        kind => node_of(kind, &stat).map_or(Existing::Other, Existing::Node),
    };
    Ok(Some((existing, stat)))
}

/// Opens a regular file. Fails if it is not the file that `stat` describes.
fn open_same(dir: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<File> {
    let file = open_entry(dir, name, OFlags::RDONLY)?;
    let found = fstat(&file)?;
    if inode_of(&found) != inode_of(stat) {
        return Err(io::Error::other("replaced by another file meanwhile"));
    }
    Ok(file)
}

/// Existing file that is being hashed for its comparison.
struct Comparing {
    leaf: Leaf,
    size: u64,
    file: Option<File>,
    hashing: Hashing,
}

impl Comparing {
    /// Continues the BLAKE3 digest of the file. Fails if its size is another at the end.
    fn turn(&mut self) -> io::Result<ControlFlow<Digest>> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(self.leaf.open_regular()?),
        };
        let turn = self
            .hashing
            .turn(|bytes, offset| file.read_exact_at(bytes, offset))?;
        if turn.is_break() && fstat(file)?.st_size as u64 != self.size {
            return Err(io::Error::other("its size changed meanwhile"));
        }
        Ok(turn)
    }
}

impl Leaf {
    /// Opens the existing file for reading.
    fn open_regular(&self) -> io::Result<File> {
        let file = open_entry(&*self.parent.open()?, &self.name, OFlags::RDONLY)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }
}

/// Maximum number of files hashed concurrently for comparison.
const MOST_HASHING: usize = 16;

// A hash table that has just grown has room for twice its entries.
const _: () =
    assert!(2 * size_of::<(EntryId, IncomingFile)>() + size_of::<Part>() <= ENTRY_FOOTPRINT);
