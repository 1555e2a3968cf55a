//! Block devices: as large as they are, and written in place.

use std::{fs::File, io};

use rustix::fs::{SeekFrom, seek};

/// Bytes of a block device; where its end is, as stat(2) does not know it.
pub(super) fn size(device: &File) -> io::Result<u64> {
    Ok(seek(device, SeekFrom::End(0))?)
}
