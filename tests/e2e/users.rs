//! Users: what root may and others may not, and groups that are a user's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use libtest_mimic::Completion;

use crate::{
    harness::{Side, tree::plant},
    pair::Pair,
};

pub(crate) const TESTS: &[crate::Test] =
    tests![a_file_that_its_owners_private_group_may_change_is_read, what_cannot_be_read_fails_and_the_rest_is_copied];

fn a_file_that_its_owners_private_group_may_change_is_read() -> Completion {
    let name = |option| std::process::Command::new("id").arg(option).output().unwrap().stdout;
    if name("-un") != name("-gn") {
        return Completion::ignored_with("this user has no private group");
    }
    let side = Side::here();
    side.configure("port = 0\n");
    fs::set_permissions(side.home(), Permissions::from_mode(0o775)).unwrap();
    fs::set_permissions(side.home().join("config.toml"), Permissions::from_mode(0o664)).unwrap();
    side.run(["serve", "--check-config"]).expect(0);
    Completion::Completed
}

fn what_cannot_be_read_fails_and_the_rest_is_copied() -> Completion {
    let pair = Pair::new();
    for name in ["a", "closed/x", "secret"] {
        plant(&pair.client.path("src"), name, "bytes");
    }
    for name in ["src/secret", "src/closed"] {
        fs::set_permissions(pair.client.path(name), Permissions::from_mode(0o000)).unwrap();
    }
    if fs::File::open(pair.client.path("src/secret")).is_ok() {
        return Completion::ignored_with("root may read everything");
    }
    plant(&pair.server.path("src"), "closed/keep", "bytes");
    let outcome = pair.cp(&["-r", "--delete", "src", "127.0.0.1:"]).expect(23).error(&["failed"]);
    assert!(outcome.stderr.contains("Permission denied"), "{outcome}");
    assert_eq!(pair.server.read("src/a"), b"bytes");
    // Nobody knows what the source has there.
    assert_eq!(pair.server.read("src/closed/keep"), b"bytes");
    fs::set_permissions(pair.client.path("src/closed"), Permissions::from_mode(0o700)).unwrap();
    Completion::Completed
}
