//! Commands that peers run: those that the peer's line permits (`exec=`), by the program's
//! [`Executor`].

use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use nicstripe_proto::{
    TransferId,
    message::{Exec, ExitStatus},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::{
    executor::{Executor, PeerCommand, StartedCommand},
    served_peer::ServedPeer,
};
use crate::{
    file::{FileError, Lease},
    session::{
        SessionHandle,
        kind::{
            Opened,
            exec::{ByteSink, ByteSource, Reader},
        },
    },
    text::logged::logged,
    trust::ExecRule,
};

#[derive(Debug)]
pub(super) struct Commands {
    peer: Arc<ServedPeer>,
    /// Permits for running commands.
    permits: Arc<Semaphore>,
    /// Outputs of the commands being requested, by their numbers. The event that requests a command
    /// is followed by those of its outputs; each takes its own.
    outputs: Mutex<HashMap<TransferId, Output>>,
}

/// Output of a command that is being started, or why it is not.
type Output = oneshot::Receiver<Result<ByteSource, FileError>>;

impl Commands {
    pub(super) fn new(peer: &Arc<ServedPeer>) -> Self {
        Self {
            peer: peer.clone(),
            permits: Arc::new(Semaphore::new(MOST_COMMANDS)),
            outputs: Mutex::default(),
        }
    }

    /// Starts a command. Its output, error output and status are requested by their numbers.
    pub(super) fn run(
        self: Arc<Self>,
        exec: Exec,
        session: SessionHandle,
    ) -> impl Future<Output = Result<Opened, FileError>> + Send + 'static {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let numbers = exec.streams().into_iter().flatten().skip(1);
        self.outputs.lock().extend(numbers.zip(receivers));
        async move {
            match self.start(exec, &session).await {
                Ok((started, held)) => {
                    let status = Status::Running(started.status, held);
                    let outputs: [Reader; 3] = [started.stdout, started.stderr, Box::new(status)];
                    for (sender, output) in senders.into_iter().zip(outputs) {
                        let _ = sender.send(Ok(ByteSource::requested(output)));
                    }
                    let input = ByteSink::announced(started.stdin);
                    Ok((Box::new(input) as _, Vec::new()))
                }
                Err(error) => {
                    for sender in senders {
                        let cause = io::Error::other(error.source.to_string());
                        let same = FileError::new(error.operation, &error.name, cause);
                        let _ = sender.send(Err(same.with_code(error.code)));
                    }
                    Err(error)
                }
            }
        }
    }

    /// Begins the output of a command that has been requested, by its number.
    pub(super) fn send_output(
        &self,
        number: TransferId,
    ) -> impl Future<Output = Result<Opened, FileError>> + Send + 'static {
        let output = self.outputs.lock().remove(&number);
        async move {
            let missing =
                || FileError::violated("send", "an output", "no command has been requested");
            let output = output.ok_or_else(missing)?;
            let source = output.await.unwrap_or_else(|_| Err(missing()))?;
            Ok((Box::new(source) as _, Vec::new()))
        }
    }

    /// Starts a command that the line permits, within the peer's shares. Returns it with what it
    /// holds of them.
    async fn start(
        &self,
        exec: Exec,
        session: &SessionHandle,
    ) -> Result<(StartedCommand, Held), FileError> {
        let (executor, command) = self.permitted(exec)?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| {
            let why = format!("limit of {MOST_COMMANDS} concurrent commands per session reached");
            FileError::refused("run", "another command", why)
        })?;
        let files = self.peer.lease_files(OF_COMMAND, session).await?;
        let started = self.peer.pool().call(move || executor.start(command)).await;
        let gone = || Err(io::Error::other("the I/O threads have ended"));
        let started = started.unwrap_or_else(gone);
        let started = started.map_err(|cause| FileError::new("start", "the command", cause))?;
        Ok((started, (permit, files)))
    }

    fn permitted(&self, exec: Exec) -> Result<(Arc<dyn Executor>, PeerCommand), FileError> {
        let words: Vec<Vec<u8>> = exec.words.into_iter().map(|word| word.0).collect();
        let shown = ExecRule::shown(&words);
        let Some(executor) = self.peer.shared.executor.clone() else {
            let why = "this daemon runs no commands";
            return Err(FileError::refused("run", &shown, why));
        };
        let peer = self.peer.rights.name();
        let rules = &self.peer.rights.options().exec;
        if !rules.iter().any(|rule| rule.permits(&words)) {
            tracing::info!(peer, command = %logged(&shown), "command refused");
            let why = "this peer's line does not permit it (exec=)";
            return Err(FileError::not_permitted("run", &shown, why));
        }
        tracing::info!(peer, command = %logged(&shown), "command begins");
        let root = self.peer.root_directory();
        Ok((executor, PeerCommand { words, peer, root }))
    }
}

/// Part of a peer's shares that a running command holds.
type Held = (OwnedSemaphorePermit, Lease);

/// Status of a command as a stream of one batch.
enum Status {
    Running(
        Pin<Box<dyn Future<Output = io::Result<ExitStatus>> + Send>>,
        #[expect(dead_code, reason = "given back when it is dropped")] Held,
    ),
    Over,
}

impl AsyncRead for Status {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self::Running(status, _) = &mut *self else {
            return Poll::Ready(Ok(()));
        };
        let status = std::task::ready!(status.as_mut().poll(cx));
        *self = Self::Over;
        room.put_slice(&status?.encode());
        Poll::Ready(Ok(()))
    }
}

/// Maximum number of concurrent commands per session. A client runs one at a time, and programs that
/// use the library some.
const MOST_COMMANDS: usize = 64;

/// Number of file descriptors that a command needs: three streams, and one for its end.
const OF_COMMAND: usize = 4;
