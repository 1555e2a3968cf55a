//! Strangers that hold connections to the daemon during a copy: peers without a trusted key.
//!
//! They run on the daemon's host and connect over its loopback interface. So they take nothing of the
//! cables and have any number of addresses. They are two processes with nice 10: both hosts share the
//! machine's cores, and one process may lack descriptors. A quarter is idle, a quarter sends a byte a
//! second, a quarter garbage, and the last a valid first message, which costs the daemon a key exchange.

use std::{
    fs,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use nicstripe_lab::Host;
use nicstripe_testkit::{
    bench::{Process, Result, Scene, as_nicstripe},
    program,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// Strangers of one process. Each has one connection at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Strangers {
    daemon: SocketAddr,
    /// Second byte N of the peers' source addresses 127.N.x.y. Each address has four peers.
    network: u8,
    count: usize,
    /// File with the first TLS record of a real client.
    hello: PathBuf,
}

impl Strangers {
    /// Returns the strangers that this process is to be; `None` if it is the bench itself.
    pub(crate) fn of_this_process() -> Option<Self> {
        serde_json::from_str(&std::env::var(PART).ok()?).ok()
    }

    /// Starts all strangers on the daemon's host.
    pub(crate) fn begin(scene: &Scene<'_>) -> Result<Vec<Process>> {
        let hello = scene.place.logs().join("hello");
        fs::write(&hello, first_message(scene)?)?;
        let spawn = |number: u8| {
            let strangers = Self {
                daemon: (Ipv4Addr::LOCALHOST, nicstripe::DEFAULT_PORT).into(),
                network: 100 + number,
                count: COUNT / 2,
                hello: hello.clone(),
            };
            let mut command = scene.lab.command(Host::B, "nice");
            command
                .args(["-n", "10"])
                .arg(std::env::current_exe()?)
                .env(PART, serde_json::to_string(&strangers)?);
            let name = format!("strangers-{number}");
            Process::spawn(command, &name, &scene.place.logs())
        };
        Ok(vec![spawn(0)?, spawn(1)?])
    }

    /// Is the strangers until the process is killed.
    pub(crate) fn play(self) -> ExitCode {
        if let Err(error) = self.run() {
            eprintln!("error: {error}");
        }
        ExitCode::FAILURE
    }

    /// Runs all strangers forever. Each stranger reconnects after its connection ends.
    fn run(self) -> Result<()> {
        let hello: &'static [u8] = fs::read(&self.hello)?.leak();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async {
                for number in 0..self.count {
                    let daemon = self.daemon;
                    let address = number as u32 / 4;
                    let from =
                        Ipv4Addr::from([127, self.network, (address >> 8) as u8, address as u8]);
                    tokio::spawn(async move {
                        // Staggers the starts, so that the strangers do not synchronize.
                        tokio::time::sleep(PAUSE.mul_f64(number as f64 / COUNT as f64)).await;
                        loop {
                            // The result does not matter: the daemon rejects every stranger.
                            let _ = visit(number, from, daemon, hello).await;
                            tokio::time::sleep(PAUSE).await;
                        }
                    });
                }
                std::future::pending::<Result<()>>().await
            })
    }
}

/// Opens a connection from the address `from`, and waits until the daemon closes it. `number`
/// selects the behavior: idle, one byte per second, garbage, or a valid first message.
async fn visit(number: usize, from: Ipv4Addr, daemon: SocketAddr, hello: &[u8]) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut tcp = socket.connect(daemon).await?;
    match number % 4 {
        0 => {}
        1 => return trickle(tcp, hello).await,
        2 => {
            tcp.write_all(&GARBAGE[number / 4 % GARBAGE.len()].repeat(64))
                .await?;
        }
        _ => tcp.write_all(hello).await?,
    }
    read_to_end(&mut tcp).await
}

async fn trickle(mut tcp: TcpStream, hello: &[u8]) -> io::Result<()> {
    for byte in hello {
        tcp.write_all(&[*byte]).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    read_to_end(&mut tcp).await
}

async fn read_to_end(tcp: &mut TcpStream) -> io::Result<()> {
    let mut answer = [0; 2048];
    while tcp.read(&mut answer).await? > 0 {}
    Ok(())
}

/// Invalid first messages: another protocol, invalid TLS records, and a truncated record.
const GARBAGE: [&[u8]; 4] = [
    b"GET / HTTP/1.1\r\n",
    &[22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9],
    &[23, 3, 3, 0, 17],
    &[22, 3, 1, 60, 0],
];

/// Returns the time in which a new client copies a small file.
pub(crate) fn small_copy(scene: &Scene<'_>) -> Result<Duration> {
    let small = scene.place.files(Host::A).join("small");
    fs::write(&small, [7; 1000])?;
    let command = scene.lab.command(Host::A, program());
    let mut command = as_nicstripe(command, scene.place, Host::A, "cp");
    command
        .args(["--quiet", "--force"])
        .arg(small)
        .arg(format!("{}:small", scene.peer));
    let begun = Instant::now();
    let mut client = Process::spawn(command, "small", &scene.place.logs())?;
    client.await_end(begun + Duration::from_secs(60))?;
    let took = begun.elapsed();
    client.succeeded()?;
    Ok(took)
}

/// Returns the first TLS record of a real client, which is the same for every daemon.
fn first_message(scene: &Scene<'_>) -> Result<Vec<u8>> {
    let listen = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = scene.lab.on(Host::B, listen)??;
    let home = tempfile::tempdir()?;
    let mut command = scene.lab.command(Host::B, program());
    command.args(["cp", "--quiet", "-P"]);
    command.arg(listener.local_addr()?.port().to_string());
    command
        .args([
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            "127.0.0.1:",
        ])
        .env("NICSTRIPE_HOME", home.path());
    let mut client = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (mut tcp, _) = listener.accept()?;
    tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut hello = vec![0; 5];
    tcp.read_exact(&mut hello)?;
    hello.resize(5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])), 0);
    tcp.read_exact(&mut hello[5..])?;
    client.kill()?;
    client.wait()?;
    Ok(hello)
}

/// Environment variable with [`Strangers`] as JSON.
const PART: &str = "NICSTRIPE_BENCH_PART";

/// Number of all strangers, and the time after which one that was rejected comes again.
const COUNT: usize = 10_000;
const PAUSE: Duration = Duration::from_secs(5);
