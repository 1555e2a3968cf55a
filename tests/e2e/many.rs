//! Tests of copies to several machines, which feed each other.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    thread::sleep,
    time::Duration,
};

use nicstripe_testkit::{
    Daemon, Process, Side, content,
    pair::{LOOPBACK, MIB},
    tree::{Aspects, assert_same_tree, plant},
};

/// A source and three machines with daemons.
struct Many {
    source: Side,
    receivers: Vec<(Side, Daemon)>,
}

impl Many {
    fn new() -> Self {
        let source = Side::here();
        let receiver = |index: usize| {
            let side = Side::here();
            source.trust(&side, &format!("node{index}"), "");
            side.trust(&source, "source", "");
            let daemon = Daemon::start(&side, &LOOPBACK);
            (side, daemon)
        };
        let receivers = (1..=3).map(receiver).collect();
        Self { source, receivers }
    }

    /// Plants a tree with two large files, one of them of several parts.
    fn plant(&self) {
        let src = self.source.path("src");
        plant(&src, "dir/small", "small");
        plant(&src, "dir/large", content(3 * MIB));
        plant(&src, "larger", content(21 * MIB));
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(src.join("larger"), private).unwrap();
    }

    fn start(&self, options: &[&str], source: &str, to: &str) -> Process {
        let target =
            |(_, daemon): &(Side, Daemon)| format!("nicstripe://127.0.0.1:{}/{to}", daemon.port);
        let targets: Vec<String> = self.receivers.iter().map(target).collect();
        let targets = targets.iter().map(String::as_str);
        let words = ["cp"].into_iter().chain(options.iter().copied());
        self.source.start(words.chain([source]).chain(targets))
    }

    fn path(&self, receiver: usize, name: &str) -> std::path::PathBuf {
        self.receivers[receiver].0.path(name)
    }
}

fn mode(file: &Path) -> u32 {
    file.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn large_files_leave_the_source_once_and_every_target_has_the_whole_tree() {
    let many = Many::new();
    many.plant();
    let outcome = many.start(&["-r"], "src/", "dst").finish().expect(0);
    outcome.says(&["sent 24.0 MiB for 24.0 MiB to 3 machines"]);
    for receiver in 0..3 {
        let dst = many.path(receiver, "dst");
        assert_same_tree(&many.source.path("src"), &dst, Aspects::NONE);
        assert_eq!(mode(&dst.join("larger")), 0o600, "nobody else may read it");
    }
    // What one has lost comes from another; the rest is there.
    fs::remove_file(many.path(1, "dst/larger")).unwrap();
    let outcome = many.start(&["-r"], "src/", "dst").finish().expect(0);
    outcome.says(&["for 21.0 MiB to 3 machines", "nothing to send"]);
    assert_same_tree(
        &many.source.path("src"),
        &many.path(1, "dst"),
        Aspects::NONE,
    );
    // A single file, under a new name and in a directory that is there.
    for (to, found) in [("model", "model"), ("dst/dir/", "dst/dir/larger")] {
        many.start(&[], "src/larger", to).finish().expect(0);
        for receiver in 0..3 {
            let read = fs::read(many.path(receiver, found)).unwrap();
            assert!(read == content(21 * MIB), "{to} {receiver}");
        }
    }
}

#[test]
fn a_machine_that_dies_is_named_and_the_others_have_everything() {
    let mut many = Many::new();
    many.plant();
    let copying = many.start(&["-r", "--bwlimit", "4M"], "src/", "dst");
    sleep(Duration::from_secs(2));
    // The order is that of the cables, which are all the same.
    let (_dead, daemon) = many.receivers.remove(1);
    daemon.process.kill();
    let outcome = copying.finish();
    assert!(!outcome.status.success());
    outcome.says(&["is lost; the others go on without it"]);
    for receiver in 0..2 {
        let dst = many.path(receiver, "dst");
        assert_same_tree(&many.source.path("src"), &dst, Aspects::NONE);
    }
}

#[test]
fn what_makes_no_sense_for_several_targets_is_refused() {
    let many = Many::new();
    many.plant();
    many.start(&["-r", "--shard", "1/2"], "src/", "dst")
        .finish()
        .expect(2)
        .error(&["with --shard there is one DST"]);
    // As with one target, a directory needs -r, and a link here is followed without it.
    many.start(&[], "src", "dst")
        .finish()
        .expect(11)
        .error(&["is a directory: copying it needs -r"]);
    assert!(!many.path(0, "dst").exists());
    symlink("src/larger", many.source.path("link")).unwrap();
    many.start(&[], "link", "dst").finish().expect(0);
    for receiver in 0..3 {
        let copied = many.path(receiver, "dst");
        assert!(copied.symlink_metadata().unwrap().is_file());
        assert!(fs::read(copied).unwrap() == content(21 * MIB));
    }
}
