//! Start of nicstripe through ssh: kinds of noise, refusal and silence of the other side, and what the
//! user sees of them. The rows are those of the table in `docs/MANUAL.md`, section 2.13.

use std::{
    fs,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::ssh::Machines;

/// Kind of start, and what follows.
struct Row {
    kind: &'static str,
    /// Commands of the login shell there, before that of the client.
    before: &'static str,
    has_program: bool,
    installs: bool,
    /// Parts of standard error, divided by `…`.
    seen: &'static str,
    code: i32,
}

const fn started(kind: &'static str, before: &'static str) -> Row {
    Row {
        kind,
        before,
        has_program: true,
        installs: false,
        seen: "verified and on disk",
        code: 0,
    }
}

const fn fails(kind: &'static str, before: &'static str, seen: &'static str, code: i32) -> Row {
    Row {
        kind,
        before,
        has_program: false,
        installs: false,
        seen,
        code,
    }
}

const fn installs(kind: &'static str, before: &'static str, seen: &'static str, code: i32) -> Row {
    Row {
        installs: true,
        ..fails(kind, before, seen, code)
    }
}

/// Makes `uname` fail. The directory is the first of the client's search path there.
const NO_UNAME: &str = r"mkdir -p .local/bin; printf '#!/bin/sh\nexit 1\n' > .local/bin/uname; chmod 755 .local/bin/uname";

const ROWS: [Row; 29] = [
    started("a greeting", "echo Welcome"),
    started("a greeting without a line break", "printf 'Welcome to nas'"),
    started("a title for the terminal", r"printf '\033]0;nas\007'"),
    started(
        "a greeting that has nicstripe's mark",
        "echo NICSTRIPE ready to go, NICSTRIPE missing; printf 'NICSTRIPE failed '",
    ),
    started(
        "a greeting without a line break, and a nicstripe that begins no line itself",
        "printf Welcome; nicstripe ssh-server | sed -u '/^$/d'; exit",
    ),
    started(
        "60 KB of greeting",
        r"head -c 60000 /dev/zero | tr '\0' x; echo",
    ),
    fails(
        "a line of 300 KB",
        r"head -c 300000 /dev/zero | tr '\0' x; echo",
        "me@nas answers ssh, but not as nicstripe does…it printed: xxx",
        10,
    ),
    fails(
        "text without an end",
        "yes",
        "me@nas answers ssh, but not as nicstripe does…it printed: y",
        10,
    ),
    fails(
        "text without an end, slowly",
        "while :; do echo tick; sleep 0.2; done",
        "no answer within 2 s: waited for ssh to log in to me@nas and start nicstripe…it printed: tick",
        30,
    ),
    fails(
        "an account without a shell",
        "echo 'This account is currently not available.'; exit 1",
        "ssh to me@nas ended with 1 before nicstripe answered…it printed: This account is currently not available.",
        10,
    ),
    fails(
        "an account for sftp",
        "echo 'This service allows sftp connections only.'; exit 1",
        "ssh to me@nas ended with 1 before nicstripe answered…it printed: This service allows sftp connections only.",
        10,
    ),
    fails(
        "ssh that cannot log in",
        "exit 255",
        "ssh cannot log in to me@nas",
        10,
    ),
    fails(
        "ssh that is killed",
        "kill -9 $$",
        "ssh to me@nas was ended by a signal",
        10,
    ),
    fails(
        "silence",
        "exec sleep 60",
        "no answer within 2 s: waited for ssh to log in to me@nas and start nicstripe",
        30,
    ),
    fails(
        "silence, and a closed output",
        "exec sleep 60 >&-",
        "me@nas answers ssh, but not as nicstripe does",
        10,
    ),
    fails(
        "a question of the login script",
        "printf 'Press Enter: '; exec sleep 60",
        "no answer within 2 s: waited for ssh to log in to me@nas and start nicstripe…it printed: Press Enter:",
        30,
    ),
    fails(
        "`ready` and no more",
        "echo NICSTRIPE ready; exec sleep 60",
        "no answer within 2 s: waited for the answer of nicstripe on me@nas, which has started",
        30,
    ),
    fails(
        "`ready` and an end",
        "echo NICSTRIPE ready; exit 3",
        "ssh to me@nas ended with 3 before nicstripe answered",
        10,
    ),
    fails(
        "`ready` and a malformed answer",
        "echo NICSTRIPE ready; read -r line; echo NICSTRIPE reply AAAA; exec sleep 60",
        "the answer of me@nas is malformed",
        12,
    ),
    Row {
        has_program: true,
        ..fails(
            "a nicstripe that refuses",
            "exec nicstripe ssh-server --read-only",
            "error: nicstripe on me@nas cannot serve: --read-only and --append-only need --root DIR",
            5,
        )
    },
    fails(
        "no nicstripe",
        "",
        "error: nicstripe is not installed on me@nas…--install",
        10,
    ),
    fails(
        "no nicstripe, and no `uname`",
        NO_UNAME,
        "error: nicstripe is not installed on me@nas…me@nas does not tell its system (uname -sm), this program is for",
        10,
    ),
    fails(
        "an old nicstripe",
        "echo NICSTRIPE old Linux-x86_64 nicstripe 0.0.9; exec cat",
        "error: nicstripe 0.0.9 on me@nas is too old for ssh",
        12,
    ),
    installs(
        "`--install`: another processor",
        "echo NICSTRIPE missing Linux-vax; exec cat > /dev/null",
        "cannot install nicstripe on me@nas: it is Linux-vax, this program is for",
        11,
    ),
    installs(
        "`--install`: no `uname`",
        NO_UNAME,
        "cannot install nicstripe on me@nas: it does not tell its system (uname -sm), this program is for",
        11,
    ),
    installs(
        "`--install`: a home that cannot be written",
        ": > .local",
        "cannot install nicstripe on me@nas: mkdir: …: Not a directory",
        11,
    ),
    installs(
        "`--install`: a full disk",
        "mkdir -p .local/bin; ln -s /dev/full .local/bin/.nicstripe.$$",
        "cannot install nicstripe on me@nas: head: …: No space left on device",
        11,
    ),
    installs(
        "`--install`: a home that starts no programs",
        r"mkdir -p .local/bin; printf '#!/bin/sh\n' > .local/bin/chmod; chmod 755 .local/bin/chmod",
        "cannot install nicstripe on me@nas: …: Permission denied",
        11,
    ),
    installs(
        "`--install`: the program is sent, and no word",
        "echo NICSTRIPE missing $(uname -sm | tr ' ' -); cat > /dev/null; exec sleep 60",
        "no answer within 2 s: waited for me@nas to install the program and start it",
        30,
    ),
];

impl Row {
    /// Returns the row of the table in the manual.
    fn written(&self) -> String {
        let within = match self.code {
            30 => "`--timeout`",
            // Until ssh ends; at most 2 s.
            _ if self.before.contains(">&-") => "3 s",
            _ => "1 s",
        };
        format!(
            "| {} | `{}` | {within} | {} |",
            self.kind,
            self.seen.replace("2 s", "TIME"),
            self.code
        )
    }

    fn check(&self) {
        let program = fs::canonicalize(env!("CARGO_BIN_EXE_nicstripe")).unwrap();
        let programs = match self.has_program {
            true => program.parent().unwrap().to_str().unwrap(),
            false => "/nowhere",
        };
        let machines = Machines::with(self.before, programs);
        machines.here.write("a", "a");
        let mut words = vec!["cp", "a", "me@nas:", "--timeout"];
        words.push(if self.code == 30 { "2s" } else { "60s" });
        words.extend(self.installs.then_some("--install"));
        let begun = Instant::now();
        let ended = machines.run(&words);
        let took = begun.elapsed();
        let kind = self.kind;
        assert_eq!(ended.status.code(), Some(self.code), "{kind}: {ended}");
        for part in self.seen.split('…') {
            assert!(ended.stderr.contains(part), "{kind}, {part}: {ended}");
        }
        assert!(ended.stderr.len() < 2000, "{kind}: {ended}");
        let longest = ended.stderr.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(500), "{kind}: {ended}");
        assert!(took < Duration::from_secs(20), "{kind}: {took:?}");
        machines.expect_nothing_left(Duration::from_secs(5));
    }
}

#[test]
fn each_kind_of_start_ends_and_says_why() {
    let rows = Mutex::new(ROWS.iter());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let row = rows.lock().unwrap().next();
                    let Some(row) = row else { break };
                    row.check();
                }
            });
        }
    });
}

#[test]
fn the_manual_has_each_kind_of_start() {
    let manual = fs::read_to_string("docs/MANUAL.md").unwrap();
    let written: Vec<String> = ROWS.iter().map(Row::written).collect();
    assert!(
        manual.contains(&written.join("\n")),
        "expected in docs/MANUAL.md:\n{}",
        written.join("\n")
    );
}

#[test]
fn a_long_wait_says_what_is_awaited() {
    let machines = Machines::with("exec sleep 60", "/nowhere");
    machines.here.write("a", "a");
    let ended = machines.run(&["cp", "a", "me@nas:", "--timeout", "11s"]);
    let ended = ended.expect(30);
    let said = "\nwaiting for ssh to log in to me@nas and start nicstripe\n";
    assert!(format!("\n{}", ended.stderr).contains(said), "{ended}");
}
