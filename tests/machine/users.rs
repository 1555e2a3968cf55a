//! Tests of user rights: root's privileges, the limits of other users, and supplementary groups.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Daemon, Process, Side, content, number,
    pair::{LOOPBACK, MIB, Pair},
    tests,
    tree::plant,
    trial::{Test, lacks},
};
use rustix::{
    fs::{XattrFlags, lgetxattr, lsetxattr},
    process::Signal,
};

use crate::threads::{USER, give};

pub(crate) const TESTS: &[Test] = tests![
    a_file_that_its_owners_private_group_may_change_is_read,
    what_cannot_be_read_fails_and_the_rest_is_copied,
    set_user_id_is_kept_with_its_owner_alone,
    attributes_of_root_are_kept_with_owners_from_a_peer_with_special_modes_alone,
    a_part_file_or_journal_of_another_user_is_not_gone_on_with,
    a_key_that_is_trusted_beside_another_users_daemon_gets_a_warning,
    a_directory_that_shows_the_keys_by_a_bind_mount_is_not_served,
];

const NOT_ROOT: &str = "owners are root's to give";

fn a_file_that_its_owners_private_group_may_change_is_read() -> Completion {
    let name = |option| {
        std::process::Command::new("id")
            .arg(option)
            .output()
            .unwrap()
            .stdout
    };
    if name("-un") != name("-gn") {
        return Completion::ignored_with("this user has no private group");
    }
    let side = Side::here();
    side.configure("port = 0\n");
    fs::set_permissions(side.home(), Permissions::from_mode(0o775)).unwrap();
    fs::set_permissions(
        side.home().join("config.toml"),
        Permissions::from_mode(0o664),
    )
    .unwrap();
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
    let outcome = pair
        .cp(&["-r", "--delete", "src", "127.0.0.1:"])
        .expect(23)
        .error(&["failed"]);
    assert!(outcome.stderr.contains("Permission denied"), "{outcome}");
    assert_eq!(pair.server.read("src/a"), b"bytes");
    // The content of the unreadable source directory is unknown, so nothing is deleted.
    assert_eq!(pair.server.read("src/closed/keep"), b"bytes");
    fs::set_permissions(
        pair.client.path("src/closed"),
        Permissions::from_mode(0o700),
    )
    .unwrap();
    Completion::Completed
}

fn set_user_id_is_kept_with_its_owner_alone() -> Completion {
    let pair = Pair::serving(&[], "special-modes");
    plant(&pair.client.path("src"), "program", "bytes");
    let program = pair.client.path("src/program");
    if lchown(&program, Some(1234), Some(2345)).is_err() {
        return Completion::ignored_with(NOT_ROOT);
    }
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    for (owners, copy, expected) in [
        (&[][..], "plain", (0, 0, 0o755)),
        (&["--owner"], "owned", (1234, 2345, 0o4755)),
    ] {
        pair.cp(&[&["-rp"], owners, &["src/", &format!("127.0.0.1:{copy}")]].concat())
            .expect(0);
        let found = fs::metadata(pair.server.path(copy).join("program")).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o7777),
            expected,
            "{copy}"
        );
    }
    Completion::Completed
}

fn attributes_of_root_are_kept_with_owners_from_a_peer_with_special_modes_alone() -> Completion {
    // Version 2, cap_net_raw, effective: see linux/capability.h.
    const CAPABILITY: [u8; 20] = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    for (right, owners, kept, stripped) in [
        ("special-modes", true, true, 0),
        ("special-modes", false, false, 0),
        ("", true, false, 2),
        ("", false, false, 0),
    ] {
        let pair = Pair::serving(&[], right);
        let src = pair.client.path("src");
        plant(&src, "file", "bytes");
        symlink("nowhere", src.join("link")).unwrap();
        let set = |name: &str, xattr: &str, value: &[u8]| {
            lsetxattr(src.join(name), xattr, value, XattrFlags::empty())
        };
        if let Err(error) = set("link", "trusted.a", b"1") {
            return Completion::ignored_with(format!(
                "no attribute trusted.a can be set here: {error}"
            ));
        }
        for (xattr, value) in [
            ("trusted.a", &b"1"[..]),
            ("user.b", b"2"),
            ("security.capability", &CAPABILITY),
        ] {
            set("file", xattr, value).unwrap();
        }
        let owners: &[&str] = if owners { &["--owner"] } else { &[] };
        let outcome = pair
            .cp(&[&["-rpX", "--json"], owners, &["src/", "127.0.0.1:copy"]].concat())
            .expect(0);
        assert_eq!(
            number(&outcome.document()["tree"], "stripped"),
            stripped,
            "{outcome}"
        );
        let has = |name: &str, xattr: &str| {
            lgetxattr(pair.server.path("copy").join(name), xattr, &mut [0; 64][..]).is_ok()
        };
        for (name, xattr, expected) in [
            ("file", "user.b", true),
            ("file", "trusted.a", kept),
            ("file", "security.capability", kept),
            ("link", "trusted.a", kept),
        ] {
            assert_eq!(
                has(name, xattr),
                expected,
                "{right:?} {owners:?}: {xattr} of {name}"
            );
        }
    }
    Completion::Completed
}

fn a_part_file_or_journal_of_another_user_is_not_gone_on_with() -> Completion {
    for given in ["", "-part", "-journal"] {
        let pair = Pair::new();
        let bytes = content(8 * MIB);
        pair.client.write("source", &bytes);
        let cp = pair.start_cp(&[
            "--bwlimit",
            "16M",
            "--json-stream",
            "source",
            "127.0.0.1:target",
        ]);
        cp.await_bytes(4 * MIB as u64);
        cp.signal(Signal::INT);
        cp.finish().expect(130);
        let left = pair.server.names();
        assert_eq!(left.len(), 2, "{left:?}");
        for name in left
            .iter()
            .filter(|name| !given.is_empty() && name.ends_with(given))
        {
            if lchown(pair.server.path(name), Some(1234), None).is_err() {
                return Completion::ignored_with(NOT_ROOT);
            }
        }
        let report = pair
            .cp(&["--json", "source", "127.0.0.1:target"])
            .expect(0)
            .document();
        assert_eq!(
            number(&report, "resumed_bytes") > 0,
            given.is_empty(),
            "{given:?}: {report:#}"
        );
        pair.server.check("target", &bytes, &report);
    }
    Completion::Completed
}

/// Runs a daemon as root in a network namespace where the default port is free, and `trust` as
/// another user.
fn a_key_that_is_trusted_beside_another_users_daemon_gets_a_warning() -> Completion {
    if let Some(lack) = lacks(&["unshare", "nsenter", "setpriv", "ip"]) {
        return lack;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let [root, user] = [Side::here(), Side::here()];
    let isolated = |side: &Side, run: &str| {
        let mut command = side.command("unshare");
        command.env("PATH", &path).args([
            "-n",
            "sh",
            "-c",
            &format!("ip link set lo up && {run}"),
            "sh",
            env!("CARGO_BIN_EXE_nicstripe"),
        ]);
        command
    };
    let tried = Process::spawn(isolated(&root, "exec setpriv --reuid=1234 true")).finish();
    if !tried.status.success() {
        return Completion::ignored_with(format!(
            "no network namespace, or no other user: {}",
            tried.stderr.trim()
        ));
    }
    let mut serve = isolated(&root, "exec \"$@\"");
    serve.arg("serve").args(LOOPBACK);
    let daemon = Daemon::listening(Process::spawn(serve));
    let line = root.run(["key"]).expect(0).stdout;
    let program = user.path("nicstripe");
    fs::copy(env!("CARGO_BIN_EXE_nicstripe"), &program).unwrap();
    give(user.files().parent().unwrap());
    let trust = |other: Option<u32>| {
        let mut command = user.command("nsenter");
        command
            .env("PATH", &path)
            .args(["-t", &daemon.process.id().to_string(), "-n", "--"]);
        command.args(other.iter().flat_map(|uid| {
            [
                "setpriv".to_owned(),
                format!("--reuid={uid}"),
                "--clear-groups".to_owned(),
            ]
        }));
        command
            .arg(&program)
            .args(["trust", "add", line.trim(), "--name", "nas"]);
        Process::spawn(command).finish().expect(0)
    };
    let outcome = trust(Some(USER));
    assert!(
        outcome.stderr.contains(
            "port 7747 is used by a process of user root, which reads another peers file"
        ),
        "{outcome}"
    );
    outcome.hint(&["sudo nicstripe trust"]);
    let outcome = trust(None);
    assert!(
        !outcome.stderr.contains("is used by"),
        "its own user's list is what it reads: {outcome}"
    );
    Completion::Completed
}

fn a_directory_that_shows_the_keys_by_a_bind_mount_is_not_served() -> Completion {
    if let Some(lack) = lacks(&["unshare", "mount"]) {
        return lack;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let side = Side::here();
    side.key();
    side.write_guarded(side.peers_file(), "");
    side.make_dir("served");
    side.make_dir("served/keys");
    side.write("served/list", "");
    side.run(["serve", "--check-config", "served"]).expect(0);
    for (shown, at) in [(side.home(), "keys"), (side.peers_file(), "list")] {
        let mount = format!("mount --bind {} served/{at}", shown.display());
        let script = format!(
            "unshare -m true || exit 77; exec unshare -m sh -c \
             '{mount} || exit 77; exec \"$0\" serve --check-config served' \"$0\""
        );
        let mut command = side.command("sh");
        command
            .env("PATH", &path)
            .args(["-c", &script, env!("CARGO_BIN_EXE_nicstripe")]);
        let outcome = Process::spawn(command).finish();
        if outcome.status.code() == Some(77) {
            return Completion::ignored_with("nothing can be mounted here");
        }
        outcome
            .expect(2)
            .error(&["cannot serve", "it contains this machine's key"]);
    }
    Completion::Completed
}
