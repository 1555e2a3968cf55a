//! What a client is set up with.

use std::{path::PathBuf, sync::Arc, time::Duration};

use nicstripe_proto::{BitRate, SessionConfig};
use tokio::sync::mpsc;

use super::{Client, linker::MOST_STREAMS, sessions::Inner};
use crate::{
    DEFAULT_PORT,
    error::Error,
    event::Event,
    link::{Family, LinkRequest, RoutePolicy},
    path_routes::RouteKeeper,
    trust::{AddressBook, Identity, Peers},
};

/// Sets up a [`Client`].
///
/// Defaults: port 7747, every usable link, one connection a link and more over bonds, routes as [`RoutePolicy::Auto`], no limit, 10 minutes of patience
/// without any link. Identity and peers have to be given.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    pub(super) identity: Option<Identity>,
    pub(super) peers: Peers,
    pub(super) port: u16,
    pub(super) links: Vec<LinkRequest>,
    pub(super) excluded: Vec<String>,
    pub(super) streams: Option<u8>,
    pub(super) bandwidth: Option<BitRate>,
    pub(super) patience: Duration,
    pub(super) family: Option<Family>,
    pub(super) routes: RoutePolicy,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) route_keeper: Option<Arc<RouteKeeper>>,
    pub(super) socket_buffer: Option<u64>,
    pub(super) address_book: Option<AddressBook>,
    pub(super) events: Option<mpsc::Sender<Event>>,
    /// Whether a place at the daemon is waited for.
    pub(super) queues: bool,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            identity: None,
            peers: Peers::default(),
            port: DEFAULT_PORT,
            links: Vec::new(),
            excluded: Vec::new(),
            streams: None,
            bandwidth: None,
            patience: SessionConfig::default().patience,
            family: None,
            routes: RoutePolicy::default(),
            state_dir: None,
            route_keeper: None,
            socket_buffer: None,
            address_book: None,
            events: None,
            queues: true,
        }
    }

    /// Who we are.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().identity(nicstripe::trust::Identity::generate()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whom we speak to.
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

    /// The daemon's TCP port.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Uses these links and no others; empty: those that are found. One that cannot be used is then an error.
    ///
    /// ```
    /// let links = vec!["eth1".parse()?, "10.0.1.1=10.0.1.2".parse()?];
    /// let builder = nicstripe::Client::builder().links(links);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn links(mut self, links: Vec<LinkRequest>) -> Self {
        self.links = links;
        self
    }

    /// Leaves out these interfaces, by name.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().exclude_links(vec!["wlan0".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclude_links(mut self, names: Vec<String>) -> Self {
        self.excluded = names;
        self
    }

    /// Connections a link, 1 to 16. One is enough on a LAN, and the default but for bonds, whose members it takes more to use; more also help
    /// where loss meets a long round trip.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().streams(4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn streams(mut self, streams: u8) -> Self {
        self.streams = Some(streams.clamp(1, MOST_STREAMS));
        self
    }

    /// Remembers in this file where peers were met, and tries these addresses where a peer's name is given. Without it nothing is remembered.
    ///
    /// ```
    /// use nicstripe::trust::AddressBook;
    /// let builder = nicstripe::Client::builder().address_book(AddressBook::at("/var/lib/backup-tool/addresses"));
    /// ```
    pub fn address_book(mut self, book: AddressBook) -> Self {
        self.address_book = Some(book);
        self
    }

    /// Gives the sockets send and receive buffers of so many bytes before they connect, instead of letting the kernel size them: a buffer that is
    /// set later does not count for the window that the connection begins with. The kernel cuts silently at its own limits. For measurements.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().socket_buffer(Some(4 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn socket_buffer(mut self, bytes: Option<u64>) -> Self {
        self.socket_buffer = bytes;
        self
    }

    /// Most bits per second over all links together.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().bandwidth(Some(nicstripe::BitRate(500_000_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bandwidth(mut self, limit: Option<BitRate>) -> Self {
        self.bandwidth = limit;
        self
    }

    /// How long a transfer waits while there is no link at all, and a session for a place at a daemon that has as many as it may.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().patience(std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When host routes are installed.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().routes(nicstripe::RoutePolicy::Never);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn routes(mut self, policy: RoutePolicy) -> Self {
        self.routes = policy;
        self
    }

    /// Where host routes are recorded, so that the next start finds those of a process that was killed. Without it none are installed.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().state_dir("/var/lib/backup-tool".into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state_dir(mut self, dir: PathBuf) -> Self {
        self.state_dir = Some(dir);
        self
    }

    /// Uses this keeper's helper and policy for host routes, which a program has [started apart](RouteKeeper::start_apart); then
    /// [`routes`](Self::routes) does not count.
    ///
    /// ```no_run
    /// use nicstripe::{RoutePolicy, routes::RouteKeeper};
    /// // In `main`, before there is a second thread.
    /// let keeper = RouteKeeper::start_apart(RoutePolicy::Auto, "/var/lib/backup-tool".as_ref());
    /// let builder = nicstripe::Client::builder().route_keeper(keeper.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route_keeper(mut self, keeper: Arc<RouteKeeper>) -> Self {
        self.route_keeper = Some(keeper);
        self
    }

    /// Where [`Event::Queued`] is told while there is no transfer that could tell it: [`connect`](Self::connect) may have to wait for its turn.
    ///
    /// ```
    /// let (sender, mut events) = tokio::sync::mpsc::channel(4);
    /// let builder = nicstripe::Client::builder().events(sender);
    /// # let _ = events.try_recv();
    /// ```
    pub fn events(mut self, events: mpsc::Sender<Event>) -> Self {
        self.events = Some(events);
        self
    }

    /// A keeper for one session; `None` without a state directory.
    pub(super) fn session_routes(&self) -> Option<RouteKeeper> {
        match (&self.route_keeper, &self.state_dir) {
            (Some(keeper), _) => Some(keeper.another()),
            (None, Some(state_dir)) => Some(RouteKeeper::start(self.routes, state_dir)),
            (None, None) => None,
        }
    }

    /// Restricts the IP version.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().family(Some(nicstripe::Family::V6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn family(mut self, family: Option<Family>) -> Self {
        self.family = family;
        self
    }

    /// Connects to a host by name or address.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Client, trust::{Home, Identity, Peers}};
    ///
    /// let home = Home::from_env()?;
    /// let client = Client::builder()
    ///     .identity(Identity::load_or_create(&home.identity_file())?)
    ///     .peers(Peers::load(&home.peers_file())?)
    ///     .connect("backup.lan")
    ///     .await?;
    /// let (key, name) = client.peer().await?;
    /// println!("connected to {}, {}", name.unwrap_or_default(), key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Error`] lists them; nothing is left behind.
    pub async fn connect(self, host: &str) -> Result<Client, Error> {
        let system = |source| Error::System { what: "start threads", source };
        let identity = match &self.identity {
            Some(identity) => identity.clone(),
            None => Identity::generate().map_err(|error| Error::System { what: "make a key", source: std::io::Error::other(error) })?,
        };
        let inner = Inner::new(self, identity, host).map_err(system)?;
        let client = Client { inner: Arc::new(inner) };
        client.inner.session(None).await?;
        Ok(client)
    }
}
