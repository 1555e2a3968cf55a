//! What a client asks about names beneath the daemon's root, and what it is answered.

use minicbor::{Decode, Encode};

use super::FailCode;
use crate::{
    journal::Timestamp,
    name::{MAX_COMPONENT, Name},
};

/// Body of [`crate::Message::Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ask {
    /// Its number, chosen by the client; not that of another ask that has no answer yet.
    #[n(0)]
    pub id: u32,
    /// What is asked.
    #[n(1)]
    pub ask: AskKind,
}

/// What a client may ask.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum AskKind {
    /// What is in a directory? Answered by [`AnswerKind::Entries`].
    #[n(0)]
    List {
        /// The directory; the root if absent.
        #[n(0)]
        dir: Option<Name>,
        /// Only names behind this one, in the order of their bytes.
        #[cbor(n(1), with = "minicbor::bytes")]
        after: Option<Vec<u8>>,
        /// Most entries of the answer, 1 to [`MOST_ENTRIES`]; fewer come where they would not fit into a message.
        #[n(2)]
        most: u32,
    },
    /// What has this name? Answered by [`AnswerKind::Stat`].
    #[n(1)]
    Stat {
        /// The name.
        #[n(0)]
        name: Name,
    },
    /// Remove a file, a symbolic link, or a directory that is empty. Answered by [`AnswerKind::Done`].
    #[n(2)]
    Remove {
        /// The name.
        #[n(0)]
        name: Name,
    },
    /// Give what has one name another. Answered by [`AnswerKind::Done`].
    #[n(3)]
    Rename {
        /// The name that it has.
        #[n(0)]
        from: Name,
        /// The name that it gets.
        #[n(1)]
        to: Name,
        /// Whether what has that name may be replaced.
        #[n(2)]
        replace: bool,
    },
    /// Make a directory, and those that lead to it; that it is there is fine. Answered by [`AnswerKind::Done`].
    #[n(4)]
    MakeDir {
        /// The name.
        #[n(0)]
        name: Name,
    },
}

/// Body of [`crate::Message::Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Answer {
    /// The number of the ask.
    #[n(0)]
    pub id: u32,
    /// What is answered.
    #[n(1)]
    pub answer: AnswerKind,
}

/// What a daemon may answer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum AnswerKind {
    /// A part of a directory.
    #[n(0)]
    Entries {
        /// In the order of their names' bytes, each once.
        #[n(0)]
        entries: Vec<ObjectEntry>,
        /// Whether there are names behind the last of them; never without any.
        #[n(1)]
        more: bool,
    },
    /// What has the name.
    #[n(1)]
    Stat {
        /// What is known of it.
        #[n(0)]
        stat: ObjectStat,
    },
    /// It is done, and durable.
    #[n(2)]
    Done,
    /// It could not be done, and was not.
    #[n(3)]
    Failed {
        /// What kind of failure.
        #[n(0)]
        code: FailCode,
        /// What failed, on which thing, in one line for people; at most 1 KiB, escaped by whoever shows it.
        #[n(1)]
        text: String,
    },
}

/// One name of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ObjectEntry {
    /// The name within its directory: a component as those of a [`Name`].
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// What has it.
    #[n(1)]
    pub stat: ObjectStat,
}

/// What is known of something that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ObjectStat {
    /// What it is.
    #[n(0)]
    pub kind: ObjectKind,
    /// Bytes of a file; of other things without meaning.
    #[n(1)]
    pub size: u64,
    /// When it was changed last.
    #[n(2)]
    pub mtime: Timestamp,
}

/// What a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ObjectKind {
    /// A regular file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Dir,
    /// Something else: a symbolic link, a device, a socket.
    #[n(2)]
    Other,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetRange {
    /// Where it begins, in bytes; at most the file's size.
    #[n(0)]
    pub offset: u64,
    /// How many bytes; what is beyond the file's end is left out.
    #[n(1)]
    pub len: u64,
}

/// Most entries of one answer.
pub const MOST_ENTRIES: u32 = 4096;

/// Most asks of a session that have no answer yet.
pub const MOST_ASKS: usize = 64;

/// Most bytes of an answer's entries in CBOR: what fits into a control message with room to spare.
pub const MOST_ANSWER: usize = 60 * 1024;

impl ObjectEntry {
    /// The most bytes that it takes in an answer.
    pub fn weight(&self) -> usize {
        self.name.len() + ENTRY_OVERHEAD
    }
}

/// What an entry takes beside its name: heads of maps and keys, the longest numbers.
const ENTRY_OVERHEAD: usize = 40;

impl AskKind {
    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Remove { .. } | Self::Rename { .. } | Self::MakeDir { .. })
    }

    /// Whether this is an answer to it: of its kind, with names that may be in a directory, in their order, behind the one that it names.
    pub fn is_answered_by(&self, answer: &AnswerKind) -> bool {
        match (self, answer) {
            (_, AnswerKind::Failed { .. }) => true,
            (Self::List { after, most, .. }, AnswerKind::Entries { entries, more }) => {
                let first = entries.first().map(|entry| &entry.name);
                let is_behind = first.is_none_or(|first| after.as_ref().is_none_or(|after| first > after));
                let is_ordered = entries.is_sorted_by(|one, next| one.name < next.name);
                let are_plain = entries.iter().all(|entry| entry.name.len() <= MAX_COMPONENT && Name::new([&entry.name[..]]).is_ok());
                is_behind && is_ordered && are_plain && entries.len() <= *most as usize && !(*more && entries.is_empty())
            }
            (Self::Stat { .. }, AnswerKind::Stat { .. }) => true,
            (Self::Remove { .. } | Self::Rename { .. } | Self::MakeDir { .. }, AnswerKind::Done) => true,
            _ => false,
        }
    }
}
