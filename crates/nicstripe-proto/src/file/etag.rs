//! Entity tags: identity of a file's content, for requests that depend on it.

use std::{fmt, str::FromStr};

use minicbor::{Decode, Encode};

use super::journal::SourceIdentity;

/// Opaque identity of a file's content at the daemon, as an entity tag of HTTP (RFC 9110, 8.8.3).
///
/// Equal tags of a name mean that its content is unchanged. Different ones mean nothing: the name,
/// the owner or the permission bits may have changed. Only the daemon computes tags; other machines
/// may compare two for equality.
///
/// A tag is made of the size, the times and the inode in the file system. It is as good as
/// their clock: contents that follow each other within one tick of the kernel's clock (up to 10 ms)
/// in the same inode, with the same size, have the same tag. Each file that nicstripe commits is a new
/// inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct ETag(#[cbor(with = "minicbor::bytes")] [u8; 16]);

impl ETag {
    /// Returns the tag of a file with this identity: the first half of a BLAKE3 hash.
    pub fn of(identity: &SourceIdentity) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("nicstripe 2026 entity tag of a file");
        let times = [identity.mtime, identity.ctime];
        let times = times.map(|time| (time.seconds as u64, u64::from(time.nanoseconds)));
        let [(mtime, mtime_ns), (ctime, ctime_ns)] = times;
        let SourceIdentity {
            size,
            inode,
            device,
            ..
        } = *identity;
        for number in [size, mtime, mtime_ns, ctime, ctime_ns, inode, device] {
            hasher.update(&number.to_le_bytes());
        }
        let mut tag = [0; 16];
        hasher.finalize_xof().fill(&mut tag);
        Self(tag)
    }

    /// Returns a tag that was stored as bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the tag, to store it.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Formats 32 lower-case hexadecimal digits.
impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({self})")
    }
}

/// Parses 32 hexadecimal digits of either case.
impl FromStr for ETag {
    type Err = ParseETagError;

    fn from_str(text: &str) -> Result<Self, ParseETagError> {
        let is_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok());
        let number = number.flatten().ok_or(ParseETagError)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Error for a text that is not an [`ETag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity tag has 32 hexadecimal digits")]
pub struct ParseETagError;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Timestamp;

    #[test]
    fn each_part_of_an_identity_is_in_its_tag() {
        let time = |seconds, nanoseconds| Timestamp {
            seconds,
            nanoseconds,
        };
        let file = SourceIdentity {
            size: 1,
            mtime: time(2, 3),
            ctime: time(-4, 5),
            inode: 6,
            device: 7,
        };
        let changes: [fn(&mut SourceIdentity); 8] = [
            |_| (),
            |file| file.size = 2,
            |file| file.mtime.seconds = 3,
            |file| file.mtime.nanoseconds = 4,
            |file| file.ctime.seconds = 4,
            |file| file.ctime.nanoseconds = 6,
            |file| file.inode = 7,
            |file| file.device = 6,
        ];
        let tags = changes.map(|change| {
            let mut file = file;
            change(&mut file);
            ETag::of(&file)
        });
        assert_eq!(tags[0], ETag::of(&file));
        assert_eq!(std::collections::BTreeSet::from(tags).len(), changes.len());
    }

    #[test]
    fn a_tag_is_read_as_it_is_written() {
        let tag = ETag::from_bytes(std::array::from_fn(|index| index as u8 * 0x11));
        assert_eq!(tag.to_string(), "00112233445566778899aabbccddeeff");
        assert_eq!(tag.to_string().to_uppercase().parse(), Ok(tag));
        for wrong in ["", "0", "+0112233445566778899aabbccddeeff", &"g".repeat(32)] {
            assert_eq!(wrong.parse::<ETag>(), Err(ParseETagError), "{wrong}");
        }
        let written = minicbor::to_vec(tag).unwrap();
        assert_eq!(written.len(), 17);
        assert_eq!(minicbor::decode::<ETag>(&written).unwrap(), tag);
    }
}
