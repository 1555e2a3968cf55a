//! Rules of a tree's receiver: the verdict on an entry, based on the existing object at the target
//! path.

use minicbor::{Decode, Encode};

use super::entry::{Content, Entry, Node};
use crate::file::{hash_tree::Digest, journal::Timestamp};

/// Rules of a tree's receiver, as requested by the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeRules {
    /// True to replace files that differ from the sender's.
    #[n(0)]
    pub replace: bool,
    /// True to replace files that are older than the sender's, and to keep all others.
    #[n(1)]
    pub update: bool,
    /// True to compare files of equal size by BLAKE3 digest, false to compare them by modification
    /// time.
    #[n(2)]
    pub checksum: bool,
    /// True to preserve permission bits, including special bits. If false, the bits are 0o777
    /// reduced by the receiver's umask. Times are always preserved.
    #[n(3)]
    pub modes: bool,
    /// True to preserve owners, if the receiver has the right to set them.
    #[n(4)]
    pub owners: bool,
    /// True to preserve extended attributes and ACLs.
    #[n(5)]
    pub xattrs: bool,
    /// True to delete objects that the sender does not have, within directories that the sender
    /// has.
    #[n(6)]
    pub delete: bool,
    /// True to compute and report verdicts without changing the target (`--dry-run`).
    #[n(7)]
    pub dry_run: bool,
    /// Exclude patterns in order. A pattern with a leading `!` includes again. Excluded entries are
    /// neither expected nor deleted.
    #[n(8)]
    pub filters: Vec<String>,
    /// True to preserve FIFOs, sockets and devices.
    #[cbor(n(9), default, skip_if = "std::ops::Not::not")]
    pub nodes: bool,
    /// True to preserve owners by numeric ID. Names are then neither sent nor looked up.
    #[cbor(n(10), default, skip_if = "std::ops::Not::not")]
    pub numeric_ids: bool,
    /// True to preserve hard links. If false, the receiver rejects hard links.
    #[cbor(n(11), default, skip_if = "std::ops::Not::not")]
    pub hard_links: bool,
    /// True for a dry run that deletes nevertheless: nothing is created and replaced.
    #[cbor(n(12), default, skip_if = "std::ops::Not::not")]
    pub only_delete: bool,
}

impl TreeRules {
    /// Returns true if nothing is deleted either.
    pub const fn changes_nothing(&self) -> bool {
        self.dry_run && !self.only_delete
    }
}

/// Decision of a receiver about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Verdict {
    /// No object exists at the target path. The sender must send the content of a file; the
    /// receiver creates other types itself.
    #[n(0)]
    Create,
    /// The existing object differs. The sender must send the content of a file; the receiver
    /// replaces other types itself.
    #[n(1)]
    Replace,
    /// The existing object has the same content. The receiver may have updated its attributes.
    #[n(2)]
    Same,
    /// The receiver keeps the existing object, because it is not older than the sender's.
    #[n(3)]
    Newer,
    /// The existing object differs and may not be replaced. This counts as a failure.
    #[n(4)]
    Exists,
    /// The receiver cannot accept the entry. The results contain the reason.
    #[n(5)]
    Refused,
    /// The receiver cannot accept the entry's directory and has reported that. The entry itself has
    /// no result and is not counted.
    #[n(6)]
    Blocked,
    /// The entry is a device that the receiver does not create. The entry has no result and counts
    /// as excluded.
    #[n(7)]
    LeftOut,
}

impl Verdict {
    /// Returns true if the receiver creates or replaces the entry. The sender must then send the
    /// content of a file.
    pub fn is_wanted(self) -> bool {
        matches!(self, Self::Create | Self::Replace)
    }
}

/// Object that exists at the target path of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// Regular file, which is compared by size, time or digest.
    File {
        /// Size of the file in bytes.
        size: u64,
        /// Modification time of the file's content.
        mtime: Timestamp,
        /// BLAKE3 digest of the file; `None` unless the verdict may depend on it.
        digest: Option<Digest>,
    },
    /// Directory, with any content.
    Directory,
    /// Symbolic link with this target path.
    Symlink(Vec<u8>),
    /// FIFO, socket or device, with its device number.
    Node(Node),
    /// Object of another type.
    Other,
}

/// Returns the verdict on an entry other than a hard link.
///
/// Two times with equal seconds count as equal if the receiver's time has no nanoseconds, as on
/// some file systems. Directories and files never replace each other, because this would delete
/// more than requested; nor does a file replace a device, FIFO or socket, which others may use.
pub fn decide(rules: &TreeRules, entry: &Entry, existing: Option<&Existing>) -> Verdict {
    let Some(existing) = existing else {
        return Verdict::Create;
    };
    match (&entry.content, existing) {
        (Content::Directory, Existing::Directory) => Verdict::Same,
        (Content::Symlink { target }, Existing::Symlink(found)) if target == found => Verdict::Same,
        (Content::Node(node), Existing::Node(found)) if node == found => Verdict::Same,
        (
            Content::File { size, digest, .. },
            Existing::File {
                size: found,
                mtime,
                digest: found_digest,
            },
        ) => {
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
        (Content::File { .. }, Existing::Node(_) | Existing::Other) => Verdict::Exists,
        _ if rules.replace => Verdict::Replace,
        _ => Verdict::Exists,
    }
}

fn is_same_time(sent: Timestamp, found: Timestamp) -> bool {
    sent == found || (found.nanoseconds == 0 && sent.seconds == found.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file::name::Name,
        tree::{EntryId, NodeKind},
    };

    const AT: Timestamp = Timestamp {
        seconds: 100,
        nanoseconds: 7,
    };
    const EARLIER: Timestamp = Timestamp {
        seconds: 99,
        nanoseconds: 8,
    };
    const LATER: Timestamp = Timestamp {
        seconds: 100,
        nanoseconds: 8,
    };
    const WHOLE_SECOND: Timestamp = Timestamp {
        seconds: 100,
        nanoseconds: 0,
    };

    fn entry(content: Content) -> Entry {
        let name = Name::parse(b"n").ok();
        Entry {
            id: EntryId(0),
            parent: None,
            name,
            content,
            mode: 0o644,
            mtime: AT,
            owner: None,
            xattrs: None,
            owner_names: None,
            linked: false,
            inode_hash: None,
        }
    }

    fn file(digest: Option<u8>) -> Entry {
        entry(Content::File {
            size: 5,
            alone: false,
            digest: digest.map(digest_of),
        })
    }

    fn symlink() -> Entry {
        entry(Content::Symlink {
            target: b"a".to_vec(),
        })
    }

    fn found(size: u64, mtime: Timestamp, digest: Option<u8>) -> Existing {
        Existing::File {
            size,
            mtime,
            digest: digest.map(digest_of),
        }
    }

    fn node(kind: NodeKind, minor: u32) -> Node {
        Node {
            kind,
            major: 1,
            minor,
        }
    }

    fn digest_of(byte: u8) -> Digest {
        Digest([byte; 32])
    }

    /// Returns the verdicts with neither option, with `replace`, with `update`, and with both.
    fn all(rules: &TreeRules, entry: &Entry, existing: &Existing) -> [Verdict; 4] {
        [(false, false), (true, false), (false, true), (true, true)].map(|(replace, update)| {
            decide(
                &TreeRules {
                    replace,
                    update,
                    ..rules.clone()
                },
                entry,
                Some(existing),
            )
        })
    }

    fn plain(entry: &Entry, existing: &Existing) -> [Verdict; 4] {
        all(&TreeRules::default(), entry, existing)
    }

    fn by_checksum(entry: &Entry, existing: &Existing) -> [Verdict; 4] {
        all(
            &TreeRules {
                checksum: true,
                ..TreeRules::default()
            },
            entry,
            existing,
        )
    }

    const SAME: [Verdict; 4] = [Verdict::Same; 4];
    const OLDER_THERE: [Verdict; 4] = [
        Verdict::Exists,
        Verdict::Replace,
        Verdict::Replace,
        Verdict::Replace,
    ];
    const NOT_OLDER_THERE: [Verdict; 4] = [
        Verdict::Exists,
        Verdict::Replace,
        Verdict::Newer,
        Verdict::Newer,
    ];
    const NEVER: [Verdict; 4] = [Verdict::Exists; 4];
    const ONLY_REPLACED: [Verdict; 4] = [
        Verdict::Exists,
        Verdict::Replace,
        Verdict::Exists,
        Verdict::Replace,
    ];

    #[test]
    fn what_is_not_there_is_made_whatever_the_rules() {
        for entry in [file(None), symlink(), entry(Content::Directory)] {
            assert_eq!(decide(&TreeRules::default(), &entry, None), Verdict::Create);
            assert_eq!(
                decide(
                    &TreeRules {
                        update: true,
                        checksum: true,
                        ..TreeRules::default()
                    },
                    &entry,
                    None
                ),
                Verdict::Create
            );
        }
    }

    #[test]
    fn a_file_of_the_same_size_and_time_is_the_same() {
        assert_eq!(plain(&file(None), &found(5, AT, None)), SAME);
        assert_eq!(
            plain(&file(None), &found(5, WHOLE_SECOND, None)),
            SAME,
            "a file system without nanoseconds"
        );
    }

    #[test]
    fn a_file_that_differs_is_replaced_where_that_was_asked_for() {
        assert_eq!(plain(&file(None), &found(5, EARLIER, None)), OLDER_THERE);
        assert_eq!(plain(&file(None), &found(6, EARLIER, None)), OLDER_THERE);
        assert_eq!(plain(&file(None), &found(5, LATER, None)), NOT_OLDER_THERE);
        assert_eq!(plain(&file(None), &found(6, LATER, None)), NOT_OLDER_THERE);
        assert_eq!(
            plain(&file(None), &found(6, AT, None)),
            NOT_OLDER_THERE,
            "same time, other size: not older"
        );
    }

    #[test]
    fn a_file_whose_bytes_are_compared_is_the_same_by_its_digest_alone() {
        assert_eq!(
            by_checksum(&file(Some(1)), &found(5, EARLIER, Some(1))),
            SAME
        );
        assert_eq!(
            by_checksum(&file(Some(1)), &found(5, AT, Some(2))),
            NOT_OLDER_THERE
        );
        assert_eq!(
            by_checksum(&file(Some(1)), &found(5, EARLIER, Some(2))),
            OLDER_THERE
        );
        assert_eq!(
            by_checksum(&file(Some(1)), &found(6, EARLIER, Some(1))),
            OLDER_THERE,
            "of another size"
        );
        for (sent, found_digest) in [(None, None), (Some(1), None), (None, Some(1))] {
            assert_eq!(
                by_checksum(&file(sent), &found(5, EARLIER, found_digest)),
                OLDER_THERE,
                "{sent:?} {found_digest:?}"
            );
        }
    }

    #[test]
    fn a_directory_is_neither_replaced_nor_put_in_anothers_place() {
        let directory = entry(Content::Directory);
        assert_eq!(plain(&directory, &Existing::Directory), SAME);
        for existing in [
            found(5, EARLIER, None),
            Existing::Symlink(b"a".to_vec()),
            Existing::Other,
        ] {
            assert_eq!(plain(&directory, &existing), NEVER, "{existing:?}");
        }
        for entry in [file(None), symlink()] {
            assert_eq!(plain(&entry, &Existing::Directory), NEVER, "{entry:?}");
        }
    }

    #[test]
    fn a_link_that_says_the_same_is_the_same_and_all_else_only_replaced() {
        assert_eq!(plain(&symlink(), &Existing::Symlink(b"a".to_vec())), SAME);
        for existing in [
            Existing::Symlink(b"b".to_vec()),
            found(5, EARLIER, None),
            Existing::Other,
        ] {
            assert_eq!(plain(&symlink(), &existing), ONLY_REPLACED, "{existing:?}");
        }
        let link = Existing::Symlink(b"a".to_vec());
        assert_eq!(plain(&file(None), &link), ONLY_REPLACED);
    }

    #[test]
    fn a_file_never_replaces_a_node() {
        for existing in [
            Existing::Node(node(NodeKind::Fifo, 0)),
            Existing::Node(node(NodeKind::CharDevice, 3)),
            Existing::Other,
        ] {
            assert_eq!(plain(&file(None), &existing), NEVER, "{existing:?}");
        }
    }

    #[test]
    fn a_node_is_the_same_by_its_kind_and_numbers() {
        let device = entry(Content::Node(node(NodeKind::CharDevice, 3)));
        assert_eq!(
            plain(&device, &Existing::Node(node(NodeKind::CharDevice, 3))),
            SAME
        );
        for other in [
            node(NodeKind::CharDevice, 4),
            node(NodeKind::BlockDevice, 3),
            node(NodeKind::Fifo, 3),
        ] {
            assert_eq!(
                plain(&device, &Existing::Node(other)),
                ONLY_REPLACED,
                "{other:?}"
            );
        }
        assert_eq!(plain(&device, &Existing::Directory), NEVER);
        assert_eq!(plain(&device, &found(5, AT, None)), ONLY_REPLACED);
    }
}
