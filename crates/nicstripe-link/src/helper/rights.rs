//! The `CAP_NET_ADMIN` capability, which route changes need: checks it, passes it to child
//! processes, and drops it.
//!
//! Linux keeps capabilities per thread; a new thread or process inherits those of its creator.

use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{FromRawFd as _, OwnedFd},
        linux::fs::MetadataExt as _,
    },
    path::Path,
};

use rustix::{
    fs::Mode,
    process::{Gid, getegid, umask},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs, set_thread_gid,
    },
};

use crate::host::signals::is_signal_ignored;

/// Returns true if the calling thread may change routes (`CAP_NET_ADMIN`).
pub fn may_change_routes() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(RIGHT))
}

/// Drops `CAP_NET_ADMIN` from the calling thread, and thus from all threads and processes that it
/// starts later.
///
/// Call it while the process has a single thread, because other threads keep the capability. All
/// other capabilities stay. The drop is permanent; with `CAP_SETPCAP` this holds even if root
/// executes a program. Does nothing without the capability.
pub fn give_up_routes() -> io::Result<()> {
    let sets = capabilities(None)?;
    if !sets.permitted.contains(RIGHT) {
        return Ok(());
    }
    // Fails without CAP_SETPCAP; then only root could regain the capability, by executing a
    // program.
    let _ = remove_capability_from_bounding_set(RIGHT);
    let without = |set: CapabilitySet| set.difference(RIGHT);
    // The kernel removes capabilities that are not permitted from the ambient set.
    let sets = CapabilitySets {
        effective: without(sets.effective),
        permitted: without(sets.permitted),
        inheritable: without(sets.inheritable),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Drops all capabilities of the calling thread except `CAP_NET_ADMIN`, and prevents it from
/// gaining any by execution.
pub(crate) fn drop_all_but_net_admin() -> io::Result<()> {
    set_no_new_privs(true)?;
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let retained = capabilities(None)?.permitted.intersection(RIGHT);
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: retained,
            permitted: retained,
            inheritable: CapabilitySet::empty(),
        },
    )?)
}

/// Shares a state directory, by its group, with processes that have only network capabilities:
/// takes the directory's group if permitted, and sets the umask so that the group can read new
/// files.
pub(crate) fn share_directory(directory: &Path) {
    umask(Mode::WGRP | Mode::RWXO);
    let Ok(metadata) = std::fs::metadata(directory) else {
        return;
    };
    let group = Gid::from_raw(metadata.st_gid());
    if group != getegid() {
        // Only root may do this. Root does not need the group if it keeps its capabilities for file
        // access.
        let _ = set_thread_gid(group);
    }
}

/// Guard that lets programs inherit `CAP_NET_ADMIN` from the calling thread. Dropping it ends the
/// inheritance.
///
/// Programs that root executes inherit the capability anyway; those of other users inherit only the
/// ambient set.
pub(crate) struct Lent(CapabilitySets);

impl Lent {
    /// Adds `CAP_NET_ADMIN` to the ambient set. Returns `None` if the thread lacks it, if it is
    /// inheritable already, or if the kernel refuses.
    pub(crate) fn lend() -> Option<Self> {
        let sets = capabilities(None).ok()?;
        if !sets.permitted.contains(RIGHT) || sets.inheritable.contains(RIGHT) {
            return None;
        }
        set_capabilities(
            None,
            CapabilitySets {
                inheritable: sets.inheritable.union(RIGHT),
                ..sets
            },
        )
        .ok()?;
        // From here on, drop restores the sets even on error.
        let lent = Self(sets);
        configure_capability_in_ambient_set(RIGHT, true).ok()?;
        Some(lent)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = configure_capability_in_ambient_set(RIGHT, false);
        let _ = set_capabilities(None, self.0);
    }
}

/// Returns true if execution gave the program more privileges than its caller has (set-user-ID,
/// set-group-ID, file capabilities). Input from the caller is then untrusted.
pub(crate) fn gained_by_execution() -> bool {
    // SAFETY: getauxval takes an integer and reads what the kernel provided at process start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Blocks the signals that end a process group, so that this process ends only when its input
/// closes. One that was ignored at the start of this process stays ignored. Returns a descriptor that becomes readable on such a signal, or `None` if the kernel
/// provides none.
///
/// Call it while the process has a single thread, because other threads would not have the signals
/// blocked.
pub(crate) fn hold_signals() -> Option<OwnedFd> {
    let mut ending = ENDING.to_vec();
    ending.retain(|signal| !is_signal_ignored(*signal));
    for signal in [libc::SIGPIPE, libc::SIGXFSZ].iter().chain(&ending) {
        // SAFETY: SIG_IGN runs no code; the numbers are those of signals that may be ignored.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the whole set before the other calls read it, and its
    // pointer refers to a live variable. The signal numbers are valid. Mask and descriptor change
    // nothing in memory.
    let descriptor = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        ending
            .iter()
            .for_each(|signal| _ = libc::sigaddset(set.as_mut_ptr(), *signal));
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return None;
    }
    for signal in ending {
        // SAFETY: SIG_DFL runs no code either. The signal stays blocked: an ignored one would not
        // reach the descriptor.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the kernel has just created it, and it has no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns true if the caller could change an MTU without this program: it is root, or has passed
/// on its own capability.
///
/// A helper with file capabilities for route changes must not let every user change MTUs.
pub(crate) fn may_change_mtus() -> bool {
    !gained_by_execution() || rustix::process::getuid().is_root()
}

/// Signals that terminals and service managers send to end a whole process group.
const ENDING: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

const RIGHT: CapabilitySet = CapabilitySet::NET_ADMIN;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Runs in its own thread, because capabilities are per thread and the test drops one.
    #[test]
    fn what_was_given_up_is_gone_for_later_threads_and_lending_is_taken_back() {
        thread::spawn(|| {
            let before = capabilities(None).unwrap();
            drop(Lent::lend());
            assert_eq!(capabilities(None).unwrap(), before);

            give_up_routes().unwrap();
            give_up_routes().unwrap();
            let after = capabilities(None).unwrap();
            assert_eq!(
                after.permitted,
                before.permitted.difference(RIGHT),
                "all others stay"
            );
            assert!(!thread::spawn(may_change_routes).join().unwrap());
            assert!(Lent::lend().is_none());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_helper_keeps_one_right_at_most() {
        thread::spawn(|| {
            let had = may_change_routes();
            drop_all_but_net_admin().unwrap();
            let sets = capabilities(None).unwrap();
            assert_eq!(
                sets.permitted,
                if had { RIGHT } else { CapabilitySet::empty() }
            );
            assert_eq!(
                (sets.effective, sets.inheritable),
                (sets.permitted, CapabilitySet::empty())
            );
            assert_eq!(may_change_routes(), had);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn tests_are_run_with_the_rights_of_whoever_runs_them() {
        assert!(!gained_by_execution());
    }
}
