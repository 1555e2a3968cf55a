//! Builder of a client: its settings and the connection to a daemon.

use std::{path::PathBuf, sync::Arc, time::Duration};

use nicstripe_proto::{BitRate, session::MOST_STREAMS};
use tokio::sync::mpsc;

use crate::{
    links::{
        request::{Family, LinkRequest, RoutePolicy, SessionSettings},
        route_keeper::RouteKeeper,
    },
    report::event::Event,
    trust::{AddressBook, Identity, Peers, Sightings},
};

/// Builder of a [`Client`](super::Client).
///
/// Defaults: port 7747, every usable link, one connection per link (more over bonds), routes as
/// [`RoutePolicy::Auto`], no rate limit, 10 minutes of patience without any link. Without an
/// identity, [`connect`](Self::connect) makes a key that no daemon knows; without peers, it accepts
/// no daemon.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    pub(super) identity: Option<Identity>,
    pub(super) peers: Peers,
    pub(crate) session: SessionSettings,
    pub(super) routes: RoutePolicy,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) route_keeper: Option<Arc<RouteKeeper>>,
    /// Stands for the peer's key in the journals of downloads, if that key is new each time.
    pub(crate) resume_as: Option<[u8; 32]>,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            identity: None,
            peers: Peers::default(),
            session: SessionSettings::default(),
            routes: RoutePolicy::default(),
            state_dir: None,
            route_keeper: None,
            resume_as: None,
        }
    }

    /// Sets the client's key pair.
    ///
    /// ```
    /// let builder =
    ///     nicstripe::Client::builder().identity(nicstripe::trust::Identity::generate()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the peers whose keys the client accepts, and their names.
    ///
    /// ```
    /// use nicstripe::trust::{Home, Peers};
    /// let peers = Peers::load(&Home::at("/etc/backup-tool").peers_file())?;
    /// let builder = nicstripe::Client::builder().peers(peers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    /// Sets the TCP port of the daemon, 7747 by default.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.session.port = port;
        self
    }

    /// Sets the links to use; if empty, the client finds them. [`connect`](Self::connect) fails if
    /// a named link cannot be used.
    ///
    /// ```
    /// let links = vec!["eth1".parse()?, "10.0.1.1=10.0.1.2".parse()?];
    /// let builder = nicstripe::Client::builder().links(links);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn links(mut self, links: Vec<LinkRequest>) -> Self {
        self.session.links = links;
        self
    }

    /// Excludes interfaces from use, by name.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().exclude_links(vec!["wlan0".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclude_links(mut self, names: Vec<String>) -> Self {
        self.session.excluded = names;
        self
    }

    /// Sets the number of connections per link, 1 to 16. The default is one, which suffices on a
    /// LAN, or more over a bond, whose members would otherwise not all be used. More connections
    /// also help on paths with packet loss and a long round-trip time.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().streams(4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn streams(mut self, streams: u8) -> Self {
        self.session.streams = Some(streams.clamp(1, MOST_STREAMS));
        self
    }

    /// Sets the address book, a file that records the addresses at which peers were reached. The
    /// client tries them when a peer is given by name. Without an address book it records nothing.
    ///
    /// ```
    /// use nicstripe::trust::AddressBook;
    /// let builder = nicstripe::Client::builder()
    ///     .address_book(AddressBook::at("/var/lib/backup-tool/addresses"));
    /// ```
    pub fn address_book(mut self, book: AddressBook) -> Self {
        self.session.address_book = Some(book);
        self
    }

    /// Records in a file when and where the peer was seen. By default there is none.
    ///
    /// ```
    /// use nicstripe::trust::Sightings;
    /// let builder = nicstripe::Client::builder()
    ///     .sightings(Sightings::at("/var/lib/backup-tool/sightings"));
    /// ```
    pub fn sightings(mut self, sightings: Sightings) -> Self {
        self.session.sightings = Some(sightings);
        self
    }

    /// Sets a fixed size in bytes for the sockets' send and receive buffers, instead of the
    /// kernel's autotuning. The kernel silently caps it. Intended for measurements. It applies from
    /// the TCP handshake on, because a later change does not affect the initial window.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().socket_buffer(Some(4 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn socket_buffer(mut self, bytes: Option<u64>) -> Self {
        self.session.socket_buffer = bytes;
        self
    }

    /// Sets the rate limit of all links together; `None` for no limit.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().bandwidth(Some(nicstripe::BitRate(500_000_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bandwidth(mut self, limit: Option<BitRate>) -> Self {
        self.session.bandwidth = limit;
        self
    }

    /// Sets the maximum time that a call waits without any link, for a daemon that was lost, for one
    /// that has no capacity for another session, or for its turn while no other transfer of the
    /// client moves. [`Client`](super::Client) has the table of the calls that wait.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().patience(std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn patience(mut self, patience: Duration) -> Self {
        self.session.patience = patience;
        self
    }

    /// Sets the policy for installing host routes.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().routes(nicstripe::RoutePolicy::Never);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn routes(mut self, policy: RoutePolicy) -> Self {
        self.routes = policy;
        self
    }

    /// Sets the directory for records of installed host routes. The next start uses them to remove
    /// the routes of a killed process. Without it the client installs no routes.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().state_dir("/var/lib/backup-tool");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(dir.into());
        self
    }

    /// Sets a route keeper that the program has [started itself](RouteKeeper::start_dedicated). Its
    /// policy overrides [`routes`](Self::routes).
    ///
    /// ```no_run
    /// use nicstripe::{RoutePolicy, routes::RouteKeeper};
    /// // In `main`, before there is a second thread.
    /// let keeper =
    ///     RouteKeeper::start_dedicated(RoutePolicy::Auto, "/var/lib/backup-tool");
    /// let builder = nicstripe::Client::builder().route_keeper(keeper.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route_keeper(mut self, keeper: Arc<RouteKeeper>) -> Self {
        self.route_keeper = Some(keeper);
        self
    }

    /// Sets a channel for the events of [`connect`](Self::connect), which may have to wait for an
    /// answer ([`Event::Unreachable`]) or for capacity at the daemon ([`Event::Queued`]). Also
    /// receives what requests, tunnels, objects and benchmarks wait for.
    ///
    /// ```
    /// let (sender, mut events) = tokio::sync::mpsc::channel(4);
    /// let builder = nicstripe::Client::builder().events(sender);
    /// # let _ = events.try_recv();
    /// ```
    pub fn events(mut self, events: mpsc::Sender<Event>) -> Self {
        self.session.events = Some(events);
        self
    }

    /// Returns a route keeper for one session; `None` if neither a keeper nor a state directory is
    /// set.
    pub(super) fn session_routes(&self) -> Option<RouteKeeper> {
        match (&self.route_keeper, &self.state_dir) {
            (Some(keeper), _) => Some(keeper.another()),
            (None, Some(state_dir)) => Some(RouteKeeper::start(self.routes, state_dir)),
            (None, None) => None,
        }
    }

    /// Restricts connections to one IP version; `None` allows both.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().family(Some(nicstripe::Family::V6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn family(mut self, family: Option<Family>) -> Self {
        self.session.family = family;
        self
    }
}
