//! Results of the receiver's jobs.

use nicstripe_proto::{Digest, tree::EntryId};

use super::{commit_group::Committed, writing::Wrote};
use crate::file::Inode;

/// Result of a job on the I/O threads.
pub(crate) enum Completion {
    /// Digest of an existing file; `None` if the file cannot be read.
    Hashed(EntryId, Option<Digest>),
    /// Inode of a standalone file that was opened for writing.
    Opened(EntryId, Inode),
    /// Results of writing pieces of files.
    Wrote(Vec<Wrote>),
    Committed(Vec<Committed>),
}
