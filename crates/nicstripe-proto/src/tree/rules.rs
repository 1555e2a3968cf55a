//! What becomes of an entry, given what is at its place.

use minicbor::{Decode, Encode};

use super::{Content, Entry};
use crate::{hash_tree::Digest, journal::Timestamp};

/// What a tree's receiver is asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeRules {
    /// Replace files that differ.
    #[n(0)]
    pub replace: bool,
    /// Replace files that are older than the sender's, and leave those that are not.
    #[n(1)]
    pub update: bool,
    /// Files of one size are the same if their BLAKE3 is, whatever their times.
    #[n(2)]
    pub checksum: bool,
    /// Keep the permission bits as they are, special bits among them; otherwise 0o777 less the receiver's mask. Times are always kept.
    #[n(3)]
    pub modes: bool,
    /// Keep owners, where the receiver may.
    #[n(4)]
    pub owners: bool,
    /// Keep extended attributes and ACLs.
    #[n(5)]
    pub xattrs: bool,
    /// Delete what the sender does not have in directories that it has.
    #[n(6)]
    pub delete: bool,
    /// Decide and tell, but change nothing.
    #[n(7)]
    pub dry_run: bool,
    /// Patterns as the user gave them, in order; a leading `!` takes back. What they leave out is neither expected from the sender nor deleted.
    #[n(8)]
    pub filters: Vec<String>,
}

/// What is to become of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Verdict {
    /// Nothing is there: it is wanted, or was made.
    #[n(0)]
    Create,
    /// What is there differs: it is wanted, or was replaced.
    #[n(1)]
    Replace,
    /// What is there is the same in content; attributes may have been set.
    #[n(2)]
    Same,
    /// What is there is newer, and stays.
    #[n(3)]
    Newer,
    /// What is there differs, and may not be replaced: counts as failed.
    #[n(4)]
    Exists,
    /// It cannot be received, for a reason that the results tell.
    #[n(5)]
    Refused,
}

impl Verdict {
    /// Whether the sender has to send a file's content.
    pub fn is_wanted(self) -> bool {
        matches!(self, Self::Create | Self::Replace)
    }
}

/// What is at an entry's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
        /// When its content changed last.
        mtime: Timestamp,
        /// Its BLAKE3, asked for where it may count.
        digest: Option<Digest>,
    },
    /// A directory.
    Directory,
    /// A symbolic link, and what it says.
    Symlink(Vec<u8>),
    /// Something else.
    Other,
}

/// Decides on an entry other than a hard link, whose file decides.
///
/// A time is the same where the receiver's has no nanoseconds and the seconds are equal: not every file system has them. A directory is never
/// replaced by a file, nor a file by a directory, as that would delete more than was said.
pub fn decide(rules: &TreeRules, entry: &Entry, existing: Option<&Existing>) -> Verdict {
    let Some(existing) = existing else { return Verdict::Create };
    match (&entry.content, existing) {
        (Content::Directory, Existing::Directory) => Verdict::Same,
        (Content::Symlink { target }, Existing::Symlink(found)) if target == found => Verdict::Same,
        (Content::File { size, digest, .. }, Existing::File { size: found, mtime, digest: found_digest }) => {
            let same = size == found
                && match rules.checksum {
                    true => digest.is_some() && digest == found_digest,
                    false => is_same_time(entry.mtime, *mtime),
                };
            match same {
                true => Verdict::Same,
                false if rules.update && entry.mtime <= *mtime => Verdict::Newer,
                false if rules.update || rules.replace => Verdict::Replace,
                false => Verdict::Exists,
            }
        }
        (Content::Directory, _) | (_, Existing::Directory) => Verdict::Exists,
        _ if rules.replace => Verdict::Replace,
        _ => Verdict::Exists,
    }
}

fn is_same_time(sent: Timestamp, found: Timestamp) -> bool {
    sent == found || (found.nanoseconds == 0 && sent.seconds == found.seconds)
}
