//! Regular files at the receiver: comparison, writing and commit.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nicstripe_proto::{
    Digest, FailCode, Offer, Subtree,
    message::PutOptions,
    tree::{
        Content, ENTRY_FOOTPRINT, Entry, EntryId, Existing, PACKED_MOST, Reason, Verdict, decide,
    },
};
use rustix::{
    fs::{AtFlags, FileType, OFlags, Stat, fstat, fstatvfs, readlinkat, statat},
    io::Errno,
};

use super::{
    Completion, Leaf, MOST_WEIGHT, Receiver,
    commit_group::{self, Committed},
    halt::Halt,
    outbox::announced,
    part::Part,
    placing::only_adds,
    writing::{self, Batch, Piece, Wrote},
};
use crate::{
    file::{
        Attributes, FileError, Target, TargetRequest, hidden_name, inode_of, mtime_of, open_entry,
        remove_earlier,
    },
    tree::{
        channel::{Answer, EntryError},
        metadata::node_of,
        options::EntryOutcome,
    },
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
    weight: usize,
    footprint: usize,
    /// True while pieces of the file are expected or not yet written.
    is_coming: bool,
}

#[derive(Debug)]
enum Delivery {
    Packed {
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
    },
    Standalone(Attributes),
}

impl IncomingFile {
    pub(super) fn discard(&self) {
        if let Delivery::Packed { part, .. } = &self.way {
            part.discard();
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
        let existing = match self.look(&leaf) {
            Ok(existing) => existing,
            Err(error) => return self.refuse(entry, leaf.shown(), leaf.error("look for", error)),
        };
        let is_alike =
            matches!(&existing, Some((Existing::File { size: found, .. }, _)) if found == size);
        if self.request.rules.checksum && digest.is_some() && is_alike {
            self.keep_entry(entry.weight(), entry.footprint())?;
            self.busy_names.insert(leaf.key());
            self.to_hash.push_back(entry.id);
            self.undecided.insert(
                entry.id,
                Candidate {
                    entry,
                    leaf,
                    existing,
                },
            );
            return Ok(());
        }
        self.decide_file(Candidate {
            entry,
            leaf,
            existing,
        })
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
            let (place, name, size) = (leaf.place.clone(), leaf.name.clone(), stat.st_size as u64);
            let is_stopped = self.is_stopped.clone();
            self.hashing += 1;
            self.run(move || {
                Completion::Hashed(
                    id,
                    place
                        .open()
                        .and_then(|dir| digest_of(&dir, &name, size, &is_stopped))
                        .ok(),
                )
            });
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
        let Candidate {
            entry,
            leaf,
            existing,
        } = candidate;
        let verdict = decide(
            &self.request.rules,
            &entry,
            existing.as_ref().map(|(existing, _)| existing),
        );
        match verdict {
            Verdict::Same => {
                if let Some((_, stat)) = &existing
                    && let Err(error) = self.keep(&entry, &leaf, stat)
                {
                    return self.refuse(
                        entry,
                        leaf.shown(),
                        leaf.error("set the attributes of", error),
                    );
                }
                self.forget_earlier(&entry, &leaf);
                self.out.report.unchanged += 1;
                self.skip(entry, &leaf, verdict)
            }
            Verdict::Newer => {
                self.out.report.newer += 1;
                self.skip(entry, &leaf, verdict)
            }
            Verdict::Create | Verdict::Replace => match self.objection(&entry, &leaf, verdict) {
                Some(error) => self.refuse(entry, leaf.shown(), error),
                None => self.want(entry, leaf, verdict),
            },
            _ => self.leave(entry, &leaf),
        }
    }

    /// Deletes the part file and journal that an earlier attempt left when it was killed right
    /// after its rename.
    fn forget_earlier(&self, entry: &Entry, leaf: &Leaf) {
        if matches!(entry.content, Content::File { alone: true, .. })
            && !self.request.rules.dry_run
            && let Ok(dir) = leaf.place.open()
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
                .privileged(self.request.privileged);
        let is_asked = attributes.xattrs.is_some() || attributes.differ(stat);
        if !is_asked || self.request.append_only || self.request.rules.dry_run {
            return Ok(());
        }
        let file = open_same(&*leaf.place.open()?, &leaf.name, stat)?;
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
                .place
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
        self.out.decide(entry.id, Verdict::Exists);
        self.note_skipped(&entry);
        self.note_failed(&entry);
        let cause = io::Error::new(io::ErrorKind::AlreadyExists, "it exists and differs");
        self.out.note_failure(
            leaf.shown(),
            FailCode::Exists,
            leaf.error("replace", cause).one_line(),
        )?;
        self.settle(entry.parent, true)
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
        let attributes = Attributes::of_new(&entry, &self.request.rules, self.umask)
            .privileged(self.request.privileged);
        let (weight, footprint) = (attributes.weight(), entry.footprint());
        self.keep_entry(weight, footprint)?;
        self.busy_names.insert(leaf.key());
        let way = if alone {
            Delivery::Standalone(attributes)
        } else {
            let hidden = hidden_name(&leaf.name, &self.request.peer_key, "part");
            let part = Part::new(
                leaf.place.clone(),
                leaf.name.clone(),
                hidden,
                verdict == Verdict::Replace,
                attributes,
            );
            Delivery::Packed {
                part: Arc::new(part),
                offset: 0,
                is_whole: false,
                is_busy: false,
                queue: VecDeque::new(),
                is_abandoned: false,
            }
        };
        self.files.insert(
            entry.id,
            IncomingFile {
                leaf,
                parent: entry.parent,
                size,
                verdict,
                way,
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
        let Delivery::Packed {
            part,
            offset,
            is_whole,
            is_busy,
            queue,
            is_abandoned,
        } = &mut file.way
        else {
            return Err(Halt::protocol(format!(
                "peer sent data of entry {}, which is a standalone file",
                id.0
            )));
        };
        let is_next =
            at == *offset && !*is_whole && !*is_abandoned && (!range.is_empty() || size == 0);
        let Some(end) = end.filter(|end| is_next && *end <= size && last == (*end == size)) else {
            return Err(Halt::protocol(format!(
                "peer sent data of entry {} out of order",
                id.0
            )));
        };
        (*offset, *is_whole) = (end, last);
        let piece = Piece {
            id,
            part: part.clone(),
            offset: at,
            last,
            batch: batch.clone(),
            range,
        };
        if *is_busy {
            queue.push_back(piece);
        } else {
            *is_busy = true;
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
                "peer sent data of entry {}, which was not requested",
                id.0
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
            let Delivery::Packed {
                part,
                is_busy,
                queue,
                is_abandoned,
                ..
            } = &mut file.way
            else {
                continue;
            };
            *is_busy = false;
            if *is_abandoned {
                part.discard();
                self.forget(id);
                continue;
            }
            match (result, queue.pop_front()) {
                (Err(error), _) => self.fail_file(id, "write", error)?,
                (Ok(()), Some(piece)) => {
                    *is_busy = true;
                    self.writing.push(piece);
                }
                (Ok(()), None) if last => {
                    self.commit_group.push(id, part.clone(), file.size);
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
                Err((operation, error)) => self.fail_file(id, operation, error)?,
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
        self.out.done(id);
        self.note_copied(&file.leaf, file.verdict, file.size)?;
        self.resume_links(id)?;
        self.settle(file.parent, false)
    }

    fn fail_file(
        &mut self,
        id: EntryId,
        operation: &'static str,
        error: io::Error,
    ) -> Result<(), Halt> {
        let Some(file) = self.forget(id) else {
            return Ok(());
        };
        let error = file.leaf.error(operation, error);
        self.is_full |= error.code == FailCode::NoSpace;
        if let Delivery::Packed {
            is_whole: false, ..
        } = file.way
        {
            self.dropped.insert(id, file.size);
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
            return Err(Halt::protocol(format!(
                "peer abandoned entry {}, which was not requested",
                id.0
            )));
        };
        let (leaf, parent) = (file.leaf.clone(), file.parent);
        match &mut file.way {
            Delivery::Packed { is_whole: true, .. } => {
                return Err(Halt::protocol(format!(
                    "peer abandoned entry {} after its last data",
                    id.0
                )));
            }
            Delivery::Packed {
                is_abandoned: true, ..
            } => {
                return Err(Halt::protocol(format!(
                    "peer abandoned entry {} twice",
                    id.0
                )));
            }
            Delivery::Packed {
                is_busy: true,
                is_abandoned,
                queue,
                ..
            } => {
                queue.clear();
                *is_abandoned = true;
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
        let refused = |text| {
            FileError::new("receive", "a file", io::Error::other(text))
                .with_code(FailCode::Protocol)
        };
        let Some(IncomingFile {
            leaf,
            verdict,
            way: Delivery::Standalone(attributes),
            ..
        }) = self.files.get(&id)
        else {
            return answer(Err(refused(format!(
                "entry {} is not a requested standalone file",
                id.0
            ))));
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
            delta: replace && options.delta,
            in_place: replace && options.in_place,
            ..options
        };
        let peer_key = self.request.peer_key;
        self.pool.run(move || {
            let dir = leaf
                .place
                .open()
                .and_then(|dir| dir.try_clone())
                .map_err(|error| leaf.error("open the directory of", error));
            let (name, journal_id) = (&*leaf.name, crate::trust::random::random_bytes());
            let open = |dir| {
                Target::open(TargetRequest {
                    dir,
                    name,
                    offer: &offer,
                    options,
                    peer_key,
                    journal_id,
                    attributes: Some(attributes),
                })
            };
            answer(dir.and_then(open));
        });
    }

    pub(super) fn on_standalone_ended(
        &mut self,
        id: EntryId,
        result: Result<(), EntryError>,
    ) -> Result<(), Halt> {
        if !matches!(
            self.files.get(&id),
            Some(IncomingFile {
                way: Delivery::Standalone(_),
                ..
            })
        ) {
            return Ok(());
        }
        let Err(EntryError { code, text }) = result else {
            return self.finish_file(id);
        };
        let Some(file) = self.forget(id) else {
            return Ok(());
        };
        self.failed.insert(id);
        let error = file
            .leaf
            .error("receive", io::Error::other(text))
            .with_code(code);
        self.out.fail(Some(id), file.leaf.shown(), &error)?;
        self.resume_links(id)?;
        self.settle(file.parent, true)
    }
}

/// Returns type and metadata of a name in a directory, if it exists; does not follow symbolic
/// links.
pub(super) fn look_at(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<(Existing, Stat)>> {
    let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
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

/// Returns the BLAKE3 digest of a file of `size` bytes. Stops early if the tree copy was stopped.
fn digest_of(
    dir: &OwnedFd,
    name: &OsStr,
    size: u64,
    is_stopped: &AtomicBool,
) -> io::Result<Digest> {
    let file = open_entry(dir, name, OFlags::RDONLY)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = file.take(size.saturating_add(1));
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; HASH_LEN.min(size as usize + 1)];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest(*hasher.finalize().as_bytes())),
            _ if is_stopped.load(Ordering::Relaxed) => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            len => hasher.update(&buffer[..len]),
        };
    }
}

/// Maximum number of files hashed concurrently for comparison.
const MOST_HASHING: usize = 16;

/// Size of a read while hashing, in bytes.
const HASH_LEN: usize = 256 * 1024;

// A hash table that has just grown has room for twice its entries.
const _: () =
    assert!(2 * size_of::<(EntryId, IncomingFile)>() + size_of::<Part>() <= ENTRY_FOOTPRINT);
