//! Names and hardware addresses of interfaces.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// Interface name of 1 to 15 bytes, valid by the kernel's rule (`dev_valid_name`, net/core/dev.c).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName {
    /// Bytes of the interface name, padded with zeros.
    bytes: [u8; NAME_LEN],
    /// Length of the name in bytes, 1 to 15.
    len: u8,
}

impl InterfaceName {
    /// Validates a name by the kernel's rule (`dev_valid_name`, net/core/dev.c).
    pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
        let forbidden =
            |byte: &u8| matches!(byte, 0 | b'/' | b':' | 0x0b | 0xa0) || byte.is_ascii_whitespace();
        if name.is_empty()
            || name.len() > NAME_LEN
            || name == b"."
            || name == b".."
            || name.iter().any(forbidden)
        {
            return Err(InvalidName {
                name: String::from_utf8_lossy(name).into_owned(),
            });
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self {
            bytes,
            len: name.len() as u8,
        })
    }

    /// Returns the bytes of the name, without padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl FromStr for InterfaceName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name.as_bytes())
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// Text that is not a valid interface name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid interface name {name:?}: expected 1 to 15 bytes without spaces, '/' or ':'")]
pub struct InvalidName {
    /// Text that was rejected as an interface name.
    pub name: String,
}

/// Hardware address of six bytes, printed as `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Maximum length of an interface name in bytes: `IFNAMSIZ` without the terminator
/// (include/uapi/linux/if.h).
const NAME_LEN: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_kernels_rule() {
        for good in ["eth0", "a", "enp0s31f6.4094", "br-01234567890a", "-"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "a:b",
            "a\0b",
            "sixteen-bytes-xx",
            "\x0b",
        ] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }
}
