//! Directories at the receiver: locating the entries in them, and completing them.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry as MapEntry},
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use nicstripe_proto::{
    FailCode, Name,
    name::escaped,
    tree::{Content, ENTRY_FOOTPRINT, Entry, EntryId, Existing, Verdict},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, mkdirat, statat},
    process::geteuid,
};

use super::{
    commit_group::sync_file_system,
    context::{Context, Held},
    dirs::{RootDir, TreeDir},
    leaf::Leaf,
    outbox::Outbox,
    placing::replaced,
    spelling::{Spelling, Spellings},
    surplus::{AnnouncedNames, Deleter},
};
use crate::tree::halt::{Halt, breach};
use crate::{
    file::{Attributes, FileError, check_sought, entries_of, inode_of},
    text::shown_path,
    tree::{inode_hash::inode_hash, metadata::node_of, options::EntryOutcome},
};

/// Directories of the target that receive entries.
pub(super) struct Directories {
    context: Rc<Context>,
    /// Target of the top-level entries, determined by the first one.
    top: Option<Top>,
    unfinished: HashMap<EntryId, Directory>,
    /// Number of announced directories that the sender has not ended.
    open: usize,
    /// One directory on each file system in the tree, by device number.
    devices: BTreeMap<u64, Arc<TreeDir>>,
    /// Announced names in unfinished directories; only used if surplus is deleted.
    announced: AnnouncedNames,
    spellings: Spellings,
}

/// Destination of the top-level entries of a tree.
#[derive(Debug)]
struct Top {
    ground: Arc<RootDir>,
    dir: Arc<TreeDir>,
    /// Local name of the single top-level entry, if the target determines it, and the sender's name
    /// for that entry, once announced.
    own: Option<(OsString, Option<Option<Vec<u8>>>)>,
    /// True if the root directory was created for this tree.
    is_new: bool,
    /// Names of the top-level entries announced so far.
    announced: HashSet<Option<Vec<u8>>>,
}

/// Received directory with unfinished entries.
#[derive(Debug)]
struct Directory {
    parent: Option<EntryId>,
    /// Local directory; `None` if the directory cannot be received.
    dir: Option<Arc<TreeDir>>,
    verdict: Verdict,
    attributes: Attributes,
    pending: usize,
    /// True if the sender could read the whole directory; `None` until it announces the end of the
    /// directory.
    ended: Option<bool>,
    failed: bool,
    /// True if another source may have written into the directory. No file in it is then deleted as
    /// surplus.
    is_shared: bool,
    _held: Held,
}

pub(super) enum Spot {
    /// Name in a directory of the target.
    Leaf(Leaf),
    /// The root directory of the tree.
    Whole(Arc<TreeDir>, Verdict),
    /// No destination: the parent directory cannot be received, which was already reported.
    Blocked,
    /// No destination: the name is not allowed.
    Refused(Leaf, FileError),
}

impl Directories {
    pub(super) fn new(context: Rc<Context>) -> Self {
        Self {
            context,
            top: None,
            unfinished: HashMap::new(),
            open: 0,
            devices: BTreeMap::new(),
            announced: AnnouncedNames::default(),
            spellings: Spellings::default(),
        }
    }

    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Returns the number of directories that the sender has not ended.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Finds the destination of an entry, and counts the entry in its directory. Ends the transfer
    /// if the sender violates the protocol.
    pub(super) fn locate(&mut self, entry: &Entry) -> Result<Spot, Halt> {
        let Some(parent) = entry.parent else {
            return self.locate_top(entry);
        };
        let Some(name) = &entry.name else {
            breach!("peer sent an entry without a name in a directory");
        };
        let directory = self
            .unfinished
            .get_mut(&parent)
            .filter(|directory| directory.ended.is_none());
        let Some(directory) = directory else {
            breach!("peer sent an entry in entry {parent}, which is not an open directory");
        };
        if name.components().len() != 1 {
            breach!("peer sent an entry name with several components");
        }
        directory.pending += 1;
        let Some(dir) = &directory.dir else {
            return Ok(Spot::Blocked);
        };
        let announced = name.file_name();
        Ok(Spot::of(Leaf {
            parent: dir.clone(),
            name: OsStr::from_bytes(announced).to_owned(),
            announced: Some(announced.to_vec()),
            is_source: false,
        }))
    }

    fn locate_top(&mut self, entry: &Entry) -> Result<Spot, Halt> {
        if entry
            .name
            .as_ref()
            .map_or(entry.content != Content::Directory, |name| {
                name.components().len() != 1
            })
        {
            breach!("peer sent a top-level entry without a valid name");
        }
        let announced = entry.name.as_ref().map(|name| name.file_name().to_vec());
        let top = match self.top.take() {
            Some(top) => top,
            None => self.prepare()?,
        };
        let top = self.top.insert(top);
        let name = match (&mut top.own, &announced) {
            (Some((_, Some(_))), _) => breach!("peer sent several top-level entries, expected one"),
            (Some((own, first)), _) => {
                *first = Some(announced.clone());
                own.clone()
            }
            (None, Some(name)) => OsStr::from_bytes(name).to_owned(),
            (None, None) => {
                let verdict = if top.is_new {
                    Verdict::Create
                } else {
                    Verdict::Same
                };
                return Ok(Spot::Whole(TreeDir::ground(&top.ground, true), verdict));
            }
        };
        Ok(Spot::of(Leaf {
            parent: top.dir.clone(),
            name,
            announced,
            is_source: true,
        }))
    }

    fn prepare(&mut self) -> Result<Top, Halt> {
        let context = self.context.clone();
        let request = &context.request;
        let target = request.target.as_ref();
        let own = target.filter(|name| request.as_name && !request.root.is_directory(name));
        let opened = match own {
            Some(name) => {
                let above = name.components().len() - 1;
                self.open_or_make(Name::new(name.components().take(above)).ok().as_ref())
            }
            None => self.open_or_make(target),
        };
        let (ground, is_new) =
            opened.map_err(|error| FileError::new("open directory", shown_path(target), error))?;
        let dir = TreeDir::ground(&ground, false);
        if request.rules.delete {
            self.announced.enter(&dir);
        }
        self.note_device(&dir);
        Ok(Top {
            ground,
            dir,
            own: own.map(|name| (OsStr::from_bytes(name.file_name()).to_owned(), None)),
            is_new,
            announced: HashSet::new(),
        })
    }

    fn open_or_make(&self, name: Option<&Name>) -> io::Result<(Arc<RootDir>, bool)> {
        let root = &self.context.request.root;
        match root.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.context.request.rules.dry_run {
                    return Ok((RootDir::new(None, root.logins()), true));
                }
                name.map_or(Ok(()), |name| root.make_directory(name))?;
                Ok((
                    RootDir::new(Some(root.open_directory(name)?), root.logins()),
                    true,
                ))
            }
            opened => Ok((RootDir::new(Some(opened?), root.logins()), false)),
        }
    }

    /// Records an announced name so that it is not deleted as surplus; `leaf` is `None` for the
    /// root directory. Returns true if another source may write to the same directory.
    pub(super) fn note_announced(&mut self, entry: &Entry, leaf: Option<&Leaf>) -> bool {
        let deletes = self.context.request.rules.delete;
        if let Some(leaf) = leaf.filter(|_| deletes) {
            self.announced.insert(&leaf.parent, &leaf.name);
        }
        match (entry.parent, &mut self.top) {
            (Some(parent), _) => self
                .unfinished
                .get(&parent)
                .is_some_and(|parent| parent.is_shared),
            (None, Some(top)) => {
                let name = entry.name.as_ref().map(|name| name.file_name().to_vec());
                let is_mixed = !top.announced.is_empty()
                    && (name.is_none()
                        || top.announced.contains(&None)
                        || top.announced.contains(&name));
                // Only deletion needs the names.
                if deletes {
                    top.announced.insert(name);
                }
                is_mixed
            }
            (None, None) => true,
        }
    }

    /// Like [`Directories::look`], but finds nothing in a directory that this copy has created.
    ///
    /// Objects that another program puts there meanwhile are not replaced: new entries other than
    /// directories are renamed to free names only.
    pub(super) fn look_unless_new(&mut self, leaf: &Leaf) -> io::Result<Option<(Existing, Stat)>> {
        if leaf.parent.is_new() && leaf.parent.has_exact_names(&*leaf.parent.open()?) {
            return Ok(None);
        }
        self.look(leaf)
    }

    /// Returns type and metadata of the object under an entry's name, if any.
    ///
    /// # Errors
    ///
    /// Also if the file system ignores case and the object has another name.
    pub(super) fn look(&mut self, leaf: &Leaf) -> io::Result<Option<(Existing, Stat)>> {
        let found = match leaf.look() {
            // A dry run has not created the directory.
            Err(error)
                if self.context.request.rules.dry_run
                    && error.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            found => found?,
        };
        let Some((_, stat)) = &found else {
            return Ok(None);
        };
        let dir = leaf.parent.open()?;
        if !leaf.parent.has_exact_names(&dir)
            && let Some(other) =
                self.spellings
                    .other(&dir, leaf.parent.key, &leaf.name, inode_of(stat))?
        {
            let why = match other {
                Spelling::Listed(other) => {
                    // It stays, also with `--delete`.
                    self.announced.insert(&leaf.parent, &other);
                    let other = escaped(other.as_bytes());
                    format!("this disk ignores case, and has it as \"{other}\"")
                }
                Spelling::Unknown => {
                    "this disk ignores case, and lists it under another name".to_owned()
                }
            };
            return Err(io::Error::other(why));
        }
        Ok(found)
    }

    /// Creates a directory, or makes the existing one writable for its owner.
    pub(super) fn make(
        &self,
        entry: &Entry,
        leaf: &Leaf,
        verdict: Verdict,
    ) -> io::Result<Arc<TreeDir>> {
        let request = &self.context.request;
        let dir = leaf
            .parent
            .child(&leaf.name, leaf.announced.as_deref(), leaf.is_source)
            .ok_or(io::ErrorKind::InvalidFilename)?;
        if request.rules.dry_run {
            return Ok(dir);
        }
        if verdict == Verdict::Create {
            mkdirat(
                &*leaf.parent.open()?,
                &leaf.name,
                Mode::from_raw_mode(FILL_BITS | (entry.mode & 0o777)),
            )?;
            dir.set_new();
        }
        let opened = dir.open()?;
        let stat = fstat(&*opened)?;
        // A user who may write to the parent can put a directory of root under the new name, which
        // would be given away.
        let may_give = request.rules.owners && geteuid().is_root();
        if verdict == Verdict::Create && may_give && entries_of(&opened)?.next().is_some() {
            return Err(replaced());
        }
        let may_change = request.rules.modes && !request.append_only;
        if verdict == Verdict::Same && may_change && stat.st_mode & FILL_BITS != FILL_BITS {
            // If this is not permitted, writing into the directory fails later.
            let _ = fchmod(
                &*opened,
                Mode::from_raw_mode(stat.st_mode & 0o7777 | FILL_BITS),
            );
        }
        Ok(dir)
    }

    pub(super) fn enter(
        &mut self,
        entry: &Entry,
        dir: Arc<TreeDir>,
        verdict: Verdict,
        is_shared: bool,
    ) -> Result<(), Halt> {
        self.note_device(&dir);
        if self.context.request.rules.delete {
            self.announced.enter(&dir);
        }
        let attributes = self.attributes(entry, verdict, &dir);
        self.insert(entry, Some(dir), verdict, attributes, is_shared);
        if self.open > MOST_OPEN_DIRECTORIES || self.context.memory.has_too_many_attributes() {
            breach!("peer exceeded the limit of open directories or attributes");
        }
        Ok(())
    }

    /// Skips all entries of a directory that cannot be received.
    pub(super) fn block(&mut self, entry: &Entry, verdict: Verdict) {
        self.insert(entry, None, verdict, Attributes::default(), true);
    }

    fn insert(
        &mut self,
        entry: &Entry,
        dir: Option<Arc<TreeDir>>,
        verdict: Verdict,
        attributes: Attributes,
        is_shared: bool,
    ) {
        let footprint = dir.as_ref().map_or(ENTRY_FOOTPRINT, |_| entry.footprint());
        let directory = Directory {
            parent: entry.parent,
            failed: dir.is_none(),
            dir,
            verdict,
            _held: self.context.memory.hold(attributes.weight(), footprint),
            attributes,
            pending: 0,
            ended: None,
            is_shared,
        };
        self.open += 1;
        self.unfinished.insert(entry.id, directory);
    }

    /// Returns the attributes to set on a directory once it is complete.
    ///
    /// An existing directory keeps attributes that were not requested, and all of them if the
    /// sender may only append.
    fn attributes(&self, entry: &Entry, verdict: Verdict, dir: &Arc<TreeDir>) -> Attributes {
        let request = &self.context.request;
        if verdict == Verdict::Create {
            // A set-group-ID parent passes its group on, if the sender's mode bits are not
            // requested.
            // A default ACL of the parent is also that of the new directory.
            self.context
                .attributes_of_new(entry, dir)
                .privileged(request.rules.modes && request.privileged)
        } else if request.append_only {
            Attributes::default()
        } else {
            self.context.attributes_of_same(entry, true)
        }
    }

    fn note_device(&mut self, dir: &Arc<TreeDir>) {
        if dir.open().is_ok()
            && let Some(device) = dir.device()
        {
            self.devices.entry(device).or_insert_with(|| dir.clone());
        }
    }

    /// Processes the sender's end of a directory, which is `complete` if the sender could read all
    /// of it.
    pub(super) fn end(
        &mut self,
        id: EntryId,
        complete: bool,
        out: &mut Outbox,
    ) -> Result<(), Halt> {
        let Some(directory) = self
            .unfinished
            .get_mut(&id)
            .filter(|directory| directory.ended.is_none())
        else {
            breach!("peer ended entry {id}, which is not an open directory");
        };
        directory.ended = Some(complete);
        self.open -= 1;
        self.finish_complete(id, out)
    }

    /// Marks an entry as finished, and finishes its parent directory if that was the last one.
    pub(super) fn settle(
        &mut self,
        parent: Option<EntryId>,
        failed: bool,
        out: &mut Outbox,
    ) -> Result<(), Halt> {
        let Some(parent) = parent else { return Ok(()) };
        self.release(parent, failed);
        self.finish_complete(parent, out)
    }

    fn release(&mut self, parent: EntryId, failed: bool) {
        if let Some(directory) = self.unfinished.get_mut(&parent) {
            directory.pending = directory.pending.saturating_sub(1);
            directory.failed |= failed;
        }
    }

    /// Finishes complete directories, from `first` up to the root.
    fn finish_complete(&mut self, first: EntryId, out: &mut Outbox) -> Result<(), Halt> {
        let mut next = Some(first);
        while let Some(id) = next
            && let MapEntry::Occupied(directory) = self.unfinished.entry(id)
            && directory.get().ended.is_some()
            && directory.get().pending == 0
        {
            let directory = directory.remove();
            next = directory.parent;
            let failed = self.finish(id, &directory, out)?;
            if let Some(parent) = next {
                self.release(parent, failed);
            }
        }
        Ok(())
    }

    /// Finishes one directory: deletes surplus files and sets attributes. Returns true if the
    /// directory itself failed.
    fn finish(
        &mut self,
        id: EntryId,
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<bool, Halt> {
        let Some(dir) = &directory.dir else {
            return Ok(true);
        };
        let request = &self.context.request;
        let rules = &request.rules;
        let is_searched = directory.verdict == Verdict::Same && directory.ended == Some(true);
        if rules.delete {
            if is_searched && !directory.failed && !directory.is_shared && !request.append_only {
                let mut deleter = Deleter {
                    filters: &request.filters,
                    out,
                    dry_run: rules.changes_nothing(),
                    device: 0,
                };
                deleter.run(dir, &self.announced)?;
            }
            self.announced.leave(dir);
        }
        let shown = Name::new(dir.announced()).ok();
        let is_new = directory.verdict == Verdict::Create;
        if !rules.dry_run
            && let Err(error) = set_attributes(dir, &directory.attributes)
        {
            let name = shown_path(shown.as_ref());
            let error = FileError::new("set the attributes of", name, error);
            out.fail(is_new.then_some(id), shown, &error)?;
            return Ok(true);
        }
        if !is_new {
            out.tell(shown, EntryOutcome::Skipped(Verdict::Same))?;
            return Ok(false);
        }
        if !rules.dry_run {
            out.done(id);
        }
        out.report.directories += 1;
        out.tell(
            shown,
            EntryOutcome::Copied {
                verdict: Verdict::Create,
                bytes: 0,
            },
        )?;
        Ok(false)
    }

    /// Finds the file of the tree to which a hard link refers by the sender's `path`. Returns its
    /// directory, its name in that directory and its metadata.
    pub(super) fn find_file(&self, path: &Name) -> io::Result<(OwnedFd, OsString, Stat)> {
        check_sought(path)?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let top = self.top.as_ref().ok_or_else(missing)?;
        let mut components: Vec<OsString> = path
            .components()
            .map(|component| OsStr::from_bytes(component).to_owned())
            .collect();
        match &top.own {
            Some((own, Some(Some(_)))) => {
                *components.first_mut().ok_or_else(missing)? = own.clone();
            }
            Some((own, _)) => components.insert(0, own.clone()),
            None => {}
        }
        let name = components.pop().ok_or_else(missing)?;
        let dir = top
            .ground
            .open_directory(&components.into_iter().collect::<PathBuf>())?;
        let stat = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_node = node_of(kind, &stat).is_some_and(|node| {
            self.context.request.rules.nodes && self.context.may_have(node.kind)
        });
        if kind != FileType::RegularFile && !is_node {
            return Err(io::Error::other("its target is not a regular file"));
        }
        Ok((dir, name, stat))
    }

    /// Syncs all file systems of the tree.
    ///
    /// This includes unchanged files: a killed attempt or another program may have written them
    /// without a sync, and `Committed` promises that they are on disk.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.devices
            .values()
            .try_for_each(|dir| sync_file_system(&*dir.open_to_sync()?))
    }

    pub(super) fn close(&self) {
        if let Some(top) = &self.top {
            top.ground.close_all();
        }
    }
}

impl Spot {
    fn of(leaf: Leaf) -> Self {
        match leaf.check() {
            Ok(()) => Self::Leaf(leaf),
            Err(error) => Self::Refused(leaf, error),
        }
    }
}

/// Fails for a directory that is the target itself.
pub(super) fn check_outside(entry: &Entry, leaf: &Leaf) -> Result<(), FileError> {
    let target = || leaf.parent.source_inode().and_then(inode_hash);
    if entry.inode_hash.is_none() || entry.inode_hash != target() {
        return Ok(());
    }
    let text = "it is the target, and a directory cannot be copied into itself";
    Err(leaf
        .error("copy", io::Error::other(text))
        .with_code(FailCode::NotAFile))
}

fn set_attributes(dir: &Arc<TreeDir>, attributes: &Attributes) -> io::Result<()> {
    let opened = dir.open()?;
    if attributes.xattrs.is_none() && !attributes.differ(&fstat(&*opened)?) {
        return Ok(());
    }
    attributes.apply(&*opened)
}

/// Permission bits that a directory needs while the receiver creates entries in it.
const FILL_BITS: u32 = 0o700;

/// Maximum number of directories that the sender has announced and not ended. A depth-first walk
/// has at most one per component of a name.
const MOST_OPEN_DIRECTORIES: usize = 1024;
