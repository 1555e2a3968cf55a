//! Detects the end of the parent process, which started this one.

use std::{
    future::pending,
    io::{self, stderr},
    os::unix::fs::FileTypeExt as _,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

use crate::process::streams::unbuffered;

/// Waits until the reader of standard error closes it. Waits forever if standard error is not a
/// pipe.
///
/// Some commands of rustic exit without ending the program that they started, which would then run
/// forever.
pub(super) async fn ended() {
    let has_ended = match watch() {
        Ok(ended) => ended.await.is_ok(),
        Err(_) => false,
    };
    if !has_ended {
        pending::<()>().await;
    }
}

/// Starts a thread that polls standard error. A task would need a non-blocking pipe, and the flag
/// would affect all processes that write to it.
fn watch() -> io::Result<oneshot::Receiver<()>> {
    let (tell, ended) = oneshot::channel();
    let pipe = unbuffered(stderr())?;
    if pipe.metadata()?.file_type().is_fifo() {
        thread::Builder::new()
            .name("nicstripe-stderr".into())
            .spawn(move || {
                // The error condition is reported without being requested.
                let mut watched = [PollFd::new(&pipe, PollFlags::empty())];
                let polled = loop {
                    match poll(&mut watched, None) {
                        Err(Errno::INTR) => {}
                        polled => break polled,
                    }
                };
                if polled.is_ok() {
                    let _ = tell.send(());
                }
            })?;
    }
    Ok(ended)
}
