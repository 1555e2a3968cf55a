//! Listeners of a daemon for its peer, and the connections that they have accepted.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use nicstripe_proto::tunnel::{Broken, TargetRefusal};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{local_listener::LocalListener, local_stream::LocalStream, stream::Tunnel};
use crate::{
    file::{Lease, Quota},
    trust::ListenTarget,
};

/// Listeners of one session, within what the peer's line in the peers file permits (`listen=`).
pub(crate) struct Listeners {
    allowed: Vec<ListenTarget>,
    /// Permits for listeners.
    places: Arc<Semaphore>,
    /// Quota of file descriptors for the peer's key; each listener and connection uses one.
    descriptors: Quota,
    free_up: FreeUp,
    open: Mutex<Vec<Weak<LocalListener>>>,
    accepted: Mutex<Accepted>,
}

/// Function that ends earlier sessions of the same peer that have lost all links. Its future returns
/// true if there were any.
pub(crate) type FreeUp = Box<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

#[derive(Default)]
struct Accepted {
    /// Number of the last one.
    last: u32,
    /// Takers of the tunnels for connections that the client has not claimed.
    unclaimed: BTreeMap<u32, oneshot::Sender<Tunnel>>,
}

pub(super) struct Listening {
    listeners: Arc<Listeners>,
    listener: Arc<LocalListener>,
    _place: OwnedSemaphorePermit,
    _lease: Lease,
}

impl Listeners {
    pub(crate) fn new(allowed: Vec<ListenTarget>, descriptors: Quota, free_up: FreeUp) -> Self {
        Self {
            allowed,
            places: Arc::new(Semaphore::new(MOST_LISTENERS)),
            descriptors,
            free_up,
            open: Mutex::default(),
            accepted: Mutex::default(),
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.places.available_permits() < MOST_LISTENERS
    }

    /// Removes the socket files at once, since the process may end before the listeners do.
    pub(super) fn remove_files(&self) {
        let open = self.open.lock();
        let open = open.iter().filter_map(Weak::upgrade);
        open.for_each(|listener| listener.remove_file());
    }

    /// Listens at an address, if that is permitted.
    pub(super) async fn bind(
        self: &Arc<Self>,
        address: &str,
    ) -> Result<Listening, (TargetRefusal, String)> {
        let not_allowed = "not permitted for this machine's key";
        let target = address
            .parse::<ListenTarget>()
            .ok()
            .filter(|target| self.allowed.contains(target))
            .ok_or_else(|| (TargetRefusal::NotAllowed, not_allowed.to_owned()))?;
        let too_many = |why: &str| (TargetRefusal::TooMany, why.to_owned());
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| too_many("limit of listeners of a session reached"))?;
        let lease = self.descriptors.try_lease(1);
        let lease = lease.ok_or_else(|| too_many("limit of open files for this key reached"))?;
        let listener = self.bind_when_free(&target).await;
        let listener = listener.map_err(|error| (TargetRefusal::Unreachable, error.to_string()))?;
        let listener = Arc::new(listener);
        let mut open = self.open.lock();
        open.retain(|one| one.strong_count() > 0);
        open.push(Arc::downgrade(&listener));
        Ok(Listening {
            listeners: self.clone(),
            listener,
            _place: place,
            _lease: lease,
        })
    }

    /// Listens also at what an earlier session of this peer occupies, if it has lost all links.
    async fn bind_when_free(&self, target: &ListenTarget) -> io::Result<LocalListener> {
        let mut bound = LocalListener::bind(target);
        if is_in_use(&bound) && (self.free_up)().await {
            for _ in 0..ATTEMPTS {
                sleep(ATTEMPT_PAUSE).await;
                bound = LocalListener::bind(target);
                if !is_in_use(&bound) {
                    break;
                }
            }
        }
        bound
    }

    /// Connects a tunnel to the accepted connection with this number.
    pub(super) fn claim(&self, tunnel: Tunnel, number: u32) {
        let unclaimed = self.accepted.lock().unclaimed.remove(&number);
        let left = match unclaimed {
            Some(taker) => taker.send(tunnel),
            None => Err(tunnel),
        };
        if let Err(tunnel) = left {
            tunnel.refuse(TargetRefusal::Unreachable, "no such connection");
        }
    }

    /// Holds a connection until the client claims it, and then carries it. Closes it if the client
    /// does not claim it in time, or `over` is cancelled before. Returns its number; `None` if there
    /// are no more numbers.
    fn offer(self: &Arc<Self>, held: Held, over: CancellationToken) -> Option<u32> {
        let (taker, claimed) = oneshot::channel();
        let number = {
            let mut accepted = self.accepted.lock();
            accepted.last = accepted.last.checked_add(1)?;
            let number = accepted.last;
            accepted.unclaimed.insert(number, taker);
            number
        };
        let listeners = self.clone();
        tokio::spawn(async move {
            let claimed = tokio::select! {
                claimed = timeout(CLAIM_TIMEOUT, claimed) => claimed.ok().and_then(Result::ok),
                () = over.cancelled() => None,
            };
            listeners.accepted.lock().unclaimed.remove(&number);
            held.carry(claimed).await;
        });
        Some(number)
    }
}

fn is_in_use(bound: &io::Result<LocalListener>) -> bool {
    let error = bound.as_ref().err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Accepted connection, with what it uses.
struct Held {
    connection: LocalStream,
    _lease: Lease,
    /// Permit for a connection that is not claimed.
    room: OwnedSemaphorePermit,
}

impl Held {
    /// Relays data between the connection and a tunnel; without one, closes the connection.
    async fn carry(self, tunnel: Option<Tunnel>) {
        drop(self.room);
        let Some(tunnel) = tunnel else {
            return self.connection.reset();
        };
        tunnel.accept();
        if let Err(error) = tunnel.join(self.connection).await {
            tracing::debug!(%error, "accepted connection was reset");
        }
    }
}

impl Listening {
    /// Tells the client of each connection, until the client or the session ends the tunnel.
    pub(super) async fn run(self, tunnel: Tunnel) {
        tokio::select! {
            () = tunnel.heard() => {}
            // Fails only if the tunnel has ended.
            _ = self.accept_all(&tunnel) => {}
        }
    }

    /// Returns once there are no more numbers.
    async fn accept_all(&self, tunnel: &Tunnel) -> Result<(), Broken> {
        let unclaimed = Arc::new(Semaphore::new(MOST_UNCLAIMED));
        let over = CancellationToken::new();
        let _over = over.clone().drop_guard();
        let address = self.listener.target().address();
        let port = address.map_or(0, |address| address.port());
        tunnel.send(&port.to_le_bytes()).await?;
        while let Ok(room) = unclaimed.clone().acquire_owned().await {
            let connection = match self.listener.accept().await {
                Ok(connection) => connection,
                // Most likely too many files are open; some will be closed.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(lease) = self.listeners.descriptors.try_lease(1) else {
                connection.reset();
                continue;
            };
            let held = Held {
                connection,
                _lease: lease,
                room,
            };
            let Some(number) = self.listeners.offer(held, over.clone()) else {
                break;
            };
            tunnel.send(&number.to_le_bytes()).await?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

const MOST_LISTENERS: usize = 64;

/// Maximum number of connections of a listener that the client has not claimed. The kernel's backlog
/// holds further ones.
const MOST_UNCLAIMED: usize = 64;

/// Timeout of a connection that the client does not claim.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts to listen after an earlier session has ended, whose tasks close its sockets. Together
/// they take 1 s.
const ATTEMPTS: u32 = 20;

const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
