//! Tests of nicstripe-link against a running kernel.
//!
//! Run with `cargo test -p nicstripe-link --test kernel`. Each test creates its own network
//! namespaces, which always end with the test, and does not touch the machine's network. Root needs
//! nothing else. Other users need user namespaces (`kernel.unprivileged_userns_clone`, or the
//! distribution's equivalent). Without either, the tests are listed as ignored with the reason.

#![allow(clippy::unwrap_used)]

use std::{
    fs, io,
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::thread::{UnshareFlags, unshare_unsafe};

mod events;
mod facts;
mod helper;
mod interfaces;
mod lab;
mod mtu;
mod multicast;
mod qdiscs;
mod routes;
mod sockets;

fn main() -> ExitCode {
    if let Some(code) = helper::act().or_else(routes::act_as_owner) {
        return code;
    }
    // Must come before the harness starts threads: the kernel lets only a single-threaded process
    // enter a user namespace.
    let obstacle = enter_user_namespace()
        .and_then(|()| lab::Namespace::new().map(drop))
        .err();
    let lists = [
        interfaces::TESTS,
        qdiscs::TESTS,
        facts::TESTS,
        sockets::TESTS,
        routes::TESTS,
        helper::TESTS,
        mtu::TESTS,
        events::TESTS,
        multicast::TESTS,
    ];
    let trials = lists.concat();
    let trials = trials.into_iter().map(|(name, test)| {
        let obstacle = obstacle.as_ref().map(io::Error::to_string);
        Trial::ignorable_test(name, move || match obstacle {
            Some(obstacle) => Ok(Completion::ignored_with(format!(
                "no network namespace: {obstacle}"
            ))),
            None => run(test).map(|()| Completion::Completed),
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

type Test = (&'static str, fn());

/// Defines the constant `TESTS`: a list of the given functions and their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

/// Runs a test in a separate thread, for at most [`DEADLINE`].
fn run(test: fn()) -> Result<(), Failed> {
    let (done, finished) = channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(DEADLINE) {
        Err(RecvTimeoutError::Timeout) => Err(format!("not finished after {DEADLINE:?}").into()),
        _ => thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            text.unwrap_or_else(|| "the test panicked".to_owned())
                .into()
        }),
    }
}

/// Enters a new user namespace as its root, unless this process already is root.
fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if uid == 0 {
        return Ok(());
    }
    // SAFETY: only the credentials' namespace changes, no memory or descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Maximum duration of a test. The slowest test takes about 2 s, because it waits for duplicate
/// address detection.
const DEADLINE: Duration = Duration::from_secs(30);
