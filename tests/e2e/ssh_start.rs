//! Start of nicstripe through ssh: kinds of noise, refusal and silence of the other side, and what the
//! user sees of them, which is the table in `docs/MANUAL.md`, section 2.13.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::ssh::Machines;

/// Makes `uname` fail. The directory is the first of the client's search path there.
const NO_UNAME: &str = r"mkdir -p .local/bin; printf '#!/bin/sh\nexit 1\n' > .local/bin/uname; chmod 755 .local/bin/uname";

/// Kinds of start, as the manual names them, and the commands of the login shell there before that of
/// the client.
const KINDS: [(&str, &str); 29] = [
    ("a greeting", "echo Welcome"),
    ("a greeting without a line break", "printf 'Welcome to nas'"),
    ("a title for the terminal", r"printf '\033]0;nas\007'"),
    (
        "a greeting that has nicstripe's mark",
        "echo NICSTRIPE ready to go, NICSTRIPE missing; printf 'NICSTRIPE failed '",
    ),
    (
        "a greeting without a line break, and a nicstripe that begins no line itself",
        "printf Welcome; nicstripe ssh-server | sed -u '/^$/d'; exit",
    ),
    (
        "60 KB of greeting",
        r"head -c 60000 /dev/zero | tr '\0' x; echo",
    ),
    (
        "a line of 300 KB",
        r"head -c 300000 /dev/zero | tr '\0' x; echo",
    ),
    ("text without an end", "yes"),
    (
        "text without an end, slowly",
        "while :; do echo tick; sleep 0.2; done",
    ),
    (
        "an account without a shell",
        "echo 'This account is currently not available.'; exit 1",
    ),
    (
        "an account for sftp",
        "echo 'This service allows sftp connections only.'; exit 1",
    ),
    ("ssh that cannot log in", "exit 255"),
    ("ssh that is killed", "kill -9 $$"),
    ("silence", "exec sleep 60"),
    ("silence, and a closed output", "exec sleep 60 >&-"),
    (
        "a question of the login script",
        "printf 'Press Enter: '; exec sleep 60",
    ),
    ("`ready` and no more", "echo NICSTRIPE ready; exec sleep 60"),
    ("`ready` and an end", "echo NICSTRIPE ready; exit 3"),
    (
        "`ready` and a malformed answer",
        "echo NICSTRIPE ready; read -r line; echo NICSTRIPE reply AAAA; exec sleep 60",
    ),
    (
        "a nicstripe that refuses",
        "exec nicstripe ssh-server --read-only",
    ),
    ("no nicstripe", ""),
    ("no nicstripe, and no `uname`", NO_UNAME),
    (
        "an old nicstripe",
        "echo NICSTRIPE old Linux-x86_64 nicstripe 0.0.9; exec cat",
    ),
    (
        "`--install`: another processor",
        "echo NICSTRIPE missing Linux-vax; exec cat > /dev/null",
    ),
    ("`--install`: no `uname`", NO_UNAME),
    ("`--install`: a home that cannot be written", ": > .local"),
    (
        "`--install`: a full disk",
        "mkdir -p .local/bin; ln -s /dev/full .local/bin/.nicstripe.$$",
    ),
    (
        "`--install`: a home that starts no programs",
        r"mkdir -p .local/bin; printf '#!/bin/sh\n' > .local/bin/chmod; chmod 755 .local/bin/chmod",
    ),
    (
        "`--install`: the program is sent, and no word",
        "echo NICSTRIPE missing $(uname -sm | tr ' ' -); cat > /dev/null; exec sleep 60",
    ),
];

/// Row of the manual's table: a kind of start, and what follows.
struct Row {
    kind: &'static str,
    before: &'static str,
    /// Parts of standard error, divided by `…`.
    seen: String,
    within: &'static str,
    code: i32,
}

impl Row {
    /// Reads the rows of the manual, which are those of [`KINDS`] in their order.
    fn all() -> Vec<Self> {
        let manual = include_str!("../../docs/MANUAL.md");
        let (_, table) = manual.split_once("\n| the other side has | seen ").unwrap();
        let lines = table.lines().skip(2);
        let lines = lines.take_while(|line| line.starts_with("| "));
        let lines: Vec<&'static str> = lines.collect();
        assert_eq!(lines.len(), KINDS.len());
        let row = |(line, (kind, before)): (&'static str, (&'static str, &'static str))| {
            let cells: Vec<&'static str> = line.split(" | ").collect();
            assert_eq!((cells[0].trim_start_matches("| "), cells.len()), (kind, 4));
            Self {
                kind,
                before,
                seen: cells[1].trim_matches('`').replace("TIME", "2 s"),
                within: cells[2],
                code: cells[3].trim_end_matches(" |").parse().unwrap(),
            }
        };
        lines.into_iter().zip(KINDS).map(row).collect()
    }

    fn check(&self) {
        let has_program = self.code == 0 || self.before.starts_with("exec nicstripe");
        let machines = match has_program {
            true => Machines::after(self.before),
            false => Machines::with(self.before, "/nowhere"),
        };
        machines.here.write("a", "a");
        let is_late = match self.within {
            "`--timeout`" => true,
            // Until ssh ends; at most 2 s.
            "1 s" | "3 s" => false,
            other => panic!("{other}"),
        };
        let mut words = vec!["cp", "a", "me@nas:", "--timeout"];
        words.push(if is_late { "2s" } else { "60s" });
        words.extend(self.kind.starts_with("`--install`").then_some("--install"));
        let begun = Instant::now();
        let ended = machines.run(&words);
        let took = begun.elapsed();
        let kind = self.kind;
        assert_eq!(ended.status.code(), Some(self.code), "{kind}: {ended}");
        assert_eq!(self.code == 30, is_late, "{kind}");
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
fn each_kind_of_start_ends_as_the_manual_says() {
    let all = Row::all();
    let rows = Mutex::new(all.iter());
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
fn a_long_wait_says_what_is_awaited() {
    let machines = Machines::with("exec sleep 60", "/nowhere");
    machines.here.write("a", "a");
    let ended = machines.run(&["cp", "a", "me@nas:", "--timeout", "11s"]);
    let ended = ended.expect(30);
    let said = "\nwaiting for ssh to log in to me@nas and start nicstripe\n";
    assert!(format!("\n{}", ended.stderr).contains(said), "{ended}");
}
