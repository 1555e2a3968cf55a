//! The right to change routes (`CAP_NET_ADMIN`): whether the process has it, handing it to a child, and giving it up.
//!
//! Linux keeps rights by thread; a new thread or process has those of the thread that started it.

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
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_gid,
    },
};

/// Whether the calling thread may change routes.
pub fn may_change_routes() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(RIGHT))
}

/// Takes the right to change routes from the calling thread, and so from every thread and process that it starts afterwards.
///
/// To be called while the process has one thread: others keep the right. All other rights stay. There is no way back, also not
/// by executing a program as root where the thread may limit that (`CAP_SETPCAP`). Nothing happens without the right.
pub fn give_up_routes() -> io::Result<()> {
    let sets = capabilities(None)?;
    if !sets.permitted.contains(RIGHT) {
        return Ok(());
    }
    // Refused without CAP_SETPCAP; then only root could get it back, by executing a program.
    let _ = remove_capability_from_bounding_set(RIGHT);
    let without = |set: CapabilitySet| set.difference(RIGHT);
    // What is not permitted is not ambient either: the kernel sees to that.
    let sets =
        CapabilitySets { effective: without(sets.effective), permitted: without(sets.permitted), inheritable: without(sets.inheritable) };
    Ok(set_capabilities(None, sets)?)
}

/// Gives up every right but that to change routes, and the way to any other.
pub(crate) fn keep_routes_only() -> io::Result<()> {
    set_no_new_privs(true)?;
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let kept = capabilities(None)?.permitted.intersection(RIGHT);
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?)
}

/// Makes a process that has only network rights fit to share a state directory: it takes the directory's group, if it still may,
/// and what it makes there can be read by that group.
pub(crate) fn share_directory(directory: &Path) {
    umask(Mode::WGRP | Mode::RWXO);
    let Ok(metadata) = std::fs::metadata(directory) else { return };
    let group = Gid::from_raw(metadata.st_gid());
    if group != getegid() {
        // Refused to all but root, which needs no group's help where it keeps its rights over files.
        let _ = set_thread_gid(group);
    }
}

/// The calling thread's right to change routes, lent to the programs that it executes until this is dropped.
///
/// Root's programs have it anyway; a user's only what is in the ambient set.
pub(crate) struct Lent(CapabilitySets);

impl Lent {
    /// Lends it; `None` where there is nothing to lend or the kernel refuses.
    pub(crate) fn lend() -> Option<Self> {
        let sets = capabilities(None).ok()?;
        if !sets.permitted.contains(RIGHT) || sets.inheritable.contains(RIGHT) {
            return None;
        }
        set_capabilities(None, CapabilitySets { inheritable: sets.inheritable.union(RIGHT), ..sets }).ok()?;
        // From here on the sets are restored whatever the kernel says.
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

/// Whether the program was started with more rights than whoever started it has (set-user-ID, set-group-ID, file
/// capabilities), so that nothing that comes from there may be believed.
pub(crate) fn gained_by_execution() -> bool {
    // SAFETY: getauxval takes a number and reads what the kernel laid down when the process was made.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has the signals that end a group of processes not end this one, which ends in order when its input does. Returns a descriptor that can be
/// read when one came; `None` where the kernel gives none.
///
/// To be called while the process has one thread: others would not have them blocked.
pub(crate) fn hold_signals() -> Option<OwnedFd> {
    for signal in [libc::SIGPIPE].into_iter().chain(ENDING) {
        // SAFETY: SIG_IGN is no function that could run; the numbers are those of signals that may be ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` writes all of the set before the others read it, and its pointer is that of a live place; the signal numbers
    // are valid. Mask and descriptor change nothing in memory.
    let descriptor = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        ENDING.into_iter().for_each(|signal| _ = libc::sigaddset(set.as_mut_ptr(), signal));
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return None;
    }
    for signal in ENDING {
        // SAFETY: SIG_DFL is no function either. The signal stays blocked: one that is ignored would not come to the descriptor.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the kernel has just made it, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Whether whoever started this program could change an interface's MTU without it: it is root, or has lent its own rights.
///
/// A helper that was given the right to change routes for everybody's use must not change MTUs for everybody.
pub(crate) fn may_change_mtus() -> bool {
    !gained_by_execution() || rustix::process::getuid().is_root()
}

/// The signals that end a group of processes.
const ENDING: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

const RIGHT: CapabilitySet = CapabilitySet::NET_ADMIN;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Rights are a thread's own, so that a test may give up those of its own thread.
    #[test]
    fn what_was_given_up_is_gone_for_later_threads_and_lending_is_taken_back() {
        thread::spawn(|| {
            let before = capabilities(None).unwrap();
            drop(Lent::lend());
            assert_eq!(capabilities(None).unwrap(), before);

            give_up_routes().unwrap();
            give_up_routes().unwrap();
            let after = capabilities(None).unwrap();
            assert_eq!(after.permitted, before.permitted.difference(RIGHT), "all others stay");
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
            keep_routes_only().unwrap();
            let sets = capabilities(None).unwrap();
            assert_eq!(sets.permitted, if had { RIGHT } else { CapabilitySet::empty() });
            assert_eq!((sets.effective, sets.inheritable), (sets.permitted, CapabilitySet::empty()));
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
