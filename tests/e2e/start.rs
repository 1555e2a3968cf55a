//! Tests of the state in which a command is started: limits, environment, ignored signals and
//! closed standard streams.

use std::process::Command;

use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, content,
    pair::{LOOPBACK, MIB, Pair},
    program, under_the_filters_of_the_unit,
};
use rustix::process::Signal;

/// Runs a shell script in which `$nicstripe` is the program, on a side.
fn shell(side: &Side, script: &str) -> Command {
    let mut command = side.command("/bin/sh");
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("nicstripe", program())
        .args(["-c", script]);
    command
}

fn run(pair: &Pair, script: &str) -> Outcome {
    Process::spawn(pair.shell(script)).finish()
}

/// Creates a pair whose daemon was started by a shell script that ends in `exec`.
fn pair_started_by(script: &str) -> Pair {
    let script = format!("{script} $nicstripe serve --port 0 {}", LOOPBACK.join(" "));
    Pair::with("", |server| {
        Daemon::listening(Process::spawn(shell(server, &script)))
    })
}

/// `nohup cargo test`, and `cargo test &` in a script.
#[test]
fn the_tests_do_not_depend_on_the_signals_that_their_starter_ignores() {
    let mut command = Command::new("/bin/sh");
    let script = "trap '' INT QUIT HUP; exec \"$0\" \"$@\"";
    command
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "exec::all_that_a_command_has_started_ends_with_its_session_and_may_clean_up",
        ])
        .arg("start::a_signal_that_was_ignored_at_the_start_stays_ignored");
    let outcome = Process::spawn(command).finish().expect(0);
    assert!(outcome.stdout.contains("passed; 0 failed"), "{outcome}");
}

#[test]
fn a_file_above_the_daemons_limit_fails_alone() {
    // Blocks of 512 bytes: 4 MiB.
    let pair = pair_started_by("ulimit -f 8192; exec");
    pair.client.write("large", content(8 * MIB));
    pair.client.make_dir("src");
    pair.client.write("src/large", content(8 * MIB));
    pair.client.write("src/small", "bytes");
    pair.cp(&["large", "127.0.0.1:"])
        .expect(11)
        .error(&["\"large\"", "File too large"]);
    Process::spawn_fed(pair.cp_command(&["-", "127.0.0.1:pipe"]), content(8 * MIB))
        .finish()
        .expect(11)
        .error(&["File too large"]);
    pair.cp(&["-r", "src", "127.0.0.1:"]).expect(23);
    assert_eq!(pair.server.read("src/small"), b"bytes");
    assert!(!pair.server.has("src/large") && !pair.server.has("large"));
    assert!(!pair.daemon.process.has_ended());
}

#[test]
fn a_file_above_the_clients_limit_fails_with_the_limit_in_the_hint() {
    let pair = Pair::new();
    pair.server.write("large", content(8 * MIB));
    for target in [".", "-f .", "- >piped"] {
        run(
            &pair,
            &format!("ulimit -f 8192; $cp 127.0.0.1:large {target}"),
        )
        .expect(11)
        .error(&["File too large"])
        .hint(&["ulimit -f"]);
    }
    assert!(!pair.client.has("large"));
}

#[test]
fn too_few_open_files_are_an_error_that_says_how_to_get_more() {
    let pair = Pair::new();
    pair.client.write("file", "bytes");
    let cp = run(&pair, "ulimit -n 8; $cp file 127.0.0.1:");
    cp.expect(1)
        .error(&["a limit of 8 open files"])
        .hint(&["ulimit -n "]);
    let serve = "ulimit -n 8; exec $nicstripe serve --port 0 --interface lo";
    Process::spawn(shell(&pair.server, serve))
        .finish()
        .expect(1)
        .error(&["a limit of 8 open files"])
        .hint(&["LimitNOFILE="]);
    // The soft limit is raised.
    run(&pair, "ulimit -S -n 8; $cp file 127.0.0.1:").expect(0);
}

#[test]
fn the_environment_of_other_programs_starts_no_other_threads() {
    let pair = Pair::new();
    for value in ["0", "many", "$(printf '\\377')"] {
        let script = format!("export TOKIO_WORKER_THREADS={value}; $cp -f 127.0.0.1:file - ");
        pair.server.write("file", "bytes");
        let outcome = run(&pair, &script).expect(0);
        assert_eq!(outcome.stdout, "bytes");
    }
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let pair = Pair::new();
    for (name, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT)] {
        let mut command = pair.shell(&format!(
            "trap '' {name}; exec $cp --json-stream - 127.0.0.1:{name}"
        ));
        command.env("LANG", "C");
        let (cp, stdin) = Process::spawn_open(command);
        {
            use std::io::Write as _;
            let mut stdin = stdin;
            stdin.write_all(&content(2 * MIB)).unwrap();
            cp.await_bytes(1);
            cp.signal(signal);
            // The handlers are installed before the first byte, and signals are delivered in order.
            cp.signal(Signal::USR1);
            cp.await_stderr("B/s");
        }
        cp.finish().expect(0);
        assert_eq!(pair.server.read(name).len(), 2 * MIB, "{name}");
    }
}

#[test]
fn a_daemon_reloads_at_a_signal_that_was_ignored_at_the_start() {
    let pair = pair_started_by("trap '' HUP INT; exec");
    pair.daemon.process.signal(Signal::INT);
    pair.daemon.process.signal(Signal::HUP);
    pair.daemon.process.await_stderr("configuration reloaded");
    pair.client.write("file", "bytes");
    pair.cp(&["file", "127.0.0.1:"]).expect(0);
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let pair = Pair::new();
    pair.client.make_dir("src");
    pair.client.write("src/file", "bytes");
    let commands = [
        "$cp -rn src 127.0.0.1:",
        "$cp --json -r src 127.0.0.1:json",
        "$cp --json-stream -r src 127.0.0.1:stream",
        "$cp -h",
        "$nicstripe --help",
        "$nicstripe --version",
        "$nicstripe cp --help",
        "$nicstripe key",
        "$nicstripe trust list",
        "$nicstripe links",
        "$nicstripe serve --check-config",
        "$nicstripe completions bash",
        "$nicstripe man",
    ];
    for command in commands {
        for (stream, why) in [
            (">/dev/full", "No space left on device"),
            (">&-", "Bad file descriptor"),
        ] {
            let script = format!("nicstripe={}; {command} {stream}", program());
            run(&pair, &script)
                .expect(11)
                .error(&["cannot write to standard output", why]);
        }
        // Opened for both directions, as Python's subprocess.DEVNULL is.
        let script = format!("nicstripe={}; {command} 1<>/dev/null", program());
        run(&pair, &script).expect(0);
    }
    assert_eq!(pair.server.read("json/file"), b"bytes");
}

#[test]
fn a_closed_stream_is_not_copied() {
    let pair = Pair::new();
    pair.server.write("file", "bytes");
    for (command, name) in [
        ("$cp 127.0.0.1:file - >&-", "standard output"),
        ("$cp - 127.0.0.1:new <&-", "standard input"),
        ("$cp --files-from - . 127.0.0.1: <&-", "standard input"),
        (
            "$nicstripe dial 127.0.0.1 localhost:22 <&-",
            "standard input",
        ),
        (
            "$nicstripe dial 127.0.0.1 localhost:22 >&-",
            "standard output",
        ),
        (
            "$nicstripe serve restic --stdio 127.0.0.1:r <&-",
            "standard input",
        ),
        (
            "$nicstripe serve restic --stdio 127.0.0.1:r >&-",
            "standard output",
        ),
    ] {
        run(&pair, &format!("nicstripe={}; {command}", program()))
            .expect(2)
            .error(&[name, "closed"]);
    }
    assert_eq!(pair.server.names(), ["file"]);
    // /dev/null is open.
    run(&pair, "$cp 127.0.0.1:file - 1<>/dev/null").expect(0);
    run(&pair, "$cp - 127.0.0.1:new 0<>/dev/null").expect(0);
    assert_eq!(pair.server.read("new"), b"");
}

#[test]
fn under_the_filters_of_the_systemd_unit_every_kind_of_copy_works() {
    under_the_filters_of_the_unit(|| {
        let pair = Pair::new();
        let bytes = content(5 * MIB + 1);
        pair.client.write("file", &bytes);
        pair.cp(&["file", "127.0.0.1:put"]).expect(0);
        pair.cp(&["127.0.0.1:put", "got"]).expect(0);
        assert_eq!(pair.client.read("got"), bytes);
        let tree = pair.client.path("tree/sub");
        std::fs::create_dir_all(&tree).unwrap();
        for (name, bytes) in [("large", &bytes[..]), ("small", b"x"), ("empty", b"")] {
            std::fs::write(tree.join(name), bytes).unwrap();
        }
        std::os::unix::fs::symlink("sub/small", pair.client.path("tree/link")).unwrap();
        pair.cp(&["-aH", "tree", "127.0.0.1:"]).expect(0);
        std::fs::write(pair.server.path("tree/surplus"), "").unwrap();
        pair.cp(&["-aH", "--delete", "tree", "127.0.0.1:"])
            .expect(0);
        assert!(!pair.server.path("tree/surplus").exists());
        pair.cp(&["-aH", "127.0.0.1:tree", "back"]).expect(0);
        assert_eq!(pair.client.read("back/sub/large"), bytes);
        assert_eq!(pair.client.read("back/link"), b"x");
    });
}
