//! Cache of directories that a session has partly listed.

use std::{
    collections::{BinaryHeap, VecDeque},
    io,
    os::fd::OwnedFd,
};

use nicstripe_proto::Name;

use crate::file::{Lease, entries_of, is_hidden_name};

/// Partly listed directories, so that the daemon reads a directory once and not for each page.
#[derive(Debug, Default)]
pub(super) struct Listings(VecDeque<(Listing, Lease)>);

#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) dir: Option<Name>,
    /// Name of the last entry sent to the peer.
    pub(super) last_sent: Option<Vec<u8>>,
    /// Names read from the directory and not yet sent, in byte order.
    pub(super) names: VecDeque<Vec<u8>>,
    /// Greatest name read so far; greater ones in the directory are unread.
    pub(super) read_to: Option<Vec<u8>>,
    pub(super) is_complete: bool,
}

/// Maximum number of partly listed directories cached per session.
const MOST_LISTINGS: usize = 2;

/// Maximum number of names cached per directory: 4 MiB at 64 bytes each. A larger directory is read
/// again after that many names.
pub(super) const MOST_NAMES: usize = 65_536;

impl Listings {
    /// Removes and returns the cached listing whose next entry follows `after`, or creates one.
    pub(super) fn take(&mut self, dir: Option<&Name>, after: Option<&[u8]>) -> Listing {
        let known = self.0.iter().position(|(known, _)| {
            after.is_some() && known.dir.as_ref() == dir && known.last_sent.as_deref() == after
        });
        let known = known.and_then(|index| self.0.remove(index));
        known.map(|(known, _)| known).unwrap_or_else(|| Listing {
            dir: dir.cloned(),
            read_to: after.map(<[u8]>::to_vec),
            ..Listing::default()
        })
    }

    /// Caches a partly sent listing for its next page, with the lease of its memory. Evicts the
    /// least recently used one.
    pub(super) fn keep(&mut self, listing: Listing, lease: Lease) {
        if self.0.len() >= MOST_LISTINGS {
            self.0.pop_front();
        }
        self.0.push_back((listing, lease));
    }
}

impl Listing {
    /// Returns the memory of the names in bytes.
    pub(super) fn memory(&self) -> usize {
        let names = self.names.iter();
        names
            .map(|name| size_of::<Vec<u8>>() + name.capacity())
            .sum()
    }

    /// Reads the `most` smallest names of the directory that are greater than the last one read.
    pub(super) fn fill(&mut self, dir: &OwnedFd, most: usize) -> io::Result<()> {
        let mut first: BinaryHeap<Vec<u8>> = BinaryHeap::new();
        self.is_complete = true;
        for entry in entries_of(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if is_hidden_name(name) || self.read_to.as_deref().is_some_and(|read| name <= read) {
                continue;
            }
            if first.len() < most {
                first.push(name.to_vec());
                continue;
            }
            self.is_complete = false;
            if let Some(mut last) = first.peek_mut().filter(|last| name < last.as_slice()) {
                *last = name.to_vec();
            }
        }
        let names = first.into_sorted_vec();
        self.read_to = names.last().cloned().or(self.read_to.take());
        self.names = names.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;
    use crate::file::Quota;

    fn directory(names: &[&str]) -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        names
            .iter()
            .for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        let opened = openat(
            CWD,
            dir.path(),
            OFlags::DIRECTORY | OFlags::RDONLY,
            Mode::empty(),
        )
        .unwrap();
        (dir, opened)
    }

    fn filled(listing: &mut Listing, dir: &OwnedFd) -> Vec<String> {
        listing.fill(dir, 2).unwrap();
        listing
            .names
            .drain(..)
            .map(|name| String::from_utf8(name).unwrap())
            .collect()
    }

    #[test]
    fn a_directory_with_more_names_than_are_kept_is_read_piece_by_piece() {
        let (_dir, opened) = directory(&["e", "a", ".x.01234567.nicstripe-journal", "d", "b", "c"]);
        let mut listing = Listing::default();
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["a".into(), "b".into()], false)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["c".into(), "d".into()], false)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["e".into()], true)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec![], true)
        );
        let mut behind = Listing {
            read_to: Some(b"c".to_vec()),
            ..Listing::default()
        };
        assert_eq!(
            (filled(&mut behind, &opened), behind.is_complete),
            (vec!["d".into(), "e".into()], true)
        );
    }

    #[test]
    fn listings_are_gone_on_with_where_they_were_and_no_more_than_two_are_kept() {
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        let mut listings = Listings::default();
        for dir in ["a", "b", "c"] {
            let names = VecDeque::from([b"y".to_vec()]);
            let listing = Listing {
                dir: Some(name(dir)),
                last_sent: Some(b"x".to_vec()),
                names,
                ..Listing::default()
            };
            let lease = Quota::new(1000).try_lease(listing.memory()).unwrap();
            listings.keep(listing, lease);
        }
        let left = |listings: &mut Listings, dir: &str, after: Option<&[u8]>| {
            listings.take(Some(&name(dir)), after).names.len()
        };
        assert_eq!(
            left(&mut listings, "a", Some(b"x")),
            0,
            "it ended when the third arrived"
        );
        assert_eq!(left(&mut listings, "b", Some(b"w")), 0, "from elsewhere on");
        assert_eq!(left(&mut listings, "b", None), 0, "from the beginning");
        assert_eq!(left(&mut listings, "b", Some(b"x")), 1);
        assert_eq!(left(&mut listings, "b", Some(b"x")), 0, "it was taken");
        assert_eq!(left(&mut listings, "c", Some(b"x")), 1);
    }
}
