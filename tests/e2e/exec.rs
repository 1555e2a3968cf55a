//! Tests of `exec`: commands at the peer, their streams and exit codes.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Outcome, Process, Side, content, is_same, pair::MIB};
use rustix::process::{Pid, Signal, kill_process};

/// Client and daemon on loopback. The client's line has these options.
pub(crate) struct Stage {
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) daemon: Daemon,
}

impl Stage {
    pub(crate) fn new(options: &str) -> Self {
        let (client, server) = (Side::here(), Side::here());
        client.trust(&server, "server", "");
        server.trust(&client, "laptop", options);
        let daemon = Daemon::start(&server, &["--interface", "lo"]);
        Self {
            client,
            server,
            daemon,
        }
    }

    fn arguments(&self, words: &[&str]) -> Vec<String> {
        self.to_peer(&[&["exec"], words].concat())
    }

    /// Returns a command line to the daemon, whose first word is a command of nicstripe.
    pub(crate) fn to_peer(&self, words: &[&str]) -> Vec<String> {
        self.connected(&[&words[..1], &["127.0.0.1"], &words[1..]].concat())
    }

    /// Returns a command line whose first word is a command of nicstripe, with the options that
    /// reach the daemon.
    fn connected(&self, words: &[&str]) -> Vec<String> {
        let port = self.daemon.port.to_string();
        let options = ["-P", &port, "--link", "127.0.0.1=127.0.0.1"];
        let words = words[..1].iter().chain(&options).chain(&words[1..]);
        words.map(|word| (*word).to_owned()).collect()
    }

    /// Creates a program in the directory that the daemon serves, which leaves a mark if it runs.
    fn plant(&self, name: &str) {
        self.server.write(name, RUN);
        fs::set_permissions(self.server.path(name), Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command with this input. Returns the outcome and the bytes of the output.
    fn exec(&self, words: &[&str], input: Vec<u8>) -> (Outcome, Vec<u8>) {
        let mut command = self.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.args(self.arguments(words));
        Process::spawn_fed(command, input).finish_raw()
    }

    /// Returns the command that would permit this one, from the hint of its refusal.
    #[track_caller]
    fn hint_of(&self, words: &[&str]) -> String {
        let outcome = self.exec(words, Vec::new()).0.expect(5);
        let hint = outcome.labelled("hint: ", &["to allow it, on 127.0.0.1"]);
        let (_, command) = hint.split_once("user: ").unwrap();
        command.split_once("; ").unwrap().0.to_owned()
    }
}

fn is_alive(process: Pid) -> bool {
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = fs::read_to_string(stat).unwrap_or_default();
    // A zombie is no longer alive.
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[track_caller]
fn ends(process: Pid) {
    let since = Instant::now();
    while is_alive(process) {
        assert!(since.elapsed() < LONG, "it goes on");
        thread::sleep(Duration::from_millis(50));
    }
}

const LONG: Duration = Duration::from_secs(30);

/// Program that leaves a mark in its working directory.
const RUN: &str = "#!/bin/sh\ntouch ran\n";

#[test]
fn the_exit_code_is_that_of_the_command() {
    let stage = Stage::new(r#"exec="sh -c *",exec=true,exec=no-such-program,exec=/etc/passwd"#);
    for (words, code) in [
        (&["true"][..], 0),
        (&["--", "sh", "-c", "exit 1"], 1),
        (&["--", "sh", "-c", "exit 7"], 7),
        (&["--", "sh", "-c", "exit 255"], 255),
        (&["sh -c 'exit 9'"], 9),
        (&["sh", "-c", "'exit 9'"], 9),
        (&["--", "sh", "-c", "kill -9 $$"], 137),
        (&["--", "sh", "-c", "kill -15 $$"], 143),
        (&["no-such-program"], 127),
        (&["/etc/passwd"], 126),
        (&["id"], 5),
        (&["--", "sh", "-c"], 2),
        (&["sh -c 'open"], 2),
    ] {
        let (outcome, _) = stage.exec(words, Vec::new());
        outcome.expect(code);
    }
}

#[test]
fn the_command_in_the_hint_of_a_refused_one_permits_it() {
    let stage = Stage::new("exec=true");
    for words in [&["--", "echo", "it's", "$HOME"][..], &["pwd"]] {
        crate::trust::run_hinted(&stage.server, &stage.hint_of(words));
        let (outcome, _) = stage.exec(words, Vec::new());
        outcome.expect(0);
    }
}

#[test]
fn the_options_that_programs_give_to_ssh_are_taken() {
    let stage = Stage::new("exec=true");
    let port = stage.daemon.port.to_string();
    let flags = [
        "exec",
        "-xaTqv",
        "-C",
        "-oForwardAgent=no",
        "-o",
        "ForwardX11 no",
    ];
    for (words, code) in [
        ("-- 127.0.0.1 true", 0),
        ("-s -- 127.0.0.1 sftp", 5),
        ("-s 127.0.0.1 shell", 2),
        ("-s 127.0.0.1 sftp x", 2),
        // git asks so if a program is ssh.
        ("-G 127.0.0.1", 0),
        (
            "-12kntTq -i key -Fnone -c aes -m x -S none -e~ 127.0.0.1 true",
            0,
        ),
        // unison, sshfs and lftp give options behind the host.
        ("127.0.0.1 -e none true", 0),
        // An empty word.
        ("127.0.0.1 -xtq -l  -- true", 2),
        ("127.0.0.1 -s sftp", 5),
        ("127.0.0.1 -p", 2),
        ("127.0.0.1 -p x true", 2),
    ] {
        let words: Vec<&str> = flags.iter().copied().chain(words.split(' ')).collect();
        let arguments = stage.connected(&words);
        let outcome = stage.client.run(arguments).expect(code);
        assert_eq!(
            outcome.stderr.contains("--exec sftp-server"),
            code == 5,
            "{outcome}"
        );
    }
    let asked = stage.client.run(["exec", "-G", "-p", &port, "nas"]);
    assert_eq!(asked.expect(0).stdout, format!("host nas\nport {port}\n"));
    let link = "127.0.0.1=127.0.0.1";
    let words = ["exec", "-p", &port, "--link", link, "127.0.0.1", "true"];
    stage.client.run(words).expect(0);
}

#[test]
fn words_of_any_bytes_are_passed_with_and_without_two_hyphens() {
    let stage = Stage::new(r#"exec="printf %s *""#);
    let name = OsStr::from_bytes(b"/srv/x-\xff \xc3\xa4");
    let quoted = OsStr::from_bytes(b"'/srv/x-\xff \xc3\xa4'");
    for words in [
        ["--", "printf", "%s"].map(OsStr::new).to_vec(),
        ["printf", "%s"].map(OsStr::new).to_vec(),
    ] {
        let word = if words.len() == 3 { name } else { quoted };
        let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.args(stage.arguments(&[])).args(&words).arg(word);
        let (outcome, output) = Process::spawn_fed(command, Vec::new()).finish_raw();
        outcome.expect(0);
        assert_eq!(output, name.as_bytes(), "{words:?}");
    }
}

#[test]
fn a_command_line_in_one_word_is_told_how_to_be_split() {
    for (rights, code) in [("exec=true", 5), ("exec=*", 127)] {
        let stage = Stage::new(rights);
        let (outcome, _) = stage.exec(&["--", "sh -c true"], Vec::new());
        outcome.expect(code).hint(&["leave out --"]);
    }
}

#[test]
fn a_quiet_one_that_is_told_to_end_says_nothing() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    for (option, lines) in [("-q", 0), ("-x", 1)] {
        let words = stage.arguments(&["--", "sh", "-c", "echo up; exec sleep 1000"]);
        let words = [&words[..1], &[option.to_owned()], &words[1..]].concat();
        let process = stage.client.start(words);
        process.await_stdout("up");
        process.signal(Signal::TERM);
        let outcome = process.finish().expect(143);
        assert_eq!(outcome.stderr.lines().count(), lines, "{outcome}");
    }
}

#[test]
fn what_goes_through_a_command_is_complete() {
    let stage = Stage::new(r#"exec=cat,exec="sh -c *""#);
    for len in [0, 1, 20 * MIB + 7] {
        let input = content(len);
        let (outcome, output) = stage.exec(&["cat"], input.clone());
        outcome.expect(0);
        assert!(is_same(&output, &input), "{len}");
    }
    // The command ends its output and reads on.
    let late = "exec >&-; cat >late; echo done >&2";
    let (outcome, output) = stage.exec(&["--", "sh", "-c", late], content(MIB));
    let outcome = outcome.expect(0);
    assert!(
        output.is_empty() && outcome.stderr.contains("done"),
        "{}",
        outcome.stderr
    );
    let root = stage.server.path("late");
    assert!(is_same(&fs::read(root).unwrap(), &content(MIB)));
    // It reads nothing of much input.
    stage
        .exec(&["--", "sh", "-c", "exit 3"], content(64 * MIB))
        .0
        .expect(3);
}

/// One rule for all commands: MANUAL section 7.
#[test]
fn a_reader_that_has_gone_is_no_failure_and_another_error_names_the_stream() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    let words = stage.arguments(&["--", "sh", "-c"]);
    for (redirection, script, error) in [
        ("| head -c 1 >&2", "seq 1000000", None),
        ("2>&1 >/dev/null | head -c 1 >&2", "seq 1000000 >&2", None),
        (
            ">/dev/full",
            "seq 1000000",
            Some("cannot write standard output: No space"),
        ),
    ] {
        let mut command = stage.client.command("/bin/sh");
        let line = format!("{{ {{ \"$0\" \"$@\"; echo \"exit $?\" >&3; }} {redirection}; }} 3>&2");
        command
            .args(["-c", &line, env!("CARGO_BIN_EXE_nicstripe")])
            .args(&words)
            .arg(script)
            .env("PATH", std::env::var_os("PATH").unwrap());
        let outcome = Process::spawn(command).finish();
        let code = if error.is_some() { "exit 11" } else { "exit 0" };
        assert!(outcome.stderr.contains(code), "{redirection}: {outcome}");
        let said = error.map(|text| outcome.stderr.contains(text));
        assert!(
            said.unwrap_or(!outcome.stderr.contains("error:")),
            "{outcome}"
        );
    }
}

#[test]
fn a_command_has_a_small_environment_of_its_own_and_the_directory_of_the_line() {
    let stage = Stage::new("exec=env,exec=pwd");
    let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(stage.arguments(&["env"]));
    for name in
        "PATH NICSTRIPE_PEER LD_PRELOAD LD_LIBRARY_PATH IFS ENV BASH_ENV SHELLOPTS TMPDIR OTHER"
            .split(' ')
    {
        command.env(name, "/evil");
    }
    let (outcome, output) = Process::spawn_fed(command, Vec::new()).finish_raw();
    outcome.expect(0);
    let text = String::from_utf8(output).unwrap();
    let names = text.lines().filter_map(|line| line.split_once('='));
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["HOME", "LOGNAME", "NICSTRIPE_PEER", "PATH", "SHELL", "USER"]
    );
    assert!(!text.contains("evil"), "{text}");
    assert!(text.contains("NICSTRIPE_PEER=laptop\n") && text.contains("PATH=/usr/local/sbin:"));
    let (outcome, output) = stage.exec(&["pwd"], Vec::new());
    outcome.expect(0);
    let directory = String::from_utf8(output).unwrap();
    let root = stage.server.path(".").canonicalize().unwrap();
    assert_eq!(Path::new(directory.trim()).canonicalize().unwrap(), root);
}

#[test]
fn a_line_that_permits_one_command_starts_no_other() {
    let stage = Stage::new(r#"exec="cat -u",exec="tail -n *""#);
    for name in ["cat", "tail", "*", "c?t", "-u", "cat -u", "$0"] {
        stage.plant(name);
    }
    let attempts = attempts(&stage.server);
    let distinct: BTreeSet<_> = attempts.iter().collect();
    assert!(distinct.len() == attempts.len() && attempts.len() > 60);
    for words in &attempts {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (outcome, output) = stage.exec(&words, b"x".to_vec());
        let outcome = outcome.expect(5);
        assert!(output.is_empty() && !stage.server.has("ran"), "{outcome}");
    }
    for permitted in [&["cat", "-u"][..], &["tail", "-n", "1"]] {
        let (outcome, output) = stage.exec(permitted, b"x".to_vec());
        outcome.expect(0);
        assert_eq!(output, b"x");
    }
    assert!(!stage.server.has("ran"));
    let log = stage.daemon.process.kill().stderr;
    assert_eq!(log.matches("command begins").count(), 2, "{log}");
}

/// Returns the words after PEER of commands that `cat -u` and `tail -n *` do not permit.
fn attempts(server: &Side) -> Vec<Vec<String>> {
    let own =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let exact = |words: &&str| own(&[&["--"][..], &words.split('|').collect::<Vec<_>>()].concat());
    let planted = server.path("cat").to_str().unwrap().to_owned();
    // Together with the other words at the limit of one message, and beyond it.
    let [long, longer] = [60_000, 1 << 16].map(|len| "a".repeat(len));
    let mut many = vec!["--", "cat"];
    many.resize(4000, "-u");
    let mut more = many.clone();
    more.resize(5000, "-u");
    let built: [Vec<String>; 8] = [
        own(&["--", &planted, "-u"]),
        own(&["--", &long]),
        own(&["--", "cat", &long]),
        own(&["--", "cat", "-u", &long]),
        own(&["--", "cat", "-u", &longer]),
        own(&["--", "tail", "-n", &longer]),
        own(&many),
        own(&more),
    ];
    let typed = TYPED.iter().map(|line| own(&[*line]));
    EXACT.iter().map(exact).chain(typed).chain(built).collect()
}

/// Words that are passed as they are, divided by `|`.
const EXACT: &[&str] = &[
    // The words of a rule are compared in `trust/exec_rule.rs` of the library.
    "cat",
    "cat|-u|x",
    "cat -u",
    "",
    "cat|-u|",
    "cat|-u\ntouch ran",
    "CAT|-u",
    "\u{441}at|-u",
    // Paths, and wildcards of other files.
    "./cat|-u",
    "../files/cat|-u",
    "/bin/cat|-u",
    "/usr/bin/../bin/cat|-u",
    "cat/|-u",
    "~/cat|-u",
    "/proc/self/cwd/cat|-u",
    "*",
    "*|-u",
    "c?t|-u",
    "{cat,-u}",
    "cat|-?",
    "cat|-u|*",
    // Quotes, substitutions and operators of a shell.
    "'cat'|-u",
    "\\cat|-u",
    "cat|'-u'",
    "$0|-u",
    "cat|-u$IFS",
    "cat|-u;touch ran",
    "cat|-u|;|touch|ran",
    "cat|-u|&&|touch|ran",
    "cat|-u|>ran",
    "cat|-u|&",
    "cat|-u|#",
    "cat|-u|$(touch ran)",
    "cat|`touch ran`",
    // Programs that start others, and variables.
    "sh|-c|cat -u",
    "/bin/sh|-c|touch ran",
    "env|cat|-u",
    "env|-i|PATH=.|cat|-u",
    "exec|cat|-u",
    "command|cat|-u",
    "busybox|cat|-u",
    "exec-guard|1|touch|ran",
    "/proc/self/exe|exec-guard|1|touch|ran",
    "PATH=.|cat|-u",
    "LD_PRELOAD=./ran.so|cat|-u",
    // The words before the `*` of a rule.
    "tail",
    "tail|-n1",
    "tail|*|-n",
    "./tail|-n|1",
];

/// Command lines that are split into words.
const TYPED: &[&str] = &[
    "cat -u; touch ran",
    "cat -u && touch ran",
    "cat -u | sh",
    "cat -u\ntouch ran",
    "cat -u $(touch ran)",
    "cat ${IFS}-u",
    "cat '-u '",
    "cat -u ''",
    "'cat -u'",
    "cat\\ -u",
    "''",
    "PATH=. cat -u",
    "$SHELL -c 'touch ran'",
    "tail '-n 1'",
];

#[test]
fn a_permitted_command_is_not_taken_from_the_directory_that_its_peer_may_write_to() {
    let stage = Stage::new(r#"exec="cat -u",exec="tail -n 1""#);
    stage.client.write("cat", RUN);
    fs::set_permissions(stage.client.path("cat"), Permissions::from_mode(0o755)).unwrap();
    stage.client.make_dir("links");
    symlink(stage.server.path("cat"), stage.client.path("links/tail")).unwrap();
    for words in [&["cat", "127.0.0.1:"][..], &["-a", "links/", "127.0.0.1:"]] {
        let arguments = [&["cp"], words].concat();
        stage.client.run(stage.connected(&arguments)).expect(0);
    }
    let [program, link] = ["cat", "tail"].map(|name| stage.server.path(name));
    assert!(program.metadata().unwrap().mode() & 0o111 != 0 && link.is_symlink());
    for words in [&["cat", "-u"][..], &["tail", "-n", "1"]] {
        let (outcome, output) = stage.exec(words, b"x".to_vec());
        outcome.expect(0);
        assert_eq!(output, b"x", "{words:?}");
    }
    assert!(!stage.server.has("ran"));
}

/// What a command has started ends with it: SIGTERM first, a second later SIGKILL, in its group and
/// out of it.
#[test]
fn all_that_a_command_has_started_ends_with_its_session_and_may_clean_up() {
    // The shell reports the killed child, and the traps print: no one reads that any more.
    let script = r#"
        setsid sh -c 'echo $$ > left; exec sleep 1000' &
        setsid sh -c 'trap "" TERM; echo $$ > stubborn; while :; do sleep 1; done' &
        trap 'echo ending; echo ending >&2; sleep 0.3; echo ended; touch cleaned; exit' TERM
        echo $$ > command
        while :; do sleep 0.05; done"#;
    for ending in [
        Some(Signal::TERM),
        Some(Signal::INT),
        Some(Signal::KILL),
        None,
    ] {
        let stage = Stage::new(r#"exec="sh -c *""#);
        let root = stage.server.files();
        let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command
            .args(stage.arguments(&["--", "sh", "-c", script]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        let started = ["left", "stubborn", "command"].map(|name| {
            let since = Instant::now();
            loop {
                let text = fs::read_to_string(root.join(name)).unwrap_or_default();
                if let Ok(number) = text.trim().parse() {
                    return Pid::from_raw(number).unwrap();
                }
                assert!(since.elapsed() < LONG, "{name} does not start");
                thread::sleep(Duration::from_millis(20));
            }
        });
        match ending {
            Some(signal) => kill_process(Pid::from_child(&client), signal).unwrap(),
            None => {
                stage.daemon.process.kill();
                client.kill().unwrap();
            }
        }
        assert_ne!(client.wait().unwrap().code(), Some(0));
        started.into_iter().for_each(ends);
        assert!(root.join("cleaned").exists(), "{ending:?}");
    }
}

#[test]
fn a_command_that_signals_its_own_group_goes_on_as_it_likes() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    let script = "trap 'sleep 1.5; echo done; exit 7' TERM; kill 0; wait";
    let (outcome, bytes) = stage.exec(&["--", "sh", "-c", script], Vec::new());
    outcome.expect(7);
    assert_eq!(bytes, b"done\n");
}

#[test]
fn a_command_gets_no_descriptor_of_the_daemons_starter() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.trust(&client, "laptop", r#"exec="ls -1 /proc/self/fd""#);
    server.write("secret", "secret");
    let mut command = server.command("/bin/sh");
    let script = "exec 7<secret 9<secret && exec \"$0\" serve --port 0 --interface lo";
    command.args(["-c", script, env!("CARGO_BIN_EXE_nicstripe")]);
    let daemon = Daemon::listening(Process::spawn(command));
    let port = daemon.port.to_string();
    let words = ["exec", "-P", &port, "--link", "127.0.0.1=127.0.0.1"];
    let command = ["127.0.0.1", "--", "ls", "-1", "/proc/self/fd"];
    let listed = client.run([&words[..], &command].concat());
    // 3 is the directory that ls reads.
    assert_eq!(listed.expect(0).stdout, "0\n1\n2\n3\n");
}

/// The hint permits what was asked, and no more; for rsync, whose words differ with each copy, the
/// line of the recipe.
#[test]
fn a_hint_proposes_no_more_than_was_asked_and_a_refusal_is_one_line_of_the_log() {
    let stage = Stage::new("exec=true");
    for (words, rule) in [
        (&["--", "ls", "*"][..], "ls '*'"),
        (&["--", "*"], "'*'"),
        (
            &[
                "--",
                "rsync",
                "--server",
                "-vlogDtpre.iLsfxCIvu",
                ".",
                "/srv",
            ],
            "rsync --server *",
        ),
    ] {
        let typed = shell_words::split(&stage.hint_of(words)).unwrap();
        let at = typed.iter().position(|word| word == "--exec").unwrap();
        assert_eq!(typed[at + 1], rule, "{typed:?}");
    }
    let log = stage.daemon.process.kill().stderr;
    let told = |line: &&str| line.contains("ls '*'") || line.contains("reset by peer");
    let told: Vec<&str> = log.lines().filter(told).collect();
    assert_eq!(told.len(), 1, "{log}");
}

#[test]
fn a_session_that_is_lost_is_told_from_a_command_that_ended() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    let script = "echo pid $$; exec sleep 1000";
    let client = stage
        .client
        .start(stage.arguments(&["--", "sh", "-c", script]));
    let line = client.await_stdout("pid ");
    let command: i32 = line.trim_start_matches("pid ").trim().parse().unwrap();
    stage.daemon.process.signal(Signal::TERM);
    client.finish().expect(12);
    ends(Pid::from_raw(command).unwrap());
}
