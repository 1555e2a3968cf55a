//! State that all connections of a daemon share.

use std::{collections::HashMap, sync::Arc};

use nicstripe_proto::SessionId;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::{
    benches::Benches, connections::Connections, executor::Executor, fetcher::Fetcher, gate::Gate,
    inbox::Inbox, limits::Limits, refusals::Refusals, rights::Rights, roots::Roots, seen::Seen,
    trusted::Trusted,
};
use crate::{
    file::{BufferPool, IoPool, Quota},
    links::{
        peer_routes::{PeerRoutes, RouteLimits},
        route_keeper::RouteKeeper,
    },
    report::metrics::Meters,
    session::{ChunkShares, Command, SessionHandle},
    trust::{self, Identity, PublicKey},
    tunnel::Resolver,
    wire::tls::ServerTls,
};

/// State of a daemon, shared by all its connections.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) tls: ServerTls,
    /// Key pair that also signs receipts.
    pub(super) identity: Identity,
    pub(super) trusted: Trusted,
    pub(super) roots: Arc<Roots>,
    pub(super) access: trust::Access,
    pub(super) pool: IoPool,
    /// Quota of file descriptors for files that peers have open, and for the connections of
    /// tunnels.
    pub(super) files: Quota,
    /// Quota of file descriptors for directories open in tree transfers.
    pub(super) trees: Quota,
    /// Quota of memory for tree transfers, maps of holes and kept listings, in bytes.
    pub(super) memory: Quota,
    /// Resolver of the names to which tunnels lead.
    pub(super) resolver: Resolver,
    pub(super) buffers: BufferPool,
    /// Memory for chunks in flight, divided among the sessions.
    pub(super) chunks: ChunkShares,
    pub(super) sessions: Mutex<HashMap<SessionId, Entry>>,
    /// Slots and rate limits of unauthenticated connections.
    pub(super) gate: Arc<Gate>,
    pub(super) refusals: Arc<Refusals>,
    /// Slots of authenticated connections, with fair shares per key.
    pub(super) connections: Arc<Connections>,
    pub(super) limits: RwLock<Arc<Limits>>,
    /// Limits of the host routes that peers request.
    pub(super) route_limits: Arc<RouteLimits>,
    pub(super) meters: Arc<Meters>,
    pub(super) bench: Benches,
    /// Token that is cancelled at shutdown; no session starts afterwards.
    pub(super) ending: CancellationToken,
    /// Runs the commands of peers; `None` if the daemon runs none.
    pub(super) executor: Option<Arc<dyn Executor>>,
    /// Fetches files from other daemons; `None` if the daemon does not.
    pub(super) fetcher: Option<Arc<dyn Fetcher>>,
    pub(super) routes: Option<Arc<RouteKeeper>>,
    /// Stands for a peer in the journals of unfinished copies; `None` for its key.
    pub(super) resume_as: Option<PublicKey>,
    /// Names that peers may create, if they may do nothing else.
    pub(super) inbox: Option<Inbox>,
    /// Record of when and from where peers connect.
    pub(super) seen: Arc<Seen>,
}

/// Running session of a daemon.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rights: Rights,
    pub(super) handle: SessionHandle,
    pub(super) routes: Arc<PeerRoutes>,
    /// True while the session is being evicted to admit another key; it no longer counts towards
    /// the session limits.
    pub(super) is_evicted: bool,
}

impl Shared {
    /// Returns the current resource limits, which [`DaemonHandle`](super::DaemonHandle) may change.
    pub(super) fn limits(&self) -> Arc<Limits> {
        self.limits.read().clone()
    }

    /// Asks all other sessions of this key that have no connection to end, and returns their
    /// handles. Skips `session` itself, which may lack a connection for a moment.
    pub(super) async fn evict_idle_for(
        &self,
        session: &SessionHandle,
        key: &PublicKey,
    ) -> Vec<SessionHandle> {
        let idle = |entry: &&Entry| {
            entry.rights.key() == *key && entry.handle.is_idle() && !entry.handle.is_same(session)
        };
        let handles: Vec<SessionHandle> = self
            .sessions
            .lock()
            .values()
            .filter(idle)
            .map(|entry| entry.handle.clone())
            .collect();
        for handle in &handles {
            handle.command(Command::EndIfIdle).await;
        }
        handles
    }
}
