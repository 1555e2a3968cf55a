//! System calls on the data of a copy. The simulated disk of a test can fail them, and remembers
//! what they made durable.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{SeekFrom, fsync, seek},
    io::Errno,
};

#[cfg(test)]
use super::pool::{DiskCall, SimulatedDisk};

pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    SimulatedDisk::attempt(DiskCall::Read, 0)?;
    file.read_exact_at(bytes, offset)
}

pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    SimulatedDisk::attempt(DiskCall::Write, bytes.len() as u64)?;
    file.write_all_at(bytes, offset)
}

/// Makes the content and the length of a file durable.
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    sync(file, || file.sync_data())
}

/// Makes the content and the attributes of a file durable.
pub(super) fn sync_all(file: &File) -> io::Result<()> {
    sync(file, || file.sync_all())
}

/// Makes the names in a directory durable, within the limits of its file system: some network and FUSE
/// file systems have no sync of a directory.
pub(crate) fn sync_names(dir: &OwnedFd) -> io::Result<()> {
    sync(dir, || match fsync(dir) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        synced => Ok(synced?),
    })
}

/// Returns the size of a block device in bytes, by seeking to its end; stat(2) does not report it.
pub(super) fn device_size(device: &File) -> io::Result<u64> {
    Ok(seek(device, SeekFrom::End(0))?)
}

#[cfg_attr(
    not(test),
    expect(unused_variables, reason = "a simulated disk notes it")
)]
fn sync(of: &impl AsFd, how: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    #[cfg(test)]
    SimulatedDisk::attempt_sync(of.as_fd())?;
    how()?;
    #[cfg(test)]
    SimulatedDisk::on_synced(of.as_fd());
    Ok(())
}
