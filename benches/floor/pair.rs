//! The minimal program: sender and receiver of one file, with one connection and one thread per
//! cable at each end.
//!
//! The sender takes the next chunk, reads it, hashes it, seals it and sends it. The receiver does
//! the reverse, and compares the digests. There is no handshake, no journal, no resume, no progress
//! and no sync.

use std::{
    env,
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    panic,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use clap::{Parser, ValueEnum};
use nicstripe_testkit::bench::LISTENING;
use rustix::net::{AddressFamily, RecvFlags, SocketType, bind, connect, recv, socket};

use crate::record::{CHUNK, Cipher, FRAME, Head, Opener, Sealer};

/// Cipher of the pair: that of nicstripe.
const CIPHER: Cipher = Cipher::Aes128Gcm;

/// Command line of one end, which the testkit's `Contender::Floor` writes.
#[derive(Debug, Parser)]
pub(crate) struct Part {
    /// End that this process plays
    #[arg(long, value_enum)]
    part: End,

    /// File to send, or to create
    #[arg(long)]
    file: PathBuf,

    /// Size of the file in bytes
    #[arg(long)]
    size: u64,

    /// Addresses of this end, one per cable
    #[arg(long, value_delimiter = ',')]
    own: Vec<Ipv4Addr>,

    /// Addresses of the other end, one per cable
    #[arg(long, value_delimiter = ',')]
    peer: Vec<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum End {
    Sender,
    Receiver,
}

impl Part {
    /// Returns the part of this process; `None` if the process is the bench itself.
    pub(crate) fn of_this_process() -> Option<Self> {
        let first = env::args().nth(1)?;
        (first == "--part").then(Self::parse)
    }

    /// Sends or receives the file.
    pub(crate) fn play(&self) -> ExitCode {
        let played = match self.part {
            End::Sender => self.send(),
            End::Receiver => self.receive(),
        };
        match played {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn send(&self) -> io::Result<()> {
        let file = File::open(&self.file)?;
        let next = AtomicU64::new(0);
        let sockets = self.own.iter().zip(&self.peer);
        let sockets = sockets.map(|(own, peer)| connect_from(*own, *peer));
        each(sockets.collect::<io::Result<_>>()?, |number, socket| {
            self.send_chunks(&file, &next, number, socket)
        })
    }

    /// Sends chunks over one connection until none is left, and waits until they are written.
    fn send_chunks(
        &self,
        file: &File,
        next: &AtomicU64,
        number: u32,
        mut socket: TcpStream,
    ) -> io::Result<()> {
        let mut sealer = Sealer::new(CIPHER, number)?;
        let (mut chunk, mut frame) = (vec![0; CHUNK], vec![0; FRAME]);
        loop {
            let offset = next.fetch_add(1, Ordering::Relaxed) * CHUNK as u64;
            if offset >= self.size {
                break;
            }
            // Past the end of the file, the buffer has older bytes, which the receiver ignores.
            let len = (self.size - offset).min(CHUNK as u64);
            let bytes = &mut chunk[..usize::try_from(len).unwrap_or(CHUNK)];
            file.read_exact_at(bytes, offset)?;
            let hash = blake3::hash(bytes).into();
            sealer.seal_frame(Head { offset, len, hash }, &chunk, &mut frame)?;
            socket.write_all(&frame)?;
        }
        socket.shutdown(Shutdown::Write)?;
        socket.read_exact(&mut [0])
    }

    fn receive(&self) -> io::Result<()> {
        let file = File::create(&self.file)?;
        let listeners = self
            .own
            .iter()
            .map(|own| TcpListener::bind((*own, PORT)))
            .collect::<io::Result<Vec<_>>>()?;
        eprintln!("{LISTENING} port {PORT}");
        let sockets = listeners
            .iter()
            .map(|listener| Ok(listener.accept()?.0))
            .collect::<io::Result<_>>()?;
        each(sockets, |number, socket| {
            self.receive_chunks(&file, number, socket)
        })
    }

    /// Writes the chunks of one connection until its end, and confirms them.
    fn receive_chunks(&self, file: &File, number: u32, mut socket: TcpStream) -> io::Result<()> {
        let mut opener = Opener::new(CIPHER, number)?;
        let (mut frame, mut chunk) = (vec![0; FRAME], vec![0; CHUNK + 1]);
        while receive_whole(&socket, &mut frame)? {
            let head = opener.open_frame(&frame, &mut chunk)?;
            let len = usize::try_from(head.len).unwrap_or(CHUNK).min(CHUNK);
            if blake3::hash(&chunk[..len]) != head.hash {
                let offset = head.offset;
                return Err(io::Error::other(format!("chunk at {offset} was altered")));
            }
            file.write_all_at(&chunk[..len], head.offset)?;
        }
        socket.write_all(&[1])
    }
}

/// Fills `bytes`, mostly by one call of recv(2). Returns false at the end of the stream.
pub(crate) fn receive_whole(mut socket: &TcpStream, bytes: &mut [u8]) -> io::Result<bool> {
    let (received, _) = recv(socket, &mut *bytes, RecvFlags::WAITALL)?;
    if received == 0 {
        return Ok(false);
    }
    // A signal ends a call early.
    socket.read_exact(&mut bytes[received..])?;
    Ok(true)
}

/// Runs one thread per socket. Returns the first error.
fn each(
    sockets: Vec<TcpStream>,
    work: impl Fn(u32, TcpStream) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(sockets)
            .map(|(number, socket)| scope.spawn(move || work(number, socket)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    })
}

/// Connects to the receiver over the cable with these addresses.
fn connect_from(own: Ipv4Addr, peer: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(own, 0))?;
    connect(&socket, &SocketAddrV4::new(peer, PORT))?;
    Ok(socket.into())
}

/// TCP port of the receiver, in the lab.
const PORT: u16 = 7750;
