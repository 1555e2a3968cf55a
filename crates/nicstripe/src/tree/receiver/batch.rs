//! Small files are made durable many at a time: first all data, then all names.
//!
//! A sync a file costs a write to the disk's journal each; one `syncfs` costs the same for thousands.

use std::{
    collections::BTreeMap,
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::tree::EntryId;
use rustix::fs::{fstatfs, syncfs};

use super::part::Part;
use crate::file::TMPFS_MAGIC;

/// Small files that are written and wait for their names.
#[derive(Debug, Default)]
pub(super) struct Batch {
    parts: Vec<(EntryId, Arc<Part>)>,
    bytes: u64,
    /// When the first came.
    since: Option<Instant>,
}

impl Batch {
    pub(super) fn push(&mut self, id: EntryId, part: Arc<Part>, bytes: u64) {
        self.parts.push((id, part));
        self.bytes += bytes;
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How long it may wait for more; `None` while it is empty.
    pub(super) fn patience(&self) -> Option<Duration> {
        let is_full = self.bytes >= MOST_BYTES || self.parts.len() >= MOST_FILES;
        self.since.map(|since| if is_full { Duration::ZERO } else { LONGEST.saturating_sub(since.elapsed()) })
    }

    /// Takes what there is.
    pub(super) fn take(&mut self) -> Vec<(EntryId, Arc<Part>)> {
        std::mem::take(self).parts
    }
}

/// What became of a file of a batch.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) id: EntryId,
    /// What was tried, and what the system said.
    pub(super) result: Result<(), (&'static str, io::Error)>,
}

/// Makes files durable and then gives them their names.
pub(super) fn commit(parts: Vec<(EntryId, Arc<Part>)>) -> Vec<Committed> {
    let synced = sync(&parts);
    let name = |(id, part): (EntryId, Arc<Part>)| {
        let result = match &synced {
            Ok(()) => part.commit().map_err(|error| ("name", error)),
            // A failed sync says nothing of single files, and is not tried again: the kernel forgets what it could not write.
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
            // Its bits may keep its own writer from opening it again.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => return result,
        }
    }
    let mut devices = BTreeMap::new();
    for (_, part) in parts {
        // Whoever wrote a part has opened its place.
        let device = part.place.device().unwrap_or_default();
        devices.entry(device).or_insert(&part.place);
    }
    devices.into_values().try_for_each(|place| sync_file_system(&*place.open_to_sync()?))
}

/// Makes everything durable on the file system of a directory. A tmpfs has nothing to lose.
pub(super) fn sync_file_system(dir: impl AsFd) -> io::Result<()> {
    if fstatfs(&dir)?.f_type == TMPFS_MAGIC {
        return Ok(());
    }
    Ok(syncfs(dir)?)
}

/// A batch ends with the first of these: what a disk of 100 MB/s writes in a second, as many files as cost it that, and a second.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FILES: usize = 4096;
const LONGEST: Duration = Duration::from_secs(1);
