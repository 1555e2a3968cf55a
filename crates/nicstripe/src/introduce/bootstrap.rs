//! Session over ssh: one-time keys and addresses, exchanged through a channel that is already
//! trusted.

use std::{
    env, fmt,
    net::IpAddr,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nicstripe_link::interfaces;
use nicstripe_proto::{
    bootstrap::{self, MOST_NAMES, Reply, Request},
    message::{PeerInterface, VERSION},
    name::escaped,
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::ClientBuilder,
    daemon::{Daemon, DaemonBuilder},
    links::{plan::described, request::Introduced},
    report::error::Error,
    text::shown_interface,
    trust::{DialTarget, Identity, ListenTarget, PeerOptions, Peers, PublicKey, PublicLine},
};

/// Maximum length in bytes of a line of the exchange.
pub const MAX_LINE: usize = bootstrap::MAX_MESSAGE * 4 / 3 + 64;

/// Needs of a client at the program at the other end of a channel.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// User and machine of the client, such as `me@laptop`. An interrupted copy resumes only for
    /// the same text.
    pub origin: String,
    /// Place where the peer is, as the user typed it. An interrupted copy from there resumes only
    /// for the same text.
    pub place: String,
    /// True if names are relative to the root of the file system there, false for the user's home
    /// directory.
    pub from_root: bool,
    /// Services to reach from there.
    pub dial: Vec<DialTarget>,
    /// Where to listen there.
    pub listen: Vec<ListenTarget>,
    /// Users whose home directories to look up there, at most 64.
    pub homes: Vec<String>,
    /// Port at which the program there shall listen, instead of one that it chooses. The caller
    /// forwards a local port to it, at 127.0.0.1.
    pub through_ssh: Option<u16>,
}

/// Client's part of the exchange: a new key, and the line to send.
///
/// ```no_run
/// # async fn example(through_ssh: impl Fn(&str) -> String) -> Result<(), Box<dyn std::error::Error>> {
/// use nicstripe::{Client, bootstrap::{Call, Wishes}};
///
/// let call = Call::new(Wishes { origin: "me@laptop".into(), ..Wishes::default() })?;
/// let reply = through_ssh(&call.line());
/// let met = call.answered(&reply)?;
/// let client = Client::builder().introduced(&met).connect("nas").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Call {
    identity: Identity,
    wishes: Wishes,
}

impl Call {
    /// Creates a call with a new key.
    ///
    /// # Errors
    ///
    /// No key can be generated.
    pub fn new(wishes: Wishes) -> Result<Self, Error> {
        let identity = Identity::generate().map_err(|error| Error::failed("make a key", error))?;
        Ok(Self { identity, wishes })
    }

    /// Returns the line to send, without its end.
    pub fn line(&self) -> String {
        format!("{REQUEST}{}", STANDARD.encode(self.request()))
    }

    pub(super) fn request(&self) -> Vec<u8> {
        let wishes = &self.wishes;
        let request = Request {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            key: *self.identity.public_key().as_bytes(),
            origin: wishes.origin.clone(),
            from_root: wishes.from_root,
            dial: wishes.dial.iter().map(ToString::to_string).collect(),
            homes: wishes.homes.iter().take(MOST_NAMES).cloned().collect(),
            through_ssh: wishes.through_ssh,
            listen: wishes.listen.iter().map(ToString::to_string).collect(),
        };
        request.encode()
    }

    /// Reads the answer, and returns what it takes to connect.
    ///
    /// # Errors
    ///
    /// The line is no answer, has another protocol version, or says why the program there cannot
    /// serve.
    pub fn answered(self, line: &str) -> Result<Introduction, BootstrapError> {
        self.replied(&body_of(line, REPLY).ok_or(BootstrapError::Malformed)?)
    }

    /// Reads an encoded reply.
    pub(super) fn replied(self, bytes: &[u8]) -> Result<Introduction, BootstrapError> {
        let reply = Reply::decode(bytes).map_err(|_| BootstrapError::Malformed)?;
        if reply.version != VERSION {
            return Err(BootstrapError::Version {
                there: reply.version,
                program: shown(&reply.program),
            });
        }
        if let Some(why) = &reply.failure {
            return Err(BootstrapError::Failed(shown(why)));
        }
        let path = |bytes: Vec<u8>| PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let homes = reply.homes.into_iter().map(|bootstrap::Path(home)| home);
        Ok(Introduction {
            identity: self.identity,
            key: PublicKey::from_bytes(reply.key).map_err(|_| BootstrapError::Malformed)?,
            port: reply.port,
            interfaces: reply.interfaces.into_iter().map(shown_interface).collect(),
            reached: reply.reached,
            home: path(reply.home),
            homes: homes
                .map(|home| (!home.is_empty()).then(|| path(home)))
                .collect(),
            resume_as: resume_tag(&self.wishes.place),
            gone: CancellationToken::new(),
        })
    }
}

/// Peer that a trusted channel has introduced: its one-time key, and its addresses.
#[derive(Debug, Clone)]
pub struct Introduction {
    identity: Identity,
    key: PublicKey,
    port: u16,
    interfaces: Vec<PeerInterface>,
    reached: Option<IpAddr>,
    home: PathBuf,
    homes: Vec<Option<PathBuf>>,
    resume_as: [u8; 32],
    gone: CancellationToken,
}

impl Introduction {
    /// Returns the user's home directory there, an absolute path.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the home directories in the order of [`Wishes::homes`]; `None` for an unknown user.
    pub fn homes(&self) -> &[Option<PathBuf>] {
        &self.homes
    }

    /// Returns a token to cancel when the peer's program has ended. Its client then waits for no
    /// link and no session, since the program's key ended with it.
    pub fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Returns the TCP port that the peer listens at.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the names of the peer's interfaces that could carry a link, safe to print.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let usable = self
            .interfaces
            .iter()
            .filter(|one| one.candidate && one.idle.is_none());
        usable.map(|one| one.name.as_str())
    }

    /// Returns the same peer, reached only by a local port that is forwarded to it.
    pub fn forwarded(mut self, port: u16) -> Self {
        self.port = port;
        self.interfaces.clear();
        self.reached = Some([127, 0, 0, 1].into());
        self
    }

    /// Returns the same peer, with the address at which the channel reached it.
    pub(super) fn reached_at(mut self, ip: IpAddr) -> Self {
        self.reached = Some(ip).filter(|ip| !is_link_local(ip));
        self
    }

    /// Returns the addresses to try: that of the channel first, then those of its interfaces.
    fn addresses(&self) -> Vec<IpAddr> {
        let candidates = self.interfaces.iter().filter(|one| one.candidate);
        let told = candidates
            .flat_map(|one| &one.addresses)
            .map(|address| address.ip)
            .filter(|ip| !ip.is_loopback() && !is_link_local(ip));
        let mut addresses: Vec<IpAddr> = self.reached.into_iter().collect();
        for ip in told.take(MOST_TRIED) {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        addresses
    }
}

impl ClientBuilder {
    /// Sets the peer that a trusted channel has introduced: the client connects to its key only, with
    /// a key that no other peer knows, and searches for it on every cable and at the addresses that
    /// it told. Replaces identity, peers and port. The host in [`connect`](Self::connect) is then
    /// only a name for messages.
    pub fn introduced(mut self, peer: &Introduction) -> Self {
        let mut peers = Peers::default();
        // A new list has neither the key nor a name.
        let _ = peers.add(&PublicLine::new(peer.key, ""), None);
        self.session.introduced = Some(Introduced {
            key: peer.key,
            addresses: peer.addresses(),
            gone: peer.gone.clone(),
        });
        self.session.address_book = None;
        self.session.sightings = None;
        self.resume_as = Some(peer.resume_as);
        self.identity(peer.identity.clone())
            .peers(peers)
            .port(peer.port)
    }
}

/// Call as received by the program at the other end of the channel.
#[derive(Debug)]
pub struct Called(Request);

impl Called {
    /// Reads a client's line.
    ///
    /// # Errors
    ///
    /// It is not one.
    pub fn parse(line: &str) -> Result<Self, BootstrapError> {
        Self::decode(&body_of(line, REQUEST).ok_or(BootstrapError::Malformed)?)
    }

    /// Reads an encoded request.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BootstrapError> {
        let request = Request::decode(bytes).map_err(|_| BootstrapError::Malformed)?;
        Ok(Self(request))
    }

    /// Returns true if the client speaks this program's protocol version. Otherwise
    /// [`refusal`](Self::refusal) reports it.
    pub fn is_same_version(&self) -> bool {
        self.0.version == VERSION
    }

    /// Returns the services that the client wants to reach.
    pub fn dial(&self) -> Vec<DialTarget> {
        self.0
            .dial
            .iter()
            .filter_map(|one| one.parse().ok())
            .collect()
    }

    /// Returns where the client wants to listen.
    pub fn listen(&self) -> Vec<ListenTarget> {
        self.0
            .listen
            .iter()
            .filter_map(|one| one.parse().ok())
            .collect()
    }

    /// Returns true if names shall be relative to the root of the file system.
    pub fn is_from_root(&self) -> bool {
        self.0.from_root
    }

    /// Returns the port to listen at, to which ssh forwards a port of the client.
    pub fn through_ssh(&self) -> Option<u16> {
        self.0.through_ssh
    }

    /// Returns the users whose home directories the client wants to know.
    pub fn homes(&self) -> &[String] {
        &self.0.homes
    }

    /// Returns a builder for a daemon that accepts only this client, with these rights, and the
    /// daemon's key. Copies that this client's earlier runs left unfinished resume.
    ///
    /// # Errors
    ///
    /// No key can be generated.
    pub fn daemon(&self, rights: PeerOptions) -> Result<(DaemonBuilder, PublicKey), Error> {
        let identity = Identity::generate().map_err(|error| Error::failed("make a key", error))?;
        let odd_key = |error| Error::failed("accept the client", error);
        let key = PublicKey::from_bytes(self.0.key).map_err(odd_key)?;
        let mut peers = Peers::default();
        let odd = |error| Error::failed("accept the client", error);
        peers
            .add(&PublicLine::new(key, &self.0.origin), None)
            .map_err(odd)?;
        peers.set_options(&key, rights).map_err(odd)?;
        let public = identity.public_key();
        let builder = Daemon::builder()
            .identity(identity)
            .peers(peers)
            .resume_as(resume_tag(&self.0.origin));
        Ok((builder, public))
    }

    /// Returns the line for the client with the addresses of the daemon with this key.
    ///
    /// # Errors
    ///
    /// The interfaces cannot be listed.
    pub fn reply(&self, served: &Serving<'_>) -> Result<String, Error> {
        Ok(line_of(&self.answer(served)?))
    }

    pub(super) fn answer(&self, served: &Serving<'_>) -> Result<Reply, Error> {
        let interfaces =
            interfaces().map_err(|error| Error::failed("list the interfaces", error))?;
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let homes = served.homes.iter();
        Ok(Reply {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            key: *served.key.as_bytes(),
            port: served.port,
            interfaces: described(&interfaces, &[]),
            reached: reached(env::var("SSH_CONNECTION").ok().as_deref()),
            home: path(served.home),
            homes: homes
                .map(|home| bootstrap::Path(home.as_deref().map(path).unwrap_or_default()))
                .collect(),
            failure: None,
        })
    }

    /// Returns the line for the client with the reason why this program does not serve it.
    pub fn refusal(why: &str) -> String {
        let why: String = why.chars().take(MOST_SHOWN).collect();
        line_of(&Reply {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            key: [0; 32],
            port: 0,
            interfaces: Vec::new(),
            reached: None,
            home: Vec::new(),
            homes: Vec::new(),
            failure: Some(why),
        })
    }
}

/// Roots of the daemon of a [`Called`], for the answer.
#[derive(Debug)]
pub struct Serving<'a> {
    /// The daemon's key.
    pub key: PublicKey,
    /// TCP port that it listens at.
    pub port: u16,
    /// Home directory of the user, an absolute path.
    pub home: &'a Path,
    /// Home directories in the order of [`Called::homes`].
    pub homes: &'a [Option<PathBuf>],
}

/// The exchange through the channel failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The line is not one of the exchange.
    #[error("the line is not one of nicstripe")]
    Malformed,
    /// The program there speaks another protocol version.
    #[error("nicstripe {program} there speaks protocol {there}, this program protocol {VERSION}")]
    Version {
        /// Protocol version there.
        there: u32,
        /// Version of the program there, safe to print.
        program: String,
    },
    /// The program there cannot serve, for this reason.
    #[error("{0}")]
    Failed(String),
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn line_of(reply: &Reply) -> String {
    format!("{REPLY}{}", STANDARD.encode(reply.encode()))
}

/// Returns a text of the other end, escaped and truncated for display.
fn shown(text: &str) -> String {
    escaped(text.as_bytes()).chars().take(MOST_SHOWN).collect()
}

fn body_of(line: &str, kind: &str) -> Option<Vec<u8>> {
    STANDARD.decode(line.trim_end().strip_prefix(kind)?).ok()
}

/// Returns the server's address of an ssh connection: the third of the four words of
/// `SSH_CONNECTION`, as sshd sets it.
fn reached(connection: Option<&str>) -> Option<IpAddr> {
    let server = connection?.split(' ').nth(2)?;
    server.split('%').next()?.parse().ok()
}

/// Returns what stands for the peer's key in the journals of unfinished copies.
fn resume_tag(text: impl fmt::Display) -> [u8; 32] {
    blake3::derive_key("nicstripe, resume over ssh", text.to_string().as_bytes())
}

/// Maximum length in characters of a text of the other end in a message.
const MOST_SHOWN: usize = 200;

/// First word of the client's line.
const REQUEST: &str = "NICSTRIPE request ";

/// First word of the answer.
const REPLY: &str = "NICSTRIPE reply ";

/// Maximum number of received addresses that a client tries.
const MOST_TRIED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_server_is_read_as_sshd_writes_it() {
        for (text, expected) in [
            ("10.0.0.1 5022 10.0.0.2 22", Some("10.0.0.2")),
            ("fe80::1%eth0 5022 fe80::2%eth0 22", Some("fe80::2")),
            ("UNKNOWN 65535 UNKNOWN 65535", None),
            ("", None),
        ] {
            let expected = expected.map(|ip| ip.parse().unwrap());
            assert_eq!(reached(Some(text)), expected, "{text}");
        }
        assert_eq!(reached(None), None);
    }

    #[test]
    fn another_version_and_a_failure_are_told() {
        let answered = |line: &str| {
            let call = Call::new(Wishes::default()).unwrap();
            call.answered(line).unwrap_err().to_string()
        };
        let line = Called::refusal("no port is free");
        assert_eq!(answered(&line), "no port is free");
        let bytes = body_of(&line, REPLY).unwrap();
        let later = Reply {
            version: 2,
            program: "9.0".into(),
            ..Reply::decode(&bytes).unwrap()
        };
        assert_eq!(
            answered(&line_of(&later)),
            "nicstripe 9.0 there speaks protocol 2, this program protocol 1"
        );
        for odd in ["", "NICSTRIPE reply", "NICSTRIPE reply ????", "hello"] {
            assert_eq!(answered(odd), "the line is not one of nicstripe", "{odd}");
        }
    }
}
