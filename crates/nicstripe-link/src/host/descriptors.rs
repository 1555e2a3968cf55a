//! Descriptors that this process has got from its starter.

use std::{fs, io};

/// Keeps all open descriptors but the standard streams from the programs that this process starts.
/// The starter of a daemon may have left some open, and the C library closes none of them.
///
/// # Errors
///
/// Neither close_range(2) (Linux 5.11) nor the list in `/proc` is available.
pub fn keep_descriptors() -> io::Result<()> {
    let close_on_exec = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the call sets a flag of descriptors and touches no memory of this process.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, close_on_exec) };
    if done == 0 {
        return Ok(());
    }
    let listed = fs::read_dir("/proc/self/fd")?;
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.filter(|number| *number >= FIRST).collect();
    for number in numbers {
        // SAFETY: as above. The descriptor that listed the others is closed, which is no harm.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// First descriptor behind the standard streams.
const FIRST: i32 = 3;
