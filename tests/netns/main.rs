//! Tests on simulated cables: client and daemon on the two hosts of a lab, with links that are cut,
//! restored, slowed down and lossy.
//!
//! Run by `cargo test --test netns`, as root or with unprivileged user namespaces; otherwise every
//! test is listed as ignored, with the reason. One module per subject; each lists its tests. A test
//! fails by panicking, and has a deadline on every wait.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

/// Lists the named test functions, each with its name.
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}

#[cfg(target_os = "linux")]
mod backups;
#[cfg(target_os = "linux")]
mod choices;
#[cfg(target_os = "linux")]
mod claims;
#[cfg(target_os = "linux")]
mod contacts;
#[cfg(target_os = "linux")]
mod discovery;
#[cfg(target_os = "linux")]
mod disks;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
#[allow(
    dead_code,
    reason = "shared with the tests without cables, which use more of it"
)]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod hotplug;
#[cfg(target_os = "linux")]
mod kernel_links;
#[cfg(target_os = "linux")]
mod kernel_routes;
#[cfg(target_os = "linux")]
mod kills;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod losses;
#[cfg(target_os = "linux")]
mod mtu;
#[cfg(target_os = "linux")]
mod offers;
#[cfg(target_os = "linux")]
mod permissions;
#[cfg(target_os = "linux")]
mod powercuts;
#[cfg(target_os = "linux")]
mod routes;
#[cfg(target_os = "linux")]
mod stalls;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod striping;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod tunnels;
#[cfg(target_os = "linux")]
mod unreached;
#[cfg(target_os = "linux")]
mod wire;

use libtest_mimic::{Arguments, Completion, Trial};

fn main() {
    #[cfg(target_os = "linux")]
    if let Some(base) = powercuts::base() {
        return powercuts::cut_power(&base);
    }
    let mut arguments = Arguments::from_args();
    // One at a time, because they measure rates and the machine may have few cores.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials(arguments.list)).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials(_: bool) -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials(only_listed: bool) -> Vec<Trial> {
    // Before any thread starts, because a multi-threaded process cannot enter a user namespace.
    let obstacle = if only_listed {
        None
    } else {
        nicstripe_lab::gain_access()
            .err()
            .map(|error| nicstripe::chain(&error))
    };
    let no_mounts = obstacle
        .clone()
        .or_else(|| if only_listed { None } else { disks::obstacle() });
    let trials_of = |tests: &[(&'static str, fn())], obstacle: &Option<String>| -> Vec<Trial> {
        tests
            .iter()
            .map(|&(name, test)| trial(name, test, obstacle.clone()))
            .collect()
    };
    let modules = [
        start::TESTS,
        striping::TESTS,
        links::TESTS,
        losses::TESTS,
        contacts::TESTS,
        failures::TESTS,
        faults::TESTS,
        routes::TESTS,
        mtu::TESTS,
        kills::TESTS,
        offers::TESTS,
        claims::TESTS,
        hotplug::TESTS,
        backups::TESTS,
        choices::TESTS,
        permissions::TESTS,
        discovery::TESTS,
        trees::TESTS,
        tunnels::TESTS,
        unreached::TESTS,
    ];
    let mut trials: Vec<Trial> = modules
        .into_iter()
        .flat_map(|tests| trials_of(tests, &obstacle))
        .collect();
    trials.extend(trials_of(disks::TESTS, &no_mounts));
    trials.extend(trials_of(
        powercuts::TESTS,
        &if only_listed {
            None
        } else {
            powercuts::obstacle()
        },
    ));
    let no_restic = obstacle.clone().or_else(|| {
        if only_listed {
            None
        } else {
            harness::restic::obstacle()
        }
    });
    trials.extend(trials_of(backups::TESTS_WITH_RESTIC, &no_restic));
    let no_ext4 = no_mounts.or_else(|| {
        if only_listed {
            None
        } else {
            disks::obstacle_to_ext4()
        }
    });
    trials.extend(trials_of(disks::TESTS_WITH_EXT4, &no_ext4));
    for (tests, try_out) in [
        (faults::CORRUPTING_TESTS, faults::obstacle as fn() -> _),
        (stalls::TESTS, stalls::obstacle),
    ] {
        let obstacle = obstacle
            .clone()
            .or_else(|| if only_listed { None } else { try_out() });
        trials.extend(trials_of(tests, &obstacle));
    }
    trials
}

/// Returns a test that runs, or that is ignored with the reason `obstacle`.
#[cfg(target_os = "linux")]
fn trial(name: &'static str, test: fn(), obstacle: Option<String>) -> Trial {
    let run = move || {
        test();
        Completion::Completed
    };
    Trial::ignorable_test(name, move || {
        Ok(obstacle.map_or_else(run, Completion::ignored_with))
    })
}
