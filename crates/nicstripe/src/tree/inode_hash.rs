//! Recognition of a directory by a process of the same machine, for copies into the source itself.

use std::sync::LazyLock;

/// Returns the first 8 bytes (little-endian) of the BLAKE3 digest of the boot ID, the device number
/// and the inode number (64 bits each, little-endian); `None` if the boot ID cannot be read.
///
/// The boot ID distinguishes machines. A receiver on another machine has no equal hash, except by a
/// chance of 2^-64 for each directory.
pub(super) fn inode_hash((device, inode): (u64, u64)) -> Option<u64> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(BOOT.as_deref()?.as_bytes());
    hasher.update(&device.to_le_bytes());
    hasher.update(&inode.to_le_bytes());
    let first = hasher.finalize().as_bytes().first_chunk().copied();
    first.map(u64::from_le_bytes)
}

static BOOT: LazyLock<Option<String>> = LazyLock::new(|| nicstripe_link::boot_id().ok());
