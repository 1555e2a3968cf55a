//! Recovery of a file whose previous transfer was interrupted between its rename and its
//! acknowledgement.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt};

use nicstripe_proto::{Extent, Grid, HashTree, Subtree, hash_tree::chunk_value};
use rustix::{
    fs::{AtFlags, FileType, OFlags, fstat, statat, unlinkat},
    io::Errno,
};

use super::{Files, Spared, TargetRequest, TargetState, is_same};
use crate::file::{
    beneath::{inode_of, open_entry},
    hidden::hidden_name,
    journal::JournalFile,
    root::exists,
};

/// Finds a file completed by an earlier attempt of the same peer with the same source. Reads the
/// whole file.
///
/// A commit interrupted right after its rename leaves a journal without a part file. Both ends then
/// hash the file. If their digests differ, the journal is removed and the transfer starts from
/// zero.
pub(super) fn find_named(
    request: &TargetRequest,
    grid: Grid,
) -> io::Result<Option<(Files, Vec<Subtree>)>> {
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
    let have = subtrees_of(&part, grid)?;
    let files = Files {
        part,
        _lock: None,
        part_name: OsString::new(),
        journal_name,
        journal: Some(JournalFile::resume(journal, &replayed)?),
        state: TargetState::Named,
        spared: Spared::default(),
    };
    Ok(Some((files, have)))
}

/// Hashes a whole file and returns the hash-tree nodes of its chunks.
fn subtrees_of(file: &File, grid: Grid) -> io::Result<Vec<Subtree>> {
    let mut tree = HashTree::new(grid);
    let mut buffer = vec![0; grid.chunk_size.bytes() as usize];
    for chunk in 0..grid.chunk_count() {
        let chunk = nicstripe_proto::ChunkId(chunk);
        let Some(Extent { offset, len }) = grid.extent_of(chunk) else {
            continue;
        };
        let bytes = &mut buffer[..len as usize];
        file.read_exact_at(bytes, offset)?;
        let value = chunk_value(grid, chunk, bytes).map_err(io::Error::other)?;
        tree.insert(Subtree::of_chunk(chunk, value))
            .map_err(io::Error::other)?;
    }
    Ok(tree.subtrees().collect())
}
