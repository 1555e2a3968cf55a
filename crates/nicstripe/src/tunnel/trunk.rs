//! One end of a session's trunk: the machine, and those who wait for it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use nicstripe_proto::{
    Role,
    frame::MAX_PAYLOAD,
    tunnel::{Broken, ConnId, OpenError, TargetRefusal, TunnelError, TunnelEvent, Tunnels},
};
use tokio::sync::Notify;

use super::{Dialer, Tunnel};
use crate::{error::Error, session::Giver};

/// One end of a session's trunk.
pub(crate) struct Trunk {
    state: Mutex<State>,
    /// There is something to send, or nothing will be.
    work: Notify,
    /// A daemon's: connects.
    dialer: Option<Arc<Dialer>>,
}

struct State {
    tunnels: Tunnels,
    users: BTreeMap<ConnId, User>,
    asked: Vec<(ConnId, String)>,
    /// Parcels that were taken in and not told of.
    taken: u64,
    breach: Option<TunnelError>,
    has_ended: bool,
    /// Parcels that were made and are not acknowledged; while there is a way for them.
    under_way: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// What became of a connection that was asked for.
type Answer = Result<(), (TargetRefusal, String)>;

/// Who waits for a connection.
#[derive(Default)]
struct User {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits for the answer.
    opener: Option<Waker>,
    answer: Option<Answer>,
}

/// What a trunk's session has to know of it.
#[derive(Debug)]
pub(crate) struct Tidings {
    /// Parcels that were taken in.
    pub(crate) taken: u64,
    /// How the peer broke the rules.
    pub(crate) breach: Option<TunnelError>,
}

impl Trunk {
    /// A client's.
    pub(crate) fn of_client() -> Arc<Self> {
        Arc::new(Self::new(Role::Client, None))
    }

    /// A daemon's.
    pub(crate) fn of_daemon(dialer: Arc<Dialer>) -> Arc<Self> {
        Arc::new(Self::new(Role::Daemon, Some(dialer)))
    }

    fn new(role: Role, dialer: Option<Arc<Dialer>>) -> Self {
        let state = State {
            tunnels: Tunnels::new(role),
            users: BTreeMap::new(),
            asked: Vec::new(),
            taken: 0,
            breach: None,
            has_ended: false,
            under_way: None,
        };
        Self { state: Mutex::new(state), work: Notify::new(), dialer }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the machine, then wakes those for whom that has changed something.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
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

    /// Sends what is due, as long as the session takes it.
    pub(crate) async fn pump(self: Arc<Self>, mut giver: Giver) {
        let _guard = EndAtDrop(&self);
        let room = giver.room();
        self.lock().under_way = Some(Arc::new(move || !room.is_free()));
        loop {
            // As soon as there is something, a parcel goes: what comes while the trunk is full makes the next one longer.
            while !self.lock().tunnels.is_due() {
                if self.lock().has_ended {
                    return;
                }
                self.work.notified().await;
            }
            let Some(place) = giver.enter().await else { return };
            let mut buffer = giver.buffer();
            let len = self.with(|state| state.tunnels.fill(buffer.bytes_mut(MAX_PAYLOAD)));
            buffer.bytes_mut(len);
            if len > 0 && !giver.give_into(place, buffer).await {
                return;
            }
        }
    }

    /// Takes in a parcel, in its order.
    pub(crate) fn take_in(self: &Arc<Self>, parcel: &[u8]) {
        self.with(|state| {
            state.taken += 1;
            if !state.has_ended
                && let Err(error) = state.tunnels.handle_parcel(parcel)
            {
                state.breach = Some(error);
            }
        });
        let asked = std::mem::take(&mut self.lock().asked);
        for (conn, target) in asked {
            let tunnel = Tunnel::new(self.clone(), conn);
            if let Some(dialer) = self.dialer.clone() {
                tokio::spawn(dialer.serve(tunnel, target));
            }
        }
    }

    /// Returns what the session has to know, once.
    pub(crate) fn tidings(&self) -> Tidings {
        let mut state = self.lock();
        Tidings { taken: std::mem::take(&mut state.taken), breach: state.breach.take() }
    }

    /// The session, or its trunk, is no more.
    pub(crate) fn end(&self) {
        self.with(|state| {
            state.has_ended = true;
            state.under_way = None;
            state.tunnels.end();
        });
        self.work.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits until everything that was written has arrived at the peer, or cannot.
    pub(crate) async fn flush(&self) {
        let is_busy = || {
            let state = self.lock();
            !state.has_ended && (state.tunnels.is_due() || state.under_way.as_ref().is_some_and(|is_under_way| is_under_way()))
        };
        while is_busy() {
            tokio::time::sleep(FLUSH_PAUSE).await;
        }
    }

    /// Asks for a connection, and waits for the answer. Dropped before, it is taken back.
    pub(crate) async fn open(self: &Arc<Self>, host: &str, target: &str) -> Result<Tunnel, Error> {
        let conn = self.with(|state| {
            let conn = state.tunnels.open(target)?;
            state.users.insert(conn, User::default());
            Ok(conn)
        });
        let (host, refused) = (host.to_owned(), |code, why| Error::Target { host: host.to_owned(), target: target.to_owned(), code, why });
        let conn = conn.map_err(|error| match error {
            OpenError::Ended => Error::Ended { host: host.clone(), why: "before the connection began".into() },
            error => refused(TargetRefusal::TooMany, error.to_string()),
        })?;
        let tunnel = Tunnel::new(self.clone(), conn);
        match std::future::poll_fn(|context| self.poll_answer(conn, context)).await {
            Ok(Ok(())) => Ok(tunnel),
            Ok(Err((code, why))) => Err(refused(code, why)),
            Err(Broken) => Err(Error::Ended { host, why: "before it answered".into() }),
        }
    }

    fn poll_answer(&self, conn: ConnId, context: &Context<'_>) -> Poll<Result<Answer, Broken>> {
        let mut state = self.lock();
        let has_ended = state.has_ended;
        let Some(user) = state.users.get_mut(&conn) else { return Poll::Ready(Err(Broken)) };
        match user.answer.take() {
            Some(answer) => Poll::Ready(Ok(answer)),
            None if has_ended => Poll::Ready(Err(Broken)),
            None => {
                user.opener = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Daemon: what was asked for is there.
    pub(super) fn accept(&self, conn: ConnId) {
        self.with(|state| state.tunnels.accept(conn));
    }

    /// Daemon: what was asked for is not to be had.
    pub(super) fn refuse(&self, conn: ConnId, code: TargetRefusal, why: &str) {
        self.with(|state| state.tunnels.refuse(conn, code, why));
    }

    pub(super) fn poll_room(&self, conn: ConnId, context: &Context<'_>) -> Poll<Result<usize, Broken>> {
        let mut state = self.lock();
        match state.tunnels.room(conn) {
            Ok(0) => {
                state.user(conn).writer = Some(context.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        }
    }

    /// Ready when the connection is gone; else whoever writes is woken then.
    pub(super) fn poll_gone(&self, conn: ConnId, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.has_ended || state.tunnels.is_gone(conn) {
            return Poll::Ready(());
        }
        state.user(conn).writer = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn push(&self, conn: ConnId, bytes: &[u8]) -> Result<(), Broken> {
        self.with(|state| state.tunnels.push(conn, bytes))
    }

    pub(super) fn finish(&self, conn: ConnId) {
        self.with(|state| state.tunnels.finish(conn));
    }

    pub(super) fn poll_peek(&self, conn: ConnId, into: &mut [u8], context: &Context<'_>) -> Poll<Result<usize, Broken>> {
        let mut state = self.lock();
        match state.tunnels.peek(conn, into) {
            Ok(Some(count)) => Poll::Ready(Ok(count)),
            Err(Broken) => Poll::Ready(Err(Broken)),
            Ok(None) => {
                state.user(conn).reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn consume(&self, conn: ConnId, count: usize) {
        self.with(|state| state.tunnels.consume(conn, count));
    }

    pub(super) fn close(&self, conn: ConnId) {
        self.with(|state| {
            state.tunnels.close(conn);
            state.users.remove(&conn);
        });
    }
}

/// Ends a trunk for which nobody sends any more, whatever the reason: nobody shall wait for ever.
struct EndAtDrop<'a>(&'a Trunk);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl State {
    fn user(&mut self, conn: ConnId) -> &mut User {
        self.users.entry(conn).or_default()
    }

    /// Notes what has happened, and returns those who waited for it.
    fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(event) = self.tunnels.poll_event() {
            let (conn, reads, writes) = match event {
                TunnelEvent::Asked { conn, target } => {
                    self.asked.push((conn, target));
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
            let Some(user) = self.users.get_mut(&conn) else { continue };
            wakers.extend(user.reader.take_if(|_| reads));
            wakers.extend(user.writer.take_if(|_| writes));
            wakers.extend(user.opener.take());
        }
        wakers
    }

    fn answer(&mut self, conn: ConnId, answer: Option<Answer>) {
        if let Some(user) = self.users.get_mut(&conn) {
            user.answer = answer;
        }
    }
}

impl fmt::Debug for Trunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trunk").field("connections", &self.lock().tunnels.len()).finish_non_exhaustive()
    }
}

/// Pause between two looks at whether everything has arrived.
const FLUSH_PAUSE: Duration = Duration::from_millis(2);
