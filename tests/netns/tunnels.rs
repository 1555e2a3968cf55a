//! Tests of tunnelled TCP connections over two cables while one of them is cut.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{Daemon, Process, Side, content, tests, trial::Test};

use crate::hosts::{MIB, Rights, side};

pub(crate) const TESTS: &[Test] = tests![
    a_connection_through_forward_survives_one_of_two_cables,
    a_connection_outlasts_an_outage_just_after_another_program_of_its_machine_began
];

/// Lab with a TCP service on host B, and a local port on host A that is forwarded to the service.
struct Stage {
    lab: Arc<Lab>,
    /// Number of bytes that the service and its client have received so far.
    got: Arc<AtomicUsize>,
    port: SocketAddr,
    /// Arguments of `forward` that gave the port.
    arguments: Vec<String>,
    client: Side,
    _server: Side,
    _daemon: Daemon,
    _forward: Process,
}

impl Stage {
    fn new(cable: LinkSpec) -> Self {
        let lab = Arc::new(Lab::builder().links([cable; 2]).build().unwrap());
        let (client, server) = (
            side(&lab, Host::A, Rights::None),
            side(&lab, Host::B, Rights::None),
        );
        let got = Arc::new(AtomicUsize::new(0));
        let target = serve(&lab, &got);
        client.trust(&server, "b", "");
        server.trust(&client, "a", &format!("dial={target}"));
        let daemon = Daemon::start(&server, &[]);
        let (port, forward) = (daemon.port.to_string(), format!("0:{target}"));
        let arguments = ["forward", "-P", &port, "-L", &forward, "10.77.1.2"].map(String::from);
        let forward = client.start(&arguments);
        let line = forward.await_stderr("forwarding 127.0.0.1:");
        let port = line.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            lab,
            got,
            port,
            arguments: arguments.to_vec(),
            client,
            _server: server,
            _daemon: daemon,
            _forward: forward,
        }
    }

    fn connect(&self) -> TcpStream {
        let port = self.port;
        self.lab
            .on(Host::A, || TcpStream::connect(port))
            .unwrap()
            .unwrap()
    }

    fn await_got(&self, bytes: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.got.load(Ordering::Relaxed) < bytes {
            assert!(Instant::now() < deadline, "{bytes} bytes did not arrive");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts the TCP service on host B. The service echoes all received bytes.
fn serve(lab: &Lab, got: &Arc<AtomicUsize>) -> SocketAddr {
    let listener = lab
        .on(Host::B, || TcpListener::bind("127.0.0.1:0"))
        .unwrap()
        .unwrap();
    let (address, got) = (listener.local_addr().unwrap(), got.clone());
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let (mut tcp, got) = (tcp.unwrap(), got.clone());
            thread::spawn(move || {
                let mut bytes = Vec::new();
                read_counting(&mut tcp, &mut bytes, &got).unwrap();
                // Fails if the client has closed the connection early.
                let _ = tcp
                    .write_all(&bytes)
                    .and_then(|()| tcp.shutdown(Shutdown::Write));
            });
        }
    });
    address
}

fn read_counting(tcp: &mut TcpStream, bytes: &mut Vec<u8>, got: &AtomicUsize) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match tcp.read(&mut buffer)? {
            0 => return Ok(()),
            count => {
                bytes.extend_from_slice(&buffer[..count]);
                got.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

fn a_connection_through_forward_survives_one_of_two_cables() {
    // Cuts the cable of the first contact, or the other one, on the way to the service or on the
    // way back.
    for (cable, cut_at) in [
        (0, MOVED / 4),
        (1, MOVED / 4),
        (0, MOVED + MOVED / 4),
        (1, MOVED + MOVED / 4),
    ] {
        let stage = Stage::new(LinkSpec::mbit(200));
        let bytes = content(MOVED);
        let mut tcp = stage.connect();
        let answer = thread::scope(|scope| {
            let (mut writer, got) = (tcp.try_clone().unwrap(), stage.got.clone());
            let bytes = &bytes;
            scope.spawn(move || {
                writer.write_all(bytes).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let reader = scope.spawn(move || {
                let mut answer = Vec::new();
                tcp.set_read_timeout(Some(PATIENCE)).unwrap();
                read_counting(&mut tcp, &mut answer, &got).unwrap();
                answer
            });
            stage.await_got(cut_at);
            stage.lab.cut(cable).unwrap();
            reader.join().unwrap()
        });
        assert!(
            answer == bytes,
            "cable {cable} cut at {cut_at}: {} bytes came back",
            answer.len()
        );
    }
}

fn a_connection_outlasts_an_outage_just_after_another_program_of_its_machine_began() {
    let stage = Stage::new(LinkSpec::mbit(200));
    let mut tcp = stage.connect();
    tcp.write_all(b"before").unwrap();
    stage.await_got(6);
    let other = stage.client.start(&stage.arguments);
    other.await_stderr("forwarding 127.0.0.1:");
    // The daemon watches for 5 s whether the new session replaces the first.
    for sent in 7..=20 {
        tcp.write_all(b".").unwrap();
        stage.await_got(sent);
        thread::sleep(Duration::from_millis(100));
    }
    (0..2).for_each(|cable| stage.lab.cut(cable).unwrap());
    thread::sleep(Duration::from_secs(5));
    (0..2).for_each(|cable| stage.lab.heal(cable).unwrap());
    tcp.write_all(b"after").unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"before..............after");
}

/// Bytes sent in each direction. At 200 Mbit/s, this takes longer than the period of silence after
/// which a path counts as lost.
const MOVED: usize = 48 * MIB;

/// Timeout for bytes to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
