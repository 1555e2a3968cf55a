//! Listening sockets of the daemon: one per interface and IP version, while the interface exists.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as BlockingListener},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{Interface, InterfaceIndex, InterfaceName, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Shared, greeting::greet};
use crate::{
    links::local,
    report::error::{Error, seconds},
    text::logged::logged_error,
    trust::PublicKey,
    wire::{stream::StreamEnd, tls::TlsError},
};

/// Address on which a daemon listens, and its interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// Name of the interface; empty for a socket of the embedding program that is not bound to one
    /// interface.
    pub interface: String,
    /// Address and port; `0.0.0.0` or `[::]` stands for all addresses of the interface.
    pub address: SocketAddr,
}

/// Listening addresses requested by the user; all interfaces if none is named.
#[derive(Debug, Clone)]
pub(super) struct ListenConfig {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) interfaces: Vec<String>,
    /// TCP port of all sockets; 0 for a free one.
    pub(super) port: u16,
}

/// Interface and address to listen on with one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenPoint {
    interface: InterfaceName,
    index: InterfaceIndex,
    address: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Listeners {
    wanted: ListenConfig,
    open: Vec<Open>,
    /// Listening sockets supplied by the embedding program. The daemon then opens no others and
    /// ignores interface changes.
    given: Vec<EmbeddedSocket>,
    are_given: bool,
}

/// Listening socket supplied by the embedding program.
#[derive(Debug)]
struct EmbeddedSocket {
    listens: ListenAddress,
    /// Listening socket; `None` once the accepting task has it.
    listener: Option<TcpListener>,
    /// Guard that stops the accepting task when dropped.
    _stop: tokio_util::sync::DropGuard,
    stopped: CancellationToken,
}

#[derive(Debug)]
struct Open {
    place: ListenPoint,
    /// Listening socket; `None` once the accepting task has it.
    listener: Option<TcpListener>,
    /// Token that stops the accepting task.
    stop: CancellationToken,
}

impl Listeners {
    /// Opens all sockets, each bound to its interface before it listens.
    ///
    /// # Errors
    ///
    /// A named interface or address does not exist, or an address cannot be bound. Missing IPv6 is
    /// only an error for named addresses.
    pub(super) fn open(mut wanted: ListenConfig, here: &[Interface]) -> Result<Self, Error> {
        wanted.check(here)?;
        let mut open = Vec::new();
        for place in wanted.places(here) {
            let is_free = place.address.port() == 0;
            let place = wanted.with_port(place);
            match open_listener(&place) {
                Ok((bound, listener)) => {
                    // The first socket's free port is used for all others without a port.
                    if is_free {
                        wanted.port = bound.port();
                    }
                    let place = ListenPoint {
                        address: bound,
                        ..place
                    };
                    open.push(Open {
                        place,
                        listener: Some(listener),
                        stop: CancellationToken::new(),
                    });
                }
                // A machine without IPv6 has no IPv6 sockets.
                Err(error) if place.address.is_ipv6() && place.address.ip().is_unspecified() => {
                    tracing::debug!(interface = %place.interface, %error, "not listening on IPv6");
                }
                Err(source) => {
                    let source =
                        std::io::Error::new(source.kind(), format!("{}: {source}", place.address));
                    return Err(Error::System {
                        what: "listen",
                        source,
                    });
                }
            }
        }
        Ok(Self {
            wanted,
            open,
            given: Vec::new(),
            are_given: false,
        })
    }

    /// Uses the embedding program's listening sockets.
    ///
    /// # Errors
    ///
    /// A socket is not a listening TCP socket, or there are none.
    pub(super) fn of(given: &[BlockingListener], here: &[Interface]) -> Result<Self, Error> {
        let error = |source| Error::System {
            what: "listen on the passed sockets",
            source,
        };
        if given.is_empty() {
            return Err(error(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "no socket passed",
            )));
        }
        let given = given
            .iter()
            .map(|listener| EmbeddedSocket::of(listener, here))
            .collect::<Result<_, _>>()
            .map_err(error)?;
        let wanted = ListenConfig {
            addresses: Vec::new(),
            interfaces: Vec::new(),
            port: 0,
        };
        Ok(Self {
            wanted,
            open: Vec::new(),
            given,
            are_given: true,
        })
    }

    pub(super) fn addresses(&self) -> Vec<ListenAddress> {
        let given = self.given.iter().map(|given| given.listens.clone());
        let open = self.open.iter();
        open.map(|open| ListenAddress {
            interface: open.place.interface.to_string(),
            address: open.place.address,
        })
        .chain(given)
        .collect()
    }

    /// Starts accepting connections on sockets that have no accepting task yet.
    pub(super) fn accept(&mut self, shared: &Arc<Shared>) {
        for open in &mut self.open {
            if let Some(listener) = open.listener.take() {
                tokio::spawn(accept(
                    shared.clone(),
                    open.place.interface.to_string(),
                    listener,
                    open.stop.clone(),
                ));
            }
        }
        for given in &mut self.given {
            if let Some(listener) = given.listener.take() {
                tokio::spawn(accept(
                    shared.clone(),
                    given.listens.interface.clone(),
                    listener,
                    given.stopped.clone(),
                ));
            }
        }
    }

    /// Opens sockets for new interfaces and closes those of vanished ones.
    pub(super) fn follow(&mut self, here: &[Interface]) {
        if self.are_given {
            return;
        }
        self.open.retain(|open| {
            let is_there = here.iter().any(|interface| interface.index == open.place.index);
            if !is_there {
                tracing::info!(interface = %open.place.interface, address = %open.place.address, "stopped listening: interface removed");
            }
            is_there
        });
        for place in self
            .wanted
            .places(here)
            .into_iter()
            .map(|place| self.wanted.with_port(place))
        {
            if self.open.iter().any(|open| open.place == place) {
                continue;
            }
            match open_listener(&place) {
                Ok((_, listener)) => {
                    tracing::info!(interface = %place.interface, address = %place.address, "listening");
                    self.open.push(Open {
                        place,
                        listener: Some(listener),
                        stop: CancellationToken::new(),
                    });
                }
                Err(error) => {
                    tracing::debug!(interface = %place.interface, address = %place.address, %error, "cannot listen");
                }
            }
        }
    }
}

impl EmbeddedSocket {
    fn of(listener: &BlockingListener, here: &[Interface]) -> std::io::Result<Self> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let device = socket2::SockRef::from(&listener)
            .device()?
            .and_then(|name| String::from_utf8(name).ok());
        let by_address = || {
            here.iter()
                .find(|interface| local::has_address(interface, address.ip()))
                .map(|found| found.name.to_string())
        };
        let interface = device.or_else(by_address).unwrap_or_default();
        let stopped = CancellationToken::new();
        let listener = Some(TcpListener::from_std(listener)?);
        Ok(Self {
            listens: ListenAddress { interface, address },
            listener,
            _stop: stopped.clone().drop_guard(),
            stopped,
        })
    }
}

impl Drop for Open {
    /// Stops the accepting task.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ListenConfig {
    /// Replaces port 0 by the configured port.
    fn with_port(&self, mut place: ListenPoint) -> ListenPoint {
        if place.address.port() == 0 {
            place.address.set_port(self.port);
        }
        place
    }

    /// Checks that the requested interfaces and addresses exist.
    fn check(&self, here: &[Interface]) -> Result<(), Error> {
        for name in &self.interfaces {
            if !here.iter().any(|interface| interface.is_called(name)) {
                return Err(Error::Link {
                    link: name.clone(),
                    why: local::no_such(here),
                });
            }
        }
        for address in &self.addresses {
            if !here
                .iter()
                .any(|interface| local::has_address(interface, address.ip()))
            {
                let all = here
                    .iter()
                    .flat_map(|interface| &interface.addresses)
                    .map(|own| own.ip.to_string())
                    .collect::<Vec<_>>();
                let why = format!(
                    "no local interface has this address; available: {}",
                    all.join(", ")
                );
                return Err(Error::Link {
                    link: address.ip().to_string(),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Returns the interfaces and addresses to listen on. Port 0 stands for the configured port.
    fn places(&self, here: &[Interface]) -> Vec<ListenPoint> {
        let place = |interface: &Interface, address| ListenPoint {
            interface: interface.name,
            index: interface.index,
            address,
        };
        let mut places = Vec::new();
        for name in &self.interfaces {
            let named = here.iter().filter(|interface| interface.is_called(name));
            places.extend(
                named.flat_map(|interface| {
                    unspecified().map(move |address| place(interface, address))
                }),
            );
        }
        for address in &self.addresses {
            places.extend(
                here.iter()
                    .find(|interface| local::has_address(interface, address.ip()))
                    .map(|interface| place(interface, *address)),
            );
        }
        if self.interfaces.is_empty() && self.addresses.is_empty() {
            // Members of a bridge or bond are skipped: the kernel delivers their packets to the
            // master.
            let up = here
                .iter()
                .filter(|interface| interface.up && interface.master.is_none());
            places.extend(
                up.flat_map(|interface| {
                    unspecified().map(move |address| place(interface, address))
                }),
            );
        }
        places
    }
}

fn unspecified() -> impl Iterator<Item = SocketAddr> {
    [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::from(Ipv6Addr::UNSPECIFIED),
    ]
    .into_iter()
    .map(|ip| SocketAddr::new(ip, 0))
}

fn open_listener(place: &ListenPoint) -> std::io::Result<(SocketAddr, TcpListener)> {
    let listener = TcpListener::from_std(listen(Some(&place.interface), place.address, BACKLOG)?)?;
    Ok((listener.local_addr()?, listener))
}

async fn accept(
    shared: Arc<Shared>,
    interface: String,
    listener: TcpListener,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((tcp, remote)) => accept_connection(&shared, tcp, remote, &interface),
            Err(error) => {
                // Probably out of file descriptors: evict a stranger to free one.
                shared.gate.drop_oldest();
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Admits a new connection and starts its greeting in a task. Must stay cheap, since the next
/// connection waits for it.
fn accept_connection(shared: &Arc<Shared>, tcp: TcpStream, remote: SocketAddr, interface: &str) {
    let deadline = Instant::now() + shared.limits().greeting_time;
    let Some(admission) = shared.gate.admit(remote) else {
        return shared.reject_connection("full", remote, &"too many connections");
    };
    let (shared, interface) = (shared.clone(), interface.to_owned());
    tokio::spawn(async move {
        let gone = admission.gone();
        let greeted = tokio::select! {
            greeted = tokio::time::timeout_at(deadline.into(), greet(&shared, tcp, remote, interface, admission, deadline)) => greeted,
            // Evicted: close without sending anything.
            () = gone.cancelled() => return shared.reject_connection("gave_way", remote, &"evicted for another connection"),
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
    fn reject_connection(
        &self,
        word: &'static str,
        remote: SocketAddr,
        reason: &dyn std::fmt::Display,
    ) {
        self.meters.greeting_refused(word);
        self.refusals.tell(remote, reason);
    }
}

/// Log message for an untrusted key, with the command that trusts it.
struct Unknown {
    key: PublicKey,
    remote: SocketAddr,
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.remote.ip().to_canonical().to_string();
        write!(
            f,
            "untrusted key; to trust it: {}",
            self.key.trust_command(&name)
        )
    }
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

/// Length of the kernel's accept queue, in connections; `net.core.somaxconn` may reduce it.
const BACKLOG: u32 = 4096;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

    fn wanted(addresses: &[&str], port: u16) -> ListenConfig {
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
            Listeners::open(wanted(&[&own_address, "127.0.0.8:0"], general), &loopback()).unwrap();
        assert_eq!(ports(&listeners), [own, general]);
    }

    #[tokio::test]
    async fn a_free_port_is_the_same_for_all() {
        let listeners =
            Listeners::open(wanted(&["127.0.0.8:0", "127.0.0.9:0"], 0), &loopback()).unwrap();
        let ports = ports(&listeners);
        assert!(ports[0] != 0 && ports[0] == ports[1], "{ports:?}");
    }

    #[tokio::test]
    async fn what_is_open_already_is_not_opened_again() {
        let here = loopback();
        let mut listeners = Listeners::open(wanted(&["127.0.0.8:0"], 0), &here).unwrap();
        let before = listeners.addresses();
        listeners.follow(&here);
        assert_eq!(listeners.addresses(), before);
    }

    #[tokio::test]
    async fn an_interface_that_comes_back_is_listened_on_at_the_same_port_again() {
        let here = loopback();
        let mut listeners = Listeners::open(wanted(&["127.0.0.8:0"], 0), &here).unwrap();
        let before = listeners.addresses();
        listeners.follow(&[]);
        assert!(listeners.addresses().is_empty());
        listeners.follow(&here);
        assert_eq!(listeners.addresses(), before);
    }

    #[test]
    fn what_is_named_and_not_there_is_an_error() {
        let missing = ListenConfig {
            interfaces: vec!["none0".into()],
            ..wanted(&[], 0)
        };
        assert!(
            matches!(Listeners::open(missing, &loopback()), Err(Error::Link { link, .. }) if link == "none0")
        );
        assert!(Listeners::open(wanted(&["192.0.2.1:0"], 0), &loopback()).is_err());
    }

    #[test]
    fn without_a_wish_every_interface_that_is_up_is_listened_on_but_those_under_a_master() {
        let mut here = loopback();
        assert_eq!(wanted(&[], 7).places(&here).len(), 2, "IPv4 and IPv6");
        here[0].up = false;
        assert_eq!(wanted(&[], 7).places(&here), []);
    }
}
