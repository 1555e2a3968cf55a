//! Owners of an entry, by numeric ID and by name. Both are sent because IDs differ between
//! machines.

use minicbor::{Decode, Decoder, Encode, decode};

/// Numeric IDs of a file's user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Owner {
    /// Numeric user ID at the sender (`st_uid`).
    #[n(0)]
    pub uid: u32,
    /// Numeric group ID at the sender (`st_gid`).
    #[n(1)]
    pub gid: u32,
}

/// Names of a file's user and group at the sender. A name is `None` for ID 0 and for an ID without
/// a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OwnerNames {
    /// Name of the user; `None` for ID 0 or an unnamed ID.
    #[n(0)]
    pub user: Option<OwnerName>,
    /// Name of the group; `None` for ID 0 or an unnamed ID.
    #[n(1)]
    pub group: Option<OwnerName>,
    /// Names of the users and groups in the file's ACLs; `None` if extended attributes are not
    /// preserved or no ID has a name.
    #[n(2)]
    pub acl: Option<AclNames>,
}

/// Names of the users and groups in an entry's ACLs, at most [`AclNames::MOST`].
#[derive(Debug, Clone, PartialEq, Eq, Encode)]
#[cbor(transparent)]
pub struct AclNames(#[n(0)] Vec<AclName>);

/// Name of a user or group in an ACL, and its numeric ID.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AclName {
    /// Kind of the ID: user or group.
    #[n(0)]
    pub kind: AclKind,
    /// Numeric ID of the user or group at the sender.
    #[n(1)]
    pub id: u32,
    /// Name of the user or group at the sender.
    #[n(2)]
    pub name: OwnerName,
}

/// Kind of an ID in an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum AclKind {
    /// ID of a user.
    #[n(0)]
    User,
    /// ID of a group.
    #[n(1)]
    Group,
}

impl AclNames {
    /// Maximum number of names per entry. Further users and groups of an ACL are sent by ID only.
    pub const MOST: usize = 128;

    /// Returns the first [`AclNames::MOST`] of these names; `None` if `names` is empty.
    pub fn new(mut names: Vec<AclName>) -> Option<Self> {
        names.truncate(Self::MOST);
        (!names.is_empty()).then_some(Self(names))
    }

    /// Returns the names as a slice.
    pub fn as_slice(&self) -> &[AclName] {
        &self.0
    }
}

impl<'b, C> Decode<'b, C> for AclNames {
    fn decode(d: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        match d.array()? {
            Some(len) if len <= Self::MOST as u64 => (0..len)
                .map(|_| d.decode_with(context))
                .collect::<Result<_, _>>()
                .map(Self),
            _ => Err(
                decode::Error::message("too many names of users and groups in ACLs").at(position),
            ),
        }
    }
}

/// Validated name of a user or group: 1 to `OwnerName::MOST` bytes without control characters and
/// colons, as required by user databases.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode)]
#[cbor(transparent)]
pub struct OwnerName(#[n(0)] Box<str>);

impl OwnerName {
    /// Maximum length of a name in bytes.
    pub(crate) const MOST: usize = 255;

    /// Returns a validated name; `None` if `name` is not allowed.
    pub fn new(name: &str) -> Option<Self> {
        let is_name = (1..=Self::MOST).contains(&name.len())
            && !name.contains(|c: char| c.is_control() || c == ':');
        is_name.then(|| Self(name.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'b, C> Decode<'b, C> for OwnerName {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        Self::new(d.str()?)
            .ok_or_else(|| decode::Error::message("not a name of a user or group").at(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_can_be_in_a_list_of_users() {
        let longest = "x".repeat(OwnerName::MOST);
        for name in [
            "a",
            "alice",
            "DOM\\bob smith",
            "ü@example.org",
            "0",
            &longest,
        ] {
            let sent = minicbor::to_vec(OwnerName::new(name).unwrap()).unwrap();
            assert_eq!(decode::<OwnerName>(&sent).unwrap().as_str(), name);
        }
        for name in [
            "",
            "a:b",
            "a\0",
            "a\n",
            "\u{1b}[m",
            "\u{85}",
            &format!("{longest}x"),
        ] {
            assert_eq!(OwnerName::new(name), None, "{name:?}");
            assert!(
                decode::<OwnerName>(&minicbor::to_vec(name).unwrap()).is_err(),
                "{name:?}"
            );
        }
        // A byte string, invalid UTF-8, and a text that is too long.
        for bad in [
            &[0x41, b'a'][..],
            &[0x61, 0xff],
            &[0x7b, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert!(decode::<OwnerName>(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_entry_has_so_many_names_of_acls_and_no_more() {
        let names = |count: u32| {
            (0..count)
                .map(|id| AclName {
                    kind: AclKind::Group,
                    id,
                    name: OwnerName::new("a").unwrap(),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(AclNames::new(names(0)), None);
        let most = AclNames::new(names(129)).unwrap();
        assert_eq!((most.as_slice().len(), most.as_slice()[127].id), (128, 127));
        assert_eq!(
            decode::<AclNames>(&minicbor::to_vec(&most).unwrap()).unwrap(),
            most
        );
        assert!(decode::<AclNames>(&minicbor::to_vec(names(129)).unwrap()).is_err());
        // An array of indefinite length is rejected, because its size is unknown in advance.
        assert!(decode::<AclNames>(&[0x9f, 0x83, 1, 7, 0x61, b'a', 0xff]).is_err());
        let one = OwnerNames {
            acl: AclNames::new(names(1)),
            ..OwnerNames::default()
        };
        assert_eq!(
            minicbor::to_vec(&one).unwrap(),
            [0xa1, 2, 0x81, 0x83, 1, 0, 0x61, b'a']
        );
    }
}
