//! Greeting of an accepted connection: gives it a slot, authenticates the peer and finds its
//! session, or rejects it with the reason.

use std::{
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{arrival_interface, interfaces};
use nicstripe_proto::{
    BitRate, Frame, LAST_PATH, PathId, SessionConfig, SessionId,
    message::{
        CloseCode, Feature, Features, Hello, MAX_PADDING, Refusal, RefusalCode, VERSION, Welcome,
    },
    path::PathPlan,
};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{
    gate::Admission,
    revocation::revoke,
    service::Service,
    shared::{Entry, Shared},
};
use crate::{
    file::{FairShares, FileError, Grant},
    links::{
        connect::{encoded, features, program, supports, tune_stream},
        peer_routes::PeerRoutes,
        plan::described,
    },
    report::error::seconds,
    session::{
        Arriving, Audience, Command, Driver, DriverConfig, Established, Input, SessionHandle,
    },
    storage::Served,
    text::{logged::logged_error, shown_name},
    trust::{PublicKey, Sighting},
    wire::{
        stream::{Greeted, Lease, StreamEnd},
        tls::{TlsError, TlsStream},
    },
};

/// Admits a new connection and starts its greeting in a task. Must stay cheap, since the next
/// connection waits for it.
pub(super) fn accept_connection(
    shared: &Arc<Shared>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
    interface: &str,
) {
    let (tcp, remote) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            // Probably out of file descriptors: evict a stranger to free one.
            shared.gate.drop_oldest();
            tracing::warn!(%error, "cannot accept a connection");
            return;
        }
    };
    let deadline = Instant::now() + shared.limits().greeting_time;
    let Some(admission) = shared.gate.admit(remote) else {
        return shared.reject_connection("full", remote, &"too many connections");
    };
    let (shared, interface) = (shared.clone(), interface.to_owned());
    tokio::spawn(async move {
        let evicted = admission.evicted();
        let greeted = tokio::select! {
            greeted = tokio::time::timeout_at(deadline.into(), greet(&shared, tcp, remote, interface, admission, deadline)) => greeted,
            // The client finds no daemon when it tries again.
            () = shared.ending.cancelled() => return,
            // Evicted: close without sending anything.
            () = evicted.cancelled() => return shared.reject_connection("gave_way", remote, &"evicted for another connection"),
        };
        match greeted {
            Ok(Ok(())) => {}
            // A client's probe of a cable.
            Ok(Err(StreamEnd::Tls(TlsError::Truncated))) => {
                tracing::debug!(%remote, "connection closed before the hello");
            }
            Ok(Err(StreamEnd::Tls(TlsError::UntrustedKey(key)))) => {
                shared.reject_connection("untrusted_key", remote, &Unknown { key, remote });
            }
            Ok(Err(end)) => {
                shared.reject_connection(reason_word(&end), remote, &logged_error(&end));
            }
            Err(_) => {
                shared.reject_connection(
                    "timed_out",
                    remote,
                    &format_args!(
                        "no hello within {} s",
                        seconds(shared.limits().greeting_time)
                    ),
                );
            }
        }
    });
}

impl Shared {
    /// Counts a rejected connection in the metrics, and logs it within the rate limit.
    fn reject_connection(&self, word: &'static str, remote: SocketAddr, reason: &dyn fmt::Display) {
        self.count_refusal(word);
        self.refusals.tell(remote, reason);
    }

    fn count_refusal(&self, word: &'static str) {
        let mut totals = self.meters.totals();
        *totals.greetings_refused.entry(word).or_default() += 1;
    }
}

/// Log message for an untrusted key, with the command that trusts it.
struct Unknown {
    key: PublicKey,
    remote: SocketAddr,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.remote.ip().to_canonical().to_string();
        write!(
            f,
            "untrusted key; to trust it: {}",
            self.key.trust_command(&name)
        )
    }
}

/// Returns the features of this daemon.
fn offered(shared: &Shared) -> Features {
    let is_offered = |feature: &Feature| {
        let has_program = match feature {
            Feature::Exec => shared.executor.is_some(),
            Feature::Fetches => shared.fetcher.is_some(),
            _ => true,
        };
        has_program && features().has(*feature)
    };
    Feature::ALL.into_iter().filter(is_offered).collect()
}

fn reason_word(end: &StreamEnd) -> &'static str {
    match end {
        StreamEnd::Tls(TlsError::TimedOut) => "timed_out",
        StreamEnd::Tls(TlsError::NotTls(_)) => "not_tls",
        StreamEnd::Tls(_) => "handshake",
        StreamEnd::Evicted => "gave_way",
        _ => "greeting",
    }
}

/// Authenticates a connection and passes it to its session. Releases the slot for unauthenticated
/// connections once the key is proved.
async fn greet(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    remote: SocketAddr,
    interface: String,
    admission: Admission,
    deadline: Instant,
) -> Result<(), StreamEnd> {
    tune_stream(&tcp, None);
    shared.trusted.refresh().await;
    let tls = TlsStream::accept(tcp, &shared.tls, deadline, admission.turn()).await?;
    let key = tls.peer_key()?;
    admission.proved(key);
    let Some(lease) = shared.connections.take(shared.trusted.owner(key)) else {
        // It holds its slot at the gate until the refusal is sent.
        return refuse(
            shared,
            remote,
            Greeted::unheard(tls),
            refusal(RefusalCode::TooManySessions, None),
        )
        .await;
    };
    drop(admission);
    let arrival = arrival_interface(tls.tcp())
        .ok()
        .flatten()
        .map(|name| name.to_string())
        .unwrap_or(interface);
    let (frame, mut greeted) = tokio::select! {
        first = Greeted::first_frame(tls) => first?,
        () = lease.evicted().cancelled() => return Err(StreamEnd::Evicted),
    };
    let hello: Hello = match frame {
        Frame::Hello(body) => {
            minicbor::decode(&body).map_err(|error| StreamEnd::Greeting(error.to_string()))?
        }
        _ => return Err(StreamEnd::Greeting("its first frame is not a hello".into())),
    };
    let Found {
        handle,
        routes,
        arriving,
        root,
    } = match find_session(shared, &hello, key).await {
        Ok(found) => found,
        // Closed without an answer. A retry finds no daemon, or is rejected in the handshake.
        Err(NoSession::Ending) => return Ok(()),
        Err(NoSession::Untrusted) => return Err(TlsError::UntrustedKey(key).into()),
        Err(NoSession::Refused(refusal)) => return refuse(shared, remote, greeted, refusal).await,
    };
    lease.has_session();
    let interfaces = if hello.new { interfaces().ok() } else { None };
    let welcome = Welcome {
        version: VERSION,
        arrival: Some(arrival.clone()),
        interfaces: interfaces.map(|found| described(&found, &[])),
        padding: hello
            .padding
            .map(|padding| vec![0; padding.len().min(MAX_PADDING)]),
        root: hello
            .new
            .then(|| shared.roots.shown_path(root.as_deref()))
            .flatten(),
        features: hello.new.then(|| offered(shared)),
        program: hello.new.then(program),
    };
    greeted.send(&Frame::Welcome(encoded(&welcome))).await?;
    greeted.hold(lease);
    let mut established = Box::new(Established::new(greeted));
    established.arriving = Some(arriving);
    let plan = PathPlan {
        local: established.arrival.local,
        peer_interface: hello.interface.map(shown_name),
        cap: hello.cap_bps.map(BitRate),
        ..PathPlan::new(arrival, remote)
    };
    routes.on_arrival(remote.ip(), &plan.interface);
    note_seen(
        shared,
        key,
        remote,
        &plan.interface,
        hello.new.then_some(&handle),
    );
    let _ = handle
        .inputs
        .send(Input::Arrived {
            path: PathId(hello.path),
            plan: Box::new(plan),
            established,
        })
        .await;
    Ok(())
}

/// Records that a peer was seen: at once, and at the end of a new session.
fn note_seen(
    shared: &Shared,
    key: PublicKey,
    remote: SocketAddr,
    interface: &str,
    new: Option<&SessionHandle>,
) {
    let seen = shared.seen.clone();
    let sighting = Sighting::now(key, remote.ip(), interface);
    if let Some(ended) = new.map(|session| session.ended.clone()) {
        let (seen, interface) = (seen.clone(), interface.to_owned());
        tokio::spawn(async move {
            ended.cancelled().await;
            seen.note(Sighting::now(key, remote.ip(), &interface));
        });
    }
    seen.note(sighting);
}

/// Reason why a connection gets no session.
#[derive(Debug, PartialEq, Eq)]
enum NoSession {
    Refused(Refusal),
    Ending,
    /// The key was removed from the list of peers after the handshake.
    Untrusted,
}

impl From<RefusalCode> for NoSession {
    fn from(code: RefusalCode) -> Self {
        Self::Refused(refusal(code, None))
    }
}

fn refusal(code: RefusalCode, most: Option<u32>) -> Refusal {
    Refusal {
        code,
        version: VERSION,
        most,
    }
}

async fn refuse(
    shared: &Shared,
    remote: SocketAddr,
    mut greeted: Greeted,
    refusal: Refusal,
) -> Result<(), StreamEnd> {
    let word = refusal_word(refusal.code);
    shared.count_refusal(word);
    match refusal.code {
        // The session ended while this connection was set up.
        RefusalCode::UnknownSession => tracing::debug!(%remote, "connection for an ended session"),
        RefusalCode::Version => tracing::info!(
            %remote,
            reason = word,
            "session refused: the client speaks another protocol than {VERSION}, update nicstripe there or here"
        ),
        _ => tracing::info!(%remote, reason = word, "session refused"),
    }
    greeted.send(&Frame::Refuse(encoded(&refusal))).await?;
    greeted.finish().await;
    Ok(())
}

/// Session that a hello requests.
struct Found {
    handle: SessionHandle,
    routes: Arc<PeerRoutes>,
    arriving: Arriving,
    /// The peer's own `root=`; `None` if it gets the daemon's.
    root: Option<PathBuf>,
}

impl From<&Entry> for Found {
    fn from(entry: &Entry) -> Self {
        Self {
            handle: entry.handle.clone(),
            routes: entry.routes.clone(),
            arriving: entry.handle.await_connection(),
            root: entry.rights.options().root.clone(),
        }
    }
}

/// Returns the session that a hello requests: a new one, or an existing one of the same key. Opens
/// the directory of a new one first, which may take long.
async fn find_session(
    shared: &Arc<Shared>,
    hello: &Hello,
    key: PublicKey,
) -> Result<Found, NoSession> {
    shared.trusted.refresh().await;
    let opened = match (hello.new, shared.trusted.peers()) {
        (true, Some(peers)) => {
            let rights = shared.trusted.rights(&peers, &key);
            let rights = rights.ok_or(NoSession::Untrusted)?;
            let root = rights.options().root.clone();
            let served = shared.roots.served(root.as_deref(), &peers).await;
            Some((root, served))
        }
        _ => None,
    };
    session_of(shared, hello, key, opened)
}

/// Directory that was opened for a new session: its `root=`, and what is served there.
type OpenedRoot = (Option<PathBuf>, Result<Served, FileError>);

/// Like [`find_session`], with what the daemon serves to a new session.
///
/// Looks up the key's rights after the handshake, with the sessions locked. A key removed from the
/// peers file meanwhile thus gets no session, and [`Shared::end_sessions_without_rights`] misses no
/// new session.
fn session_of(
    shared: &Arc<Shared>,
    hello: &Hello,
    key: PublicKey,
    opened: Option<OpenedRoot>,
) -> Result<Found, NoSession> {
    if hello.version != VERSION {
        return Err(RefusalCode::Version.into());
    }
    if PathId(hello.path) > LAST_PATH {
        return Err(RefusalCode::Path.into());
    }
    let limits = shared.limits();
    let mut sessions = shared.sessions.lock();
    if shared.ending.is_cancelled() {
        return Err(NoSession::Ending);
    }
    let peers = shared.trusted.peers().ok_or(NoSession::Untrusted)?;
    let rights = shared.trusted.rights(&peers, &key);
    let rights = rights.ok_or(NoSession::Untrusted)?;
    let owner = rights.owner();
    match sessions.get(&hello.session) {
        Some(entry) if entry.rights.key() == key => match entry.rights.loss(&peers) {
            None => return Ok(entry.into()),
            Some(loss) => {
                revoke(entry, loss);
                return Err(RefusalCode::UnknownSession.into());
            }
        },
        Some(_) => return Err(RefusalCode::UnknownSession.into()),
        None if !hello.new => return Err(RefusalCode::UnknownSession.into()),
        None => {}
    }
    let running = sessions.values().filter(|entry| !entry.is_evicted);
    let shares = FairShares::held_by(limits.sessions, running.map(|entry| entry.rights.owner()));
    match shares.request(&owner, limits.sessions_per_peer) {
        Grant::Free => {}
        Grant::Evict(greatest) => take_from(&mut sessions, &greatest),
        Grant::Rejected(most) => {
            // Sessions without a connection end, which makes room for the client's next attempt.
            handles_of(&sessions, &key)
                .iter()
                .filter(|session| session.is_idle())
                .for_each(SessionHandle::end_if_idle);
            let most = u32::try_from(most).ok();
            let refusal = refusal(RefusalCode::TooManySessions, most);
            return Err(NoSession::Refused(refusal));
        }
    }
    let served = match opened {
        Some((root, served)) if root == rights.options().root => served.map_err(|error| {
            tracing::error!(%key, error = %logged_error(&error), "cannot serve this peer");
            RefusalCode::Storage
        })?,
        // Its line changed meanwhile. A retry finds the new one.
        _ => return Err(RefusalCode::UnknownSession.into()),
    };
    let service = Service::new(shared, &rights, hello, served);
    let routes = service.routes.clone();
    let handle = Driver::start(DriverConfig {
        service: Some(Arc::new(service)),
        host: rights.name(),
        session: SessionConfig {
            rate_limit: [
                rights.options().rate.or(limits.session_rate),
                hello.limit_bps.map(BitRate),
            ]
            .into_iter()
            .flatten()
            .min(),
            patience: limits.session_patience,
            ..SessionConfig::default()
        },
        pool: shared.pool.of(*owner.as_bytes()),
        buffers: shared.buffers.clone(),
        packs: supports(hello.features, Feature::Compression),
        share: Some(shared.chunks.join(*owner.as_bytes())),
        steps: None,
        audience: Audience::default(),
        events: None,
    });
    tokio::spawn(forget(shared.clone(), handle.ended.clone()));
    let earlier = handles_of(&sessions, &key);
    if !earlier.is_empty() {
        tokio::spawn(replace(earlier));
    }
    let entry = Entry {
        rights,
        handle,
        routes,
        is_evicted: false,
    };
    let found = Found::from(&entry);
    sessions.insert(hello.session, entry);
    Ok(found)
}

/// Evicts a session of this key in favour of another key. Prefers one without a connection.
fn take_from(sessions: &mut HashMap<SessionId, Entry>, key: &PublicKey) {
    let of_key = sessions
        .values_mut()
        .filter(|entry| entry.rights.owner() == *key && !entry.is_evicted);
    let Some(entry) = of_key.min_by_key(|entry| !entry.handle.is_idle()) else {
        return;
    };
    entry.is_evicted = true;
    let session = entry.handle.clone();
    tracing::info!(%key, "session evicted for another key: this key has the most sessions");
    tokio::spawn(async move { session.command(Command::Close(CloseCode::Cancelled)).await });
}

fn refusal_word(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::Version => "version",
        RefusalCode::UnknownSession => "unknown_session",
        RefusalCode::TooManySessions => "too_many_sessions",
        RefusalCode::ShuttingDown => "shutting_down",
        RefusalCode::Path => "path",
        RefusalCode::Storage => "storage",
    }
}

fn handles_of(sessions: &HashMap<SessionId, Entry>, key: &PublicKey) -> Vec<SessionHandle> {
    sessions
        .values()
        .filter(|entry| entry.rights.key() == *key)
        .map(|entry| entry.handle.clone())
        .collect()
}

/// Waits for the end of a session, then drops the daemon's handle to it and the session's host
/// routes.
async fn forget(shared: Arc<Shared>, ended: CancellationToken) {
    ended.cancelled().await;
    let has_ended = |_: &SessionId, entry: &mut Entry| entry.handle.ended.is_cancelled();
    let ended: Vec<_> = shared.sessions.lock().extract_if(has_ended).collect();
    // Removes host routes, which waits for the helper: not with the sessions locked.
    drop(ended);
}

/// Ends the earlier sessions of a peer that has started a new one, as soon as they have no
/// connection. Their host routes and files are thus free before the session timeout.
///
/// A session that is still heard belongs to another program of the peer, which needs it after an
/// outage: a copy would continue with a new session, but a command would end.
async fn replace(earlier: Vec<SessionHandle>) {
    let started_at = Instant::now();
    // Reads what a killed program had sent before the new one started.
    tokio::time::sleep(SILENCE_PAUSE).await;
    end_idle(&earlier, |_| true).await;
    earlier.iter().for_each(|session| session.forget_heard());
    while started_at.elapsed() < SILENCE_TIMEOUT {
        tokio::time::sleep(SILENCE_PAUSE).await;
        end_idle(&earlier, |session| !session.is_heard()).await;
    }
}

async fn end_idle(sessions: &[SessionHandle], may_end: impl Fn(&SessionHandle) -> bool) {
    for session in sessions {
        if session.is_idle() && may_end(session) {
            session.command(Command::EndIfIdle).await;
        }
    }
}

/// Time for which earlier sessions of a returned peer are checked. The daemon may notice a killed
/// client only by its silence, which takes up to 4 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two checks of whether a returned peer's earlier sessions have a connection.
const SILENCE_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::Daemon,
        trust::{Identity, Peers, PublicLine},
    };

    #[tokio::test]
    async fn a_million_forged_joins_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let [owner, other] = std::array::from_fn(|_| Identity::generate().unwrap().public_key());
        let mut peers = Peers::default();
        [owner, other]
            .iter()
            .for_each(|key| drop(peers.add(&PublicLine::new(*key, ""), None).unwrap()));
        let builder = Daemon::builder()
            .peers(peers)
            .root(root.path().to_owned())
            .port(0)
            .listen(vec!["127.0.0.9:0".parse().unwrap()]);
        let bound = builder.bind().await.unwrap();
        let hello = |id: &[u8], new| Hello {
            version: VERSION,
            session: SessionId(id.try_into().unwrap()),
            new,
            path: 0,
            interface: None,
            interfaces: None,
            cap_bps: None,
            padding: None,
            features: None,
            program: None,
            limit_bps: None,
        };
        let real = [42; 16];
        let session_of = |hello: &Hello, key| session_of(&bound.shared, hello, key, None);
        drop(
            find_session(&bound.shared, &hello(&real, true), owner)
                .await
                .unwrap(),
        );
        let unknown = || NoSession::from(RefusalCode::UnknownSession);
        // Neither the session number without the key nor the key without the number is accepted.
        let refused = |id: &[u8], key| session_of(&hello(id, false), key).map(drop).unwrap_err();
        assert_eq!(
            (refused(&real, other), refused(&[0; 16], owner)),
            (unknown(), unknown())
        );
        let mut guesses = vec![0; 16 * 10_000];
        let mut numbers = blake3::Hasher::new().finalize_xof();
        for _ in 0..100 {
            numbers.fill(&mut guesses);
            assert!(
                guesses
                    .chunks(16)
                    .all(|guess| refused(guess, other) == unknown())
            );
        }
        assert!(session_of(&hello(&real, false), owner).is_ok());
        // During shutdown clients are not admitted, and get no answer that would end their retries.
        bound.shared.ending.cancel();
        assert_eq!(
            session_of(&hello(&[43; 16], true), owner)
                .map(drop)
                .unwrap_err(),
            NoSession::Ending
        );
    }
}
