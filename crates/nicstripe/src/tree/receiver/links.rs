//! Hard links at the receiver, and the files to which they may refer.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    rc::Rc,
};

use nicstripe_proto::{
    Name,
    tree::{Entry, EntryId, Existing, Verdict},
};
use rustix::fs::{AtFlags, Stat, linkat};

use super::{
    context::{Context, Held},
    directories::Directories,
    leaf::Leaf,
    placing::{only_adds, put_in_place, replaced},
};
use crate::file::{FileError, Inode, inode_of};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) entry: Entry,
    pub(super) leaf: Leaf,
    pub(super) to: EntryId,
    pub(super) path: Name,
    /// Verdict already sent for the link; `None` while the file itself is undecided.
    pub(super) verdict: Option<Verdict>,
}

/// Hard links that wait for their file, and the fate of the files.
pub(super) struct Links {
    context: Rc<Context>,
    /// Links that wait until their file is decided or in place, by the file's ID.
    waiting: HashMap<EntryId, Vec<(Link, Held)>>,
    /// Number of waiting links.
    count: usize,
    failed: HashSet<EntryId>,
    placed: PlacedInodes,
}

/// Set of the entries to which hard links may refer, each with the inode that the receiver placed
/// for it, so that a link cannot refer to any other file.
///
/// Stores a keyed 64-bit hash of each pair, about 16 bytes. The key is random, so a peer cannot
/// choose an entry that collides with another file.
#[derive(Debug, Default)]
struct PlacedInodes {
    seed: RandomState,
    hashes: HashSet<u64>,
}

impl Links {
    pub(super) fn new(context: Rc<Context>) -> Self {
        Self {
            context,
            waiting: HashMap::new(),
            count: 0,
            failed: HashSet::new(),
            placed: PlacedInodes::default(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.count
    }

    pub(super) fn wait(&mut self, link: Link) {
        self.count += 1;
        let held = self.context.memory.hold(0, link.entry.footprint());
        self.waiting.entry(link.to).or_default().push((link, held));
    }

    /// Removes and returns the links that wait for a file.
    pub(super) fn take(&mut self, to: EntryId) -> impl Iterator<Item = Link> + use<> {
        let links = self.waiting.remove(&to).unwrap_or_default();
        self.count -= links.len();
        links.into_iter().map(|(link, _)| link)
    }

    /// Records a file that failed, to which links cannot refer.
    pub(super) fn on_failed(&mut self, id: EntryId) {
        self.failed.insert(id);
    }

    pub(super) fn has_failed(&self, id: EntryId) -> bool {
        self.failed.contains(&id)
    }

    /// Records the inode of a file that is in place, if links to it may follow.
    pub(super) fn on_placed(&mut self, entry: &Entry, inode: Inode) {
        if entry.linked && self.context.request.rules.hard_links {
            self.on_received(entry.id, inode);
        }
    }

    /// Records the inode of a file to which links may follow.
    pub(super) fn on_received(&mut self, id: EntryId, inode: Inode) {
        let hash = self.placed.hash(id, inode);
        self.placed.hashes.insert(hash);
    }

    /// Returns the verdict for a link whose file is not in place.
    pub(super) fn foresee(
        &self,
        link: &Link,
        directories: &mut Directories,
    ) -> Result<Verdict, FileError> {
        let request = &self.context.request;
        let existing = directories
            .look(&link.leaf)
            .map_err(|error| link.leaf.error("look for", error))?;
        let existing = existing.as_ref();
        // A file that a run would replace gets another inode, which its links do not have.
        let is_linked =
            |file: &Stat| is_same(existing, file) && self.placed.contains(link.to, inode_of(file));
        let file = || directories.find_file(&link.path);
        if request.rules.dry_run && file().is_ok_and(|(.., file)| is_linked(&file)) {
            return Ok(Verdict::Same);
        }
        let verdict = self.verdict(existing);
        if verdict == Verdict::Replace && request.append_only && !request.rules.dry_run {
            return Err(only_adds(&link.leaf));
        }
        Ok(verdict)
    }

    fn verdict(&self, existing: Option<&(Existing, Stat)>) -> Verdict {
        let rules = &self.context.request.rules;
        match existing {
            None => Verdict::Create,
            Some((Existing::Directory, _)) => Verdict::Exists,
            Some(_) if rules.replace || rules.update => Verdict::Replace,
            Some(_) => Verdict::Exists,
        }
    }

    /// Creates a link to a file that is in place.
    pub(super) fn make(
        &self,
        link: &Link,
        directories: &Directories,
    ) -> Result<Verdict, FileError> {
        match self.try_make(link, directories) {
            Ok(Verdict::Replace) if self.context.request.append_only => Err(only_adds(&link.leaf)),
            made => made.map_err(|error| link.leaf.error("link", error)),
        }
    }

    fn try_make(&self, link: &Link, directories: &Directories) -> io::Result<Verdict> {
        let (from, name, file) = directories.find_file(&link.path)?;
        let inode = inode_of(&file);
        if !self.placed.contains(link.to, inode) {
            return Err(io::Error::other("this copy did not place the file"));
        }
        let existing = link.leaf.look()?;
        if is_same(existing.as_ref(), &file) {
            return Ok(Verdict::Same);
        }
        let verdict = self.verdict(existing.as_ref());
        match verdict {
            Verdict::Create => {}
            Verdict::Replace if !self.context.request.append_only => {}
            _ => return Ok(verdict),
        }
        let dir = link.leaf.parent.open()?;
        let make = |hidden: &OsStr| linkat(&from, &name, &dir, hidden, AtFlags::empty());
        // The path may lead to another file since it was looked up.
        let check = |_: &OwnedFd, stat: &Stat| match inode_of(stat) == inode {
            true => Ok(()),
            false => Err(replaced()),
        };
        let hidden = self.context.hidden_name(&link.leaf.name);
        let replace = verdict == Verdict::Replace;
        put_in_place(&dir, &hidden, &link.leaf.name, replace, make, check)?;
        Ok(verdict)
    }
}

impl PlacedInodes {
    fn contains(&self, id: EntryId, inode: Inode) -> bool {
        self.hashes.contains(&self.hash(id, inode))
    }

    fn hash(&self, id: EntryId, inode: Inode) -> u64 {
        self.seed.hash_one((id.0, inode))
    }
}

/// Returns true if the existing name is already a hard link to the file.
fn is_same(existing: Option<&(Existing, Stat)>, file: &Stat) -> bool {
    existing.is_some_and(|(_, stat)| inode_of(stat) == inode_of(file))
}
