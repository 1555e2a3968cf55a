//! Tests of `dial` and `forward` with socket files, and of `forward -R`, which forwards from the
//! daemon's machine to this one.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Outcome, Process, Side, content, is_same, pair::MIB};
use rustix::process::Signal;

use crate::exec::Stage;

/// Returns a stage on which `options` makes the client's rights of the directory of the server's files.
fn stage(options: impl Fn(&Side) -> String) -> Stage {
    let stage = Stage::new("");
    let rights = options(&stage.server);
    stage.server.trust(&stage.client, "laptop", &rights);
    stage
}

fn run(stage: &Stage, words: &[&str]) -> Outcome {
    stage.client.run(stage.to_peer(words))
}

/// Starts `nicstripe forward` with these words, and waits until it forwards.
fn start_forward(stage: &Stage, words: &[&str]) -> (Process, String) {
    let words = [&["forward"], words].concat();
    let process = stage.client.start(stage.to_peer(&words));
    let line = process.await_stderr("forwarding ");
    (process, line)
}

/// Returns the second word of a line, which is a TCP address.
fn address_in(line: &str) -> SocketAddr {
    let word = line.split(' ').nth(1).unwrap();
    word.parse().unwrap_or_else(|_| panic!("{line:?}"))
}

/// Byte stream with two directions that end separately.
trait Connection: Read + Write + Send + 'static {
    fn end(&self);
}

impl Connection for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Connection for UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// Echoes all bytes of a connection once its other end has ended its direction.
fn answer_at_the_end(mut connection: impl Connection) {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).unwrap();
    connection.write_all(&bytes).unwrap();
}

fn tcp_service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            thread::spawn(move || answer_at_the_end(tcp.unwrap()));
        }
    });
    address.to_string()
}

fn file_service(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for unix in listener.incoming() {
            thread::spawn(move || answer_at_the_end(unix.unwrap()));
        }
    });
}

/// Sends much and then ends, and checks that all of it comes back before the end.
#[track_caller]
fn echoes(mut connection: impl Connection) {
    let bytes = content(5 * MIB + 3);
    connection.write_all(&bytes).unwrap();
    connection.end();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    assert!(is_same(&answer, &bytes), "{} came", answer.len());
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

#[track_caller]
fn disappears(path: &Path) {
    let since = Instant::now();
    while path.symlink_metadata().is_ok() {
        assert!(since.elapsed() < LONG, "{} is there", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

const LONG: Duration = Duration::from_secs(30);

fn dials_service(side: &Side) -> String {
    format!("dial={}", unix(&side.path("service")))
}

#[test]
fn dial_connects_to_a_socket_file_that_the_line_permits() {
    let stage = stage(dials_service);
    let path = stage.server.path("service");
    run(&stage, &["dial", &unix(&path)]).expect(1);
    file_service(&path);
    let bytes = content(5 * MIB + 3);
    let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(stage.to_peer(&["dial", &unix(&path)]));
    let (outcome, answer) = Process::spawn_fed(command, bytes.clone()).finish_raw();
    outcome.expect(0);
    assert!(is_same(&answer, &bytes), "{} came", answer.len());
    let other = unix(&stage.server.path("other"));
    run(&stage, &["dial", &other])
        .expect(5)
        .error(&["not permitted"])
        .hint(&[&format!("--dial {other}")]);
}

#[test]
fn a_port_or_a_socket_file_here_leads_to_a_socket_file_there() {
    let stage = stage(dials_service);
    let path = stage.server.path("service");
    file_service(&path);
    let (_forward, line) = start_forward(&stage, &["-L", &format!("0:{}", unix(&path))]);
    echoes(TcpStream::connect(address_in(&line)).unwrap());

    let here = stage.client.path("here.sock");
    let words = format!("./here.sock:{}", unix(&path));
    let (forward, _) = start_forward(&stage, &["-L", &words]);
    let kind = here.symlink_metadata().unwrap();
    assert!(kind.file_type().is_socket());
    assert_eq!(kind.permissions().mode() & 0o777, 0o600);
    echoes(UnixStream::connect(&here).unwrap());
    // A second one does not replace it.
    run(&stage, &["forward", "-L", &words])
        .expect(1)
        .error(&["here.sock", "the file exists: remove it"]);
    echoes(UnixStream::connect(&here).unwrap());
    forward.signal(Signal::TERM);
    forward.finish().expect(143);
    assert!(!here.exists());
}

#[test]
fn a_port_there_leads_to_a_port_or_a_socket_file_here() {
    let stage = stage(|_| "listen=0".to_owned());
    let (forward, line) = start_forward(&stage, &["-R", &format!("0:{}", tcp_service())]);
    assert!(line.contains(" at 127.0.0.1 to 127.0.0.1:"), "{line}");
    let address = address_in(&line);
    let several: Vec<_> = (0..3)
        .map(|_| thread::spawn(move || echoes(TcpStream::connect(address).unwrap())))
        .collect();
    several.into_iter().for_each(|one| one.join().unwrap());
    forward.signal(Signal::TERM);
    forward.finish().expect(143);

    let service = stage.client.path("service");
    file_service(&service);
    let (forward, line) = start_forward(&stage, &["-R", &format!("0:{}", unix(&service))]);
    echoes(TcpStream::connect(address_in(&line)).unwrap());
    drop(forward);
}

#[test]
fn a_service_here_that_is_not_there_resets_the_connection_there() {
    let stage = stage(|_| "listen=0".to_owned());
    let (forward, line) = start_forward(&stage, &["-R", "0:127.0.0.1:1"]);
    let mut tcp = TcpStream::connect(address_in(&line)).unwrap();
    assert!(tcp.read(&mut [0]).is_err(), "a reset, and not an end");
    forward.await_stderr("warning: cannot connect to 127.0.0.1:1");
}

/// Returns a stage whose client may listen at a socket file, and the path.
fn with_socket_there() -> (Stage, PathBuf) {
    let stage = stage(|server| format!("listen={}", unix(&server.path("there.sock"))));
    let path = stage.server.path("there.sock");
    (stage, path)
}

fn forward_from(stage: &Stage, path: &Path) -> Process {
    let words = format!("{}:{}", path.display(), tcp_service());
    start_forward(stage, &["-R", &words]).0
}

#[test]
fn a_socket_file_there_goes_with_the_client_and_with_the_daemon() {
    let (stage, path) = with_socket_there();
    let forward = forward_from(&stage, &path);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    echoes(UnixStream::connect(&path).unwrap());
    forward.signal(Signal::TERM);
    forward.finish().expect(143);
    disappears(&path);

    let forward = forward_from(&stage, &path);
    forward.kill();
    disappears(&path);

    let _forward = forward_from(&stage, &path);
    stage.daemon.process.signal(Signal::TERM);
    stage.daemon.process.finish();
    assert!(path.symlink_metadata().is_err());
}

/// The daemon ends the session that has lost its links.
#[test]
fn a_client_that_was_killed_may_listen_again_at_once() {
    let (stage, path) = with_socket_there();
    for _ in 0..3 {
        let forward = forward_from(&stage, &path);
        echoes(UnixStream::connect(&path).unwrap());
        forward.kill();
    }
}

#[test]
fn a_forward_from_a_daemon_that_returned_listens_again() {
    let (mut stage, path) = with_socket_there();
    let forward = forward_from(&stage, &path);
    let Daemon { process, port } = stage.daemon;
    process.signal(Signal::TERM);
    process.finish();
    forward.await_stderr("warning: ");
    stage.daemon = Daemon::start_on(&stage.server, port, &["--interface", "lo"]);
    forward.await_stderr(" again");
    echoes(UnixStream::connect(&path).unwrap());
}
