//! What a sender remembers of the entries that it has told.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use nicstripe_proto::{
    SourceIdentity,
    tree::{Content, EntryId, MOST_PENDING, MOST_PENDING_WEIGHT, MOST_UNDECIDED, Verdict},
};

use crate::tree::{anchor::Location, walk::FoundEntry};

/// What is kept of an entry until its end.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) kind: Kind,
    pub(super) location: Location,
    parent: Option<EntryId>,
    /// What the receiver keeps of its extended attributes weighs as much.
    weight: usize,
    footprint: usize,
    /// Content that the walk has read.
    pub(super) content: Option<Vec<u8>>,
    /// The receiver gave it up before it decided.
    is_failed: bool,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    File { size: u64, alone: bool, identity: SourceIdentity },
    Directory,
    Symlink,
    HardLink,
    Node,
}

impl Kind {
    /// Bytes of its content.
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

impl Told {
    /// Takes the content that the walk has read.
    pub(super) fn of(found: &mut FoundEntry) -> Self {
        let kind = match found.entry.content {
            Content::File { size, alone, .. } => Kind::File { size, alone, identity: found.identity },
            Content::Directory => Kind::Directory,
            Content::Symlink { .. } => Kind::Symlink,
            Content::HardLink { .. } => Kind::HardLink,
            Content::Node(_) => Kind::Node,
        };
        let (location, content) = (found.location.clone(), found.content.take());
        let (weight, footprint) = (found.entry.weight(), found.entry.footprint());
        Self { kind, location, parent: found.entry.parent, weight, footprint, content, is_failed: false }
    }

    /// Bytes of content that are kept.
    fn kept(&self) -> usize {
        self.content.as_ref().map_or(0, Vec::len)
    }

    /// Whether the receiver gave it up before it decided.
    pub(super) fn is_failed(&self) -> bool {
        self.is_failed
    }
}

/// Bytes of content that undecided entries keep, and one file's more.
const MOST_KEPT: usize = 1 << 20;

/// An entry that waits for its result.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) told: Told,
    pub(super) verdict: Verdict,
    /// Whether all of it was sent, and of a file that is a transfer of its own, whether that ended well: before, it cannot be in place.
    has_gone: bool,
}

impl Pending {
    fn may_be_done(&self, id: EntryId) -> Result<(), LedgerError> {
        match (self.verdict.is_wanted(), self.has_gone) {
            (true, true) => Ok(()),
            (true, false) => Err(LedgerError::Unfinished(id.0)),
            (false, _) => Err(LedgerError::Refused(id.0)),
        }
    }
}

/// Entries from when they are found until they are settled.
///
/// An entry is undecided until its verdict, in the order of the walk; then it waits for its result or is settled. A directory is settled when
/// also its end was found and all in it is settled: as long as that takes the receiver keeps it too, whatever its verdict.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    undecided: VecDeque<Told>,
    first_undecided: u64,
    /// The first that no parcel that was sent has.
    unsent: u64,
    pending: BTreeMap<EntryId, Pending>,
    /// Directories that are not settled.
    directories: HashMap<EntryId, Unsettled>,
    /// How many other entries are not settled.
    others: usize,
    /// What the extended attributes of both weigh, but for directories that have not ended: those wait for the walk, which must not wait for
    /// them.
    weight: usize,
    /// The same of their footprints.
    footprint: usize,
    /// Most that these may be before the walk waits.
    most_footprint: usize,
    /// Bytes of content that undecided entries keep.
    kept: usize,
    /// Files whose transfer of their own has not ended here.
    alone: BTreeSet<EntryId>,
}

/// A directory that is not settled.
#[derive(Debug)]
struct Unsettled {
    parent: Option<EntryId>,
    weight: usize,
    footprint: usize,
    /// Entries in it that are not settled.
    children: usize,
    /// Whether its end was found.
    is_ended: bool,
    /// Whether it waits for neither verdict nor result.
    is_resolved: bool,
}

impl Ledger {
    /// Begins without entries; `most_footprint` bytes of memory are there for them.
    pub(super) fn new(most_footprint: usize) -> Self {
        Self { most_footprint, ..Self::default() }
    }

    /// Whether another entry may be told.
    pub(super) fn has_room(&self) -> bool {
        let is_heavy = self.weight >= MOST_PENDING_WEIGHT || self.footprint >= self.most_footprint || self.kept >= MOST_KEPT;
        self.undecided.len() < MOST_UNDECIDED && self.others + self.directories.len() < MOST_PENDING && !is_heavy
    }

    /// An entry without its result, if there is one.
    pub(super) fn without_result(&self) -> Option<EntryId> {
        self.pending.keys().next().copied()
    }

    /// Whether no file can become wanted or be abandoned any more, but those that are to be read.
    pub(super) fn is_decided(&self) -> bool {
        self.undecided.is_empty() && self.alone.is_empty()
    }

    /// Takes the next entry.
    pub(super) fn tell(&mut self, id: EntryId, told: Told) {
        if let Some(parent) = told.parent.and_then(|parent| self.directories.get_mut(&parent)) {
            parent.children += 1;
        }
        if told.kind == Kind::Directory {
            let Told { parent, weight, footprint, .. } = told;
            self.directories.insert(id, Unsettled { parent, weight, footprint, children: 0, is_ended: false, is_resolved: false });
        } else {
            self.others += 1;
            self.weight += told.weight;
            self.footprint += told.footprint;
        }
        self.kept += told.kept();
        self.undecided.push_back(told);
    }

    /// All in a directory was told.
    pub(super) fn end_directory(&mut self, id: EntryId) {
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.is_ended = true;
            self.weight += directory.weight;
            self.footprint += directory.footprint;
        }
        self.settle_directories(Some(id));
    }

    /// A parcel was sent with entries up to that one.
    pub(super) fn sent(&mut self, last: EntryId) {
        self.unsent = last.0 + 1;
    }

    /// Takes the next entry that the peer decided on; the peer says that it is `id`.
    pub(super) fn decide(&mut self, id: EntryId) -> Result<Told, LedgerError> {
        if id.0 != self.first_undecided {
            return Err(LedgerError::Order { found: id.0, expected: self.first_undecided });
        }
        if id.0 >= self.unsent {
            return Err(LedgerError::Unsent(id.0));
        }
        let told = self.undecided.pop_front().ok_or(LedgerError::Unsent(id.0))?;
        self.first_undecided += 1;
        self.kept -= told.kept();
        Ok(told)
    }

    /// From here on the entry waits for its result, unless that came before.
    pub(super) fn wait_for_result(&mut self, id: EntryId, told: Told, verdict: Verdict) {
        if told.is_failed {
            self.resolve(id, &told);
        } else {
            let has_gone = !told.kind.is_file();
            self.pending.insert(id, Pending { told: Told { content: None, ..told }, verdict, has_gone });
        }
    }

    /// An entry that was decided on waits for nothing.
    pub(super) fn resolve(&mut self, id: EntryId, told: &Told) {
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.is_resolved = true;
            return self.settle_directories(Some(id));
        }
        self.others -= 1;
        self.weight -= told.weight;
        self.footprint -= told.footprint;
        self.settle_child_of(told.parent);
    }

    fn settle_child_of(&mut self, parent: Option<EntryId>) {
        if let Some(directory) = parent.and_then(|parent| self.directories.get_mut(&parent)) {
            directory.children -= 1;
        }
        self.settle_directories(parent);
    }

    /// Settles a directory if nothing is missing, and then perhaps those that it is in.
    fn settle_directories(&mut self, first: Option<EntryId>) {
        let mut next = first;
        while let Some(id) = next {
            let is_settled = |directory: &Unsettled| directory.is_ended && directory.is_resolved && directory.children == 0;
            if !self.directories.get(&id).is_some_and(is_settled) {
                return;
            }
            let Some(settled) = self.directories.remove(&id) else { return };
            self.weight -= settled.weight;
            self.footprint -= settled.footprint;
            next = settled.parent;
            if let Some(parent) = next.and_then(|parent| self.directories.get_mut(&parent)) {
                parent.children -= 1;
            }
        }
    }

    /// From here on a file's own transfer goes on.
    pub(super) fn started_alone(&mut self, id: EntryId) {
        self.alone.insert(id);
    }

    /// A file's own transfer has ended.
    pub(super) fn ended_alone(&mut self, id: EntryId) {
        self.alone.remove(&id);
    }

    /// All of a file is on its way, or there if it was a transfer of its own.
    pub(super) fn gone(&mut self, id: EntryId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.has_gone = true;
        }
    }

    /// An entry that waits for its result, or for its verdict while it need not.
    pub(super) fn told(&self, id: EntryId) -> Option<&Told> {
        match self.pending.get(&id) {
            Some(pending) => Some(&pending.told),
            None => id.0.checked_sub(self.first_undecided).and_then(|at| self.undecided.get(at as usize)),
        }
    }

    pub(super) fn is_pending(&self, id: EntryId) -> bool {
        self.pending.contains_key(&id)
    }

    /// Ends an entry that waits for its result.
    pub(super) fn end(&mut self, id: EntryId) -> Option<Pending> {
        self.alone.remove(&id);
        let pending = self.pending.remove(&id)?;
        self.resolve(id, &pending.told);
        Some(pending)
    }

    /// Ends the entries of a range, which the peer has decided on and says are in place. Those that ended before, and those without a result,
    /// do not count.
    pub(super) fn done(&mut self, first: EntryId, count: u64) -> Result<Vec<Pending>, LedgerError> {
        let end = first.0.checked_add(count).filter(|end| *end <= self.first_undecided).ok_or(LedgerError::Result(first.0))?;
        let of_range = self.pending.range(first..EntryId(end));
        let ids: Vec<EntryId> = of_range.map(|(id, pending)| pending.may_be_done(*id).map(|()| *id)).collect::<Result<_, _>>()?;
        Ok(ids.into_iter().filter_map(|id| self.end(id)).collect())
    }

    /// Takes it that an entry failed at the peer, perhaps before its verdict. Returns it unless it ended before.
    pub(super) fn failed(&mut self, id: EntryId) -> Result<Option<Told>, LedgerError> {
        if id.0 >= self.unsent {
            return Err(LedgerError::Result(id.0));
        }
        if let Some(told) = id.0.checked_sub(self.first_undecided).and_then(|at| self.undecided.get_mut(at as usize)) {
            let is_first = !std::mem::replace(&mut told.is_failed, true);
            return Ok(is_first.then(|| told.clone()));
        }
        Ok(self.end(id).map(|pending| pending.told))
    }
}

/// The peer speaks of entries that it cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("peer decided on entry {found}, expected {expected}")]
    Order { found: u64, expected: u64 },
    #[error("peer decided on entry {0}, which was not sent")]
    Unsent(u64),
    #[error("peer gave a result for entry {0} or one behind it, on which it has not decided")]
    Result(u64),
    #[error("peer says that entry {0} is in place, which was not sent whole")]
    Unfinished(u64),
    #[error("peer says that entry {0} is in place, which it refused")]
    Refused(u64),
    #[error("peer skips entry {0} for being older, which was not asked for")]
    NotAsked(u64),
    #[error("peer has committed the tree without a result for entry {0}")]
    NoResult(u64),
    #[error("peer has committed the tree before its last parcel")]
    Early,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicstripe_proto::tree::{Entry, Xattr};

    use super::*;
    use crate::tree::anchor::{Anchor, Base};

    fn told(id: u64, content: Content, parent: Option<u64>) -> Told {
        let anchor = Arc::new(Anchor::open(Base::Path("/".into()), false).unwrap());
        let xattr = Xattr { name: b"user.x".to_vec().into(), value: vec![0; 128 << 10].into() };
        let (id, parent, identity) = (EntryId(id), parent.map(EntryId), SourceIdentity::default());
        let (mtime, xattrs) = (identity.mtime, Some(vec![xattr]));
        let entry = Entry { id, parent, name: None, content, mode: 0, mtime, owner: None, xattrs, owner_names: None };
        Told::of(&mut FoundEntry { entry, location: Location::of_anchor(anchor), identity, content: None })
    }

    #[test]
    fn a_walk_waits_while_entries_without_results_have_many_attributes_but_never_for_open_directories() {
        let mut ledger = Ledger::new(usize::MAX);
        for id in 0..200 {
            ledger.tell(EntryId(id), told(id, Content::Directory, id.checked_sub(1)));
        }
        assert!(ledger.has_room(), "they can only end when the walk goes on");
        let file = || Content::File { size: 1, alone: false, digest: None };
        let files = (200..).take_while(|id| {
            let has_room = ledger.has_room();
            if has_room {
                ledger.tell(EntryId(*id), told(*id, file(), Some(199)));
            }
            has_room
        });
        let files = files.count() as u64;
        assert_eq!(files, 128, "16 MiB of 128 KiB each");
        ledger.sent(EntryId(199 + files));
        for id in (0..200 + files).map(EntryId) {
            let told = ledger.decide(id).unwrap();
            ledger.resolve(id, &told);
        }
        assert!(ledger.has_room());
        (0..200).rev().for_each(|id| ledger.end_directory(EntryId(id)));
        assert_eq!((ledger.weight + ledger.footprint, ledger.others, ledger.directories.len()), (0, 0, 0));
    }

    #[test]
    fn a_small_file_is_done_only_when_it_was_sent() {
        let mut ledger = Ledger::new(usize::MAX);
        ledger.tell(EntryId(0), told(0, Content::File { size: 1, alone: false, digest: None }, None));
        ledger.sent(EntryId(0));
        let told = ledger.decide(EntryId(0)).unwrap();
        ledger.wait_for_result(EntryId(0), told, Verdict::Create);
        assert_eq!(ledger.done(EntryId(0), 1).unwrap_err(), LedgerError::Unfinished(0));
        ledger.gone(EntryId(0));
        assert_eq!(ledger.done(EntryId(0), 1).unwrap().len(), 1);
    }

    #[test]
    fn a_walk_waits_while_entries_without_results_fill_the_receivers_memory() {
        let mut ledger = Ledger::new(64 << 10);
        let file = |id| Told { weight: 0, footprint: 4 << 10, ..told(id, Content::File { size: 1, alone: false, digest: None }, None) };
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
        assert!(!ledger.has_room(), "it waits for its result, in the receiver's memory");
        ledger.gone(EntryId(0));
        ledger.done(EntryId(0), 1).unwrap();
        assert!(ledger.has_room());
    }
}
