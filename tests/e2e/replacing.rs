//! What a copy replaces: regular files that differ, and nothing else.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::{
        fs::{FileTypeExt as _, symlink},
        net::UnixListener,
    },
    path::Path,
    thread,
};

use nicstripe_testkit::{
    content,
    pair::Pair,
    tree::{Aspects, assert_same_tree, plant},
};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_fifo()
}

#[test]
fn a_second_run_of_a_tree_sends_what_changed() {
    let pair = Pair::new();
    let (here, there) = (pair.client.path("p"), pair.server.path("p"));
    for name in ["x", "y", "sub/z"] {
        plant(&here, name, "1");
    }
    pair.cp(&["-a", "p/", "127.0.0.1:p/"]).expect(0);
    plant(&here, "x", "22");
    File::open(here.join("y"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    fs::remove_file(here.join("sub/z")).unwrap();
    symlink("x", here.join("sub/z")).unwrap();
    plant(&there, "surplus", "0");
    let again = pair.cp(&["-a", "--delete", "p/", "127.0.0.1:p/"]).expect(0);
    assert!(again.stderr.contains("1 deleted"), "{again}");
    assert_same_tree(&here, &there, Aspects::NONE);
}

#[test]
fn a_deletion_that_is_skipped_is_said() {
    let pair = Pair::new();
    plant(&pair.client.path("p"), "x", "1");
    plant(&pair.server.path("p"), "surplus", "0");
    make_fifo(&pair.server.path("p/x"));
    let outcome = pair
        .cp(&["-r", "--delete", "p/", "127.0.0.1:p/"])
        .expect(23);
    assert!(
        outcome
            .stderr
            .contains("--delete: nothing was deleted in directories"),
        "{outcome}"
    );
    assert!(pair.server.has("p/surplus") && is_fifo(&pair.server.path("p/x")));
}

#[test]
fn a_target_at_the_daemon_that_is_no_regular_file_stays() {
    let pair = Pair::new();
    pair.client.write("f", "new");
    make_fifo(&pair.server.path("fifo"));
    let _socket = UnixListener::bind(pair.server.path("socket")).unwrap();
    pair.server.write("file", "old");
    symlink("file", pair.server.path("link")).unwrap();
    for (name, said) in [
        ("fifo", "it is a FIFO"),
        ("socket", "it is a socket"),
        ("link", "it is a symbolic link"),
    ] {
        let before = fs::symlink_metadata(pair.server.path(name)).unwrap();
        let target = format!("127.0.0.1:{name}");
        let options: &[&[&str]] = match name {
            "link" => &[&[], &["-n"]],
            _ => &[&[], &["-f"], &["-a"], &["--delta"]],
        };
        for options in options {
            let outcome = pair.cp(&[options, &["f", &target][..]].concat());
            assert_ne!(
                outcome.status.code(),
                Some(0),
                "{name} {options:?}: {outcome}"
            );
        }
        pair.cp(&["f", &target]).expect(11).error(&[said]);
        let after = fs::symlink_metadata(pair.server.path(name)).unwrap();
        assert_eq!(before.file_type(), after.file_type(), "{name}");
    }
    assert_eq!(pair.server.read("file"), b"old");
    pair.cp(&["-f", "f", "127.0.0.1:link"]).expect(0);
    assert_eq!(
        (pair.server.read("link"), pair.server.read("file")),
        (b"new".to_vec(), b"old".to_vec())
    );
}

#[test]
fn a_target_here_that_is_no_regular_file_is_followed_or_written_to() {
    let pair = Pair::new();
    pair.server.write("f", content(100_000));
    // A link stays, and its file is replaced.
    pair.client.write("file", "old");
    symlink("file", pair.client.path("link")).unwrap();
    pair.cp(&["127.0.0.1:f", "link"]).expect(0);
    assert_eq!(pair.client.read("file"), content(100_000));
    assert!(pair.client.path("link").is_symlink());
    symlink("missing", pair.client.path("dangling")).unwrap();
    pair.cp(&["127.0.0.1:f", "dangling"])
        .expect(11)
        .error(&["symbolic link to a missing file"]);
    // A FIFO passes on what arrives.
    make_fifo(&pair.client.path("fifo"));
    let fifo = pair.client.path("fifo");
    let reader = thread::spawn(move || {
        let mut read = Vec::new();
        File::open(fifo).unwrap().read_to_end(&mut read).unwrap();
        read
    });
    pair.cp(&["127.0.0.1:f", "fifo"]).expect(0);
    assert!(reader.join().unwrap() == content(100_000));
    assert!(is_fifo(&pair.client.path("fifo")));
    let _socket = UnixListener::bind(pair.client.path("socket")).unwrap();
    for options in [&[][..], &["-f"]] {
        pair.cp(&[options, &["127.0.0.1:f", "socket"]].concat())
            .expect(11)
            .error(&["it is a socket"]);
    }
    // Devices, as the user of a scp expects. A tree leaves them.
    let null = fs::metadata("/dev/null").unwrap();
    pair.cp(&["127.0.0.1:f", "/dev/null"]).expect(0);
    pair.cp(&["-a", "127.0.0.1:f", "/dev/null"]).expect(23);
    assert_eq!(
        fs::metadata("/dev/null").unwrap().file_type(),
        null.file_type()
    );
    pair.server.write("text", "printed");
    let printed = pair.cp(&["127.0.0.1:text", "/dev/stdout"]).expect(0);
    assert_eq!(printed.stdout, "printed");
}
