//! Files and directories that a user has agreed to receive: names, kinds, numbers and sizes.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    io,
};

use nicstripe_proto::{Name, invitation::Item, message::OfferKind, tree::Content};
use parking_lot::Mutex;
use thiserror::Error;

/// Items to which a user has agreed, with what has been announced of each.
///
/// The text that the user read is a limit: a file arrives as a file, and an item brings at most its files and
/// bytes, and 1 % and [`SLACK_BYTES`] or [`SLACK_FILES`] for files that grew or came meanwhile.
#[derive(Debug)]
pub(crate) struct Agreed {
    items: HashMap<Vec<u8>, Mutex<Share>>,
    /// True if symbolic links may lead anywhere.
    keeps_links: bool,
    /// Random hash keys, so that a peer cannot choose entries that count as one.
    seed: RandomState,
}

/// Item, and what is left of it.
#[derive(Debug)]
struct Share {
    item: Item,
    files: u64,
    directories: u64,
    bytes: u64,
    /// Hashes of the path and kind of announced entries, with their bytes. They count once although a
    /// copy that lost its session announces them again; at most [`MOST_KNOWN`].
    known: HashMap<u64, u64>,
}

/// Reason why an entry is not what the user agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Disagreement {
    #[error("it was not offered")]
    Name,
    #[error("it was offered as {offered}, and is {found}")]
    Kind {
        offered: &'static str,
        found: &'static str,
    },
    #[error("it is {0}, which is not received from an offer")]
    Unreceived(&'static str),
    #[error("its {size} bytes are more than was agreed to")]
    Bytes { size: u64 },
    #[error("more files or directories than were agreed to")]
    Number,
    #[error("it is a symbolic link that leads out of what was offered: receive --links keeps it")]
    Link,
}

impl From<Disagreement> for io::Error {
    fn from(why: Disagreement) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, why)
    }
}

impl Agreed {
    pub(crate) fn new(items: impl IntoIterator<Item = Item>, keeps_links: bool) -> Self {
        let share = |item: Item| {
            let files = item.files.saturating_add(item.files / 100);
            let files = if item.is_dir {
                files.saturating_add(SLACK_FILES)
            } else {
                1
            };
            let share = Share {
                files,
                directories: files.max(MOST_DIRECTORIES),
                bytes: item
                    .bytes
                    .saturating_add(item.bytes / 100)
                    .saturating_add(SLACK_BYTES),
                known: HashMap::new(),
                item,
            };
            (share.item.name.clone(), Mutex::new(share))
        };
        Self {
            items: items.into_iter().map(share).collect(),
            keeps_links,
            seed: RandomState::new(),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = Vec<u8>> {
        self.items.keys().cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Counts a file that arrives by itself, outside of a tree.
    pub(crate) fn admit_file(
        &self,
        name: &Name,
        kind: OfferKind,
        size: u64,
    ) -> Result<(), Disagreement> {
        if kind != OfferKind::File || name.components().len() != 1 {
            return Err(Disagreement::Name);
        }
        self.admit(name, Kind::File(size))
    }

    /// Counts an entry of a tree; `path` is relative to the directory that has the items.
    pub(crate) fn admit_entry(&self, path: &Name, content: &Content) -> Result<(), Disagreement> {
        let kind = match content {
            Content::File { size, .. } => Kind::File(*size),
            // Another name of a file that this copy has placed.
            Content::HardLink { .. } => Kind::File(0),
            Content::Directory => Kind::Directory,
            Content::Symlink { target } => {
                let depth = path.components().len() - 1;
                if !self.keeps_links && (depth == 0 || !stays_inside(target, depth - 1)) {
                    return Err(Disagreement::Link);
                }
                Kind::Symlink
            }
            Content::Node(_) => return Err(Disagreement::Unreceived("a FIFO, socket or device")),
        };
        self.admit(path, kind)
    }

    fn admit(&self, path: &Name, kind: Kind) -> Result<(), Disagreement> {
        let top = path.components().next().and_then(|top| self.items.get(top));
        let mut share = top.ok_or(Disagreement::Name)?.lock();
        if path.components().len() == 1 {
            let (offered, found) = (word_of(&share.item), kind.word());
            if offered != found {
                return Err(Disagreement::Kind { offered, found });
            }
        } else if !share.item.is_dir {
            return Err(Disagreement::Name);
        }
        let size = kind.size();
        let components: Vec<&[u8]> = path.components().collect();
        let hash = self.seed.hash_one((components, kind.word()));
        let before = share.known.get(&hash).copied();
        if before.is_none() {
            let left = match kind {
                Kind::Directory => &mut share.directories,
                Kind::File(_) | Kind::Symlink => &mut share.files,
            };
            *left = left.checked_sub(1).ok_or(Disagreement::Number)?;
        }
        // A file may have grown since.
        let grown = size.saturating_sub(before.unwrap_or(0));
        share.bytes = share
            .bytes
            .checked_sub(grown)
            .ok_or(Disagreement::Bytes { size })?;
        if before.is_some() || share.known.len() < MOST_KNOWN {
            share.known.insert(hash, size.max(before.unwrap_or(0)));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    File(u64),
    Directory,
    Symlink,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::File(_) => FILE,
            Self::Directory => DIRECTORY,
            Self::Symlink => LINK,
        }
    }

    fn size(self) -> u64 {
        match self {
            Self::File(size) => size,
            Self::Directory | Self::Symlink => 0,
        }
    }
}

fn word_of(item: &Item) -> &'static str {
    match (item.is_dir, item.is_link) {
        (true, _) => DIRECTORY,
        (false, true) => LINK,
        (false, false) => FILE,
    }
}

/// Returns true if the target of a symbolic link stays inside the item, whatever else the item has:
/// it is relative, and goes up only at its start, at most to the item itself. `depth` is the number
/// of directories between the item and the link.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    let parts = target.split(|byte| *byte == b'/');
    let mut parts = parts.filter(|part| !matches!(*part, b"" | b".")).peekable();
    let mut up = 0;
    while parts.next_if(|part| *part == b"..").is_some() {
        up += 1;
    }
    !target.starts_with(b"/") && up <= depth && parts.all(|part| part != b"..")
}

const FILE: &str = "a file";
const DIRECTORY: &str = "a directory";
const LINK: &str = "a symbolic link";

/// Bytes of an item beyond 1 %, for files that grow between the offer and the copy.
const SLACK_BYTES: u64 = 1 << 20;
/// Files of a directory beyond 1 % that come between the offer and the copy.
const SLACK_FILES: u64 = 16;
/// Directories of an item with fewer files. An offer has no number of them (picked by eye).
const MOST_DIRECTORIES: u64 = 100_000;
/// Maximum number of hashes kept for an item, some 16 MiB.
const MOST_KNOWN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, is_dir: bool, files: u64, bytes: u64) -> Item {
        Item {
            name: name.into(),
            is_dir,
            is_link: false,
            files,
            bytes,
        }
    }

    fn file(size: u64) -> Content {
        Content::File {
            size,
            alone: false,
            digest: None,
        }
    }

    fn link(target: &str) -> Content {
        Content::Symlink {
            target: target.into(),
        }
    }

    fn name(path: &str) -> Name {
        Name::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn an_item_brings_no_more_than_was_agreed_to() {
        let agreed = Agreed::new(
            [item("a", false, 1, 1), item("d", true, 100, 1 << 30)],
            false,
        );
        let admit = |path: &str, content: Content| agreed.admit_entry(&name(path), &content);
        assert_eq!(admit("a", file(1 << 20)), Ok(()));
        // Announced again, as by a copy that lost its session.
        assert_eq!(admit("a", file(1 << 20)), Ok(()));
        // It has grown meanwhile, within the slack and beyond.
        assert_eq!(admit("a", file(1 + (1 << 20))), Ok(()));
        assert!(matches!(
            admit("a", file(2 << 20)),
            Err(Disagreement::Bytes { .. })
        ));
        assert_eq!(admit("b", file(0)), Err(Disagreement::Name));
        assert_eq!(admit("a/x", file(0)), Err(Disagreement::Name));
        assert_eq!(admit("d", Content::Directory), Ok(()));
        assert!(matches!(
            admit("d", file(0)),
            Err(Disagreement::Kind { .. })
        ));
        assert!(matches!(
            admit("d/large", file(1 << 40)),
            Err(Disagreement::Bytes { .. })
        ));
        let admitted = (0..200).filter(|one| admit(&format!("d/{one}"), file(0)).is_ok());
        assert_eq!(admitted.count() as u64, 100 + 1 + SLACK_FILES - 1);
        let directories = (0..MOST_DIRECTORIES + 100).filter(|one| {
            let path = format!("d/dir/{one}");
            admit(&path, Content::Directory).is_ok()
        });
        assert_eq!(directories.count() as u64, MOST_DIRECTORIES - 1);
        let put = |path: &str, kind, size| agreed.admit_file(&name(path), kind, size);
        assert_eq!(put("a", OfferKind::Pipe, 1), Err(Disagreement::Name));
        assert_eq!(put("d/x", OfferKind::File, 1), Err(Disagreement::Name));
        assert_eq!(put("a", OfferKind::File, 1 << 20), Ok(()));
    }

    #[test]
    fn links_stay_inside_unless_they_are_kept() {
        let items = || [item("a", false, 1, 1), item("d", true, 1000, 0)];
        let (strict, keeping) = (Agreed::new(items(), false), Agreed::new(items(), true));
        for (path, target, stays) in [
            ("d/x", "y", true),
            ("d/x", "./sub/y", true),
            ("d/sub/x", "../y", true),
            ("d/sub/x", "./..//y", true),
            ("d/x", "./../y", false),
            ("d/x", "../y", false),
            ("d/sub/x", "../../y", false),
            ("d/x", "/etc/shadow", false),
            ("d/x", "sub/../../y", false),
            ("d/x", "sub/..", false),
        ] {
            let admit = |agreed: &Agreed| agreed.admit_entry(&name(path), &link(target)).is_ok();
            assert_eq!(admit(&strict), stays, "{path} → {target}");
            assert!(admit(&keeping), "{path} → {target}");
        }
        // The user agreed to a file.
        for agreed in [strict, keeping] {
            assert!(
                agreed
                    .admit_entry(&name("a"), &link("/etc/shadow"))
                    .is_err()
            );
        }
        let offered = Item {
            is_link: true,
            ..item("a", false, 1, 0)
        };
        let agreed = Agreed::new([offered], true);
        assert_eq!(agreed.admit_entry(&name("a"), &link("/etc/shadow")), Ok(()));
    }
}
