//! Tests of `serve` as a service: notifications to systemd, the unit file, and orderly shutdown.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    process::Command,
    time::{Duration, Instant},
};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Daemon, Process, Side, content,
    pair::{LINKS, LOOPBACK, MIB, Pair},
    tests,
    tree::{Aspects, Tree},
    trial::{Test, lacks},
};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = tests![
    the_service_manager_hears_of_start_reload_life_and_end,
    a_daemon_that_hangs_is_not_said_to_live,
    the_status_tells_of_sessions_and_transfers,
    without_a_service_manager_nothing_is_said_and_nothing_fails,
    the_units_commands_have_the_options_that_it_gives,
    a_service_that_cannot_start_is_not_tried_without_end,
    the_folder_of_route_records_belongs_to_no_user_of_the_service,
    systemd_finds_no_fault_with_the_unit_and_little_exposure,
    a_service_is_installed_shown_and_removed_and_no_other_unit_touched,
    a_tree_goes_on_by_itself_both_ways_when_a_daemon_that_ended_is_back,
    a_disk_that_syncs_nothing_does_not_keep_a_daemon_from_ending,
];

/// Simulated service manager: its notification socket, and the messages received so far.
struct Manager {
    socket: UnixDatagram,
    said: Vec<String>,
}

impl Manager {
    /// Starts a service manager and a daemon that notifies it.
    fn start(side: &Side, watchdog: Option<Duration>) -> (Self, Process) {
        let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.args(["serve", "--port", "0"]).args(LOOPBACK);
        Self::start_by(side, command, watchdog)
    }

    /// Like [`Manager::start`], but runs `command` as the daemon.
    fn start_by(side: &Side, mut command: Command, watchdog: Option<Duration>) -> (Self, Process) {
        let path = side.home().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        command.env("NOTIFY_SOCKET", &path);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        (
            Self {
                socket,
                said: Vec::new(),
            },
            Process::spawn(command),
        )
    }

    /// Discards the notifications received so far. Returns their number.
    fn forget(&self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let said = std::iter::from_fn(|| self.socket.recv(&mut [0; 4096]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        said
    }

    /// Waits for a notification that has a line beginning with `begins`. Returns the whole
    /// notification.
    #[track_caller]
    fn await_line(&mut self, begins: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let len = match self.socket.recv(&mut buffer) {
                Ok(len) => len,
                // SIGCHLD of a stopped or continued child interrupts the call.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("no {begins}: {error}; said was {:?}", self.said),
            };
            let message = String::from_utf8(buffer[..len].to_vec()).unwrap();
            self.said.push(message.clone());
            if message.lines().any(|line| line.starts_with(begins)) {
                return message;
            }
        }
    }
}

fn the_service_manager_hears_of_start_reload_life_and_end() {
    let side = Side::here();
    let (mut manager, process) = Manager::start(&side, Some(Duration::from_secs(1)));
    let ready = manager.await_line("READY=1");
    assert!(ready.contains("STATUS=0 sessions"), "{ready}");
    // The daemon is listening before it reports READY.
    assert!(process.await_stderr("listening on").contains("port"));
    manager.await_line("WATCHDOG=1");
    manager.await_line("WATCHDOG=1");
    process.signal(Signal::HUP);
    assert!(
        manager
            .await_line("RELOADING=1")
            .contains("MONOTONIC_USEC=")
    );
    manager.await_line("READY=1");
    process.signal(Signal::TERM);
    let stopping = manager.await_line("STOPPING=1");
    assert!(
        stopping.contains("EXTEND_TIMEOUT_USEC=15000000"),
        "{stopping}"
    );
    process.finish().expect(143);
}

fn a_daemon_that_hangs_is_not_said_to_live() {
    let side = Side::here();
    let (mut manager, process) = Manager::start(&side, Some(Duration::from_millis(400)));
    manager.await_line("WATCHDOG=1");
    process.signal(Signal::STOP);
    manager.forget();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(manager.forget(), 0);
    process.signal(Signal::CONT);
    manager.await_line("WATCHDOG=1");
}

fn the_status_tells_of_sessions_and_transfers() {
    let mut manager = None;
    let pair = Pair::with("", |server| {
        let (started, process) = Manager::start(server, Some(Duration::from_millis(400)));
        manager = Some(started);
        Daemon::listening(process)
    });
    pair.client.write("file", content(MIB));
    pair.cp(&["file", "127.0.0.1:"]).expect(0);
    let mut manager = manager.unwrap();
    manager.await_line("STATUS=0 sessions, 0 transfers running, 1 done, 0 failed");
}

fn without_a_service_manager_nothing_is_said_and_nothing_fails() {
    let side = Side::here();
    let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
    command
        .args(["serve", "--port", "0"])
        .args(LOOPBACK)
        .env("NOTIFY_SOCKET", side.home().join("nobody"));
    let daemon = Daemon::listening(Process::spawn(command));
    daemon.process.signal(Signal::TERM);
    daemon.process.finish().expect(143);
}

const UNIT: &str = include_str!("../../packaging/systemd/nicstripe.service");

fn the_units_commands_have_the_options_that_it_gives() {
    let help = Side::here().run(["serve", "--help"]).expect(0).stdout;
    let commands: Vec<&str> = UNIT
        .lines()
        .filter_map(|line| line.strip_prefix("Exec")?.split_once('='))
        .map(|(_, words)| words)
        .collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let options = command.split(' ').filter(|word| word.starts_with("--"));
        options.for_each(|option| assert!(help.contains(option), "{option} of {command}"));
    }
    // The daemon itself sends the readiness and watchdog messages.
    assert!(UNIT.contains("\nType=notify\n") && UNIT.contains("\nWatchdogSec="));
}

fn a_service_that_cannot_start_is_not_tried_without_end() {
    let value = |key: &str| {
        let mut lines = UNIT.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {key}="))
    };
    let seconds = |key| value(key).strip_suffix('s').unwrap().parse::<u32>();
    let ending: Vec<&str> = value("RestartPreventExitStatus").split(' ').collect();
    // Of systemd.exec(5): the program cannot be executed; a directory of the unit is missing.
    assert!(ending.contains(&"203") && ending.contains(&"226"));
    let starts: u32 = value("StartLimitBurst").parse().unwrap();
    // A start that fails after a second counts as well.
    let took = starts * (seconds("RestartSec").unwrap() + 1);
    assert!(took < seconds("StartLimitIntervalSec").unwrap(), "{took} s");
}

fn the_folder_of_route_records_belongs_to_no_user_of_the_service() {
    // systemd gives a RuntimeDirectory= to the user and the group of the unit.
    assert!(!UNIT.contains("\nRuntimeDirectory="));
    let made = "\nExecStartPre=-+install -d -o root -g nicstripe -m 2770 /run/nicstripe\n";
    assert!(UNIT.contains(made) && UNIT.contains("\nReadWritePaths=-/run/nicstripe\n"));
}

/// Maximum exposure level by `systemd-analyze security`, in tenths. systemd rates levels below 2.0
/// as OK.
const MOST_EXPOSURE: &str = "20";

fn systemd_finds_no_fault_with_the_unit_and_little_exposure() -> Completion {
    if let Some(lack) = lacks(&["systemd-analyze"]) {
        return lack;
    }
    let side = Side::here();
    // Replaces the installed path by the path of the build.
    let bin = env!("CARGO_BIN_EXE_nicstripe");
    let unit = UNIT.replace("/usr/local/bin/nicstripe ", &format!("{bin} "));
    side.write("nicstripe.service", unit);
    for words in [
        &["verify", "--man=no"][..],
        &[
            "security",
            "--offline=yes",
            "--no-pager",
            &format!("--threshold={MOST_EXPOSURE}"),
        ],
    ] {
        let mut command = Command::new("systemd-analyze");
        command.args(words).arg(side.path("nicstripe.service"));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat();
        assert!(output.status.success(), "{words:?}\n{text}");
        assert!(
            words[0] != "verify" || !text.contains("nicstripe.service"),
            "{text}"
        );
    }
    Completion::Completed
}

/// Creates a tree of 300 small files and 3 standalone files of 6 MiB.
fn plant(side: &Side) -> Tree {
    side.make_dir("tree");
    for number in 0..300 {
        side.write(format!("tree/small{number}"), content(10_000 + number));
    }
    for number in 0..3 {
        side.write(format!("tree/large{number}"), content(6 * MIB));
    }
    Tree::read(&side.path("tree"), Aspects::NONE)
}

/// Shuts the daemon down during the copy of a tree and restarts it. Panics unless the running
/// client then completes the copy.
fn a_tree_goes_on_by_itself_both_ways_when_a_daemon_that_ended_is_back() {
    for put in [true, false] {
        let pair = Pair::new();
        let ends = match put {
            true => ["tree", "127.0.0.1:"],
            false => ["127.0.0.1:tree", "."],
        };
        let expected = plant(if put { &pair.client } else { &pair.server });
        let arguments = [&["-r", "--bwlimit", "8M", "--json-stream"], &ends[..]].concat();
        let cp = pair.start_cp(&arguments);
        cp.await_bytes(4 * MIB as u64);
        let pair = pair.restart_daemon_after(Signal::TERM, || {
            cp.await_event("waiting", |_| true);
        });
        cp.finish().expect(0);
        let target = if put { &pair.server } else { &pair.client };
        assert_eq!(Tree::read(&target.path("tree"), Aspects::NONE), expected);
        let mut left = target.names();
        left.retain(|name| name.contains("nicstripe"));
        assert!(left.is_empty(), "{left:?}");
    }
}

fn a_disk_that_syncs_nothing_does_not_keep_a_daemon_from_ending() -> Completion {
    if !can_trace() {
        return Completion::ignored_with("this machine has no strace, or lets nobody be traced");
    }
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.trust(&client, "laptop", "");
    server.configure("[limits]\nshutdown-time = \"800ms\"\n");
    let mut command = server.command("strace");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // With -D, the child is the daemon, and strace is a detached process.
    command.args([
        "-D",
        "-f",
        "-q",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync,sync_file_range",
    ]);
    command
        .args([
            "-e",
            "inject=fsync,fdatasync:delay_enter=10000000",
            env!("CARGO_BIN_EXE_nicstripe"),
            "serve",
            "--port",
            "0",
        ])
        .args(LOOPBACK);
    let (mut manager, process) =
        Manager::start_by(&server, command, Some(Duration::from_millis(400)));
    let daemon = Daemon::listening(process);
    let pair = Pair {
        client,
        server,
        daemon,
    };
    pair.client.write("file", content(16 * MIB));
    let cp = pair.start_cp(&[
        "--bwlimit",
        "8M",
        "--json-stream",
        "--timeout",
        "500ms",
        "file",
        "127.0.0.1:",
    ]);
    cp.await_bytes(12 * MIB as u64);
    // A stalled disk must not look like a program that hangs.
    manager.forget();
    manager.await_line("WATCHDOG=1");
    manager.await_line("WATCHDOG=1");
    let begun = Instant::now();
    let Pair {
        daemon: Daemon { process, port },
        server,
        client,
    } = pair;
    client.write("late", b"bytes");
    process.signal(Signal::TERM);
    // The daemon accepts no new sessions during the shutdown.
    let port = port.to_string();
    let late = [
        "cp",
        "-P",
        &port,
        "--link",
        LINKS[0],
        "--timeout",
        "100ms",
        "late",
        "127.0.0.1:",
    ];
    process.await_stderr("shutting down; ");
    client.run(late).expect(10);
    process.await_stderr("ended before all received data was durable");
    // All sessions together take less than 1 s, plus a margin for a busy machine. The sync takes 10
    // s.
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    // A process in a delayed sync dies only after the sync, as with a real disk.
    process.finish().expect(143);
    assert!(!server.has("file"));
    cp.kill();
    Completion::Completed
}

fn can_trace() -> bool {
    let mut command = Command::new("strace");
    command.args([
        "-D",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "inject=fsync:delay_enter=1",
        "true",
    ]);
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs as root in a mount namespace of its own, in which `systemctl` only notes its arguments.
const MACHINE: &str = r#"
mount -t tmpfs none /etc/systemd/system
mkdir -p /run/systemd
mount -t tmpfs -o mode=755 none /run/systemd
mkdir /run/systemd/system
mkdir fake
cat > fake/systemctl <<'END'
#!/bin/sh
echo "$*" >> log
[ "$1 $FAILS" != "restart yes" ] || exit 1
[ "$1" != show ] || printf 'ActiveState=%s\nSubState=x\nStatusText=2 sessions\nUnitFileState=%s\nFragmentPath=%s/nicstripe.service\n' $STATE ${ENABLED:-disabled} ${UNITS:-/etc/systemd/system}
END
printf '#!/bin/sh\necho "why it fails"\n' > fake/journalctl
printf '#!/bin/sh\necho "groupadd $*" >> log\n' > fake/groupadd
chmod +x fake/*
PATH=$PWD/fake:$PATH
expect() { code=$1; shift; "$@" || { [ $? = $code ] && return; echo "exit code $?: $*" >&2; exit 99; }; [ $code = 0 ] || exit 98; }
# A program, and a directory on the way to it, that only root may write.
mkdir /run/systemd/bin
install -m 755 "$0" /run/systemd/bin/nicstripe
nicstripe=/run/systemd/bin/nicstripe
chgrp daemon $nicstripe
chmod g+w $nicstripe
expect 5 $nicstripe service install --root "$PWD/a b" --user daemon
chmod g-w $nicstripe
chown daemon $nicstripe
expect 5 $nicstripe service install --root "$PWD/a b" --user daemon
chown root $nicstripe
chmod o+w /run/systemd/bin
expect 5 $nicstripe service install --root "$PWD/a b" --user daemon
chmod o-w /run/systemd/bin
# Without sudo as well, the hint has all commands.
chown daemon $nicstripe
expect 5 setpriv --reuid=65534 --clear-groups $nicstripe service install --root /srv/in 2>&1 |
  grep -F "then: sudo /usr/local/bin/nicstripe service install --root /srv/in"
chown root $nicstripe
# A program that the user of the service cannot run.
chmod 700 /run/systemd/bin
expect 5 $nicstripe service install --root "$PWD/a b" --user daemon 2>&1 | tee err
grep -F "user daemon cannot run $nicstripe" err
grep -F "sudo install -m 755 $nicstripe /usr/local/bin; then: sudo /usr/local/bin/nicstripe service" err
chmod 755 /run/systemd/bin
test ! -e /etc/systemd/system/nicstripe.service
test ! -e "a b"
# A service that does not start.
FAILS=yes expect 1 $nicstripe service install --root "$PWD/a b" --user daemon 2>&1 | tee err
grep -F "the service did not start, and is not installed" err
grep -F "journal: why it fails" err
grep 'disable --now nicstripe' log
test ! -e /etc/systemd/system/nicstripe.service
expect 0 $nicstripe service install --root "$PWD/a b" --user daemon
before=$(cat /etc/systemd/system/nicstripe.service)
FAILS=yes expect 1 $nicstripe service install --root "$PWD/other" --user daemon
test "$(cat /etc/systemd/system/nicstripe.service)" = "$before"
test "$(stat -c %U "a b")" = daemon
systemd-analyze verify --man=no /etc/systemd/system/nicstripe.service
STATE=active expect 0 $nicstripe service status
STATE=failed expect 1 $nicstripe service status
# The unit of a package, before its administrator uses it, and then.
STATE=failed UNITS=/lib/systemd/system expect 1 $nicstripe service status 2>&1 | grep -A1 'no service is installed' | grep -F 'sudo nicstripe service install --root DIR'
STATE=failed ENABLED=enabled UNITS=/lib/systemd/system expect 1 $nicstripe service status 2>&1 | grep 'the service does not run'
STATE=active UNITS=/lib/systemd/system expect 0 $nicstripe service status
expect 2 $nicstripe service install --user nobody-of-this-name
expect 5 setpriv --reuid=65534 --clear-groups $nicstripe service remove
expect 0 $nicstripe service remove
test ! -e /etc/systemd/system/nicstripe.service
test -d "a b"
expect 1 $nicstripe service uninstall
echo '[Unit]' > /etc/systemd/system/nicstripe.service
expect 5 $nicstripe service install --user daemon
expect 5 $nicstripe service remove
cat log
"#;

fn a_service_is_installed_shown_and_removed_and_no_other_unit_touched() -> Completion {
    if let Some(lack) = lacks(&["systemd-analyze", "unshare", "setpriv"]) {
        return lack;
    }
    if !rustix::process::geteuid().is_root() {
        return Completion::ignored_with("only root can install services");
    }
    let side = Side::here();
    let mut command = side.command("unshare");
    let bin = env!("CARGO_BIN_EXE_nicstripe");
    command.args(["-m", "sh", "-ec", MACHINE, bin]);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let ended = Process::spawn(command).finish().expect(0);
    let calls = "daemon-reload\nenable nicstripe\nrestart nicstripe\n";
    for part in [
        calls,
        "disable --now nicstripe\ndaemon-reload\n",
        "serves ",
        "2 sessions\n",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended}");
    }
    Completion::Completed
}
