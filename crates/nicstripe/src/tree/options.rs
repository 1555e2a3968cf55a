//! How trees are copied, and what is told of it.

use nicstripe_proto::{
    FailCode, Name,
    tree::{TreeRules, Verdict},
};

use crate::client::CopyOptions;

/// How a tree is copied. The default copies files and symbolic links with their modification times and replaces nothing.
///
/// What is the same at the target, by size and modification time, is not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Copy directories with what is in them; without it a directory is a failure.
    pub recursive: bool,
    /// Replace files that are older than the source's, and leave those that are not. Together with [`CopyOptions::replace`] this wins.
    pub update: bool,
    /// Files of one size are the same if their BLAKE3 is, whatever their times: both ends read all of them.
    pub checksum: bool,
    /// Keep owners and groups, by name or by `numeric_ids`, where the receiver may set them.
    pub owners: bool,
    /// Keep owners and groups, and those that ACLs mention, by number. Without it, a name that the receiver knows decides, and the number where it knows none; root is root.
    pub numeric_ids: bool,
    /// Keep extended attributes and ACLs.
    pub xattrs: bool,
    /// Keep FIFOs, names of sockets, and devices; devices where the receiver is root, and this peer may give set-user-ID there.
    pub nodes: bool,
    /// Keep names of one file as names of one file. Memory grows with the number of files that have several names.
    pub hard_links: bool,
    /// Delete at the target what the source does not have, in directories that it has. Only where a directory could be read completely, and
    /// never what a filter leaves out.
    pub delete: bool,
    /// Find out what would be done, and change nothing.
    pub dry_run: bool,
    /// Stay on the file system of each source.
    pub one_file_system: bool,
    /// What is left out, in the syntax of gitignore(5), in order; a leading `!` takes back. A pattern with a slash is anchored at each source.
    pub filters: Vec<String>,
    /// Only these, by their place beneath the source, with the directories that lead there; directories with all in them if `recursive`.
    pub files_from: Option<Vec<Name>>,
    /// Tell an [`Event::Entry`](crate::Event::Entry) for each thing that is copied, deleted or fails; the transfer waits for its reader.
    pub list: bool,
    /// How each file is copied. [`CopyOptions::preserve`] keeps modes.
    pub files: CopyOptions,
}

/// What became of one thing in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryOutcome {
    /// It was copied; `verdict` says what was there before. In a dry run: would be.
    Copied {
        /// [`Verdict::Create`] or [`Verdict::Replace`].
        verdict: Verdict,
        /// Bytes of the file, 0 for what is none.
        bytes: u64,
    },
    /// It was there already, or what is there is newer.
    Skipped(Verdict),
    /// It is a socket, a FIFO or a device, and is left out.
    Special,
    /// It was deleted at the target. In a dry run: would be.
    Deleted,
    /// It failed.
    Failed {
        /// What kind of failure.
        code: FailCode,
        /// What failed, in one line for people, escaped.
        text: String,
    },
}

/// One thing that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedEntry {
    /// Its place beneath the source or target, escaped for people.
    pub name: String,
    /// What kind of failure.
    pub code: FailCode,
    /// What failed, in one line for people, escaped.
    pub text: String,
}

/// What became of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Regular files that were copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories that were made.
    pub directories: u64,
    /// Symbolic links that were made.
    pub symlinks: u64,
    /// FIFOs, names of sockets, and devices that were made.
    pub nodes: u64,
    /// Names of files that were copied or there before.
    pub hard_links: u64,
    /// Files and links that were the same at the target.
    pub unchanged: u64,
    /// Files that are newer at the target, and were left.
    pub newer: u64,
    /// What was deleted at the target.
    pub deleted: u64,
    /// Sockets, FIFOs and devices of the source that are left out.
    pub special: u64,
    /// Files, directories and links that the receiver took without their set-user-ID and set-group-ID bits or attributes of root's: its peer
    /// may not give them ([`PeerOptions::special_modes`](crate::trust::PeerOptions::special_modes)).
    pub stripped: u64,
    /// How many things failed.
    pub failed: u64,
    /// How many of them because a source changed or vanished while it was read.
    pub changed: u64,
    /// The first 1000 of them.
    pub failures: Vec<FailedEntry>,
}

/// Most failures that a report keeps; the count goes on.
pub(crate) const MOST_FAILURES: usize = 1000;

impl TreeOptions {
    /// What the receiver is asked to do.
    pub(crate) fn rules(&self) -> TreeRules {
        TreeRules {
            // What is compared is replaced.
            replace: self.files.replace || self.files.delta || self.files.in_place,
            update: self.update,
            checksum: self.checksum,
            modes: self.files.preserve,
            owners: self.owners,
            numeric_ids: self.numeric_ids,
            xattrs: self.xattrs,
            nodes: self.nodes,
            delete: self.delete,
            dry_run: self.dry_run,
            filters: self.filters.clone(),
        }
    }
}

impl TreeReport {
    /// Counts a failure, and keeps it if there is room.
    pub(crate) fn fail(&mut self, failure: FailedEntry) {
        self.failed += 1;
        self.changed += u64::from(failure.code == FailCode::SourceChanged);
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Whether a source changed or vanished while it was read, and nothing else failed.
    pub fn only_sources_changed(&self) -> bool {
        self.failed > 0 && self.failed == self.changed
    }
}
