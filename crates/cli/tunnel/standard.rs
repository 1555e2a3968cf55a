//! Standard input and output, as they come.
//!
//! A pipe, which is what ssh gives its ProxyCommand, is read and written by the task itself: a thread between wakes, and is woken, for each
//! block, and with two processors for all made a clone by git a fifth slower. Whether what is no pipe would block cannot be asked, so it has a
//! thread.

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

/// Standard input.
pub(super) enum Input {
    /// By the task.
    Pipe(pipe::Receiver),
    /// By a thread.
    Thread(mpsc::Receiver<io::Result<Vec<u8>>>),
}

impl Input {
    pub(super) fn open() -> io::Result<Self> {
        match reopened(io::stdin(), OpenOptions::new().read(true)).map(pipe::Receiver::from_file) {
            Some(Ok(pipe)) => Ok(Self::Pipe(pipe)),
            _ => read_by_thread().map(Self::Thread),
        }
    }

    /// Reads at most [`BLOCK`] bytes, which `bytes` has; none at the end.
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

/// Standard output.
pub(super) enum Output {
    /// By the task.
    Pipe(pipe::Sender),
    /// By a thread, which says how it ended.
    Thread { blocks: mpsc::Sender<Vec<u8>>, written: oneshot::Receiver<io::Result<()>> },
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
                // It ends early where it fails.
                Err(_) => written.await.unwrap_or(Ok(())).and(Err(io::ErrorKind::BrokenPipe.into())),
            },
        }
    }

    /// Writes what is left and closes it, as whoever reads it may wait for that.
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

/// Opens a pipe anew, and gives it more room: whether the old opening waits is also the matter of others who have it. `None` for what is no
/// pipe, or not ours to open.
fn reopened(stream: impl AsFd, options: &mut OpenOptions) -> Option<File> {
    let stream = unbuffered(stream).ok()?;
    if !stream.metadata().ok()?.file_type().is_fifo() {
        return None;
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let pipe = options.custom_flags(flags).open(format!("/proc/self/fd/{}", stream.as_raw_fd())).ok()?;
    // Where a user may have no more, it stays as it is.
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
        // A socket may be standard input as well; what is none has to be closed, by something else in its place.
        let _ = shutdown(&file, Shutdown::Write);
        close_standard_output();
        drop((file, blocks));
        let _ = done.send(result);
    };
    thread::Builder::new().spawn(run)?;
    Ok(Output::Thread { blocks: sender, written })
}

/// Returns a standard stream without the buffers and locks of the standard library.
fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// Bytes that are read or written at once.
pub(super) const BLOCK: usize = 64 << 10;

/// Blocks that wait for either thread.
const BLOCKS: usize = 4;

/// Bytes that a pipe may hold: four times what Linux gives it (pipe(7)), so that its two ends wake each other less often.
const PIPE: usize = 256 << 10;
