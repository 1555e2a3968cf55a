//! Setup of a session with a peer: at its daemon, or through ssh, with a message if it has to wait.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    path::PathBuf,
    pin::pin,
    time::{Duration, Instant},
};

use nicstripe::{
    CancellationToken, Client, ClientBuilder, Error, Event, LinkState, RoutePolicy, SurveyedLink,
    bootstrap::{Introduction, Wishes},
    trust::{AddressBook, DialTarget, Identity, ListenTarget, Peers, Sightings},
};
use nicstripe_doctor::is_plain;
use tokio::sync::mpsc;

use super::{
    arguments::LinkArgs,
    by_code::{self, Offering},
    location::{Location, LocationError, Remote, rooted},
    place::{Place, Via},
    ssh::{self, Channel},
    ssh_path::{Homes, leaves_home, located, user_of},
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::terminal::Terminal,
    places,
    text::{invocation::Invocation, quantity::Limit, shown},
};

/// Client with a session, and the ssh connection that introduced the peer.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: Client,
    place: Place,
    start: Start,
    introducer: Introducer,
}

/// Channel that introduced the peer, and is held open.
#[derive(Debug)]
enum Introducer {
    /// A list of peers.
    None,
    Ssh(Channel),
    Code(by_code::Held),
}

/// Where names at a peer begin.
#[derive(Debug)]
enum Start {
    /// At the directory that the daemon serves; `None` if it does not tell.
    Root(Option<PathBuf>),
    /// At the home directory of the user, or the root of the file system.
    Home(Homes),
}

impl Connected {
    /// Returns a remote path with the part made relative at which names begin; `None` if that
    /// changes nothing.
    pub(crate) fn inside(&self, path: &OsStr) -> Result<Option<OsString>, LocationError> {
        match &self.start {
            Start::Root(Some(root)) => rooted(path, root),
            Start::Root(None) => Ok(None),
            Start::Home(homes) => located(path, &self.place, homes),
        }
    }

    /// Returns what a remote path means, relative to where names begin; `None` if that is what was typed.
    pub(crate) fn located(&self, typed: &OsStr) -> Result<Option<Remote>, LocationError> {
        let inside = self.inside(typed)?;
        Ok(
            match inside.map(|inside| Location::parse(&inside)).transpose()? {
                Some(Location::Remote(remote)) => Some(remote),
                _ => None,
            },
        )
    }

    /// Closes the session, and then what introduced the peer.
    pub(crate) async fn close(self) {
        self.close_as(false).await;
    }

    /// Like [`close`](Self::close), and reports to a receiver by code whether its copy is complete.
    pub(crate) async fn close_as(self, is_complete: bool) {
        self.client.close().await;
        match self.introducer {
            Introducer::None => {}
            Introducer::Ssh(channel) => channel.close().await,
            Introducer::Code(held) => held.close(is_complete).await,
        }
    }
}

/// Needs of a command at a peer that ssh reaches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs<'a> {
    /// Remote and local paths of a copy.
    pub(crate) paths: &'a [OsString],
    /// Services to reach from there.
    pub(crate) dial: Vec<DialTarget>,
    /// Where to listen there.
    pub(crate) listen: Vec<ListenTarget>,
    /// Longest wait for each step of a start by ssh; `None` for the default.
    pub(crate) timeout: Option<Duration>,
    /// Code by which to find the peer, whatever its place.
    pub(crate) offering: Option<&'a Offering>,
}

/// Connects to a peer: the only way from what a user typed to a session.
///
/// `adapt` adds the settings of the command to a builder, `tell` receives the events of the
/// connection setup.
pub(crate) async fn connect(
    place: &Place,
    links: &LinkArgs,
    needs: &Needs<'_>,
    adapt: impl Fn(ClientBuilder) -> ClientBuilder,
    mut tell: impl FnMut(&Event),
) -> Result<Connected, Failure> {
    let adapt = |builder| adapt(links.apply(builder));
    if let Some(offering) = needs.offering {
        return by_a_code(place, offering, adapt, tell).await;
    }
    let place = match &place.via {
        Via::Ssh { .. } => place.clone(),
        Via::Daemon | Via::Either => {
            let port = links.port(place.port);
            let peers = Peers::load(places::home()?.peers_file())?;
            // Only a host that is no trusted peer, at the port of any daemon, may be meant for ssh.
            let may_be_ssh = place.via == Via::Either
                && links.port.is_none()
                && peers.by_name(&place.host).is_none()
                && links.ssh.is_there();
            let builder = adapt(client(peers)?).port(port);
            let why = match within(builder, &place.host, &mut tell, may_be_ssh).await? {
                Ok(client) => {
                    return Ok(Connected {
                        start: Start::Root(client.root().await?),
                        client,
                        place: place.clone(),
                        introducer: Introducer::None,
                    });
                }
                Err(why) => why,
            };
            Terminal::default().say(format_args!(
                "no daemon answers at {}{why}; trying ssh",
                place.host
            ));
            place.by_ssh()
        }
    };
    through_ssh(place, links, needs, adapt, tell).await
}

/// Connects to a peer for a question that needs no host routes.
pub(crate) async fn connect_without_routes(
    place: &Place,
    links: &LinkArgs,
    needs: &Needs<'_>,
) -> Result<Connected, Failure> {
    let adapt = |builder: ClientBuilder| builder.routes(RoutePolicy::Never);
    connect(place, links, needs, adapt, say).await
}

async fn through_ssh(
    place: Place,
    links: &LinkArgs,
    needs: &Needs<'_>,
    adapt: impl Fn(ClientBuilder) -> ClientBuilder,
    mut tell: impl FnMut(&Event),
) -> Result<Connected, Failure> {
    let place = Place {
        port: links.port.or(place.port),
        ..place
    };
    let from_root = needs.paths.iter().any(|path| leaves_home(path));
    let users: Vec<String> = needs
        .paths
        .iter()
        .filter_map(|path| user_of(path))
        .collect();
    let wishes = Wishes {
        origin: ssh::origin(),
        place: format!("{place}:{:?}", place.port),
        from_root,
        dial: needs.dial.clone(),
        listen: needs.listen.clone(),
        homes: users.clone(),
        through_ssh: None,
    };
    let (peer, channel) =
        ssh::open(&place, &links.ssh, wishes, needs.timeout.unwrap_or(SSH)).await?;
    let gone = peer.gone();
    let homes = Homes {
        own: peer.home().to_owned(),
        others: users
            .into_iter()
            .zip(peer.homes().iter().cloned())
            .collect(),
        from_root,
    };
    let builder = || adapt(Client::builder());
    let direct = establish(builder().introduced(&peer), &place.host, &mut tell).await;
    let client = match direct {
        Ok(client) => client,
        Err(Failure::Library(error)) if is_unanswered(&error) || is_stranger(&error) => {
            let Some(port) = channel.forwarded else {
                channel.close().await;
                return Err(match is_stranger(&error) {
                    true => stranger(&place, &peer, Some("--allow-ssh-data")).into(),
                    false => blocked(&place, &peer, &error).into(),
                });
            };
            Terminal::default().say(format_args!(
                "no cable to {place} carries the data; sending it through ssh, over one connection"
            ));
            let peer = peer.forwarded(port);
            match establish(builder().introduced(&peer), &place.host, &mut tell).await {
                Err(Failure::Library(error)) if is_stranger(&error) => {
                    channel.close().await;
                    return Err(stranger(&place, &peer, None).into());
                }
                client => client?,
            }
        }
        Err(failure) => return Err(failure),
    };
    tokio::spawn(follow(gone, channel.lost.clone(), client.clone()));
    Ok(Connected {
        client,
        place,
        start: Start::Home(homes),
        introducer: Introducer::Ssh(channel),
    })
}

async fn by_a_code(
    place: &Place,
    offering: &Offering,
    adapt: impl Fn(ClientBuilder) -> ClientBuilder,
    tell: impl FnMut(&Event),
) -> Result<Connected, Failure> {
    let (peer, held) = by_code::open(offering).await?;
    let introduced = adapt(Client::builder()).introduced(&peer);
    let client = match establish(introduced, &place.host, tell).await {
        Ok(client) => client,
        Err(failure) => {
            held.close(false).await;
            return Err(match failure {
                Failure::Library(error) if is_unanswered(&error) => {
                    blocked(place, &peer, &error).into()
                }
                Failure::Library(error) if is_stranger(&error) => {
                    stranger(place, &peer, None).into()
                }
                failure => failure,
            });
        }
    };
    tokio::spawn(follow(peer.gone(), held.lost.clone(), client.clone()));
    Ok(Connected {
        client,
        place: place.clone(),
        start: Start::Root(None),
        introducer: Introducer::Code(held),
    })
}

/// Ends the session when the program there has ended: no link would come back. Either ssh says so, or
/// it is lost and so is every link.
async fn follow(gone: CancellationToken, lost: CancellationToken, client: Client) {
    let unlinked = async {
        lost.cancelled().await;
        without_link(&client).await;
    };
    tokio::select! {
        () = gone.cancelled() => {}
        () = unlinked => gone.cancel(),
    }
    client.close().await;
}

/// Waits until no link has been up for [`ABSENCE`].
async fn without_link(client: &Client) {
    let mut since = Instant::now();
    while since.elapsed() < ABSENCE {
        tokio::time::sleep(LOOK).await;
        // A client that waits for a session has no link.
        let survey = tokio::time::timeout(ABSENCE, client.links()).await;
        let is_up = |link: &SurveyedLink| matches!(link.state, LinkState::Up | LinkState::Suspect);
        if let Ok(Ok(survey)) = survey
            && survey.links.iter().any(is_up)
        {
            since = Instant::now();
        }
    }
}

/// Time without any link after which the program there counts as ended, if ssh is lost. ssh outlives
/// a short loss of its cable.
const ABSENCE: Duration = Duration::from_secs(10);

/// Time between two looks at the links.
const LOOK: Duration = Duration::from_millis(500);

/// Returns the error for a peer that was introduced, but to which no cable carries the data.
fn blocked(place: &Place, peer: &Introduction, error: &Error) -> Fault {
    // Other names would stand next to a command.
    let there: Vec<&str> = peer.interfaces().filter(|name| is_plain(name)).collect();
    let on = match there.is_empty() {
        true => String::new(),
        false => format!(" on {}", there.join(", ")),
    };
    let tried: String = match error {
        Error::Unreachable(unreached) => {
            let tried = unreached.tried.iter();
            tried.map(|attempt| format!("; {attempt}")).collect()
        }
        error => format!("; {}", nicstripe::chain(error)),
    };
    let port = peer.port();
    let text = format!(
        "ssh reaches {place}, but none of its addresses accepts the data on TCP port {port}{tried}"
    );
    let hint = format!(
        "open TCP port {port}{on} in the firewall of {place}, or let ssh carry the data: {}",
        Invocation::of_this_process().with_flag("--allow-ssh-data")
    );
    Fault::new(Exit::NoLink, text).with_hint(hint)
}

/// Returns the error for an introduced peer at whose address and port another program answered. Its
/// one-time key is in no list, so there is nothing to trust.
fn stranger(place: &Place, peer: &Introduction, option: Option<&str>) -> Fault {
    let port = peer.port();
    let text = format!(
        "another program answered at {place}, TCP port {port}: expected the key of this command"
    );
    let again = Invocation::of_this_process();
    let hint = match option {
        Some(option) => format!(
            "run it again, or let ssh carry the data: {}",
            again.with_flag(option)
        ),
        None => format!("run it again: {}", again.typed()),
    };
    Fault::new(Exit::NoLink, text).with_hint(hint)
}

/// Returns true if a program with another key than the introduced one answered, or one that does
/// not accept the key of this command.
fn is_stranger(error: &Error) -> bool {
    matches!(error, Error::UntrustedPeer { .. } | Error::Untrusted { .. })
}

/// Connects to a daemon; within [`SILENCE`] if `may_be_ssh`, unless one answers that it is full. If
/// nothing answers as a daemon does, returns after what time as text, empty for at once.
async fn within(
    builder: ClientBuilder,
    host: &str,
    mut tell: impl FnMut(&Event),
    may_be_ssh: bool,
) -> Result<Result<Client, String>, Failure> {
    let has_answered = Cell::new(!may_be_ssh);
    let connecting = establish(builder, host, |event| {
        has_answered.set(has_answered.get() || matches!(event, Event::Queued { .. }));
        tell(event);
    });
    let silence = async {
        tokio::time::sleep(SILENCE).await;
        if has_answered.get() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        connected = connecting => match connected {
            Err(Failure::Library(error)) if may_be_ssh && is_unanswered(&error) => {
                Ok(Err(String::new()))
            }
            connected => connected.map(Ok),
        },
        () = silence => Ok(Err(format!(" within {} s", SILENCE.as_secs()))),
    }
}

/// Returns true if nothing at the host answered as a daemon does.
fn is_unanswered(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable(_) | Error::Connect { .. } | Error::Resolve { .. }
    )
}

/// Returns a client builder with the private key and the address book of this machine.
fn client(peers: Peers) -> Result<ClientBuilder, Failure> {
    let home = places::home()?;
    Ok(Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(peers)
        .address_book(AddressBook::at(home.addresses_file()))
        .sightings(Sightings::at(home.sightings_file())))
}

/// Prints a message on standard error if the peer does not answer, or queues the session.
pub(crate) fn say(event: &Event) {
    if let Some(text) = queued(event).or_else(|| unreachable(event, "^C ends")) {
        Terminal::default().say(text);
    }
}

/// Establishes a session, and passes the events of the connection setup to `tell`.
async fn establish(
    builder: ClientBuilder,
    host: &str,
    mut tell: impl FnMut(&Event),
) -> Result<Client, Failure> {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut connecting = pin!(builder.events(sender).connect(host));
    let client = loop {
        tokio::select! {
            connected = &mut connecting => break connected?,
            Some(event) = events.recv() => tell(&event),
        }
    };
    tokio::spawn(tell_of_session(events));
    Ok(client)
}

/// Default for [`Needs::timeout`], which is that of `--timeout`.
const SSH: Duration = Duration::from_secs(600);

/// Time in which a daemon must answer at a host that may also be meant for ssh.
const SILENCE: Duration = Duration::from_secs(3);

/// Prints on standard error what requests and tunnels of a session wait for. Transfers have events
/// of their own.
async fn tell_of_session(mut events: mpsc::Receiver<Event>) {
    let terminal = Terminal::default();
    while let Some(event) = events.recv().await {
        let text = stalled(&event).or_else(|| unreachable(&event, "^C ends"));
        text.into_iter().for_each(|text| terminal.say(text));
    }
}

/// Capacity of the channel for events of a session. Two are sent at once, ten times a second.
const EVENTS: usize = 16;

/// Returns the message for a daemon that cannot be reached, with the effect of ^C once data has
/// moved; `None` for other events.
pub(crate) fn unreachable(event: &Event, on_interrupt: &str) -> Option<String> {
    let Event::Unreachable {
        host,
        interfaces,
        patience,
        ..
    } = event
    else {
        return None;
    };
    let names: Vec<String> = interfaces.iter().map(shown).collect();
    let on = if names.is_empty() {
        String::new()
    } else {
        format!(" on {}", names.join(", "))
    };
    let host = shown(host);
    let Some(patience) = patience else {
        return Some(format!("{host} does not answer{on}; still trying, ^C ends"));
    };
    let limit = Limit(*patience);
    Some(format!(
        "{host} is unreachable{on}; trying for {limit}, {on_interrupt}"
    ))
}

pub(crate) fn stalled(event: &Event) -> Option<String> {
    let Event::Stalled { since, awaited } = event else {
        return None;
    };
    let waited = since.as_secs();
    Some(format!(
        "no progress for {waited} s, waiting for the daemon to {awaited}"
    ))
}

pub(crate) fn queued(event: &Event) -> Option<String> {
    let Event::Queued { host, most, .. } = event else {
        return None;
    };
    let host = shown(host);
    Some(match most {
        Some(1) => format!("waiting for {host}: limit of 1 session reached"),
        Some(most) => format!("waiting for {host}: limit of {most} sessions reached"),
        None => format!("waiting for {host}: connection limit reached"),
    })
}
