//! Tests of copies of one file from several machines.

use std::{
    fs::{self, File},
    path::Path,
    thread::sleep,
    time::Duration,
};

use nicstripe_testkit::{
    Daemon, Process, Side, content,
    pair::{LOOPBACK, MIB},
};

/// A machine, and others that have the file `img`.
struct Replicas {
    here: Side,
    others: Vec<(Side, Daemon)>,
}

impl Replicas {
    fn with(bytes: &[u8], count: usize) -> Self {
        let here = Side::here();
        let other = |index: usize| {
            let side = Side::here();
            here.trust(&side, &format!("node{index}"), "");
            side.trust(&here, "here", "");
            let daemon = Daemon::start(&side, &LOOPBACK);
            fs::write(side.path("img"), bytes).unwrap();
            (side, daemon)
        };
        let others = (1..=count).map(other).collect();
        Self { here, others }
    }

    fn start(&self, options: &[&str]) -> Process {
        let one =
            |(_, daemon): &(Side, Daemon)| format!("nicstripe://127.0.0.1:{}/img", daemon.port);
        let all: Vec<String> = self.others.iter().map(one).collect();
        let source = all.join(",");
        let words = ["cp"].into_iter().chain(options.iter().copied());
        self.here.start(words.chain([&*source, "."]))
    }

    fn assert_right(&self, bytes: &[u8]) {
        assert!(fs::read(self.here.path("img")).unwrap() == bytes);
        let names = fs::read_dir(self.here.path("")).unwrap().count();
        assert_eq!(names, 1, "nothing hidden is left");
    }
}

/// Changes a byte, and leaves the time that the daemon believes.
fn damage(file: &Path, at: usize) {
    let time = fs::metadata(file).unwrap().modified().unwrap();
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    let opened = File::options().write(true).open(file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&opened, &bytes, 0).unwrap();
    opened.set_modified(time).unwrap();
}

#[test]
fn a_file_is_drawn_from_all_that_have_it() {
    let bytes = content(20 * MIB + 3);
    let replicas = Replicas::with(&bytes, 3);
    fs::write(replicas.others[1].0.path("img"), content(20 * MIB)).unwrap();
    let outcome = replicas.start(&[]).finish().expect(0);
    outcome.says(&[
        "20.0 MiB",
        "verified by the BLAKE3 of the replicas and on disk",
    ]);
    let other = format!(":{}/img: it is another file", replicas.others[1].1.port);
    outcome.says(&[&other]);
    replicas.assert_right(&bytes);
    replicas
        .start(&[])
        .finish()
        .expect(0)
        .says(&["already present"]);
}

#[test]
fn one_that_lies_is_named_and_costs_its_share() {
    let bytes = content(24 * MIB);
    let replicas = Replicas::with(&bytes, 2);
    // Each has got the file by a copy, so that its daemon keeps the digest.
    fs::write(replicas.here.path("img"), &bytes).unwrap();
    for (side, daemon) in &replicas.others {
        fs::remove_file(side.path("img")).unwrap();
        let port = daemon.port.to_string();
        replicas
            .here
            .run(["cp", "-P", &port, "img", "127.0.0.1:"])
            .expect(0);
    }
    fs::remove_file(replicas.here.path("img")).unwrap();
    let liar = &replicas.others[1];
    for piece in 0..24 {
        damage(&liar.0.path("img"), piece * MIB + 5);
    }
    let outcome = replicas.start(&[]).finish();
    let said = format!(
        ":{}/img: it sent other bytes, which were not used",
        liar.1.port
    );
    outcome.expect(0).says(&[&said]);
    replicas.assert_right(&bytes);
}

#[test]
fn one_that_dies_is_named_and_the_copy_ends_with_the_others() {
    let bytes = content(60 * MIB);
    let mut replicas = Replicas::with(&bytes, 2);
    let link = "127.0.0.1=127.0.0.1@200Mbit";
    let copying = replicas.start(&["--link", link, "--json-stream"]);
    copying.await_bytes(8 * MIB as u64);
    let (_side, dead) = replicas.others.remove(1);
    let port = dead.port;
    dead.process.kill();
    let outcome = copying.finish().expect(0);
    outcome.says(&[&format!(":{port}/img: ")]);
    replicas.assert_right(&bytes);
}

#[test]
fn what_was_interrupted_goes_on_where_it_was() {
    let bytes = content(60 * MIB);
    let replicas = Replicas::with(&bytes, 2);
    let link = "127.0.0.1=127.0.0.1@200Mbit";
    let copying = replicas.start(&["--link", link, "--json-stream"]);
    copying.await_bytes(30 * MIB as u64);
    sleep(Duration::from_millis(300));
    copying.kill();
    let outcome = replicas.start(&[]).finish().expect(0);
    outcome.says(&["already present"]);
    replicas.assert_right(&bytes);
}
