//! Generators of TCP and UDP traffic between the hosts of a lab, within one process.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab};
use socket2::SockRef;

/// TCP stream that sends at full rate over one link until it is dropped.
pub struct Flow {
    received: Arc<AtomicU64>,
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    pub fn start(lab: &Lab, link: usize, from: Host) -> Self {
        let (sender, receiver) = connect(lab, link, from).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let ends = [sender.try_clone().unwrap(), receiver.try_clone().unwrap()];
        let counter = Arc::clone(&received);
        let threads = vec![
            thread::spawn(move || send(sender)),
            thread::spawn(move || receive(receiver, &counter)),
        ];
        Self {
            received,
            ends,
            threads,
        }
    }

    pub fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the payload rate that each flow receives during `window`, in bits per second.
pub fn goodput(flows: &[Flow], window: Duration) -> Vec<f64> {
    let before: Vec<u64> = flows.iter().map(Flow::received_bytes).collect();
    let start = Instant::now();
    thread::sleep(window);
    let seconds = start.elapsed().as_secs_f64();
    flows
        .iter()
        .zip(before)
        .map(|(flow, before)| (flow.received_bytes() - before) as f64 * 8.0 / seconds)
        .collect()
}

/// Opens a TCP connection over one link. Returns the sockets of host `from` and of its peer.
fn connect(lab: &Lab, link: usize, from: Host) -> io::Result<(TcpStream, TcpStream)> {
    let to = from.peer();
    let listener = lab
        .on(to, || TcpListener::bind((lab.address(to, link), 0)))
        .unwrap()?;
    let address = listener.local_addr()?;
    let sender = lab
        .on(from, || TcpStream::connect_timeout(&address, DEADLINE))
        .unwrap()?;
    let (receiver, _) = listener.accept()?;
    for end in [&sender, &receiver] {
        end.set_read_timeout(Some(DEADLINE))?;
        end.set_write_timeout(Some(DEADLINE))?;
    }
    Ok((sender, receiver))
}

fn send(mut stream: TcpStream) {
    let data = vec![0x5a; 256 << 10];
    while stream.write_all(&data).is_ok() {}
}

fn receive(mut stream: TcpStream, received: &AtomicU64) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Sends `len` bytes with the value `pattern` over one link. Returns the bytes that the peer
/// received.
pub fn carry(lab: &Lab, link: usize, from: Host, len: usize, pattern: u8) -> Vec<u8> {
    let (mut sender, mut receiver) = connect(lab, link, from).unwrap();
    let sending = thread::spawn(move || sender.write_all(&vec![pattern; len]).unwrap());
    let mut arrived = Vec::new();
    receiver.read_to_end(&mut arrived).unwrap();
    sending.join().unwrap();
    arrived
}

/// UDP sockets of both hosts, connected to each other over one link.
pub struct Pair {
    a: UdpSocket,
    b: UdpSocket,
    next: u64,
}

impl Pair {
    /// Creates a pair over one link. Both hosts resolve each other's hardware address first, so
    /// that each direction can be tested separately.
    pub fn new(lab: &Lab, link: usize) -> Self {
        let [a, b] = Host::ALL.map(|host| lab.address(host, link).into());
        Self::between(lab, a, b)
    }

    /// Creates a pair between any two addresses of the hosts; otherwise like [`Pair::new`].
    pub fn between(lab: &Lab, a: IpAddr, b: IpAddr) -> Self {
        let bind = |host, address| {
            lab.on(host, || UdpSocket::bind(SocketAddr::new(address, 0)))
                .unwrap()
                .unwrap()
        };
        Self::connect(bind(Host::A, a), bind(Host::B, b))
    }

    /// Creates a pair in which each socket is bound to an interface (A's on link `a`, B's on link
    /// `b`) and to its IPv4 address.
    pub fn pinned(lab: &Lab, a: usize, b: usize) -> Self {
        let bind = |host, link| {
            let socket = lab
                .on(host, || UdpSocket::bind((lab.address(host, link), 0)))
                .unwrap()
                .unwrap();
            SockRef::from(&socket)
                .bind_device(Some(lab.interface(link).as_bytes()))
                .unwrap();
            socket
        };
        Self::connect(bind(Host::A, a), bind(Host::B, b))
    }

    fn connect(a: UdpSocket, b: UdpSocket) -> Self {
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        let mut pair = Self { a, b, next: 0 };
        pair.expect([true, true]);
        pair
    }

    pub fn sockets(&self) -> [&UdpSocket; 2] {
        [&self.a, &self.b]
    }

    /// Panics unless datagrams from A and from B arrive or are lost as `passes` states for each
    /// host.
    pub fn expect(&mut self, passes: [bool; 2]) {
        for (from, passes) in Host::ALL.into_iter().zip(passes) {
            let (attempts, said) = if passes {
                (PATIENT, "is lost")
            } else {
                (1, "comes through")
            };
            let came = (0..attempts).any(|_| {
                // The kernel may refuse to send without a carrier, which is a valid result too.
                let _ = self.send(from, MIN_LEN);
                self.comes_through(from)
            });
            assert!(came == passes, "data from {from} {said}");
        }
    }

    /// Sends a datagram with a payload of `len` bytes, at least 8. Returns true if it arrives.
    /// Panics if the kernel refuses to send it.
    pub fn passes(&mut self, from: Host, len: usize) -> bool {
        self.send(from, len).unwrap();
        self.comes_through(from)
    }

    fn send(&mut self, from: Host, len: usize) -> io::Result<usize> {
        self.next += 1;
        let mut bytes = vec![0; len];
        bytes[..MIN_LEN].copy_from_slice(&self.next.to_ne_bytes());
        self.socket(from).send(&bytes)
    }

    /// Returns true if the last datagram from host `from` arrives within 300 ms. Ignores earlier
    /// datagrams.
    fn comes_through(&self, from: Host) -> bool {
        let receiver = self.socket(from.peer());
        let mut bytes = [0; MIN_LEN];
        receiver
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        while receiver.recv(&mut bytes).is_ok() {
            if u64::from_ne_bytes(bytes) == self.next {
                return true;
            }
        }
        false
    }

    fn socket(&self, host: Host) -> &UdpSocket {
        match host {
            Host::A => &self.a,
            Host::B => &self.b,
        }
    }

    /// Sends a burst of `count` datagrams of `len` bytes from A to B. Returns the time between the
    /// first and the last arrival at B.
    pub fn train(&self, count: usize, len: usize) -> Duration {
        let mut buffer = vec![0; len];
        self.b.set_read_timeout(Some(DEADLINE)).unwrap();
        for _ in 0..count {
            self.a.send(&buffer).unwrap();
        }
        self.b.recv(&mut buffer).unwrap();
        let first = Instant::now();
        for _ in 1..count {
            self.b.recv(&mut buffer).unwrap();
        }
        first.elapsed()
    }
}

/// Length of a datagram's sequence number in bytes, which is the minimum payload.
const MIN_LEN: usize = 8;
/// Number of attempts of 300 ms each. The kernel repeats an unanswered neighbour solicitation after
/// one second.
const PATIENT: usize = 10;
/// Timeout for a datagram or a connection.
const DEADLINE: Duration = Duration::from_secs(10);
