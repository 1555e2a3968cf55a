//! Client's requests about files and directories under the daemon's root, and about the daemon's
//! machine, and the daemon's answers.

use minicbor::{Decode, Encode};

use super::Fetch;
use crate::{
    failure::FailCode,
    file::{
        attributes::ObjectAttributes,
        etag::ETag,
        hash_tree::{ChainingValue, Digest},
        journal::Timestamp,
        name::{MAX_COMPONENT, Name},
    },
};

/// Client's request to read or change a directory, independent of transfers. Body of
/// [`crate::Message::Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ask {
    /// Request ID, chosen by the client. Unique among the client's unanswered requests.
    #[n(0)]
    pub id: u32,
    /// Kind of request, with its parameters.
    #[n(1)]
    pub ask: AskKind,
}

/// Kind of request, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum AskKind {
    /// Lists part of a directory. The answer is [`AnswerKind::Entries`].
    #[n(0)]
    List {
        /// Name of the directory; `None` for the root directory.
        #[n(0)]
        dir: Option<Name>,
        /// Name after which the listing starts, in byte order; `None` to start at the first entry.
        #[cbor(n(1), with = "minicbor::bytes")]
        after: Option<Vec<u8>>,
        /// Maximum number of entries in the answer, 1 to [`MOST_ENTRIES`]. The answer has fewer
        /// entries if more do not fit into a message.
        #[n(2)]
        most: u32,
        /// True if the entries shall have their digests where these are known.
        #[cbor(n(3), default, skip_if = "is_unset")]
        digests: bool,
    },
    /// Reads the metadata of a file or directory. The answer is [`AnswerKind::Stat`].
    #[n(1)]
    Stat {
        /// Name of the file or directory.
        #[n(0)]
        name: Name,
    },
    /// Removes a file, a symbolic link or an empty directory. The answer is [`AnswerKind::Done`].
    #[n(2)]
    Remove {
        /// Name of the object to remove.
        #[n(0)]
        name: Name,
        /// Tag that the file must have; `None` for any object.
        #[n(1)]
        only_if: Option<ETag>,
        /// Type that the object must have; `None` for any.
        #[n(2)]
        kind: Option<ObjectKind>,
    },
    /// Renames a file or directory. The answer is [`AnswerKind::Done`].
    #[n(3)]
    Rename {
        /// Current name of the object.
        #[n(0)]
        from: Name,
        /// New name of the object.
        #[n(1)]
        to: Name,
        /// True if an existing object with the new name may be replaced.
        #[n(2)]
        replace: bool,
        /// Tag that the file `from` must have; `None` for any object.
        #[n(3)]
        only_if: Option<ETag>,
    },
    /// Creates a directory and its missing parents. Has no effect if the directory exists. The
    /// answer is [`AnswerKind::Done`].
    #[n(4)]
    MakeDir {
        /// Name of the directory to create.
        #[n(0)]
        name: Name,
    },
    /// Reads facts about the daemon's machine, in parts. The answer is [`AnswerKind::Facts`].
    #[n(5)]
    Facts {
        /// Offset of the part in bytes. At 0 the daemon reads the facts again; the parts of a session
        /// are those of its latest reading.
        #[n(0)]
        offset: u32,
    },
    /// Copies a file at the daemon, in parts of about a second. The answer is
    /// [`AnswerKind::Copied`]; the client asks for the next part until it has the metadata of the
    /// copy. The copy has no name before its end, and a client that asks for no further part has made
    /// none.
    #[n(6)]
    Copy {
        /// Name of the file to copy.
        #[n(0)]
        from: Name,
        /// Name of the copy.
        #[n(1)]
        to: Name,
        /// True if an existing file with the name of the copy may be replaced.
        #[n(2)]
        replace: bool,
        /// Tag that the file `from` must have; `None` for any file.
        #[n(3)]
        only_if: Option<ETag>,
        /// Number of bytes that earlier answers say are copied; 0 to begin.
        #[n(4)]
        offset: u64,
    },
    /// Lists a directory and all directories below it. The answer is [`AnswerKind::Walked`].
    #[n(7)]
    Walk {
        /// Name of the directory; `None` for the root directory.
        #[n(0)]
        dir: Option<Name>,
        /// [Key](walk_key) after which the listing starts; `None` to start at the first entry.
        #[cbor(n(1), with = "minicbor::bytes")]
        after: Option<Vec<u8>>,
        /// Maximum number of entries in the answer, 1 to [`MOST_ENTRIES`]. The answer has fewer
        /// entries if more do not fit into a message.
        #[n(2)]
        most: u32,
        /// True if the entries shall have their digests where these are known.
        #[cbor(n(3), default, skip_if = "is_unset")]
        digests: bool,
    },
    /// Removes files, symbolic links and empty directories, at most [`MOST_REMOVED`]. The answer is
    /// [`AnswerKind::Removed`].
    #[n(8)]
    RemoveMany {
        /// Names to remove, in this order.
        #[n(0)]
        names: Vec<Name>,
        /// Type that the objects must have; `None` for any.
        #[n(1)]
        kind: Option<ObjectKind>,
    },
    /// Reads a file at the daemon and computes its digest, in parts of about a second. The answer is
    /// [`AnswerKind::Hashed`]; the client asks for the next part until it has the digest.
    #[n(9)]
    Hash {
        /// Name of the file to read.
        #[n(0)]
        name: Name,
        /// Number of bytes that earlier answers say are read; 0 to begin.
        #[n(1)]
        offset: u64,
        /// Digest of what the client adds to a [`Statement`](crate::Statement), to have the
        /// [outline](crate::outline) and the daemon's signature as well; `None` for only the digest.
        #[n(2)]
        words: Option<Digest>,
    },
    /// Appends a file to one that is being put together at the daemon, in parts of about a second, or
    /// gives that its name. The answer is [`AnswerKind::Copied`], with the metadata of the file that is
    /// appended whole, or of the new file. It has no name before, and a client that asks for no
    /// further part has made none.
    #[n(10)]
    Concat {
        /// Name of the file to append; `None` to commit the new file.
        #[n(0)]
        part: Option<Name>,
        /// Number of bytes of `part` that earlier answers say are appended.
        #[n(1)]
        from: u64,
        /// Name of the new file.
        #[n(2)]
        to: Name,
        /// True if an existing file with the name may be replaced.
        #[n(3)]
        replace: bool,
        /// Tag of the file that may be replaced; `None` for any file.
        #[n(4)]
        only_if: Option<ETag>,
        /// Number of bytes of the new file, by earlier answers; `None` to begin.
        #[n(5)]
        offset: Option<u64>,
        /// Attributes that the new file has once it has its name; only to begin.
        #[n(6)]
        attributes: Option<ObjectAttributes>,
    },
    /// Asks for the key with which the daemon fetches from others in this session. The answer is
    /// [`AnswerKind::Key`].
    #[n(11)]
    FetchKey,
    /// Lets a key read some files until the end of this session, with no more rights than the client
    /// has. The answer is [`AnswerKind::Done`].
    #[n(12)]
    Admit {
        /// Public key that is admitted.
        #[cbor(n(0), with = "minicbor::bytes")]
        key: [u8; 32],
        /// Names that it may read besides earlier ones, at most
        /// [`MOST_ADMITTED`](super::MOST_ADMITTED).
        #[n(1)]
        names: Vec<Name>,
    },
    /// Fetches a file from another daemon, in parts of some seconds. The answer is
    /// [`AnswerKind::Copied`]; the client asks for the next part until it has the metadata of the file.
    #[n(13)]
    Fetch(#[n(0)] Box<Fetch>),
}

/// Daemon's answer to an [`Ask`]. Body of [`crate::Message::Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Answer {
    /// ID of the request, from [`Ask::id`].
    #[n(0)]
    pub id: u32,
    /// Kind of answer, with its data.
    #[n(1)]
    pub answer: AnswerKind,
}

/// Kind of answer, with its data.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum AnswerKind {
    /// Part of a directory listing.
    #[n(0)]
    Entries {
        /// Entries of the directory, in byte order of their names and without duplicates.
        #[n(0)]
        entries: Vec<ObjectEntry>,
        /// True if the directory has entries after the last listed one. Always false for an empty
        /// list.
        #[n(1)]
        more: bool,
    },
    /// Metadata of a file or directory.
    #[n(1)]
    Stat {
        /// Metadata of the requested object.
        #[n(0)]
        stat: ObjectStat,
        /// Attributes of a file; `None` if it has none.
        #[n(1)]
        attributes: Option<ObjectAttributes>,
    },
    /// The requested change succeeded and is durable.
    #[n(2)]
    Done,
    /// The request failed and changed nothing.
    #[n(3)]
    Failed {
        /// Machine-readable category of the failure.
        #[n(0)]
        code: FailCode,
        /// Human-readable error: the operation and the object, in one line of at most 1 KiB. The
        /// end that displays the text must escape it.
        #[n(1)]
        text: String,
    },
    /// Part of the facts about the daemon's machine, a JSON text.
    #[n(4)]
    Facts {
        /// Bytes of the text, at most [`MOST_ANSWER`].
        #[cbor(n(0), with = "minicbor::bytes")]
        part: Vec<u8>,
        /// True if the text has bytes after this part. Always false for an empty part.
        #[n(1)]
        more: bool,
    },
    /// Part of a file is copied.
    #[n(5)]
    Copied {
        /// Number of bytes that are copied.
        #[n(0)]
        upto: u64,
        /// Metadata of the copy once it is durable under its name; `None` before.
        #[n(1)]
        copy: Option<ObjectStat>,
    },
    /// Part of the names below a directory.
    #[n(6)]
    Walked {
        /// Entries with their names relative to the directory, components joined by `/`, ascending by
        /// their [keys](walk_key).
        #[n(0)]
        entries: Vec<ObjectEntry>,
        /// True if names follow the last entry. Always false for an empty list.
        #[n(1)]
        more: bool,
    },
    /// Part of a file is read.
    #[n(8)]
    Hashed {
        /// Number of bytes that are read.
        #[n(0)]
        upto: u64,
        /// Metadata of the file, with the digest that is kept of it, and the digest of what was read;
        /// `None` before the end.
        #[n(1)]
        file: Option<Box<HashedFile>>,
        /// Values of the pieces that this part has read, at most [`MOST_VALUES`]; empty unless asked for.
        #[cbor(n(2), default, skip_if = "has_none")]
        values: Vec<ChainingValue>,
    },
    /// Names are removed, except for some.
    #[n(7)]
    Removed {
        /// Names that remain, by their index in the request, ascending.
        #[n(0)]
        failed: Vec<NotRemoved>,
    },
    /// Public key with which the daemon fetches from others.
    #[n(9)]
    Key {
        /// The key, new in each session.
        #[cbor(n(0), with = "minicbor::bytes")]
        key: [u8; 32],
    },
}

/// File whose content was read at the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct HashedFile {
    /// Metadata of the file, unchanged while it was read.
    #[n(0)]
    pub stat: ObjectStat,
    /// Digest of the content that was read.
    #[n(1)]
    pub digest: Digest,
    /// Signature of a [`Statement`](crate::Statement) about it; `None` unless asked for.
    #[n(2)]
    pub signed: Option<Signed>,
}

/// Signature of a [`Statement`](crate::Statement).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Signed {
    /// Time in the statement.
    #[n(0)]
    pub at: Timestamp,
    /// Ed25519 signature by the daemon's key.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub signature: [u8; 64],
}

/// Name that a [`AskKind::RemoveMany`] could not remove.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NotRemoved {
    /// Index of the name in the request.
    #[n(0)]
    pub index: u32,
    /// Machine-readable category of the failure.
    #[n(1)]
    pub code: FailCode,
    /// Human-readable error in one line of at most [`MOST_REASON`] bytes. The end that displays the
    /// text must escape it.
    #[n(2)]
    pub text: String,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ObjectEntry {
    /// Name within the directory. Valid as a component of a [`Name`].
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Metadata of the entry.
    #[n(1)]
    pub stat: ObjectStat,
}

/// Metadata of a file, directory or other object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ObjectStat {
    /// Type of the object.
    #[n(0)]
    pub kind: ObjectKind,
    /// Size of a file in bytes. Undefined for other kinds of objects.
    #[n(1)]
    pub size: u64,
    /// Time of the last modification.
    #[n(2)]
    pub mtime: Timestamp,
    /// Identity of a file's content; `None` for other kinds of objects, and if it is unknown.
    #[n(3)]
    pub etag: Option<ETag>,
    /// Digest of a file's content, as the daemon keeps it since it received the file; `None` if it
    /// knows none.
    #[n(4)]
    pub digest: Option<Digest>,
    /// True if the file has attributes. Absent in listings.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub has_attributes: bool,
}

/// Type of a file system object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ObjectKind {
    /// Regular file (`S_IFREG`).
    #[n(0)]
    File,
    /// Directory (`S_IFDIR`).
    #[n(1)]
    Dir,
    /// Any other type, such as a symbolic link, a device or a socket.
    #[n(2)]
    Other,
}

/// Byte range of a file to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetRange {
    /// Offset of the first byte, at most the file's size.
    #[n(0)]
    pub offset: u64,
    /// Length of the range in bytes. Bytes beyond the end of the file are ignored.
    #[n(1)]
    pub len: u64,
}

/// Maximum number of directory entries in one answer.
pub const MOST_ENTRIES: u32 = 4096;

/// Maximum number of names in one [`AskKind::RemoveMany`].
pub const MOST_REMOVED: usize = 128;

/// Maximum length in bytes of the names of one [`AskKind::RemoveMany`] together.
pub const MOST_REMOVED_BYTES: usize = 32 * 1024;

/// Maximum length in bytes of [`NotRemoved::text`].
pub const MOST_REASON: usize = 384;

/// Maximum number of unanswered requests in a session.
pub const MOST_ASKS: usize = 64;

/// Maximum CBOR length, in bytes, of an answer's entries. The entries fit into one control message
/// with a margin.
pub const MOST_ANSWER: usize = 60 * 1024;

/// Maximum number of values in an answer: 34 bytes each.
pub const MOST_VALUES: usize = 1024;

impl ObjectEntry {
    /// Returns an upper bound of the entry's CBOR length in bytes.
    pub fn weight(&self) -> usize {
        self.name.len() + ENTRY_OVERHEAD + self.stat.digest.map_or(0, |_| DIGEST_WEIGHT)
    }
}

/// CBOR length in bytes of an entry without its name: heads of maps, keys, longest integers.
const ENTRY_OVERHEAD: usize = 60;

/// CBOR length in bytes of a digest with its key.
const DIGEST_WEIGHT: usize = 35;

impl AskKind {
    /// Returns true if the request changes the file system.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Self::Remove { .. }
                | Self::Rename { .. }
                | Self::MakeDir { .. }
                | Self::RemoveMany { .. }
        )
    }

    /// Returns true if `answer` is a valid answer to this request.
    ///
    /// A listing must have valid names in ascending order. The names must be after the requested
    /// start, and within the requested number.
    pub(crate) fn is_answered_by(&self, answer: &AnswerKind) -> bool {
        match (self, answer) {
            (_, AnswerKind::Failed { .. }) => true,
            (Self::List { after, most, .. }, AnswerKind::Entries { entries, more }) => {
                are_listed(entries, after.as_deref())
                    && entries.len() <= *most as usize
                    && !(*more && entries.is_empty())
            }
            (Self::Stat { .. }, AnswerKind::Stat { .. }) => true,
            (Self::Facts { .. }, AnswerKind::Facts { part, more }) => {
                part.len() <= MOST_ANSWER && !(*more && part.is_empty())
            }
            (
                Self::Remove { .. }
                | Self::Rename { .. }
                | Self::MakeDir { .. }
                | Self::Admit { .. },
                AnswerKind::Done,
            ) => true,
            (Self::FetchKey, AnswerKind::Key { .. }) => true,
            (Self::Fetch(fetch), AnswerKind::Copied { upto, copy }) => {
                *upto <= fetch.len && (*upto > fetch.offset || copy.is_some())
            }
            (Self::Copy { offset, .. }, AnswerKind::Copied { upto, copy }) => {
                upto > offset || copy.is_some()
            }
            (Self::Concat { offset, .. }, AnswerKind::Copied { upto, copy }) => {
                *upto > offset.unwrap_or(0) || copy.is_some()
            }
            (Self::Hash { offset, words, .. }, AnswerKind::Hashed { upto, file, values }) => {
                let is_asked = words.is_some();
                (upto > offset || file.is_some())
                    && values.len() <= if is_asked { MOST_VALUES } else { 0 }
                    && file
                        .as_ref()
                        .is_none_or(|file| file.signed.is_some() == is_asked)
            }
            (Self::Walk { after, most, .. }, AnswerKind::Walked { entries, more }) => {
                are_walked(entries, after.as_deref())
                    && entries.len() <= *most as usize
                    && !(*more && entries.is_empty())
            }
            (Self::RemoveMany { names, .. }, AnswerKind::Removed { failed }) => {
                failed.is_sorted_by(|one, next| one.index < next.index)
                    && failed.iter().all(|one| {
                        (one.index as usize) < names.len() && one.text.len() <= MOST_REASON
                    })
            }
            _ => false,
        }
    }
}

/// Returns true if a flag of a variant, which minicbor passes by two references, need not be sent.
fn is_unset(flag: &&bool) -> bool {
    !**flag
}

/// Returns true if a list, which minicbor passes by two references, need not be sent.
fn has_none(values: &&Vec<ChainingValue>) -> bool {
    values.is_empty()
}

/// Returns the key by which an entry of a walk is sorted: its name, and a `/` behind the name of a
/// directory. The names in a directory follow it and are together.
pub fn walk_key(name: &[u8], kind: ObjectKind) -> Vec<u8> {
    let mut key = name.to_vec();
    if kind == ObjectKind::Dir {
        key.push(b'/');
    }
    key
}

/// Returns true if entries are a page of a walk: valid names with ascending keys, after the key
/// `after`.
fn are_walked(entries: &[ObjectEntry], after: Option<&[u8]>) -> bool {
    let mut last = after.map(<[u8]>::to_vec);
    entries.iter().all(|entry| {
        let key = walk_key(&entry.name, entry.stat.kind);
        let is_behind = last.as_ref().is_none_or(|last| key > *last);
        let is_name = Name::new(entry.name.split(|byte| *byte == b'/')).is_ok();
        last = Some(key);
        is_behind && is_name
    })
}

/// Returns true if entries are a page of a listing: valid names in ascending order, after the name
/// `after`.
pub fn are_listed(entries: &[ObjectEntry], after: Option<&[u8]>) -> bool {
    let first = entries.first().map(|entry| &entry.name[..]);
    let is_behind = first.is_none_or(|first| after.is_none_or(|after| first > after));
    let is_ordered = entries.is_sorted_by(|one, next| one.name < next.name);
    let is_plain = |entry: &ObjectEntry| {
        entry.name.len() <= MAX_COMPONENT && Name::new([&entry.name[..]]).is_ok()
    };
    is_behind && is_ordered && entries.iter().all(is_plain)
}
