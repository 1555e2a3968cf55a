//! Inodes of placed files, so that a hard link cannot refer to any other file.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use nicstripe_proto::tree::EntryId;

use crate::file::Inode;

/// Set of the entries to which hard links may refer, each with the inode that the receiver placed
/// for it.
///
/// Stores a keyed 64-bit hash of each pair, about 16 bytes. The key is random, so a peer cannot
/// choose an entry that collides with another file.
#[derive(Debug, Default)]
pub(super) struct PlacedInodes {
    seed: RandomState,
    hashes: HashSet<u64>,
}

impl PlacedInodes {
    pub(super) fn insert(&mut self, id: EntryId, inode: Inode) {
        self.hashes.insert(self.seed.hash_one((id.0, inode)));
    }

    pub(super) fn contains(&self, id: EntryId, inode: Inode) -> bool {
        self.hashes.contains(&self.seed.hash_one((id.0, inode)))
    }
}
