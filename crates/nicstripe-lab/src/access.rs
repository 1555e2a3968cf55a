//! Detection of the privileges that a lab needs, by trial.

use std::{fs, io, os::fd::OwnedFd};

use nicstripe_netlink::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkSocket};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, read, retry_on_intr, write},
    net::SocketFlags,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, getegid, geteuid, waitpid},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::{
    kernel::{
        message::{self, End},
        qdisc,
    },
    spec::LinkSpec,
};

/// Method by which this process can get the privileges for a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No action is needed: this process is root, or has entered a user namespace as root.
    Root,
    /// The process must call [`enter_user_namespace`].
    UserNamespace,
}

/// Reason that this process cannot build a lab, as a sentence for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// A kernel setting prevents users from creating namespaces.
    #[error("only root may make network namespaces here: {sysctl} is {value}")]
    SwitchedOff {
        /// Name of the kernel setting, with dots as separators.
        sysctl: &'static str,
        /// Current value of the kernel setting.
        value: String,
    },
    /// The kernel refused an action, and no known setting explains it. The usual cause is a
    /// container's seccomp filter.
    #[error("this process may not {action}")]
    Refused {
        /// Action that failed, such as "make a bridge".
        action: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The kernel lacks a feature that a lab needs; the privileges are sufficient.
    #[error("this kernel cannot {action}")]
    Missing {
        /// Action that failed, such as "make a bridge".
        action: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// [`enter_user_namespace`] was called after the process had started threads.
    #[error("a multi-threaded process cannot enter a user namespace")]
    SeveralThreads,
    /// The trial could not be run, for example because no process could be started.
    #[error("cannot check the right to make network namespaces")]
    Untried(#[source] io::Error),
}

/// Determines how this process can get the privileges for a lab.
///
/// Runs a trial in a child process: it creates a namespace, a veth pair, a bridge and a tbf qdisc,
/// which end with the child. The first trial has the privileges of this process, the second runs in
/// a user namespace. Takes about 10 ms; safe at any time and from any thread.
///
/// # Errors
///
/// [`Unavailable`] is the reason that neither works.
pub fn access() -> Result<Access, Unavailable> {
    let trial = Trial::prepare();
    let refused = match trial.run(false)? {
        Ok(()) => return Ok(Access::Root),
        Err(refusal) => refusal,
    };
    // A user namespace helps neither root nor a kernel without the feature, so report the first
    // failure.
    if geteuid().is_root() || refused.errno != Errno::PERM {
        return Err(refused.explain());
    }
    trial
        .run(true)?
        .map(|()| Access::UserNamespace)
        .map_err(Refusal::explain)
}

/// Makes this process root of a new user namespace, in which it may build labs. Irreversible.
///
/// Call it first in `main`: the kernel refuses a process with a second thread. The user appears as
/// uid 0, and keeps its file permissions. No other user exists in the namespace, and the process
/// gets no new privileges outside it.
///
/// # Errors
///
/// [`Unavailable::SeveralThreads`], [`Unavailable::SwitchedOff`], [`Unavailable::Refused`]. After a
/// late failure (writing the uid map) the process is `nobody` in a namespace without privileges:
/// report and exit, or call [`access()`] first.
pub fn enter_user_namespace() -> Result<(), Unavailable> {
    IdMaps::of_this_process()
        .enter_user_namespace()
        .map_err(|refusal| match refusal {
            Refusal {
                step: Step::UserNamespace,
                errno: Errno::INVAL,
            } => Unavailable::SeveralThreads,
            refusal => refusal.explain(),
        })
}

/// Gets the privileges to build labs, in the way that [`access()`] finds.
///
/// Call it first in `main`, for the same reason as [`enter_user_namespace`].
///
/// # Errors
///
/// [`Unavailable`] with the reason; [`Unavailable::SeveralThreads`] if this process already has
/// several threads.
pub fn gain_access() -> Result<(), Unavailable> {
    match access()? {
        Access::Root => Ok(()),
        Access::UserNamespace => enter_user_namespace(),
    }
}

/// Mappings and netlink requests for trying to build a lab. They are encoded before the fork,
/// because the child must not allocate.
struct Trial {
    maps: IdMaps,
    requests: [(Step, Vec<u8>); 3],
}

impl Trial {
    fn prepare() -> Self {
        let end = |name: &str, index| End {
            name: name.to_owned(),
            index,
        };
        let (near, far, bridge) = (end("near", 10), end("far", 11), end("bridge", 12));
        let acknowledged = NLM_F_REQUEST | NLM_F_ACK;
        let new = acknowledged | NLM_F_CREATE | NLM_F_EXCL;
        let mtu = LinkSpec::gigabit().mtu();
        let shaping = LinkSpec::gigabit()
            .shaping()
            .expect("a gigabit link is shaped");
        Self {
            maps: IdMaps::of_this_process(),
            requests: [
                (
                    Step::Veth,
                    message::add_veth((&near, mtu), (&far, mtu), None).encode(new, 1),
                ),
                (Step::Bridge, message::add_bridge(&bridge).encode(new, 1)),
                (
                    Step::Tbf,
                    qdisc::tbf(near.index, qdisc::Handle::FIRST, shaping)
                        .encode(acknowledged | qdisc::REPLACE, 1),
                ),
            ],
        }
    }

    /// Runs the trial in a child process, and returns its result. The outer error means that the
    /// trial could not run.
    fn run(&self, user_namespace: bool) -> Result<Result<(), Refusal>, Unavailable> {
        let untried = |errno: Errno| Unavailable::Untried(errno.into());
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(untried)?;
        // SAFETY: the child only makes system calls, from code that neither allocates nor locks,
        // and ends with _exit.
        match unsafe { libc::fork() } {
            -1 => Err(Unavailable::Untried(io::Error::last_os_error())),
            0 => {
                let verdict = Refusal::encode(self.attempt(user_namespace));
                let _ = write(&writer, &verdict);
                // SAFETY: ends this process without running destructors or handlers that belong to
                // the parent.
                unsafe { libc::_exit(0) }
            }
            child => {
                drop(writer);
                let verdict = read_verdict(&reader);
                if let Some(child) = Pid::from_raw(child) {
                    // Fails only if the program ignores SIGCHLD, and then there is no zombie to
                    // reap.
                    let _ = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
                }
                Ok(Refusal::decode(verdict.map_err(untried)?))
            }
        }
    }

    /// Creates the namespace and the interfaces of the trial. Must be called in the forked child;
    /// allocates nothing.
    fn attempt(&self, user_namespace: bool) -> Result<(), Refusal> {
        if user_namespace {
            self.maps.enter_user_namespace()?;
        }
        // SAFETY: the only flag is NEWNET; only FILES would take descriptors from other threads.
        Step::NetworkNamespace.of(unsafe { unshare_unsafe(UnshareFlags::NEWNET) })?;
        let socket =
            Step::Netlink.of(NetlinkSocket::open(None, SocketFlags::CLOEXEC, 0).map_err(errno))?;
        self.requests
            .iter()
            .try_for_each(|(step, request)| step.of(socket.command(request).map_err(errno)))
    }
}

/// Lines for `/proc/self/uid_map` and `gid_map` that make the current user root of a new user
/// namespace (user_namespaces(7)).
struct IdMaps {
    uid: String,
    gid: String,
}

impl IdMaps {
    fn of_this_process() -> Self {
        Self {
            uid: format!("0 {} 1\n", geteuid().as_raw()),
            gid: format!("0 {} 1\n", getegid().as_raw()),
        }
    }

    /// Makes the calling process root of a new user namespace. Allocates nothing, so a forked child
    /// may call it.
    fn enter_user_namespace(&self) -> Result<(), Refusal> {
        // SAFETY: the only flag is NEWUSER; only FILES would take descriptors from other threads.
        Step::UserNamespace.of(unsafe { unshare_unsafe(UnshareFlags::NEWUSER) })?;
        // An unprivileged process may map its group only after it has disabled setgroups.
        Step::IdMaps.of(write_file(c"/proc/self/setgroups", b"deny"))?;
        Step::IdMaps.of(write_file(c"/proc/self/uid_map", self.uid.as_bytes()))?;
        Step::IdMaps.of(write_file(c"/proc/self/gid_map", self.gid.as_bytes()))
    }
}

fn write_file(path: &std::ffi::CStr, content: &[u8]) -> Result<(), Errno> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    write(&file, content).map(|_| ())
}

/// Reads the result that the child has written; EPIPE if the child ended without one.
fn read_verdict(reader: &OwnedFd) -> Result<[u8; 5], Errno> {
    let mut verdict = [0; 5];
    // A single write far below PIPE_BUF arrives in one read.
    match retry_on_intr(|| read(reader, &mut verdict[..]))? {
        5 => Ok(verdict),
        _ => Err(Errno::PIPE),
    }
}

/// Step of a trial, in the order of execution.
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
    /// All steps in order, each with a text that completes "this process may not …" and "this kernel
    /// cannot …".
    const ALL: [(Self, &str); 7] = [
        (Self::UserNamespace, "make a user namespace"),
        (Self::IdMaps, "become root of a user namespace"),
        (Self::NetworkNamespace, "make a network namespace"),
        (Self::Netlink, "open a netlink socket"),
        (Self::Veth, "make veth interfaces"),
        (Self::Bridge, "make a bridge"),
        (Self::Tbf, "shape traffic with tbf"),
    ];

    fn of<T>(self, result: Result<T, Errno>) -> Result<T, Refusal> {
        result.map_err(|errno| Refusal { step: self, errno })
    }
}

/// Returns the errno of an error, or BADMSG if it has none. Allocates nothing.
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::BADMSG)
}

/// Step of a trial that failed, and its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    step: Step,
    errno: Errno,
}

impl Refusal {
    /// Encodes the result of a trial: one byte for the failed step (its index in [`Step::ALL`] + 1,
    /// or 0 for success) and four for the errno.
    fn encode(outcome: Result<(), Self>) -> [u8; 5] {
        let (step, errno) = match outcome {
            Ok(()) => (0, 0),
            Err(refusal) => (refusal.step as u8 + 1, refusal.errno.raw_os_error()),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        [step, a, b, c, d]
    }

    fn decode([step, code @ ..]: [u8; 5]) -> Result<(), Self> {
        let Some(place) = usize::from(step).checked_sub(1) else {
            return Ok(());
        };
        let step = Step::ALL.get(place).map_or(Step::Tbf, |(step, _)| *step);
        Err(Self {
            step,
            errno: errno(io::Error::from_raw_os_error(i32::from_ne_bytes(code))),
        })
    }

    fn explain(self) -> Unavailable {
        let (action, source) = (Step::ALL[self.step as usize].1, io::Error::from(self.errno));
        if !REFUSALS.contains(&self.errno) {
            return Unavailable::Missing { action, source };
        }
        match SWITCHES.into_iter().find_map(switched_off) {
            Some((sysctl, value)) if !geteuid().is_root() => {
                Unavailable::SwitchedOff { sysctl, value }
            }
            _ => Unavailable::Refused { action, source },
        }
    }
}

/// Errors that mean missing privileges or a reached limit, not a missing feature. ENOSPC is the
/// limit on namespaces.
const REFUSALS: [Errno; 3] = [Errno::PERM, Errno::ACCESS, Errno::NOSPC];

/// Kernel settings that can deny unprivileged user namespaces, with the value that does so: of the
/// kernel, of Debian's kernel, and of Ubuntu's since 23.10.
const SWITCHES: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "0"),
    ("kernel.unprivileged_userns_clone", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
];

/// Returns the setting's name and value if it currently has the value that denies user namespaces.
fn switched_off((sysctl, off_value): (&'static str, &str)) -> Option<(&'static str, String)> {
    let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
    let value = fs::read_to_string(path).ok()?.trim().to_owned();
    (value == off_value).then_some((sysctl, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_the_pipe() {
        assert_eq!(Refusal::decode(Refusal::encode(Ok(()))), Ok(()));
        for (number, (step, _)) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
            let refusal = Refusal {
                step,
                errno: Errno::PERM,
            };
            assert_eq!(Refusal::decode(Refusal::encode(Err(refusal))), Err(refusal));
        }
    }

    #[test]
    fn a_number_that_is_no_error_is_a_bad_message() {
        let number = |number| errno(io::Error::from_raw_os_error(number));
        assert_eq!(number(17), Errno::EXIST);
        assert_eq!([0, -1, i32::MIN, i32::MAX].map(number), [Errno::BADMSG; 4]);
    }

    #[test]
    fn a_missing_kernel_part_is_not_called_a_missing_right() {
        let explained = Refusal {
            step: Step::Tbf,
            errno: Errno::NOENT,
        }
        .explain();
        assert_eq!(
            explained.to_string(),
            "this kernel cannot shape traffic with tbf"
        );
    }

    #[test]
    fn a_process_with_threads_is_told_that_they_are_the_reason() {
        // The test harness runs this next to its main thread. A refusal changes nothing.
        let error = enter_user_namespace().unwrap_err();
        assert!(matches!(error, Unavailable::SeveralThreads), "{error}");
    }
}
