//! Sessions of a client: one at a time, and a new one if the last has ended.

use std::{sync::Arc, time::Duration};

use nicstripe_proto::{BitRate, TransferId, message::CloseCode};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    builder::ClientBuilder, making::Making, reconnects::Reconnects, runtime::ClientRuntime,
    turns::Turns,
};
use crate::{
    file::{BufferPool, IoPool},
    links::{
        contact::Contact,
        establish::{LinkedSession, SessionRequest},
    },
    report::{error::Error, event::Event},
    session::{Command, Input, Starter, Waiter, kind::Kind},
    trust::{Identity, Peers, PublicKey},
};

/// Maximum wait for a session to end and make its written data durable.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// State shared by all clones of a client.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) identity: Identity,
    pub(super) peers: Arc<Peers>,
    pub(super) settings: ClientBuilder,
    pub(super) host: String,
    pub(super) runtime: ClientRuntime,
    /// Cancelled when the client is closed, and with it all its transfers.
    pub(super) closed: CancellationToken,
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    pub(super) numbers: parking_lot::Mutex<Numbers>,
    pub(super) turns: Turns,
    pub(super) making: Making,
    pub(super) slot: parking_lot::Mutex<Slot>,
    /// Held while a session is established.
    establishing: Mutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<LinkedSession>,
    /// True if an earlier session has ended, so that the next one is a reconnection.
    was_lost: bool,
}

impl Inner {
    /// Must be called within a tokio runtime.
    pub(super) fn new(
        settings: ClientBuilder,
        identity: Identity,
        host: &str,
    ) -> Result<Self, Error> {
        let system = |source| Error::system("start threads", source);
        Ok(Self {
            runtime: ClientRuntime::current()?,
            closed: CancellationToken::new(),
            peers: Arc::new(settings.peers.clone()),
            pool: IoPool::start().map_err(system)?,
            buffers: BufferPool::default(),
            numbers: Default::default(),
            turns: Turns::default(),
            making: Making::default(),
            slot: Default::default(),
            establishing: Mutex::default(),
            host: host.to_owned(),
            settings,
            identity,
        })
    }

    /// Returns an error if no call can succeed any more in this process.
    pub(super) fn require_open(&self) -> Result<(), Error> {
        self.runtime.require_threads()?;
        match self.closed.is_cancelled() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Returns what stands for a peer in the journals of downloads: its key, unless that is new each
    /// time.
    pub(super) fn resume_key(&self, key: &PublicKey) -> [u8; 32] {
        self.settings.resume_as.unwrap_or(*key.as_bytes())
    }

    /// Waits until the program of an introduced peer has ended; forever for a daemon, which may
    /// return.
    async fn peer_gone(&self) {
        match &self.settings.session.introduced {
            Some(peer) => peer.gone.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn peer_ended(&self) -> Error {
        Error::ended(&self.host, "its program has ended")
    }

    /// Returns true if no session with the peer can exist any more.
    pub(super) fn is_peer_gone(&self) -> bool {
        let introduced = self.settings.session.introduced.as_ref();
        introduced.is_some_and(|peer| peer.gone.is_cancelled())
    }

    /// Returns the user's rate limit in bits a second, which the daemon obeys as the sender.
    pub(super) fn limit_bps(&self) -> Option<u64> {
        self.settings.session.bandwidth.map(|BitRate(bps)| bps)
    }

    /// Returns the running session, or a new one as soon as the daemon that was lost is back.
    pub(super) async fn session(self: &Arc<Self>) -> Result<LinkedSession, Error> {
        let told = self.settings.session.events.as_ref();
        let mut reconnects = Reconnects::new(self);
        loop {
            match self.session_of(None, told).await {
                Ok(session) => return Ok(session),
                Err(error) => reconnects.again(error, 0, told).await?,
            }
        }
    }

    /// Returns the running session, or tries once to create a new one. `events` is subscribed to its
    /// link events, and `told` gets [`Event::Unreachable`] until a new session is established.
    pub(super) async fn session_of(
        self: &Arc<Self>,
        events: Option<&mpsc::Sender<Event>>,
        told: Option<&mpsc::Sender<Event>>,
    ) -> Result<LinkedSession, Error> {
        self.require_open()?;
        if let Some(session) = self.running(events) {
            return Ok(session);
        }
        let (inner, events, told) = (self.clone(), events.cloned(), told.cloned());
        let anew = async move { inner.anew(events, told).await };
        self.runtime.run(anew).await?
    }

    /// Returns the running session, to whose link events `events` is subscribed.
    fn running(&self, events: Option<&mpsc::Sender<Event>>) -> Option<LinkedSession> {
        let mut slot = self.slot.lock();
        let session = slot.session.as_ref()?;
        if session.has_ended() {
            *slot = Slot {
                session: None,
                was_lost: true,
            };
            return None;
        }
        events
            .into_iter()
            .for_each(|events| session.audience.join(events));
        Some(session.clone())
    }

    /// Creates a session, unless another call does.
    async fn anew(
        self: Arc<Self>,
        events: Option<mpsc::Sender<Event>>,
        told: Option<mpsc::Sender<Event>>,
    ) -> Result<LinkedSession, Error> {
        let begun = Instant::now();
        let patience = self.settings.session.patience;
        let Ok(_alone) = tokio::time::timeout(patience, self.establishing.lock()).await else {
            return Err(self.abandoned(begun.elapsed()));
        };
        if let Some(session) = self.running(events.as_ref()) {
            return Ok(session);
        }
        // Boxed: otherwise every call of a client would have room for it on the stack.
        let establishing = Box::pin(self.establish(events.as_ref(), told.as_ref()));
        let established = tokio::select! {
            biased;
            () = self.peer_gone() => Err(self.peer_ended()),
            () = self.closed.cancelled() => Err(Error::Closed),
            established = establishing => established,
        };
        let was_lost = self.slot.lock().was_lost;
        let session = match (established, was_lost) {
            (Ok(session), _) => session,
            // Another program has its port.
            (Err(Error::UntrustedPeer { .. }), true)
                if self.settings.session.introduced.is_some() =>
            {
                return Err(self.peer_ended());
            }
            (Err(error), true) if passes(&error) => {
                return Err(Error::Reconnect {
                    host: self.host.clone(),
                    source: Box::new(error),
                });
            }
            (Err(error), _) => return Err(error),
        };
        *self.slot.lock() = Slot {
            session: Some(session.clone()),
            was_lost: false,
        };
        Ok(session)
    }

    pub(super) fn abandoned(&self, waited: Duration) -> Error {
        Error::Abandoned {
            host: self.host.clone(),
            waited,
        }
    }

    async fn establish(
        &self,
        subscriber: Option<&mpsc::Sender<Event>>,
        told: Option<&mpsc::Sender<Event>>,
    ) -> Result<LinkedSession, Error> {
        let request = SessionRequest {
            contact: Contact {
                host: &self.host,
                identity: &self.identity,
                peers: &self.peers,
                settings: &self.settings.session,
                trying: Arc::default(),
            },
            routes: self.settings.session_routes(),
            pool: self.pool.clone(),
            buffers: self.buffers.clone(),
            subscriber: subscriber.cloned(),
            told: told.cloned(),
        };
        request.establish().await
    }

    /// Starts a transfer and returns its identifier, the next free one; `None` if the session has
    /// ended.
    pub(super) async fn begin(
        &self,
        session: &LinkedSession,
        kind: Box<dyn Kind>,
        waiter: Waiter,
    ) -> Option<TransferId> {
        let room = session.handle.inputs.reserve().await.ok()?;
        let mut numbers = self.numbers.lock();
        let transfer = numbers.next();
        room.send(Input::Command(Command::Start {
            transfer,
            kind,
            starter: Starter::Program(waiter),
        }));
        Some(transfer)
    }

    pub(super) fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers
            .find(key)
            .and_then(|peer| peer.name.as_ref().map(|name| name.as_str().to_owned()))
    }

    /// Closes the client: ends its transfers, and then its session once what was written to tunnels
    /// has arrived.
    pub(super) async fn close(self: &Arc<Self>) {
        // Without threads there is nothing to end.
        if self.runtime.require_threads().is_err() {
            return;
        }
        self.closed.cancel();
        let inner = self.clone();
        let end = async move {
            // One that is being established ends by itself.
            let _alone = inner.establishing.lock().await;
            let session = inner.slot.lock().session.take();
            if let Some(session) = session {
                session.flush_tunnels().await;
                let handle = &session.handle;
                handle.command(Command::Close(CloseCode::Done)).await;
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, handle.ended.cancelled()).await;
            }
        };
        let _ = self.runtime.run(end).await;
    }

    /// Closes a session that no longer responds, and waits at most [`CLOSE_TIMEOUT`]. The next
    /// transfer creates another.
    pub(super) async fn forget(&self, session: &LinkedSession) {
        session
            .handle
            .command(Command::Close(CloseCode::Cancelled))
            .await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        let mut slot = self.slot.lock();
        if slot
            .session
            .take_if(|current| current.handle.inputs.same_channel(&session.handle.inputs))
            .is_some()
        {
            slot.was_lost = true;
        }
    }
}

/// Allocator of transfer identifiers. The caller must hold its lock until it has sent the command:
/// the peer silently ignores identifiers below the highest it has seen, as ended transfers.
#[derive(Debug, Default)]
pub(super) struct Numbers(u32);

impl Numbers {
    pub(super) fn next(&mut self) -> TransferId {
        self.0 = self.0.wrapping_add(1);
        TransferId(self.0)
    }
}

/// Returns true if an error of a reconnection may be transient: named links, host name and search
/// were valid for the previous session.
fn passes(error: &Error) -> bool {
    // Named links cannot connect while the daemon is down, and the daemon's machine may serve its
    // own name.
    matches!(
        error,
        Error::Link { .. }
            | Error::Resolve { .. }
            | Error::Unreachable(_)
            | Error::NoInterface { .. }
    )
}
