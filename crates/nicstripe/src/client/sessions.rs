//! Session of a client, replaced when it has ended.

use std::{io, sync::Arc};

use nicstripe_proto::message::CloseCode;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::{CLOSE_TIMEOUT, ClientBuilder, LinkSurvey, jobs::Numbers};
use crate::links::linker::SurveyRequest;
use crate::options::MOST_TRANSFERS;
use crate::{
    error::Error,
    event::Event,
    file::{BufferPool, IoPool},
    links::route_keeper::RouteKeeper,
    session::{Audience, Command, SessionHandle},
    trust::{Identity, Peers, PublicKey},
    tunnel::TunnelMux,
};

/// Shared state of a client.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) identity: Identity,
    pub(super) peers: Arc<Peers>,
    pub(super) settings: ClientBuilder,
    pub(super) host: String,
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    pub(super) numbers: Mutex<Numbers>,
    /// Permits of concurrent transfers.
    pub(super) places: Semaphore,
    pub(super) slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) session: Option<LiveSession>,
    /// True if the previous session has ended.
    was_lost: bool,
}

/// Session that is running or has ended.
#[derive(Debug, Clone)]
pub(super) struct LiveSession {
    pub(super) handle: SessionHandle,
    pub(super) key: PublicKey,
    /// Running transfers, which receive its link events.
    pub(super) audience: Audience,
    /// Its host routes, removed when the last handle is dropped.
    pub(super) routes: Option<Arc<RouteKeeper>>,
    /// Channel for requests to its linker.
    pub(super) survey: mpsc::Sender<SurveyRequest>,
    /// Tunnel multiplexer, once opened.
    pub(super) mux: Arc<Mutex<Option<Arc<TunnelMux>>>>,
}

impl Inner {
    pub(super) fn new(settings: ClientBuilder, identity: Identity, host: &str) -> io::Result<Self> {
        Ok(Self {
            peers: Arc::new(settings.peers.clone()),
            pool: IoPool::start()?,
            buffers: BufferPool::default(),
            numbers: Mutex::default(),
            places: Semaphore::new(MOST_TRANSFERS),
            slot: Mutex::default(),
            host: host.to_owned(),
            settings,
            identity,
        })
    }

    /// Returns the running session, or creates a new one.
    pub(super) async fn session(
        &self,
        events: Option<&mpsc::Sender<Event>>,
    ) -> Result<LiveSession, Error> {
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
        if slot.session.take().is_some() {
            slot.was_lost = true;
        }
        let session = match (self.establish(events).await, slot.was_lost) {
            (Ok(session), _) => session,
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

    /// Returns the name of a key in the peers file.
    pub(super) fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers
            .find(key)
            .and_then(|peer| peer.name.as_ref().map(|name| name.as_str().to_owned()))
    }

    /// Closes a session that no longer responds. The next transfer creates another.
    pub(super) async fn forget(&self, session: &LiveSession) {
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

impl LiveSession {
    /// Returns a survey of the links, or `None` if the session has ended.
    pub(super) async fn survey(&self) -> Option<LinkSurvey> {
        let (request, answer) = oneshot::channel();
        self.survey.send(request).await.ok()?;
        answer.await.ok()
    }
}

/// Returns true if an error of a reconnect may be transient: links, name and key were valid for the
/// previous session.
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
