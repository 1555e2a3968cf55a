//! Filling a target from a file of the same machine.

use std::fs::File;

use nicstripe_proto::Extent;
use rustix::fs::{copy_file_range, ioctl_ficlone};

use super::Target;
use crate::file::{disk, error::FileError, source::Source};

impl Target {
    /// Copies bytes of `source` to the offset `to` of this target, in the kernel if it can. Returns
    /// their number, at least 1 and at most that of `extent`; for a copy of a file possibly all of it, if
    /// the file system can share its blocks.
    pub(crate) fn copy_from(
        &self,
        source: &Source,
        extent: Extent,
        to: u64,
    ) -> Result<u64, FileError> {
        let part = &self.files.part;
        if let Some(file) = source.file() {
            if extent.offset == 0 && !self.grid.is_open() && ioctl_ficlone(part, file).is_ok() {
                return Ok(self.grid.known_size());
            }
            if let Some(copied) = copied_in_kernel(file, part, extent, to) {
                return Ok(copied);
            }
        }
        let mut bytes = vec![0; extent.len.min(COPIED_AT_ONCE) as usize];
        source.read_exact_at(&mut bytes, extent.offset)?;
        disk::write_all_at(part, &bytes, to).map_err(|cause| self.error("write", cause))?;
        Ok(bytes.len() as u64)
    }

    /// Syncs what was copied so far, so that the commit has less to sync.
    pub(crate) fn sync_copied(&self) -> Result<(), FileError> {
        let syncs = self.syncs.lock();
        self.sync_part(*syncs, disk::sync_data)
    }
}

/// Returns the number of bytes that the kernel has copied; `None` if it cannot copy between these
/// files.
fn copied_in_kernel(from: &File, into: &File, extent: Extent, to: u64) -> Option<u64> {
    let (mut read_at, mut write_at) = (extent.offset, to);
    let copied = copy_file_range(
        from,
        Some(&mut read_at),
        into,
        Some(&mut write_at),
        usize::try_from(extent.len).ok()?,
    );
    copied
        .ok()
        .filter(|copied| *copied > 0)
        .map(|copied| copied as u64)
}

/// Bytes that are read into memory at once where the kernel cannot copy.
pub(crate) const COPIED_AT_ONCE: u64 = 1 << 20;
