//! `nicstripe dial`: one connection, on standard input and output.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::fd::AsFd,
    thread,
};

use clap::Args;
use nicstripe::{Client, Tunnel};
use rustix::{
    net::{Shutdown, shutdown},
    stdio::dup2_stdout,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split},
    sync::{mpsc, oneshot},
};

use crate::{failure::Failure, logging, road::Road, runtime, signals::Signals, terminal::Terminal};

/// Connect standard input and output with a TCP service at a machine, over every cable
///
/// For ssh: ssh -o ProxyCommand='nicstripe dial PEER %h:%p' localhost. The service is looked up and connected to by the daemon on PEER, whose
/// line for this machine has to allow it, word for word: dial=HOST:PORT in its peers file. Ends when both ways have ended.
#[derive(Debug, Args)]
pub(crate) struct Dial {
    /// The machine that runs `nicstripe serve`, by name or address
    #[arg(value_name = "PEER")]
    peer: String,

    /// The service as PEER calls it, such as localhost:22
    #[arg(value_name = "HOST:PORT")]
    target: String,

    #[command(flatten)]
    road: Road,
}

impl Dial {
    /// Connects, and moves bytes until both ways have ended.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let keeper = self.road.keeper()?;
        let runtime = runtime::threaded()?;
        let result = runtime.block_on(async {
            let mut signals = Signals::take()?;
            let talk = async {
                let client = self.road.connect(&self.peer, self.road.port(None), keeper).await?;
                let result = self.talk(&client).await;
                // What was written arrives before the session ends.
                client.close().await;
                result
            };
            tokio::select! {
                result = talk => result,
                stop = signals.stop() => Err(Failure::Interrupted { stop, resumable: false }),
            }
        });
        // A read of standard input may last for ever.
        runtime.shutdown_background();
        result
    }

    async fn talk(&self, client: &Client) -> Result<(), Failure> {
        let (from_peer, to_peer) = split(client.dial(&self.target).await?);
        let (sent, received) = (self.send(to_peer), self.receive(from_peer));
        tokio::try_join!(sent, received).map(|_| ())
    }

    async fn send(&self, mut to_peer: WriteHalf<Tunnel>) -> Result<(), Failure> {
        let mut input = read_standard_input()?;
        while let Some(bytes) = input.recv().await {
            let bytes = bytes.map_err(|source| Failure::Source { path: "-".into(), source })?;
            to_peer.write_all(&bytes).await.map_err(|source| self.broken(source))?;
        }
        to_peer.shutdown().await.map_err(|source| self.broken(source))
    }

    async fn receive(&self, mut from_peer: ReadHalf<Tunnel>) -> Result<(), Failure> {
        let (output, written) = write_standard_output()?;
        loop {
            let mut bytes = vec![0; BLOCK];
            let count = from_peer.read(&mut bytes).await.map_err(|source| self.broken(source))?;
            bytes.truncate(count);
            // One that has ended has said why.
            if count == 0 || output.send(bytes).await.is_err() {
                break;
            }
        }
        drop(output);
        written.await.unwrap_or(Ok(())).map_err(Failure::Output)
    }

    fn broken(&self, source: io::Error) -> Failure {
        Failure::Tunnel { target: self.target.clone(), source }
    }
}

/// Reads standard input on a thread of its own.
fn read_standard_input() -> Result<mpsc::Receiver<io::Result<Vec<u8>>>, Failure> {
    let mut file = unbuffered(io::stdin()).map_err(|source| Failure::Source { path: "-".into(), source })?;
    let (sender, input) = mpsc::channel(BLOCKS);
    let run = move || {
        loop {
            let mut bytes = vec![0; BLOCK];
            let read = match file.read(&mut bytes) {
                Ok(0) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read,
            };
            let is_over = read.is_err();
            let read = read.map(|count| {
                bytes.truncate(count);
                bytes
            });
            if sender.blocking_send(read).is_err() || is_over {
                return;
            }
        }
    };
    thread::Builder::new().spawn(run).map_err(Failure::Runtime)?;
    Ok(input)
}

/// Writes standard output on a thread of its own, and closes it at the end, as whoever reads it may wait for that.
#[expect(clippy::type_complexity, reason = "two ends of the same thread")]
fn write_standard_output() -> Result<(mpsc::Sender<Vec<u8>>, oneshot::Receiver<io::Result<()>>), Failure> {
    let mut file = unbuffered(io::stdout()).map_err(Failure::Output)?;
    let (output, mut blocks) = mpsc::channel::<Vec<u8>>(BLOCKS);
    let (done, written) = oneshot::channel();
    let run = move || {
        let mut write = || {
            while let Some(bytes) = blocks.blocking_recv() {
                file.write_all(&bytes)?;
            }
            Ok(())
        };
        let result = write();
        // A socket may be standard input as well; what is none has to be closed, by something else in its place.
        let _ = shutdown(&file, Shutdown::Write);
        if let Ok(nothing) = OpenOptions::new().write(true).open("/dev/null") {
            let _ = dup2_stdout(nothing);
        }
        drop((file, blocks));
        let _ = done.send(result);
    };
    thread::Builder::new().spawn(run).map_err(Failure::Runtime)?;
    Ok((output, written))
}

/// Returns a standard stream without the buffers and locks of the standard library.
fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// Bytes that are read or written at once.
const BLOCK: usize = 64 << 10;

/// Blocks that wait for either thread.
const BLOCKS: usize = 4;
