//! Disks: what a copy would read and write, by itself.

use std::time::Instant;

use nicstripe_proto::message::{DiskDone, DiskOrder};
use rustix::{
    fs::{Mode, OFlags, fdatasync, openat},
    io::pwrite,
};

use crate::file::{FileError, Root};

/// Most that is written for a bench: 64 GiB.
const MOST_WRITTEN: u64 = 64 << 30;

/// Writes so many bytes where a file of that name would go, durably, to a file without a name, so that nothing stays.
pub(crate) fn write_stage(root: &Root, order: &DiskOrder) -> Result<DiskDone, FileError> {
    let error = |source: std::io::Error| FileError::new("write for a bench in", "the target's directory", source);
    let parent = match &order.name {
        Some(name) => root.open_parent(name),
        None => root.open_directory(None),
    };
    let dir = parent.map_err(error)?;
    let file = openat(&dir, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|source| error(source.into()))?;
    let mut block = vec![0; 1 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut block);
    let (began, bytes, mut at) = (Instant::now(), order.bytes.min(MOST_WRITTEN), 0);
    while at < bytes {
        let len = block.len().min((bytes - at) as usize);
        at += pwrite(&file, &block[..len], at).map_err(|source| error(source.into()))? as u64;
    }
    fdatasync(&file).map_err(|source| error(source.into()))?;
    Ok(DiskDone { number: order.number, bytes, micros: began.elapsed().as_micros() as u64, file_system: None, error: None })
}
