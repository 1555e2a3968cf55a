//! Group commit of small files: syncs the data of many files at once, then renames them.
//!
//! One `fsync` per file writes to the file system's journal each time; one `syncfs` costs the same
//! for thousands of files.

use std::{
    collections::BTreeMap,
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::tree::EntryId;
use rustix::fs::syncfs;

use super::part::Part;
use crate::file::is_tmpfs;

/// Written small files that wait for the next group commit.
#[derive(Debug, Default)]
pub(super) struct CommitGroup {
    parts: Vec<(EntryId, Arc<Part>)>,
    bytes: u64,
    /// Time at which the first file of the group was added.
    since: Option<Instant>,
}

impl CommitGroup {
    pub(super) fn push(&mut self, id: EntryId, part: Arc<Part>, bytes: u64) {
        self.parts.push((id, part));
        self.bytes += bytes;
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the time to wait for more files before the commit; `None` if the group is empty.
    pub(super) fn patience(&self) -> Option<Duration> {
        let is_full = self.bytes >= MOST_BYTES || self.parts.len() >= MOST_FILES;
        self.since.map(|since| {
            if is_full {
                Duration::ZERO
            } else {
                LONGEST.saturating_sub(since.elapsed())
            }
        })
    }

    pub(super) fn take(&mut self) -> Vec<(EntryId, Arc<Part>)> {
        std::mem::take(self).parts
    }
}

#[derive(Debug)]
pub(crate) struct Committed {
    pub(super) id: EntryId,
    /// Result of the commit; an error comes with the verb for the failed operation.
    pub(super) result: Result<(), (&'static str, io::Error)>,
}

/// Syncs written files and then renames them to their final names.
pub(super) fn commit(parts: Vec<(EntryId, Arc<Part>)>) -> Vec<Committed> {
    let synced = sync(&parts);
    let name = |(id, part): (EntryId, Arc<Part>)| {
        let result = match &synced {
            Ok(()) => part.commit().map_err(|error| ("name", error)),
            // A failed `syncfs` does not say which files are affected. It is not retried: the
            // kernel drops pages it could not write.
            Err(error) => Err(("sync", io::Error::new(error.kind(), error.to_string()))),
        };
        if result.is_err() {
            part.discard();
        }
        Committed { id, result }
    };
    parts.into_iter().map(name).collect()
}

fn sync(parts: &[(EntryId, Arc<Part>)]) -> io::Result<()> {
    if let [(_, part)] = parts {
        match part.sync() {
            // The file's permission bits may keep its own writer from reopening it; `syncfs` needs
            // no access to it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => return result,
        }
    }
    let mut devices = BTreeMap::new();
    for (_, part) in parts {
        // The directory was opened when the file was written, so its device is known.
        let device = part.parent.device().unwrap_or_default();
        devices.entry(device).or_insert(&part.parent);
    }
    devices
        .into_values()
        .try_for_each(|dir| sync_file_system(&*dir.open_to_sync()?))
}

/// Syncs the file system of a directory (syncfs(2)). A tmpfs has nothing to sync.
pub(super) fn sync_file_system(dir: impl AsFd) -> io::Result<()> {
    if !is_tmpfs(&dir) {
        syncfs(dir)?;
    }
    Ok(())
}

/// Maximum size of a group in bytes; this or `MOST_FILES`, reached first, starts the commit. A disk
/// at 100 MB/s writes `MOST_BYTES` in about a second, and `MOST_FILES` files take it as long.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FILES: usize = 4096;
const LONGEST: Duration = Duration::from_secs(1);
