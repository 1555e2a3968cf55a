//! What a tree's receiver tells its sender, as the bodies of [`crate::Message::Tree`].

use minicbor::{Decode, Encode};

use super::{EntryId, Verdict};
use crate::{message::FailCode, name::Name};

/// From a tree's receiver to its sender. The CBOR form of each is at most [`MOST_MESSAGE`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum TreeMessage {
    /// What is to become of entries, in their order and without gaps.
    #[n(0)]
    Verdicts {
        /// The first of them.
        #[n(0)]
        first: EntryId,
        /// One for each.
        #[n(1)]
        verdicts: Vec<Verdict>,
    },
    /// Wanted entries that are in place; directories when all in them is.
    #[n(1)]
    Results {
        /// Ranges of entries: the first, and how many.
        #[n(0)]
        done: Vec<(EntryId, u64)>,
        /// Those that failed.
        #[n(1)]
        failed: Vec<EntryFailure>,
        /// What was deleted as surplus, or would be, by its place beneath the target.
        #[n(2)]
        deleted: Vec<Name>,
        /// How many more entries are told that do not get set-ID bits or attributes of root's, as their sender may not give these.
        #[n(3)]
        stripped: Option<u64>,
    },
}

/// Most bytes of a message's CBOR form: what fits into a control message with room to spare.
pub const MOST_MESSAGE: usize = 60 * 1024;

/// An entry that failed at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryFailure {
    /// The entry; `None` for what is not one, such as a surplus file that cannot be deleted.
    #[n(0)]
    pub id: Option<EntryId>,
    /// What kind of failure.
    #[n(1)]
    pub code: FailCode,
    /// What failed, on which thing, in one line for people; at most 1 KiB, escaped by whoever shows it.
    #[n(2)]
    pub text: String,
}
