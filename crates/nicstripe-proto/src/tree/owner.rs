//! Whose an entry is: numbers, and names, as a user mostly has another number on each machine.

use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// Numbers of a file's user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Owner {
    /// The user.
    #[n(0)]
    pub uid: u32,
    /// The group.
    #[n(1)]
    pub gid: u32,
}

/// Names of a file's user and group at the sender. Number 0 has none, and what the sender knows no name of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OwnerNames {
    /// The user's.
    #[n(0)]
    pub user: Option<OwnerName>,
    /// The group's.
    #[n(1)]
    pub group: Option<OwnerName>,
}

/// Name of a user or group: 1 to [`OwnerName::MOST`] bytes without control characters and colons, which no list of users can have in one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerName(Box<str>);

impl OwnerName {
    /// Most bytes of a name.
    pub const MOST: usize = 255;

    /// Returns a name, if it can be one.
    pub fn new(name: &str) -> Option<Self> {
        let is_name = (1..=Self::MOST).contains(&name.len()) && !name.contains(|c: char| c.is_control() || c == ':');
        is_name.then(|| Self(name.into()))
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<C> Encode<C> for OwnerName {
    fn encode<W: encode::Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for OwnerName {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        Self::new(d.str()?).ok_or_else(|| decode::Error::message("not a name of a user or group").at(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_can_be_in_a_list_of_users() {
        let longest = "x".repeat(OwnerName::MOST);
        for name in ["a", "alice", "DOM\\bob smith", "ü@example.org", "0", &longest] {
            let sent = minicbor::to_vec(OwnerName::new(name).unwrap()).unwrap();
            assert_eq!(decode::<OwnerName>(&sent).unwrap().as_str(), name);
        }
        for name in ["", "a:b", "a\0", "a\n", "\u{1b}[m", "\u{85}", &format!("{longest}x")] {
            assert_eq!(OwnerName::new(name), None, "{name:?}");
            assert!(decode::<OwnerName>(&minicbor::to_vec(name).unwrap()).is_err(), "{name:?}");
        }
        // Bytes are no text, nor is what is not UTF-8.
        for bad in [&[0x41, b'a'][..], &[0x61, 0xff], &[0x7b, 255, 255, 255, 255, 255, 255, 255, 255]] {
            assert!(decode::<OwnerName>(bad).is_err(), "{bad:?}");
        }
    }
}
