//! Tests of restic repositories at a daemon.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    Outcome, Process, Side, content,
    pair::{LINKS, MIB, Pair},
    tests,
    tree::{Aspects, assert_same_tree, plant, plant_everything, walk},
    trial::Test,
};
use rustix::process::Signal;

/// Tests that need the restic program.
pub(crate) const TESTS_WITH_RESTIC: &[Test] = tests![
    what_is_backed_up_is_restored_as_it_was,
    the_folder_at_the_daemon_is_a_repository_by_itself,
    a_peer_that_may_only_append_removes_nothing_but_locks,
    a_peer_that_may_only_read_restores,
    a_backup_ends_well_although_the_daemon_was_killed_in_its_middle,
    the_line_that_is_printed_is_all_that_restic_needs,
];

/// Tests that do not need the restic program.
pub(crate) const TESTS: &[Test] = tests![
    the_end_of_standard_input_is_the_end,
    a_signal_ends_a_server_at_an_address,
    an_address_is_served_as_long_as_whoever_reads_its_line_is_there,
    without_a_daemon_nothing_is_served,
    what_other_machines_reach_needs_a_password,
    who_did_not_read_the_password_and_a_page_of_a_site_are_not_let_in,
];

/// Metadata that restic preserves. restic may add or drop holes.
const ASPECTS: Aspects = Aspects {
    holes: false,
    ..Aspects::ALL
};

/// restic on the client side, with a repository at the daemon.
struct Restic<'a> {
    side: &'a Side,
    port: u16,
    /// Additional options of `nicstripe serve restic`.
    options: &'a [&'a str],
}

impl<'a> Restic<'a> {
    fn of(pair: &'a Pair) -> Self {
        Self {
            side: &pair.client,
            port: pair.daemon.port,
            options: &[],
        }
    }

    /// Returns a `restic` command on the repository `backup/laptop` at the daemon.
    fn command(&self, words: &[&str]) -> Command {
        let links = LINKS.map(|link| format!("--link {link}")).join(" ");
        let more = self.options.join(" ");
        let program = format!(
            "rclone.args=serve restic --stdio --b2-hard-delete -P {} {links} {more}",
            self.port
        );
        let mut command = restic(self.side, "rclone:127.0.0.1:backup/laptop");
        command
            .args([
                "-o",
                concat!("rclone.program=", env!("CARGO_BIN_EXE_nicstripe")),
                "-o",
                &program,
            ])
            .args(words);
        command
    }

    fn start(&self, words: &[&str]) -> Process {
        Process::spawn(self.command(words))
    }

    fn run(&self, words: &[&str]) -> Outcome {
        self.start(words).finish()
    }
}

/// Returns a `restic` command on a repository, with a password and without a cache.
fn restic(side: &Side, repository: &str) -> Command {
    let mut command = side.command("restic");
    command
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("RESTIC_PASSWORD", "secret")
        .env("RESTIC_PROGRESS_FPS", "1");
    command.args(["--no-cache", "-r", repository]);
    command
}

/// Creates files of many sizes and entries of the other types, as the source of a backup.
fn plant_source(side: &Side) {
    plant_everything(&side.path("source"));
    for index in 0..40 {
        plant(
            &side.path("source"),
            &format!("more/{index}"),
            content(index * 40_000),
        );
    }
    plant(&side.path("source"), "large", content(24 * MIB));
}

/// Restores the newest snapshot to `target`. Panics if the restored data differs from the source.
#[track_caller]
fn check_restored(restic: &Restic<'_>, target: &str) {
    restic
        .run(&["restore", "latest", "--target", target])
        .expect(0);
    assert_same_tree(
        &restic.side.path("source"),
        &restic.side.path(target).join("source"),
        ASPECTS,
    );
}

fn files_beneath(path: &Path) -> usize {
    walk(path).iter().filter(|path| path.is_file()).count()
}

fn what_is_backed_up_is_restored_as_it_was() {
    let pair = Pair::new();
    plant_source(&pair.client);
    let restic = Restic::of(&pair);
    restic.run(&["snapshots"]).expect(1);
    restic.run(&["init"]).expect(0);
    restic.run(&["init"]).expect(1);
    restic.run(&["backup", "source"]).expect(0);
    plant(&pair.client.path("source"), "later", content(3 * MIB));
    restic.run(&["backup", "source"]).expect(0);
    let check = restic.run(&["check", "--read-data"]).expect(0);
    assert!(check.stdout.contains("no errors were found"), "{check}");
    check_restored(&restic, "restored");
    restic
        .run(&["forget", "--keep-last", "1", "--prune"])
        .expect(0);
    restic.run(&["check", "--read-data"]).expect(0);
    check_restored(&restic, "restored-again");
    assert_eq!(files_beneath(&pair.server.path("backup/laptop/locks")), 0);
}

fn the_folder_at_the_daemon_is_a_repository_by_itself() {
    let pair = Pair::new();
    plant(&pair.client.path("source"), "file", content(2 * MIB));
    Restic::of(&pair).run(&["init"]).expect(0);
    Restic::of(&pair).run(&["backup", "source"]).expect(0);
    let mut there = restic(&pair.server, "backup/laptop");
    there.args(["restore", "latest", "--target", "restored"]);
    Process::spawn(there).finish().expect(0);
    assert_same_tree(
        &pair.client.path("source"),
        &pair.server.path("restored/source"),
        ASPECTS,
    );
    // Data stored at the daemon without nicstripe is also visible through nicstripe.
    let mut there = restic(&pair.server, "backup/laptop");
    there.args(["backup", "restored"]);
    Process::spawn(there).finish().expect(0);
    Restic::of(&pair).run(&["check", "--read-data"]).expect(0);
}

fn a_peer_that_may_only_append_removes_nothing_but_locks() {
    let pair = Pair::serving(&[], "append-only");
    plant(&pair.client.path("source"), "file", content(2 * MIB));
    let restic = Restic::of(&pair);
    restic.run(&["init"]).expect(0);
    restic.run(&["backup", "source"]).expect(0);
    restic.run(&["backup", "source"]).expect(0);
    assert_eq!(files_beneath(&pair.server.path("backup/laptop/locks")), 0);
    // restic retries forbidden requests for a long time. Its first removal requests suffice.
    let forget = restic.start(&["forget", "--keep-last", "1", "--prune"]);
    forget.await_stderr("403");
    forget.kill();
    assert_eq!(
        files_beneath(&pair.server.path("backup/laptop/snapshots")),
        2
    );
    restic.run(&["unlock", "--remove-all"]).expect(0);
    restic.run(&["check", "--read-data"]).expect(0);
    check_restored(&restic, "restored");
}

fn a_peer_that_may_only_read_restores() {
    let pair = Pair::new();
    plant(&pair.client.path("source"), "file", content(2 * MIB));
    Restic::of(&pair).run(&["init"]).expect(0);
    Restic::of(&pair).run(&["backup", "source"]).expect(0);
    let reader = Side::here();
    reader.trust(&pair.server, "nas", "");
    pair.server.trust(&reader, "reader", "read-only");
    let restic = Restic {
        side: &reader,
        port: pair.daemon.port,
        options: &[],
    };
    restic
        .run(&["--no-lock", "restore", "latest", "--target", "restored"])
        .expect(0);
    assert_same_tree(
        &pair.client.path("source"),
        &reader.path("restored/source"),
        ASPECTS,
    );
}

fn a_backup_ends_well_although_the_daemon_was_killed_in_its_middle() {
    let pair = Pair::new();
    for index in 0..24 {
        let mut bytes = content(2 * MIB);
        bytes.rotate_left(index * 1000 + 1);
        plant(&pair.client.path("source"), &index.to_string(), bytes);
    }
    Restic::of(&pair).run(&["init"]).expect(0);
    let backup = Restic {
        options: &["--bwlimit", "8M"],
        ..Restic::of(&pair)
    }
    .start(&["backup", "source"]);
    let data = pair.server.path("backup/laptop/data");
    await_true("two packs at the daemon", || files_beneath(&data) >= 2);
    let pair = pair.restart_daemon_after(Signal::KILL, || {
        assert!(!backup.has_ended());
        thread::sleep(Duration::from_millis(700));
    });
    backup.finish().expect(0);
    Restic::of(&pair).run(&["check", "--read-data"]).expect(0);
    check_restored(&Restic::of(&pair), "restored");
}

fn an_address_is_served_as_long_as_whoever_reads_its_line_is_there() {
    let pair = Pair::new();
    let mut command = serve_restic(&pair, &["--addr", "localhost:0"]);
    let mut server = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Serving restic REST API on ") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before");
    }
    thread::sleep(Duration::from_millis(300));
    assert!(server.try_wait().unwrap().is_none());
    // rustic closes the pipe when it exits.
    drop(stderr);
    let mut status = None;
    await_true("its end", || {
        status = server.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

fn the_line_that_is_printed_is_all_that_restic_needs() {
    let pair = Pair::new();
    plant(&pair.client.path("source"), "file", content(2 * MIB));
    let server = Process::spawn(serve_restic(&pair, &["--addr", "localhost:0"]));
    let repository = repository_of(&server);
    let run = |repository: &str, words: &[&str]| {
        let mut command = restic(&pair.client, repository);
        command.args(words);
        Process::spawn(command).finish()
    };
    run(&repository, &["init"]).expect(0);
    run(&repository, &["backup", "source"]).expect(0);
    run(&repository, &["check", "--read-data"]).expect(0);
    let (_, address) = repository.split_once('@').unwrap();
    run(&format!("rest:http://{address}"), &["snapshots"]).expect(1);
    run(
        &format!("rest:http://restic:wrong@{address}"),
        &["snapshots"],
    )
    .expect(1);
}

/// Waits until `nicstripe serve restic` prints the repository's URL. Returns the URL without
/// quotes.
fn repository_of(server: &Process) -> String {
    let line = server.await_stdout("export RESTIC_REPOSITORY=");
    line.split_once('=')
        .unwrap()
        .1
        .trim_matches('\'')
        .to_owned()
}

fn who_did_not_read_the_password_and_a_page_of_a_site_are_not_let_in() {
    let pair = Pair::new();
    let server = Process::spawn(serve_restic(&pair, &["--addr", "127.0.0.1:0"]));
    let address = address_of(&server);
    assert!(repository_of(&server).starts_with("rest:http://restic:"));
    assert_eq!(ask(&address, "POST", "/?create=true", "", b"").0, 401);
    assert_eq!(
        ask(
            &address,
            "GET",
            "/config",
            "Authorization: Basic cmVzdGljOg==\r\n",
            b""
        )
        .0,
        401
    );
    assert!(!pair.server.has("backup"));
    let open = Process::spawn(serve_restic(
        &pair,
        &["--addr", "127.0.0.1:0", "--no-password"],
    ));
    let address = address_of(&open);
    assert_eq!(ask(&address, "GET", "/config", "", b"").0, 404);
    assert_eq!(
        ask(
            &address,
            "GET",
            "/config",
            "Sec-Fetch-Site: cross-site\r\n",
            b""
        )
        .0,
        403
    );
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(b"GET /config HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

/// Returns a `nicstripe serve restic` command for the repository `backup/laptop`.
fn serve_restic(pair: &Pair, words: &[&str]) -> Command {
    let mut command = pair.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args([
        "serve",
        "restic",
        "-P",
        &pair.daemon.port.to_string(),
        "--link",
        LINKS[0],
        "--link",
        LINKS[1],
    ]);
    command.args(words).arg("127.0.0.1:backup/laptop");
    command
}

/// Waits until `nicstripe serve restic` prints its address in the form that rustic reads. Returns
/// the address.
fn address_of(server: &Process) -> String {
    let line = server.await_stderr("Serving restic REST API on ");
    line.strip_prefix("Serving restic REST API on http://")
        .and_then(|rest| rest.strip_suffix('/'))
        .unwrap()
        .to_owned()
}

/// Sends one HTTP/1.1 request. Returns the status, headers and body of the response.
fn ask(
    address: &str,
    method: &str,
    path: &str,
    header: &str,
    body: &[u8],
) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Fails if a rejection arrives before the whole body is sent.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        answer.split_off(end + 4),
    )
}

fn the_end_of_standard_input_is_the_end() {
    let pair = Pair::new();
    let (server, mut stdin) = Process::spawn_open(serve_restic(&pair, &["--stdio"]));
    stdin
        .write_all(b"GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(!server.has_ended());
    drop(stdin);
    let outcome = server.finish().expect(0);
    assert!(
        outcome.stdout.starts_with("HTTP/1.1 404 Not Found\r\n"),
        "{outcome}"
    );
    assert_eq!(outcome.stderr, "");
}

fn a_signal_ends_a_server_at_an_address() {
    let pair = Pair::new();
    let server = Process::spawn(serve_restic(
        &pair,
        &["--addr", "127.0.0.1:0", "--no-password"],
    ));
    let mut stream = TcpStream::connect(address_of(&server)).unwrap();
    stream
        .write_all(b"HEAD /config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
    server.signal(Signal::INT);
    server.finish().expect(130);
}

fn without_a_daemon_nothing_is_served() {
    let side = Side::here();
    side.run(["serve", "restic", "--stdio", "-P", "1", "127.0.0.1:backup"])
        .expect(10)
        .error(&["cannot connect to 127.0.0.1:1"]);
    side.run(["serve", "restic", "--stdio", "backup"])
        .expect(2)
        .error(&["no host in \"backup\""]);
    side.run(["serve", "restic", "nas:backup"]).expect(2);
    side.run([
        "serve",
        "restic",
        "--addr",
        "localhost:0",
        "--stdio",
        "nas:backup",
    ])
    .expect(2);
}

fn what_other_machines_reach_needs_a_password() {
    let pair = Pair::new();
    let open = Process::spawn(serve_restic(
        &pair,
        &["--addr", "0.0.0.0:0", "--no-password"],
    ));
    open.finish()
        .expect(1)
        .error(&["0.0.0.0:0", "--no-password"]);
    let made = Process::spawn(serve_restic(&pair, &["--addr", "0.0.0.0:0"]));
    let port = address_of(&made).rsplit(':').next().unwrap().to_owned();
    assert_eq!(
        ask(&format!("127.0.0.1:{port}"), "GET", "/config", "", b"").0,
        401
    );
    let mut both = serve_restic(&pair, &["--addr", "127.0.0.1:0", "--no-password"]);
    both.env("RCLONE_USER", "me").env("RCLONE_PASS", "pass");
    Process::spawn(both)
        .finish()
        .expect(2)
        .error(&["RCLONE_USER", "--no-password"]);
    let mut half = serve_restic(&pair, &["--addr", "127.0.0.1:0"]);
    half.env("RCLONE_USER", "me");
    Process::spawn(half)
        .finish()
        .expect(2)
        .error(&["RCLONE_USER", "RCLONE_PASS"]);
    let mut whole = serve_restic(&pair, &["--addr", "0.0.0.0:0"]);
    whole.env("RCLONE_USER", "me").env("RCLONE_PASS", "pass");
    address_of(&Process::spawn(whole));
}

#[track_caller]
fn await_true(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "no {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
