//! Tests of `exec`: commands at the peer, their streams and exit codes.

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Outcome, Process, Side, content, is_same, pair::MIB};
use rustix::process::{Pid, Signal, kill_process};

/// Client and daemon on loopback. The client's line has these options.
struct Stage {
    client: Side,
    server: Side,
    daemon: Daemon,
}

impl Stage {
    fn new(options: &str) -> Self {
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
        let port = self.daemon.port.to_string();
        let options = [
            "exec",
            "-P",
            &port,
            "--link",
            "127.0.0.1=127.0.0.1",
            "127.0.0.1",
        ];
        let words = options.iter().chain(words);
        words.map(|word| (*word).to_owned()).collect()
    }

    /// Runs a command with this input. Returns the outcome and the bytes of the output.
    fn exec(&self, words: &[&str], input: Vec<u8>) -> (Outcome, Vec<u8>) {
        let mut command = self.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.args(self.arguments(words));
        Process::spawn_fed(command, input).finish_raw()
    }

    /// Starts a command that writes its process number and then waits. Returns the client and the
    /// number.
    fn start_waiting(&self) -> (Child, Pid) {
        let mut command = self.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command
            .args(self.arguments(&["--", "sh", "-c", "echo $$; exec sleep 1000"]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        let mut number = Vec::new();
        let mut output = client.stdout.take().unwrap();
        while number.last() != Some(&b'\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            number.extend(byte);
        }
        let number = String::from_utf8(number).unwrap().trim().parse().unwrap();
        (client, Pid::from_raw(number).unwrap())
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

#[test]
fn a_command_has_a_small_environment_and_the_directory_of_the_line() {
    let stage = Stage::new("exec=env,exec=pwd");
    let (outcome, output) = stage.exec(&["env"], Vec::new());
    outcome.expect(0);
    let text = String::from_utf8(output).unwrap();
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["HOME", "LOGNAME", "NICSTRIPE_PEER", "PATH", "SHELL", "USER"]
    );
    assert!(text.contains("NICSTRIPE_PEER=laptop\n"), "{text}");
    let (outcome, output) = stage.exec(&["pwd"], Vec::new());
    outcome.expect(0);
    let directory = String::from_utf8(output).unwrap();
    let root = stage.server.path(".").canonicalize().unwrap();
    assert_eq!(Path::new(directory.trim()).canonicalize().unwrap(), root);
}

#[test]
fn a_line_that_permits_one_command_starts_no_other() {
    let stage = Stage::new(r#"exec="cat -u",exec="tail -n *""#);
    fs::write(stage.server.path("cat"), "#!/bin/sh\necho fooled\n").unwrap();
    for words in [
        &["--", "cat"][..],
        &["--", "cat", "-u", "x"],
        &["--", "cat", "-u", ""],
        &["--", "cat", "-u\n"],
        &["--", "cat ", "-u"],
        &["--", "./cat", "-u"],
        &["--", "/bin/cat", "-u"],
        &["--", "CAT", "-u"],
        &["--", "cat -u"],
        &["--", "tail"],
        &["--", "tail", "-c", "1"],
        &["--", "tail", "-n1"],
        &["--", "sh", "-c", "cat -u"],
        &["cat -u; id"],
        &["cat", "-u", "&&", "id"],
        &["cat", "$(id)"],
        &["PATH=.", "cat", "-u"],
        &["env", "cat", "-u"],
    ] {
        let (outcome, output) = stage.exec(words, b"x".to_vec());
        let outcome = outcome.expect(5);
        assert!(output.is_empty(), "{words:?}");
        assert!(
            outcome.stderr.contains("exec="),
            "{words:?}: {}",
            outcome.stderr
        );
    }
    let (outcome, output) = stage.exec(&["cat", "-u"], b"x".to_vec());
    outcome.expect(0);
    assert_eq!(output, b"x");
}

#[test]
fn a_command_ends_with_its_client_and_with_its_daemon() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let stage = Stage::new(r#"exec="sh -c *""#);
        let (mut client, command) = stage.start_waiting();
        assert!(is_alive(command));
        kill_process(Pid::from_child(&client), signal).unwrap();
        assert_ne!(client.wait().unwrap().code(), Some(0));
        ends(command);
    }
    let stage = Stage::new(r#"exec="sh -c *""#);
    let (mut client, command) = stage.start_waiting();
    stage.daemon.process.kill();
    ends(command);
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn a_session_that_is_lost_is_told_from_a_command_that_ended() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    let (mut client, command) = stage.start_waiting();
    stage.daemon.process.signal(Signal::TERM);
    assert_eq!(client.wait().unwrap().code(), Some(12));
    ends(command);
}

#[test]
fn a_command_that_is_killed_is_told_by_its_exit_code() {
    let stage = Stage::new(r#"exec="sh -c *""#);
    let (mut client, command) = stage.start_waiting();
    kill_process(command, Signal::KILL).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(137));
}
