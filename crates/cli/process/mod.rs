//! This process: its runtimes, its signals and its standard streams.

pub(crate) mod lately;
pub(crate) mod presence;
pub(crate) mod runtime;
pub(crate) mod signals;
pub(crate) mod streams;

use std::path::Path;

/// Returns the bytes that this process's user may still write to the file system of a path; `None` if
/// it does not tell.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Returns a number of bytes from a file of proc(5), in which it is in kB.
pub(crate) fn proc_bytes(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
