//! IP address of an interface with its prefix length.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use crate::error::LabError;

/// IP address and prefix length (at most 32 or 128), such as `10.0.9.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
}

impl Assigned {
    /// Returns this address with prefix length 24.
    pub(crate) fn in_24(address: Ipv4Addr) -> Self {
        Self {
            address: address.into(),
            prefix_len: 24,
        }
    }

    /// Returns the broadcast address of the subnet; `None` for IPv6 and for prefix lengths of 31
    /// and 32, which have none (RFC 3021).
    pub(crate) fn broadcast(self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.prefix_len < 31 => {
                let host_bits = u32::MAX.checked_shr(self.prefix_len.into()).unwrap_or(0);
                Some(Ipv4Addr::from_bits(address.to_bits() | host_bits))
            }
            _ => None,
        }
    }
}

impl FromStr for Assigned {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let parsed = || {
            let (address, prefix_len) = text.split_once('/')?;
            let (address, prefix_len) = (
                address.parse::<IpAddr>().ok()?,
                prefix_len.parse::<u8>().ok()?,
            );
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (prefix_len <= longest).then_some(Self {
                address,
                prefix_len,
            })
        };
        parsed().ok_or_else(|| {
            LabError::Invalid(format!(
                "invalid address \"{text}\": expected one like 10.0.9.1/24 or fd00::1/64"
            ))
        })
    }
}

impl fmt::Display for Assigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_prefix_that_fits() {
        for good in ["10.0.9.1/24", "0.0.0.0/0", "fd00::1/128", "10.0.9.1/32"] {
            assert_eq!(good.parse::<Assigned>().unwrap().to_string(), good);
        }
        for bad in [
            "10.0.9.1",
            "10.0.9.1/",
            "10.0.9.1/33",
            "fd00::1/129",
            "10.0.9/24",
            "host/24",
            "10.0.9.1/24/8",
            "",
        ] {
            let error = bad.parse::<Assigned>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("invalid address \"{bad}\": expected one like 10.0.9.1/24 or fd00::1/64")
            );
        }
    }

    #[test]
    fn a_broadcast_address_has_all_bits_behind_the_prefix() {
        let broadcast = |text: &str| text.parse::<Assigned>().unwrap().broadcast();
        assert_eq!(broadcast("10.0.9.1/24"), Some(Ipv4Addr::new(10, 0, 9, 255)));
        assert_eq!(broadcast("10.0.9.1/30"), Some(Ipv4Addr::new(10, 0, 9, 3)));
        assert_eq!(broadcast("10.0.9.1/0"), Some(Ipv4Addr::BROADCAST));
        assert_eq!(
            ["10.0.9.1/31", "10.0.9.1/32", "fd00::1/64"].map(broadcast),
            [None; 3]
        );
    }
}
