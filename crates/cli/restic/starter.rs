//! Whoever has started this program and reads what it says.

use std::{
    fs::File,
    future::pending,
    io::{self, stderr},
    os::{fd::AsFd as _, unix::fs::FileTypeExt as _},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

/// Waits until nobody reads standard error any more, where that is a pipe; else for ever.
///
/// rustic ends some of its commands without ending the program that it has started for them, which nobody would ever end.
pub(super) async fn gone() {
    let is_gone = match watch() {
        Ok(gone) => gone.await.is_ok(),
        Err(_) => false,
    };
    if !is_gone {
        pending::<()>().await;
    }
}

/// On a thread of its own: to be waited for by a task the pipe would have to be one that does not block, for everybody who writes there.
fn watch() -> io::Result<oneshot::Receiver<()>> {
    let (tell, gone) = oneshot::channel();
    let pipe = File::from(stderr().as_fd().try_clone_to_owned()?);
    if pipe.metadata()?.file_type().is_fifo() {
        thread::Builder::new().name("nicstripe-stderr".into()).spawn(move || {
            // That nobody reads is told as an error, which need not be asked for.
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
    Ok(gone)
}
