//! `setsockopt` and `getsockopt` for options that socket2 and rustix lack.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

pub(crate) fn set_int(
    fd: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `fd` is borrowed. Pointer and length are those of
    // `value`, a live integer, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads a socket option into `buffer`, and returns the part that the kernel filled.
pub(crate) fn read<'a>(
    fd: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    buffer: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut len =
        libc::socklen_t::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open as long as `fd` is borrowed. The kernel writes at most `len`
    // bytes, and `len` is the length of `buffer`, which is exclusively borrowed.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            buffer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(buffer.get(..len as usize).unwrap_or_default())
}
