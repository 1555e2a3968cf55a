//! Commands that a client runs at the daemon.

use nicstripe_proto::{
    FailCode, TransferId,
    message::{Exec, ExitStatus, Feature, Word},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    sync::oneshot,
    time::timeout,
};

use super::handle::Client;
use crate::{
    file::FileError,
    report::{error::Error, event::Awaited},
    session::{
        Command, Input, NOTICE, Outcome, SessionHandle, Starter, Tally,
        kind::{
            Kind,
            exec::{ByteSink, ByteSource, STANDARD_ERROR, STANDARD_OUTPUT},
        },
    },
};

type Ended = oneshot::Receiver<Result<(Outcome, Tally), Error>>;

impl Client {
    /// Runs a command at the daemon, and connects its standard streams over all cables. Returns its
    /// exit status once it has ended and its output is written.
    ///
    /// The command's input ends when `stdin` ends, and not before: if the session is lost, or this
    /// call is dropped, the daemon kills the command. Input that the command does not read is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`] with [`FailCode::NotPermitted`](crate::FailCode::NotPermitted) if the daemon's
    /// line for this key does not permit the command (`exec=`), and with
    /// [`FailCode::Refused`](crate::FailCode::Refused) if too many run; [`Error::Unsupported`] if the
    /// daemon runs no commands; [`Error::Stalled`] if it does not answer the request for the
    /// client's patience, at least 10 s, and 10 s more; the daemon cannot be reached, or is lost; an
    /// output cannot be written: [`Error::File`], whose name is `standard output` or
    /// `standard error`.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let (stdin, stdout, stderr) = (tokio::io::empty(), tokio::io::sink(), tokio::io::sink());
    /// let status = client.exec(["zfs", "list"], stdin, stdout, stderr).await?;
    /// println!("exit code {}", status.code());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn exec(
        &self,
        words: impl IntoIterator<Item: Into<Vec<u8>>>,
        stdin: impl AsyncRead + Send + Unpin + 'static,
        stdout: impl AsyncWrite + Send + Unpin + 'static,
        stderr: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<ExitStatus, Error> {
        let words = words.into_iter().map(|word| Word(word.into())).collect();
        let (client, outputs) = (self.clone(), (Box::new(stdout), Box::new(stderr)));
        let executed = async move {
            let (stdout, stderr) = outputs;
            client
                .exec_here(words, Box::new(stdin), stdout, stderr)
                .await
        };
        self.inner.runtime.run(executed).await?
    }

    async fn exec_here(
        &self,
        words: Vec<Word>,
        stdin: Box<dyn AsyncRead + Send + Unpin>,
        stdout: Box<dyn AsyncWrite + Send + Unpin>,
        stderr: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> Result<ExitStatus, Error> {
        let session = self.inner.session().await?;
        session.peer.require(Feature::Exec, &self.inner.host)?;
        let lost = || Error::ended(&self.inner.host, "before the command began");
        let Ok(room) = session.handle.inputs.reserve_many(4).await else {
            return Err(lost());
        };
        let (status, told) = tokio::io::duplex(STATUS);
        let (tell, offered) = oneshot::channel();
        let (starts, running) = {
            let mut numbers = self.inner.numbers.lock();
            let exec = Exec {
                first: numbers.next(),
                words,
            };
            let [stdin_id, outputs @ ..] =
                [exec.first, numbers.next(), numbers.next(), numbers.next()];
            if !exec.is_valid() || exec.streams().is_none() {
                return Err(invalid());
            }
            let kinds: [Box<dyn Kind>; 4] = [
                Box::new(ByteSink::output(stdout, STANDARD_OUTPUT)),
                Box::new(ByteSink::output(stderr, STANDARD_ERROR)),
                Box::new(ByteSink::output(Box::new(status), "exit status").telling(tell)),
                Box::new(ByteSource::input(stdin, exec)),
            ];
            // The request comes last, when its outputs are expected.
            let [a, b, c] = outputs;
            let ids = [a, b, c, stdin_id];
            let mut ends = Vec::new();
            for (room, (transfer, kind)) in room.zip(ids.into_iter().zip(kinds)) {
                let (reply, ended) = oneshot::channel();
                ends.push(ended);
                let starter = Starter::Stream(reply);
                room.send(Input::Command(Command::Start {
                    transfer,
                    kind,
                    starter,
                }));
            }
            (
                ends,
                Running {
                    session: session.handle.clone(),
                    transfers: ids,
                },
            )
        };
        let [stdout, stderr, status, _stdin]: [Ended; 4] = starts.try_into().map_err(|_| lost())?;
        let ended = |ended: Ended| async move { ended.await.unwrap_or_else(|_| Err(lost())) };
        // Dropping it cancels what is left: input that the command has not read.
        let _running = running;
        let read = async move {
            let mut batch = Vec::new();
            // Fails if the stream of the status fails, with its reason. Dropping the rest fails a
            // stream that is longer than a status.
            let _ = told.take(STATUS as u64).read_to_end(&mut batch).await;
            Ok::<_, Error>(batch)
        };
        let answered = self.offered(offered);
        let (batch, ..) =
            tokio::try_join!(read, answered, ended(status), ended(stdout), ended(stderr))?;
        ExitStatus::decode(&batch).ok_or_else(|| {
            let text = "it sent no exit status".to_owned();
            Error::peer(&self.inner.host, FailCode::Protocol, text)
        })
    }

    /// Waits until the daemon has offered a stream of the command, or the stream has failed. The
    /// command may then be silent for any time.
    async fn offered(&self, offered: oneshot::Receiver<()>) -> Result<(), Error> {
        // All links may be lost once meanwhile.
        let patience = self.inner.settings.session.patience.max(NOTICE);
        let waited = patience.saturating_add(NOTICE);
        match timeout(waited, offered).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Stalled {
                host: self.inner.host.clone(),
                awaited: Awaited::Answer,
                waited,
            }),
        }
    }
}

/// Streams of a running command. Dropping it cancels those that have not ended, and the daemon kills
/// the command.
struct Running {
    session: SessionHandle,
    transfers: [TransferId; 4],
}

impl Drop for Running {
    fn drop(&mut self) {
        let inputs = self.session.inputs.clone();
        let cancels = self.transfers.map(Command::Cancel).map(Input::Command);
        // On a full queue it waits, which a destructor cannot.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                for cancel in cancels {
                    let _ = inputs.send(cancel).await;
                }
            })),
            Err(_) => cancels
                .into_iter()
                .for_each(|cancel| _ = inputs.try_send(cancel)),
        }
    }
}

fn invalid() -> Error {
    let why = "expected a program and arguments without NUL, 4096 words and 64 KB at most";
    FileError::refused("run", "the command", why).into()
}

/// Room for the batch of a status.
const STATUS: usize = 16;
