//! Tests of `dial` and `forward`, which connect standard input and output, or a local port, to a
//! TCP service on the daemon's machine.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Process, Side, content, is_same, pair::MIB};
use rustix::{
    fs::{OFlags, fcntl_getfl},
    process::{Resource, Rlimit, Signal, getrlimit, setrlimit},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net as tokio_net,
};

/// Client and daemon on loopback. The client may tunnel TCP connections to one service, `target`.
struct Stage {
    client: Side,
    server: Side,
    daemon: Daemon,
    target: String,
}

impl Stage {
    fn new(service: SocketAddr) -> Self {
        let (client, server) = (Side::here(), Side::here());
        let target = service.to_string();
        client.trust(&server, "server", "");
        server.trust(&client, "client", &format!("dial={target}"));
        let daemon = Daemon::start(&server, &["--interface", "lo"]);
        Self {
            client,
            server,
            daemon,
            target,
        }
    }

    fn arguments(&self, words: &[&str]) -> Vec<String> {
        let port = self.daemon.port.to_string();
        let options = [
            "-P",
            &port,
            "--link",
            "127.0.0.1=127.0.0.1",
            "--link",
            "127.0.0.2=127.0.0.2",
        ];
        words[..1]
            .iter()
            .chain(&options)
            .chain(&words[1..])
            .map(|word| (*word).to_owned())
            .collect()
    }

    /// Returns arguments for one link. A session ends at once if a second named link is lost before
    /// it has connected.
    fn over_one_link(&self, words: &[&str]) -> Vec<String> {
        let mut arguments = self.arguments(words);
        let second = arguments.iter().rposition(|word| word == "--link");
        let second = second.unwrap();
        arguments.drain(second..second + 2);
        arguments
    }

    fn dial_between(&self, input: impl Into<Stdio>, output: impl Into<Stdio>) -> ExitStatus {
        let mut command = self.client.command(env!("CARGO_BIN_EXE_nicstripe"));
        command
            .args(self.arguments(&["dial", "127.0.0.1", &self.target]))
            .stdin(input)
            .stdout(output);
        command.status().unwrap()
    }

    /// Starts `nicstripe forward` on a free port, and returns its local address.
    fn forward(&self, target: &str) -> (Process, SocketAddr) {
        let forward = format!("0:{target}");
        self.forward_with(&self.arguments(&["forward", "-L", &forward, "127.0.0.1"]))
    }

    fn forward_with(&self, arguments: &[String]) -> (Process, SocketAddr) {
        let process = self.client.start(arguments);
        let line = process.await_stderr("forwarding 127.0.0.1:");
        let port = line
            .split(' ')
            .nth(1)
            .and_then(|address| address.rsplit(':').next())
            .and_then(|port| port.parse().ok());
        (
            process,
            SocketAddr::from((
                [127, 0, 0, 1],
                port.unwrap_or_else(|| panic!("no port in {line:?}")),
            )),
        )
    }
}

/// Starts a TCP service that calls `serve` for each connection.
fn service(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(tcp.unwrap()));
        }
    });
    address
}

fn greet(mut tcp: TcpStream) {
    tcp.write_all(b"greeting").unwrap();
    let _ = tcp.read_to_end(&mut Vec::new());
}

/// Echoes all bytes of a connection once the client has closed its sending direction.
fn answer_at_the_end(mut tcp: TcpStream) {
    let mut bytes = Vec::new();
    tcp.read_to_end(&mut bytes).unwrap();
    tcp.write_all(&bytes).unwrap();
}

#[test]
fn dial_takes_files_and_sockets_as_well_as_pipes() {
    let stage = Stage::new(service(answer_at_the_end));
    let bytes = content(3 * MIB);
    stage.client.write("input", &bytes);
    let [input, output] = ["input", "output"].map(|name| stage.client.path(name));
    let status = stage.dial_between(
        fs::File::open(input).unwrap(),
        fs::File::create(output).unwrap(),
    );
    assert!(status.success() && is_same(&stage.client.read("output"), &bytes));

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut writer = ours.try_clone().unwrap();
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let reader = scope.spawn(|| {
            let mut answer = Vec::new();
            (&ours).read_to_end(&mut answer).unwrap();
            answer
        });
        let theirs: OwnedFd = theirs.into();
        assert!(
            stage
                .dial_between(theirs.try_clone().unwrap(), theirs)
                .success()
        );
        reader.join().unwrap()
    });
    assert!(is_same(&answer, &bytes));
}

#[test]
fn a_pipe_that_others_have_as_well_waits_for_them_as_it_did() {
    let stage = Stage::new(service(answer_at_the_end));
    let (input, mut to_dial) = std::io::pipe().unwrap();
    let (mut from_dial, output) = std::io::pipe().unwrap();
    let others = [
        OwnedFd::from(input.try_clone().unwrap()),
        OwnedFd::from(output.try_clone().unwrap()),
    ];
    to_dial.write_all(b"question").unwrap();
    drop(to_dial);
    assert!(stage.dial_between(input, output).success());
    let mut answer = [0; 8];
    from_dial.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"question");
    for other in others {
        assert!(!fcntl_getfl(other).unwrap().contains(OFlags::NONBLOCK));
    }
}

/// As ssh does at its end to the program of `ProxyCommand`.
#[test]
fn a_dial_that_is_hung_up_says_nothing() {
    let stage = Stage::new(service(greet));
    let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(stage.arguments(&["dial", "127.0.0.1", &stage.target]));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut greeting = [0; 8];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut greeting).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn a_service_that_ends_first_still_gets_what_is_sent_to_it() {
    let (sender, told) = std::sync::mpsc::channel();
    let address = service(move |mut tcp| {
        tcp.write_all(b"greeting").unwrap();
        tcp.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        tcp.read_to_end(&mut bytes).unwrap();
        sender.send(bytes).unwrap();
    });
    let stage = Stage::new(address);
    let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(stage.arguments(&["dial", "127.0.0.1", &stage.target]));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The read ends while dial still runs, because dial closes its standard output.
    let mut greeting = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut greeting)
        .unwrap();
    assert_eq!(greeting, b"greeting");
    let bytes = content(3 * MIB);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert!(is_same(
        &told.recv_timeout(Duration::from_secs(10)).unwrap(),
        &bytes
    ));
}

#[test]
fn a_forwarded_connection_is_reset_where_it_leads_nowhere() {
    let stage = Stage::new(service(answer_at_the_end));
    let (refused, nowhere) = stage.forward("localhost:1");
    let mut tcp = TcpStream::connect(nowhere).unwrap();
    assert!(tcp.read(&mut [0]).is_err(), "a reset, and not an end");
    refused.await_stderr("not permitted");
}

#[test]
fn forward_resets_its_connections_after_its_timeout_and_reaches_a_daemon_that_returned() {
    let mut stage = Stage::new(service(greet));
    let target = format!("0:{}", stage.target);
    let words = ["forward", "--timeout", "3s", "-L", &target, "127.0.0.1"];
    let (forward, address) = stage.forward_with(&stage.over_one_link(&words));
    let greeted = || {
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.read_exact(&mut [0; 8]).map(|()| tcp)
    };
    let mut lost = greeted().unwrap();
    let port = stage.daemon.port;
    stage.daemon.process.signal(Signal::KILL);
    let killed = Instant::now();
    assert!(lost.read(&mut [0]).is_err(), "a reset, and not an end");
    let waited = killed.elapsed().as_secs();
    assert!((3..20).contains(&waited), "{waited} s");
    forward.await_stderr("is unreachable on lo; trying for 3 s, ^C ends");
    // The listener stays, and rejects connections as long as the daemon is away.
    assert!(greeted().is_err());
    forward.await_stderr("warning: ");
    stage.daemon = Daemon::start_on(&stage.server, port, &["--interface", "lo"]);
    greeted().unwrap();
    forward.signal(Signal::TERM);
    forward.finish().expect(143);
}

#[test]
fn dial_without_its_daemon_ends_after_its_timeout() {
    let stage = Stage::new(service(|mut tcp| {
        tcp.write_all(b"greeting\n").unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
    }));
    let mut command = stage.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    let words = ["dial", "--timeout", "1s", "127.0.0.1", &stage.target];
    command.args(stage.over_one_link(&words));
    let (dial, _input) = Process::spawn_open(command);
    dial.await_stdout("greeting");
    stage.daemon.process.signal(Signal::KILL);
    let killed = Instant::now();
    dial.finish().expect(1).error(&[&stage.target, "lost"]);
    assert!(killed.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_thousand_connections_at_once_are_all_right_and_one_that_is_not_read_slows_none() {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = {
        let _here = runtime.enter();
        let socket = tokio_net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        // The backlog has space for all connections at once, so that none is reset if this test
        // accepts slowly.
        socket.listen(2 * CONNECTIONS as u32).unwrap()
    };
    let stage = Stage::new(listener.local_addr().unwrap());
    runtime.spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = tcp.split();
                // Errors of a dropped connection do not matter.
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
    let (forward, address) = stage.forward(&stage.target);
    runtime.block_on(async {
        let slow = tokio_net::TcpStream::connect(address).await.unwrap();
        let (mut slow_from, mut slow_to) = slow.into_split();
        let writer = tokio::spawn(async move {
            slow_to.write_all(&content(SLOW)).await.unwrap();
            slow_to.shutdown().await.unwrap();
        });
        let begun = Instant::now();
        let echoes: Vec<_> = (0..CONNECTIONS)
            .map(|number| tokio::spawn(echo(address, number)))
            .collect();
        for echo in echoes {
            tokio::time::timeout(Duration::from_secs(50), echo)
                .await
                .expect("in time")
                .unwrap();
        }
        eprintln!("{CONNECTIONS} connections in {:.1?}", begun.elapsed());
        assert!(!writer.is_finished(), "nobody has read what it wrote");
        let mut echoed = Vec::new();
        tokio::time::timeout(Duration::from_secs(30), slow_from.read_to_end(&mut echoed))
            .await
            .expect("in time")
            .unwrap();
        assert!(is_same(&echoed, &content(SLOW)));
    });
    for process in [&forward, &stage.daemon.process] {
        let peak = process.peak_memory();
        assert!(peak < 250 << 20, "{} MiB", peak >> 20);
    }
}

#[test]
fn a_burst_of_connections_waits_for_a_forward_that_is_busy() {
    raise_open_files();
    let stage = Stage::new(service(answer_at_the_end));
    let (forward, address) = stage.forward(&stage.target);
    forward.signal(Signal::STOP);
    let wait = Duration::from_secs(5);
    let burst: Result<Vec<_>, _> = (0..BURST)
        .map(|_| TcpStream::connect_timeout(&address, wait))
        .collect();
    forward.signal(Signal::CONT);
    for (number, mut tcp) in burst
        .expect("the kernel keeps all of them")
        .into_iter()
        .enumerate()
    {
        tcp.write_all(&number.to_le_bytes()).unwrap();
        tcp.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, number.to_le_bytes());
    }
}

/// Sends bytes that depend on `number` over one connection. Panics unless the service echoes them.
async fn echo(address: SocketAddr, number: usize) {
    let mut tcp = tokio_net::TcpStream::connect(address).await.unwrap();
    let bytes: Vec<u8> = content(EACH)
        .iter()
        .map(|byte| byte ^ number as u8)
        .collect();
    for part in bytes.chunks(EACH / 4) {
        tcp.write_all(part).await.unwrap();
        let mut echoed = vec![0; part.len()];
        tcp.read_exact(&mut echoed).await.unwrap();
        assert!(is_same(&echoed, part), "connection {number}");
    }
    tcp.shutdown().await.unwrap();
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .unwrap();
}

const CONNECTIONS: usize = 1000;

/// Number of simultaneous connections. A listener's default backlog of 128 and its SYN queue cannot
/// hold this many.
const BURST: usize = 300;

/// Number of bytes sent over each connection in each direction.
const EACH: usize = 40_000;

/// Number of bytes sent to a client that does not read. All buffers on the path together hold
/// fewer.
const SLOW: usize = 64 * MIB;
