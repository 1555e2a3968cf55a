//! Unbuffered standard input and output for an async task.
//!
//! The task reads and writes pipes directly, and ssh gives its ProxyCommand pipes. A thread in
//! between would wake, and be woken, for each block; on a machine with two CPUs that made a git
//! clone a fifth slower. Other types of file are read and written by a thread, because the kernel
//! does not report if they would block.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    thread,
};

use rustix::{
    fs::OFlags,
    net::{Shutdown, shutdown},
    pipe::fcntl_setpipe_size,
    stdio::dup2_stdout,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::{mpsc, oneshot},
};

use crate::process::streams::unbuffered;

pub(super) enum Input {
    /// Standard input is a pipe, which the task reads.
    Pipe(pipe::Receiver),
    /// Standard input is another file, which a thread reads.
    Thread(mpsc::Receiver<io::Result<Vec<u8>>>),
}

impl Input {
    pub(super) fn open() -> io::Result<Self> {
        match reopened(io::stdin(), OpenOptions::new().read(true)).map(pipe::Receiver::from_file) {
            Some(Ok(pipe)) => Ok(Self::Pipe(pipe)),
            _ => read_by_thread().map(Self::Thread),
        }
    }

    /// Reads up to [`BLOCK`] bytes into `bytes`, which must have that size. Returns 0 at the end of
    /// the input.
    pub(super) async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(bytes).await,
            Self::Thread(input) => {
                let read = input.recv().await.unwrap_or(Ok(Vec::new()))?;
                bytes[..read.len()].copy_from_slice(&read);
                Ok(read.len())
            }
        }
    }
}

pub(super) enum Output {
    /// Standard output is a pipe, which the task writes.
    Pipe(pipe::Sender),
    /// Standard output is another file, which a thread writes. It reports its result at the end.
    Thread {
        blocks: mpsc::Sender<Vec<u8>>,
        written: oneshot::Receiver<io::Result<()>>,
    },
}

impl Output {
    pub(super) fn open() -> io::Result<Self> {
        match reopened(io::stdout(), OpenOptions::new().write(true)).map(pipe::Sender::from_file) {
            Some(Ok(pipe)) => Ok(Self::Pipe(pipe)),
            _ => write_by_thread(),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Thread { blocks, written } => match blocks.send(bytes.to_vec()).await {
                Ok(()) => Ok(()),
                // The thread ends early after a failed write.
                Err(_) => written
                    .await
                    .unwrap_or(Ok(()))
                    .and(Err(io::ErrorKind::BrokenPipe.into())),
            },
        }
    }

    /// Flushes and closes standard output, since its reader may wait for the end.
    pub(super) async fn finish(self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => {
                drop(pipe);
                close_standard_output();
                Ok(())
            }
            Self::Thread { blocks, written } => {
                drop(blocks);
                written.await.unwrap_or(Ok(()))
            }
        }
    }
}

/// Reopens a pipe as non-blocking and enlarges its buffer. `None` if the file is no pipe, or may
/// not be opened.
///
/// The pipe needs a new open file description, because the non-blocking flag would affect other
/// processes that share the old one.
fn reopened(stream: impl AsFd, options: &mut OpenOptions) -> Option<File> {
    let stream = unbuffered(stream).ok()?;
    if !stream.metadata().ok()?.file_type().is_fifo() {
        return None;
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let pipe = options
        .custom_flags(flags)
        .open(format!("/proc/self/fd/{}", stream.as_raw_fd()))
        .ok()?;
    // An unprivileged user may have reached the limit on pipe memory; the pipe keeps its size.
    let _ = fcntl_setpipe_size(&pipe, PIPE);
    Some(pipe)
}

fn close_standard_output() {
    if let Ok(nothing) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(nothing);
    }
}

fn read_by_thread() -> io::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let mut file = unbuffered(io::stdin())?;
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
    thread::Builder::new().spawn(run)?;
    Ok(input)
}

fn write_by_thread() -> io::Result<Output> {
    let mut file = unbuffered(io::stdout())?;
    let (sender, mut blocks) = mpsc::channel::<Vec<u8>>(BLOCKS);
    let (done, written) = oneshot::channel();
    let run = move || {
        let mut write = || {
            while let Some(bytes) = blocks.blocking_recv() {
                file.write_all(&bytes)?;
            }
            Ok(())
        };
        let result = write();
        // A socket may be standard input as well, so that it is shut down; any other file is closed
        // by replacing it.
        let _ = shutdown(&file, Shutdown::Write);
        close_standard_output();
        drop((file, blocks));
        let _ = done.send(result);
    };
    thread::Builder::new().spawn(run)?;
    Ok(Output::Thread {
        blocks: sender,
        written,
    })
}

/// Maximum bytes of one read from standard input or one write to standard output.
pub(super) const BLOCK: usize = 64 << 10;

/// Maximum number of blocks queued to or from a thread.
const BLOCKS: usize = 4;

/// Buffer size of a pipe in bytes: four times Linux's default (pipe(7)), so that its reader and
/// writer wake each other less often.
const PIPE: usize = 256 << 10;
