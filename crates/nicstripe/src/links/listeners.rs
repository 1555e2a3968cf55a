//! Listening sockets of the daemon: one per interface and IP version, while the interface exists.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as BlockingListener},
    sync::Arc,
    time::Duration,
};

use nicstripe_link::{Interface, InterfaceIndex, InterfaceName, listen};
use tokio::net::{TcpListener, TcpStream};

use super::local;
use crate::{report::error::Error, wire::tasks::AbortOnDrop};

/// Address on which a daemon listens, and its interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenAddress {
    /// Name of the interface; empty for a socket of the embedding program that is not bound to one
    /// interface.
    pub interface: String,
    /// Address and port; `0.0.0.0` or `[::]` stands for all addresses of the interface.
    pub address: SocketAddr,
}

impl ListenAddress {
    /// Returns an address of an interface.
    pub const fn new(interface: String, address: SocketAddr) -> Self {
        Self { interface, address }
    }
}

/// Listening addresses requested by the user; all interfaces if none is named.
#[derive(Debug, Clone)]
pub(crate) struct ListenConfig {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) interfaces: Vec<String>,
    /// TCP port of all sockets; 0 for a free one.
    pub(crate) port: u16,
}

/// Interface and address to listen on with one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenPoint {
    interface: InterfaceName,
    index: InterfaceIndex,
    address: SocketAddr,
}

/// Handler of accepted connections, called with the connection or the error, and the name of the
/// interface. Must return quickly, since the next connection waits for it.
pub(crate) type OnAccepted = Arc<dyn Fn(io::Result<(TcpStream, SocketAddr)>, &str) + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Listeners {
    /// Requested addresses; `None` for sockets supplied by the embedding program, which ignore
    /// interface changes.
    config: Option<ListenConfig>,
    open: Vec<Open>,
}

/// Listening socket with its interface and accepting task.
#[derive(Debug)]
struct Open {
    listens: ListenAddress,
    /// Index of the interface; `None` for a socket supplied by the embedding program.
    index: Option<InterfaceIndex>,
    /// Listening socket; `None` once the accepting task has it.
    listener: Option<TcpListener>,
    /// Accepting task, stopped on drop; `None` before the start.
    accepting: Option<AbortOnDrop<()>>,
}

impl Listeners {
    /// Opens all sockets, each bound to its interface before it listens.
    ///
    /// # Errors
    ///
    /// A named interface or address does not exist, or an address cannot be bound. Missing IPv6 is
    /// only an error for named addresses.
    pub(crate) fn open(mut config: ListenConfig, interfaces: &[Interface]) -> Result<Self, Error> {
        config.check(interfaces)?;
        // Another program may have the first socket's free port at the next address.
        let mut tries = if config.port == 0 { FREE_PORTS } else { 1 };
        loop {
            tries -= 1;
            match Self::open_all(&mut config, interfaces) {
                Err(Error::System { source, .. })
                    if tries > 0 && source.kind() == io::ErrorKind::AddrInUse =>
                {
                    config.port = 0;
                }
                opened => {
                    return Ok(Self {
                        open: opened?,
                        config: Some(config),
                    });
                }
            }
        }
    }

    fn open_all(config: &mut ListenConfig, interfaces: &[Interface]) -> Result<Vec<Open>, Error> {
        let mut open = Vec::new();
        for point in config.points(interfaces) {
            let is_free = point.address.port() == 0;
            let point = config.with_port(point);
            match Open::at(&point) {
                Ok(listening) => {
                    // The first socket's free port is used for all others without a port.
                    if is_free {
                        config.port = listening.listens.address.port();
                    }
                    open.push(listening);
                }
                // A machine without IPv6 has no IPv6 sockets.
                Err(error)
                    if point.address.is_ipv6()
                        && point.address.ip().is_unspecified()
                        && !config.names_ipv6() =>
                {
                    tracing::debug!(interface = %point.interface, %error, "not listening on IPv6");
                }
                Err(source) => {
                    let source =
                        io::Error::new(source.kind(), format!("{}: {source}", point.address));
                    return Err(Error::system("listen", source));
                }
            }
        }
        Ok(open)
    }

    /// Uses the embedding program's listening sockets.
    ///
    /// # Errors
    ///
    /// A socket is not a listening TCP socket, or `given` is empty.
    pub(crate) fn of(given: &[BlockingListener], interfaces: &[Interface]) -> Result<Self, Error> {
        let open = match given {
            [] => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no socket passed",
            )),
            given => given
                .iter()
                .map(|listener| Open::given(listener, interfaces))
                .collect(),
        };
        Ok(Self {
            config: None,
            open: open.map_err(|source| Error::system("listen on the passed sockets", source))?,
        })
    }

    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        self.open.iter().map(|open| open.listens.clone()).collect()
    }

    /// Starts accepting connections on sockets that have no accepting task yet.
    pub(crate) fn accept(&mut self, on_accepted: &OnAccepted) {
        for open in &mut self.open {
            if let Some(listener) = open.listener.take() {
                let interface = open.listens.interface.clone();
                let accepting = tokio::spawn(accept(interface, listener, on_accepted.clone()));
                open.accepting = Some(AbortOnDrop::new(accepting));
            }
        }
    }

    /// Closes all sockets. A task drops its socket before it counts as ended, so the addresses can
    /// be bound again once this returns.
    pub(crate) async fn close(self) {
        for accepting in self.open.into_iter().filter_map(|open| open.accepting) {
            accepting.abort();
            // The error is the abortion.
            let _ = accepting.await;
        }
    }

    /// Opens sockets for new interfaces and closes those of vanished ones.
    pub(crate) fn follow(&mut self, interfaces: &[Interface]) {
        let Some(config) = &self.config else { return };
        self.open.retain(|open| {
            let is_there = interfaces.iter().any(|interface| Some(interface.index) == open.index);
            if !is_there {
                tracing::info!(interface = open.listens.interface, address = %open.listens.address, "stopped listening: interface removed");
            }
            is_there
        });
        for point in config.points(interfaces) {
            let point = config.with_port(point);
            if self.open.iter().any(|open| open.is_at(&point)) {
                continue;
            }
            match Open::at(&point) {
                Ok(listening) => {
                    tracing::info!(interface = %point.interface, address = %point.address, "listening");
                    self.open.push(listening);
                }
                Err(error) => {
                    tracing::debug!(interface = %point.interface, address = %point.address, %error, "cannot listen");
                }
            }
        }
    }
}

impl Open {
    fn new(
        interface: String,
        index: Option<InterfaceIndex>,
        listener: TcpListener,
    ) -> io::Result<Self> {
        Ok(Self {
            listens: ListenAddress {
                interface,
                address: listener.local_addr()?,
            },
            index,
            listener: Some(listener),
            accepting: None,
        })
    }

    /// Opens a socket bound to the interface of `point`.
    fn at(point: &ListenPoint) -> io::Result<Self> {
        let listener = listen(Some(&point.interface), point.address, BACKLOG)?;
        Self::new(
            point.interface.to_string(),
            Some(point.index),
            TcpListener::from_std(listener)?,
        )
    }

    /// Wraps a listening socket supplied by the embedding program.
    fn given(listener: &BlockingListener, interfaces: &[Interface]) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let ip = listener.local_addr()?.ip();
        let device = socket2::SockRef::from(&listener)
            .device()?
            .and_then(|name| String::from_utf8(name).ok());
        let by_address = || {
            interfaces
                .iter()
                .find(|interface| local::has_address(interface, ip))
                .map(|found| found.name.to_string())
        };
        let interface = device.or_else(by_address).unwrap_or_default();
        Self::new(interface, None, TcpListener::from_std(listener)?)
    }

    fn is_at(&self, point: &ListenPoint) -> bool {
        let (address, expected) = (self.listens.address, point.address);
        self.index == Some(point.index)
            && (address.ip(), address.port()) == (expected.ip(), expected.port())
    }
}

impl ListenConfig {
    /// Replaces port 0 by the configured port.
    fn with_port(&self, mut point: ListenPoint) -> ListenPoint {
        if point.address.port() == 0 {
            point.address.set_port(self.port);
        }
        point
    }

    /// Checks that the requested interfaces and addresses exist.
    fn check(&self, interfaces: &[Interface]) -> Result<(), Error> {
        for name in &self.interfaces {
            if local::find(interfaces, name).is_none() {
                return Err(Error::link(name, local::no_such(interfaces)));
            }
        }
        for address in &self.addresses {
            if !interfaces.iter().any(|interface| is_at(interface, address)) {
                let all = interfaces
                    .iter()
                    .flat_map(|interface| &interface.addresses)
                    .map(|own| own.ip.to_string())
                    .collect::<Vec<_>>();
                let why = format!(
                    "no local interface has this address; available: {}",
                    all.join(", ")
                );
                return Err(Error::link(address.ip(), why));
            }
        }
        Ok(())
    }

    /// Returns the interfaces and addresses to listen on, each once. Port 0 stands for the
    /// configured port.
    fn points(&self, interfaces: &[Interface]) -> Vec<ListenPoint> {
        let point = |interface: &Interface, address| ListenPoint {
            interface: interface.name,
            index: interface.index,
            address,
        };
        let everywhere = |interface| {
            let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            any.map(|ip| point(interface, SocketAddr::new(ip, 0)))
        };
        let mut points = Vec::new();
        for name in &self.interfaces {
            let named = interfaces
                .iter()
                .filter(|interface| interface.is_called(name));
            points.extend(named.flat_map(everywhere));
        }
        // Members of a bridge or bond are skipped: the kernel delivers their packets to the master.
        let up = || {
            interfaces
                .iter()
                .filter(|interface| interface.up && interface.master.is_none())
        };
        for address in &self.addresses {
            if address.ip().is_unspecified() {
                let here = up().filter(|interface| is_at(interface, address));
                points.extend(here.map(|interface| point(interface, *address)));
                continue;
            }
            points.extend(
                interfaces
                    .iter()
                    .find(|interface| is_at(interface, address))
                    .map(|interface| point(interface, *address)),
            );
        }
        if self.interfaces.is_empty() && self.addresses.is_empty() {
            points.extend(up().flat_map(everywhere));
        }
        self.each_once(points)
    }

    /// Removes points that another one covers: the same address, or all addresses of its
    /// interface, at the same port.
    fn each_once(&self, points: Vec<ListenPoint>) -> Vec<ListenPoint> {
        let mut kept: Vec<ListenPoint> = Vec::new();
        let covers = |wide: &ListenPoint, point: &ListenPoint| {
            let (wide, point) = (self.with_port(*wide), self.with_port(*point));
            let (all, own) = (wide.address, point.address);
            wide.index == point.index
                && all.port() == own.port()
                && all.is_ipv4() == own.is_ipv4()
                && (all.ip().is_unspecified() || all.ip() == own.ip())
        };
        for point in points {
            if !kept.iter().any(|other| covers(other, &point)) {
                kept.retain(|other| !covers(&point, other));
                kept.push(point);
            }
        }
        kept
    }

    /// Returns true if the user asked for IPv6 by an address, so that its absence is an error.
    fn names_ipv6(&self) -> bool {
        self.addresses.iter().any(SocketAddr::is_ipv6)
    }

    /// Returns true if interfaces that appear later are listened on by all their IPv6 addresses.
    pub(crate) fn is_everywhere(&self) -> bool {
        let is_any = |address: &SocketAddr| matches!(address, SocketAddr::V6(any) if any.ip().is_unspecified() && any.scope_id() == 0);
        let is_default = self.interfaces.is_empty() && self.addresses.is_empty();
        is_default || self.addresses.iter().any(is_any)
    }
}

/// Returns true if the interface has this address. Each one has the unspecified address, unless a
/// zone names another interface.
fn is_at(interface: &Interface, address: &SocketAddr) -> bool {
    let scope = match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let is_in_scope = scope == 0 || scope == interface.index.0;
    is_in_scope && (address.ip().is_unspecified() || local::has_address(interface, address.ip()))
}

/// Returns the interfaces with a listener on `[::]`, which covers all their link-local addresses.
pub(crate) fn on_any_address(listens: &[ListenAddress]) -> Vec<InterfaceName> {
    let any = listens
        .iter()
        .filter(|listen| listen.address.ip() == Ipv6Addr::UNSPECIFIED);
    any.filter_map(|listen| listen.interface.parse().ok())
        .collect()
}

async fn accept(interface: String, listener: TcpListener, on_accepted: OnAccepted) {
    loop {
        let accepted = listener.accept().await;
        let failed = accepted.is_err();
        on_accepted(accepted, &interface);
        if failed {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Length of the kernel's accept queue, in connections; `net.core.somaxconn` may reduce it.
const BACKLOG: u32 = 4096;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Number of free ports that are tried (picked by eye).
const FREE_PORTS: u32 = 8;

#[cfg(test)]
mod tests {
    use nicstripe_link::InterfaceKind;

    use super::*;

    fn loopback() -> Vec<Interface> {
        let all = local::listed().unwrap();
        all.into_iter()
            .filter(|interface| interface.kind == InterfaceKind::Loopback)
            .collect()
    }

    fn config(addresses: &[&str], port: u16) -> ListenConfig {
        let addresses = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        ListenConfig {
            addresses,
            interfaces: Vec::new(),
            port,
        }
    }

    fn ports(listeners: &Listeners) -> Vec<u16> {
        listeners
            .addresses()
            .iter()
            .map(|listen| listen.address.port())
            .collect()
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.9:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    #[tokio::test]
    async fn an_address_with_a_port_of_its_own_does_not_give_it_to_the_others() {
        let (own, general) = (free_port(), free_port());
        let own_address = format!("127.0.0.9:{own}");
        let listeners =
            Listeners::open(config(&[&own_address, "127.0.0.8:0"], general), &loopback()).unwrap();
        assert_eq!(ports(&listeners), [own, general]);
    }

    #[tokio::test]
    async fn a_free_port_is_the_same_for_all() {
        let listeners =
            Listeners::open(config(&["127.0.0.8:0", "127.0.0.9:0"], 0), &loopback()).unwrap();
        let ports = ports(&listeners);
        assert!(ports[0] != 0 && ports[0] == ports[1], "{ports:?}");
    }

    #[tokio::test]
    async fn an_interface_that_comes_back_is_listened_on_at_the_same_port_again() {
        let interfaces = loopback();
        let mut listeners = Listeners::open(config(&["127.0.0.8:0"], 0), &interfaces).unwrap();
        let before = listeners.addresses();
        listeners.follow(&interfaces);
        assert_eq!(listeners.addresses(), before, "nothing is opened twice");
        listeners.follow(&[]);
        assert!(listeners.addresses().is_empty());
        listeners.follow(&interfaces);
        assert_eq!(listeners.addresses(), before);
    }

    #[test]
    fn what_is_named_and_not_there_is_an_error() {
        let missing = ListenConfig {
            interfaces: vec!["none0".into()],
            ..config(&[], 0)
        };
        assert!(
            matches!(Listeners::open(missing, &loopback()), Err(Error::Link { link, .. }) if link == "none0")
        );
        assert!(Listeners::open(config(&["192.0.2.1:0"], 0), &loopback()).is_err());
    }

    #[test]
    fn an_interface_or_address_that_is_named_twice_is_listened_on_once() {
        let mut interfaces = loopback();
        interfaces[0].alternative_names.push("here0".into());
        let named = |names: &[&str], addresses: &[&str]| {
            let config = ListenConfig {
                interfaces: names.iter().map(|&name| name.into()).collect(),
                ..config(addresses, 7)
            };
            let points = config.points(&interfaces);
            let addresses = points.iter().map(|point| point.address.to_string());
            addresses.collect::<Vec<_>>()
        };
        let both = ["0.0.0.0:0", "[::]:0"];
        assert_eq!(named(&["lo", "lo"], &[]), both);
        assert_eq!(named(&["lo", "here0"], &[]), both);
        assert_eq!(named(&["lo"], &["127.0.0.8:0", "127.0.0.9:7"]), both);
        assert_eq!(named(&[], &["127.0.0.8:0", "127.0.0.8:7"]), ["127.0.0.8:0"]);
        assert_eq!(named(&[], &["127.0.0.8:8", "0.0.0.0:8"]), ["0.0.0.0:8"]);
        assert_eq!(
            named(&[], &["127.0.0.8:9", "0.0.0.0:8"]),
            ["127.0.0.8:9", "0.0.0.0:8"]
        );
    }

    #[test]
    fn the_unspecified_address_is_that_of_every_interface_of_its_version() {
        let interfaces = loopback();
        let at = |address: &str| config(&[address], 7).points(&interfaces).len();
        assert_eq!([at("0.0.0.0:0"), at("[::]:0")], [1, 1]);
        assert!(config(&["0.0.0.0:0"], 7).check(&interfaces).is_ok());
        assert_eq!(at("[::%99]:0"), 0, "the zone is another interface");
        assert!(config(&["[::]:0"], 7).is_everywhere());
        assert!(!config(&["0.0.0.0:0"], 7).is_everywhere());
    }

    #[test]
    fn without_a_wish_every_interface_that_is_up_is_listened_on_but_those_under_a_master() {
        let mut interfaces = loopback();
        assert_eq!(config(&[], 7).points(&interfaces).len(), 2, "IPv4 and IPv6");
        interfaces[0].up = false;
        assert_eq!(config(&[], 7).points(&interfaces), []);
    }
}
