//! Each step of a copy alone, in one thread and in memory.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    panic, thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::bench::{Place, Result, Sample, Spread, Table, cell};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    pair::receive_whole,
    record::{CHUNK, Cipher, Opener, RECORDS, Sealer},
};

/// Measures each step `runs` times with `size` bytes, in turns after a round to warm up, and returns
/// the table of results.
pub(crate) fn bench(place: &Place, size: u64, runs: u32) -> Result<Table> {
    let mut rig = Rig::build(place, size)?;
    rig.round()?;
    let rounds = (0..runs).map(|_| rig.round()).collect::<Result<Vec<_>>>()?;
    rig.remove()?;
    Ok(table(&rounds))
}

/// Costs of all steps, in the order of [`STEPS`].
type Round = [Cost; STEPS.len()];

/// Cost of one step.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// User and system time of the thread in seconds per 10⁹ bytes.
    cpu: f64,
    /// 10⁹ bytes per second of wall-clock time.
    rate: f64,
}

impl Cost {
    /// Measures `work` with `size` bytes in this thread.
    fn of(size: u64, work: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let (cpu, begun) = (thread_cpu(), Instant::now());
        work()?;
        let (cpu, wall) = (thread_cpu().saturating_sub(cpu), begun.elapsed());
        let gigabytes = size as f64 / 1e9;
        Ok(Self {
            cpu: cpu.as_secs_f64() / gigabytes,
            rate: gigabytes / wall.as_secs_f64(),
        })
    }
}

/// Files, buffers and sockets of the steps.
struct Rig {
    /// Bytes of a measurement, a multiple of [`CHUNK`].
    size: u64,
    sample: Sample,
    source: File,
    target: File,
    chunk: Vec<u8>,
    /// Buffer of opened records, one byte longer than a chunk.
    opened: Vec<u8>,
    records: Vec<u8>,
    /// Sending and receiving end of a connection over a cable.
    cable: [TcpStream; 2],
    /// Sending and receiving end of a connection over the loopback interface.
    loopback: [TcpStream; 2],
    /// Dropped last: the sockets are in its hosts.
    _lab: Lab,
}

impl Rig {
    fn build(place: &Place, size: u64) -> Result<Self> {
        let size = size.next_multiple_of(CHUNK as u64);
        let sample = Sample::incompressible(place.files(Host::A).join("steps.bin"), size)?;
        let source = File::open(&sample.path)?;
        let mut chunk = vec![0; CHUNK];
        source.read_exact_at(&mut chunk, 0)?;
        let lab = Lab::builder().link(LinkSpec::unshaped()).build()?;
        let far = lab.address(Host::B, 0);
        Ok(Self {
            size,
            sample,
            source,
            target: File::create(place.files(Host::B).join(TARGET))?,
            chunk,
            opened: vec![0; CHUNK + 1],
            records: vec![0; RECORDS],
            cable: connection(&lab, Host::B, far)?,
            loopback: connection(&lab, Host::A, Ipv4Addr::LOCALHOST)?,
            _lab: lab,
        })
    }

    /// Measures all steps once.
    fn round(&mut self) -> Result<Round> {
        let [to_cable, from_cable] = self.send_and_receive(&self.cable)?;
        let [to_loopback, from_loopback] = self.send_and_receive(&self.loopback)?;
        let [seal_256, open_256] = self.seal_and_open(Cipher::Aes256Gcm)?;
        let [seal_128, open_128] = self.seal_and_open(Cipher::Aes128Gcm)?;
        let warm = self.write()?;
        self.target.set_len(0)?;
        let new = self.write()?;
        Ok([
            self.read()?,
            self.hash()?,
            seal_128,
            to_cable,
            from_cable,
            open_128,
            new,
            warm,
            seal_256,
            open_256,
            to_loopback,
            from_loopback,
        ])
    }

    /// Removes the files.
    fn remove(self) -> Result<()> {
        self.target.set_len(0)?;
        self.sample.remove()
    }

    fn read(&mut self) -> io::Result<Cost> {
        let Self {
            size,
            source,
            chunk,
            ..
        } = self;
        Cost::of(*size, || {
            offsets(*size).try_for_each(|offset| source.read_exact_at(chunk, offset))
        })
    }

    fn hash(&self) -> io::Result<Cost> {
        Cost::of(self.size, || {
            for _ in offsets(self.size) {
                black_box(blake3::hash(black_box(&self.chunk)));
            }
            Ok(())
        })
    }

    fn seal_and_open(&mut self, cipher: Cipher) -> io::Result<[Cost; 2]> {
        let Self {
            size,
            chunk,
            opened,
            records,
            ..
        } = self;
        let mut sealer = Sealer::new(cipher, 0)?;
        let sealed = Cost::of(*size, || {
            offsets(*size).try_for_each(|_| sealer.seal_chunk(chunk, records))
        })?;
        Sealer::new(cipher, 0)?.seal_chunk(chunk, records)?;
        let mut opener = Opener::new(cipher, 0)?;
        let open = Cost::of(*size, || {
            offsets(*size).try_for_each(|_| {
                opener.rewind();
                opener.open_chunk(records, opened)
            })
        })?;
        match opened[..CHUNK] == chunk[..] {
            true => Ok([sealed, open]),
            false => Err(io::Error::other("opened records differ from the chunk")),
        }
    }

    fn write(&self) -> io::Result<Cost> {
        Cost::of(self.size, || {
            offsets(self.size).try_for_each(|offset| self.target.write_all_at(&self.chunk, offset))
        })
    }

    /// Measures the sending and the receiving thread of a connection.
    fn send_and_receive(&self, [near, far]: &[TcpStream; 2]) -> io::Result<[Cost; 2]> {
        let size = self.size;
        let receive = move || {
            let mut bytes = vec![0; CHUNK];
            Cost::of(size, || {
                offsets(size).try_for_each(|_| match receive_whole(far, &mut bytes)? {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                })
            })
        };
        thread::scope(|scope| {
            let receiver = scope.spawn(receive);
            let sent = Cost::of(size, || {
                let mut near = near;
                offsets(size).try_for_each(|_| near.write_all(&self.chunk))
            })?;
            let received = receiver
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic))?;
            Ok([sent, received])
        })
    }
}

/// Connects host A to `address`, which is one of `host`.
fn connection(lab: &Lab, host: Host, address: Ipv4Addr) -> Result<[TcpStream; 2]> {
    let address = (IpAddr::from(address), 0);
    let listener = lab.on(host, || TcpListener::bind(address))??;
    let address = listener.local_addr()?;
    let near = lab.on(Host::A, || TcpStream::connect(address))??;
    Ok([near, listener.accept()?.0])
}

/// Returns the offsets of the chunks of `size` bytes.
fn offsets(size: u64) -> impl Iterator<Item = u64> {
    (0..size).step_by(CHUNK)
}

/// Returns the user and system time of this thread.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn table(rounds: &[Round]) -> Table {
    let mut table = Table::default();
    for (index, step) in STEPS.iter().enumerate() {
        table.row([
            cell("step", step.name),
            cell(
                "CPU s/GB",
                Spread::of(rounds, |round| round[index].cpu).print(3),
            ),
            cell(
                "GB/s",
                Spread::of(rounds, |round| round[index].rate).print(2),
            ),
        ]);
    }
    for (name, ends) in [
        ("sender", [1.0, 0.0]),
        ("receiver", [0.0, 1.0]),
        ("both", [1.0, 1.0]),
    ] {
        let times = |step: &Step| ends[0] * step.times[0] + ends[1] * step.times[1];
        let sum = |round: &Round| -> f64 {
            let costs = round.iter().zip(&STEPS);
            costs.map(|(cost, step)| cost.cpu * times(step)).sum()
        };
        table.row([
            cell("step", format!("sum, {name}")),
            cell("CPU s/GB", Spread::of(rounds, sum).print(3)),
        ]);
    }
    table
}

/// Step of a copy.
struct Step {
    name: &'static str,
    /// Number of times that the sender and the receiver of the pair do this step per byte.
    times: [f64; 2],
}

impl Step {
    const fn new(name: &'static str, times: [f64; 2]) -> Self {
        Self { name, times }
    }
}

/// Steps in the order of the table. Those of the pair come first.
const STEPS: [Step; 12] = [
    Step::new("read", [1.0, 0.0]),
    Step::new("hash, BLAKE3", [1.0, 1.0]),
    Step::new("seal, AES-128-GCM", [1.0, 0.0]),
    Step::new("copy to socket, cable", [1.0, 0.0]),
    Step::new("copy from socket, cable", [0.0, 1.0]),
    Step::new("open, AES-128-GCM", [0.0, 1.0]),
    Step::new("write, new pages", [0.0, 1.0]),
    Step::new("write, warm pages", [0.0, 0.0]),
    Step::new("seal, AES-256-GCM", [0.0, 0.0]),
    Step::new("open, AES-256-GCM", [0.0, 0.0]),
    Step::new("copy to socket, loopback", [0.0, 0.0]),
    Step::new("copy from socket, loopback", [0.0, 0.0]),
];

/// Name of the file that the step `write` fills.
const TARGET: &str = "steps-target.bin";
