//! Joining side of an invitation: finds the inviter, connects and proves the code.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use nicstripe_proto::invitation::{Code, Number, Purpose};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use super::{
    INVITATION_PORT, Paired,
    channel::Channel,
    error::{FoundInviter, InvitationError},
    exchange::{Exchange, Offer},
};
use crate::{
    links::{
        connect::{CONNECT_TIMEOUT, FIRST_CONNECT_TIMEOUT, connect_on},
        discovery::{DiscoveredPeer, Search, SearchOptions},
        local,
        lookup::resolved,
    },
    report::error::Error,
    trust::{Identity, PublicKey},
    wire::tls::{ClientTls, KeyFilter, TlsError, TlsStream},
};

/// Settings of a joiner.
///
/// Defaults: to pair, no daemon, and a search of 10 s on every cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinOptions {
    /// Purpose, which the inviter must share.
    pub purpose: Purpose,
    /// TCP port of the daemon on this machine, for the card; `None` if there is none.
    pub daemon_port: Option<u16>,
    /// Host name or address of the inviter; `None` to search for its number on the cables.
    pub host: Option<String>,
    /// TCP port at `host`; `None` for [`INVITATION_PORT`]. Unused in a search.
    pub port: Option<u16>,
    /// Names of the interfaces to search on; all if empty.
    pub interfaces: Vec<String>,
    /// Names of interfaces not to search on.
    pub excluded: Vec<String>,
    /// Maximum duration of the search. It ends half a second after the first answer.
    pub duration: Duration,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            purpose: Purpose::Pair,
            daemon_port: None,
            host: None,
            port: None,
            interfaces: Vec::new(),
            excluded: Vec::new(),
            duration: Duration::from_secs(10),
        }
    }
}

/// Finds the machine that shows `code`, connects to it, and proves the code to it and it to us.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use nicstripe::{invitation::{JoinOptions, join}, trust::Identity};
///
/// let code = "7-crossover-violin".parse()?;
/// let paired = join(&Identity::generate()?, code, JoinOptions::default()).await?;
/// println!("{} has the key {}", paired.host, paired.key);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`InvitationError::WrongCode`] if the other end does not have the code: its invitation has ended
/// then. [`InvitationError::Nobody`], [`InvitationError::TwoMachines`],
/// [`InvitationError::OtherNumber`], [`InvitationError::NotWaiting`] and [`InvitationError::Own`]
/// spend no guess, nor do failures to connect.
pub async fn join(
    identity: &Identity,
    code: Code,
    options: JoinOptions,
) -> Result<Paired, InvitationError> {
    Error::require_runtime()?;
    let joiner = Joiner {
        identity,
        code,
        offer: Offer {
            purpose: options.purpose,
            port: options.daemon_port.unwrap_or(0),
        },
    };
    let reached = match &options.host {
        Some(host) => reach(host, options.port.unwrap_or(INVITATION_PORT)).await?,
        None => {
            let found = search(identity, code.number(), &options).await?;
            reach_found(found).await?
        }
    };
    joiner.join(reached).await
}

struct Joiner<'a> {
    identity: &'a Identity,
    code: Code,
    offer: Offer,
}

/// TCP connection to an inviter.
struct Reached {
    tcp: TcpStream,
    remote: SocketAddr,
    interface: Option<String>,
    /// Key that answered the search; `None` if there was no search.
    key: Option<PublicKey>,
}

impl Joiner<'_> {
    async fn join(&self, reached: Reached) -> Result<Paired, InvitationError> {
        let address = reached.remote;
        let joined = timeout(EXCHANGE_TIMEOUT, self.exchange(reached)).await;
        joined.unwrap_or(Err(InvitationError::TimedOut {
            address,
            waited: EXCHANGE_TIMEOUT,
        }))
    }

    async fn exchange(&self, reached: Reached) -> Result<Paired, InvitationError> {
        let (ours, remote) = (self.identity.public_key(), reached.remote);
        let found = reached.key;
        let accepts: KeyFilter =
            Arc::new(move |key| *key != ours && found.is_none_or(|found| found == *key));
        let tls = ClientTls::for_invitation(self.identity, accepts);
        let deadline = StdInstant::now() + EXCHANGE_TIMEOUT;
        let tls = TlsStream::connect(reached.tcp, &tls, deadline)
            .await
            .map_err(|error| match error {
                TlsError::UntrustedKey(key) if key == ours => {
                    InvitationError::Own { address: remote }
                }
                error => InvitationError::from_handshake(remote, error, EXCHANGE_TIMEOUT),
            })?;
        let exchange = Exchange {
            channel: Channel::new(tls),
            remote,
            interface: reached.interface,
            ours,
        };
        exchange.join(self.code, &self.offer).await
    }
}

/// Connects to a host by name or address, at the first of its addresses that answers.
async fn reach(host: &str, port: u16) -> Result<Reached, InvitationError> {
    let failed = |why: String| Error::Resolve {
        host: host.to_owned(),
        source: io::Error::other(why),
    };
    let lookup = async { Ok(tokio::net::lookup_host((host, port)).await?.collect()) };
    let addresses = resolved(lookup).await.map_err(failed)?;
    let mut error = InvitationError::from(failed("it has no address".to_owned()));
    for address in addresses {
        let connected = timeout(FIRST_CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(tcp) => {
                return Ok(Reached {
                    interface: interface_of(&tcp),
                    tcp,
                    remote: address,
                    key: None,
                });
            }
            Err(source) => error = InvitationError::Connect { address, source },
        }
    }
    Err(error)
}

/// Returns the name of the interface that has the local address of a connection.
fn interface_of(tcp: &TcpStream) -> Option<String> {
    let ip = tcp.local_addr().ok()?.ip();
    let interfaces = local::listed().ok()?;
    let mut interfaces = interfaces.iter();
    let found = interfaces.find(|interface| local::has_address(interface, ip))?;
    Some(found.name.to_string())
}

/// Searches for the inviter with a number on the cables. Collects the answers within [`SETTLING`]
/// after the first.
async fn search(
    identity: &Identity,
    number: Number,
    options: &JoinOptions,
) -> Result<Vec<DiscoveredPeer>, InvitationError> {
    let settings = SearchOptions {
        port: INVITATION_PORT,
        duration: options.duration,
        interfaces: options.interfaces.clone(),
        excluded: options.excluded.clone(),
    };
    let mut search = Search::for_invitation(identity, settings, number)?;
    let Some(first) = search.next().await else {
        return Err(match search.obstacle() {
            Some(obstacle) => obstacle.into(),
            None => InvitationError::Nobody {
                number,
                interfaces: search.interfaces(),
                excluded: options.excluded.clone(),
            },
        });
    };
    let (mut found, settled) = (vec![first], Instant::now() + SETTLING);
    while let Ok(Some(more)) = timeout_at(settled, search.next()).await {
        found.push(more);
    }
    let searched = search.interfaces();
    found.sort_by_key(|peer| searched.iter().position(|name| *name == peer.interface));
    only_one(number, found)
}

/// Returns the answers if all are of one key.
pub(super) fn only_one(
    number: Number,
    found: Vec<DiscoveredPeer>,
) -> Result<Vec<DiscoveredPeer>, InvitationError> {
    let others = || found.iter().filter(|peer| peer.key != found[0].key);
    let Some(other) = others().next() else {
        return Ok(found);
    };
    Err(InvitationError::TwoMachines {
        number,
        first: Box::new((&found[0]).into()),
        second: Box::new(other.into()),
    })
}

impl From<&DiscoveredPeer> for FoundInviter {
    fn from(peer: &DiscoveredPeer) -> Self {
        Self {
            key: peer.key,
            host: peer.host_hint.clone(),
            interface: peer.interface.clone(),
        }
    }
}

/// Connects to the inviter on the first cable on which that succeeds.
async fn reach_found(found: Vec<DiscoveredPeer>) -> Result<Reached, InvitationError> {
    let mut error = InvitationError::System(Error::NoInterface {
        why: "none had an answer",
    });
    for peer in found {
        let address = SocketAddr::from(peer.address);
        match connect_on(&peer.interface, address, CONNECT_TIMEOUT).await {
            Ok(tcp) => {
                return Ok(Reached {
                    tcp,
                    remote: address,
                    interface: Some(peer.interface),
                    key: Some(peer.key),
                });
            }
            Err(source) => error = InvitationError::Connect { address, source },
        }
    }
    Err(error)
}

/// Time to collect answers after the first: two machines that answer for one number are noticed,
/// and the question is repeated once in it.
const SETTLING: Duration = Duration::from_millis(500);

/// Timeout of TLS and the exchange. The inviter may first serve others, each for up to 5 s.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);
