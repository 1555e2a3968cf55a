//! Client side of discovery: asks for daemons on the cables and verifies their answers.

use std::{
    collections::VecDeque,
    net::SocketAddrV6,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{Changes, Interface, InterfaceKind, LeftOut, multicast_sender};
use nicstripe_proto::{
    discovery::{DATAGRAM_LEN, GROUP, Limiter, Nonce, Question, Response},
    invitation::Number,
    name::escaped,
};
use parking_lot::Mutex;
use tokio::{net::UdpSocket, sync::mpsc, task::JoinSet, time::sleep_until};

use super::cable::{Cable, receive};
use crate::{
    file::options::DEFAULT_PORT,
    links::local,
    report::error::Error,
    trust::{Identity, Peers, PublicKey, is_by, sign},
    wire::tasks::AbortOnDrop,
};

/// Scope and duration of a search.
///
/// Defaults: UDP port 7747, 2 s, every interface that is up, with carrier, and has an IPv6
/// link-local address; neither loopback nor a port of a bridge or bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// UDP port of the daemons.
    pub port: u16,
    /// Time to wait for answers. Questions are sent at once, after 250 and 750 ms, and then each
    /// second.
    pub duration: Duration,
    /// Names of the interfaces to search on; all if empty.
    pub interfaces: Vec<String>,
    /// Names of interfaces not to search on.
    pub excluded: Vec<String>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            port: DEFAULT_PORT,
            duration: Duration::from_secs(2),
            interfaces: Vec::new(),
            excluded: Vec::new(),
        }
    }
}

/// Daemon that proved its key by discovery, and the cable on which it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiscoveredPeer {
    /// Public key of the daemon.
    pub key: PublicKey,
    /// True if the key is in the local peers file.
    pub trusted: bool,
    /// Name of the key in the local peers file, if it has one.
    pub name: Option<String>,
    /// Host name claimed by the daemon, escaped; may be empty. Not proved.
    pub host_hint: String,
    /// Name of the local interface on which the answer arrived.
    pub interface: String,
    /// Name of the daemon's interface, as the daemon reports it, escaped.
    pub peer_interface: String,
    /// Index of the daemon's interface, as the daemon reports it.
    pub peer_index: u32,
    /// Address to connect to: link-local, with the local interface as scope and the daemon's TCP
    /// port.
    pub address: SocketAddrV6,
    /// Time from question to answer, including both signatures and both checks.
    pub rtt: Duration,
}

impl DiscoveredPeer {
    /// Returns a daemon that is not trusted and has sent nothing but its key.
    pub const fn new(key: PublicKey, address: SocketAddrV6) -> Self {
        Self {
            key,
            trusted: false,
            name: None,
            host_hint: String::new(),
            interface: String::new(),
            peer_interface: String::new(),
            peer_index: 0,
            address,
            rtt: Duration::ZERO,
        }
    }
}

/// Running search for daemons, stopped on drop.
#[derive(Debug)]
pub struct Search {
    options: SearchOptions,
    searched: SearchedInterfaces,
    answers: mpsc::Receiver<DiscoveredPeer>,
    returned: Vec<(PublicKey, SocketAddrV6)>,
    _task: AbortOnDrop<()>,
}

/// Names of the interfaces searched so far, in order.
type SearchedInterfaces = Arc<Mutex<Vec<String>>>;

impl Search {
    /// Starts a search. Includes interfaces that get a carrier and an address later.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{discovery::{Search, SearchOptions}, trust::{Identity, Peers}};
    /// let mut search = Search::start(&Identity::generate()?, &Peers::default(), SearchOptions::default())?;
    /// while let Some(peer) = search.next().await {
    ///     println!("{peer:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Link`] for a named interface that does not exist or is the loopback;
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn start(
        identity: &Identity,
        peers: &Peers,
        options: SearchOptions,
    ) -> Result<Self, Error> {
        Self::with_target(identity, peers, options, Target::default())
    }

    /// Like `start`, but returns only answers signed by `key`.
    pub(crate) fn for_key(
        identity: &Identity,
        peers: &Peers,
        options: SearchOptions,
        key: PublicKey,
    ) -> Result<Self, Error> {
        let target = Target {
            key: Some(key),
            ..Target::default()
        };
        Self::with_target(identity, peers, options, target)
    }

    /// Like `start`, but asks for the inviter with this number, with any key.
    pub(crate) fn for_invitation(
        identity: &Identity,
        options: SearchOptions,
        number: Number,
    ) -> Result<Self, Error> {
        let target = Target {
            invitation: Some(number),
            ..Target::default()
        };
        Self::with_target(identity, &Peers::default(), options, target)
    }

    fn with_target(
        identity: &Identity,
        peers: &Peers,
        options: SearchOptions,
        target: Target,
    ) -> Result<Self, Error> {
        Error::require_runtime()?;
        let interfaces = local::listed()?;
        options
            .interfaces
            .iter()
            .try_for_each(|name| named(&interfaces, name).map(drop))?;
        let (sender, answers) = mpsc::channel(QUEUE);
        let searched = SearchedInterfaces::default();
        let searcher = Searcher {
            verifier: Arc::new(AnswerVerifier {
                identity: identity.clone(),
                peers: peers.clone(),
                target,
            }),
            deadline: Instant::now() + options.duration,
            options: options.clone(),
            searched: searched.clone(),
            answers: sender,
            cables: Vec::new(),
            tasks: JoinSet::new(),
        };
        Ok(Self {
            options,
            searched,
            answers,
            returned: Vec::new(),
            _task: AbortOnDrop::new(tokio::spawn(searcher.run())),
        })
    }

    /// Returns the names of the interfaces searched so far. Of those available at the start, cables
    /// come first.
    pub fn interfaces(&self) -> Vec<String> {
        self.searched.lock().clone()
    }

    /// Returns the reason why a named interface, or every interface, could not be searched; `None`
    /// if all could. Call it after the search.
    pub fn obstacle(&self) -> Option<Error> {
        let searched = self.interfaces();
        if self.options.interfaces.is_empty() {
            return searched
                .is_empty()
                .then_some(Error::NoInterface { why: NO_ADDRESS });
        }
        let interfaces = local::listed().ok()?;
        let obstacle = |name: &String| match named(&interfaces, name) {
            Ok(interface) if searched.iter().any(|name| interface.is_called(name)) => None,
            Ok(interface) => {
                let why = interface
                    .usable()
                    .err()
                    .map_or_else(|| NO_LINK_LOCAL.to_owned(), |reason| reason.to_string());
                Some(Error::link(name, why))
            }
            Err(error) => Some(error),
        };
        self.options.interfaces.iter().find_map(obstacle)
    }

    /// Waits for the next answer: a new daemon, or a known one on another cable. Returns `None` at
    /// the end of the search. Cancel safe.
    pub async fn next(&mut self) -> Option<DiscoveredPeer> {
        loop {
            let peer = self.answers.recv().await?;
            let known = (peer.key, peer.address);
            let has_room = peer.trusted || self.returned.len() < MOST_RETURNED;
            if has_room && !self.returned.contains(&known) {
                self.returned.push(known);
                return Some(peer);
            }
        }
    }
}

/// Searches for the given duration, and returns the daemons that answered, sorted by name, then
/// key, then cable.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use nicstripe::{discovery::{SearchOptions, discover}, trust::{Identity, Peers}};
/// for peer in
///     discover(&Identity::generate()?, &Peers::default(), SearchOptions::default()).await?
/// {
///     println!("{peer:?}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`Search::start`], and [`Search::obstacle`]. Receiving no answer is not an error.
pub async fn discover(
    identity: &Identity,
    peers: &Peers,
    options: SearchOptions,
) -> Result<Vec<DiscoveredPeer>, Error> {
    let mut search = Search::start(identity, peers, options)?;
    let mut all = Vec::new();
    while let Some(peer) = search.next().await {
        all.push(peer);
    }
    if let Some(error) = search.obstacle() {
        return Err(error);
    }
    let searched = search.interfaces();
    let position = |peer: &DiscoveredPeer| searched.iter().position(|name| *name == peer.interface);
    // Trusted daemons first, those with a name before the others.
    all.sort_by_key(|peer| {
        (
            !peer.trusted,
            peer.name.is_none(),
            peer.name.clone(),
            peer.key,
            position(peer),
        )
    });
    Ok(all)
}

/// Task of a search; starts sending questions on each interface that becomes usable.
struct Searcher {
    verifier: Arc<AnswerVerifier>,
    options: SearchOptions,
    deadline: Instant,
    searched: SearchedInterfaces,
    answers: mpsc::Sender<DiscoveredPeer>,
    cables: Vec<Cable>,
    /// Running tasks, one per interface and address.
    tasks: JoinSet<()>,
}

impl Searcher {
    async fn run(mut self) {
        // Subscribed before interfaces are listed, so that no change is missed.
        let mut changes = Changes::open().ok();
        loop {
            self.begin_where_possible();
            let changed = async {
                match &mut changes {
                    Some(changes) => changes.next().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            let has_changes = tokio::select! {
                has_changes = changed => has_changes,
                () = sleep_until(self.deadline.into()) => return,
            };
            if !has_changes {
                changes = None;
            }
        }
    }

    /// Starts sending questions on usable interfaces that are not yet searched.
    fn begin_where_possible(&mut self) {
        let Ok(interfaces) = local::listed() else {
            return;
        };
        for (interface, cable) in askable(&interfaces, &self.options) {
            if self.cables.contains(&cable) {
                continue;
            }
            // The address may have vanished since it was listed; its return triggers a
            // notification.
            let Ok(socket) =
                multicast_sender(interface, cable.address).and_then(UdpSocket::from_std)
            else {
                continue;
            };
            self.cables.push(cable);
            self.searched.lock().push(cable.name.to_string());
            self.tasks.spawn(ask(
                self.verifier.clone(),
                cable,
                socket,
                self.options.port,
                self.deadline,
                self.answers.clone(),
            ));
        }
    }
}

/// Returns the interfaces to search, real cables first.
fn askable<'a>(
    interfaces: &'a [Interface],
    options: &SearchOptions,
) -> Vec<(&'a Interface, Cable)> {
    let chosen = |interface: &Interface| match options.interfaces.is_empty() {
        true => !matches!(
            interface.candidate(interfaces),
            Err(LeftOut::PortOf(_) | LeftOut::Loopback)
        ),
        false => local::is_among(interface, &options.interfaces),
    };
    let usable = interfaces.iter().filter(|one| {
        one.usable().is_ok() && chosen(one) && !local::is_among(one, &options.excluded)
    });
    let mut found: Vec<_> = usable
        .filter_map(|interface| Some((interface, Cable::of(interface)?)))
        .collect();
    found.sort_by_key(|(interface, _)| interface.candidate(interfaces).is_err());
    found
}

fn named<'a>(interfaces: &'a [Interface], name: &str) -> Result<&'a Interface, Error> {
    let refused = |why: String| Error::link(name, why);
    match local::find(interfaces, name) {
        Some(interface) if interface.kind == InterfaceKind::Loopback => {
            Err(refused("both ends are on this machine".into()))
        }
        Some(interface) => Ok(interface),
        None => Err(refused(local::no_such(interfaces))),
    }
}

/// Sends questions on one interface and forwards valid answers, until the deadline or until the
/// receiver is dropped.
async fn ask(
    verifier: Arc<AnswerVerifier>,
    cable: Cable,
    socket: UdpSocket,
    port: u16,
    deadline: Instant,
    answers: mpsc::Sender<DiscoveredPeer>,
) {
    let mut questions = Questions::new(Instant::now());
    let mut pauses = PAUSES.iter();
    let mut next = Instant::now();
    let mut buffer = [0; DATAGRAM_LEN];
    loop {
        let received = tokio::select! {
            () = sleep_until(deadline.into()) => return,
            () = sleep_until(next.into()) => {
                next = Instant::now() + *pauses.next().unwrap_or(&LAST_PAUSE);
                send_question(&verifier, &cable, &socket, port, &mut questions);
                continue;
            }
            received = receive(&socket, &mut buffer) => received,
        };
        let Ok(Some((datagram, from))) = received else {
            continue;
        };
        if let Some(one) = verifier.verify(datagram, from, &cable, &mut questions, Instant::now())
            && answers.send(one).await.is_err()
        {
            return;
        }
    }
}

fn send_question(
    verifier: &AnswerVerifier,
    cable: &Cable,
    socket: &UdpSocket,
    port: u16,
    questions: &mut Questions,
) {
    let key = *verifier.identity.public_key().as_bytes();
    let question = Question {
        nonce: Nonce(crate::trust::random::random_bytes()),
        key,
        address: cable.address,
        invitation: verifier.target.invitation,
    };
    let Some(datagram) = question.encode(|text| sign(&verifier.identity, text)) else {
        return;
    };
    questions.remember(question, Instant::now());
    let group = SocketAddrV6::new(GROUP, port, 0, cable.index.0);
    // The cable may just have been unplugged; the next question may succeed.
    if let Err(error) = cable.send(socket, &datagram, group) {
        tracing::debug!(interface = %cable.name, %error, "cannot send discovery query");
    }
}

/// Recent questions sent on one interface, and rate limits of checking the signatures of answers.
struct Questions {
    sent: VecDeque<(Question, Instant)>,
    /// Rate limit for answers of trusted keys, so that strangers cannot use it up.
    friends: Limiter,
    strangers: Limiter,
}

impl Questions {
    fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            friends: Limiter::new(now),
            strangers: Limiter::new(now),
        }
    }

    fn remember(&mut self, question: Question, now: Instant) {
        self.sent.push_front((question, now));
        self.sent.truncate(MOST_QUESTIONS);
    }

    /// Returns the time at which the question that `answer` refers to was sent; `None` if there is
    /// no such recent question.
    fn when(&self, answer: &Response) -> Option<Instant> {
        self.sent
            .iter()
            .find(|(question, _)| answer.answers(question))
            .map(|(_, at)| *at)
    }
}

/// Restriction of a search. By default it finds all daemons.
#[derive(Debug, Clone, Copy, Default)]
struct Target {
    /// Only key whose answers are returned; `None` for any.
    key: Option<PublicKey>,
    /// Number of the invitation to ask for; `None` for daemons.
    invitation: Option<Number>,
}

/// Receiver of answers: the client's identity, its peers, and the target of its search.
struct AnswerVerifier {
    identity: Identity,
    peers: Peers,
    target: Target,
}

impl AnswerVerifier {
    /// Returns the daemon described by a datagram; `None` unless it is a valid answer to a recent
    /// question.
    fn verify(
        &self,
        datagram: &[u8],
        from: SocketAddrV6,
        cable: &Cable,
        questions: &mut Questions,
        now: Instant,
    ) -> Option<DiscoveredPeer> {
        let answer = Response::decode(datagram)?;
        let key = PublicKey::from_bytes(answer.claims().key).ok()?;
        let is_expected =
            key != self.identity.public_key() && self.target.key.is_none_or(|only| only == key);
        if !is_expected || answer.claims().address != *from.ip() {
            return None;
        }
        let at = questions.when(answer.claims())?;
        let peer = self.peers.find(&key);
        let limiter = if peer.is_some() {
            &mut questions.friends
        } else {
            &mut questions.strangers
        };
        if !limiter.check(*from.ip(), now) {
            return None;
        }
        let answer = answer.verified(is_by)?;
        if !limiter.admit(*from.ip(), now) {
            return None;
        }
        Some(DiscoveredPeer {
            key,
            trusted: peer.is_some(),
            name: peer
                .and_then(|peer| peer.name.as_ref())
                .map(ToString::to_string),
            host_hint: escaped(&answer.host),
            interface: cable.name.to_string(),
            peer_interface: escaped(&answer.interface),
            peer_index: answer.index,
            address: SocketAddrV6::new(answer.address, answer.port, 0, cable.index.0),
            rtt: now.saturating_duration_since(at),
        })
    }
}

/// Pauses after the first questions, and after all later ones. Repeats cover lost datagrams; at
/// most three are sent a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(500)];
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of recent questions to which answers are accepted. Covers about the last 2 s.
const MOST_QUESTIONS: usize = 4;

/// Maximum number of answers queued for the caller.
const QUEUE: usize = 64;

/// Maximum number of answers from untrusted daemons that one search returns, counted per cable. No
/// real network has as many daemons.
const MOST_RETURNED: usize = 1024;

const NO_LINK_LOCAL: &str = "it has no IPv6 link-local address";
const NO_ADDRESS: &str = "none is up with a carrier and an IPv6 link-local address";

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use nicstripe_link::{InterfaceAddress, InterfaceIndex};

    use super::*;

    const OURS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const THEIRS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    fn cable() -> Cable {
        Cable {
            index: InterfaceIndex(7),
            name: "eth5".parse().unwrap(),
            address: OURS,
        }
    }

    fn from(ip: Ipv6Addr) -> SocketAddrV6 {
        SocketAddrV6::new(ip, 7747, 0, 7)
    }

    /// Simulated client and daemon, and a question of the client.
    struct Scene {
        verifier: AnswerVerifier,
        daemon: Identity,
        questions: Questions,
        question: Question,
    }

    fn scene(trusted: bool) -> Scene {
        let (identity, daemon) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut peers = Peers::default();
        if trusted {
            peers
                .add(
                    &daemon.public_key().to_string().parse().unwrap(),
                    Some("nas"),
                )
                .unwrap();
        }
        let question = Question {
            nonce: Nonce([4; 32]),
            key: *identity.public_key().as_bytes(),
            address: OURS,
            invitation: None,
        };
        let mut questions = Questions::new(Instant::now());
        questions.remember(question.clone(), Instant::now());
        Scene {
            verifier: AnswerVerifier {
                identity,
                peers,
                target: Target::default(),
            },
            daemon,
            questions,
            question,
        }
    }

    impl Scene {
        fn answer(&self) -> Response {
            Response {
                nonce: self.question.nonce,
                key: *self.daemon.public_key().as_bytes(),
                address: THEIRS,
                port: 99,
                index: 3,
                interface: b"eth1".to_vec(),
                host: b"n\x1bs".to_vec(),
                asker_key: self.question.key,
                asker_address: OURS,
                invitation: false,
            }
        }

        fn hear(
            &mut self,
            answer: &Response,
            signed_by: &Identity,
            source: Ipv6Addr,
        ) -> Option<DiscoveredPeer> {
            let datagram = answer.encode(|text| sign(signed_by, text)).unwrap();
            self.verifier.verify(
                &datagram,
                from(source),
                &cable(),
                &mut self.questions,
                Instant::now(),
            )
        }
    }

    #[test]
    fn an_answer_that_proves_its_key_is_told_with_its_cable() {
        for trusted in [true, false] {
            let mut scene = scene(trusted);
            let (answer, daemon) = (scene.answer(), scene.daemon.clone());
            let peer = scene.hear(&answer, &daemon, THEIRS).unwrap();
            assert_eq!((peer.key, peer.trusted), (daemon.public_key(), trusted));
            assert_eq!(peer.name.as_deref(), trusted.then_some("nas"));
            assert_eq!(
                peer.host_hint, "n\\u{1b}s",
                "an unverified name reaches no terminal unescaped"
            );
            assert_eq!(peer.interface.as_str(), "eth5");
            assert_eq!(peer.peer_interface.as_str(), "eth1");
            assert_eq!(peer.peer_index, 3);
            assert_eq!(peer.address, SocketAddrV6::new(THEIRS, 99, 0, 7));
        }
    }

    #[test]
    fn an_answer_to_another_question_is_not_believed() {
        let mut scene = scene(true);
        let daemon = scene.daemon.clone();
        for other in [
            Response {
                nonce: Nonce([5; 32]),
                ..scene.answer()
            },
            Response {
                asker_key: [6; 32],
                ..scene.answer()
            },
            Response {
                asker_address: "fe80::9".parse().unwrap(),
                ..scene.answer()
            },
        ] {
            assert_eq!(scene.hear(&other, &daemon, THEIRS), None, "{other:?}");
        }
    }

    #[test]
    fn a_forged_or_moved_answer_is_not_believed() {
        let mut scene = scene(true);
        let (answer, daemon, thief) = (
            scene.answer(),
            scene.daemon.clone(),
            Identity::generate().unwrap(),
        );
        assert_eq!(
            scene.hear(&answer, &thief, THEIRS),
            None,
            "signed by another"
        );
        assert_eq!(
            scene.hear(&answer, &daemon, "fe80::bad".parse().unwrap()),
            None,
            "sent from elsewhere"
        );
        assert!(scene.hear(&answer, &daemon, THEIRS).is_some());
    }

    #[test]
    fn only_the_wanted_key_is_heard_and_never_our_own() {
        let mut scene = scene(true);
        let (answer, daemon) = (scene.answer(), scene.daemon.clone());
        scene.verifier.target.key = Some(PublicKey::from_bytes([1; 32]).unwrap());
        assert_eq!(scene.hear(&answer, &daemon, THEIRS), None);
        scene.verifier.target.key = None;
        let own = Response {
            key: *scene.verifier.identity.public_key().as_bytes(),
            ..answer
        };
        let identity = scene.verifier.identity.clone();
        assert_eq!(scene.hear(&own, &identity, THEIRS), None);
    }

    #[test]
    fn an_answer_to_a_question_with_a_number_is_an_inviters() {
        let mut scene = scene(false);
        let (answer, daemon) = (scene.answer(), scene.daemon.clone());
        scene.question.invitation = Number::new(7);
        let question = scene.question.clone();
        scene.questions = Questions::new(Instant::now());
        scene.questions.remember(question, Instant::now());
        assert_eq!(scene.hear(&answer, &daemon, THEIRS), None, "a daemon's");
        let invited = Response {
            invitation: true,
            ..answer
        };
        assert!(scene.hear(&invited, &daemon, THEIRS).is_some());
    }

    #[test]
    fn strangers_cannot_use_up_what_a_friend_needs() {
        let mut scene = scene(true);
        let stranger = Identity::generate().unwrap();
        let loud = Response {
            key: *stranger.public_key().as_bytes(),
            ..scene.answer()
        };
        let believed = (0..200_u16).filter(|number| {
            let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 1, 0, *number);
            scene
                .hear(
                    &Response {
                        address,
                        ..loud.clone()
                    },
                    &stranger,
                    address,
                )
                .is_some()
        });
        let believed = believed.count();
        assert!(believed < 200, "{believed} of a flood were checked");
        let (answer, daemon) = (scene.answer(), scene.daemon.clone());
        // Nor can they in the name of the friend, whose key and question are not secret.
        for number in 0..500_u16 {
            let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 1, 0, number);
            let forged = Response {
                address,
                ..answer.clone()
            };
            assert_eq!(scene.hear(&forged, &stranger, address), None);
        }
        assert!(scene.hear(&answer, &daemon, THEIRS).is_some());
    }

    #[test]
    fn old_questions_are_forgotten() {
        let mut scene = scene(true);
        let (answer, daemon) = (scene.answer(), scene.daemon.clone());
        for number in 0..MOST_QUESTIONS {
            let question = Question {
                nonce: Nonce([100 + number as u8; 32]),
                ..scene.question.clone()
            };
            scene.questions.remember(question, Instant::now());
        }
        assert_eq!(scene.hear(&answer, &daemon, THEIRS), None);
    }

    fn interface(index: u32, name: &str, kind: InterfaceKind, addresses: &[&str]) -> Interface {
        let addresses = addresses
            .iter()
            .map(|ip| InterfaceAddress::new(ip.parse().unwrap(), 64));
        let mut interface = Interface::new(InterfaceIndex(index), name.parse().unwrap(), kind);
        interface.addresses = addresses.collect();
        interface
    }

    fn asked_on(interfaces: &[Interface], options: &SearchOptions) -> Vec<String> {
        askable(interfaces, options)
            .iter()
            .map(|(interface, _)| interface.name.to_string())
            .collect()
    }

    #[test]
    fn every_interface_that_speaks_for_itself_is_asked_on_cables_first() {
        let mut port = interface(5, "port", InterfaceKind::Ethernet, &["fe80::5"]);
        port.master = Some(InterfaceIndex(4));
        let mut unplugged = interface(6, "unplugged", InterfaceKind::Ethernet, &["fe80::6"]);
        unplugged.carrier = false;
        let interfaces = [
            interface(1, "lo", InterfaceKind::Loopback, &["::1", "fe80::1"]),
            interface(2, "wlan0", InterfaceKind::WiFi, &["fe80::2"]),
            interface(3, "eth0", InterfaceKind::Ethernet, &["10.0.0.1", "fe80::3"]),
            interface(4, "br0", InterfaceKind::Bridge, &["fe80::4"]),
            port,
            unplugged,
            interface(7, "ipv4", InterfaceKind::Ethernet, &["10.0.1.1"]),
        ];
        let all = SearchOptions::default();
        assert_eq!(asked_on(&interfaces, &all), ["eth0", "br0", "wlan0"]);
        let without = SearchOptions {
            excluded: vec!["eth0".into()],
            ..all.clone()
        };
        assert_eq!(asked_on(&interfaces, &without), ["br0", "wlan0"]);
        for (name, expected) in [("wlan0", &["wlan0"][..]), ("unplugged", &[]), ("ipv4", &[])] {
            let options = SearchOptions {
                interfaces: vec![name.into()],
                ..all.clone()
            };
            assert_eq!(asked_on(&interfaces, &options), expected, "{name}");
        }
        for (name, why) in [("lo", "this machine"), ("nosuch0", "available: lo, wlan0")] {
            let error = named(&interfaces, name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn a_search_that_could_not_ask_says_why() {
        let (identity, peers) = (Identity::generate().unwrap(), Peers::default());
        let all: Vec<String> = local::listed()
            .unwrap()
            .iter()
            .map(|interface| interface.name.to_string())
            .collect();
        let nowhere = SearchOptions {
            duration: Duration::from_millis(10),
            excluded: all,
            ..SearchOptions::default()
        };
        assert!(matches!(
            discover(&identity, &peers, nowhere.clone()).await,
            Err(Error::NoInterface { .. })
        ));
        let loopback = SearchOptions {
            interfaces: vec!["lo".into()],
            ..nowhere
        };
        assert!(matches!(
            Search::start(&identity, &peers, loopback),
            Err(Error::Link { .. })
        ));
    }
}
