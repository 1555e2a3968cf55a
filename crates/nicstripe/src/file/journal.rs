//! Journal file of an unfinished copy: records are appended only after their data is durable.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
};

use nicstripe_proto::{
    Grid, SourceIdentity, Subtree,
    hash_tree::merge_siblings,
    journal::{HEADER_LEN, Header, Record, Replay, Replayed},
    name::escaped,
};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, OFlags, fstat, statat, unlinkat},
    io::Errno,
};

use super::{
    beneath::{inode_of, no_new_files, open_entry},
    disk,
    hidden::hidden_name,
    lock::Locked,
    ours::Others,
    root::exists,
};

/// Locked journal of an unfinished copy, open for appending.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: Locked,
    header: Header,
    end: Mutex<u64>,
}

impl JournalFile {
    /// Opens or creates the journal `name` in `dir`, and locks it against other transfers. Removes
    /// a file of that name that other users may have written.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another transfer holds the lock. Other errors if another
    /// user's file cannot be removed.
    pub(super) fn lock(dir: &OwnedFd, name: &OsStr) -> io::Result<Locked> {
        for _ in 0..MOST_FOREIGN {
            match Self::lock_with(dir, name, OFlags::CREATE) {
                Ok(file) if is_ours(dir, &file)? => return Ok(file),
                // Not locked by anyone, or a symbolic link.
                Ok(_) | Err(Errno::LOOP) => {
                    unlinkat(dir, name, AtFlags::empty()).map_err(|_| foreign(name))?;
                }
                Err(Errno::ACCESS) if exists(dir, name)?.is_some() => return Err(foreign(name)),
                Err(Errno::NOENT) => return Err(no_new_files()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(foreign(name))
    }

    /// Opens and locks an existing journal.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another transfer holds the lock.
    /// [`io::ErrorKind::NotFound`] if the journal is missing or other users may have written it.
    pub(super) fn lock_existing(dir: &OwnedFd, name: &OsStr) -> io::Result<Locked> {
        let file = Self::lock_with(dir, name, OFlags::empty())?;
        if is_ours(dir, &file)? {
            Ok(file)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn lock_with(dir: &OwnedFd, name: &OsStr, more: OFlags) -> rustix::io::Result<Locked> {
        loop {
            let file = Locked::new(open_entry(dir, name, OFlags::RDWR | more)?)?;
            // The previous holder may have removed the file between the two calls; then the lock
            // protects nothing.
            let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            let ours = inode_of(&fstat(&file)?);
            if found.is_ok_and(|found| inode_of(&found) == ours) {
                return Ok(file);
            }
        }
    }

    /// Reads the records of a locked journal; returns `None` if the file is not a journal.
    pub(super) fn replay(mut file: &File) -> io::Result<Option<Replayed>> {
        let mut header = [0; HEADER_LEN];
        match file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let Ok(header) = Header::decode(&header) else {
            return Ok(None);
        };
        let mut replay = Replay::new(header);
        let mut buffer = vec![0; READ_LEN];
        io::Seek::seek(&mut file, io::SeekFrom::Start(HEADER_LEN as u64))?;
        loop {
            let len = file.read(&mut buffer)?;
            if len == 0 || !replay.feed(&buffer[..len]) {
                return Ok(Some(replay.finish()));
            }
        }
    }

    /// Truncates an incomplete record at the end of a replayed journal, and opens it for appending.
    pub(super) fn resume(file: Locked, replayed: &Replayed) -> io::Result<Self> {
        file.set_len(replayed.valid_len)?;
        Ok(Self {
            file,
            header: replayed.header,
            end: Mutex::new(replayed.valid_len),
        })
    }

    pub(super) fn start(file: Locked, header: Header) -> io::Result<Self> {
        file.set_len(0)?;
        file.write_all_at(&header.encode(), 0)?;
        Ok(Self {
            file,
            header,
            end: Mutex::new(HEADER_LEN as u64),
        })
    }

    /// Appends records of durable chunks to the journal and syncs it.
    pub(super) fn append(&self, grid: Grid, subtrees: Vec<Subtree>) -> io::Result<()> {
        let merged = merge_siblings(grid, subtrees).map_err(io::Error::other)?;
        let records: Vec<u8> = merged
            .into_iter()
            .flat_map(|subtree| Record { subtree }.encode(self.header.id))
            .collect();
        let mut end = self.end.lock();
        disk::write_all_at(&self.file, &records, *end)?;
        disk::sync_data(&self.file)?;
        *end += records.len() as u64;
        Ok(())
    }
}

/// Deletes journal and part file of an earlier attempt of the same peer.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if that attempt is still running.
pub(crate) fn remove_earlier(dir: &OwnedFd, name: &OsStr, peer_key: &[u8; 32]) -> io::Result<()> {
    let journal_name = hidden_name(name, peer_key, "journal");
    let journal = match JournalFile::lock_existing(dir, &journal_name) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
        // Missing, or not a usable journal.
        Err(_) => return Ok(()),
        Ok(journal) => journal,
    };
    if let Ok(Some(replayed)) = JournalFile::replay(&journal) {
        let _ = unlinkat(
            dir,
            hidden_name(name, &replayed.header.id.0, "part"),
            AtFlags::empty(),
        );
    }
    let _ = unlinkat(dir, &journal_name, AtFlags::empty());
    Ok(())
}

/// Returns the identity of the source of an earlier attempt of the same peer; `None` if there was
/// no attempt or it is still running.
pub(super) fn earlier_source(
    dir: &OwnedFd,
    name: &OsStr,
    peer_key: &[u8; 32],
) -> Option<SourceIdentity> {
    let journal = JournalFile::lock_existing(dir, &hidden_name(name, peer_key, "journal")).ok()?;
    let replayed = JournalFile::replay(&journal).ok()?;
    replayed.map(|replayed| replayed.header.source)
}

/// Returns true if only this process's user can have written the file.
fn is_ours(dir: &OwnedFd, file: &File) -> io::Result<bool> {
    Others::default().are_all(dir, file)
}

fn foreign(name: &OsStr) -> io::Error {
    let name = escaped(name.as_bytes());
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("\"{name}\" belongs to another user: remove it"),
    )
}

/// Maximum number of other users' files removed while creating one journal. A user who keeps
/// creating such files can block the transfer.
const MOST_FOREIGN: usize = 8;

/// Size of a read during replay in bytes: 1024 records.
const READ_LEN: usize = 64 * 1024;
