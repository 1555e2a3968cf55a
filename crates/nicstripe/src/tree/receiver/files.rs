//! Wanted files at the receiver: writing and commit.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    ops::Range,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use nicstripe_proto::{
    FailCode, Offer, Subtree,
    message::PutOptions,
    tree::{Content, ENTRY_FOOTPRINT, Entry, EntryId, Reason, Verdict},
};
use parking_lot::Mutex;
use rustix::fs::fstatvfs;

use super::{
    commit_group::{self, CommitGroup, Committed},
    completion::Completion,
    context::{Context, Held},
    jobs::Jobs,
    leaf::Leaf,
    part::Part,
    writing::{self, Batch, Piece, Writing, Wrote},
};
use crate::tree::halt::{Halt, breach};
use crate::{
    file::{Attributes, ChunkBuffer, FileError, Inode, Sidecar, Target, TargetRequest},
    tree::channel::OnOpened,
};

/// Wanted files, until they are in place or have failed.
pub(super) struct Files {
    context: Rc<Context>,
    jobs: Jobs,
    incoming: HashMap<EntryId, IncomingFile>,
    /// Number of packed files that are not completely written.
    coming: usize,
    /// Sizes in bytes of failed files whose pieces still arrive.
    dropped: HashMap<EntryId, u64>,
    /// Keys of the names of incoming files.
    names: HashSet<u64>,
    writing: Writing,
    commit_group: CommitGroup,
    is_committing: bool,
    /// True if a write failed for lack of space and no free space was seen since.
    is_full: bool,
}

#[derive(Debug)]
pub(super) struct WantedFile {
    pub(super) leaf: Leaf,
    pub(super) parent: Option<EntryId>,
    pub(super) size: u64,
    pub(super) verdict: Verdict,
}

#[derive(Debug)]
struct IncomingFile {
    wanted: WantedFile,
    way: Delivery,
    /// True if hard links to the file may follow.
    linked: bool,
    /// True while pieces of the file are expected or not yet written.
    is_coming: bool,
    _held: Held,
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

/// File that is in place or has failed. The result is the file's inode if it is in place and hard
/// links to it may follow.
pub(super) type EndedFile = (EntryId, WantedFile, Result<Option<Inode>, FileError>);

impl Files {
    pub(super) fn new(context: Rc<Context>, jobs: Jobs) -> Self {
        Self {
            context,
            jobs,
            incoming: HashMap::new(),
            coming: 0,
            dropped: HashMap::new(),
            names: HashSet::new(),
            writing: Writing::default(),
            commit_group: CommitGroup::default(),
            is_committing: false,
            is_full: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.incoming.len()
    }

    /// Returns the number of packed files that are not completely written.
    pub(super) fn coming(&self) -> usize {
        self.coming
    }

    pub(super) fn contains(&self, id: EntryId) -> bool {
        self.incoming.contains_key(&id)
    }

    /// Returns true if a file of this name is being received.
    pub(super) fn is_busy(&self, leaf: &Leaf) -> bool {
        self.names.contains(&leaf.key())
    }

    /// Returns true while jobs write or commit files.
    pub(super) fn has_jobs(&self) -> bool {
        self.writing.is_busy() || self.is_committing
    }

    pub(super) fn awaits_commit(&self) -> bool {
        !self.commit_group.is_empty()
    }

    /// Returns the maximum wait before a group commit is due; `None` if none can start.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.commit_group.patience().filter(|_| !self.is_committing)
    }

    /// Returns true if the disk has no room for a file of `size` bytes. Looks only after a write
    /// has failed.
    pub(super) fn lacks_room(&mut self, leaf: &Leaf, size: u64) -> bool {
        if self.is_full {
            let free = leaf
                .parent
                .open()
                .and_then(|dir| Ok(fstatvfs(&*dir)?))
                .map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
            self.is_full = free <= size;
        }
        self.is_full
    }

    /// Prepares for the content of a wanted file.
    pub(super) fn expect(
        &mut self,
        entry: &Entry,
        leaf: Leaf,
        verdict: Verdict,
    ) -> Result<(), Halt> {
        let Content::File { size, alone, .. } = entry.content else {
            return Ok(());
        };
        let attributes = self.context.attributes_of_new(entry, &leaf.parent);
        let held = self
            .context
            .hold_attributes(attributes.weight(), entry.footprint())?;
        self.names.insert(leaf.key());
        let way = if alone {
            Delivery::Standalone {
                attributes,
                inode: None,
            }
        } else {
            let part = Part {
                parent: leaf.parent.clone(),
                name: leaf.name.clone(),
                hidden: self.context.hidden_name(&leaf.name),
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
        self.coming += usize::from(!alone);
        self.incoming.insert(
            entry.id,
            IncomingFile {
                wanted: WantedFile {
                    leaf,
                    parent: entry.parent,
                    size,
                    verdict,
                },
                way,
                linked: entry.linked && self.context.request.rules.hard_links,
                is_coming: !alone,
                _held: held,
            },
        );
        Ok(())
    }

    /// Wraps the buffer of a received batch, see [`Writing::begin`].
    pub(super) fn begin(&self, batch: ChunkBuffer) -> Arc<Batch> {
        self.writing.begin(batch)
    }

    /// Returns the number of received batches held in memory.
    pub(super) fn batches(&self) -> usize {
        self.writing.batches()
    }

    /// Processes a piece of a file, which is `range` of the batch.
    pub(super) fn on_piece(
        &mut self,
        id: EntryId,
        at: u64,
        last: bool,
        batch: &Arc<Batch>,
        range: Range<usize>,
    ) -> Result<(), Halt> {
        let end = at.checked_add(range.len() as u64);
        let Some(file) = self.incoming.get_mut(&id) else {
            return self.on_dropped_piece(id, end, last);
        };
        let size = file.wanted.size;
        let Delivery::Packed(packed) = &mut file.way else {
            breach!("peer sent data of entry {id}, which is a standalone file");
        };
        let is_next = at == packed.offset
            && !packed.is_whole
            && !packed.is_abandoned
            && (!range.is_empty() || size == 0);
        let Some(end) = end.filter(|end| is_next && *end <= size && last == (*end == size)) else {
            breach!("peer sent data of entry {id} out of order");
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
            _ => breach!("peer sent data of entry {id}, which was not requested"),
        }
    }

    /// Starts jobs for queued pieces.
    pub(super) fn write(&mut self) {
        while let Some(group) = self.writing.next() {
            self.jobs
                .run(move |report| report(Completion::Wrote(writing::write(group))));
        }
    }

    /// Processes the results of a job. Returns the files that have failed.
    pub(super) fn on_wrote(&mut self, pieces: Vec<Wrote>) -> Vec<EndedFile> {
        self.writing.finished();
        let mut failed = Vec::new();
        for Wrote { id, last, result } in pieces {
            let Some(file) = self.incoming.get_mut(&id) else {
                continue;
            };
            let Delivery::Packed(packed) = &mut file.way else {
                continue;
            };
            packed.is_busy = false;
            if packed.is_abandoned {
                packed.part.discard();
                self.remove(id);
                continue;
            }
            match (result, packed.queue.pop_front()) {
                (Err(error), _) => failed.extend(self.fail(id, |leaf| leaf.error("write", error))),
                (Ok(()), Some(piece)) => {
                    packed.is_busy = true;
                    self.writing.push(piece);
                }
                (Ok(()), None) if last => {
                    self.commit_group
                        .push(id, packed.part.clone(), file.wanted.size);
                    file.is_coming = false;
                    self.coming -= 1;
                }
                (Ok(()), None) => {}
            }
        }
        failed
    }

    pub(super) fn commit(&mut self) {
        let parts = self.commit_group.take();
        self.is_committing = true;
        self.jobs
            .run(move |report| report(Completion::Committed(commit_group::commit(parts))));
    }

    pub(super) fn on_committed(&mut self, results: Vec<Committed>) -> Vec<EndedFile> {
        self.is_committing = false;
        let end = |Committed { id, result }| match result {
            Ok(()) => self.finish(id),
            Err((operation, error)) => self.fail(id, |leaf| leaf.error(operation, error)),
        };
        results.into_iter().filter_map(end).collect()
    }

    fn remove(&mut self, id: EntryId) -> Option<IncomingFile> {
        let file = self.incoming.remove(&id)?;
        self.coming -= usize::from(file.is_coming);
        self.names.remove(&file.wanted.leaf.key());
        Some(file)
    }

    fn finish(&mut self, id: EntryId) -> Option<EndedFile> {
        let file = self.remove(id)?;
        let inode = match &file.way {
            Delivery::Packed(packed) => packed.part.identity(),
            Delivery::Standalone { inode, .. } => *inode,
        };
        let inode = inode.filter(|_| file.linked);
        Some((id, file.wanted, Ok(inode)))
    }

    fn fail(&mut self, id: EntryId, error: impl FnOnce(&Leaf) -> FileError) -> Option<EndedFile> {
        let file = self.remove(id)?;
        let error = error(&file.wanted.leaf);
        if let Delivery::Packed(packed) = &file.way {
            self.is_full |= error.code == FailCode::NoSpace;
            if !packed.is_whole {
                self.dropped.insert(id, file.wanted.size);
            }
        }
        Some((id, file.wanted, Err(error)))
    }

    /// Drops a file that the sender cannot send. Returns its local name and its directory; `None`
    /// if it has failed before.
    pub(super) fn abandon(
        &mut self,
        id: EntryId,
        has_failed: bool,
    ) -> Result<Option<(Leaf, Option<EntryId>)>, Halt> {
        if self.dropped.remove(&id).is_some() || has_failed {
            return Ok(None);
        }
        let Some(file) = self.incoming.get_mut(&id) else {
            breach!("peer abandoned entry {id}, which was not requested");
        };
        let abandoned = (file.wanted.leaf.clone(), file.wanted.parent);
        match &mut file.way {
            Delivery::Packed(packed) if packed.is_whole => {
                breach!("peer abandoned entry {id} after its last data")
            }
            Delivery::Packed(packed) if packed.is_abandoned => {
                breach!("peer abandoned entry {id} twice")
            }
            Delivery::Packed(packed) if packed.is_busy => {
                packed.queue.clear();
                packed.is_abandoned = true;
            }
            _ => {
                file.discard();
                self.remove(id);
            }
        }
        Ok(Some(abandoned))
    }

    /// Opens the target of a standalone file on an I/O thread, and answers the session.
    pub(super) fn open_standalone(
        &self,
        id: EntryId,
        offer: Box<Offer>,
        options: PutOptions,
        answer: OnOpened<(Target, Vec<Subtree>)>,
    ) {
        let Some(IncomingFile {
            wanted: WantedFile { leaf, verdict, .. },
            way: Delivery::Standalone { attributes, .. },
            ..
        }) = self.incoming.get(&id)
        else {
            let why = format!("entry {id} is not a requested standalone file");
            return answer(Err(FileError::violated("receive", "a file", why)));
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
            // A tag is that of one file.
            only_if: None,
            ..options
        };
        let peer_key = self.context.request.peer_key;
        self.jobs.run(move |report| {
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
                    sidecar: Sidecar::None,
                })
            };
            let opened = dir.and_then(open).and_then(|(target, have)| {
                let inode = target
                    .inode()
                    .map_err(|error| leaf.error("look at", error))?;
                // Precedes the end of the transfer.
                report(Completion::Opened(id, inode));
                Ok((target, have))
            });
            answer(opened);
        });
    }

    pub(super) fn on_opened(&mut self, id: EntryId, opened: Inode) {
        if let Some(file) = self.incoming.get_mut(&id)
            && let Delivery::Standalone { inode, .. } = &mut file.way
        {
            *inode = Some(opened);
        }
    }

    /// Processes the end of a transfer; returns `None` if its file is not expected.
    pub(super) fn on_standalone_ended(
        &mut self,
        id: EntryId,
        result: Result<(), Reason>,
    ) -> Option<EndedFile> {
        let file = self.incoming.get(&id)?;
        match (&file.way, result) {
            (Delivery::Packed(_), _) => None,
            (_, Ok(())) => self.finish(id),
            (_, Err(Reason { code, text })) => self.fail(id, |leaf| {
                leaf.error("receive", io::Error::other(text))
                    .with_code(code)
            }),
        }
    }

    /// Drops the pieces that wait.
    pub(super) fn stop(&mut self) {
        self.writing.forget_waiting();
    }

    /// Records that a job has ended after [`Files::stop`].
    pub(super) fn on_stopped(&mut self, is_commit: bool) {
        if is_commit {
            self.is_committing = false;
        } else {
            self.writing.finished();
        }
    }

    pub(super) fn discard(&mut self) {
        self.incoming.values().for_each(IncomingFile::discard);
        for (_, part) in self.commit_group.take() {
            part.discard();
        }
    }
}

impl IncomingFile {
    fn discard(&self) {
        if let Delivery::Packed(packed) = &self.way {
            packed.part.discard();
        }
    }
}

// A hash table that has just grown has room for twice its entries.
const _: () =
    assert!(2 * size_of::<(EntryId, IncomingFile)>() + size_of::<Part>() <= ENTRY_FOOTPRINT);
