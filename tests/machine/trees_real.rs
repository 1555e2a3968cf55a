//! Tests of tree copies by comparison with rsync, which must find no changes to make in either
//! direction.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink},
    },
    path::Path,
    process::Command,
};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Outcome, Process, number,
    pair::Pair,
    tests,
    tree::{ACL, acl, age, plant, plant_everything, set_acl},
    trial::{Test, lacks},
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, makedev, mknodat};

pub(crate) const TESTS: &[Test] = tests![
    a_tree_of_everything_is_what_rsync_would_have_made_of_it,
    devices_are_what_rsync_would_have_made_of_them,
    fifos_and_sockets_are_kept_where_that_is_asked_for_and_replaced_by_no_file,
    a_daemon_makes_devices_only_for_a_peer_that_may_give_special_modes,
    owners_go_by_name_and_with_numeric_ids_by_number,
    acls_are_what_rsync_would_have_made_of_them_where_users_and_groups_are_others,
];

/// Returns the changes that rsync would make to turn either directory into the other. Empty if the
/// directories are equal.
fn differences(one: &Path, other: &Path) -> String {
    let slash = |path: &Path| format!("{}/", path.display());
    let mut said = String::new();
    for (from, to) in [(one, other), (other, one)] {
        let mut rsync = Command::new("rsync");
        let output = rsync
            .args(["-aHAXn", "--itemize-changes", "--delete"])
            .args([slash(from), slash(to)])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        said.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    said
}

/// Copies `src` in both directions. Panics if rsync finds a difference.
#[track_caller]
fn check(pair: &Pair) {
    let source = pair.client.path("src");
    for (words, copy) in [
        (["-a", "src/", "127.0.0.1:copy"], pair.server.path("copy")),
        (["-a", "127.0.0.1:copy/", "back"], pair.client.path("back")),
    ] {
        let outcome = pair.cp(&words).expect(0);
        let said = differences(&source, &copy);
        assert!(said.is_empty(), "rsync would change:\n{said}\n{outcome}");
    }
}

/// Returns numbers of entries from the report of a tree.
fn counts<const N: usize>(outcome: &Outcome, fields: [&str; N]) -> [u64; N] {
    let document = outcome.document();
    fields.map(|field| number(&document["tree"], field))
}

fn node(path: &Path, kind: FileType, mode: u32, device: u64) -> bool {
    mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device).is_ok()
}

fn a_tree_of_everything_is_what_rsync_would_have_made_of_it() -> Completion {
    if let Some(lack) = lacks(&["rsync"]) {
        return lack;
    }
    let pair = Pair::serving(&[], "special-modes");
    let src = pair.client.path("src");
    plant_everything(&src);
    plant(&src, "odd/-rf", b"dash");
    plant(&src, "odd/ \\ '\"$x", b"quotes");
    fs::write(
        src.join("odd").join(OsStr::from_bytes(b"\xff\xfe\n")),
        b"bytes",
    )
    .unwrap();
    for (name, seconds) in [("odd/of-1970", 1), ("odd/of-2200", 7_258_118_400)] {
        plant(&src, name, name);
        age(&src.join(name), seconds);
    }
    assert!(
        node(&src.join("odd/fifo"), FileType::Fifo, 0o640, 0)
            && node(&src.join("odd/socket"), FileType::Socket, 0o755, 0)
    );
    fs::hard_link(src.join("odd/fifo"), src.join("odd/other fifo")).unwrap();
    age(&src.join("odd/fifo"), 1_000_000_000);
    check(&pair);
    Completion::Completed
}

fn devices_are_what_rsync_would_have_made_of_them() -> Completion {
    if let Some(lack) = lacks(&["rsync"]) {
        return lack;
    }
    let pair = Pair::serving(&[], "special-modes");
    let src = pair.client.path("src");
    fs::create_dir(&src).unwrap();
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("disk", FileType::BlockDevice, makedev(250, 7)),
    ] {
        if !node(&src.join(name), kind, 0o660, device) {
            return Completion::ignored_with("devices cannot be made here");
        }
        age(&src.join(name), 1_000_000_000);
    }
    fs::hard_link(src.join("null"), src.join("another null")).unwrap();
    check(&pair);
    Completion::Completed
}

fn fifos_and_sockets_are_kept_where_that_is_asked_for_and_replaced_by_no_file() {
    let pair = Pair::new();
    let src = pair.client.path("src");
    plant(&src, "file", b"bytes");
    assert!(
        node(&src.join("fifo"), FileType::Fifo, 0o600, 0)
            && node(&src.join("socket"), FileType::Socket, 0o600, 0)
    );
    let dry = pair.cp(&["-rDn", "src/", "127.0.0.1:copy"]).expect(0);
    assert!(
        dry.stdout.contains("would copy fifo\n") && !pair.server.has("copy"),
        "{dry}"
    );
    let copy = pair
        .cp(&["-rD", "--json", "src/", "127.0.0.1:copy"])
        .expect(0);
    assert_eq!(counts(&copy, ["nodes", "special"]), [2, 0], "{copy}");
    let kind = |name: &str| {
        fs::symlink_metadata(pair.server.path(name))
            .unwrap()
            .file_type()
    };
    assert!(kind("copy/fifo").is_fifo() && kind("copy/socket").is_socket());
    let again = pair
        .cp(&["-rD", "--json", "src/", "127.0.0.1:copy"])
        .expect(0);
    assert_eq!(counts(&again, ["nodes", "unchanged"]), [0, 3], "{again}");
    // Special files are neither copied nor deleted without -D.
    let plain = pair
        .cp(&["-r", "--delete", "--json", "src/", "127.0.0.1:copy"])
        .expect(0);
    assert_eq!(counts(&plain, ["special", "deleted"]), [2, 0], "{plain}");
    fs::remove_file(src.join("fifo")).unwrap();
    plant(&src, "fifo", b"a file now");
    for options in ["-rD", "-rDf"] {
        pair.cp(&[options, "src/", "127.0.0.1:copy"]).expect(23);
    }
    fs::remove_file(pair.server.path("copy/fifo")).unwrap();
    pair.cp(&["-rD", "--delete", "src/", "127.0.0.1:copy"])
        .expect(0);
    assert_eq!(pair.server.read("copy/fifo"), b"a file now");
    fs::remove_file(src.join("socket")).unwrap();
    let deleted = pair
        .cp(&["-rD", "--delete", "--json", "src/", "127.0.0.1:copy"])
        .expect(0);
    assert_eq!(counts(&deleted, ["deleted"]), [1], "{deleted}");
    // A special file named on the command line is also copied as a special file.
    pair.cp(&["-a", "127.0.0.1:copy", "back"]).expect(0);
    assert!(node(&pair.client.path("one"), FileType::Fifo, 0o600, 0));
    pair.cp(&["-a", "one", "127.0.0.1:"]).expect(0);
    assert!(kind("one").is_fifo());
}

fn a_daemon_makes_devices_only_for_a_peer_that_may_give_special_modes() -> Completion {
    for (option, made) in [("", 0), ("special-modes", 1)] {
        let pair = Pair::serving(&[], option);
        let src = pair.client.path("src");
        fs::create_dir(&src).unwrap();
        if !node(
            &src.join("null"),
            FileType::CharacterDevice,
            0o666,
            makedev(1, 3),
        ) {
            return Completion::ignored_with("devices cannot be made here");
        }
        let outcome = pair
            .cp(&["-a", "--json", "src/", "127.0.0.1:copy"])
            .expect(0);
        let found = counts(&outcome, ["nodes", "special"]);
        assert_eq!(found, [made, 1 - made], "{outcome}");
        assert_eq!(pair.server.has("copy/null"), made == 1);
    }
    Completion::Completed
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = [0; 256];
    let len = lgetxattr(path, name, &mut value).unwrap();
    value[..len].to_vec()
}

/// Returns the ID of the first named user in a POSIX ACL. This entry follows the version and the
/// owner's entry.
fn user_of(acl: &[u8]) -> u32 {
    u32::from_le_bytes(acl[16..20].try_into().unwrap())
}

/// Paths in the copied tree: a new file, one with unchanged content, a directory and a symbolic
/// link.
const OWNED: [&str; 4] = ["file", "same", "dir", "link"];

/// Runs the client in a mount namespace whose `/etc/passwd` gives `nobody` the ID 1234.
fn owners_go_by_name_and_with_numeric_ids_by_number() -> Completion {
    if let Some(lack) = lacks(&["unshare", "mount"]) {
        return lack;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let Some(nobody) = users.lines().find_map(|line| {
        line.strip_prefix("nobody:x:")?
            .split(':')
            .next()?
            .parse::<u32>()
            .ok()
    }) else {
        return Completion::ignored_with("this machine has no user `nobody`");
    };
    for (options, there, back) in [("-a", nobody, 1234), ("-a --numeric-ids", 1234, 1234)] {
        let pair = Pair::new();
        let src = pair.client.path("src");
        for (folder, name) in [
            (&src, "file"),
            (&src, "same"),
            (&src, "dir/x"),
            (&pair.server.path("copy"), "same"),
        ] {
            plant(folder, name, b"owned");
            age(&folder.join(name), 1_000_000_000);
        }
        symlink("file", src.join("link")).unwrap();
        set_acl(&src.join("file"));
        for name in OWNED {
            if lchown(src.join(name), Some(1234), Some(4_000_000_123)).is_err() {
                return Completion::ignored_with("owners are root's to give");
            }
        }
        pair.client.write(
            "passwd",
            "root:x:0:0::/root:/bin/sh\nnobody:x:1234:1234::/:/bin/sh\n",
        );
        let copies =
            format!("$cp {options} src/ 127.0.0.1:copy && $cp {options} 127.0.0.1:copy/ back");
        let script = format!(
            "unshare -m true || exit 77; exec unshare -m sh -c 'mount --bind passwd /etc/passwd || exit 77; {copies}'"
        );
        let outcome = Process::spawn(pair.shell(&script)).finish();
        if outcome.status.code() == Some(77) {
            return Completion::ignored_with("nothing can be mounted here");
        }
        outcome.expect(0);
        let owner = |path: &Path| {
            fs::symlink_metadata(path)
                .map(|meta| (meta.uid(), meta.gid()))
                .unwrap()
        };
        for name in OWNED {
            assert_eq!(
                owner(&pair.server.path("copy").join(name)),
                (there, 4_000_000_123),
                "{options} {name}"
            );
            assert_eq!(
                owner(&pair.client.path("back").join(name)),
                (back, 4_000_000_123),
                "{options} {name}"
            );
        }
        let copies = [pair.server.path("copy/file"), pair.client.path("back/file")];
        assert_eq!(
            copies.map(|path| user_of(&xattr(&path, ACL))),
            [there, back],
            "{options}"
        );
    }
    Completion::Completed
}

/// Returns the first name in a file such as `/etc/passwd` whose ID is neither 0 nor 1234; `None` if
/// there is no such name.
fn first_in(list: &str) -> Option<String> {
    let text = fs::read_to_string(list).ok()?;
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields
        .filter(|fields| fields.get(2).is_some_and(|id| !matches!(*id, "0" | "1234")))
        .map(|fields| fields[0].to_owned())
        .next()
}

/// Runs the client in a mount namespace with other user and group IDs than this machine's. The
/// remote end of rsync uses this machine's IDs.
fn acls_are_what_rsync_would_have_made_of_them_where_users_and_groups_are_others() -> Completion {
    const DEFAULT_ACL: &str = "system.posix_acl_default";
    if let Some(lack) = lacks(&["rsync", "unshare", "nsenter", "mount"]) {
        return lack;
    }
    let (Some(user), Some(group)) = (first_in("/etc/passwd"), first_in("/etc/group")) else {
        return Completion::ignored_with("this machine has no users and groups but root's");
    };
    for options in ["-a", "-a --numeric-ids"] {
        let pair = Pair::new();
        let src = pair.client.path("src");
        plant(&src, "dir/file", b"bytes");
        set_acl(&src.join("dir/file"));
        lsetxattr(src.join("dir"), DEFAULT_ACL, &acl(), XattrFlags::empty()).unwrap();
        pair.client.write(
            "passwd",
            format!("root:x:0:0::/root:/bin/sh\n{user}:x:1234:1234::/:/bin/sh\n"),
        );
        pair.client
            .write("group", format!("root:x:0:\n{group}:x:1234:\n"));
        pair.client.write(
            "rsh",
            format!(
                "#!/bin/sh\nshift\nexec nsenter -m -t {} -- \"$@\"\n",
                std::process::id()
            ),
        );
        fs::set_permissions(pair.client.path("rsh"), fs::Permissions::from_mode(0o755)).unwrap();
        let judged = pair.server.path("judged");
        let rsync = format!(
            "rsync {options} -A --rsh=./rsh src/ judge:{}/",
            judged.display()
        );
        let mounts = "mount --bind passwd /etc/passwd && mount --bind group /etc/group || exit 77";
        let script = format!(
            "unshare -m true || exit 77; exec unshare -m sh -c '{mounts}; $cp {options} src/ 127.0.0.1:copy && {rsync}'"
        );
        let outcome = Process::spawn(pair.shell(&script)).finish();
        if outcome.status.code() == Some(77) {
            return Completion::ignored_with("nothing can be mounted here");
        }
        let outcome = outcome.expect(0);
        for (name, of) in [("dir/file", ACL), ("dir", DEFAULT_ACL)] {
            let [sent, copied, judged] =
                [&src, &pair.server.path("copy"), &judged].map(|root| xattr(&root.join(name), of));
            assert_eq!(copied, judged, "{options} {name}: {outcome}");
            assert_eq!(
                copied == sent,
                options.contains("numeric"),
                "{options} {name}"
            );
        }
    }
    Completion::Completed
}
