//! Whether a lab may be built here, found out by trying.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, read, retry_on_intr, write},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, getegid, geteuid, waitpid},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::{
    message::{self, End},
    netlink, qdisc,
    spec::LinkSpec,
};

/// How a lab may be built here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At once: this process is root, or has entered a user namespace where it is.
    Root,
    /// After [`enter_user_namespace`].
    UserNamespace,
}

/// Why no lab can be built here, in a sentence for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// An administrator's setting keeps users from making namespaces.
    #[error("only root may make network namespaces here: {sysctl} is {value}")]
    SwitchedOff {
        /// The setting, with dots.
        sysctl: &'static str,
        /// Its value.
        value: String,
    },
    /// The kernel refused, and no known setting explains it; a container's seccomp filter is the usual reason.
    #[error("this process may not {action}")]
    Refused {
        /// What it tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Rights suffice, but the kernel lacks a part.
    #[error("this kernel cannot {action}")]
    Missing {
        /// What it tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// [`enter_user_namespace`] was called when the process had threads.
    #[error("a process with several threads cannot enter a user namespace")]
    SeveralThreads,
    /// The trial itself did not run.
    #[error("cannot try whether this process may make network namespaces")]
    Untried(#[source] io::Error),
}

/// Tells how a lab may be built here.
///
/// Tries it, in a child process that makes a namespace, a veth pair, a bridge and a tbf qdisc, and ends with them; first as this
/// process is, then in a user namespace. Takes about 10 ms; may be called at any time and from any thread.
///
/// # Errors
///
/// [`Unavailable`] says why neither works.
pub fn access() -> Result<Access, Unavailable> {
    let trial = Trial::prepare();
    let refused = match trial.run(false)? {
        Ok(()) => return Ok(Access::Root),
        Err(refusal) => refusal,
    };
    // Root is told what it lacks itself, and so is everyone whose kernel lacks a part.
    if geteuid().is_root() || refused.errno != Errno::PERM {
        return Err(refused.explain());
    }
    trial.run(true)?.map(|()| Access::UserNamespace).map_err(Refusal::explain)
}

/// Makes this process root of a user namespace of its own, where it may build labs.
///
/// To be called first thing in `main`: the kernel refuses a process that has a second thread. The user appears as uid 0 and is
/// itself towards files; no other user exists, and nothing outside may be changed that could not be before. There is no way back.
///
/// # Errors
///
/// [`Unavailable::SeveralThreads`], [`Unavailable::SwitchedOff`], [`Unavailable::Refused`]. When the refusal came late (writing the
/// uid map) the process is left as nobody in a namespace without rights: report and exit, or ask [`access()`] before.
pub fn enter_user_namespace() -> Result<(), Unavailable> {
    IdMaps::of_this_process().enter_user_namespace().map_err(|refusal| match refusal {
        Refusal { step: Step::UserNamespace, errno: Errno::INVAL } => Unavailable::SeveralThreads,
        refusal => refusal.explain(),
    })
}

/// Gets this process the rights to build labs, in the way that [`access()`] finds: by nothing, or by [`enter_user_namespace`].
///
/// To be called first thing in `main`, for the same reason as [`enter_user_namespace`].
///
/// # Errors
///
/// [`Unavailable`] says why there is no way, or [`Unavailable::SeveralThreads`] that it is too late for it.
pub fn gain_access() -> Result<(), Unavailable> {
    match access()? {
        Access::Root => Ok(()),
        Access::UserNamespace => enter_user_namespace(),
    }
}

/// All that a trial needs, laid out before the fork: behind it nothing may allocate.
struct Trial {
    maps: IdMaps,
    requests: [(Step, Vec<u8>); 3],
}

impl Trial {
    fn prepare() -> Self {
        let end = |name: &str, index| End { name: name.to_owned(), index };
        let (near, far, bridge) = (end("near", 10), end("far", 11), end("bridge", 12));
        let new = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let mtu = LinkSpec::gigabit().mtu();
        let shaping = LinkSpec::gigabit().shaping().expect("a gigabit link is shaped");
        Self {
            maps: IdMaps::of_this_process(),
            requests: [
                (Step::Veth, netlink::encode(message::add_veth((&near, mtu), (&far, mtu), None), new)),
                (Step::Bridge, netlink::encode(message::add_bridge(&bridge), new)),
                (Step::Tbf, netlink::encode(qdisc::tbf(near.index, qdisc::Handle::FIRST, shaping), NLM_F_ACK | qdisc::REPLACE)),
            ],
        }
    }

    /// Runs the trial in a child; the outer error is that it could not be run.
    fn run(&self, user_namespace: bool) -> Result<Result<(), Refusal>, Unavailable> {
        let untried = |errno: Errno| Unavailable::Untried(errno.into());
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(untried)?;
        // SAFETY: the child makes system calls only, from code that neither allocates nor locks, and ends by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(Unavailable::Untried(io::Error::last_os_error())),
            0 => {
                let verdict = Refusal::encode(self.attempt(user_namespace));
                let _ = write(&writer, &verdict);
                // SAFETY: ends this process without running destructors or handlers that belong to the parent.
                unsafe { libc::_exit(0) }
            }
            child => {
                drop(writer);
                let verdict = read_verdict(&reader);
                if let Some(child) = Pid::from_raw(child) {
                    // Fails only when the program has SIGCHLD ignored, and then there is nothing to collect.
                    let _ = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
                }
                Ok(Refusal::decode(verdict.map_err(untried)?))
            }
        }
    }

    /// Runs in the forked child.
    fn attempt(&self, user_namespace: bool) -> Result<(), Refusal> {
        if user_namespace {
            self.maps.enter_user_namespace()?;
        }
        // SAFETY: the flags are NEWNET alone; only FILES would take descriptors from other threads.
        Step::NetworkNamespace.of(unsafe { unshare_unsafe(UnshareFlags::NEWNET) })?;
        let socket = Step::Netlink.of(netlink::open())?;
        self.requests.iter().try_for_each(|(step, request)| step.of(netlink::request(socket.as_fd(), request)))
    }
}

/// The lines that make the present user root of a new user namespace (user_namespaces(7)).
struct IdMaps {
    uid: String,
    gid: String,
}

impl IdMaps {
    fn of_this_process() -> Self {
        Self { uid: format!("0 {} 1\n", geteuid().as_raw()), gid: format!("0 {} 1\n", getegid().as_raw()) }
    }

    /// Allocates nothing: may be called in a forked child.
    fn enter_user_namespace(&self) -> Result<(), Refusal> {
        // SAFETY: the flags are NEWUSER alone; only FILES would take descriptors from other threads.
        Step::UserNamespace.of(unsafe { unshare_unsafe(UnshareFlags::NEWUSER) })?;
        // An unprivileged process may map its group only after it gave up setgroups.
        Step::IdMaps.of(write_file(c"/proc/self/setgroups", b"deny"))?;
        Step::IdMaps.of(write_file(c"/proc/self/uid_map", self.uid.as_bytes()))?;
        Step::IdMaps.of(write_file(c"/proc/self/gid_map", self.gid.as_bytes()))
    }
}

fn write_file(path: &std::ffi::CStr, content: &[u8]) -> Result<(), Errno> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    write(&file, content).map(|_| ())
}

/// Reads what the child found; PIPE when it died without a word.
fn read_verdict(reader: &OwnedFd) -> Result<[u8; 5], Errno> {
    let mut verdict = [0; 5];
    // Written in one piece, far below PIPE_BUF, so it comes in one piece.
    match retry_on_intr(|| read(reader, &mut verdict[..]))? {
        5 => Ok(verdict),
        _ => Err(Errno::PIPE),
    }
}

/// What a trial does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    UserNamespace,
    IdMaps,
    NetworkNamespace,
    Netlink,
    Veth,
    Bridge,
    Tbf,
}

impl Step {
    const ALL: [Self; 7] = [Self::UserNamespace, Self::IdMaps, Self::NetworkNamespace, Self::Netlink, Self::Veth, Self::Bridge, Self::Tbf];

    fn of<T>(self, result: Result<T, Errno>) -> Result<T, Refusal> {
        result.map_err(|errno| Refusal { step: self, errno })
    }

    /// Completes "this process may not …" and "this kernel cannot …".
    fn action(self) -> &'static str {
        match self {
            Self::UserNamespace => "make a user namespace",
            Self::IdMaps => "become root of a user namespace",
            Self::NetworkNamespace => "make a network namespace",
            Self::Netlink => "open a netlink socket",
            Self::Veth => "make veth interfaces",
            Self::Bridge => "make a bridge",
            Self::Tbf => "shape traffic with tbf",
        }
    }
}

/// The step of a trial that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    step: Step,
    errno: Errno,
}

impl Refusal {
    /// One byte of step (0: none failed, else its place in [`Step::ALL`] + 1), four of errno.
    fn encode(outcome: Result<(), Self>) -> [u8; 5] {
        let (step, errno) = match outcome {
            Ok(()) => (0, 0),
            Err(refusal) => (refusal.step as u8 + 1, refusal.errno.raw_os_error()),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        [step, a, b, c, d]
    }

    fn decode([step, errno @ ..]: [u8; 5]) -> Result<(), Self> {
        let Some(place) = usize::from(step).checked_sub(1) else { return Ok(()) };
        let step = Step::ALL.get(place).copied().unwrap_or(Step::Tbf);
        Err(Self { step, errno: netlink::errno(i32::from_ne_bytes(errno)) })
    }

    fn explain(self) -> Unavailable {
        let (action, source) = (self.step.action(), io::Error::from(self.errno));
        if !REFUSALS.contains(&self.errno) {
            return Unavailable::Missing { action, source };
        }
        match SWITCHES.iter().find_map(|switch| switch.off()) {
            Some((sysctl, value)) if !geteuid().is_root() => Unavailable::SwitchedOff { sysctl, value },
            _ => Unavailable::Refused { action, source },
        }
    }
}

/// What the kernel says when rights or limits are the reason, not a missing part. ENOSPC: more namespaces than allowed.
const REFUSALS: [Errno; 3] = [Errno::PERM, Errno::ACCESS, Errno::NOSPC];

/// A setting that takes user namespaces from ordinary users.
struct Switch {
    sysctl: &'static str,
    path: &'static str,
    off_value: &'static str,
}

impl Switch {
    /// The setting and its value, when it is the reason.
    fn off(&self) -> Option<(&'static str, String)> {
        let value = fs::read_to_string(self.path).ok()?;
        (value.trim() == self.off_value).then(|| (self.sysctl, value.trim().to_owned()))
    }
}

/// Of the kernel, of Debian's kernel, and of Ubuntu's since 23.10.
const SWITCHES: &[Switch] = &[
    Switch { sysctl: "user.max_user_namespaces", path: "/proc/sys/user/max_user_namespaces", off_value: "0" },
    Switch { sysctl: "kernel.unprivileged_userns_clone", path: "/proc/sys/kernel/unprivileged_userns_clone", off_value: "0" },
    Switch {
        sysctl: "kernel.apparmor_restrict_unprivileged_userns",
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        off_value: "1",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_the_pipe() {
        assert_eq!(Refusal::decode(Refusal::encode(Ok(()))), Ok(()));
        for step in Step::ALL {
            let refusal = Refusal { step, errno: Errno::PERM };
            assert_eq!(Refusal::decode(Refusal::encode(Err(refusal))), Err(refusal));
        }
    }

    #[test]
    fn a_missing_kernel_part_is_not_called_a_missing_right() {
        let explained = Refusal { step: Step::Tbf, errno: Errno::NOENT }.explain();
        assert_eq!(explained.to_string(), "this kernel cannot shape traffic with tbf");
    }

    #[test]
    fn a_process_with_threads_is_told_that_they_are_the_reason() {
        // The test harness runs this beside its main thread. Nothing changes when the kernel refuses.
        let error = enter_user_namespace().unwrap_err();
        assert!(matches!(error, Unavailable::SeveralThreads), "{error}");
    }
}
