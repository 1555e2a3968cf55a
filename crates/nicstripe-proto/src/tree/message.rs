//! Messages from a tree's receiver to the sender: bodies of [`crate::Message::Tree`].

use minicbor::{Decode, Encode};

use super::{entry::EntryId, rules::Verdict};
use crate::{failure::FailCode, file::name::Name};

/// Message from a tree's receiver to the sender. The CBOR form has at most [`MOST_MESSAGE`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum TreeMessage {
    /// Verdicts of the receiver on consecutive entries.
    #[n(0)]
    Verdicts {
        /// ID of the first entry in this list of verdicts.
        #[n(0)]
        first: EntryId,
        /// One verdict for each entry, in the order of the IDs.
        #[n(1)]
        verdicts: Vec<Verdict>,
    },
    /// Results of wanted entries. A directory is done once its whole content is done.
    #[n(1)]
    Results {
        /// Entries that are in place, as ranges: the first ID, and the number of entries.
        #[n(0)]
        done: Vec<(EntryId, u64)>,
        /// Entries and other objects that failed at the receiver.
        #[n(1)]
        failed: Vec<EntryFailure>,
        /// Paths relative to the target that were deleted as surplus, or would be deleted without
        /// `--dry-run`.
        #[n(2)]
        deleted: Vec<Name>,
        /// Number of further entries that were stored without all requested attributes: the file
        /// system cannot keep them, or the sender may not set set-user-ID bits, set-group-ID bits
        /// or root-only attributes; `None` means 0.
        #[n(3)]
        stripped: Option<u64>,
    },
}

/// Maximum length in bytes of a message's CBOR form. Fits into a control message.
pub const MOST_MESSAGE: usize = 60 * 1024;

/// Failure of an entry or another object at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryFailure {
    /// ID of the entry; `None` for another object, such as a surplus file that the receiver cannot
    /// delete.
    #[n(0)]
    pub id: Option<EntryId>,
    /// Machine-readable category of the failure.
    #[n(1)]
    pub code: FailCode,
    /// Human-readable error: the operation and the object, in one line of at most 1 KiB. The end
    /// that displays the text must escape it.
    #[n(2)]
    pub text: String,
}
