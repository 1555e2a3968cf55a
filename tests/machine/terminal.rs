//! Tests of what a running copy shows on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    content,
    pair::{MIB, Pair},
    tests,
    trial::Test,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

pub(crate) const TESTS: &[Test] = tests![
    an_interrupt_leaves_one_row_a_bar,
    a_suspended_copy_overwrites_nothing_of_the_shell,
];

/// `setsid` of util-linux gives a program its own terminal.
pub(crate) fn obstacle() -> Option<String> {
    let found = std::process::Command::new("setsid")
        .arg("--version")
        .output();
    found.is_err().then(|| "needs setsid".to_owned())
}

/// Terminal with a program that runs on it.
struct Seen {
    keyboard: File,
    slave: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    child: Child,
}

impl Seen {
    /// Starts a copy that takes some seconds, on a terminal on which a shell has printed two lines.
    fn copy(pair: &Pair, columns: u16) -> Self {
        pair.client.write("source", content(16 * MIB));
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        keep_output_at_interrupts(&master);
        let path = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(path.to_str().unwrap())
        };
        let mut slave = open().unwrap();
        slave.write_all(b"first\nsecond\n").unwrap();
        let mut command = pair.client.command("setsid");
        let words = pair.cp_arguments(&["--bwlimit", "4M", "source", "127.0.0.1:target"]);
        command
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_nicstripe"))
            .args(words)
            .env("TERM", "xterm")
            .stdin(open().unwrap())
            .stdout(Stdio::from(open().unwrap()))
            .stderr(Stdio::from(open().unwrap()));
        let child = command.spawn().unwrap();
        drop(command);
        let keyboard: File = master.into();
        let mut display = keyboard.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = display.read(&mut bytes) {
                if sender.send(bytes[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            keyboard,
            slave,
            output,
            screen: vt100::Parser::new(24, columns, 0),
            child,
        }
    }

    fn type_key(&mut self, key: u8) {
        self.keyboard.write_all(&[key]).unwrap();
    }

    fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        screen.rows(0, screen.size().1).collect()
    }

    /// Waits until the screen is as expected, and returns its lines.
    #[track_caller]
    fn until(&mut self, is_expected: impl Fn(&[String]) -> bool) -> Vec<String> {
        let started_at = Instant::now();
        while !is_expected(&self.lines()) {
            assert!(started_at.elapsed() < LONG, "{:#?}", self.lines());
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.screen.process(&bytes);
            }
        }
        self.lines()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn is_stopped(&self) -> bool {
        let stat = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(stat).unwrap();
        text.rsplit(") ").next().unwrap().starts_with('T')
    }
}

/// Lets `^C` and `^Z` drop no output that waits in the kernel, as they else do (`NOFLSH` in termios(3)).
///
/// If a busy machine moves a drawing on late, they would drop the middle of it.
fn keep_output_at_interrupts(terminal: &OwnedFd) {
    let mut settings = tcgetattr(terminal).unwrap();
    settings.local_modes |= LocalModes::NOFLSH;
    tcsetattr(terminal, OptionalActions::Now, &settings).unwrap();
}

impl Drop for Seen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of lines that begin with this name.
fn rows(lines: &[String], name: &str) -> usize {
    let is_named = |line: &&String| line.trim_start().starts_with(name);
    lines.iter().filter(is_named).count()
}

/// Returns true if the screen has a row for the file and for each link. A narrow one shortens names.
fn has_bars(lines: &[String]) -> bool {
    let links = ["127.0.0.2", "127.0.0.3"];
    let count = |link: &str| rows(lines, &format!("lo {link}")) + rows(lines, &format!("…{link}"));
    rows(lines, "source ") == 1 && links.iter().all(|link| count(link) == 1)
}

fn an_interrupt_leaves_one_row_a_bar() {
    for columns in [60, 80, 120] {
        let pair = Pair::new();
        let mut seen = Seen::copy(&pair, columns);
        seen.until(has_bars);
        seen.type_key(INTERRUPT);
        let lines = seen.until(|lines| rows(lines, "error: interrupted") == 1);
        assert!(has_bars(&lines), "{columns} columns: {lines:#?}");
        assert_eq!(
            lines[..2],
            ["first", "second"],
            "{columns} columns: {lines:#?}"
        );
    }
}

fn a_suspended_copy_overwrites_nothing_of_the_shell() {
    let pair = Pair::new();
    let mut seen = Seen::copy(&pair, 80);
    seen.until(has_bars);
    seen.type_key(SUSPEND);
    let started_at = Instant::now();
    while !seen.is_stopped() {
        assert!(started_at.elapsed() < LONG);
        thread::sleep(Duration::from_millis(10));
    }
    seen.slave.write_all(b"\nstopped\n$ fg\n").unwrap();
    seen.until(|lines| rows(lines, "$ fg") == 1);
    kill_process(seen.pid(), Signal::CONT).unwrap();
    let lines = seen.until(has_bars);
    for kept in ["first", "second", "stopped", "$ fg"] {
        assert_eq!(rows(&lines, kept), 1, "{kept}: {lines:#?}");
    }
}

const LONG: Duration = Duration::from_secs(20);

/// `^C` and `^Z`.
const INTERRUPT: u8 = 3;
const SUSPEND: u8 = 26;
