//! Trees as they are found on machines, and rsync as the judge of their copies: it has nothing to change in either direction.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, lchown},
    },
    path::Path,
    process::Command,
};

use libtest_mimic::Completion;
use rustix::fs::{CWD, FileType, Mode, lgetxattr, makedev, mknodat};

use crate::{
    harness::{
        Process, number,
        tree::{ACL, age, plant, plant_everything, set_acl},
    },
    lacks,
    pair::Pair,
};

pub(crate) const TESTS: &[crate::Test] = tests![
    a_tree_of_everything_is_what_rsync_would_have_made_of_it,
    trees_of_this_machine_are_what_rsync_would_have_made_of_them,
    fifos_and_sockets_are_kept_where_that_is_asked_for_and_replaced_like_others,
    a_daemon_makes_devices_only_for_a_peer_that_may_give_special_modes,
    owners_go_by_name_and_with_numeric_ids_by_number,
];

/// Has rsync compare two directories.
fn differences(one: &Path, other: &Path) -> String {
    let slash = |path: &Path| format!("{}/", path.display());
    let mut said = String::new();
    for (from, to) in [(one, other), (other, one)] {
        let mut rsync = Command::new("rsync");
        let output = rsync.args(["-aHAXn", "--itemize-changes", "--delete"]).args([slash(from), slash(to)]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        said.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    said
}

/// Copies what is in `src` both ways, and lets rsync judge.
#[track_caller]
fn check(pair: &Pair) {
    let source = pair.client.path("src");
    for (words, copy) in
        [(["-a", "src/", "127.0.0.1:copy"], pair.server.path("copy")), (["-a", "127.0.0.1:copy/", "back"], pair.client.path("back"))]
    {
        let outcome = pair.cp(&words).expect(0);
        let said = differences(&source, &copy);
        assert!(said.is_empty(), "rsync would change:\n{said}\n{outcome}");
    }
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
    for lacking in plant_everything(&src) {
        eprintln!("not tried: no {lacking} here");
    }
    plant(&src, "odd/-rf", b"dash");
    plant(&src, "odd/ \\ '\"$x", b"quotes");
    fs::write(src.join("odd").join(OsStr::from_bytes(b"\xff\xfe\n")), b"bytes").unwrap();
    for (name, seconds) in [("odd/of-1970", 1), ("odd/of-2200", 7_258_118_400)] {
        plant(&src, name, name);
        age(&src.join(name), seconds);
    }
    assert!(node(&src.join("odd/fifo"), FileType::Fifo, 0o640, 0) && node(&src.join("odd/socket"), FileType::Socket, 0o755, 0));
    fs::hard_link(src.join("odd/fifo"), src.join("odd/other fifo")).unwrap();
    let devices = [("odd/null", FileType::CharacterDevice, makedev(1, 3)), ("odd/disk", FileType::BlockDevice, makedev(250, 7))];
    if !devices.iter().all(|(name, kind, device)| node(&src.join(name), *kind, 0o660, *device)) {
        eprintln!("not tried: devices cannot be made here");
    }
    age(&src.join("odd/fifo"), 1_000_000_000);
    check(&pair);
    Completion::Completed
}

fn trees_of_this_machine_are_what_rsync_would_have_made_of_them() -> Completion {
    if let Some(lack) = lacks(&["rsync"]) {
        return lack;
    }
    let pair = Pair::serving(&[], "special-modes");
    let src = pair.client.path("src");
    fs::create_dir(&src).unwrap();
    // Some thousand entries, links and modes as packages have them.
    for (from, to) in [
        ("/etc", "etc"),
        ("/usr/share/zoneinfo", "zoneinfo"),
        ("/usr/share/perl5", "perl5"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/.git"), "git"),
    ] {
        let copied = Path::new(from).is_dir() && Command::new("cp").args(["-a", from]).arg(src.join(to)).output().is_ok();
        if !copied {
            eprintln!("not tried: no {from} here");
        }
    }
    // What this user may not read was not copied there; the rest is what counts.
    check(&pair);
    Completion::Completed
}

fn fifos_and_sockets_are_kept_where_that_is_asked_for_and_replaced_like_others() {
    let pair = Pair::new();
    let src = pair.client.path("src");
    plant(&src, "file", b"bytes");
    assert!(node(&src.join("fifo"), FileType::Fifo, 0o600, 0) && node(&src.join("socket"), FileType::Socket, 0o600, 0));
    let dry = pair.cp(&["-rDn", "src/", "127.0.0.1:copy"]).expect(0);
    assert!(dry.stdout.contains("would copy fifo\n") && !pair.server.has("copy"), "{dry}");
    let copy = pair.cp(&["-rD", "--json", "src/", "127.0.0.1:copy"]).expect(0);
    assert_eq!((number(&copy.document()["tree"], "nodes"), number(&copy.document()["tree"], "special")), (2, 0), "{copy}");
    let kind = |name: &str| fs::symlink_metadata(pair.server.path(name)).unwrap().file_type();
    assert!(kind("copy/fifo").is_fifo() && kind("copy/socket").is_socket());
    let again = pair.cp(&["-rD", "--json", "src/", "127.0.0.1:copy"]).expect(0).document();
    assert_eq!((number(&again["tree"], "nodes"), number(&again["tree"], "unchanged")), (0, 3), "{again:#}");
    // Without -D they are neither copied nor surplus.
    let plain = pair.cp(&["-r", "--delete", "--json", "src/", "127.0.0.1:copy"]).expect(0).document();
    assert_eq!((number(&plain["tree"], "special"), number(&plain["tree"], "deleted")), (2, 0), "{plain:#}");
    fs::remove_file(src.join("fifo")).unwrap();
    plant(&src, "fifo", b"a file now");
    pair.cp(&["-rD", "src/", "127.0.0.1:copy"]).expect(23);
    pair.cp(&["-rDf", "--delete", "src/", "127.0.0.1:copy"]).expect(0);
    assert_eq!(pair.server.read("copy/fifo"), b"a file now");
    fs::remove_file(src.join("socket")).unwrap();
    let deleted = pair.cp(&["-rD", "--delete", "--json", "src/", "127.0.0.1:copy"]).expect(0).document();
    assert_eq!(number(&deleted["tree"], "deleted"), 1, "{deleted:#}");
    // One that is typed is copied as what it is, too.
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
        if !node(&src.join("null"), FileType::CharacterDevice, 0o666, makedev(1, 3)) {
            return Completion::ignored_with("devices cannot be made here");
        }
        let outcome = pair.cp(&["-a", "--json", "src/", "127.0.0.1:copy"]).expect(0);
        let document = outcome.document();
        assert_eq!((number(&document["tree"], "nodes"), number(&document["tree"], "special")), (made, 1 - made), "{outcome}");
        assert_eq!(pair.server.has("copy/null"), made == 1);
    }
    Completion::Completed
}

/// A file's ACL, as the kernel has it.
fn acl(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    lgetxattr(path, ACL, &mut value).ok().map(|len| value[..len].to_vec())
}

/// The client's machine has a list of users of its own, in a mount namespace: `nobody` is 1234 there. An ACL's user 1234 stays that number.
fn owners_go_by_name_and_with_numeric_ids_by_number() -> Completion {
    if let Some(lack) = lacks(&["unshare", "mount"]) {
        return lack;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let Some(nobody) = users.lines().find_map(|line| line.strip_prefix("nobody:x:")?.split(':').next()?.parse::<u32>().ok()) else {
        return Completion::ignored_with("this machine has no user `nobody`");
    };
    for (options, there, back) in [("-a", nobody, 1234), ("-a --numeric-ids", 1234, 1234)] {
        let pair = Pair::new();
        plant(&pair.client.path("src"), "file", b"owned");
        if lchown(pair.client.path("src/file"), Some(1234), Some(4_000_000_123)).is_err() {
            return Completion::ignored_with("owners are root's to give");
        }
        let with_acl = set_acl(&pair.client.path("src/file"));
        pair.client.write("passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:1234:1234::/:/bin/sh\n");
        let copies = format!("$cp {options} src/ 127.0.0.1:copy && $cp {options} 127.0.0.1:copy/ back");
        let script = format!("exec unshare -m sh -c 'mount --bind passwd /etc/passwd || exit 77; {copies}'");
        let outcome = Process::spawn(pair.shell(&script)).finish();
        if outcome.status.code() == Some(77) {
            return Completion::ignored_with("nothing can be mounted here");
        }
        outcome.expect(0);
        let owner = |path: &Path| fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
        assert_eq!(owner(&pair.server.path("copy/file")), (there, 4_000_000_123), "{options}");
        assert_eq!(owner(&pair.client.path("back/file")), (back, 4_000_000_123), "{options}");
        let paths = [pair.client.path("src/file"), pair.server.path("copy/file"), pair.client.path("back/file")];
        let [sent, there, back] = paths.map(|path| acl(&path));
        assert!(sent.is_some() == with_acl && there == sent && back == sent, "{options}: {sent:?} {there:?} {back:?}");
    }
    Completion::Completed
}
