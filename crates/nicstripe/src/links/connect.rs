//! Connection setup of the client: socket pinned to its interface, TCP, TLS and greeting. The
//! daemon's counterpart is [`crate::daemon`].

mod packets;
mod retries;

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    net::{IpAddr, SocketAddr},
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::PathBuf,
    pin::pin,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use nicstripe_link::{
    IcmpError, IcmpMeaning, Interface, InterfaceName, icmp_error, pinned_socket, queue_icmp_errors,
    set_buffers, tcp_info, tune,
};
use nicstripe_proto::{
    BitRate, Frame, LAST_PATH, PathId, SessionId,
    message::{
        Feature, Features, Hello, MAX_ROOT, PeerInterface, Refusal, RefusalCode, VERSION, Welcome,
    },
    path::{Origin, PathPlan},
};
use parking_lot::Mutex;
use socket2::Socket;
use tokio::net::{TcpSocket, TcpStream};

pub(crate) use self::packets::GREETING_TIMEOUT;
use self::packets::{LEAST_MTU, PacketProbe, rung_timeout, segment};
pub(crate) use self::retries::Retries;
use super::{local, request::SessionSettings};
use crate::{
    file::UNPACKS,
    report::error::Error,
    session::{Established, SERVES_BENCH},
    text::{shown_interface, shown_name},
    trust::{Identity, Peers, PublicKey},
    wire::{
        stream::{Greeted, StreamEnd, send_frame},
        tls::{ClientTls, TlsError, TlsStream},
    },
};

/// Timeout of the TCP handshake. Linux repeats a lost SYN, or a lost question for a neighbour's
/// hardware address, only after one second: then the attempt fails, and another follows.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the TCP handshake in the first attempt of an automatic link, in addition to four round
/// trips of the first connection. After a lost packet, another address or attempt works sooner than
/// the kernel's repetition: over a cable that lost one packet in 200, three of 60 links joined after
/// a second.
const FIRST_TRY_TIMEOUT: Duration = Duration::from_millis(300);

/// Timeout of the TCP handshake of the first connection to a host, which may have to wake up or may
/// be far away.
pub(crate) const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of connecting to an address to prove that the peer owns it.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);

/// Connector of a client; establishes the connections of one session.
#[derive(Debug)]
pub(crate) struct Connector {
    tls: ClientTls,
    ours: PublicKey,
    host: String,
    session: SessionId,
    /// Public key of the peer: known from the start for a known peer, otherwise set once the peer
    /// has proved it. Connections accept no other key.
    pinned: Arc<OnceLock<PublicKey>>,
    /// Path MTU between a local interface and an address of the peer, where larger packets of the
    /// interface are dropped.
    narrow: Mutex<HashMap<(String, IpAddr), u32>>,
    /// Socket buffer size in bytes; `None` leaves it to the kernel's autotuning.
    socket_buffer: Option<u64>,
    /// Rate at which the daemon may send over all paths; `None` for no limit.
    limit: Option<BitRate>,
    /// Round-trip time of the session's first connection.
    round_trip: OnceLock<Duration>,
}

/// First connection of a session, with the daemon's description of itself.
pub(crate) struct FirstContact {
    pub(crate) established: Established,
    pub(crate) remote_interfaces: Vec<PeerInterface>,
    pub(crate) key: PublicKey,
    pub(crate) peer: PeerProgram,
}

/// Facts that the daemon sent when the session was created.
#[derive(Debug, Clone)]
pub(crate) struct PeerProgram {
    /// Absolute path of the directory that the daemon serves; `None` if it does not tell.
    pub(crate) root: Option<PathBuf>,
    /// `None` for an older daemon, which may support any feature of this version.
    features: Option<Features>,
    version: Option<String>,
}

impl PeerProgram {
    /// Returns true if the daemon accepts compressed chunks.
    pub(crate) fn unpacks(&self) -> bool {
        supports(self.features, Feature::Compression)
    }

    /// Returns an error if the daemon `host` does not support a feature.
    pub(crate) fn require(&self, feature: Feature, host: &str) -> Result<(), Error> {
        if supports(self.features, feature) {
            return Ok(());
        }
        Err(Error::Unsupported {
            host: host.to_owned(),
            feature: feature.to_string(),
            version: self.version.clone(),
        })
    }
}

pub(crate) fn features() -> Features {
    let is_built_in = |feature: &Feature| match feature {
        Feature::Bench => SERVES_BENCH,
        Feature::Compression => UNPACKS,
        _ => true,
    };
    Feature::ALL.into_iter().filter(is_built_in).collect()
}

/// Returns true if a peer that announced `features` may support a feature. An older one announces
/// none.
pub(crate) fn supports(features: Option<Features>, feature: Feature) -> bool {
    features.map_or(feature.is_original(), |features| features.has(feature))
}

/// Returns the version of this program.
pub(crate) fn program() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Returns the path of a daemon's root; `None` if it cannot be one.
fn absolute(root: Vec<u8>) -> Option<PathBuf> {
    let is_path = root.len() <= MAX_ROOT && root.starts_with(b"/") && !root.contains(&0);
    is_path.then(|| OsString::from_vec(root).into())
}

impl Connector {
    /// Returns the connector of a new session with `host`. If a peer is named `host`, only its key
    /// is accepted.
    /// The settings give the size of the socket buffers and the rate limit.
    pub(crate) fn new(
        identity: &Identity,
        peers: &Arc<Peers>,
        host: &str,
        settings: &SessionSettings,
    ) -> Self {
        let pinned = Arc::new(OnceLock::new());
        if let Some(peer) = peers.by_name(host) {
            // Fails only if set before.
            let _ = pinned.set(peer.key);
        }
        let (trusted, known) = (peers.clone(), pinned.clone());
        let accepts = move |key: &PublicKey| {
            known
                .get()
                .map_or_else(|| trusted.find(key).is_some(), |pinned| pinned == key)
        };
        Self {
            tls: ClientTls::new(identity, Arc::new(accepts)),
            ours: identity.public_key(),
            host: host.to_owned(),
            session: SessionId(crate::trust::random::random_bytes()),
            pinned,
            narrow: Mutex::default(),
            socket_buffer: settings.socket_buffer,
            limit: settings.bandwidth,
            round_trip: OnceLock::new(),
        }
    }

    /// Creates the session with its first connection. Retries while the daemon has no capacity.
    /// `timeout` limits the TCP handshake.
    pub(crate) async fn first(
        &self,
        path: PathId,
        plan: &PathPlan,
        interfaces: Vec<PeerInterface>,
        timeout: Duration,
        retries: &mut Retries,
    ) -> Result<FirstContact, Error> {
        let (established, welcome) = loop {
            match self
                .greet(path, plan, Some(interfaces.clone()), timeout)
                .await
            {
                Ok(greeted) => break greeted,
                Err(error) => retries.again(error).await?,
            }
        };
        let key = established
            .greeted
            .tls()
            .peer_key()
            .map_err(|error| self.tls_error(error, plan.remote))?;
        let _ = self.pinned.set(key);
        if let Ok(info) = tcp_info(established.greeted.tls().tcp()) {
            let _ = self.round_trip.set(info.rtt);
        }
        let remote_interfaces = welcome.interfaces.unwrap_or_default();
        Ok(FirstContact {
            established,
            remote_interfaces,
            key,
            peer: PeerProgram {
                root: welcome.root.and_then(absolute),
                features: welcome.features,
                version: welcome.program.map(shown_name),
            },
        })
    }

    /// Returns true if the peer proves its key at an address through `interface`, the one of the
    /// kernel's current route.
    ///
    /// The socket is pinned because it outlives the answer, and the host route that follows must
    /// not redirect its last packets: an ARP request for them would bind its source address to the
    /// new interface, and strict reverse-path filtering would drop the packets of the old one.
    pub(crate) async fn answers_at(&self, interface: &InterfaceName, remote: SocketAddr) -> bool {
        let deadline = Instant::now() + PROOF_TIMEOUT;
        let proved = async {
            let tcp = connect_through(interface, remote).await.ok()?;
            TlsStream::connect(tcp, &self.tls, deadline).await.ok()
        };
        matches!(
            tokio::time::timeout_at(deadline.into(), proved).await,
            Ok(Some(_))
        )
    }

    /// Connects a path and greets the daemon. Falls back to smaller segments if the path drops
    /// packets of the interface's MTU.
    async fn greet(
        &self,
        path: PathId,
        plan: &PathPlan,
        interfaces: Option<Vec<PeerInterface>>,
        timeout: Duration,
    ) -> Result<(Established, Welcome), Error> {
        let hello = |padding: Option<usize>| Hello {
            version: VERSION,
            session: self.session,
            new: interfaces.is_some(),
            path: path.0,
            interface: Some(plan.interface.clone()),
            interfaces: interfaces.clone(),
            cap_bps: plan.cap.map(|BitRate(bps)| bps),
            padding: padding.map(|bytes| vec![0; bytes]),
            features: interfaces.is_some().then(features),
            program: interfaces.is_some().then(program),
            limit_bps: self
                .limit
                .filter(|_| interfaces.is_some())
                .map(|BitRate(bps)| bps),
        };
        let connect = async |mtu: Option<u32>| {
            let segment = mtu.map(|mtu| segment(mtu, plan.remote));
            let connected = connect_tcp(plan, timeout, segment, self.socket_buffer).await;
            connected.map_err(|source| Error::Connect {
                address: plan.remote,
                source,
            })
        };
        let known = self.known_mtu(plan);
        let tcp = connect(known).await?;
        let Some(probe) = PacketProbe::of(&tcp, plan).filter(|_| known.is_none()) else {
            let greeted = self.greet_on(tcp, plan, hello(None), GREETING_TIMEOUT);
            return greeted.await.map(|greeted| limited(greeted, known));
        };
        let padded = |tcp, timeout| self.greet_on(tcp, plan, hello(Some(probe.padding)), timeout);
        let mut large = pin!(padded(tcp, GREETING_TIMEOUT));
        if let Ok(greeted) = tokio::time::timeout(probe.timeout, &mut large).await {
            return greeted;
        }
        // The padded greeting may still be answered, by a daemon that is busy.
        let small = async || {
            let tcp = connect(Some(LEAST_MTU)).await?;
            self.greet_on(tcp, plan, hello(None), GREETING_TIMEOUT)
                .await
        };
        let started = Instant::now();
        let found = tokio::select! {
            biased;
            greeted = &mut large => return greeted,
            found = small() => found?,
        };
        let small_took = started.elapsed();
        if let Some(timeout) = probe.second_timeout(small_took)
            && let Ok(greeted) = tokio::time::timeout(timeout, &mut large).await
        {
            return greeted;
        }
        drop(found);
        for mtu in probe.smaller() {
            match padded(connect(Some(mtu)).await?, rung_timeout(small_took)).await {
                Err(error) if is_timeout(&error) => {}
                greeted => return greeted.map(|greeted| self.narrowed(plan, greeted, mtu)),
            }
        }
        let found = small().await?;
        Ok(self.narrowed(plan, found, LEAST_MTU))
    }

    /// Records that a path drops packets above `mtu`.
    fn narrowed(
        &self,
        plan: &PathPlan,
        greeted: (Established, Welcome),
        mtu: u32,
    ) -> (Established, Welcome) {
        tracing::warn!(interface = %plan.interface, remote = %plan.remote, "larger packets are dropped on the path, {mtu} bytes are used");
        let ends = (plan.interface.clone(), plan.remote.ip());
        self.narrow.lock().insert(ends, mtu);
        limited(greeted, Some(mtu))
    }

    /// Performs the TLS handshake and the greeting on a new TCP connection.
    async fn greet_on(
        &self,
        tcp: TcpStream,
        plan: &PathPlan,
        hello: Hello,
        timeout: Duration,
    ) -> Result<(Established, Welcome), Error> {
        let remote = plan.remote;
        let deadline = Instant::now() + timeout;
        let mut tls = TlsStream::connect(tcp, &self.tls, deadline)
            .await
            .map_err(|error| self.tls_error(error, remote))?;
        let first = Frame::Hello(encoded(&hello));
        let exchange = async {
            send_frame(&mut tls, &first).await?;
            Greeted::first_frame(tls).await
        };
        let (frame, greeted) = match tokio::time::timeout_at(deadline.into(), exchange).await {
            Ok(exchanged) => exchanged.map_err(|end| self.stream_error(end, remote))?,
            Err(_) => {
                return Err(Error::connect(remote, io::ErrorKind::TimedOut));
            }
        };
        let welcome = self.welcome(frame, remote, hello.new)?;
        let mut established = Established::new(greeted);
        established.arrival.interface.clone_from(&welcome.arrival);
        Ok((established, welcome))
    }

    /// Returns the path MTU of a link that is known to drop packets of its interface's MTU.
    fn known_mtu(&self, plan: &PathPlan) -> Option<u32> {
        let known = self.narrow.lock();
        known
            .get(&(plan.interface.clone(), plan.remote.ip()))
            .copied()
    }

    /// Reads the daemon's answer to a hello; `is_new` is true if that asked for a new session.
    fn welcome(&self, frame: Frame, address: SocketAddr, is_new: bool) -> Result<Welcome, Error> {
        let protocol = |why: String| Error::Protocol { address, why };
        match frame {
            Frame::Welcome(body) => {
                let welcome: Welcome = minicbor::decode(&body)
                    .map_err(|error| protocol(format!("malformed welcome frame: {error}")))?;
                let interfaces = welcome
                    .interfaces
                    .map(|interfaces| interfaces.into_iter().map(shown_interface).collect());
                Ok(Welcome {
                    arrival: welcome.arrival.map(shown_name),
                    interfaces,
                    ..welcome
                })
            }
            Frame::Refuse(body) => {
                let refusal: Refusal = minicbor::decode(&body)
                    .map_err(|error| protocol(format!("malformed refusal frame: {error}")))?;
                Err(match refusal.code {
                    RefusalCode::Version => Error::Version {
                        host: self.host.clone(),
                        theirs: refusal.version,
                    },
                    // The session's other paths are not affected, and the daemon may have capacity
                    // later.
                    RefusalCode::TooManySessions if !is_new => Error::connect(
                        address,
                        io::Error::new(io::ErrorKind::ConnectionRefused, TOO_MANY_PATHS),
                    ),
                    RefusalCode::TooManySessions => Error::Full {
                        host: self.host.clone(),
                        most: refusal.most,
                    },
                    code => Error::Refused {
                        host: self.host.clone(),
                        why: refusal_text(code),
                    },
                })
            }
            _ => Err(protocol("its first frame is not a welcome".into())),
        }
    }

    fn stream_error(&self, end: StreamEnd, address: SocketAddr) -> Error {
        match end {
            StreamEnd::Tls(error) => self.tls_error(error, address),
            StreamEnd::Closed => cut(address),
            end => Error::Protocol {
                address,
                why: end.to_string(),
            },
        }
    }

    fn tls_error(&self, error: TlsError, address: SocketAddr) -> Error {
        match error {
            TlsError::UntrustedKey(key) => Error::UntrustedPeer {
                host: self.host.clone(),
                key,
            },
            TlsError::KeyRefused(_) => Error::Untrusted {
                host: self.host.clone(),
                ours: self.ours,
            },
            TlsError::NoList => Error::Refused {
                host: self.host.clone(),
                why: "it cannot read its list of peers; its log says why".into(),
            },
            TlsError::Io { source, .. } => Error::Connect { address, source },
            TlsError::TimedOut => Error::connect(address, io::ErrorKind::TimedOut),
            // Not a verdict: a daemon that does not trust the key says so.
            TlsError::ClosedAtKey(_) | TlsError::Truncated => cut(address),
            error => Error::Protocol {
                address,
                why: crate::text::chain(&error),
            },
        }
    }
}

impl Connector {
    /// Creates a connection for a path of the session.
    ///
    /// One lost packet must not fail a link named by the user: its first attempt has
    /// [`FIRST_CONNECT_TIMEOUT`]. An automatic link has other addresses and attempts.
    pub(super) async fn join(
        &self,
        path: PathId,
        plan: &PathPlan,
        first: bool,
    ) -> Result<Established, Error> {
        let timeout = match (first, plan.origin) {
            (true, Origin::Named) => FIRST_CONNECT_TIMEOUT,
            (true, _) => first_try_timeout(self.round_trip.get().copied()),
            (false, _) => CONNECT_TIMEOUT,
        };
        let (established, _) = self.greet(path, plan, None, timeout).await?;
        Ok(established)
    }
}

fn limited(
    (mut established, welcome): (Established, Welcome),
    mtu: Option<u32>,
) -> (Established, Welcome) {
    established.arrival.path_mtu = mtu;
    (established, welcome)
}

/// Returns the timeout of an automatic link's first attempt, given the round-trip time of the
/// session's first connection.
fn first_try_timeout(round_trip: Option<Duration>) -> Duration {
    round_trip.map_or(CONNECT_TIMEOUT, |time| {
        (FIRST_TRY_TIMEOUT + 4 * time).min(CONNECT_TIMEOUT)
    })
}

/// Reason shown when the daemon rejects a further connection of a session.
const TOO_MANY_PATHS: &str = "its connection limit is reached";

/// Returns the error for a connection that was closed before the daemon answered.
fn cut(address: SocketAddr) -> Error {
    Error::connect(address, io::Error::new(io::ErrorKind::ConnectionReset, CUT))
}

const CUT: &str = "connection closed without an answer";

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

/// Opens the TCP connection of a planned path. `segment` limits the segment size of both ends in
/// bytes; `buffer` sets both socket buffers in bytes. `None` leaves either to the kernel.
async fn connect_tcp(
    plan: &PathPlan,
    timeout: Duration,
    segment: Option<u32>,
    buffer: Option<u64>,
) -> io::Result<TcpStream> {
    let interface: InterfaceName = plan.interface.parse().map_err(io::Error::other)?;
    let socket = pinned_socket(Some(&interface), plan.local, plan.remote)?;
    tune_stream(&socket, segment);
    // Before the handshake, which fixes the window scale and offers the first window.
    if let Some(bytes) = buffer {
        set_buffers(&socket, bytes)?;
    }
    tokio::time::timeout(timeout, connected(socket, plan.remote)).await?
}

/// Connects a socket. A filter that rejects the connection is named in the error.
async fn connected(socket: Socket, remote: SocketAddr) -> io::Result<TcpStream> {
    let queue = socket.try_clone()?;
    let is_queued = queue_icmp_errors(&queue, remote, true).is_ok();
    let stream = TcpSocket::from_std_stream(socket.into()).connect(remote);
    match stream.await {
        Ok(stream) => {
            if is_queued {
                queue_icmp_errors(&queue, remote, false)?;
            }
            Ok(stream)
        }
        Err(error) => Err(match icmp_error(&queue, remote) {
            Some(icmp) => rejected(error, icmp, || local::listed().unwrap_or_default()),
            None => error,
        }),
    }
}

/// Returns the error of a connection that ended by an ICMP message: `PermissionDenied` if a filter
/// rejected it, with `EPERM` for one of this machine.
fn rejected(
    error: io::Error,
    icmp: IcmpError,
    interfaces: impl FnOnce() -> Vec<Interface>,
) -> io::Error {
    let what = match icmp.meaning {
        IcmpMeaning::Prohibited => "administratively prohibited",
        IcmpMeaning::PortUnreachable => "port unreachable",
        _ => return error,
    };
    let is_ours = |interface| local::has_address(interface, icmp.sender);
    if interfaces().iter().any(is_ours) {
        return rustix::io::Errno::PERM.into();
    }
    let text = format!("a filter at {} rejects it (ICMP: {what})", icmp.sender);
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Opens a TCP connection through an interface and closes it at once. Sends no data. If the address
/// is link-local and this succeeds, the peer is on the same cable or Ethernet segment.
pub(crate) async fn touch(
    interface: &str,
    remote: SocketAddr,
    timeout: Duration,
) -> io::Result<()> {
    connect_on(interface, remote, timeout).await.map(drop)
}

/// Opens a TCP connection through an interface.
pub(crate) async fn connect_on(
    interface: &str,
    remote: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let interface = interface.parse().map_err(io::Error::other)?;
    tokio::time::timeout(timeout, connect_through(&interface, remote)).await?
}

async fn connect_through(interface: &InterfaceName, remote: SocketAddr) -> io::Result<TcpStream> {
    let socket = pinned_socket(Some(interface), None, remote)?;
    connected(socket, remote).await
}

/// Sets the socket options that client and daemon connections have in common. `max_segment` limits
/// the segment size in bytes. Logs options that the kernel does not support.
pub(crate) fn tune_stream(tcp: &impl AsFd, max_segment: Option<u32>) {
    for not_taken in tune(tcp, max_segment) {
        tracing::debug!(option = %not_taken.option, error = %not_taken.source, "cannot set socket option");
    }
}

pub(crate) fn encoded<T: minicbor::Encode<()>>(message: &T) -> Vec<u8> {
    // Writing to a vector cannot fail.
    minicbor::to_vec(message).unwrap_or_default()
}

fn refusal_text(code: RefusalCode) -> String {
    let text = match code {
        RefusalCode::Version => "the versions differ",
        RefusalCode::UnknownSession => "unknown session (daemon restarted?)",
        RefusalCode::TooManySessions => TOO_MANY_PATHS,
        RefusalCode::ShuttingDown => "it is shutting down",
        RefusalCode::Path => return format!("path number exceeds {}", LAST_PATH.0),
        RefusalCode::Storage => "it cannot open the directory served to this peer",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_of_a_link_waits_as_long_as_the_peer_is_away() {
        let ms = Duration::from_millis;
        for (round_trip, timeout) in [
            (Some(ms(0)), ms(300)),
            (Some(ms(100)), ms(700)),
            (Some(ms(600)), CONNECT_TIMEOUT),
            (None, CONNECT_TIMEOUT),
        ] {
            assert_eq!(first_try_timeout(round_trip), timeout);
        }
    }

    #[tokio::test]
    async fn the_first_window_that_is_offered_fits_into_the_buffer_that_was_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plan = PathPlan {
            origin: Origin::Named,
            ..PathPlan::new("lo".into(), listener.local_addr().unwrap())
        };
        for (buffer, fits) in [(None, false), (Some(8192), true)] {
            let ours = connect_tcp(&plan, CONNECT_TIMEOUT, None, buffer)
                .await
                .unwrap();
            let (theirs, _) = listener.accept().await.unwrap();
            // Linux allocates twice the requested size and offers at most that.
            let window = tcp_info(&theirs).unwrap().snd_wnd;
            assert!(
                window.is_none_or(|window| (window <= 2 * 8192) == fits),
                "{buffer:?}: {window:?}"
            );
            let ours = socket2::SockRef::from(&ours);
            let sizes = [ours.send_buffer_size(), ours.recv_buffer_size()].map(Result::unwrap);
            assert!((sizes == [2 * 8192; 2]) == fits, "{sizes:?}");
        }
    }

    /// The kernel knows no interface of an outgoing connection that is not pinned.
    #[tokio::test]
    async fn a_proofs_connection_stays_on_its_interface_when_routes_change() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let loopback: InterfaceName = "lo".parse().unwrap();
        let tcp = connect_through(&loopback, listener.local_addr().unwrap()).await;
        let interface = nicstripe_link::arrival_interface(&tcp.unwrap()).unwrap();
        assert_eq!(interface, Some(loopback));
    }

    #[test]
    fn a_filter_that_rejects_a_connection_is_named_and_other_messages_change_nothing() {
        let refused = |meaning, sender: &str| {
            let error = io::Error::from(io::ErrorKind::ConnectionRefused);
            let sender = sender.parse().unwrap();
            let icmp = IcmpError { sender, meaning };
            rejected(error, icmp, || local::listed().unwrap())
        };
        let theirs = refused(IcmpMeaning::PortUnreachable, "192.0.2.9");
        assert_eq!(theirs.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            theirs.to_string(),
            "a filter at 192.0.2.9 rejects it (ICMP: port unreachable)"
        );
        let ours = refused(IcmpMeaning::Prohibited, "127.0.0.1");
        assert_eq!(ours.raw_os_error(), Some(1));
        let other = refused(IcmpMeaning::Other, "192.0.2.9");
        assert_eq!(other.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_time_running_out_speaks_of_packets_that_vanish() {
        let error = |kind: io::ErrorKind| Error::Connect {
            address: ([10, 0, 0, 1], 7747).into(),
            source: kind.into(),
        };
        assert!(is_timeout(&error(io::ErrorKind::TimedOut)));
        assert!(!is_timeout(&error(io::ErrorKind::ConnectionReset)));
    }
}
