//! First steps of a walk into a source or a directory.

use super::*;
use crate::{
    file::{Barred, entries_of, inode_of, is_removed, most_directories},
    tree::anchor::{Base, BeneathRoot},
};

impl Walk {
    pub(super) fn begin(&mut self, source: SendSource) {
        let contents = means_contents(&source);
        let (base, leaf) = base_and_leaf(source, contents);
        let label = Location::label_of(&base, &leaf);
        let result = match self.anchor(base, false) {
            Ok(anchor) if contents => self.begin_contents(anchor),
            Ok(anchor) => self.begin_named(anchor, &leaf),
            Err(error) => Err((code_of_source(&error), error)),
        };
        if let Err((code, error)) = result {
            let text = FileError::new("send", &label, error).one_line();
            self.found.push_back(WalkItem::Failed {
                name: None,
                failure: FailedEntry {
                    name: label,
                    code,
                    text,
                },
            });
        }
    }

    fn begin_contents(&mut self, anchor: Arc<Anchor>) -> Result<(), (FailCode, io::Error)> {
        self.skip = 0;
        let failed = |error: io::Error| (FailCode::Io, error);
        let dir = anchor.dir().map_err(failed)?;
        let looked = StatEntry {
            parent: None,
            location: Location::beneath_anchor(anchor, &[]),
            stat: fstat(&*dir).map_err(|error| failed(error.into()))?,
            bytes: None,
        };
        self.begin_with(looked, &dir);
        Ok(())
    }

    fn begin_named(
        &mut self,
        anchor: Arc<Anchor>,
        leaf: &[u8],
    ) -> Result<(), (FailCode, io::Error)> {
        self.skip = leaf.len() + 1;
        if !self.top_names.insert(leaf.into()) {
            let error = io::Error::other("another source has the same name");
            return Err((FailCode::Exists, error));
        }
        let failed = |error: io::Error| (code_of_source(&error), error);
        Name::new([leaf]).map_err(|error| (FailCode::Refused, io::Error::other(error)))?;
        let dir = anchor.dir().map_err(failed)?;
        if anchor.base.hides(&dir, leaf, false) {
            return Err(failed(rustix::io::Errno::NOENT.into()));
        }
        let stat =
            statat(&*dir, leaf, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| failed(error.into()))?;
        let mut looked = StatEntry {
            parent: None,
            location: Location::beneath_anchor(anchor, leaf),
            stat,
            bytes: None,
        };
        if let Some((anchor, stat)) = self.followed(&looked.location, &stat) {
            looked.location = Location::beneath_anchor(anchor, leaf);
            looked.stat = stat;
        }
        self.begin_with(looked, &dir);
        Ok(())
    }

    fn begin_with(&mut self, looked: StatEntry, dir: &OwnedFd) {
        self.device = looked.stat.st_dev;
        let is_directory = FileType::from_raw_mode(looked.stat.st_mode) == FileType::Directory;
        if is_directory && !self.walk.recursive && matches!(self.selection, Selection::All) {
            let error = io::Error::other("it is a directory, and the copy is not recursive");
            return self.fail_in_level(&looked.location, FailCode::NotAFile, error);
        }
        self.classify(looked, dir, self.selection.clone());
    }

    /// Returns the file to which a symbolic link leads, unless it is a directory. Only
    /// non-recursive copies follow links, like cp(1).
    fn followed(&mut self, location: &Location, stat: &Stat) -> Option<(Arc<Anchor>, Stat)> {
        if self.walk.recursive || FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return None;
        }
        let anchor = self
            .anchor(location.directory.anchor.base.clone(), true)
            .ok()?;
        let file = anchor.open_at(&location.leaf, OFlags::PATH).ok()?;
        let stat = fstat(&file).ok()?;
        (FileType::from_raw_mode(stat.st_mode) != FileType::Directory).then_some((anchor, stat))
    }

    /// Returns the base directory of a source: that of the previous source if it is the same,
    /// otherwise newly opened.
    fn anchor(&mut self, base: Base, follows: bool) -> io::Result<Arc<Anchor>> {
        if let Some(anchor) = self
            .last_anchor
            .as_ref()
            .filter(|anchor| anchor.base == base && anchor.follows == follows)
        {
            return Ok(anchor.clone());
        }
        let anchor = Arc::new(Anchor::open(base, follows)?);
        self.last_anchor = Some(anchor.clone());
        self.open_anchors.push_back(Arc::downgrade(&anchor));
        if self.open_anchors.len() > most_directories(MOST_OPEN_ANCHORS)
            && let Some(oldest) = self
                .open_anchors
                .pop_front()
                .and_then(|oldest| oldest.upgrade())
        {
            oldest.release();
        }
        Ok(anchor)
    }

    pub(super) fn enter(&mut self, looked: StatEntry, dir: &OwnedFd, selection: Selection) {
        if self.is_beyond(&looked.stat) {
            let id = self.tell(looked, Content::Directory, None);
            return self.found.push_back(WalkItem::EndDirectory {
                id,
                complete: false,
            });
        }
        match self.open_directory(&looked, dir) {
            Ok((dir, stat)) => self.descend(
                StatEntry { stat, ..looked },
                dir,
                selection.within(self.walk.recursive),
            ),
            Err(error) if code_of(&error) == FailCode::SourceChanged => {
                self.fail_in_level(&looked.location, FailCode::SourceChanged, error);
            }
            Err(error) => {
                let failed = failed("read", &looked.location, FailCode::Io, error);
                let id = self.tell(looked, Content::Directory, None);
                let complete = false;
                self.found
                    .extend([failed, WalkItem::EndDirectory { id, complete }]);
            }
        }
    }

    /// Returns true if the walk does not enter a directory because of its file system.
    pub(super) fn is_beyond(&self, stat: &Stat) -> bool {
        self.walk.one_file_system && stat.st_dev != self.device
    }

    fn open_directory(&self, looked: &StatEntry, dir: &OwnedFd) -> io::Result<(OwnedFd, Stat)> {
        let opened = self.open_leaf(looked, dir, DIRECTORY)?;
        let stat = fstat(&opened)?;
        Ok((opened, stat))
    }

    fn descend(&mut self, looked: StatEntry, dir: OwnedFd, selection: Selection) {
        let (children, mut complete, error) = match selection {
            Selection::Listed(listed) => (
                listed
                    .children()
                    .map(|(leaf, selection)| Child { leaf, selection })
                    .collect(),
                false,
                None,
            ),
            Selection::All => {
                let (children, error) = children_of(&dir);
                // Its list is empty, but the user did not mean an empty directory: `--delete` would
                // empty the target.
                if children.is_empty() && error.is_none() && is_removed(&dir) {
                    let code = match looked.parent {
                        None => FailCode::NotFound,
                        Some(_) => FailCode::SourceChanged,
                    };
                    let error = io::Error::other("the directory has been removed");
                    return self.fail_in_level(&looked.location, code, error);
                }
                (children, error.is_none(), error)
            }
        };
        let xattrs = self.rules.xattrs.then(|| xattrs_of(&dir));
        let (location, stat) = (looked.location.clone(), looked.stat);
        let id = self.tell(looked, Content::Directory, xattrs);
        if let Some(error) = error {
            complete = false;
            self.found
                .push_back(failed("read", &location, FailCode::Io, error));
        }
        let (identity, directory) = (inode_of(&stat), location.as_directory());
        self.stack.push(Level {
            id,
            directory,
            dir: Some(Arc::new(dir)),
            identity,
            children: children.into_iter(),
            complete,
        });
        if let Some(above) = self
            .stack
            .len()
            .checked_sub(most_directories(MOST_OPEN_LEVELS) + 1)
        {
            self.stack[above].dir = None;
        }
    }
}

/// Returns the sorted names in a directory, and the error that ended the listing early, if any.
fn children_of(dir: &OwnedFd) -> (Vec<Child>, Option<io::Error>) {
    let mut children = Vec::new();
    let read = entries_of(dir).and_then(|mut entries| {
        entries.try_for_each(|entry| {
            children.push(Child {
                leaf: entry?.file_name().to_bytes().into(),
                selection: Selection::All,
            });
            Ok(())
        })
    });
    children.sort_unstable_by(|a, b| a.leaf.cmp(&b.leaf));
    (children, read.err().map(io::Error::from))
}

/// Returns true if the contents of a source are selected, not the directory itself.
pub(super) fn means_contents(source: &SendSource) -> bool {
    match source {
        SendSource::Path(path) => {
            matches!(split(path.as_os_str().as_bytes()).1, b"" | b"." | b"..")
        }
        SendSource::Beneath { name, contents, .. } => *contents || name.is_none(),
    }
}

/// Returns the base directory of a source, and the source's name in that directory.
fn base_and_leaf(source: SendSource, contents: bool) -> (Base, Box<[u8]>) {
    match source {
        SendSource::Path(path) if contents => (Base::Path(path), Box::default()),
        SendSource::Path(path) => {
            let (parent, leaf) = split(path.as_os_str().as_bytes());
            let parent = if parent.is_empty() { b"." } else { parent };
            (Base::Path(path_of_bytes(parent).to_owned()), leaf.into())
        }
        SendSource::Beneath { root, name, .. } if contents => {
            (Base::Beneath(BeneathRoot(root), name), Box::default())
        }
        SendSource::Beneath { root, name, .. } => {
            let leaf = name.as_ref().map_or(&[][..], Name::file_name).into();
            let components = name.iter().flat_map(Name::components);
            let above = name.as_ref().map_or(0, |name| name.components().len() - 1);
            (
                Base::Beneath(BeneathRoot(root), Name::new(components.take(above)).ok()),
                leaf,
            )
        }
    }
}

/// Splits a path after its last slash into directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    path.split_at(at)
}

/// Returns the failure code of an error on a source. A missing source is `NotFound`; a file missing
/// during the walk counts as changed.
fn code_of_source(error: &io::Error) -> FailCode {
    Barred::code_of(error).unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => FailCode::NotFound,
        io::ErrorKind::PermissionDenied => FailCode::Refused,
        _ => FailCode::Io,
    })
}
