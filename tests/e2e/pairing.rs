//! Tests of codes: pairing of two machines, over loopback. Discovery by code, on real cables, is in
//! `tests/netns`.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Outcome, Process, Side, pair::LOOPBACK};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// Process that shows a code, and the words that name it on this machine.
pub(crate) struct Inviter {
    pub(crate) process: Process,
    pub(crate) host: String,
    pub(crate) code: String,
}

impl Inviter {
    fn start(side: &Side, words: &[&str]) -> Self {
        Self::of(side.start(words))
    }

    /// Reads the code that a process shows.
    pub(crate) fn of(process: Process) -> Self {
        let line = process.await_stderr("on the other machine, within ");
        // Another test may have the port.
        let port = line
            .split_once("HOST:")
            .map_or("7746", |(_, rest)| rest.split(' ').next().unwrap());
        let code = process.await_stdout("-").trim_end().to_owned();
        Self {
            host: format!("127.0.0.1:{port}"),
            process,
            code,
        }
    }

    /// Returns the code with other words.
    fn wrong(&self) -> String {
        let (number, _) = self.code.split_once('-').unwrap();
        format!("{number}-crossover-violin")
    }

    fn join(&self, side: &Side, code: &str, options: &[&str]) -> Outcome {
        side.run([&["pair", &*self.host, code], options].concat())
    }
}

fn peers(side: &Side) -> String {
    fs::read_to_string(side.peers_file()).unwrap_or_default()
}

#[test]
fn a_code_pairs_two_machines_under_names_that_both_see() {
    let (nas, laptop) = (Side::here(), Side::here());
    let inviter = Inviter::start(&nas, &["pair", "--read-only", "--name", "laptop"]);
    let joined = inviter
        .join(&laptop, &inviter.code, &["--name", "nas"])
        .expect(0);
    let waited = inviter.process.finish().expect(0);
    assert_eq!(waited.stdout.trim_end(), inviter.code);
    for part in [
        "paired with laptop (",
        "it may read here",
        "laptop knows this machine as nas",
    ] {
        assert!(waited.stderr.contains(part), "{part}: {waited}");
    }
    for part in [
        "paired with nas (",
        "it may read, write and replace here",
        "nas knows this machine as laptop",
    ] {
        assert!(joined.stderr.contains(part), "{part}: {joined}");
    }
    let line = |side: &Side| side.key().split(' ').take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(peers(&nas), format!("read-only {} laptop\n", line(&laptop)));
    assert_eq!(peers(&laptop), format!("{} nas\n", line(&nas)));

    nas.write("file", "bytes");
    let daemon = Daemon::start(&nas, &LOOPBACK);
    // The loopback interface has no discovery, by which a name is found on cables.
    laptop
        .run(["trust", "add", &nas.key(), "--name", "127.0.0.1"])
        .expect(0);
    let port = daemon.port.to_string();
    let cp = |ends: [&str; 2]| {
        let words = ["cp", "-P", &port, "--link", "lo=127.0.0.1"];
        laptop.run([&words[..], &ends].concat())
    };
    cp(["127.0.0.1:file", "."]).expect(0);
    assert_eq!(laptop.read("file"), b"bytes");
    laptop.write("other", "bytes");
    cp(["other", "127.0.0.1:"]).expect(5);
}

#[test]
fn rights_of_a_machine_that_is_known_change_only_on_request() {
    let (nas, laptop) = (Side::here(), Side::here());
    nas.trust(&laptop, "mine", "append-only");
    for (options, rights) in [(&[][..], "append-only"), (&["--root", "."], "root=")] {
        let inviter = Inviter::start(&nas, &[&["pair"], options].concat());
        inviter
            .join(&laptop, &inviter.code, &["--name", "nas"])
            .expect(0);
        inviter.process.finish().expect(0);
        assert!(peers(&nas).starts_with(rights), "{}", peers(&nas));
        assert!(peers(&nas).contains("append-only"), "{}", peers(&nas));
        assert!(peers(&nas).ends_with(" mine\n"), "{}", peers(&nas));
    }
}

fn own_host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_str().unwrap().to_owned()
}

#[test]
fn a_doubtful_name_is_refused_without_a_terminal() {
    let (nas, laptop) = (Side::here(), Side::here());
    // Both ends run on this machine, and report its host name.
    laptop.trust(&Side::here(), &own_host_name(), "");
    let before = peers(&laptop);
    let inviter = Inviter::start(&nas, &["pair", "--name", "laptop"]);
    inviter
        .join(&laptop, &inviter.code, &[])
        .expect(2)
        .error(&[&own_host_name(), "the name of another peer"])
        .hint(&["--name NAME"]);
    inviter.process.finish().expect(5);
    assert_eq!((peers(&nas), peers(&laptop)), (String::new(), before));
}

#[test]
fn a_doubtful_name_is_asked_back_at_a_terminal() {
    let (nas, laptop) = (Side::here(), Side::here());
    laptop.trust(&Side::here(), &own_host_name(), "");
    let inviter = Inviter::start(&nas, &["pair", "--name", "laptop"]);
    let (mut keyboard, terminal) = terminal();
    let mut command = laptop.command(env!("CARGO_BIN_EXE_nicstripe"));
    command
        .args(["pair", &inviter.host, &inviter.code])
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal);
    let mut child = command.spawn().unwrap();
    drop(command);
    let name = own_host_name();
    for typed in [&*name, "localhost", "10.0.1.2", "-x", "..", "nas"] {
        keyboard.await_text("name for that machine:");
        keyboard
            .master
            .write_all(format!("{typed}\n").as_bytes())
            .unwrap();
    }
    keyboard.await_text("paired with nas (");
    assert!(child.wait().unwrap().success());
    inviter.process.finish().expect(0);
    assert!(peers(&laptop).ends_with(" nas\n"), "{}", peers(&laptop));
}

/// User at a pseudoterminal.
struct Keyboard {
    master: File,
    shown: String,
}

impl Keyboard {
    /// Reads up to this text, which must come within 20 s.
    fn await_text(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
            let pause = Timespec::try_from(Duration::from_millis(200)).unwrap();
            let is_ready = poll(&mut ready, Some(&pause)).unwrap() > 0;
            let mut buffer = [0; 4096];
            let read = if is_ready {
                self.master.read(&mut buffer)
            } else {
                Ok(0)
            };
            self.shown += &String::from_utf8_lossy(&buffer[..read.unwrap_or(0)]);
            assert!(Instant::now() < deadline, "{text}: {}", self.shown);
        }
    }
}

/// Returns a pseudoterminal, both its ends.
fn terminal() -> (Keyboard, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let keyboard = Keyboard {
        master: master.into(),
        shown: String::new(),
    };
    (keyboard, terminal.into())
}

#[test]
fn pairing_again_relaxes_no_restriction() {
    let (nas, laptop) = (Side::here(), Side::here());
    nas.trust(&laptop, "mine", "read-only");
    let before = peers(&nas);
    let inviter = Inviter::start(&nas, &["pair", "--append-only"]);
    inviter
        .join(&laptop, &inviter.code, &["--name", "nas"])
        .expect(5);
    let waited = inviter.process.finish().expect(5);
    waited
        .error(&["mine", "read-only"])
        .hint(&["nicstripe trust allow mine --append-only --replace"]);
    assert_eq!((peers(&nas), peers(&laptop)), (before, String::new()));
}

#[test]
fn a_wrong_code_leaves_no_trust_at_either_end() {
    let (nas, laptop) = (Side::here(), Side::here());
    let inviter = Inviter::start(&nas, &["pair"]);
    for outcome in [
        inviter.join(&laptop, &inviter.wrong(), &[]),
        inviter.process.finish(),
    ] {
        let outcome = outcome.expect(5);
        outcome.labelled(
            "error:",
            &["the code is wrong or someone else tried it", "a new one"],
        );
        assert!(!outcome.stderr.contains("hint:"), "{outcome}");
    }
    assert_eq!(
        (peers(&nas), peers(&laptop)),
        (String::new(), String::new())
    );
}

#[test]
fn a_machine_that_cannot_store_the_key_leaves_no_trust_at_the_other() {
    let (nas, laptop) = (Side::here(), Side::here());
    // Another key has the name.
    laptop.trust(&Side::here(), "nas", "");
    let before = peers(&laptop);
    let inviter = Inviter::start(&nas, &["pair", "--name", "laptop"]);
    inviter
        .join(&laptop, &inviter.code, &["--name", "nas"])
        .expect(1)
        .error(&["nas"]);
    inviter
        .process
        .finish()
        .expect(5)
        .error(&["did not confirm"])
        .hint(&["nicstripe trust remove "]);
    assert_eq!(
        (peers(&nas), peers(&laptop)),
        (String::new(), before.clone())
    );

    // What a machine had before, it keeps.
    nas.trust(&laptop, "mine", "read-only");
    let had = peers(&nas);
    let inviter = Inviter::start(&nas, &["pair", "--append-only", "--name", "other"]);
    inviter
        .join(&laptop, &inviter.code, &["--name", "nas"])
        .expect(1);
    inviter.process.finish().expect(5);
    assert_eq!((peers(&nas), peers(&laptop)), (had, before));
}

#[test]
fn what_is_no_code_or_finds_nobody_says_what_to_do() {
    let (here, inviter) = (Side::here(), Side::here());
    for (words, code, part) in [
        (&["pair", "nas"][..], 2, "a number and two words"),
        (
            &["pair", "7-crossover-vialin"],
            2,
            "did you mean \"violin\"?",
        ),
        (&["pair", "--root", "missing"], 11, "missing"),
        (&["pair", "--name", "a:b"], 2, "a:b"),
        (
            &["pair", "127.0.0.1:1", "7-crossover-violin"],
            10,
            "still waiting",
        ),
    ] {
        here.run(words).expect(code).error(&[part]);
    }
    let waiting = Inviter::start(&inviter, &["pair", "--timeout", "8s"]);
    let other = if waiting.code.starts_with("7-") {
        "8"
    } else {
        "7"
    };
    waiting
        .join(&here, &format!("{other}-crossover-violin"), &[])
        .expect(5)
        .error(&["another number"])
        .hint(&["check both"]);
    waiting
        .join(&inviter, &waiting.code, &[])
        .expect(5)
        .error(&["is our own"]);
    waiting
        .process
        .finish()
        .expect(30)
        .error(&["was not used within 8 s"]);
    let waiting = Inviter::start(&inviter, &["pair"]);
    waiting.process.signal(Signal::INT);
    waiting.process.finish().expect(130);
}
