//! Connections over a simulated network, in the virtual time of a paused runtime.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, IoSliceMut, Read as _},
    sync::Arc,
    time::Duration,
};

use nicstripe_sim::{CloseReason, End, Event, LinkConfig, LinkId, Network};
use parking_lot::Mutex;
use tokio::{
    io::{Interest, Ready},
    sync::{Notify, mpsc, oneshot},
    time::{self, Instant},
};

/// Simulated network between the two ends of a test. [`run`](Self::run) delivers the bytes that its
/// links carry.
#[derive(Clone)]
pub(crate) struct SimulatedNetwork(Arc<Shared>);

struct Shared {
    state: Mutex<Wires>,
    changed: Notify,
    origin: Instant,
    news: mpsc::UnboundedSender<News>,
    /// Maximum length in bytes of one message of the network. It arrives as a whole.
    segment: usize,
    intercept: Mutex<Option<Box<Intercept>>>,
}

/// Function that sees what an end is about to send over a link, above TLS: whole frames. May change
/// them.
type Intercept = dyn FnMut(LinkId, End, &mut [u8]) + Send;

struct Wires {
    net: Network<Vec<u8>>,
    halves: BTreeMap<(LinkId, End), Half>,
    connecting: BTreeMap<(LinkId, End), oneshot::Sender<io::Result<Connection>>>,
    next_id: u64,
}

/// Event that the network reports to one end.
pub(crate) enum News {
    /// The other end has connected.
    Accepted(LinkId, Connection),
    /// The interface of this end has lost its carrier.
    CarrierLost(LinkId, End),
}

/// State of a simulated connection at one end.
struct Half {
    id: u64,
    received: VecDeque<u8>,
    ended: Option<Ended>,
    changed: Arc<Notify>,
}

#[derive(Clone, Copy)]
enum Ended {
    Closed,
    Reset,
}

/// One end of a simulated connection. Dropping it closes the connection.
pub(crate) struct Connection {
    network: SimulatedNetwork,
    at: (LinkId, End),
    id: u64,
    changed: Arc<Notify>,
}

/// Resolution of the runtime's timers.
const TICK: Duration = Duration::from_millis(1);

impl SimulatedNetwork {
    /// Creates a network without links. The receiver gets the news of both ends.
    pub(crate) fn new(seed: u64, segment: usize) -> (Self, mpsc::UnboundedReceiver<News>) {
        let (news, receiver) = mpsc::unbounded_channel();
        let state = Wires {
            net: Network::new(seed),
            halves: BTreeMap::new(),
            connecting: BTreeMap::new(),
            next_id: 0,
        };
        let shared = Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
            origin: Instant::now(),
            news,
            segment,
            intercept: Mutex::default(),
        };
        (Self(Arc::new(shared)), receiver)
    }

    pub(crate) fn add_link(&self, config: LinkConfig) -> LinkId {
        self.0.state.lock().net.add_link(config)
    }

    /// Applies a change to the network, such as a fault.
    pub(crate) fn apply(&self, change: impl FnOnce(&mut Network<Vec<u8>>)) {
        self.catch_up();
        change(&mut self.0.state.lock().net);
        self.0.changed.notify_one();
    }

    /// Ends the connection at one end, if any. The other end gets no event.
    pub(crate) fn reset(&self, link: LinkId, end: End) {
        if let Some(half) = self.0.state.lock().halves.get_mut(&(link, end)) {
            half.ended = Some(Ended::Reset);
            half.changed.notify_waiters();
        }
    }

    /// Passes everything that is sent from now on to `intercept`, before TLS seals it.
    pub(crate) fn intercept(&self, intercept: impl FnMut(LinkId, End, &mut [u8]) + Send + 'static) {
        *self.0.intercept.lock() = Some(Box::new(intercept));
    }

    /// Connects over a link. The attempt ends when the future is dropped.
    pub(crate) async fn connect(&self, link: LinkId, by: End) -> io::Result<Connection> {
        let (sender, connected) = oneshot::channel();
        let _attempt = Attempt(self, link, by);
        self.0.state.lock().connecting.insert((link, by), sender);
        self.apply(|net| net.connect(link, by));
        connected
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Delivers the bytes and events of the network until the runtime ends.
    pub(crate) async fn run(self) {
        loop {
            let changed = self.0.changed.notified();
            self.catch_up();
            let next = self.0.state.lock().net.next_at();
            tokio::select! {
                biased;
                () = changed => {}
                () = self.reach(next) => {}
            }
        }
    }

    /// Waits until this network time, more precisely than the runtime's timers: advances the clock
    /// itself once all other tasks wait.
    async fn reach(&self, at: Option<Duration>) {
        let Some(at) = at else {
            return std::future::pending().await;
        };
        loop {
            tokio::task::yield_now().await;
            let ahead = at.saturating_sub(self.now());
            if ahead.is_zero() {
                return;
            }
            // The clock advances by whole ticks while the runtime sleeps, from any fraction of one.
            match (ahead.as_millis() as u32).checked_sub(1) {
                Some(ticks) if ticks > 0 => time::sleep(TICK * ticks).await,
                _ => time::advance(ahead.min(TICK)).await,
            }
        }
    }

    /// Handles all events up to the current time.
    fn catch_up(&self) {
        let now = self.now();
        loop {
            let event = self.0.state.lock().net.next_until(now);
            match event {
                Some(event) => self.on_event(event),
                None => return,
            }
        }
    }

    fn on_event(&self, event: Event<Vec<u8>>) {
        match event {
            Event::Opened { link, end } => self.on_opened(link, end),
            Event::Delivered { link, to, message } => {
                if let Some(half) = self.0.state.lock().halves.get_mut(&(link, to)) {
                    half.received.extend(message);
                    half.changed.notify_waiters();
                }
            }
            Event::Writable { link, end } => {
                if let Some(half) = self.0.state.lock().halves.get(&(link, end)) {
                    half.changed.notify_waiters();
                }
            }
            Event::Closed { link, end, reason } => self.on_closed(link, end, reason),
        }
    }

    fn on_opened(&self, link: LinkId, end: End) {
        let (connecting, connection) = {
            let mut state = self.0.state.lock();
            let (id, changed) = (state.next_id, Arc::new(Notify::new()));
            state.next_id += 1;
            let half = Half {
                id,
                received: VecDeque::new(),
                ended: None,
                changed: changed.clone(),
            };
            if let Some(before) = state.halves.insert((link, end), half) {
                before.changed.notify_waiters();
            }
            let connection = Connection {
                network: self.clone(),
                at: (link, end),
                id,
                changed,
            };
            (state.connecting.remove(&(link, end)), connection)
        };
        match connecting {
            // Fails if the attempt was given up, which closes the connection.
            Some(connecting) => drop(connecting.send(Ok(connection))),
            None => drop(self.0.news.send(News::Accepted(link, connection))),
        }
    }

    fn on_closed(&self, link: LinkId, end: End, reason: CloseReason) {
        let mut state = self.0.state.lock();
        if let Some(connecting) = state.connecting.remove(&(link, end)) {
            let _ = connecting.send(Err(io::ErrorKind::HostUnreachable.into()));
        } else if reason == CloseReason::CarrierLost {
            // A connection does not notice; the kernel reports the carrier.
            let _ = self.0.news.send(News::CarrierLost(link, end));
        } else if let Some(half) = state.halves.get_mut(&(link, end)) {
            half.ended = Some(match reason {
                CloseReason::PeerClosed => Ended::Closed,
                _ => Ended::Reset,
            });
            half.changed.notify_waiters();
        }
    }

    /// Returns the current time of the network.
    pub(crate) fn now(&self) -> Duration {
        Instant::now() - self.0.origin
    }
}

/// Guard that aborts a connection attempt when dropped.
struct Attempt<'a>(&'a SimulatedNetwork, LinkId, End);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Self(network, link, by) = *self;
        if network
            .0
            .state
            .lock()
            .connecting
            .remove(&(link, by))
            .is_some()
        {
            network.apply(|net| net.close(link, by));
        }
    }
}

impl Wires {
    /// Returns the state of a connection, unless another one has replaced it.
    fn half(&mut self, of: &Connection) -> io::Result<&mut Half> {
        self.halves
            .get_mut(&of.at)
            .filter(|half| half.id == of.id)
            .ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl Connection {
    /// Waits until bytes or the end can be received, or bytes can be sent. Cancel safe.
    pub(crate) async fn ready(&self, interest: Interest) -> Ready {
        loop {
            let changed = self.changed.notified();
            let ready = self.readiness(interest);
            if !ready.is_empty() {
                return ready;
            }
            changed.await;
        }
    }

    fn readiness(&self, interest: Interest) -> Ready {
        let mut state = self.network.0.state.lock();
        let is_writable = state.net.is_writable(self.at.0, self.at.1);
        let (readable, writable) = match state.half(self) {
            Ok(half) => (
                !half.received.is_empty() || half.ended.is_some(),
                is_writable || half.ended.is_some(),
            ),
            Err(_) => (true, true),
        };
        let mut ready = Ready::EMPTY;
        if readable && interest.is_readable() {
            ready |= Ready::READABLE;
        }
        if writable && interest.is_writable() {
            ready |= Ready::WRITABLE;
        }
        ready
    }

    /// Returns the frames to send in place of these, if the test intercepts them.
    pub(crate) fn intercepted(&self, plaintext: &[&[u8]]) -> Option<Vec<u8>> {
        let intercept = &self.network.0.intercept;
        let mut intercept = intercept.lock();
        let intercept = intercept.as_mut()?;
        let mut frames = plaintext.concat();
        intercept(self.at.0, self.at.1, &mut frames);
        Some(frames)
    }

    /// Receives once, like a socket: returns the number of bytes, and true if no more are
    /// available.
    pub(crate) fn recv(&self, space: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
        let mut state = self.network.0.state.lock();
        let half = state.half(self)?;
        if !half.received.is_empty() {
            let mut count = 0;
            for slice in space {
                count += half.received.read(slice)?;
            }
            return Ok((count, half.received.is_empty()));
        }
        match half.ended {
            None => Ok((0, true)),
            Some(Ended::Closed) => Ok((0, false)),
            Some(Ended::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Sends as much as the link accepts.
    pub(crate) fn send(&self, pending: &[u8]) -> io::Result<usize> {
        self.network.catch_up();
        let mut state = self.network.0.state.lock();
        if state.half(self)?.ended.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let ((link, end), mut sent) = (self.at, 0);
        for part in pending.chunks(self.network.0.segment) {
            if state.net.offer(link, end, part.to_vec()).is_err() {
                break;
            }
            sent += part.len();
        }
        drop(state);
        self.network.0.changed.notify_one();
        Ok(sent)
    }

    /// Closes the connection after the sent bytes. Nothing can be received afterwards.
    pub(crate) fn close(&self) {
        let closed = {
            let mut state = self.network.0.state.lock();
            let closed = state
                .half(self)
                .map(|half| half.ended.replace(Ended::Closed));
            matches!(closed, Ok(None))
        };
        if closed {
            self.network.apply(|net| net.close(self.at.0, self.at.1));
            self.changed.notify_waiters();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        let mut state = self.network.0.state.lock();
        if state.half(self).is_ok() {
            state.halves.remove(&self.at);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {} of {:?}", self.id, self.at)
    }
}
