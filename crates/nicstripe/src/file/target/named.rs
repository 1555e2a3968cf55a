//! Recovery of a file whose previous transfer was interrupted between its rename and its
//! acknowledgement.

use std::{io, ops::ControlFlow, os::unix::fs::FileExt};

use nicstripe_proto::{ChunkId, Extent, Grid, HashTree, Subtree, hash_tree::chunk_value};
use rustix::{
    fs::{AtFlags, FileType, OFlags, fstat, statat, unlinkat},
    io::Errno,
};

use super::{Files, Spared, Target, TargetRequest, TargetState, is_same};
use crate::file::{
    beneath::{inode_of, open_entry},
    error::FileError,
    hidden::hidden_name,
    journal::JournalFile,
    pool::TURN,
    root::exists,
};

/// Finds a file completed by an earlier attempt of the same peer with the same source.
///
/// A commit interrupted right after its rename leaves a journal without a part file. Both ends then
/// hash the file ([`Rehash`]). If their digests differ, the journal is removed and the transfer
/// starts from zero.
pub(super) fn find_named(request: &TargetRequest, grid: Grid) -> io::Result<Option<Files>> {
    if request.options.restart
        || grid.is_open()
        || exists(&request.dir, &request.name)? != Some(FileType::RegularFile)
    {
        return Ok(None);
    }
    let journal_name = hidden_name(&request.name, &request.peer_key, "journal");
    // If another transfer holds the journal, opening the target reports it later.
    let Ok(journal) = JournalFile::lock_existing(&request.dir, &journal_name) else {
        return Ok(None);
    };
    let replayed =
        JournalFile::replay(&journal)?.filter(|replayed| is_same(replayed, grid, request));
    let Some(replayed) = replayed else {
        return Ok(None);
    };
    let part_name = hidden_name(&request.name, &replayed.header.id.0, "part");
    let part = open_entry(&request.dir, &request.name, OFlags::RDONLY)?;
    match statat(&request.dir, &part_name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        // Interrupted between the two steps of a rename without flags.
        Ok(found) if inode_of(&found) == inode_of(&fstat(&part)?) => {
            unlinkat(&request.dir, &part_name, AtFlags::empty())?;
        }
        found => return found.map(|_| None).map_err(io::Error::from),
    }
    if part.metadata()?.len() != grid.size {
        // The file is a different one, and the journal is useless without its part file.
        unlinkat(&request.dir, &journal_name, AtFlags::empty())?;
        return Ok(None);
    }
    let files = Files {
        part,
        _lock: None,
        part_name: None,
        journal_name: Some(journal_name),
        journal: Some(JournalFile::resume(journal, &replayed)?),
        state: TargetState::Named,
        spared: Spared::default(),
    };
    Ok(Some(files))
}

/// Hash tree of a complete file, which is computed in turns.
#[derive(Debug)]
pub(crate) struct Rehash {
    tree: HashTree,
    next: ChunkId,
}

impl Target {
    /// Begins to hash a file that an earlier attempt has completed; `None` for other targets.
    pub(crate) fn rehash(&self) -> Option<Rehash> {
        (self.files.state == TargetState::Named).then(|| Rehash {
            tree: HashTree::new(self.grid),
            next: ChunkId(0),
        })
    }

    /// Hashes the next [`TURN`] bytes. Returns the hash-tree nodes at the end of the file.
    pub(crate) fn rehash_turn(
        &self,
        rehash: &mut Rehash,
    ) -> Result<ControlFlow<Vec<Subtree>>, FileError> {
        self.hash_chunks(rehash)
            .map_err(|cause| self.error("look at", cause))
    }

    fn hash_chunks(&self, rehash: &mut Rehash) -> io::Result<ControlFlow<Vec<Subtree>>> {
        let mut buffer = vec![0; self.grid.chunk_size.bytes() as usize];
        let mut hashed = 0;
        while let Some(Extent { offset, len }) = self.grid.extent_of(rehash.next) {
            if hashed >= TURN {
                return Ok(ControlFlow::Continue(()));
            }
            let bytes = &mut buffer[..len as usize];
            self.files.part.read_exact_at(bytes, offset)?;
            let value = chunk_value(self.grid, rehash.next, bytes).map_err(io::Error::other)?;
            rehash
                .tree
                .insert(Subtree::of_chunk(rehash.next, value))
                .map_err(io::Error::other)?;
            rehash.next = ChunkId(rehash.next.0 + 1);
            hashed += len;
        }
        Ok(ControlFlow::Break(rehash.tree.subtrees().collect()))
    }
}
