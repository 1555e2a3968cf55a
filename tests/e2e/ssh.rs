//! Tests of peers that ssh reaches. A script stands for ssh: it runs the command at the other side,
//! as sshd would. The real one is in `tests/netns`.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nicstripe::{
    bootstrap::Called,
    trust::{PublicKey, PublicLine},
};
use nicstripe_proto::{
    bootstrap::{self, Reply},
    message::PeerInterface,
};
use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, content, number, pair::LOOPBACK, tree::walk,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::pairing::Inviter;

/// Two machines without keys or daemon, and an ssh between them.
pub(crate) struct Machines {
    pub(crate) here: Side,
    pub(crate) there: Side,
    ssh: PathBuf,
}

/// Starts the shell of the user there. `{}` stands for a command before.
const SSH: &str = r#"#!/bin/sh
# Options of ssh, then the host, then the command.
while :; do case $1 in -T) shift ;; -p | -l | -L) shift 2 ;; --) shift; break ;; *) echo "option $1" >&2; exit 255 ;; esac; done
shift
cd THERE && export HOME=THERE NICSTRIPE_HOME=KEYS PATH=PROGRAMS:/usr/bin:/bin SSH_CONNECTION='127.0.0.1 5022 127.0.0.1 22'
BEFORE
exec sh -c "$1"
"#;

impl Machines {
    pub(crate) fn new() -> Self {
        Self::after("")
    }

    /// `before` runs in the login shell before the command.
    pub(crate) fn after(before: &str) -> Self {
        let program = fs::canonicalize(env!("CARGO_BIN_EXE_nicstripe")).unwrap();
        Self::with(before, program.parent().unwrap().to_str().unwrap())
    }

    /// Like [`Self::after`]; `programs` is the PATH there.
    pub(crate) fn with(before: &str, programs: &str) -> Self {
        let (here, there) = (Side::here(), Side::here());
        let ssh = here.home().join("ssh");
        let script = SSH
            .replace("THERE", there.files().to_str().unwrap())
            .replace("KEYS", there.home().to_str().unwrap())
            .replace("PROGRAMS", programs)
            .replace("BEFORE", before);
        fs::write(&ssh, script).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        Self { here, there, ssh }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.here.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.env("NICSTRIPE_SSH", &self.ssh).args(arguments);
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        Process::spawn(self.command(arguments))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.start(arguments).finish()
    }

    /// Returns the processes that run at the other side, by the folder of their keys.
    fn left(&self) -> Vec<u32> {
        let keys = format!("NICSTRIPE_HOME={}", self.there.home().display());
        let is_there = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let mut words = environment.split(|byte| *byte == 0);
            words.any(|word| word == keys.as_bytes())
        };
        let all = fs::read_dir("/proc").unwrap();
        all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(is_there)
            .collect()
    }

    /// Asserts that the other side has no process and no file next to those named.
    pub(crate) fn expect_nothing_left(&self, within: Duration) {
        let begun = Instant::now();
        while !self.left().is_empty() {
            assert!(begun.elapsed() < within, "{:?}", self.left());
            thread::sleep(Duration::from_millis(50));
        }
        let keys = fs::read_dir(self.there.home()).unwrap();
        assert_eq!(keys.count(), 0, "keys or state at the other side");
    }
}

/// Bytes whose copy takes seconds at [`SLOW`].
const LARGE: usize = 24 << 20;
const SLOW: &str = "--bwlimit=6M";

#[test]
fn one_command_copies_there_and_back_and_leaves_nothing() {
    let machines = Machines::new();
    let bytes = content(3_000_000);
    machines.here.write("a", &bytes);
    let put = machines.run(&["cp", "a", "me@nas:"]).expect(0);
    assert!(put.stderr.contains("a → me@nas:a"), "{put}");
    machines.expect_nothing_left(Duration::from_secs(2));
    assert_eq!(machines.there.read("a"), bytes);
    machines.run(&["cp", "me@nas:a", "b"]).expect(0);
    assert_eq!(machines.here.read("b"), bytes);
    machines
        .run(&["cp", "-r", "ssh://me@nas:22/~/", "tree/"])
        .expect(0);
    assert_eq!(machines.here.read("tree/a"), bytes);
    machines
        .run(&["cp", "me@nas:*", "globbed/", "--mkpath"])
        .expect(0);
    assert_eq!(machines.here.read("globbed/a"), bytes);
    let piped = Process::spawn_fed(
        machines.command(&["cp", "-", "me@nas:piped"]),
        bytes.clone(),
    );
    piped.finish().expect(0);
    assert_eq!(machines.there.read("piped"), bytes);
    let listed = machines.run(&["ls", "me@nas", "me@nas:a"]).expect(0);
    assert_eq!(listed.stdout, "me@nas:a\n\nme@nas:\na\npiped\n", "{listed}");
    let home = machines.there.files();
    let above = format!("me@nas:{}/a", home.display());
    let listed = machines.run(&["ls", &above]).expect(0);
    assert_eq!(listed.stdout, format!("{above}\n"));
    let listed = machines.run(&["links", "me@nas"]).expect(0);
    assert!(listed.stdout.contains("lo → lo"), "{listed}");
    machines.expect_nothing_left(Duration::from_secs(2));
    assert!(
        !machines.here.home().join("identity").exists(),
        "no key is needed here"
    );
}

/// Returns the paths below a directory, in order.
fn below(folder: &Path) -> Vec<String> {
    let found = walk(folder);
    let names = found.iter().map(|path| path.strip_prefix(folder).unwrap());
    let mut names: Vec<String> = names.map(|name| name.display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn nothing_but_the_copied_file_is_left_in_either_home() {
    for (before, has_home) in [
        ("unset NICSTRIPE_HOME", true),
        ("unset NICSTRIPE_HOME; export HOME=$PWD/none", false),
    ] {
        let machines = Machines::after(before);
        machines.here.write("a", "a");
        let mine = Side::here();
        let own = mine.files();
        let home = if has_home {
            own.clone()
        } else {
            own.join("none")
        };
        let run = |words: &[&str], kept: &[&str]| {
            let mut command = machines.command(words);
            command.env_remove("NICSTRIPE_HOME").env("HOME", &home);
            let ended = Process::spawn(command).finish().expect(0);
            // The program there ends after its client.
            let begun = Instant::now();
            while below(&machines.there.files()) != kept {
                let late = begun.elapsed() > Duration::from_secs(5);
                let there = below(&machines.there.files());
                assert!(!late, "{words:?}: {there:?}: {ended}");
                thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(below(&own), Vec::<String>::new(), "{words:?}: {ended}");
        };
        let there = format!("me@nas:{}/b", machines.there.files().display());
        run(&["cp", "a", &there], &["b"]);
        run(&["cp", &there, "c"], &["b"]);
        run(&["ls", &there], &["b"]);
        run(&["links", "me@nas"], &["b"]);
        run(&["exec", "me@nas", "true"], &["b"]);
    }
}

#[test]
fn a_copy_by_a_code_leaves_only_the_file_too() {
    let (from, to) = (Side::here(), Side::here());
    from.write("a", "a");
    let command = |side: &Side, words: &[&str]| {
        let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
        command
            .env_remove("NICSTRIPE_HOME")
            .env("HOME", side.home());
        command.args(words);
        command
    };
    let receiving = Process::spawn(command(&to, &["receive", "-y"]));
    let inviter = Inviter::of(receiving);
    let words = ["send", "--host", &inviter.host, "a", &inviter.code];
    Process::spawn(command(&from, &words)).finish().expect(0);
    inviter.process.finish().expect(0);
    assert_eq!(to.read("a"), b"a");
    for side in [&from, &to] {
        assert_eq!(below(&side.home()), Vec::<String>::new());
        assert_eq!(side.names(), ["a"]);
    }
}

#[test]
fn an_interrupted_copy_resumes_although_the_keys_are_new() {
    let machines = Machines::new();
    let bytes = content(LARGE);
    machines.here.write("a", &bytes);
    for (from, to) in [("a", "me@nas:b"), ("me@nas:b", "c")] {
        let copy = machines.start(&["cp", SLOW, "--json-stream", from, to]);
        copy.await_bytes(8 << 20);
        copy.signal(Signal::INT);
        copy.finish().expect(130);
        machines.expect_nothing_left(Duration::from_secs(5));
        let again = machines
            .run(&["cp", "--json", from, to])
            .expect(0)
            .document();
        assert!(number(&again, "resumed_bytes") > 1 << 20, "{again:#}");
    }
    assert_eq!(machines.here.read("c"), bytes);
}

#[test]
fn a_command_runs_there_as_ssh_would_let_it() {
    let machines = Machines::new();
    let run = |words: &[&str], code| machines.run(&[&["exec"], words].concat()).expect(code);
    let outcome = run(&["me@nas", "--", "sh", "-c", "cat; pwd; exit 5"], 5);
    assert!(outcome.stdout.contains('/'), "{outcome}");
    run(&["-l", "me", "-o", "X=y", "nas", "true"], 0);
    machines.expect_nothing_left(Duration::from_secs(5));
}

#[test]
fn what_runs_there_is_told_through_ssh() {
    let machines = Machines::new();
    let none = machines.run(&["status", "me@nas"]).expect(0);
    assert!(none.stderr.contains("no daemon and no copy"), "{none}");
    machines.expect_nothing_left(Duration::from_secs(5));
    let _daemon = Daemon::start(&machines.there, &[]);
    let outcome = machines.run(&["status", "--json", "me@nas"]).expect(0);
    let document = outcome.document_of("status");
    assert_eq!(document["processes"][0]["role"], "daemon", "{document:#}");
    let said = machines.run(&["status", "me@nas"]).expect(0).stdout;
    assert!(said.contains(") serves "), "{said}");
    // A machine that cannot be reached.
    let outcome = machines.run(&["status", "--json", "-e", "false", "me@nas"]);
    let document = outcome.expect(10).document_of("status");
    assert_eq!(document["processes"].as_array().unwrap().len(), 0);
}

#[test]
fn a_killed_client_leaves_no_process_there() {
    let machines = Machines::new();
    machines.here.write("a", content(LARGE));
    let copy = machines.start(&["cp", SLOW, "--json-stream", "a", "me@nas:"]);
    copy.await_bytes(1 << 20);
    assert_eq!(machines.left().len(), 1);
    copy.kill();
    machines.expect_nothing_left(Duration::from_secs(5));
}

#[test]
fn without_a_client_ssh_server_says_who_starts_it() {
    let machines = Machines::new();
    let server = machines.start(&["ssh-server"]);
    server
        .finish()
        .expect(2)
        .error(&["ssh-server is started by ssh"]);
}

#[test]
fn a_program_there_that_ends_ends_the_copy_soon() {
    let machines = Machines::new();
    machines.here.write("a", content(LARGE));
    let copy = machines.start(&["cp", SLOW, "--json-stream", "a", "me@nas:"]);
    copy.await_bytes(1 << 20);
    let there = i32::try_from(machines.left()[0]).unwrap();
    let begun = Instant::now();
    kill_process(Pid::from_raw(there).unwrap(), Signal::KILL).unwrap();
    let ended = copy.finish();
    let ended = ended
        .expect(1)
        .error(&["nas ended the session: its program has ended"]);
    // Its ssh may only have lost its connection, so refusals are needed for some 20 s.
    assert!(begun.elapsed() < Duration::from_secs(40), "{ended}");
}

#[test]
fn a_host_without_a_daemon_is_tried_by_ssh_and_a_trusted_peer_never() {
    let machines = Machines::new();
    machines.here.write("a", b"a");
    let plain = machines
        .run(&["cp", "a", "no-such-host.invalid:"])
        .expect(0);
    let said = "no daemon answers at no-such-host.invalid; trying ssh";
    assert!(plain.stderr.contains(said), "{plain}");
    assert_eq!(machines.there.read("a"), b"a");
    machines.here.trust(&Side::here(), "listed.invalid", "");
    for listed in [
        &["cp", "-4", "a", "listed.invalid:b"][..],
        &["cp", "-4", "a", "nicstripe://other.invalid/b"],
        &["cp", "-4", "-P", "7", "a", "other.invalid:b"],
    ] {
        let refused = machines.run(listed).expect(10);
        assert!(!refused.stderr.contains("ssh"), "{refused}");
    }
    assert!(!machines.there.has("b"));
}

#[test]
fn what_is_missing_there_is_told_in_one_sentence_and_installed_on_request() {
    let missing = Machines::with("", "/nowhere");
    missing.here.write("a", b"a");
    missing
        .run(&["cp", "a", "me@nas:"])
        .expect(10)
        .error(&["nicstripe is not installed on me@nas"])
        .hint(&["nicstripe", "cp --install a me@nas:"]);
    let installed = missing.run(&["cp", "--install", "a", "me@nas:"]).expect(0);
    assert!(
        installed.stderr.contains("~/.local/bin/nicstripe"),
        "{installed}"
    );
    assert_eq!(missing.there.read("a"), b"a");
    missing.run(&["cp", "a", "me@nas:b"]).expect(0);
    let folder = fs::read_dir(missing.there.path(".local/bin")).unwrap();
    assert_eq!(folder.count(), 1, "no part of the program is left");
}

/// Machines whose ssh starts the server with these options, whatever the client asks. The account's
/// home there is the folder of its files.
fn forced(options: &str) -> Machines {
    let command = format!("mkdir -p only; exec nicstripe ssh-server {options}");
    Machines::after(&command)
}

#[test]
fn a_forced_command_gives_no_more_than_its_options() {
    let machines = forced("--root only --append-only");
    machines.here.write("a", b"a");
    machines.run(&["cp", "a", "me@nas:"]).expect(0);
    assert_eq!(machines.there.read("only/a"), b"a");
    machines.here.write("a", b"other");
    machines.run(&["cp", "a", "me@nas:"]).expect(5);
    machines
        .run(&["cp", "a", "me@nas:/etc/a"])
        .expect(5)
        .error(&["only", "is served: expected paths relative to it"]);
    machines
        .run(&["dial", "me@nas", "127.0.0.1:9"])
        .expect(5)
        .error(&["127.0.0.1:9"]);
    machines.run(&["exec", "me@nas", "id"]).expect(5);
    assert_eq!(machines.there.read("only/a"), b"a");
    for options in ["--append-only", "--read-only"] {
        forced(options)
            .run(&["ls", "me@nas:"])
            .expect(5)
            .error(&["need --root DIR"]);
    }
}

#[test]
fn a_forced_command_without_a_root_serves_no_files() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"served").unwrap();
    });
    let machines = forced(&format!("--dial {service} --listen 7001"));
    machines.here.write("a", "a");
    machines.there.write("b", "b");
    for words in [
        &["cp", "a", "me@nas:"][..],
        &["cp", "a", "me@nas:/tmp/nicstripe-never"],
        &["cp", "-r", ".", "me@nas:tree"],
        &["cp", "me@nas:b", "."],
        &["cp", "me@nas:/etc/passwd", "."],
        &["cp", "-r", "me@nas:.", "tree"],
        &["cp", "-", "me@nas:piped"],
        &["ls", "me@nas:"],
        &["exec", "me@nas", "id"],
        &["dial", "me@nas", "127.0.0.1:9"],
        &["bench", "me@nas", "-t", "1"],
    ] {
        let refused = machines.run(words).expect(5);
        assert!(!refused.stderr.contains("panicked"), "{refused}");
    }
    let told = machines.run(&["doctor", "me@nas"]);
    told.labelled("warning:", &["the peer sent no facts"]);
    assert_eq!(machines.here.names(), ["a"]);
    assert_eq!(machines.there.names(), ["b", "only"]);
    let dialled = machines.run(&["dial", "me@nas", &service]).expect(0);
    assert_eq!(dialled.stdout, "served");
}

/// Which names decide on log-ins is tested in `file/logins.rs` of the library.
#[test]
fn a_forced_command_with_a_home_as_its_root_gives_no_login() {
    for (options, name) in [
        ("--root . --append-only", ".profile"),
        ("--root .", ".ssh/authorized_keys"),
    ] {
        let machines = forced(options);
        machines.here.write("a", "a");
        machines
            .run(&["cp", "--mkpath", "a", &format!("me@nas:{name}")])
            .expect(5)
            .error(&["in an account's home and decides who may log in"]);
        let file = machines.here.path("home").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        machines.run(&["cp", "-r", "home/", "me@nas:"]).expect(23);
        assert!(!machines.there.has(".ssh") && !machines.there.has(".profile"));
        // What lies deeper is a backup of another home.
        machines.run(&["cp", "-r", "home", "me@nas:"]).expect(0);
        assert_eq!(machines.there.read(format!("home/{name}")), b"x");
    }
}

/// A typed host is a word for ssh, never an option; nor a command for the shell that ssh starts with
/// `%h` and `%r` (`ProxyCommand`, `Match exec`).
#[test]
fn no_typed_host_is_an_option_of_ssh_or_a_command() {
    let side = Side::here();
    side.write("f", "f");
    let ssh = side.home().join("ssh");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >> {}\nexit 255\n",
        side.home().join("words").display()
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |words: &[&str]| {
        let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.env("NICSTRIPE_SSH", &ssh).args(words);
        Process::spawn(command).finish()
    };
    for host in [
        "-oProxyCommand=id>P",
        "-Fx",
        "a;id>P",
        "$(id>P)",
        "`id>P`",
        "a b",
        "a&id",
    ] {
        let remote = format!("{host}:");
        for words in [
            &["exec", "--", host, "true"][..],
            &["links", "--", host],
            &["bench", "--", host],
            &["doctor", "--", host],
            &["status", "--", host],
            &["dial", "--", host, "localhost:1"],
            &["forward", "-L", "1:localhost:1", "--", host],
            &["ls", "--", host],
            &["ls", "--", &remote],
            &["cp", "--", "f", &remote],
            &["cp", "--", &remote, "."],
        ] {
            for user in ["", "me@", "-l@", "me;id>P@", "$(id>P)@"] {
                let mut words: Vec<String> = words.iter().map(|&word| word.into()).collect();
                for word in words.iter_mut().filter(|word| word.starts_with(host)) {
                    word.insert_str(0, user);
                }
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                // Without a host, `cp` reads a local file, which does not exist.
                let ended = run(&words);
                assert_ne!(ended.status.code(), Some(0), "{ended}");
                assert!(!side.home().join("words").exists(), "{ended}");
            }
        }
    }
    assert_eq!(side.names(), ["f"]);
    run(&["ls", "me@nas:"]).expect(10);
    let words = fs::read_to_string(side.home().join("words")).unwrap();
    assert!(
        words.starts_with("-T\n-l\nme\n--\nnas\nexec sh -c"),
        "{words}"
    );
}

/// Stands for a program there that answers what the test writes.
const LIAR: &str = r#"#!/bin/sh
echo NICSTRIPE ready
read -r line
echo "$line" > FOLDER/request.new && mv FOLDER/request.new FOLDER/request
while [ ! -e FOLDER/reply ]; do sleep 0.05; done
cat FOLDER/reply
exec cat > /dev/null
"#;

/// Runs a command whose ssh answers with the reply that `answer` returns for the request.
fn answered(here: &Side, words: &[&str], answer: impl FnOnce(&Called) -> Reply) -> Outcome {
    let (folder, ssh) = (here.home(), here.home().join("ssh"));
    fs::write(&ssh, LIAR.replace("FOLDER", folder.to_str().unwrap())).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = fs::remove_file(folder.join("reply"));
    let _ = fs::remove_file(folder.join("request"));
    let mut command = here.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.env("NICSTRIPE_SSH", &ssh).args(words);
    command.args(["--timeout", "2s"]);
    let copy = Process::spawn(command);
    let begun = Instant::now();
    while !folder.join("request").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(20));
    }
    let request = fs::read_to_string(folder.join("request")).unwrap();
    let reply = answer(&Called::parse(&request).unwrap()).encode();
    let line = format!("NICSTRIPE reply {}\n", STANDARD.encode(reply));
    fs::write(folder.join("reply.new"), line).unwrap();
    fs::rename(folder.join("reply.new"), folder.join("reply")).unwrap();
    copy.finish()
}

/// Returns the answer of a program that listens at a port of 127.0.0.1.
fn reply(key: &PublicKey, port: u16) -> Reply {
    Reply {
        version: 1,
        program: "0.1.0".into(),
        key: *key.as_bytes(),
        port,
        interfaces: Vec::new(),
        reached: Some([127, 0, 0, 1].into()),
        home: b"/".to_vec(),
        homes: Vec::new(),
        failure: None,
    }
}

fn key_of(side: &Side) -> PublicKey {
    side.key().parse::<PublicLine>().unwrap().key
}

#[test]
fn a_program_there_that_names_the_key_of_another_machine_gets_nothing_from_either() {
    let (here, victim, other) = (Side::here(), Side::here(), Side::here());
    here.write("a", "secret");
    victim.write("b", "precious");
    let daemon = Daemon::start(&victim, &LOOPBACK);
    for key in [key_of(&victim), key_of(&other)] {
        for words in [
            &["cp", "a", "me@nas:"][..],
            &["cp", "me@nas:b", "."],
            &["cp", "--allow-ssh-data", "me@nas:b", "."],
        ] {
            let ended = answered(&here, words, |_| reply(&key, daemon.port)).expect(10);
            assert!(!ended.stderr.contains("trust add"), "{ended}");
            // Nothing listens at the port that ssh would forward.
            if !words.contains(&"--allow-ssh-data") {
                let said = "another program answered at me@nas, TCP port";
                ended.error(&[said]).hint(&["--allow-ssh-data"]);
            }
        }
    }
    assert_eq!(victim.names(), ["b"]);
    assert_eq!(here.names(), ["a"]);
    let log = daemon.process.kill().stderr;
    assert!(!log.contains("session begins"), "{log}");
}

#[test]
fn an_answer_is_bounded_and_its_words_are_escaped() {
    let here = Side::here();
    here.write("a", "a");
    let key = key_of(&Side::here());
    let ended = |change: &dyn Fn(&mut Reply)| {
        answered(&here, &["cp", "a", "me@nas:"], |_| {
            let mut reply = reply(&key, 9);
            change(&mut reply);
            reply
        })
    };
    // The other limits are tested in `bootstrap.rs` of nicstripe-proto.
    let odd = ended(&|reply| reply.homes = vec![bootstrap::Path(Vec::new()); 65]).expect(12);
    odd.error(&["the answer of me@nas is malformed"]);
    let refused = ended(&|reply| reply.failure = Some("\x1b[2Jx".repeat(300)));
    let refused = refused.expect(5);
    let shown = refused.labelled("error:", &["nicstripe on me@nas cannot serve: \\u{1b}[2Jx"]);
    assert!(shown.chars().count() < 300, "{refused}");
    let blocked = ended(&|reply| {
        reply.interfaces = vec![PeerInterface::new("e\x1b[2J'", 1)];
    });
    let blocked = blocked.expect(10);
    assert!(!blocked.stderr.contains('\x1b'), "{blocked}");
    // Names that are not plain stand next to no command.
    blocked.hint(&["open TCP port 9 in the firewall of me@nas"]);
}
