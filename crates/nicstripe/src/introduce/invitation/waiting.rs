//! Waiting side of an invitation: listens on every interface, answers discovery for its number, and
//! admits one guess.

use std::{
    fmt,
    future::ready,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use nicstripe_link::Changes;
use nicstripe_proto::invitation::{Code, Purpose};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    INVITATION_PORT, LONGEST_INVITATION, Paired,
    channel::Channel,
    error::InvitationError,
    exchange::{Exchange, Guess, Offer},
};
use crate::{
    links::{
        discovery::{Responder, ResponderConfig},
        listeners::{ListenAddress, ListenConfig, Listeners, OnAccepted, on_any_address},
        local,
    },
    report::error::Error,
    trust::{Identity, random::random_bytes},
    wire::tls::{ServerTls, TlsStream},
};

/// Settings of an invitation.
///
/// Defaults: to pair, no daemon, 10 minutes, all addresses of every interface that is up, and port
/// [`INVITATION_PORT`] or a free one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitationOptions {
    /// Purpose, which the joiner must share.
    pub purpose: Purpose,
    /// TCP port of the daemon on this machine, for the card; `None` if there is none.
    pub daemon_port: Option<u16>,
    /// Lifetime, at most [`LONGEST_INVITATION`].
    pub lifetime: Duration,
    /// Addresses to listen on; port 0 stands for `port`. Only `[::]` can be found by its number.
    pub listen: Vec<SocketAddr>,
    /// Names of the interfaces to listen on. All, if this and `listen` are empty.
    pub interfaces: Vec<String>,
    /// TCP port; `None` for [`INVITATION_PORT`], or a free one if it is in use.
    pub port: Option<u16>,
}

impl Default for InvitationOptions {
    fn default() -> Self {
        Self {
            purpose: Purpose::Pair,
            daemon_port: None,
            lifetime: LONGEST_INVITATION,
            listen: Vec::new(),
            interfaces: Vec::new(),
            port: None,
        }
    }
}

/// Open invitation with its code. Dropping it closes its sockets.
///
/// A joiner has one guess: the first wrong proof of the code ends the invitation. Connections that
/// end before a proof are no guess, but 16 of them end it too. Four are served at once, each for at
/// most 5 s.
#[must_use = "an invitation is answered only while it waits"]
pub struct Invitation {
    code: Code,
    offer: Offer,
    lifetime: Duration,
    deadline: Instant,
    pub(super) limits: Limits,
    server: Arc<Server>,
    listeners: Listeners,
    responder: Option<Responder>,
    on_accepted: OnAccepted,
    arrivals: mpsc::Receiver<Arrival>,
}

/// Limits on connections that have not proved the code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Time of one connection, from its first byte to its proof.
    pub(super) connection: Duration,
    /// Connections in all.
    pub(super) most: usize,
}

struct Arrival {
    tcp: TcpStream,
    remote: SocketAddr,
    interface: String,
}

/// Identity and code of an invitation, for the tasks of its connections.
struct Server {
    identity: Identity,
    tls: ServerTls,
    code: Code,
}

impl Invitation {
    /// Opens an invitation with a random code, and listens from then on. Must be called within a
    /// tokio runtime.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{invitation::{Invitation, InvitationOptions}, trust::Identity};
    ///
    /// let invitation = Invitation::open(&Identity::generate()?, InvitationOptions::default())?;
    /// println!("{}", invitation.code().to_text());
    /// let paired = invitation.wait().await?;
    /// println!("{} has the key {}", paired.host, paired.key);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvitationError::System`] if a named interface or address does not exist, or if no socket
    /// can listen.
    pub fn open(identity: &Identity, options: InvitationOptions) -> Result<Self, InvitationError> {
        Self::with_code(identity, Code::from_random(random_bytes()), options)
    }

    pub(super) fn with_code(
        identity: &Identity,
        code: Code,
        options: InvitationOptions,
    ) -> Result<Self, InvitationError> {
        Error::require_runtime()?;
        let lifetime = options.lifetime.min(LONGEST_INVITATION);
        let offer = Offer {
            purpose: options.purpose,
            port: options.daemon_port.unwrap_or(0),
        };
        let (listeners, is_everywhere) = listen(options)?;
        let responder = responder(identity, code, &listeners.addresses(), is_everywhere);
        let (sender, arrivals) = mpsc::channel(MOST_CONNECTIONS);
        let mut invitation = Self {
            code,
            offer,
            lifetime,
            deadline: Instant::now() + lifetime,
            limits: Limits {
                connection: CONNECTION_TIMEOUT,
                most: MOST_CONNECTIONS,
            },
            server: Arc::new(Server {
                identity: identity.clone(),
                tls: ServerTls::for_invitation(identity),
                code,
            }),
            listeners,
            responder,
            on_accepted: Arc::new(move |accepted, interface| {
                on_accepted(&sender, accepted, interface);
            }),
            arrivals,
        };
        invitation.look();
        Ok(invitation)
    }

    /// Returns the code to show to the user. It is secret until the invitation has ended.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the addresses on which the invitation listens, for a joiner on another network.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.listeners.addresses()
    }

    /// Waits until a joiner has proved the code, and closes the listening sockets. Dropping the
    /// future ends the invitation.
    ///
    /// # Errors
    ///
    /// [`InvitationError::WrongCode`] after the first wrong proof, [`InvitationError::Expired`] at
    /// the end of the lifetime, [`InvitationError::TooManyConnections`]; and errors of the
    /// connection on which the code was proved. The invitation has ended in each case.
    pub async fn wait(mut self) -> Result<Paired, InvitationError> {
        let guess = timeout_at(self.deadline, self.first_guess()).await;
        let (offer, lifetime) = (self.offer.clone(), self.lifetime);
        let limit = self.limits.connection;
        self.close().await;
        let guess = guess.map_err(|_| InvitationError::Expired { lifetime })??;
        let address = guess.remote();
        let judged = timeout(limit, guess.judge(&offer)).await;
        judged.unwrap_or(Err(InvitationError::TimedOut {
            address,
            waited: limit,
        }))
    }

    /// Serves connections until a confirmation arrives on one of them. All others are dropped with
    /// it, so that no second one is checked.
    async fn first_guess(&mut self) -> Result<Guess, InvitationError> {
        // Subscribed before interfaces are listed, so that no change is missed.
        let mut changes = Changes::open().ok();
        self.look();
        let mut attempts = JoinSet::new();
        let (mut accepted, mut last) = (0, None);
        loop {
            if let Some(last) = last
                && accepted == self.limits.most
                && attempts.is_empty()
            {
                let most = accepted;
                return Err(InvitationError::TooManyConnections { most, last });
            }
            let is_open = attempts.len() < MOST_AT_ONCE && accepted < self.limits.most;
            tokio::select! {
                Some(arrival) = self.arrivals.recv(), if is_open => {
                    accepted += 1;
                    last = Some(arrival.remote);
                    attempts.spawn(attempt(self.server.clone(), arrival, self.limits.connection));
                }
                Some(ended) = attempts.join_next() => {
                    if let Ok(Some(guess)) = ended {
                        return Ok(guess);
                    }
                }
                followed = changed(&mut changes) => {
                    if !followed {
                        changes = None;
                    }
                    self.look();
                }
            }
        }
    }

    /// Lists the interfaces, and updates listeners and discovery accordingly.
    fn look(&mut self) {
        match local::listed() {
            Ok(interfaces) => {
                self.listeners.follow(&interfaces);
                if let Some(responder) = &mut self.responder {
                    responder.update(&interfaces);
                }
            }
            Err(error) => {
                tracing::warn!(error = %crate::text::chain(&error), "cannot list interfaces");
            }
        }
        self.listeners.accept(&self.on_accepted);
    }

    async fn close(self) {
        self.listeners.close().await;
        if let Some(responder) = self.responder {
            responder.close().await;
        }
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// Opens the listening sockets. Also returns true if all interfaces are listened on.
fn listen(options: InvitationOptions) -> Result<(Listeners, bool), Error> {
    let interfaces = local::listed()?;
    let config = |port| ListenConfig {
        addresses: options.listen.clone(),
        interfaces: options.interfaces.clone(),
        port,
    };
    let first = options.port.unwrap_or(INVITATION_PORT);
    let is_everywhere = config(first).is_everywhere();
    let mut opened = Listeners::open(config(first), &interfaces);
    for _ in 0..MOST_PORTS {
        if options.port.is_some() || !matches!(&opened, Err(error) if is_in_use(error)) {
            break;
        }
        // A port that is free on one interface may be in use on the next.
        opened = Listeners::open(config(0), &interfaces);
    }
    Ok((opened?, is_everywhere))
}

fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

/// Returns the responder to questions for the number; `None` if no socket listens on the link-local
/// addresses to which an answer leads.
fn responder(
    identity: &Identity,
    code: Code,
    addresses: &[ListenAddress],
    is_everywhere: bool,
) -> Option<Responder> {
    let answering = on_any_address(addresses);
    let is_any =
        |listen: &&ListenAddress| listen.address.is_ipv6() && listen.address.ip().is_unspecified();
    let port = addresses.iter().find(is_any)?.address.port();
    Some(Responder::new(ResponderConfig {
        identity: identity.clone(),
        accepts: Arc::new(|_| true),
        announce: true,
        invitation: Some(code.number()),
        port,
        asked_at: INVITATION_PORT,
        only: (!is_everywhere).then_some(answering),
    }))
}

/// Queues an accepted connection; drops it if too many wait.
fn on_accepted(
    queue: &mpsc::Sender<Arrival>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
    interface: &str,
) {
    let Ok((tcp, remote)) = accepted else {
        tracing::debug!(interface, "cannot accept a connection");
        return;
    };
    let interface = interface.to_owned();
    if let Err(error) = queue.try_send(Arrival {
        tcp,
        remote,
        interface,
    }) {
        tracing::debug!(%remote, %error, "connection dropped");
    }
}

/// Waits for the next change of an interface; returns false if the kernel reports none any more.
/// Cancel safe.
async fn changed(changes: &mut Option<Changes>) -> bool {
    match changes {
        Some(changes) => changes.next().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Serves a connection up to its confirmation; `None` if it ends before or takes too long.
async fn attempt(server: Arc<Server>, arrival: Arrival, limit: Duration) -> Option<Guess> {
    let remote = arrival.remote;
    match timeout(limit, server.await_guess(arrival, limit)).await {
        Ok(Ok(guess)) => return Some(guess),
        Ok(Err(error)) => {
            tracing::debug!(%remote, error = %crate::text::chain(&error), "connection ended without a proof of the code");
        }
        Err(_) => tracing::debug!(%remote, "no proof of the code in time"),
    }
    None
}

impl Server {
    async fn await_guess(
        &self,
        arrival: Arrival,
        limit: Duration,
    ) -> Result<Guess, InvitationError> {
        let Arrival {
            tcp,
            remote,
            interface,
        } = arrival;
        let deadline = StdInstant::now() + limit;
        let tls = TlsStream::accept(tcp, &self.tls, deadline, ready(()))
            .await
            .map_err(|error| InvitationError::from_tls(remote, error))?;
        let exchange = Exchange {
            channel: Channel::new(tls),
            remote,
            interface: Some(interface).filter(|name| !name.is_empty()),
            ours: self.identity.public_key(),
        };
        exchange.await_guess(self.code).await
    }
}

/// Maximum number of connections of one invitation. An attacker can end it by one wrong guess, so
/// that more would not help an honest joiner.
const MOST_CONNECTIONS: usize = 16;

/// Maximum number of connections that are served at once.
const MOST_AT_ONCE: usize = 4;

/// Timeout of a connection up to its proof, and of the cards after it.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of free ports to try if [`INVITATION_PORT`] is in use.
const MOST_PORTS: usize = 4;
