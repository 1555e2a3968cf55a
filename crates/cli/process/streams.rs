//! Standard input and output without the buffers of the standard library.
//!
//! A task reads and writes pipes directly. A thread in between would wake, and be woken, for each
//! block; on a machine with two CPUs that made a git clone through `dial` a fifth slower. The same
//! goes for sockets that the starting program has made non-blocking, such as the one that rsync gives
//! to its remote shell. Other types of file are read and written by a thread, because the
//! kernel does not report if they would block.

use std::{
    fs::{File, OpenOptions},
    io::{self, stderr, stdin, stdout},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    pin::Pin,
    task::{Context, Poll},
};

use nicstripe_link::was_closed_at_start;
use rustix::{
    fs::{OFlags, fcntl_getfl},
    net::{Shutdown, shutdown},
    pipe::fcntl_setpipe_size,
    stdio::dup2_stdout,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
};

use crate::failure::{Fault, usage};

pub(crate) fn check_input() -> Result<(), Fault> {
    check(rustix::stdio::raw_stdin(), "standard input")
}

pub(crate) fn check_output() -> Result<(), Fault> {
    check(rustix::stdio::raw_stdout(), "standard output")
}

/// Returns an error for a closed stream, in whose place the Rust runtime has opened `/dev/null`.
fn check(stream: i32, name: &str) -> Result<(), Fault> {
    match was_closed_at_start(stream) {
        true => Err(usage(format!(
            "{name} is closed: expected a file, a pipe or /dev/null"
        ))),
        false => Ok(()),
    }
}

/// Duplicates a standard stream, to bypass the buffer and lock of the standard library. A thread
/// that waits for the stream would hold the lock forever.
pub(crate) fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// Buffer size of a pipe in bytes, the maximum for unprivileged users (`/proc/sys/fs/pipe-max-size`):
/// reduces wake-ups of its reader and writer.
pub(crate) const PIPE: usize = 1 << 20;

/// Opens standard input for a task. If it is a pipe, sets the size of its buffer in bytes. Must be
/// called inside a runtime.
pub(crate) fn input(pipe_size: usize) -> io::Result<Pin<Box<dyn AsyncRead + Send>>> {
    reader(stdin(), pipe_size)
}

/// Opens standard output, like [`input`].
pub(crate) fn output(pipe_size: usize) -> io::Result<Pin<Box<dyn AsyncWrite + Send>>> {
    writer(stdout(), pipe_size)
}

/// Opens standard error, like [`input`].
pub(crate) fn errors(pipe_size: usize) -> io::Result<Pin<Box<dyn AsyncWrite + Send>>> {
    writer(stderr(), pipe_size)
}

fn reader(stream: impl AsFd, pipe_size: usize) -> io::Result<Pin<Box<dyn AsyncRead + Send>>> {
    let file = unbuffered(stream)?;
    let pipe = reopened(&file, OpenOptions::new().read(true), pipe_size);
    if let Some(Ok(pipe)) = pipe.map(Receiver::from_file) {
        return Ok(Box::pin(pipe));
    }
    Ok(match non_blocking(&file) {
        Some(socket) => Box::pin(socket),
        None => Box::pin(tokio::fs::File::from_std(file)),
    })
}

fn writer(stream: impl AsFd, pipe_size: usize) -> io::Result<Pin<Box<dyn AsyncWrite + Send>>> {
    let file = unbuffered(stream)?;
    let pipe = reopened(&file, OpenOptions::new().write(true), pipe_size);
    if let Some(Ok(pipe)) = pipe.map(Sender::from_file) {
        return Ok(Box::pin(pipe));
    }
    Ok(match non_blocking(&file) {
        Some(socket) => Box::pin(SharedSocket(socket)),
        None => Box::pin(tokio::fs::File::from_std(file)),
    })
}

/// Returns a socket that the starting program has made non-blocking; `None` for any other file.
fn non_blocking(file: &File) -> Option<UnixStream> {
    let is_non_blocking = fcntl_getfl(file).ok()?.contains(OFlags::NONBLOCK);
    if !is_non_blocking || !file.metadata().ok()?.file_type().is_socket() {
        return None;
    }
    // Reads and writes of a TCP socket are those of any other.
    let socket = std::os::unix::net::UnixStream::from(OwnedFd::from(file.try_clone().ok()?));
    UnixStream::from_std(socket).ok()
}

/// Socket that stays open for the other streams of this process that it may be.
struct SharedSocket(UnixStream);

impl AsyncWrite for SharedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Flushes and closes standard output, since its reader may wait for the end.
pub(crate) async fn finish(mut output: Pin<Box<dyn AsyncWrite + Send>>) -> io::Result<()> {
    output.flush().await?;
    drop(output);
    // A socket may be standard input as well, so that it is shut down; any other file is closed by
    // replacing it.
    let _ = shutdown(stdout(), Shutdown::Write);
    if let Ok(nothing) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(nothing);
    }
    Ok(())
}

/// Reopens a pipe as non-blocking, and sets the size of its buffer. `None` if the file is no pipe,
/// or may not be opened.
///
/// The pipe needs a new open file description, because the non-blocking flag would affect other
/// processes that share the old one.
fn reopened(stream: &File, options: &mut OpenOptions, size: usize) -> Option<File> {
    if !stream.metadata().ok()?.file_type().is_fifo() {
        return None;
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let pipe = options.custom_flags(flags).open(path).ok()?;
    // An unprivileged user may have reached the limit on pipe memory; the pipe keeps its size.
    let _ = fcntl_setpipe_size(&pipe, size);
    Some(pipe)
}

#[cfg(test)]
mod tests {
    use std::{net, os::unix};

    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_socket_carries_everything_whether_it_blocks_or_not() {
        for does_not_block in [true, false] {
            let (near, far) = unix::net::UnixStream::pair().unwrap();
            near.set_nonblocking(does_not_block).unwrap();
            far.set_nonblocking(does_not_block).unwrap();
            let (mut output, mut input) = (writer(&near, 0).unwrap(), reader(&far, 0).unwrap());
            // More than the buffers of a socket.
            let bytes: Vec<u8> = (0..8 << 20).map(|index: u32| (index / 7) as u8).collect();
            let write = async {
                output.write_all(&bytes).await.unwrap();
                output.flush().await.unwrap();
                near.shutdown(net::Shutdown::Write).unwrap();
            };
            let mut read = Vec::new();
            let (_, len) = tokio::join!(write, input.read_to_end(&mut read));
            assert_eq!(len.unwrap(), bytes.len());
            assert!(read == bytes);
        }
    }
}
