//! Limits a walk to one share of the files.

use std::collections::HashMap;

use nicstripe_proto::{
    message::WalkRules,
    tree::{
        Share, TreeRules,
        share::{Bucket, Cut, Deal, Pieces},
    },
};
use rustix::fs::{FileType, Stat};

use super::{SendSource, Walk};
use crate::{
    file::inode_of,
    tree::{filter::Filters, listing::Listing},
};

#[derive(Debug)]
pub(super) enum Sharing {
    /// All files are counted and none is announced.
    Counting(Box<Count>),
    /// The files of one share are announced.
    Taking {
        cut: Cut,
        /// Buckets of files with several names; the first counts.
        linked: HashMap<(u64, u64), Bucket>,
    },
}

/// Files that a walk has counted.
#[derive(Debug, Default)]
pub(super) struct Count {
    deal: Deal,
    linked: HashMap<(u64, u64), Bucket>,
    listing: Listing,
}

impl Sharing {
    /// Counts a file, or decides if it is announced. `path` is relative to the source; `names` is its
    /// number of names if its hard links are preserved, otherwise 1.
    pub(super) fn takes(&mut self, path: &[u8], stat: &Stat, names: usize) -> bool {
        let inode = inode_of(stat);
        match self {
            Self::Counting(count) => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                // Other types have no content.
                let mut size = match kind {
                    FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or_default(),
                    _ => 0,
                };
                count.listing.add(path, kind, size);
                let mut bucket = Bucket::of(path);
                if names > 1 {
                    match count.linked.get(&inode) {
                        Some(first) => (bucket, size) = (*first, 0),
                        None => drop(count.linked.insert(inode, bucket)),
                    }
                }
                count.deal.add(bucket, size);
                false
            }
            Self::Taking { cut, linked } => {
                let bucket = linked.get(&inode).filter(|_| names > 1).copied();
                cut.contains(bucket.unwrap_or_else(|| Bucket::of(path)))
            }
        }
    }
}

impl Sharing {
    /// Counts the pieces of a large file, or returns those that are in the share.
    pub(super) fn pieces(&mut self, path: &[u8], stat: &Stat, pieces: Pieces) -> Vec<u32> {
        let bucket = |index| Bucket::of_piece(path, index);
        match self {
            Self::Counting(count) => {
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                count.listing.add(path, FileType::RegularFile, size);
                for index in 0..pieces.count() {
                    let range = pieces.range(index);
                    count.deal.add(bucket(index), range.end - range.start);
                }
                Vec::new()
            }
            Self::Taking { cut, .. } => (0..pieces.count())
                .filter(|index| cut.contains(bucket(*index)))
                .collect(),
        }
    }
}

/// Returns the pieces of a large file; `None` for another.
pub(super) fn pieces_of(stat: &Stat) -> Option<Pieces> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    u64::try_from(stat.st_size)
        .ok()
        .filter(|_| is_file)
        .and_then(Pieces::of)
}

impl Walk {
    /// Returns a walk of the share that the rules name. It counts all files before, one at a step.
    pub(in crate::tree) fn of_share(
        rules: &TreeRules,
        walk: WalkRules,
        filters: Filters,
        sources: Vec<SendSource>,
    ) -> Self {
        let counting = walk.share.is_some().then(|| {
            let (walk, filters) = (walk.clone(), filters.clone());
            Box::new(Self::counting(rules, walk, filters, sources.clone()))
        });
        Self {
            counting,
            ..Self::new(rules, walk, filters, sources)
        }
    }

    fn counting(
        rules: &TreeRules,
        walk: WalkRules,
        filters: Filters,
        sources: Vec<SendSource>,
    ) -> Self {
        // Nothing is announced, so no metadata is read.
        let rules = TreeRules {
            nodes: rules.nodes,
            ..TreeRules::default()
        };
        Self {
            sharing: Some(Sharing::Counting(Box::default())),
            ..Self::new(&rules, walk, filters, sources)
        }
    }

    /// Counts for the share by one step. Returns false if all is counted.
    pub(super) fn count(&mut self) -> bool {
        let Some(counting) = &mut self.counting else {
            return false;
        };
        if counting.count_on() {
            return true;
        }
        let count = counting.counted();
        self.sharing = self.walk.share.map(|share| count.taking(share));
        self.counting = None;
        true
    }

    fn count_on(&mut self) -> bool {
        self.found.clear();
        self.step().is_some()
    }

    fn counted(&mut self) -> Box<Count> {
        match self.sharing.take() {
            Some(Sharing::Counting(count)) => count,
            _ => Box::default(),
        }
    }
}

/// Returns the digest and the totals of the files that a walk finds.
pub(crate) fn listing(
    rules: &TreeRules,
    walk: WalkRules,
    filters: Filters,
    sources: Vec<SendSource>,
) -> Listing {
    let mut counting = Walk::counting(rules, walk, filters, sources);
    while counting.count_on() {}
    counting.counted().listing
}

impl Count {
    fn taking(self, share: Share) -> Sharing {
        Sharing::Taking {
            cut: self.deal.cut(share),
            linked: self.linked,
        }
    }
}
