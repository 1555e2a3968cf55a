//! Messages of a tree's receiver to its sender: bodies of [`crate::Message::Tree`].

use minicbor::{Decode, Encode};

use super::{EntryId, Verdict};
use crate::{message::FailCode, name::Name};

/// Message of a tree's receiver to its sender. The CBOR form is at most [`MOST_MESSAGE`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum TreeMessage {
    /// Verdicts on consecutive entries, in order.
    #[n(0)]
    Verdicts {
        /// The first of these entries.
        #[n(0)]
        first: EntryId,
        /// One verdict for each entry.
        #[n(1)]
        verdicts: Vec<Verdict>,
    },
    /// Results of wanted entries. A directory is done when its whole content is.
    #[n(1)]
    Results {
        /// Ranges of entries that are in place: the first, and the count.
        #[n(0)]
        done: Vec<(EntryId, u64)>,
        /// Entries that failed.
        #[n(1)]
        failed: Vec<EntryFailure>,
        /// Paths beneath the target that were deleted as surplus, or would be in a dry run.
        #[n(2)]
        deleted: Vec<Name>,
        /// Number of further entries that lose set-ID bits or root's attributes, which the sender
        /// may not set.
        #[n(3)]
        stripped: Option<u64>,
    },
}

/// Limit of a message's CBOR form, in bytes: fits into a control message.
pub const MOST_MESSAGE: usize = 60 * 1024;

/// Failure of an entry at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryFailure {
    /// The entry; `None` for another object, such as a surplus file that cannot be deleted.
    #[n(0)]
    pub id: Option<EntryId>,
    /// Category of the failure.
    #[n(1)]
    pub code: FailCode,
    /// Text for users in one line, at most 1 KiB: what failed, on which object. Escape it before
    /// display.
    #[n(2)]
    pub text: String,
}
