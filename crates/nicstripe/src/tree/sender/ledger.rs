//! State of the announced entries at the sender of a tree.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map::Entry};

use nicstripe_proto::{
    Name, SourceIdentity,
    tree::{Content, EntryId, MOST_PENDING, MOST_PENDING_WEIGHT, MOST_UNDECIDED, Verdict},
};

use crate::tree::{anchor::Location, walk::FoundEntry};

/// Memory that an unsettled entry takes at the receiver, in bytes, and the directory that it keeps
/// unsettled.
#[derive(Debug, Clone, Copy)]
struct Held {
    parent: Option<EntryId>,
    /// Size of the entry's extended attributes, as the receiver buffers them.
    weight: usize,
    footprint: usize,
}

/// State of an announced entry at the sender.
#[derive(Debug, Clone)]
pub(super) struct Announced {
    pub(super) kind: Kind,
    pub(super) location: Location,
    held: Held,
    /// Content of the file, if the walk has already read it.
    pub(super) content: Option<Vec<u8>>,
    /// True if the receiver reported that the entry failed before it sent the verdict.
    pub(super) is_failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    File {
        size: u64,
        alone: bool,
        identity: SourceIdentity,
    },
    Directory,
    Symlink,
    HardLink,
    Node,
}

impl Kind {
    pub(super) fn size(self) -> u64 {
        match self {
            Self::File { size, .. } => size,
            _ => 0,
        }
    }

    pub(super) fn is_file(self) -> bool {
        matches!(self, Self::File { .. })
    }
}

impl Announced {
    /// Creates the state of an entry and takes the content that the walk has read.
    pub(super) fn of(found: &mut FoundEntry) -> Self {
        let kind = match found.entry.content {
            Content::File { size, alone, .. } => Kind::File {
                size,
                alone,
                identity: found.identity,
            },
            Content::Directory => Kind::Directory,
            Content::Symlink { .. } => Kind::Symlink,
            Content::HardLink { .. } => Kind::HardLink,
            Content::Node(_) => Kind::Node,
        };
        Self {
            kind,
            location: found.location.clone(),
            held: Held {
                parent: found.entry.parent,
                weight: found.entry.weight(),
                footprint: found.entry.footprint(),
            },
            content: found.content.take(),
            is_failed: false,
        }
    }

    /// Returns the path of the entry relative to the target; `None` for the target itself.
    pub(super) fn name(&self) -> Option<Name> {
        self.location.name().ok().flatten()
    }

    /// Returns the size of the buffered content in bytes.
    fn buffered(&self) -> usize {
        self.content.as_ref().map_or(0, Vec::len)
    }
}

/// Limit on the content buffered for undecided entries in bytes; the last file may exceed it.
const MOST_BUFFERED: usize = 1 << 20;

/// Decided entry that waits for its result.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) announced: Announced,
    pub(super) verdict: Verdict,
    /// True if the content was sent completely, or if the standalone transfer succeeded. The
    /// receiver cannot complete the file before that.
    is_sent: bool,
}

impl Pending {
    fn may_be_done(&self, id: EntryId) -> Result<(), LedgerError> {
        match (self.verdict.is_wanted(), self.is_sent) {
            (true, true) => Ok(()),
            (true, false) => Err(LedgerError::Unfinished(id.0)),
            (false, _) => Err(LedgerError::Refused(id.0)),
        }
    }
}

/// State of all announced entries of a tree, from announcement to completion.
///
/// An entry is undecided until its verdict; verdicts arrive in the order of the walk. It then waits
/// for a result or is settled. A directory is settled once its end was found and all entries in it
/// are settled. The receiver keeps a directory just as long, whatever its verdict.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    undecided: VecDeque<Announced>,
    first_undecided: u64,
    /// ID of the first entry that no sent batch contains.
    unsent: u64,
    pending: BTreeMap<EntryId, Pending>,
    directories: HashMap<EntryId, Unsettled>,
    /// Number of unsettled entries that are not directories.
    others: usize,
    /// Size of the extended attributes of unsettled entries in bytes. Excludes directories that the
    /// walk has not left: the walk must not wait for them, since only it ends them.
    weight: usize,
    /// Memory footprint of unsettled entries at the receiver, in bytes.
    footprint: usize,
    /// Value of `footprint` in bytes at which the walk waits.
    most_footprint: usize,
    /// Size of the content buffered for undecided entries, in bytes.
    buffered: usize,
    /// Standalone files whose transfer has not ended locally.
    alone: BTreeSet<EntryId>,
}

#[derive(Debug)]
struct Unsettled {
    held: Held,
    /// Number of unsettled entries in the directory.
    children: usize,
    /// True once the walk has found the end of the directory.
    is_ended: bool,
    /// True if the directory itself waits neither for a verdict nor for a result.
    is_resolved: bool,
}

impl Ledger {
    /// Creates an empty ledger that limits the entries to a footprint of `most_footprint` bytes.
    pub(super) fn new(most_footprint: usize) -> Self {
        Self {
            most_footprint,
            ..Self::default()
        }
    }

    /// Returns true if another entry may be announced without exceeding the limits.
    pub(super) fn has_room(&self) -> bool {
        let is_heavy = self.weight >= MOST_PENDING_WEIGHT
            || self.footprint >= self.most_footprint
            || self.buffered >= MOST_BUFFERED;
        self.undecided.len() < MOST_UNDECIDED
            && self.others + self.directories.len() < MOST_PENDING
            && !is_heavy
    }

    pub(super) fn without_result(&self) -> Option<EntryId> {
        self.pending.keys().next().copied()
    }

    /// Returns true if every announced entry has its verdict and no standalone transfer is running.
    /// Only files that wait to be read can then still be sent or abandoned.
    pub(super) fn is_decided(&self) -> bool {
        self.undecided.is_empty() && self.alone.is_empty()
    }

    pub(super) fn tell(&mut self, id: EntryId, announced: Announced) {
        let held = announced.held;
        let parent = held.parent.and_then(|id| self.directories.get_mut(&id));
        if let Some(parent) = parent {
            parent.children += 1;
        }
        if announced.kind == Kind::Directory {
            let directory = Unsettled {
                held,
                children: 0,
                is_ended: false,
                is_resolved: false,
            };
            self.directories.insert(id, directory);
        } else {
            self.others += 1;
            self.weight += held.weight;
            self.footprint += held.footprint;
        }
        self.buffered += announced.buffered();
        self.undecided.push_back(announced);
    }

    pub(super) fn end_directory(&mut self, id: EntryId) {
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.is_ended = true;
            self.weight += directory.held.weight;
            self.footprint += directory.held.footprint;
        }
        self.settle_directory(id);
    }

    /// Records that a batch was sent with entries up to `last`.
    pub(super) fn sent(&mut self, last: EntryId) {
        self.unsent = last.0 + 1;
    }

    /// Removes and returns the next undecided entry. Fails unless its ID is `id`, as the peer
    /// claims.
    pub(super) fn decide(&mut self, id: EntryId) -> Result<Announced, LedgerError> {
        if id.0 != self.first_undecided {
            return Err(LedgerError::Order {
                found: id.0,
                expected: self.first_undecided,
            });
        }
        if id.0 >= self.unsent {
            return Err(LedgerError::Unsent(id.0));
        }
        let announced = self
            .undecided
            .pop_front()
            .ok_or(LedgerError::Unsent(id.0))?;
        self.first_undecided += 1;
        self.buffered -= announced.buffered();
        Ok(announced)
    }

    /// Marks a decided entry as waiting for its result, unless the result has already arrived.
    pub(super) fn wait_for_result(&mut self, id: EntryId, announced: Announced, verdict: Verdict) {
        if announced.is_failed {
            self.resolve(id, &announced);
        } else {
            let is_sent = !announced.kind.is_file();
            self.pending.insert(
                id,
                Pending {
                    announced: Announced {
                        content: None,
                        ..announced
                    },
                    verdict,
                    is_sent,
                },
            );
        }
    }

    /// Settles a decided entry that waits for no result.
    pub(super) fn resolve(&mut self, id: EntryId, announced: &Announced) {
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.is_resolved = true;
            return self.settle_directory(id);
        }
        self.others -= 1;
        self.settle(announced.held);
    }

    /// Releases the memory of a settled entry, and settles its directory if that is complete.
    fn settle(&mut self, held: Held) {
        self.weight -= held.weight;
        self.footprint -= held.footprint;
        if let Some(parent) = held.parent
            && let Some(directory) = self.directories.get_mut(&parent)
        {
            directory.children -= 1;
            self.settle_directory(parent);
        }
    }

    /// Settles a directory if it is complete, and then its parents: no more than a name has
    /// components.
    fn settle_directory(&mut self, id: EntryId) {
        let is_complete = |directory: &mut Unsettled| {
            directory.is_ended && directory.is_resolved && directory.children == 0
        };
        if let Entry::Occupied(mut directory) = self.directories.entry(id)
            && is_complete(directory.get_mut())
        {
            let settled = directory.remove();
            self.settle(settled.held);
        }
    }

    pub(super) fn started_standalone(&mut self, id: EntryId) {
        self.alone.insert(id);
    }

    pub(super) fn standalone_end(&mut self, id: EntryId) {
        self.alone.remove(&id);
    }

    /// Records that a file was sent completely, or that its standalone transfer succeeded.
    pub(super) fn on_sent(&mut self, id: EntryId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.is_sent = true;
        }
    }

    /// Returns the state of an entry that waits for its verdict or its result.
    pub(super) fn announced(&self, id: EntryId) -> Option<&Announced> {
        match self.pending.get(&id) {
            Some(pending) => Some(&pending.announced),
            None => {
                id.0.checked_sub(self.first_undecided)
                    .and_then(|at| self.undecided.get(at as usize))
            }
        }
    }

    pub(super) fn is_pending(&self, id: EntryId) -> bool {
        self.pending.contains_key(&id)
    }

    /// Removes and returns an entry that waits for its result.
    pub(super) fn end(&mut self, id: EntryId) -> Option<Pending> {
        self.alone.remove(&id);
        let pending = self.pending.remove(&id)?;
        self.resolve(id, &pending.announced);
        Some(pending)
    }

    /// Removes and returns the entries of an ID range that the peer reports as complete. Skips
    /// those that ended before or await no result.
    pub(super) fn done(&mut self, first: EntryId, count: u64) -> Result<Vec<Pending>, LedgerError> {
        let end = first
            .0
            .checked_add(count)
            .filter(|end| *end <= self.first_undecided)
            .ok_or(LedgerError::Result(first.0))?;
        let of_range = self.pending.range(first..EntryId(end));
        let ids: Vec<EntryId> = of_range
            .map(|(id, pending)| pending.may_be_done(*id).map(|()| *id))
            .collect::<Result<_, _>>()?;
        Ok(ids.into_iter().filter_map(|id| self.end(id)).collect())
    }

    /// Handles a failure that the peer reported, possibly before the verdict. Returns the entry
    /// unless it ended before.
    pub(super) fn failed(&mut self, id: EntryId) -> Result<Option<Announced>, LedgerError> {
        if id.0 >= self.unsent {
            return Err(LedgerError::Result(id.0));
        }
        if let Some(announced) =
            id.0.checked_sub(self.first_undecided)
                .and_then(|at| self.undecided.get_mut(at as usize))
        {
            let is_first = !std::mem::replace(&mut announced.is_failed, true);
            return Ok(is_first.then(|| announced.clone()));
        }
        Ok(self.end(id).map(|pending| pending.announced))
    }
}

/// Protocol violation of the peer: a message about an entry that it cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("peer decided on entry {found}, expected {expected}")]
    Order { found: u64, expected: u64 },
    #[error("peer decided on entry {0}, which was not sent")]
    Unsent(u64),
    #[error("peer sent a result for entry {0} or a later one before its decision")]
    Result(u64),
    #[error("peer committed entry {0}, which was not sent completely")]
    Unfinished(u64),
    #[error("peer committed entry {0}, which it refused")]
    Refused(u64),
    #[error("peer skipped entry {0} as older, which was not requested")]
    NotAsked(u64),
    #[error("peer committed the tree without a result for entry {0}")]
    NoResult(u64),
    #[error("peer committed the tree before the last batch")]
    Early,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicstripe_proto::tree::Xattr;

    use super::*;

    const ONE_BYTE: Content = Content::File {
        size: 1,
        alone: false,
        digest: None,
    };
    use crate::tree::anchor::{Anchor, Base};

    fn announced(id: u64, content: Content, parent: Option<u64>) -> Announced {
        let anchor = Arc::new(Anchor::open(Base::Path("/".into()), false).unwrap());
        let xattr = Xattr {
            name: b"user.x".to_vec().into(),
            value: vec![0; 128 << 10].into(),
        };
        let (id, parent, identity) = (EntryId(id), parent.map(EntryId), SourceIdentity::default());
        let (mtime, xattrs) = (identity.mtime, Some(vec![xattr]));
        let entry = nicstripe_proto::tree::Entry {
            id,
            parent,
            name: None,
            content,
            mode: 0,
            mtime,
            owner: None,
            xattrs,
            owner_names: None,
            linked: false,
            inode_hash: None,
        };
        Announced::of(&mut FoundEntry {
            entry,
            location: Location::beneath_anchor(anchor, &[]),
            identity,
            content: None,
        })
    }

    #[test]
    fn a_walk_waits_while_entries_without_results_have_many_attributes_but_never_for_open_directories()
     {
        let mut ledger = Ledger::new(usize::MAX);
        for id in 0..200 {
            ledger.tell(
                EntryId(id),
                announced(id, Content::Directory, id.checked_sub(1)),
            );
        }
        assert!(
            ledger.has_room(),
            "they can only end when the walk continues"
        );
        let files = (200..).take_while(|id| {
            let has_room = ledger.has_room();
            if has_room {
                ledger.tell(EntryId(*id), announced(*id, ONE_BYTE, Some(199)));
            }
            has_room
        });
        let files = files.count() as u64;
        assert_eq!(files, 128, "16 MiB of 128 KiB each");
        ledger.sent(EntryId(199 + files));
        for id in (0..200 + files).map(EntryId) {
            let announced = ledger.decide(id).unwrap();
            ledger.resolve(id, &announced);
        }
        assert!(ledger.has_room());
        (0..200)
            .rev()
            .for_each(|id| ledger.end_directory(EntryId(id)));
        assert_eq!(
            (
                ledger.weight + ledger.footprint,
                ledger.others,
                ledger.directories.len()
            ),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_small_file_is_done_only_when_it_was_sent() {
        let mut ledger = Ledger::new(usize::MAX);
        ledger.tell(EntryId(0), announced(0, ONE_BYTE, None));
        ledger.sent(EntryId(0));
        let announced = ledger.decide(EntryId(0)).unwrap();
        ledger.wait_for_result(EntryId(0), announced, Verdict::Create);
        assert_eq!(
            ledger.done(EntryId(0), 1).unwrap_err(),
            LedgerError::Unfinished(0)
        );
        ledger.on_sent(EntryId(0));
        assert_eq!(ledger.done(EntryId(0), 1).unwrap().len(), 1);
    }

    #[test]
    fn a_walk_waits_while_entries_without_results_fill_the_receivers_memory() {
        let mut ledger = Ledger::new(64 << 10);
        let file = |id| Announced {
            held: Held {
                parent: None,
                weight: 0,
                footprint: 4 << 10,
            },
            ..announced(id, ONE_BYTE, None)
        };
        let files = (0..100)
            .take_while(|id| {
                ledger.has_room() && {
                    ledger.tell(EntryId(*id), file(*id));
                    true
                }
            })
            .count() as u64;
        assert_eq!(files, 16);
        ledger.sent(EntryId(files - 1));
        let first = ledger.decide(EntryId(0)).unwrap();
        ledger.wait_for_result(EntryId(0), first, Verdict::Create);
        assert!(
            !ledger.has_room(),
            "it awaits its result in the receiver's memory"
        );
        ledger.on_sent(EntryId(0));
        ledger.done(EntryId(0), 1).unwrap();
        assert!(ledger.has_room());
    }
}
