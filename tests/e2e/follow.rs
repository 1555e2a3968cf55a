//! Tests of copies of files that are still written.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use nicstripe_testkit::{
    Process, Side, content,
    pair::{MIB, Pair},
};

/// File `rec` that grows here, and a machine that it goes to.
struct Recording {
    pair: Pair,
    writer: File,
    written: Vec<u8>,
}

impl Recording {
    fn new() -> Self {
        let pair = Pair::new();
        let writer = File::create(pair.client.path("rec")).unwrap();
        Self {
            pair,
            writer,
            written: Vec::new(),
        }
    }

    fn append(&mut self, len: usize) {
        let all = content(self.written.len() + len);
        let new = &all[self.written.len()..];
        self.writer.write_all(new).unwrap();
        self.written = all;
    }

    fn start(&self, options: &[&str]) -> Process {
        let words = [&["--follow"], options, &["rec", TO]].concat();
        self.pair.start_cp(&words)
    }

    fn copied(&self) -> PathBuf {
        self.pair.server.path("rec")
    }

    /// Waits until the other machine has so many bytes under a hidden name.
    fn wait_for(&self, bytes: u64) {
        let begun = Instant::now();
        while self.arrived() < bytes {
            assert!(begun.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(20));
        }
    }

    fn arrived(&self) -> u64 {
        let marks = self.hidden().map(|dir| fs::read_dir(dir).unwrap());
        let marks = marks.into_iter().flatten().flatten();
        let is_mark = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()
                .is_some_and(|name| name.parse::<u64>().is_ok())
        };
        let lines = marks.filter(is_mark).map(|mark| {
            let text = fs::read_to_string(mark.path()).unwrap_or_default();
            text.lines().count() as u64
        });
        lines.sum::<u64>() * MIB as u64
    }

    fn hidden(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.pair.server.path("")).unwrap().flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| path.to_string_lossy().ends_with(".follow"))
    }

    /// Ends the writer. Returns what it has written.
    fn close(self) -> (Pair, Vec<u8>) {
        (self.pair, self.written)
    }

    fn assert_nothing_else(&self) {
        assert_eq!(self.hidden(), None);
    }
}

/// Name at the other machine.
const TO: &str = "127.0.0.1:rec";

#[test]
fn a_file_is_sent_while_it_grows_and_has_its_name_once_its_writer_has_closed_it() {
    let mut rec = Recording::new();
    rec.append(3 * MIB + 5);
    let copying = rec.start(&["-p"]);
    rec.wait_for(3 * MIB as u64);
    assert!(!rec.copied().exists());
    rec.append(4 * MIB);
    rec.wait_for(7 * MIB as u64);
    rec.append(11);
    let (pair, written) = rec.close();
    copying.finish().expect(0).says(&["7.0 MiB", "verified"]);
    assert!(fs::read(pair.server.path("rec")).unwrap() == written);
    let modified = |side: &Side| fs::metadata(side.path("rec")).unwrap().modified().unwrap();
    assert_eq!(modified(&pair.server), modified(&pair.client));
    // A file that no one writes is there already.
    let again = pair.cp(&["--follow", "rec", TO]).expect(0);
    again.says(&["already present"]);
}

#[test]
fn what_another_program_adds_before_the_end_is_sent_too_and_it_does_not_wait_for_that() {
    let mut rec = Recording::new();
    rec.append(12 * MIB + 3);
    rec.writer = File::open("/dev/null").unwrap();
    let copying = rec.start(&["--bwlimit", "4M"]);
    sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let again = File::options()
        .append(true)
        .open(rec.pair.client.path("rec"));
    rec.writer = again.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    rec.append(2 * MIB);
    let (pair, written) = rec.close();
    copying.finish().expect(0);
    assert!(fs::read(pair.server.path("rec")).unwrap() == written);
}

#[test]
fn what_is_killed_goes_on_where_it_was() {
    let mut rec = Recording::new();
    rec.append(20 * MIB);
    let copying = rec.start(&[]);
    rec.wait_for(10 * MIB as u64);
    copying.kill();
    rec.append(5 * MIB + 9);
    let copying = rec.start(&[]);
    rec.wait_for(25 * MIB as u64);
    let (pair, written) = rec.close();
    copying
        .finish()
        .expect(0)
        .says(&["resuming at", "already present"]);
    assert!(fs::read(pair.server.path("rec")).unwrap() == written);
}

#[test]
fn a_file_that_becomes_shorter_or_is_rewritten_is_an_error_and_nothing_is_kept() {
    let mut rec = Recording::new();
    rec.append(6 * MIB);
    let copying = rec.start(&[]);
    rec.wait_for(5 * MIB as u64);
    rec.writer.set_len(2 * MIB as u64).unwrap();
    copying
        .finish()
        .expect(24)
        .error(&["rec became shorter at 2.0 MiB: nothing is kept of it"]);
    rec.assert_nothing_else();

    let mut rec = Recording::new();
    rec.append(6 * MIB);
    let copying = rec.start(&["--idle", "3s"]);
    rec.wait_for(5 * MIB as u64);
    rec.writer.seek(SeekFrom::Start(MIB as u64 + 7)).unwrap();
    rec.writer.write_all(b"another header").unwrap();
    copying
        .finish()
        .expect(24)
        .error(&["rec was rewritten at 1.0 MiB: nothing is kept of it"]);
    rec.assert_nothing_else();
    assert!(!rec.copied().exists());
}

#[test]
fn with_idle_a_file_ends_while_its_writer_has_it_open() {
    let mut rec = Recording::new();
    rec.append(MIB);
    let begun = SystemTime::now();
    rec.start(&["--idle", "1s"]).finish().expect(0);
    assert!(begun.elapsed().unwrap() >= Duration::from_secs(1));
    assert!(fs::read(rec.copied()).unwrap() == rec.written);
    // An empty one, too.
    let rec = Recording::new();
    rec.start(&["--idle", "100ms"]).finish().expect(0);
    assert_eq!(fs::metadata(rec.copied()).unwrap().len(), 0);
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let rec = Recording::new();
    for (words, said) in [
        (&["-r", ".", TO][..], "--follow sends one file from here"),
        (&["-", TO], "--follow sends one file from here"),
        (&[TO, "copy"], "--follow sends one file from here"),
        (&["--delta", "rec", TO], "cannot be used with"),
    ] {
        let refused = rec.pair.cp(&[&["--follow"], words].concat());
        refused.expect(2).error(&[said]);
    }
    fs::write(rec.copied(), "kept").unwrap();
    rec.start(&["--no-replace"])
        .finish()
        .expect(11)
        .error(&["it exists"]);
    assert_eq!(fs::read(rec.copied()).unwrap(), b"kept");
}
