//! Tests on simulated cables: client and daemon on the two hosts of a lab, with links that are cut,
//! restored, slowed down and lossy.
//!
//! Run by `cargo test --test netns`, as root or with unprivileged user namespaces; otherwise every
//! test is listed as ignored, with the reason. There is one module per subject, which lists its
//! tests. A test fails by panicking, and every wait has a deadline.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

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
mod doctor;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
mod faults;
mod first_contact;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod hotplug;
#[cfg(target_os = "linux")]
mod kernel_links;
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
mod pairing;
mod permissions;
#[cfg(target_os = "linux")]
mod powercuts;
#[cfg(target_os = "linux")]
mod routes;
#[cfg(target_os = "linux")]
mod ssh;
#[cfg(target_os = "linux")]
mod stores;
#[cfg(target_os = "linux")]
mod striping;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod tunnels;
#[cfg(target_os = "linux")]
mod unreached;
#[cfg(target_os = "linux")]
mod web;
#[cfg(target_os = "linux")]
mod wire;

use libtest_mimic::Trial;

fn main() {
    #[cfg(target_os = "linux")]
    if let Some(base) = powercuts::base() {
        return powercuts::cut_power(&base);
    }
    let arguments = nicstripe_testkit::trial::waiting();
    libtest_mimic::run(&arguments, trials(arguments.list)).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials(_: bool) -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials(only_listed: bool) -> Vec<Trial> {
    use nicstripe_testkit::trial::{Again, Group, length, none};

    let groups: [Group; 38] = [
        (striping::TESTS, none),
        (links::TESTS, none),
        (losses::TESTS, none),
        (losses::TESTS_WITH_IP, hosts::obstacle_to_ip),
        (losses::TESTS_WITH_SSH, nicstripe_testkit::Sshd::obstacle),
        (contacts::TESTS, none),
        (failures::TESTS, none),
        (faults::TESTS, none),
        (routes::TESTS, none),
        (mtu::TESTS, none),
        (kills::TESTS, none),
        (offers::TESTS, none),
        (claims::TESTS, none),
        (hotplug::TESTS, none),
        (choices::TESTS, none),
        (permissions::TESTS, none),
        (discovery::TESTS, none),
        (pairing::TESTS, none),
        (trees::TESTS, none),
        (tunnels::TESTS, none),
        (unreached::TESTS, none),
        (doctor::TESTS, none),
        (contacts::TESTS_WITH_IP, hosts::obstacle_to_ip),
        (choices::TESTS_WITH_IP, hosts::obstacle_to_ip),
        (links::TESTS_WITH_IP, hosts::obstacle_to_ip),
        (disks::TESTS, disks::obstacle),
        (powercuts::TESTS, powercuts::obstacle),
        (disks::TESTS_WITH_EXT4, disks::obstacle_to_ext4),
        (faults::CORRUPTING_TESTS, faults::obstacle),
        (ssh::TESTS, nicstripe_testkit::Sshd::obstacle),
        (stores::TESTS, stores::obstacle),
        (stores::TESTS_WITH_S3S, stores::obstacle_to_s3s),
        (web::TESTS, web::obstacle),
        (first_contact::TESTS, nicstripe_testkit::Sshd::obstacle),
        (disks::TESTS_WITH_FREEZING, disks::obstacle_to_freezing),
        (doctor::TESTS_WITH_A_QUOTA, doctor::obstacle_to_quotas),
        (doctor::TESTS_WITH_STRACE, doctor::obstacle_to_strace),
        (faults::LONG_TESTS, length),
    ];
    let by_name = [hotplug::TESTS, failures::TESTS, links::TESTS].map(|tests| Again {
        tests,
        without: hosts::BY_ADDRESS,
        suffix: "_by_name",
        run: hosts::begun_by_name,
    });
    nicstripe_testkit::trial::trials_in_a_lab(only_listed, groups, by_name)
}
