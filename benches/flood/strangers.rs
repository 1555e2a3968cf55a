//! Connections from strangers: peers without a trusted key.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use nicstripe_testkit::bench::Result;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// Group of simulated peers without a trusted key. All run in one process, and each has one
/// connection at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Strangers {
    pub(crate) daemon: SocketAddr,
    /// Second byte N of the peers' source addresses 127.N.x.y. Each address has four peers.
    pub(crate) network: u8,
    pub(crate) count: usize,
    /// Pause of a stranger between two connections.
    pub(crate) pause: Duration,
    /// File with the first TLS record of a real client.
    pub(crate) hello: PathBuf,
}

impl Strangers {
    /// Runs all strangers forever. Each stranger reconnects after its connection ends.
    pub(crate) fn run(self) -> Result<()> {
        let hello: &'static [u8] = fs::read(&self.hello)?.leak();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async {
                for number in 0..self.count {
                    let (daemon, pause) = (self.daemon, self.pause);
                    let address = number as u32 / 4;
                    let from =
                        Ipv4Addr::from([127, self.network, (address >> 8) as u8, address as u8]);
                    tokio::spawn(async move {
                        // Staggers the starts, so that the strangers do not synchronize.
                        tokio::time::sleep(pause.mul_f64(number as f64 / 10_000.0)).await;
                        loop {
                            // The result does not matter: the daemon rejects every stranger.
                            let _ = visit(number, from, daemon, hello).await;
                            tokio::time::sleep(pause).await;
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
