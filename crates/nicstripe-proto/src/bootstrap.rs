//! Bootstrap of a session over ssh: what a client and the program that ssh starts for it tell each
//! other, before the data takes the cables.
//!
//! Each side sends one message with its one-time key. ssh authenticates both and hides them, so
//! each side then trusts exactly the key that it received. Neither message grants more than the ssh
//! login already does.

use std::net::IpAddr;

use minicbor::{Decode, Encode};

use crate::wire::message::{MAX_ROOT, PeerInterface};

/// Maximum length of an encoded [`Request`] or [`Reply`] in bytes.
pub const MAX_MESSAGE: usize = 256 << 10;

/// Maximum number of home directories, tunnel targets or listeners in a [`Request`].
pub const MOST_NAMES: usize = 64;

/// Maximum number of interfaces in a [`Reply`]. A program sends at most 64.
pub const MOST_INTERFACES: usize = 256;

/// Maximum length of a text in a [`Reply`] in bytes.
pub const MAX_TEXT: usize = 4096;

/// First message: what the client is and needs.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Request {
    /// Protocol [`VERSION`](crate::message::VERSION) of the client.
    #[n(0)]
    pub version: u32,
    /// Version of the client's program, for messages.
    #[n(1)]
    pub program: String,
    /// One-time Ed25519 public key of the client, the only one that may connect.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// User and machine of the client, such as `me@laptop`. Equal for each of its runs, so that
    /// an interrupted copy resumes although the keys are new.
    #[n(3)]
    pub origin: String,
    /// True if names are relative to the root of the file system, false for the home directory.
    #[n(4)]
    pub from_root: bool,
    /// TCP services that the client wants to reach from there.
    #[n(5)]
    pub dial: Vec<String>,
    /// Users whose home directories the client wants to know.
    #[n(6)]
    pub homes: Vec<String>,
    /// Port to listen at, to which ssh forwards a port of the client at 127.0.0.1; `None` if the data
    /// may not go through ssh.
    #[n(7)]
    pub through_ssh: Option<u16>,
    /// Addresses and socket files at which the client wants to listen there; empty from an older
    /// client.
    #[cbor(n(8), default)]
    pub listen: Vec<String>,
}

/// Answer: where the client can connect, and with which key.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Reply {
    /// Protocol [`VERSION`](crate::message::VERSION) of the program there.
    #[n(0)]
    pub version: u32,
    /// Version of the program there, for messages.
    #[n(1)]
    pub program: String,
    /// One-time Ed25519 public key of the program there.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// TCP port that it listens at on every interface.
    #[n(3)]
    pub port: u16,
    /// Its interfaces, as in a [`Welcome`](crate::message::Welcome).
    #[n(4)]
    pub interfaces: Vec<PeerInterface>,
    /// Address at which the ssh connection arrived; `None` if unknown.
    #[n(5)]
    pub reached: Option<IpAddr>,
    /// Absolute path of the user's home directory; empty with a failure.
    #[cbor(n(6), with = "minicbor::bytes")]
    pub home: Vec<u8>,
    /// Home directories in the order of [`Request::homes`]; empty for an unknown user.
    #[n(7)]
    pub homes: Vec<Path>,
    /// Why it cannot serve; `None` if it does.
    #[n(8)]
    pub failure: Option<String>,
}

/// Absolute path; empty if unknown.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Path(#[cbor(n(0), with = "minicbor::bytes")] pub Vec<u8>);

/// A bootstrap message is malformed or exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed bootstrap message")]
pub struct Malformed;

impl Request {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    /// Decodes a message. Ignores keys of later versions.
    ///
    /// # Errors
    ///
    /// It is malformed, or has more than [`MOST_NAMES`] homes, targets or listeners.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let request: Self = decoded(bytes)?;
        let lists = [&request.dial, &request.homes, &request.listen];
        let is_bounded = lists.iter().all(|list| list.len() <= MOST_NAMES);
        is_bounded.then_some(request).ok_or(Malformed)
    }
}

impl Reply {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    /// Decodes a message. Ignores keys of later versions.
    ///
    /// # Errors
    ///
    /// It is malformed, or has a path that is relative or longer than [`MAX_ROOT`], a text longer
    /// than [`MAX_TEXT`], or more than [`MOST_INTERFACES`] interfaces or [`MOST_NAMES`] homes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let reply: Self = decoded(bytes)?;
        let is_path = |path: &[u8]| path.len() <= MAX_ROOT && path.starts_with(b"/");
        let homes = &reply.homes;
        let are_paths = (is_path(&reply.home) || reply.failure.is_some())
            && homes
                .iter()
                .all(|Path(home)| home.is_empty() || is_path(home));
        let is_bounded = homes.len() <= MOST_NAMES
            && reply.interfaces.len() <= MOST_INTERFACES
            && reply.texts().all(|text| text.len() <= MAX_TEXT);
        (are_paths && is_bounded).then_some(reply).ok_or(Malformed)
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let of_interfaces = self.interfaces.iter().flat_map(texts_of);
        of_interfaces.chain(&self.failure).chain([&self.program])
    }
}

fn texts_of(interface: &PeerInterface) -> impl Iterator<Item = &String> {
    let members = interface.members.iter().flatten();
    members.chain(&interface.card).chain([&interface.name])
}

fn encoded<T: Encode<()>>(message: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = minicbor::encode(message, &mut bytes);
    bytes
}

fn decoded<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, Malformed> {
    if bytes.len() > MAX_MESSAGE {
        return Err(Malformed);
    }
    let mut decoder = minicbor::Decoder::new(bytes);
    let message = decoder.decode().map_err(|_| Malformed)?;
    match decoder.position() == bytes.len() {
        true => Ok(message),
        false => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn request() -> Request {
        Request {
            version: 1,
            program: "0.1.0".into(),
            key: [7; 32],
            origin: "me@laptop".into(),
            from_root: false,
            dial: vec!["localhost:22".into()],
            homes: vec!["bob".into()],
            through_ssh: Some(9),
            listen: vec!["127.0.0.1:80".into()],
        }
    }

    fn reply() -> Reply {
        Reply {
            version: 1,
            program: "0.1.0".into(),
            key: [8; 32],
            port: 7748,
            interfaces: vec![PeerInterface::new("eth0", 2)],
            reached: Some(IpAddr::from([10, 0, 0, 2])),
            home: b"/home/me".to_vec(),
            homes: vec![Path(Vec::new())],
            failure: None,
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written_and_no_part_of_it_is() {
        let bytes = request().encode();
        assert_eq!(Request::decode(&bytes), Ok(request()));
        for end in 0..bytes.len() {
            assert_eq!(Request::decode(&bytes[..end]), Err(Malformed), "{end}");
        }
        assert_eq!(
            Request::decode(&[&bytes[..], &[0]].concat()),
            Err(Malformed)
        );
        let reply = reply();
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }

    #[test]
    fn what_exceeds_a_limit_is_malformed() {
        let names = |count: usize| Request {
            homes: vec!["u".into(); count],
            ..request()
        };
        assert!(Request::decode(&names(MOST_NAMES).encode()).is_ok());
        assert_eq!(
            Request::decode(&names(MOST_NAMES + 1).encode()),
            Err(Malformed)
        );
        let long = Request {
            origin: "o".repeat(MAX_MESSAGE),
            ..request()
        };
        assert_eq!(Request::decode(&long.encode()), Err(Malformed));
        let reply = |change: fn(&mut Reply)| {
            let mut reply = reply();
            change(&mut reply);
            Reply::decode(&reply.encode()).is_ok()
        };
        assert!(reply(|_| ()));
        let failure = |reply: &mut Reply| {
            (reply.home, reply.failure) = (Vec::new(), Some("no port".into()));
        };
        assert!(reply(failure));
        let odd: [fn(&mut Reply); 9] = [
            |reply| reply.interfaces = vec![PeerInterface::new("e", 1); MOST_INTERFACES + 1],
            |reply| reply.interfaces[0].name = "e".repeat(MAX_TEXT + 1),
            |reply| reply.interfaces[0].members = Some(vec!["e".repeat(MAX_TEXT + 1)]),
            |reply| reply.program = "0".repeat(MAX_TEXT + 1),
            |reply| reply.failure = Some("f".repeat(MAX_TEXT + 1)),
            |reply| reply.home = b"me".to_vec(),
            |reply| reply.home = Vec::new(),
            |reply| reply.homes = vec![Path(b"../bob".to_vec())],
            |reply| reply.homes = vec![Path(Vec::new()); MOST_NAMES + 1],
        ];
        for (at, odd) in odd.into_iter().enumerate() {
            assert!(!reply(odd), "{at}");
        }
    }

    #[test]
    fn keys_of_later_versions_are_ignored() {
        let mut bytes = request().encode();
        assert_eq!(bytes[0], 0xa9, "a map of 9 keys");
        bytes[0] = 0xaa;
        bytes.extend([0x18, 99, 0xf6]);
        assert_eq!(Request::decode(&bytes), Ok(request()));
    }

    #[test]
    fn a_client_of_an_older_version_listens_nowhere() {
        let request = Request {
            listen: Vec::new(),
            ..request()
        };
        let mut bytes = request.encode();
        // Key 8 is the last.
        assert_eq!(bytes.split_off(bytes.len() - 2), [8, 0x80]);
        bytes[0] = 0xa8;
        assert_eq!(Request::decode(&bytes), Ok(request));
    }
}
