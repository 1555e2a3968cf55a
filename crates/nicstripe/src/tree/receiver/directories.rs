//! Directories at the receiver: locating the entries in them, and completing them.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    sync::Arc,
};

use nicstripe_proto::{
    FailCode, Name,
    name::escaped,
    tree::{Content, ENTRY_FOOTPRINT, Entry, EntryId, Existing, Verdict, decide},
};
use rustix::{
    fs::{Mode, Stat, fchmod, fstat, mkdirat},
    process::geteuid,
};

use super::{
    Halt, Leaf, MOST_OPEN_DIRECTORIES, MOST_WEIGHT, Receiver,
    dirs::{RootDir, TreeDir},
    placing::replaced,
    surplus::Deleter,
};
use crate::{
    file::{Attributes, FileError, entries_of, inode_of, is_hidden_in, is_hidden_name},
    text::shown_path,
    tree::{
        inode_hash::inode_hash,
        options::{EntryOutcome, cannot_make_directory},
    },
};

/// Destination of the top-level entries of a tree.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) ground: Arc<RootDir>,
    dir: Arc<TreeDir>,
    /// Local name of the single top-level entry, if the target determines it, and the sender's name
    /// for that entry, once announced.
    pub(super) own: Option<(OsString, Option<Option<Vec<u8>>>)>,
    /// True if the root directory was created for this tree.
    is_new: bool,
    /// Names of the top-level entries announced so far.
    announced: HashSet<Option<Vec<u8>>>,
}

/// Received directory with unfinished entries.
#[derive(Debug)]
pub(super) struct Directory {
    parent: Option<EntryId>,
    /// Local directory; `None` if the directory cannot be received.
    dir: Option<Arc<TreeDir>>,
    verdict: Verdict,
    attributes: Attributes,
    footprint: usize,
    /// Number of unfinished entries in the directory.
    pub(super) pending: usize,
    /// True if the sender could read the whole directory; `None` until it announces the end of the
    /// directory.
    ended: Option<bool>,
    /// True if an entry in the directory failed.
    failed: bool,
    /// True if another source may have written into the directory. No file in it is then deleted as
    /// surplus.
    is_shared: bool,
}

pub(super) enum Spot {
    /// Name in a directory of the target.
    Leaf(Leaf),
    /// The root directory of the tree.
    Whole,
    /// No destination: the parent directory cannot be received, which was already reported.
    Blocked,
    /// No destination: the name is not allowed.
    Refused(Option<Name>, FileError),
}

impl Receiver {
    /// Finds the destination of an entry. Ends the transfer if the sender violates the protocol.
    pub(super) fn locate(&mut self, entry: &Entry) -> Result<Spot, Halt> {
        let Some(parent) = entry.parent else {
            return self.locate_top(entry);
        };
        let Some(name) = &entry.name else {
            return Err(Halt::protocol(
                "peer sent an entry without a name in a directory",
            ));
        };
        let directory = self
            .directories
            .get(&parent)
            .filter(|directory| directory.ended.is_none());
        let Some(directory) = directory else {
            return Err(Halt::protocol(format!(
                "peer sent an entry in entry {parent}, which is not an open directory"
            )));
        };
        if name.components().len() != 1 {
            return Err(Halt::protocol(
                "peer sent an entry name with several components",
            ));
        }
        match &directory.dir {
            Some(dir) => {
                let announced = name.file_name();
                Ok(self.allow(Leaf {
                    parent: dir.clone(),
                    name: OsStr::from_bytes(announced).to_owned(),
                    announced: Some(announced.to_vec()),
                    is_source: false,
                }))
            }
            None => Ok(Spot::Blocked),
        }
    }

    fn locate_top(&mut self, entry: &Entry) -> Result<Spot, Halt> {
        if entry
            .name
            .as_ref()
            .map_or(entry.content != Content::Directory, |name| {
                name.components().len() != 1
            })
        {
            return Err(Halt::protocol(
                "peer sent a top-level entry without a valid name",
            ));
        }
        let announced = entry.name.as_ref().map(|name| name.file_name().to_vec());
        let top = match self.top.take() {
            Some(top) => top,
            None => self.prepare()?,
        };
        let top = self.top.insert(top);
        let leaf = |name: OsString| Leaf {
            parent: top.dir.clone(),
            name,
            announced: announced.clone(),
            is_source: true,
        };
        match (&mut top.own, &announced) {
            (Some((_, Some(_))), _) => Err(Halt::protocol(
                "peer sent several top-level entries, expected one",
            )),
            (Some((own, first)), _) => {
                *first = Some(announced.clone());
                let leaf = leaf(own.clone());
                Ok(self.allow(leaf))
            }
            (None, Some(name)) => {
                let leaf = leaf(OsStr::from_bytes(name).to_owned());
                Ok(self.allow(leaf))
            }
            (None, None) => Ok(Spot::Whole),
        }
    }

    fn prepare(&mut self) -> Result<Top, Halt> {
        let (root, target) = (self.request.root.clone(), self.request.target.clone());
        let own = target
            .as_ref()
            .filter(|name| self.request.as_name && !root.is_directory(name));
        let opened = match own {
            Some(name) => {
                let above = name.components().len() - 1;
                self.open_or_make(Name::new(name.components().take(above)).ok().as_ref())
            }
            None => self.open_or_make(target.as_ref()),
        };
        let shown = || shown_path(target.as_ref());
        let (ground, is_new) =
            opened.map_err(|error| FileError::new("open directory", shown(), error))?;
        let own = own.map(|name| (OsStr::from_bytes(name.file_name()).to_owned(), None));
        let dir = TreeDir::ground(&ground, false);
        if self.request.rules.delete {
            self.announced.enter(&dir);
        }
        self.note_device(&dir);
        Ok(Top {
            ground,
            dir,
            own,
            is_new,
            announced: HashSet::new(),
        })
    }

    fn open_or_make(&self, name: Option<&Name>) -> io::Result<(Arc<RootDir>, bool)> {
        match self.request.root.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.request.rules.dry_run {
                    return Ok((RootDir::new(None), true));
                }
                name.map_or(Ok(()), |name| self.request.root.make_directory(name))?;
                Ok((
                    RootDir::new(Some(self.request.root.open_directory(name)?)),
                    true,
                ))
            }
            opened => Ok((RootDir::new(Some(opened?)), false)),
        }
    }

    /// Rejects names of part files and journals, and paths that are too long.
    fn allow(&self, leaf: Leaf) -> Spot {
        let shown = leaf.shown();
        let refused = |text: &str| {
            Some(
                leaf.error("receive", io::Error::other(text.to_owned()))
                    .with_code(FailCode::Refused),
            )
        };
        // A directory that a dry run has not made hides nothing.
        let dir = leaf.parent.open().ok();
        let is_hidden = match &dir {
            Some(dir) if !leaf.parent.has_exact_names(dir) => {
                is_hidden_in(dir, &leaf.name).unwrap_or(true)
            }
            _ => is_hidden_name(leaf.name.as_bytes()),
        };
        let error = if is_hidden {
            refused("names like this are reserved for partial files")
        } else if !leaf.parent.has_room_for(&leaf.name) {
            refused("its path is too long or too deep")
        } else {
            None
        };
        match error {
            Some(error) => Spot::Refused(shown, error),
            None => Spot::Leaf(leaf),
        }
    }

    /// Records an announced name so that it is not deleted as surplus. Returns true if another
    /// source may write to the same directory.
    pub(super) fn note_announced(&mut self, entry: &Entry, leaf: Option<&Leaf>) -> bool {
        if self.request.rules.delete
            && let Some(leaf) = leaf
        {
            self.announced.insert(&leaf.parent, &leaf.name);
        }
        match (entry.parent, &mut self.top) {
            (Some(parent), _) => self
                .directories
                .get(&parent)
                .is_some_and(|parent| parent.is_shared),
            (None, Some(top)) => {
                let name = entry.name.as_ref().map(|name| name.file_name().to_vec());
                let is_mixed = !top.announced.is_empty()
                    && (name.is_none()
                        || top.announced.contains(&None)
                        || top.announced.contains(&name));
                // Only deletion needs the names.
                if self.request.rules.delete {
                    top.announced.insert(name);
                }
                is_mixed
            }
            (None, None) => true,
        }
    }

    /// Processes the entry of the root directory itself, which the sender announces if its contents
    /// were requested.
    pub(super) fn on_whole(&mut self, entry: Entry) -> Result<(), Halt> {
        let is_shared = self.note_announced(&entry, None);
        let Some(top) = &self.top else { return Ok(()) };
        let verdict = if top.is_new {
            Verdict::Create
        } else {
            Verdict::Same
        };
        let dir = TreeDir::ground(&top.ground, true);
        self.enter(entry, dir, verdict, is_shared)
    }

    pub(super) fn on_directory(&mut self, entry: Entry, leaf: Leaf) -> Result<(), Halt> {
        let is_shared = self.note_announced(&entry, Some(&leaf));
        let target = || leaf.parent.source_inode().and_then(inode_hash);
        if entry.inode_hash.is_some() && entry.inode_hash == target() {
            let text = "it is the target, and a directory cannot be copied into itself";
            return Err(Halt::Failed(
                leaf.error("copy", io::Error::other(text))
                    .with_code(FailCode::NotAFile),
            ));
        }
        let shown = leaf.shown();
        let existing = match self.look(&leaf) {
            Ok(existing) => existing.map(|(existing, _)| existing),
            Err(error) => return self.refuse(entry, shown, leaf.error("look for", error)),
        };
        let verdict = decide(&self.request.rules, &entry, existing.as_ref());
        if verdict == Verdict::Exists {
            let text = cannot_make_directory(&leaf.text());
            self.out.note_failure(shown, FailCode::NotAFile, text)?;
            return self.pass_over(entry, verdict);
        }
        // Paths that are too long were rejected before.
        let Some(dir) = leaf
            .parent
            .child(&leaf.name, leaf.announced.as_deref(), leaf.is_source)
        else {
            return Ok(());
        };
        match self.make(&entry, &leaf, &dir, verdict) {
            Ok(()) => self.enter(entry, dir, verdict, is_shared),
            Err(error) => self.refuse(entry, shown, leaf.error("make directory", error)),
        }
    }

    /// Creates a directory, or makes the existing one writable for its owner.
    fn make(
        &self,
        entry: &Entry,
        leaf: &Leaf,
        dir: &Arc<TreeDir>,
        verdict: Verdict,
    ) -> io::Result<()> {
        if self.request.rules.dry_run {
            return Ok(());
        }
        if verdict == Verdict::Create {
            mkdirat(
                &*leaf.parent.open()?,
                &leaf.name,
                Mode::from_raw_mode(FILL_BITS | (entry.mode & 0o777)),
            )?;
        }
        let opened = dir.open()?;
        let stat = fstat(&*opened)?;
        // A user who may write to the parent can put a directory of root under the new name, which
        // would be given away.
        let may_give = self.request.rules.owners && geteuid().is_root();
        if verdict == Verdict::Create && may_give && entries_of(&opened)?.next().is_some() {
            return Err(replaced());
        }
        let may_change = self.request.rules.modes && !self.request.append_only;
        if verdict == Verdict::Same && may_change && stat.st_mode & FILL_BITS != FILL_BITS {
            // If this is not permitted, writing into the directory fails later.
            let _ = fchmod(
                &*opened,
                Mode::from_raw_mode(stat.st_mode & 0o7777 | FILL_BITS),
            );
        }
        Ok(())
    }

    /// Starts receiving a directory: sends its verdict and tracks its entries.
    fn enter(
        &mut self,
        entry: Entry,
        dir: Arc<TreeDir>,
        verdict: Verdict,
        is_shared: bool,
    ) -> Result<(), Halt> {
        self.note_device(&dir);
        self.out.decide(entry.id, verdict);
        if self.request.rules.delete {
            self.announced.enter(&dir);
        }
        let attributes = self.directory_attributes(&entry, verdict, &dir);
        self.insert(&entry, Some(dir), verdict, attributes, is_shared);
        if self.open_directories > MOST_OPEN_DIRECTORIES || self.weight > MOST_WEIGHT {
            return Err(Halt::protocol(
                "peer exceeded the limit of open directories or attributes",
            ));
        }
        Ok(())
    }

    /// Returns the attributes to set on a directory once it is complete.
    ///
    /// An existing directory keeps attributes that were not requested, and all of them if the
    /// sender may only append.
    fn directory_attributes(
        &self,
        entry: &Entry,
        verdict: Verdict,
        dir: &Arc<TreeDir>,
    ) -> Attributes {
        let rules = &self.request.rules;
        if verdict == Verdict::Create {
            // A set-group-ID parent passes its group on, if the sender's mode bits are not
            // requested.
            // A default ACL of the parent is also that of the new directory.
            Attributes::of_new(entry, rules, dir.creation_mask(self.umask))
                .privileged(rules.modes && self.request.privileged)
                .counted_by(&self.out.lost)
        } else if self.request.append_only {
            Attributes::default()
        } else {
            Attributes::of_same(entry, rules, true)
                .privileged(self.request.privileged)
                .counted_by(&self.out.lost)
        }
    }

    /// Records an open directory. One without `dir` cannot be received, and its entries are skipped.
    pub(super) fn insert(
        &mut self,
        entry: &Entry,
        dir: Option<Arc<TreeDir>>,
        verdict: Verdict,
        attributes: Attributes,
        is_shared: bool,
    ) {
        let footprint = dir.as_ref().map_or(ENTRY_FOOTPRINT, |_| entry.footprint());
        self.weight += attributes.weight();
        self.footprint += footprint;
        self.open_directories += 1;
        let directory = Directory {
            parent: entry.parent,
            failed: dir.is_none(),
            dir,
            verdict,
            attributes,
            footprint,
            pending: 0,
            ended: None,
            is_shared,
        };
        self.directories.insert(entry.id, directory);
    }

    fn note_device(&mut self, dir: &Arc<TreeDir>) {
        if dir.open().is_ok()
            && let Some(device) = dir.device()
        {
            self.devices.entry(device).or_insert_with(|| dir.clone());
        }
    }

    pub(super) fn on_end_directory(&mut self, id: EntryId, complete: bool) -> Result<(), Halt> {
        let Some(directory) = self
            .directories
            .get_mut(&id)
            .filter(|directory| directory.ended.is_none())
        else {
            let what = format!("peer ended entry {id}, which is not an open directory");
            return Err(Halt::protocol(what));
        };
        directory.ended = Some(complete);
        self.open_directories -= 1;
        self.finish_directories(id)
    }

    /// Marks an entry as finished, and finishes its parent directory if that was the last one.
    pub(super) fn settle(&mut self, parent: Option<EntryId>, failed: bool) -> Result<(), Halt> {
        let Some(parent) = parent else { return Ok(()) };
        if let Some(directory) = self.directories.get_mut(&parent) {
            directory.pending = directory.pending.saturating_sub(1);
            directory.failed |= failed;
        }
        self.finish_directories(parent)
    }

    /// Finishes complete directories, from `first` up to the root.
    fn finish_directories(&mut self, first: EntryId) -> Result<(), Halt> {
        let mut next = Some(first);
        while let Some(id) = next {
            let is_done =
                |directory: &Directory| directory.ended.is_some() && directory.pending == 0;
            if !self.directories.get(&id).is_some_and(is_done) {
                return Ok(());
            }
            let Some(directory) = self.directories.remove(&id) else {
                return Ok(());
            };
            next = directory.parent;
            let failed = self.finish_directory(id, directory)?;
            if let Some(parent) = next.and_then(|parent| self.directories.get_mut(&parent)) {
                parent.pending = parent.pending.saturating_sub(1);
                parent.failed |= failed;
            }
        }
        Ok(())
    }

    /// Finishes one directory: deletes surplus files and sets attributes. Returns true if the
    /// directory itself failed.
    fn finish_directory(&mut self, id: EntryId, directory: Directory) -> Result<bool, Halt> {
        self.weight -= directory.attributes.weight();
        self.footprint -= directory.footprint;
        let Some(dir) = &directory.dir else {
            return Ok(true);
        };
        let is_searched = directory.verdict == Verdict::Same && directory.ended == Some(true);
        let rules = &self.request.rules;
        if rules.delete {
            if is_searched && !directory.failed && !directory.is_shared && !self.request.append_only
            {
                let mut deleter = Deleter {
                    filters: &self.request.filters,
                    out: &mut self.out,
                    dry_run: rules.dry_run,
                    device: 0,
                };
                deleter.run(dir, &self.announced)?;
            }
            self.announced.leave(dir);
        }
        let shown = Name::new(dir.announced()).ok();
        let is_new = directory.verdict == Verdict::Create;
        if !self.request.rules.dry_run
            && let Err(error) = self.set_directory_attributes(dir, &directory.attributes)
        {
            let name = shown_path(shown.as_ref());
            let error = FileError::new("set the attributes of", name, error);
            self.out.fail(is_new.then_some(id), shown, &error)?;
            return Ok(true);
        }
        if !is_new {
            self.out.tell(shown, EntryOutcome::Skipped(Verdict::Same))?;
            return Ok(false);
        }
        if !self.request.rules.dry_run {
            self.out.done(id);
        }
        self.out.report.directories += 1;
        self.out.tell(
            shown,
            EntryOutcome::Copied {
                verdict: Verdict::Create,
                bytes: 0,
            },
        )?;
        Ok(false)
    }

    fn set_directory_attributes(
        &self,
        dir: &Arc<TreeDir>,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let opened = dir.open()?;
        if attributes.xattrs.is_none() && !attributes.differ(&fstat(&*opened)?) {
            return Ok(());
        }
        attributes.apply(&*opened)
    }

    /// Translates a path of the sender into a local directory, relative to the root directory, and
    /// a name in it.
    pub(super) fn local_path(&self, path: &Name) -> Option<(std::path::PathBuf, OsString)> {
        let top = self.top.as_ref()?;
        let mut components: Vec<OsString> = path
            .components()
            .map(|component| OsStr::from_bytes(component).to_owned())
            .collect();
        match &top.own {
            Some((own, Some(Some(_)))) => *components.first_mut()? = own.clone(),
            Some((own, _)) => components.insert(0, own.clone()),
            None => {}
        }
        let name = components.pop()?;
        Some((components.into_iter().collect(), name))
    }

    /// Returns type and metadata of the object under an entry's name, if there is one.
    ///
    /// # Errors
    ///
    /// Also if the file system ignores case and the object has another name.
    pub(super) fn look(&mut self, leaf: &Leaf) -> io::Result<Option<(Existing, Stat)>> {
        let dir = match leaf.parent.open() {
            // A dry run has not created the directory.
            Err(error) if self.request.rules.dry_run && error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            dir => dir?,
        };
        let found = super::files::look_at(&dir, &leaf.name)?;
        if let Some((_, stat)) = &found
            && !leaf.parent.has_exact_names(&dir)
            && let Some(other) =
                self.spellings
                    .other(&dir, leaf.parent.key, &leaf.name, inode_of(stat))?
        {
            // It stays, also with `--delete`.
            self.announced.insert(&leaf.parent, &other);
            let other = escaped(other.as_bytes());
            let why = format!("this disk ignores case, and has it as \"{other}\"");
            return Err(io::Error::other(why));
        }
        Ok(found)
    }
}

/// Permission bits that a directory needs while the receiver creates entries in it.
const FILL_BITS: u32 = 0o700;
