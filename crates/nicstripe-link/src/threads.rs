//! Whether the kernel starts threads for this process.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
    thread::Builder,
};

/// Starts `count` threads beside each other and ends them again, which takes some 20 µs each.
///
/// For what starts threads and cannot say that it got none: a runtime panics there, or waits for ever. Another process may take them in
/// between, so this is no promise.
///
/// # Errors
///
/// The kernel starts fewer: `RLIMIT_NPROC` of the user, `pids.max` of the cgroup, or no memory.
pub fn check_threads(count: usize) -> io::Result<()> {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    let mut started = Vec::with_capacity(count);
    let mut result = Ok(());
    for _ in 0..count {
        let gate = gate.clone();
        match Builder::new().stack_size(SMALL_STACK).spawn(move || drop(gate.read())) {
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

/// Bytes of stack for a thread that does nothing: the least of most systems.
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
