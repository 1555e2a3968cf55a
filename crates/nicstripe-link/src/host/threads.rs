//! Check that this process may start as many threads as it needs.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
    thread::Builder,
};

/// Checks that `count` threads can run at once: starts and ends them, which takes about 20 µs each.
///
/// Intended for callers that cannot handle a failed thread start, such as a runtime, which panics
/// or hangs. Gives no guarantee, because another process may use up the limit in between.
///
/// # Errors
///
/// The kernel starts fewer threads: `RLIMIT_NPROC` of the user, `pids.max` of the cgroup, or no
/// memory.
pub fn check_threads(count: usize) -> io::Result<()> {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    let mut started = Vec::with_capacity(count);
    let mut result = Ok(());
    for _ in 0..count {
        let gate = gate.clone();
        match Builder::new()
            .stack_size(SMALL_STACK)
            .spawn(move || drop(gate.read()))
        {
            Ok(thread) => started.push(thread),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    drop(closed);
    for thread in started {
        let _ = thread.join();
    }
    result
}

/// Stack size of a thread that only waits, in bytes: the minimum of most systems.
const SMALL_STACK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_threads_can_be_started() {
        check_threads(0).unwrap();
        check_threads(20).unwrap();
    }
}
