//! Tests of files and directories that the daemon's user may not access.
//!
//! Permission bits do not restrict root. These tests use a lab, because programs on a lab's hosts
//! can run without root's privileges.

use std::{fs, os::unix::fs::PermissionsExt};

use nicstripe_lab::LinkSpec;
use nicstripe_testkit::{tests, trial::Test};

use crate::hosts::Hosts;

pub(crate) const TESTS: &[Test] = tests![
    a_directory_that_may_not_be_written_to_is_an_error,
    a_file_that_may_not_be_read_is_an_error
];

fn a_directory_that_may_not_be_written_to_is_an_error() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200)]);
    hosts.client.write("source", b"bytes");
    for (side, ends) in [
        (&hosts.server, ["source", "10.77.1.2:dir/target"]),
        (&hosts.client, ["10.77.1.2:source", "dir/target"]),
    ] {
        hosts.server.write("source", b"bytes");
        side.make_dir("dir");
        fs::set_permissions(side.path("dir"), fs::Permissions::from_mode(0o555)).unwrap();
        let outcome = hosts.cp(&[&["--json"], &ends[..]].concat()).expect(11);
        outcome.document();
        outcome.error(&["\"target\"", "Permission denied"]);
        assert_eq!(fs::read_dir(side.path("dir")).unwrap().count(), 0);
    }
}

fn a_file_that_may_not_be_read_is_an_error() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200)]);
    for (side, ends) in [
        (&hosts.client, ["secret", "10.77.1.2:target"]),
        (&hosts.server, ["10.77.1.2:secret", "target"]),
    ] {
        side.write("secret", b"bytes");
        fs::set_permissions(side.path("secret"), fs::Permissions::from_mode(0o000)).unwrap();
        hosts
            .cp(&ends)
            .expect(11)
            .error(&["secret", "Permission denied"]);
        assert!(!hosts.client.has("target") && !hosts.server.has("target"));
    }
}
