//! Signal dispositions of this process that the standard library does not expose.

use std::{io, mem::MaybeUninit};

/// Returns true if this process ignores the signal with this number.
///
/// Before a handler is installed, this is the disposition that the process was started with:
/// `nohup` ignores SIGHUP, and a shell without job control ignores SIGINT for background commands.
pub fn is_signal_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action changes nothing, and the pointer for the old one refers to a live
    // variable of its type.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the kernel has written the whole action if the call succeeded.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores SIGXFSZ: a write beyond the file size limit (`ulimit -f`) then fails with EFBIG, instead
/// of ending the process with all its transfers. Child processes inherit it.
///
/// # Errors
///
/// None on Linux, where the signal may be ignored.
pub fn ignore_file_size_signal() -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code, and SIGXFSZ is a signal that may be ignored.
    match unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_ignored_once_that_was_requested() {
        // The runtime of Rust ignores SIGPIPE.
        assert!(is_signal_ignored(libc::SIGPIPE));
        assert!(!is_signal_ignored(libc::SIGSEGV));
        assert!(!is_signal_ignored(-1));
        ignore_file_size_signal().unwrap();
        assert!(is_signal_ignored(libc::SIGXFSZ));
    }
}
