//! One end of a session's tunnel multiplexer: the protocol's state machine, and the tasks that wait
//! for its connections.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use nicstripe_proto::{
    Role,
    tunnel::{Broken, ConnId, OpenError, TargetRefusal, TunnelError, TunnelEvent, Tunnels},
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{dialer::Dialer, stream::Tunnel};
use crate::report::error::Error;

pub(crate) struct TunnelMux {
    state: Mutex<MuxState>,
    /// Notified when a batch can be sent, and when the multiplexer ends.
    work: Notify,
    /// Daemon only: connects the peer's tunnels to their targets.
    dialer: Option<Arc<Dialer>>,
    ended: CancellationToken,
}

pub(super) struct MuxState {
    pub(super) tunnels: Tunnels,
    users: BTreeMap<ConnId, User>,
    requested: Vec<(ConnId, String)>,
    has_ended: bool,
    breach: Option<String>,
    /// `None` before the sending task starts and after the end.
    under_way: Option<InFlight>,
}

/// Function that returns true while sent batches are not acknowledged.
type InFlight = Arc<dyn Fn() -> bool + Send + Sync>;

/// Answer to the request for a tunnel: accepted, or rejected with a code and a message.
type OpenOutcome = Result<(), (TargetRefusal, String)>;

/// Wakers of the tasks that wait for one tunnelled connection.
#[derive(Default)]
struct User {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waker of the task that waits for the answer to its request.
    opener: Option<Waker>,
    answer: Option<OpenOutcome>,
}

impl TunnelMux {
    /// Creates the multiplexer of a daemon with `dialer`, otherwise of a client.
    pub(crate) fn new(dialer: Option<Arc<Dialer>>) -> Arc<Self> {
        let role = match dialer {
            Some(_) => Role::Daemon,
            None => Role::Client,
        };
        let state = MuxState {
            tunnels: Tunnels::new(role),
            users: BTreeMap::new(),
            requested: Vec::new(),
            has_ended: false,
            breach: None,
            under_way: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            work: Notify::new(),
            dialer,
            ended: CancellationToken::new(),
        })
    }

    /// Runs `act` on the state machine, then wakes the tasks affected by its events.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut MuxState) -> T) -> T {
        let mut state = self.state.lock();
        let result = act(&mut state);
        let wakers = state.take_wakers();
        let is_due = state.tunnels.is_due();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if is_due {
            self.work.notify_one();
        }
        result
    }

    /// Registers the task that sends the batches. `in_flight` returns true while sent batches are
    /// not acknowledged. The multiplexer ends when the guard is dropped.
    pub(crate) fn begin_sending(&self, in_flight: InFlight) -> EndAtDrop<'_> {
        self.state.lock().under_way = Some(in_flight);
        EndAtDrop(self)
    }

    /// Waits until there is data to send. Returns false once the multiplexer has ended.
    pub(crate) async fn is_due(&self) -> bool {
        while !self.state.lock().tunnels.is_due() {
            if self.state.lock().has_ended {
                return false;
            }
            self.work.notified().await;
        }
        true
    }

    /// Writes the next batch to `batch` and returns its length in bytes.
    pub(crate) fn fill(&self, batch: &mut [u8]) -> usize {
        self.with(|state| state.tunnels.fill(batch))
    }

    /// Handles the peer's next batch, in order, and connects the tunnels that it requests.
    ///
    /// # Errors
    ///
    /// The peer violates the protocol.
    pub(crate) fn take_in(self: &Arc<Self>, batch: &[u8]) -> Result<(), TunnelError> {
        let taken = self.with(|state| match state.has_ended {
            true => Ok(()),
            false => state.tunnels.handle_batch(batch),
        });
        let requested = std::mem::take(&mut self.state.lock().requested);
        for (conn, target) in requested {
            let tunnel = Tunnel::new(self.clone(), conn);
            if let Some(dialer) = self.dialer.clone() {
                tokio::spawn(dialer.serve(tunnel, target));
            }
        }
        taken
    }

    /// Ends all tunnels. Called at the end of the session or of one of the two transfers that carry
    /// them.
    pub(crate) fn end(&self) {
        self.with(|state| {
            state.has_ended = true;
            state.under_way = None;
            state.tunnels.end();
        });
        if let Some(dialer) = &self.dialer {
            dialer.listeners().remove_files();
        }
        self.work.notify_one();
        self.ended.cancel();
    }

    /// Daemon: returns true while it listens for the peer.
    pub(crate) fn is_listening(&self) -> bool {
        let dialer = self.dialer.as_ref();
        dialer.is_some_and(|dialer| dialer.listeners().is_listening())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Ends all tunnels because the peer has violated the protocol.
    pub(crate) fn end_with(&self, breach: String) {
        self.state.lock().breach.get_or_insert(breach);
        self.end();
    }

    /// Waits until the multiplexer has ended. Returns the peer's violation of the protocol, if that
    /// was the reason.
    pub(crate) async fn ended(&self) -> Option<String> {
        self.ended.cancelled().await;
        self.state.lock().breach.clone()
    }

    /// Waits until the peer has acknowledged all written data, or the multiplexer has ended.
    pub(crate) async fn flush(&self) {
        let is_busy = || {
            let state = self.state.lock();
            !state.has_ended
                && (state.tunnels.is_due()
                    || state
                        .under_way
                        .as_ref()
                        .is_some_and(|is_under_way| is_under_way()))
        };
        while is_busy() {
            tokio::time::sleep(FLUSH_PAUSE).await;
        }
    }

    /// Requests a tunnel to `target` and waits for the peer's answer. Cancels the request if
    /// dropped.
    pub(crate) async fn open(self: &Arc<Self>, host: &str, target: &str) -> Result<Tunnel, Error> {
        let conn = self.with(|state| {
            let conn = state.tunnels.open(target)?;
            state.users.insert(conn, User::default());
            Ok(conn)
        });
        let (host, refused) = (host.to_owned(), |code, why| Error::Target {
            host: host.to_owned(),
            target: target.to_owned(),
            code,
            why,
        });
        let conn = conn.map_err(|error| match error {
            OpenError::Ended => Error::ended(&host, "before the connection began"),
            error => refused(TargetRefusal::TooMany, error.to_string()),
        })?;
        let tunnel = Tunnel::new(self.clone(), conn);
        match std::future::poll_fn(|context| self.poll_answer(conn, context)).await {
            Ok(Ok(())) => Ok(tunnel),
            Ok(Err((code, why))) => Err(refused(code, why)),
            Err(Broken) => Err(Error::Ended {
                host,
                why: "before it answered".into(),
            }),
        }
    }

    fn poll_answer(
        &self,
        conn: ConnId,
        context: &Context<'_>,
    ) -> Poll<Result<OpenOutcome, Broken>> {
        let mut state = self.state.lock();
        let has_ended = state.has_ended;
        let Some(user) = state.users.get_mut(&conn) else {
            return Poll::Ready(Err(Broken));
        };
        match user.answer.take() {
            Some(answer) => Poll::Ready(Ok(answer)),
            None if has_ended => Poll::Ready(Err(Broken)),
            None => {
                user.opener = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn poll_room(
        &self,
        conn: ConnId,
        context: &Context<'_>,
    ) -> Poll<Result<usize, Broken>> {
        let mut state = self.state.lock();
        match state.tunnels.room(conn) {
            Ok(0) => {
                state.user(conn).writer = Some(context.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        }
    }

    /// Returns ready if the peer or the session has ended the connection. Otherwise registers the
    /// task to be woken.
    pub(super) fn poll_gone(&self, conn: ConnId, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.has_ended || state.tunnels.is_gone(conn) {
            return Poll::Ready(());
        }
        state.user(conn).writer = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn poll_peek(
        &self,
        conn: ConnId,
        into: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Broken>> {
        let mut state = self.state.lock();
        match state.tunnels.peek(conn, into) {
            Ok(Some(count)) => Poll::Ready(Ok(count)),
            Err(Broken) => Poll::Ready(Err(Broken)),
            Ok(None) => {
                state.user(conn).reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn close(&self, conn: ConnId) {
        self.with(|state| {
            state.tunnels.close(conn);
            state.users.remove(&conn);
        });
    }
}

/// Guard of the sending task that ends the multiplexer when the task ends for any reason, so that
/// no other task waits forever.
pub(crate) struct EndAtDrop<'a>(&'a TunnelMux);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl MuxState {
    fn user(&mut self, conn: ConnId) -> &mut User {
        self.users.entry(conn).or_default()
    }

    /// Handles pending events of the state machine and returns the wakers of affected tasks.
    fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(event) = self.tunnels.poll_event() {
            let (conn, reads, writes) = match event {
                TunnelEvent::Asked { conn, target } => {
                    self.requested.push((conn, target));
                    continue;
                }
                TunnelEvent::Readable(conn) => (conn, true, false),
                TunnelEvent::Writable(conn) => (conn, false, true),
                TunnelEvent::Reset(conn) => (conn, true, true),
                TunnelEvent::Opened(conn) => {
                    self.answer(conn, Some(Ok(())));
                    (conn, true, true)
                }
                TunnelEvent::Refused { conn, code, why } => {
                    self.answer(conn, Some(Err((code, why))));
                    (conn, true, true)
                }
            };
            let Some(user) = self.users.get_mut(&conn) else {
                continue;
            };
            wakers.extend(user.reader.take_if(|_| reads));
            wakers.extend(user.writer.take_if(|_| writes));
            wakers.extend(user.opener.take());
        }
        wakers
    }

    fn answer(&mut self, conn: ConnId, answer: Option<OpenOutcome>) {
        if let Some(user) = self.users.get_mut(&conn) {
            user.answer = answer;
        }
    }
}

impl fmt::Debug for TunnelMux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelMux")
            .field("connections", &self.state.lock().tunnels.len())
            .finish_non_exhaustive()
    }
}

/// Polling interval of [`TunnelMux::flush`].
const FLUSH_PAUSE: Duration = Duration::from_millis(2);
