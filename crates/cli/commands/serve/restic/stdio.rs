//! Standard input and output as one connection, the transport between restic and a child process.

use std::{
    io::{self, stdin, stdout},
    os::fd::AsFd,
    pin::Pin,
};

use rustix::pipe::fcntl_setpipe_size;
use tokio::{
    io::{AsyncRead, AsyncWrite, join},
    net::unix::pipe,
};

use crate::process::streams::unbuffered;

/// Opens standard input and output as one connection. A pipe needs no thread, other files do. Must
/// be called inside a runtime.
pub(super) fn open() -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    let input: Pin<Box<dyn AsyncRead + Send>> =
        match pipe::Receiver::from_file(unbuffered(stdin())?) {
            Ok(pipe) => {
                widen(&pipe);
                Box::pin(pipe)
            }
            Err(_) => Box::pin(tokio::io::stdin()),
        };
    let output: Pin<Box<dyn AsyncWrite + Send>> =
        match pipe::Sender::from_file(unbuffered(stdout())?) {
            Ok(pipe) => {
                widen(&pipe);
                Box::pin(pipe)
            }
            Err(_) => Box::pin(tokio::io::stdout()),
        };
    Ok(join(input, output))
}

/// Enlarges the buffer of a pipe, to reduce wake-ups of its reader and writer. Ignores errors.
fn widen(pipe: impl AsFd) {
    let _ = fcntl_setpipe_size(pipe, PIPE_SIZE);
}

/// Size of a pipe's buffer in bytes, the maximum for unprivileged users
/// (`/proc/sys/fs/pipe-max-size`).
const PIPE_SIZE: usize = 1 << 20;
