//! Connections of a daemon to the targets of its peer's tunnels.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    TokenBucket,
    tunnel::{Target, TargetRefusal},
};
use parking_lot::Mutex;
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use super::{listeners::Listeners, local_stream::LocalStream, resolver::Resolver, stream::Tunnel};
use crate::{file::Quota, text::logged::logged, trust::DialTarget};

/// Connects tunnels to the targets that the peer's line in the peers file permits: services
/// (`dial=`) and listeners (`listen=`).
#[derive(Debug)]
pub(crate) struct Dialer {
    peer: String,
    allowed: Vec<DialTarget>,
    /// Permits for concurrent connection attempts to targets.
    attempts: Semaphore,
    records: Mutex<TokenBucket>,
    /// Quota of file descriptors for the peer's key; each tunnel uses one.
    descriptors: Quota,
    resolver: Resolver,
    listeners: Arc<Listeners>,
}

impl Dialer {
    pub(crate) fn new(
        peer: String,
        allowed: Vec<DialTarget>,
        descriptors: Quota,
        resolver: Resolver,
        listeners: Listeners,
    ) -> Self {
        let records = Mutex::new(TokenBucket::new(
            MOST_RECORDS,
            RECORDS_PER_SECOND,
            Instant::now(),
        ));
        Self {
            peer,
            allowed,
            attempts: Semaphore::new(MOST_ATTEMPTS),
            records,
            descriptors,
            resolver,
            listeners: Arc::new(listeners),
        }
    }

    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Connects a tunnel to its target and relays data until the tunnel ends.
    pub(crate) async fn serve(self: Arc<Self>, tunnel: Tunnel, target: String) {
        match Target::parse(&target) {
            Target::Service(service) => self.dial(tunnel, service).await,
            Target::Listen(address) => self.listen(tunnel, address).await,
            Target::Accepted(number) => self.listeners.claim(tunnel, number),
        }
    }

    async fn listen(&self, tunnel: Tunnel, address: &str) {
        let bound = tokio::select! {
            bound = self.listeners.bind(address) => bound,
            // The client has cancelled the tunnel.
            () = tunnel.ended() => return,
        };
        match bound {
            Ok(listening) => {
                if self.may_record() {
                    tracing::info!(peer = self.peer, address = %logged(address), "listener begins");
                }
                tunnel.accept();
                listening.run(tunnel).await;
            }
            Err(refusal) => self.refuse(&tunnel, address, refusal),
        }
    }

    async fn dial(&self, tunnel: Tunnel, target: &str) {
        let Some(_lease) = self.descriptors.try_lease(1) else {
            return tunnel.refuse(
                TargetRefusal::TooMany,
                "limit of connections and open files for this key reached",
            );
        };
        let connected = {
            let Ok(_permit) = self.attempts.try_acquire() else {
                return tunnel.refuse(TargetRefusal::TooMany, "too many connections in progress");
            };
            tokio::select! {
                connected = self.connect(target) => connected,
                // The client has cancelled the tunnel.
                () = tunnel.ended() => return,
            }
        };
        match connected {
            Ok(local) => {
                if self.may_record() {
                    tracing::info!(peer = self.peer, target = %logged(target), "tunnel begins");
                }
                tunnel.accept();
                if let Err(error) = tunnel.join(local).await {
                    tracing::debug!(peer = self.peer, target = %logged(target), %error, "tunnel was reset");
                }
            }
            Err(refusal) => self.refuse(&tunnel, target, refusal),
        }
    }

    fn refuse(&self, tunnel: &Tunnel, target: &str, (code, why): (TargetRefusal, String)) {
        if self.may_record() {
            tracing::info!(peer = self.peer, target = %logged(target), why = %logged(&why), "tunnel refused");
        }
        tunnel.refuse(code, &why);
    }

    async fn connect(&self, target: &str) -> Result<LocalStream, (TargetRefusal, String)> {
        // Compared literally before any lookup, so that the resolver cannot widen the permission.
        let mut allowed = self.allowed.iter();
        let Some(allowed) = allowed.find(|allowed| allowed.as_str() == target) else {
            return Err((
                TargetRefusal::NotAllowed,
                "not permitted for this machine's key".into(),
            ));
        };
        match allowed.socket_file() {
            Some(path) => timeout(DIAL_TIMEOUT, LocalStream::connect_to_file(path))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                .map_err(|error| (TargetRefusal::Unreachable, error.to_string())),
            None => self.connect_to_host(target).await.map(LocalStream::tcp),
        }
    }

    async fn connect_to_host(&self, target: &str) -> Result<TcpStream, (TargetRefusal, String)> {
        let deadline = Instant::now() + DIAL_TIMEOUT;
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let unresolved = |error: &io::Error| {
            (
                TargetRefusal::Unresolved,
                format!("cannot resolve its name: {error}"),
            )
        };
        let addresses = timeout(DIAL_TIMEOUT, self.resolver.resolve(target))
            .await
            .unwrap_or_else(|_| Err(Arc::new(late())))
            .map_err(|error| match error.kind() {
                io::ErrorKind::QuotaExceeded => (TargetRefusal::TooMany, error.to_string()),
                _ => unresolved(&error),
            })?;
        let mut failure = late();
        for (tried, address) in addresses.iter().enumerate() {
            // Divides the remaining time among the remaining addresses.
            let left = deadline.saturating_duration_since(Instant::now())
                / (addresses.len() - tried) as u32;
            match timeout(left, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = late(),
            }
        }
        Err((TargetRefusal::Unreachable, format!("{failure}")))
    }

    fn may_record(&self) -> bool {
        self.records.lock().take(Instant::now())
    }
}

/// Timeout of connecting to a target, for name resolution and all its addresses together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent connection attempts per session.
const MOST_ATTEMPTS: usize = nicstripe_proto::tunnel::MOST_CONNECTIONS;

/// Rate limit of log records about tunnels per session: burst, and records per second.
const MOST_RECORDS: u32 = 20;
const RECORDS_PER_SECOND: u32 = 10;
