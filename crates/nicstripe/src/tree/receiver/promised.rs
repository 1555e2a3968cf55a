//! Check that the sender announces all requested sources and listed names.
//!
//! Follows the sender's walk: a parent directory of listed names is tracked from its announcement
//! to its end. Memory grows with the listed names announced in directories that have not ended.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::{
    FailCode, Name,
    message::{TreeSource, WalkRules},
    name::escaped,
    tree::{Content, Entry, EntryId},
};

use super::{
    agreed::{Agreed, Disagreement},
    leaf::Leaf,
};
use crate::tree::walk::selection::{Listed, Selection};
use crate::{file::FileError, text::shown_path, tree::filter::Filters};

/// Requested entries that the sender must announce.
pub(crate) struct Promised {
    /// Requested sources that the sender has not announced yet.
    sources: Vec<Source>,
    /// Listed names of each source that the sender must announce.
    selection: Selection,
    recursive: bool,
    one_file_system: bool,
    /// True if files may belong to other shares.
    is_share: bool,
    /// True if large files are left to the caller.
    takes_pieces: bool,
    /// Limits of what the user has agreed to; `None` if it was requested here.
    agreed: Option<Arc<Agreed>>,
    /// Announced directories that contain listed names and have not ended.
    directories: HashMap<EntryId, Entered>,
    /// First listed name that the sender had not announced at the end of its directory.
    missing: Option<String>,
}

struct Source {
    /// Name of the source's top-level entry; `None` if the contents of the source were requested.
    top: Option<Vec<u8>>,
    label: String,
}

/// Announced directory that contains listed names and has not ended.
struct Entered {
    /// Path of the directory relative to the source; empty for the source itself.
    path: PathBuf,
    listed: Arc<Listed>,
    /// Listed names in the directory that were already announced.
    seen: HashSet<Box<[u8]>>,
}

impl Promised {
    pub(crate) fn new(sources: &[TreeSource], walk: &WalkRules) -> Self {
        let source = |source: &TreeSource| {
            let top = source
                .name
                .as_ref()
                .filter(|_| !source.content)
                .map(|name| name.file_name().to_vec());
            Source {
                top,
                label: shown_path(source.name.as_ref()),
            }
        };
        Self {
            selection: Selection::of(walk.only.as_deref()),
            recursive: walk.recursive,
            one_file_system: walk.one_file_system,
            is_share: walk.share.is_some() || walk.only_directories,
            takes_pieces: walk.pieces,
            ..Self::all_of(sources.iter().map(source).collect())
        }
    }

    /// Returns the items to which a user has agreed, as top-level entries.
    pub(crate) fn agreed(agreed: Arc<Agreed>) -> Self {
        let source = |name: Vec<u8>| Source {
            label: escaped(&name),
            top: Some(name),
        };
        Self {
            agreed: Some(agreed.clone()),
            ..Self::all_of(agreed.names().map(source).collect())
        }
    }

    /// Checks that an entry is within what the user has agreed to.
    pub(super) fn admit(&self, entry: &Entry, leaf: &Leaf) -> Result<(), FileError> {
        let Some(agreed) = &self.agreed else {
            return Ok(());
        };
        let path = leaf.shown().ok_or(Disagreement::Name);
        let admitted = path.and_then(|path| agreed.admit_entry(&path, &entry.content));
        admitted.map_err(|why| {
            leaf.error("receive", why.into())
                .with_code(FailCode::Refused)
        })
    }

    pub(super) const fn takes_pieces(&self) -> bool {
        self.takes_pieces
    }

    /// Returns sources with all that is in them.
    fn all_of(sources: Vec<Source>) -> Self {
        Self {
            sources,
            selection: Selection::of(None),
            recursive: true,
            one_file_system: false,
            is_share: false,
            takes_pieces: false,
            agreed: None,
            directories: HashMap::new(),
            missing: None,
        }
    }

    /// Records an announced entry. Returns false for an entry that was not requested: a top-level
    /// one that is no source or was announced before, or one next to listed names.
    pub(super) fn announced(&mut self, entry: &Entry, filters: &Filters) -> bool {
        let own = entry.name.as_ref().map(Name::file_name);
        let (path, selection) = match entry.parent {
            None => {
                let Some(index) = self
                    .sources
                    .iter()
                    .position(|source| source.top.as_deref() == own)
                else {
                    return false;
                };
                self.sources.remove(index);
                (PathBuf::new(), self.selection.clone())
            }
            Some(parent) => {
                let (Some(directory), Some(own)) = (self.directories.get_mut(&parent), own) else {
                    return true;
                };
                let Some(selection) = directory.listed.child(own) else {
                    return false;
                };
                directory.seen.insert(own.into());
                (directory.path.join(OsStr::from_bytes(own)), selection)
            }
        };
        let is_directory = entry.content == Content::Directory;
        if let Selection::Listed(listed) = if is_directory {
            selection.within(self.recursive)
        } else {
            selection
        } {
            let entered = Entered {
                path,
                listed,
                seen: HashSet::new(),
            };
            if is_directory {
                self.directories.insert(entry.id, entered);
            } else {
                self.check(&entered, filters);
            }
        }
        true
    }

    pub(super) fn ended(&mut self, id: EntryId, filters: &Filters) {
        let Some(directory) = self.directories.remove(&id) else {
            return;
        };
        // The sender does not enter other file systems, and only the sender knows their boundaries.
        let is_left_out = self.one_file_system
            && !directory.path.as_os_str().is_empty()
            && directory.seen.is_empty();
        if !is_left_out {
            self.check(&directory, filters);
        }
    }

    /// Records the first listed name of a directory that was neither announced nor excluded by the
    /// local filters.
    fn check(&mut self, directory: &Entered, filters: &Filters) {
        let is_excluded = |path: &Path| {
            [false, true]
                .into_iter()
                .any(|is_directory| filters.excludes(path, is_directory))
        };
        if self.missing.is_none() {
            let unseen = directory
                .listed
                .children()
                .filter(|(own, _)| !directory.seen.contains(own));
            let mut paths = unseen.map(|(own, _)| directory.path.join(OsStr::from_bytes(&own)));
            self.missing = paths
                .find(|path| !is_excluded(path))
                .map(|path| escaped(path.as_os_str().as_bytes()));
        }
    }

    /// Returns the first source that was not announced, otherwise the first missing listed name;
    /// `None` if nothing is missing.
    pub(super) fn missing(&self) -> Option<&str> {
        let source = self.sources.first().map(|source| source.label.as_str());
        source
            .or(self.missing.as_deref())
            .filter(|_| !self.is_share)
    }
}
