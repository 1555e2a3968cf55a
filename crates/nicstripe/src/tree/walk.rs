//! Walk of a source tree, depth first and in the order of names.
//!
//! Memory grows with the depth and with the names in one directory. At most [`MOST_OPEN_LEVELS`] +
//! [`MOST_OPEN_ANCHORS`] descriptors are open. Symbolic links beneath a source are never followed.

mod enter;
pub(super) mod selection;
mod share;

pub(crate) use self::share::listing;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    sync::{Arc, Weak},
    vec,
};

use nicstripe_proto::{
    FailCode, Name, SourceIdentity,
    message::WalkRules,
    tree::{Content, Entry, EntryId, LargeFile, Owner, OwnerNames, PACKED_MOST, TreeRules, Xattr},
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};

use self::{
    selection::Selection,
    share::{Sharing, pieces_of},
};
use super::{
    acl,
    anchor::{Anchor, Directory, Location, path_of_bytes},
    filter::Filters,
    inode_hash::inode_hash,
    metadata::node_of,
    options::FailedEntry,
    owners::Owners,
};
use crate::file::{
    FileError, Root, SOURCE_FLAGS, has_hole, identity_of, inode_of, may_have_holes, owner_of,
    tells_no_sizes, too_much_made, xattrs_of, xattrs_of_symlink,
};

#[derive(Debug, Clone)]
pub(crate) enum SendSource {
    /// Path that the local user typed; a trailing slash or `.` selects the contents of the
    /// directory.
    Path(PathBuf),
    Beneath {
        root: Arc<Root>,
        /// Path of the source beneath the root; `None` selects the contents of the root itself.
        name: Option<Name>,
        /// True to select the contents of the directory instead of the directory itself.
        contents: bool,
    },
}

#[derive(Debug)]
pub(super) enum WalkItem {
    /// File, directory or link to announce to the receiver.
    Entry(Box<FoundEntry>),
    /// End of a directory; for `complete` see [`nicstripe_proto::tree::Record::EndDirectory`].
    EndDirectory { id: EntryId, complete: bool },
    /// Socket, FIFO or device that is not copied.
    Special { name: Name },
    /// Large file with pieces in the share of the walk.
    Large { name: Name, large: LargeFile },
    /// Entry that cannot be sent; `name` is `None` if the name itself cannot be sent.
    Failed {
        name: Option<Name>,
        failure: FailedEntry,
    },
    /// One step of counting for a share, which announces nothing.
    Counted,
}

/// Entry found by a walk, with the state that the sender keeps for it.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) entry: Entry,
    pub(super) location: Location,
    pub(super) identity: SourceIdentity,
    /// Content of a file whose reported size is meaningless; the walk has read it to its end.
    /// `None` for other files.
    pub(super) content: Option<Vec<u8>>,
}

/// Maximum number of directory levels kept open, given 1024 descriptors or more. Higher levels are
/// reopened when the walk returns to them.
const MOST_OPEN_LEVELS: usize = 64;

/// Maximum number of anchors kept open while entries beneath them wait; others are reopened on
/// demand.
const MOST_OPEN_ANCHORS: usize = 64;

/// Iterator over the entries of all sources of a tree copy.
pub(super) struct Walk {
    rules: TreeRules,
    walk: WalkRules,
    filters: Filters,
    sources: vec::IntoIter<SendSource>,
    selection: Selection,
    /// Share of the files; `None` for all.
    sharing: Option<Sharing>,
    /// Walk that counts the files for the share; `None` once it has.
    counting: Option<Box<Walk>>,
    /// True if several sources may share a target directory. No source then knows all entries of
    /// that directory.
    is_merging: bool,
    top_names: HashSet<Box<[u8]>>,
    /// Length in bytes of the prefix to remove from a path to make it relative to the source.
    skip: usize,
    device: u64,
    /// Last device examined, and true if the sizes of its files are meaningless.
    sizes: Option<(u64, bool)>,
    next_id: u64,
    stack: Vec<Level>,
    found: VecDeque<WalkItem>,
    names_of_files: HashMap<(u64, u64), FirstName>,
    owners: Owners,
    last_anchor: Option<Arc<Anchor>>,
    open_anchors: VecDeque<Weak<Anchor>>,
}

struct Level {
    id: EntryId,
    directory: Arc<Directory>,
    /// Open directory; `None` while it is closed because the walk is many levels below it.
    dir: Option<Arc<OwnedFd>>,
    identity: (u64, u64),
    children: vec::IntoIter<Child>,
    complete: bool,
}

/// Name in a directory, and the part of its contents that is selected.
struct Child {
    leaf: Box<[u8]>,
    selection: Selection,
}

/// Entry announced for the first name of a file with several hard links.
struct FirstName {
    id: EntryId,
    path: Name,
    /// Number of further names of the file that the walk has not found yet.
    left: usize,
}

/// File found by the walk, with its metadata; not yet classified.
struct StatEntry {
    parent: Option<EntryId>,
    location: Location,
    stat: Stat,
    /// Content of the file, if the walk had to read it.
    bytes: Option<Vec<u8>>,
}

impl Walk {
    pub(super) fn new(
        rules: &TreeRules,
        mut walk: WalkRules,
        filters: Filters,
        sources: Vec<SendSource>,
    ) -> Self {
        let is_merging = sources.len() > 1 && sources.iter().any(enter::means_contents);
        Self {
            rules: rules.clone(),
            selection: Selection::of(walk.only.take().as_deref()),
            walk,
            filters,
            sharing: None,
            counting: None,
            sources: sources.into_iter(),
            is_merging,
            top_names: HashSet::new(),
            skip: 0,
            device: 0,
            sizes: None,
            next_id: 0,
            stack: Vec::new(),
            found: VecDeque::new(),
            names_of_files: HashMap::new(),
            owners: Owners::default(),
            last_anchor: None,
            open_anchors: VecDeque::new(),
        }
    }

    fn step(&mut self) -> Option<()> {
        match self.stack.last_mut() {
            Some(level) => match level.children.next() {
                Some(Child { leaf, selection }) => self.visit(&leaf, selection),
                None => self.leave(),
            },
            None => {
                let source = self.sources.next()?;
                self.begin(source);
            }
        }
        Some(())
    }

    fn visit(&mut self, leaf: &[u8], selection: Selection) {
        let Some((parent, dir, directory)) = self.current() else {
            return;
        };
        let location = Location {
            directory,
            leaf: leaf.into(),
        };
        if let Err(error) = location.name() {
            return self.fail_in_level(&location, FailCode::Refused, io::Error::other(error));
        }
        let is_listed = matches!(selection, Selection::All);
        let is_hidden = location.directory.anchor.base.hides(&dir, leaf, is_listed);
        let stat = match statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
            _ if is_hidden && !is_listed => {
                return self.fail_in_level(
                    &location,
                    missing(&selection),
                    rustix::io::Errno::NOENT.into(),
                );
            }
            Ok(stat) => stat,
            // The part file of a copy that has ended meanwhile.
            Err(_) if is_hidden => return,
            Err(_) if self.is_excluded(&location, false) => return,
            Err(error) => return self.fail_in_level(&location, missing(&selection), error.into()),
        };
        if self.is_excluded(
            &location,
            FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        ) {
            return;
        }
        let looked = StatEntry {
            parent: Some(parent),
            location,
            stat,
            bytes: None,
        };
        // Another peer's copy may be under way: its part file is no failure of this one.
        if is_hidden {
            return self.leave_out(&looked);
        }
        self.classify(looked, &dir, selection);
    }

    fn classify(&mut self, looked: StatEntry, dir: &OwnedFd, selection: Selection) {
        let kind = FileType::from_raw_mode(looked.stat.st_mode);
        if kind != FileType::Directory && selection.needs_directory() {
            let error = io::Error::other("it is not a directory, but an entry in it was requested");
            self.fail_in_level(&looked.location, FailCode::NotFound, error);
            if !selection.is_selected() {
                return;
            }
        }
        if kind != FileType::Directory && (self.walk.only_directories || !self.is_in_share(&looked))
        {
            return;
        }
        match kind {
            FileType::Directory => self.enter(looked, dir, selection),
            FileType::RegularFile => self.find_file(looked, dir),
            FileType::Symlink => self.find_symlink(looked, dir),
            kind if self.rules.nodes => self.find_node(looked, kind),
            _ if looked.parent.is_none() => {
                let error = io::Error::other("not a file, directory or symbolic link");
                self.fail_in_level(&looked.location, FailCode::NotAFile, error);
            }
            // Beneath a directory everything has a name.
            _ => self.leave_out(&looked),
        }
    }

    /// Returns true unless a file belongs to another share than this walk.
    fn is_in_share(&mut self, looked: &StatEntry) -> bool {
        let Some(sharing) = &mut self.sharing else {
            return true;
        };
        let names = match self.walk.hard_links {
            true => usize::try_from(looked.stat.st_nlink).unwrap_or(usize::MAX),
            false => 1,
        };
        let (path, stat) = (looked.location.path(), &looked.stat);
        let Some(pieces) = pieces_of(stat).filter(|_| self.walk.pieces && names == 1) else {
            return sharing.takes(&path, stat, names);
        };
        let pieces = sharing.pieces(&path, stat, pieces);
        let mtime = identity_of(stat).mtime;
        let large = LargeFile::new(stat.st_size as u64, mtime, stat.st_mode & 0o7777, pieces);
        let name = looked.location.name().ok().flatten();
        if let (Some(name), Some(large)) = (name, large.filter(LargeFile::has_pieces)) {
            self.found.push_back(WalkItem::Large { name, large });
        }
        false
    }

    fn find_file(&mut self, looked: StatEntry, dir: &OwnedFd) {
        let stat = looked.stat;
        if let Some(content) = self.other_name_of(&stat) {
            self.tell(looked, content, None);
            return;
        }
        if self.tells_no_sizes(&stat, dir) {
            return self.find_made_file(looked, dir);
        }
        // Opened only for metadata that `stat` does not give.
        let is_large = stat.st_size as u64 > PACKED_MOST;
        let is_asked = self.rules.xattrs || (!is_large && may_have_holes(&stat));
        let file = is_asked
            .then(|| self.open_leaf(&looked, dir, SOURCE_FLAGS))
            .and_then(Result::ok);
        let xattrs = file.as_ref().map(xattrs_of);
        let alone =
            is_large || (may_have_holes(&stat) && file.is_some_and(|file| has_hole(file, &stat)));
        self.note_names(&looked);
        self.tell(
            looked,
            Content::File {
                size: stat.st_size as u64,
                alone,
                digest: None,
            },
            xattrs,
        );
    }

    /// Reads and announces a file that the kernel generates on read, such as one in `/proc`. Its
    /// size is unknown before.
    fn find_made_file(&mut self, looked: StatEntry, dir: &OwnedFd) {
        let opened = self
            .open_leaf(&looked, dir, SOURCE_FLAGS)
            .map_err(|error| (code_of(&error), error));
        match opened.and_then(|file| read_to_end(file).map_err(|error| (FailCode::Io, error))) {
            Ok(bytes) => {
                self.note_names(&looked);
                let content = Content::File {
                    size: bytes.len() as u64,
                    alone: false,
                    digest: None,
                };
                let bytes = Some(bytes);
                self.tell(StatEntry { bytes, ..looked }, content, None);
            }
            Err((code, error)) => self.fail_in_level(&looked.location, code, error),
        }
    }

    /// Returns true if the file system reports meaningless file sizes in this directory.
    fn tells_no_sizes(&mut self, stat: &Stat, dir: &OwnedFd) -> bool {
        match self.sizes {
            Some((device, tells_no_sizes)) if device == stat.st_dev => tells_no_sizes,
            // A mount point that is a file lies on another file system than its directory; it
            // counts as a regular one.
            _ => {
                let is_beside = fstat(dir).is_ok_and(|found| found.st_dev == stat.st_dev);
                let found = is_beside && tells_no_sizes(dir);
                self.sizes = Some((stat.st_dev, found));
                found
            }
        }
    }

    fn find_node(&mut self, looked: StatEntry, kind: FileType) {
        let stat = looked.stat;
        let content = match (self.other_name_of(&stat), node_of(kind, &stat)) {
            (Some(content), _) => content,
            (None, Some(node)) => {
                self.note_names(&looked);
                Content::Node(node)
            }
            (None, None) => return self.leave_out(&looked),
        };
        self.tell(looked, content, None);
    }

    /// Queues the name of a special file, or of an unfinished copy, that is not copied.
    fn leave_out(&mut self, looked: &StatEntry) {
        let name = looked.location.name().ok().flatten();
        self.found
            .extend(name.map(|name| WalkItem::Special { name }));
    }

    /// Records a file with several hard links whose entry is announced next.
    fn note_names(&mut self, looked: &StatEntry) {
        let stat = &looked.stat;
        // The field's type differs between architectures.
        let names = usize::try_from(stat.st_nlink).unwrap_or(usize::MAX);
        if self.walk.hard_links
            && names > 1
            && let Ok(Some(path)) = looked.location.name()
        {
            let id = EntryId(self.next_id);
            self.names_of_files.insert(
                inode_of(stat),
                FirstName {
                    id,
                    path,
                    left: names - 1,
                },
            );
        }
    }

    /// Returns the content of a hard link to the file's first name, if that was announced.
    fn other_name_of(&mut self, stat: &Stat) -> Option<Content> {
        let key = inode_of(stat);
        let first = self.names_of_files.get_mut(&key)?;
        let content = Content::HardLink {
            to: first.id,
            path: first.path.clone(),
        };
        first.left = first.left.saturating_sub(1);
        if first.left == 0 {
            self.names_of_files.remove(&key);
        }
        Some(content)
    }

    fn find_symlink(&mut self, looked: StatEntry, dir: &OwnedFd) {
        match readlinkat(dir, &*looked.location.leaf, Vec::new()) {
            Ok(target) => {
                let xattrs = self
                    .rules
                    .xattrs
                    .then(|| xattrs_of_symlink(dir, &looked.location.leaf));
                self.tell(
                    looked,
                    Content::Symlink {
                        target: target.into_bytes(),
                    },
                    xattrs,
                );
            }
            Err(error) => {
                self.fail_in_level(&looked.location, code_of(&error.into()), error.into());
            }
        }
    }

    /// Assigns an ID to the entry and queues it. Then queues the failure to read its attributes, if
    /// any.
    fn tell(
        &mut self,
        looked: StatEntry,
        content: Content,
        xattrs: Option<io::Result<Vec<Xattr>>>,
    ) -> EntryId {
        let id = EntryId(self.next_id);
        self.next_id += 1;
        let identity = identity_of(&looked.stat);
        let (xattrs, error) = match xattrs.filter(|_| self.rules.xattrs).transpose() {
            Ok(xattrs) => (xattrs, None),
            Err(error) => (None, Some(error)),
        };
        let operation = "read the attributes of";
        let failed = error.map(|error| failed(operation, &looked.location, FailCode::Io, error));
        let owner = self.rules.owners.then(|| owner_of(&looked.stat));
        let linked = matches!(content, Content::File { .. } | Content::Node(_))
            && self.names_of_files.contains_key(&inode_of(&looked.stat));
        let is_read = content == Content::Directory && !self.is_beyond(&looked.stat);
        let inode_hash = is_read.then(|| inode_hash(inode_of(&looked.stat)));
        let entry = Entry {
            id,
            parent: looked.parent,
            name: Name::new([&*looked.location.leaf]).ok(),
            content,
            mode: looked.stat.st_mode & 0o7777,
            mtime: identity.mtime,
            owner,
            owner_names: self.names_of(owner, xattrs.as_deref()),
            xattrs,
            linked,
            inode_hash: inode_hash.flatten(),
        };
        self.found.push_back(WalkItem::Entry(Box::new(FoundEntry {
            entry,
            location: looked.location,
            identity,
            content: looked.bytes,
        })));
        self.found.extend(failed);
        id
    }

    /// Returns the names of an entry's owner, and of the users and groups in its ACLs.
    fn names_of(&mut self, owner: Option<Owner>, xattrs: Option<&[Xattr]>) -> Option<OwnerNames> {
        if self.rules.numeric_ids {
            return None;
        }
        let names = owner.and_then(|owner| self.owners.names_of(owner));
        let names = OwnerNames {
            acl: acl::names_of(xattrs.unwrap_or_default(), &mut self.owners),
            ..names.unwrap_or_default()
        };
        (names != OwnerNames::default()).then_some(names)
    }

    fn leave(&mut self) {
        if let Some(level) = self.stack.pop() {
            self.found.push_back(WalkItem::EndDirectory {
                id: level.id,
                complete: level.complete
                    && !self.is_merging
                    && self.sharing.is_none()
                    && !self.walk.only_directories,
            });
        }
    }

    /// Returns the directory being walked, reopening it if it was closed.
    fn current(&mut self) -> Option<(EntryId, Arc<OwnedFd>, Arc<Directory>)> {
        let level = self.stack.last_mut()?;
        let (id, directory) = (level.id, level.directory.clone());
        if let Some(dir) = &level.dir {
            return Some((id, dir.clone(), directory));
        }
        match reopen(&directory, level.identity) {
            Ok(dir) => Some((id, level.dir.insert(Arc::new(dir)).clone(), directory)),
            Err(error) => {
                level.children = Vec::new().into_iter();
                let location = Location {
                    directory,
                    leaf: Box::default(),
                };
                self.fail_in_level(&location, FailCode::SourceChanged, error);
                None
            }
        }
    }

    fn is_excluded(&self, location: &Location, is_directory: bool) -> bool {
        self.filters.excludes(
            path_of_bytes(location.path().get(self.skip..).unwrap_or_default()),
            is_directory,
        )
    }

    fn open_leaf(&self, looked: &StatEntry, dir: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        let location = &looked.location;
        if location.leaf.is_empty() || location.directory.anchor.follows {
            return location.open(flags);
        }
        let flags = flags | OFlags::NOFOLLOW;
        Ok(openat(dir, &*location.leaf, flags, Mode::empty())?)
    }

    /// Queues the failure of an entry, and marks its directory as incomplete.
    fn fail_in_level(&mut self, location: &Location, code: FailCode, error: io::Error) {
        if let Some(level) = self.stack.last_mut() {
            level.complete = false;
        }
        self.found.push_back(failed("send", location, code, error));
    }
}

impl Iterator for Walk {
    type Item = WalkItem;

    fn next(&mut self) -> Option<WalkItem> {
        if self.count() {
            return Some(WalkItem::Counted);
        }
        while self.found.is_empty() {
            self.step()?;
        }
        self.found.pop_front()
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Reads a file whose reported size is meaningless. Fails if it is no longer a regular file.
fn read_to_end(file: OwnedFd) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no longer a regular file"));
    }
    let mut bytes = Vec::new();
    // One page beyond the limit: some files in /proc accept no other lengths.
    File::from(file)
        .take(PACKED_MOST + 4096)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PACKED_MOST {
        Err(too_much_made())
    } else {
        Ok(bytes)
    }
}

fn reopen(directory: &Directory, identity: (u64, u64)) -> io::Result<OwnedFd> {
    let dir = directory.anchor.open_at(&directory.path, DIRECTORY)?;
    let stat = fstat(&dir)?;
    if inode_of(&stat) != identity {
        return Err(io::Error::other("replaced by another directory"));
    }
    Ok(dir)
}

fn failed(
    operation: &'static str,
    location: &Location,
    code: FailCode,
    error: io::Error,
) -> WalkItem {
    let label = location.label();
    let text = FileError::new(operation, &label, error).one_line();
    WalkItem::Failed {
        name: location.name().ok().flatten(),
        failure: FailedEntry {
            name: label,
            code,
            text,
        },
    }
}

/// Returns the failure code of a missing name, which depends on whether the directory or the user's
/// list contained the name.
fn missing(selection: &Selection) -> FailCode {
    match selection {
        Selection::All => FailCode::SourceChanged,
        Selection::Listed(_) => FailCode::NotFound,
    }
}

/// Returns the failure code of an error on a file that existed when its directory was read.
pub(super) fn code_of(error: &io::Error) -> FailCode {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::INVAL | Errno::NXIO) => {
            FailCode::SourceChanged
        }
        _ => FailCode::Io,
    }
}

#[cfg(test)]
mod tests;
