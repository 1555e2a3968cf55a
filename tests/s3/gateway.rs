//! Tests of a gateway in front of a daemon.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::PathBuf,
    process::{Command, Stdio},
};

use nicstripe_testkit::{
    Outcome, Process, Side,
    pair::{LINKS, MIB, Pair},
    tests,
    trial::Test,
};
use rustix::process::Signal;

/// Tests that need boto3.
pub(crate) const TESTS_WITH_BOTO3: &[Test] = tests![
    what_boto3_does_is_done,
    large_objects_go_in_parts_and_through_little_memory,
    others_than_the_holder_of_the_keys_are_not_let_in,
    a_peer_that_may_only_append_replaces_and_removes_nothing,
];

/// Tests that do not need boto3.
pub(crate) const TESTS: &[Test] = tests![
    what_is_not_signed_and_a_page_of_a_site_are_not_let_in,
    keys_of_the_environment_are_not_printed,
    a_socket_is_that_of_its_user,
];

/// Returns why there is no boto3.
pub(crate) fn obstacle() -> Option<String> {
    let found = Command::new("python3")
        .args(["-c", "import boto3"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    (!is_there).then(|| "needs python3 with boto3".to_owned())
}

/// Returns a `nicstripe serve s3` command for the folder `lake` at the daemon.
fn serve_s3(pair: &Pair, words: &[&str]) -> Command {
    let mut command = pair.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(["serve", "s3", "-P", &pair.daemon.port.to_string()]);
    command.args(["--link", LINKS[0], "--link", LINKS[1]]);
    command.args(words).arg("127.0.0.1:lake");
    command
}

/// Gateway that listens at an address.
struct Gateway {
    process: Process,
    /// The variables that it printed.
    variables: BTreeMap<String, String>,
}

impl Gateway {
    fn start(pair: &Pair) -> Self {
        pair.server.make_dir("lake");
        let process = Process::spawn(serve_s3(pair, &["--addr", "127.0.0.1:0"]));
        let mut variables = BTreeMap::new();
        for name in [
            "AWS_ENDPOINT_URL",
            "AWS_REGION",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        ] {
            let line = process.await_stdout(&format!("export {name}="));
            for word in line.strip_prefix("export ").unwrap().split(' ') {
                let (name, value) = word.split_once('=').unwrap();
                variables.insert(name.to_owned(), value.to_owned());
            }
        }
        Self { process, variables }
    }

    fn address(&self) -> &str {
        self.variables["AWS_ENDPOINT_URL"]
            .strip_prefix("http://")
            .unwrap()
    }

    /// Runs a function of the script, which prints why it fails.
    fn run(&self, side: &Side, function: &str) -> Outcome {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/s3/client.py");
        let mut command = side.command("python3");
        command
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .envs(&self.variables)
            .arg(script)
            .arg(function);
        Process::spawn(command).finish()
    }
}

fn what_boto3_does_is_done() {
    let pair = Pair::new();
    let gateway = Gateway::start(&pair);
    gateway.run(&pair.client, "operations").expect(0);
    assert_eq!(pair.server.read("lake/kept/a/b.txt"), b"content");
    assert!(!pair.server.has("lake/bucket"));
}

fn large_objects_go_in_parts_and_through_little_memory() {
    let pair = Pair::new();
    let gateway = Gateway::start(&pair);
    gateway.run(&pair.client, "large").expect(0);
    // Bodies in memory and the buffers of the client; the objects have 256 MiB together.
    let peak = gateway.process.peak_memory();
    assert!(peak < 128 * MIB as u64, "{peak}");
    assert!(!pair.server.has("lake/large/.nicstripe-uploads"));
}

fn others_than_the_holder_of_the_keys_are_not_let_in() {
    let pair = Pair::new();
    let gateway = Gateway::start(&pair);
    gateway.run(&pair.client, "strangers").expect(0);
    let left: Vec<_> = fs::read_dir(pair.server.path("lake")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn a_peer_that_may_only_append_replaces_and_removes_nothing() {
    let pair = Pair::serving(&[], "append-only");
    let gateway = Gateway::start(&pair);
    pair.server.make_dir("lake/bucket");
    gateway.run(&pair.client, "append_only").expect(0);
    assert_eq!(pair.server.read("lake/bucket/new"), b"1");
}

/// Sends one request. Returns its status.
fn status(mut stream: impl Read + Write, head: &str) -> u16 {
    let request = format!("{head}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1);
    status
        .unwrap_or_else(|| panic!("{answer:?}"))
        .parse()
        .unwrap()
}

fn what_is_not_signed_and_a_page_of_a_site_are_not_let_in() {
    let pair = Pair::new();
    let gateway = Gateway::start(&pair);
    let ask = |head: &str| status(TcpStream::connect(gateway.address()).unwrap(), head);
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: localhost\r\n"), 403);
    assert_eq!(
        ask("PUT /bucket HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"),
        403
    );
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: evil.com\r\n"), 421);
    assert_eq!(
        ask("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\n"),
        403
    );
    assert!(!pair.server.has("lake/bucket"));
    gateway.process.signal(Signal::TERM);
    gateway.process.finish().expect(143);
}

fn keys_of_the_environment_are_not_printed() {
    let pair = Pair::new();
    pair.server.make_dir("lake");
    let mut command = serve_s3(&pair, &["--addr", "127.0.0.1:0"]);
    command
        .env("AWS_ACCESS_KEY_ID", "mine")
        .env("AWS_SECRET_ACCESS_KEY", "very secret");
    let server = Process::spawn(command);
    server.await_stdout("export AWS_REGION=");
    server.signal(Signal::TERM);
    let outcome = server.finish().expect(143);
    let said = [outcome.stdout.as_str(), &outcome.stderr].concat();
    assert!(!said.contains("very secret"), "{outcome}");
    let mut half = serve_s3(&pair, &["--addr", "127.0.0.1:0"]);
    half.env("AWS_ACCESS_KEY_ID", "mine");
    Process::spawn(half).finish().expect(2);
}

fn a_socket_is_that_of_its_user() {
    let pair = Pair::new();
    pair.server.make_dir("lake");
    let path = pair.client.path("s3.sock");
    let server = Process::spawn(serve_s3(&pair, &["--unix", path.to_str().unwrap()]));
    server.await_stdout("export AWS_SECRET_ACCESS_KEY=");
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stream = UnixStream::connect(&path).unwrap();
    assert_eq!(status(stream, "GET / HTTP/1.1\r\nHost: localhost\r\n"), 403);
    server.signal(Signal::TERM);
    server.finish().expect(143);
    assert!(!path.exists());
}
