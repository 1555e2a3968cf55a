//! Size of block devices, which are written in place.

use std::{fs::File, io};

use rustix::fs::{SeekFrom, seek};

/// Returns the size of a block device in bytes, by seeking to its end; stat(2) does not report it.
pub(super) fn size(device: &File) -> io::Result<u64> {
    Ok(seek(device, SeekFrom::End(0))?)
}
