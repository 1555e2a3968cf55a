//! Options and report of a tree copy.

use nicstripe_proto::{
    FailCode, Name,
    message::WalkRules,
    tree::{LargeFile, Share, TreeRules, Verdict},
};

use crate::file::options::CopyOptions;

/// Options of a tree copy. The default copies files and symbolic links with their modification
/// times and replaces nothing.
///
/// Files with the same size and modification time at the target are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Copy directories recursively. Without it a directory counts as a failure.
    pub recursive: bool,
    /// Replace only files that are older than the source's. Takes precedence over
    /// [`CopyOptions::replace`].
    pub update: bool,
    /// Compare files of equal size by BLAKE3 instead of their modification times: both ends read
    /// all of them.
    pub checksum: bool,
    /// Preserve owners and groups, by name or by `numeric_ids`, if the receiver has the rights.
    pub owners: bool,
    /// Preserve the numeric IDs of owners, of groups, and of those in ACLs.
    ///
    /// Without it the receiver maps names to its own IDs, and keeps the ID of an unknown name; root
    /// stays root.
    pub numeric_ids: bool,
    /// Preserve extended attributes and ACLs.
    pub xattrs: bool,
    /// Preserve FIFOs, socket files and devices. Devices require that the receiver runs as root and
    /// grants this peer [`special_modes`](crate::trust::PeerOptions::special_modes).
    pub nodes: bool,
    /// Preserve hard links. Memory grows with the number of files that have several names.
    pub hard_links: bool,
    /// Delete files at the target that the source does not have, in directories of the source.
    /// Skips excluded files and directories that could not be read completely.
    pub delete: bool,
    /// Create and replace nothing: only delete what [`delete`](Self::delete) does. Otherwise the copy is a
    /// dry run.
    pub only_delete: bool,
    /// Report what would be done, without changing anything.
    pub dry_run: bool,
    /// Copy only directories on the file system of each source.
    pub one_file_system: bool,
    /// Exclude filters in the syntax of gitignore(5), in order; a leading `!` re-includes. A
    /// pattern with a slash is anchored at each source.
    pub filters: Vec<String>,
    /// Copy only these paths, relative to the source, and their parent directories. Directories are
    /// copied with their contents if `recursive`.
    pub files_from: Option<Vec<Name>>,
    /// Copy only one share of the files, see [`Share`]. Each share makes all directories.
    pub share: Option<Share>,
    /// Copy only directories, with their metadata.
    pub only_directories: bool,
    /// Leave files of more than 1 GiB to the caller: [`TreeReport::large`] has those pieces of them that are
    /// in the [`share`](Self::share). Files with several names are not left if their hard links are
    /// preserved.
    pub pieces: bool,
    /// Copy a single source to the target's name itself instead of into it, unless that is an existing
    /// directory.
    pub as_name: bool,
    /// Emit an [`Event::Entry`](crate::Event::Entry) for each entry that is copied, deleted or
    /// fails. The transfer waits for the reader of these events.
    pub list: bool,
    /// Options of each file. [`CopyOptions::preserve`] also preserves permission bits.
    pub files: CopyOptions,
}

/// File or directory of the daemon that a tree copy fetches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TreeSource {
    /// Name below the daemon's root; `None` for the root itself, whose content is copied.
    pub name: Option<Name>,
    /// True to copy only the content of the directory.
    pub content_only: bool,
}

impl TreeSource {
    /// Returns a file, or a directory with its name.
    pub const fn named(name: Name) -> Self {
        Self {
            name: Some(name),
            content_only: false,
        }
    }

    /// Returns the content of a directory; `None` is the daemon's root.
    pub const fn content_of(name: Option<Name>) -> Self {
        Self {
            name,
            content_only: true,
        }
    }
}

/// Outcome of one entry of a tree copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryOutcome {
    /// The entry was copied, or would be in a dry run.
    Copied {
        /// Verdict that caused the copy: [`Verdict::Create`] or [`Verdict::Replace`].
        verdict: Verdict,
        /// Size of the file in bytes, 0 for other types.
        bytes: u64,
    },
    /// The entry was not sent: it is unchanged at the target, or newer there.
    Skipped(Verdict),
    /// The entry was skipped: it is a socket, a FIFO or a device.
    Special,
    /// The entry was deleted at the target, or would be in a dry run.
    Deleted,
    /// The entry could not be copied or deleted.
    Failed {
        /// Kind of failure of the entry.
        code: FailCode,
        /// Error message in one line, escaped.
        text: String,
    },
}

impl EntryOutcome {
    /// Returns the identifier of the outcome in machine-readable output.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Copied {
                verdict: Verdict::Replace,
                ..
            } => "replaced",
            Self::Copied { .. } => "copied",
            Self::Skipped(Verdict::Newer) => "newer",
            Self::Skipped(_) => "unchanged",
            Self::Special => "special",
            Self::Deleted => "deleted",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Entry of a tree copy that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FailedEntry {
    /// Path relative to the source or target, escaped.
    pub name: String,
    /// Kind of failure of the entry.
    #[cfg_attr(feature = "serde", serde(serialize_with = "by_word"))]
    pub code: FailCode,
    /// Error message in one line, escaped.
    pub text: String,
}

impl FailedEntry {
    /// Returns the failure of an entry: its path, the kind, and the message in one line, both texts
    /// escaped.
    pub const fn new(name: String, code: FailCode, text: String) -> Self {
        Self { name, code, text }
    }
}

/// Result of a tree copy: counts of entries, and the first failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TreeReport {
    /// Number of regular files copied.
    pub files: u64,
    /// Size of the copied files in bytes.
    pub bytes: u64,
    /// Number of directories created.
    pub directories: u64,
    /// Number of symbolic links created.
    pub symlinks: u64,
    /// Number of FIFOs, socket files and devices created.
    pub nodes: u64,
    /// Number of hard links created to files that were copied or already present.
    pub hard_links: u64,
    /// Number of files, symbolic links and hard links unchanged at the target.
    pub unchanged: u64,
    /// Number of files skipped because the target's is newer.
    pub newer: u64,
    /// Number of files and directories deleted at the target.
    pub deleted: u64,
    /// Number of sockets, FIFOs and devices of the source that were skipped.
    pub special: u64,
    /// Number of files, directories and links stored without all requested attributes: the file
    /// system cannot keep modes, owners or extended attributes, or the sender may not set
    /// set-user-ID and set-group-ID bits and root-only attributes
    /// ([`PeerOptions::special_modes`](crate::trust::PeerOptions::special_modes)).
    pub stripped: u64,
    /// Number of entries that failed.
    pub failed: u64,
    /// Number of failures because a source changed or vanished while it was read; included in
    /// `failed`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub changed: u64,
    /// First 1000 failures of the tree copy.
    pub failures: Vec<FailedEntry>,
    /// Large files that were left to the caller, by their names relative to the target, with the pieces
    /// that are in the share.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub large: Vec<(Name, LargeFile)>,
}

#[cfg(feature = "serde")]
fn by_word<S: serde::Serializer>(code: &FailCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.word())
}

/// Maximum number of failures listed in a report; further ones are only counted.
pub(crate) const MOST_FAILURES: usize = 1000;

impl TreeOptions {
    pub(crate) fn rules(&self) -> TreeRules {
        TreeRules {
            // A delta or in-place copy replaces the target.
            replace: self.files.replace || self.files.delta || self.files.in_place,
            update: self.update,
            checksum: self.checksum,
            modes: self.files.preserve,
            owners: self.owners,
            numeric_ids: self.numeric_ids,
            xattrs: self.xattrs,
            nodes: self.nodes,
            hard_links: self.hard_links,
            delete: self.delete || self.only_delete,
            dry_run: self.dry_run || self.only_delete,
            only_delete: self.only_delete && !self.dry_run,
            filters: self.filters.clone(),
        }
    }

    pub(crate) fn walk(&self) -> WalkRules {
        WalkRules {
            recursive: self.recursive,
            hard_links: self.hard_links,
            one_file_system: self.one_file_system,
            only: self.files_from.clone(),
            allow_changing: self.files.allow_changing,
            compress: self.files.compresses(),
            share: self.share,
            pieces: self.pieces && self.share.is_some(),
            only_directories: self.only_directories,
        }
    }
}

impl TreeReport {
    /// Counts a failure, and adds it to the list unless the list is full.
    pub(crate) fn fail(&mut self, failure: FailedEntry) {
        self.failed += 1;
        self.changed += u64::from(failure.code == FailCode::SourceChanged);
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Returns true if there were failures, and all because a source changed or vanished while it
    /// was read.
    pub fn only_sources_changed(&self) -> bool {
        self.failed > 0 && self.failed == self.changed
    }
}

/// Returns the error message for a directory whose name is taken by another file; `label` is
/// escaped.
pub(super) fn cannot_make_directory(label: &str) -> String {
    format!(
        "cannot copy directory \"{label}\": its target exists and is not a directory, never replaced"
    )
}
