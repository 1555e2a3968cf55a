//! Properties of a file system, found by a new file on it.

use std::{fs::File, io, os::fd::OwnedFd};

use nicstripe_proto::journal::Timestamp;
use rustix::fs::{AtFlags, OFlags, fstat, futimens, unlinkat};

use super::{
    attributes::{mtime_of, times_of},
    beneath::open_entry,
    hidden::hidden_name,
};
use crate::trust::random::random_bytes;

/// Creates a hidden file in a directory, which `look` receives, and removes it.
pub(super) fn probed<T>(dir: &OwnedFd, look: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    let name = hidden_name("".as_ref(), &random_bytes::<8>(), "part");
    let file = open_entry(dir, &name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    // The open file, because another user may exchange the name.
    let looked = look(&file);
    let _ = unlinkat(dir, &name, AtFlags::empty());
    looked
}

/// Returns the unit in nanoseconds in which a directory's file system keeps modification times: 1
/// on most, 100 on NTFS and SMB, 10^7 on exFAT, 2·10^9 on FAT.
pub(crate) fn time_unit_of(dir: &OwnedFd) -> io::Result<u64> {
    let kept = probed(dir, |file| {
        futimens(file, &times_of(UNEVEN))?;
        Ok(mtime_of(&fstat(file)?))
    })?;
    let lost = nanoseconds_between(UNEVEN, kept);
    Ok(UNITS.into_iter().find(|unit| *unit > lost).unwrap_or(1))
}

/// Returns the time between two times in nanoseconds.
pub(crate) fn nanoseconds_between(one: Timestamp, other: Timestamp) -> u64 {
    let nanoseconds =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let between = nanoseconds(one).abs_diff(nanoseconds(other));
    u64::try_from(between).unwrap_or(u64::MAX)
}

/// Units of times, in nanoseconds: [`UNEVEN`] loses more than a tenth of its unit in each.
const UNITS: [u64; 11] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    MOST_UNIT,
];

/// Coarsest unit of times, that of FAT, in nanoseconds.
pub(crate) const MOST_UNIT: u64 = 2_000_000_000;

/// Time that no coarser unit than a nanosecond can keep.
const UNEVEN: Timestamp = Timestamp {
    seconds: 1_000_000_001,
    nanoseconds: 987_654_321,
};
