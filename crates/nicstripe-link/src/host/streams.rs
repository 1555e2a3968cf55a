//! Standard streams that the caller of this process had closed.
//!
//! The Rust runtime opens `/dev/null` for each of them before `main`, so that data written there is
//! lost without an error and an input looks empty. A caller may also have opened `/dev/null` for
//! both directions, which is valid; only a check before the runtime can tell the two apart.

use std::sync::atomic::{AtomicU8, Ordering};

/// Returns true if this standard stream, 0 to 2, was closed when the process started.
pub fn was_closed_at_start(stream: i32) -> bool {
    (0..STREAMS).contains(&stream) && CLOSED.load(Ordering::Relaxed) & (1 << stream) != 0
}

extern "C" fn check() {
    for stream in 0..STREAMS {
        // SAFETY: the call reads the flags of a descriptor and touches no memory of this process.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

/// Entry of the table of functions that the C library calls before `main`, and thus before the Rust
/// runtime.
// SAFETY: the section holds pointers to functions without a result, and `check` needs nothing that
// the C library has not set up by then.
#[unsafe(link_section = ".init_array")]
#[used]
static CHECK: extern "C" fn() = check;

/// Bit for each closed stream.
static CLOSED: AtomicU8 = AtomicU8::new(0);

const STREAMS: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standard_stream_can_have_been_closed() {
        for stream in [-1, 3, 8, i32::MAX, i32::MIN] {
            assert!(!was_closed_at_start(stream), "{stream}");
        }
    }
}
