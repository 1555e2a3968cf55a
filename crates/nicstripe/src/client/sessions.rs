//! Sessions of a client: one at a time, and a new one if the last has ended.

use std::{io, sync::Arc, time::Duration};

use nicstripe_proto::{BitRate, TransferId, message::CloseCode};
use tokio::{
    runtime::Handle,
    sync::{Mutex, Semaphore, mpsc},
};

use super::builder::ClientBuilder;
use crate::{
    file::{BufferPool, IoPool, options::MOST_TRANSFERS},
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
    /// Runtime on which the client was connected, and on which its transfers run.
    pub(super) runtime: Handle,
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    pub(super) numbers: parking_lot::Mutex<Numbers>,
    /// Permits for concurrent transfers, at most [`MOST_TRANSFERS`].
    pub(super) permits: Semaphore,
    pub(super) slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<LinkedSession>,
    /// True if an earlier session has ended, so that the next one is a reconnection.
    was_lost: bool,
}

impl Inner {
    /// Must be called within a tokio runtime.
    pub(super) fn new(settings: ClientBuilder, identity: Identity, host: &str) -> io::Result<Self> {
        Ok(Self {
            peers: Arc::new(settings.peers.clone()),
            pool: IoPool::start()?,
            buffers: BufferPool::default(),
            numbers: Default::default(),
            permits: Semaphore::new(MOST_TRANSFERS),
            slot: Mutex::default(),
            host: host.to_owned(),
            runtime: Handle::current(),
            settings,
            identity,
        })
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

    /// Returns the running session, or creates a new one.
    pub(super) async fn session(&self) -> Result<LinkedSession, Error> {
        let told = self.settings.session.events.as_ref();
        self.session_of(None, told).await
    }

    /// Like [`session`](Self::session). `events` is subscribed to its link events, and `told`
    /// receives [`Event::Unreachable`] until a new session is established.
    pub(super) async fn session_of(
        &self,
        events: Option<&mpsc::Sender<Event>>,
        told: Option<&mpsc::Sender<Event>>,
    ) -> Result<LinkedSession, Error> {
        let mut slot = self.slot.lock().await;
        if let Some(session) = slot
            .session
            .as_ref()
            .filter(|session| !session.handle.ended.is_cancelled())
        {
            events
                .into_iter()
                .for_each(|events| session.audience.join(events));
            return Ok(session.clone());
        }
        Error::require_runtime()?;
        if slot.session.take().is_some() {
            slot.was_lost = true;
        }
        // Boxed: otherwise every call of a client would have room for it on the stack.
        let establishing = Box::pin(self.establish(events, told));
        let established = tokio::select! {
            biased;
            () = self.peer_gone() => Err(self.peer_ended()),
            established = establishing => established,
        };
        let session = match (established, slot.was_lost) {
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
        *slot = Slot {
            session: Some(session.clone()),
            was_lost: false,
        };
        Ok(session)
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

    /// Returns the name of a key in the peers file; `None` if it has none.
    pub(super) fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers
            .find(key)
            .and_then(|peer| peer.name.as_ref().map(|name| name.as_str().to_owned()))
    }

    /// Closes a session that no longer responds, and waits at most [`CLOSE_TIMEOUT`]. The next
    /// transfer creates another.
    pub(super) async fn forget(&self, session: &LinkedSession) {
        session
            .handle
            .command(Command::Close(CloseCode::Cancelled))
            .await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        let mut slot = self.slot.lock().await;
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
