//! Tests that the program runs on the hosts of a lab.

use std::process::Stdio;

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{tests, trial::Test};

pub(crate) const TESTS: &[Test] = tests![nicstripe_starts_on_both_hosts_without_any_right];

fn nicstripe_starts_on_both_hosts_without_any_right() {
    let lab = Lab::builder().link(LinkSpec::gigabit()).build().unwrap();
    for host in Host::ALL {
        let mut nicstripe = lab.unprivileged_command(host, env!("CARGO_BIN_EXE_nicstripe"));
        let status = nicstripe
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "on host {host}: {status}");
    }
}
