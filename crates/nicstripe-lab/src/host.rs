//! Hosts of a lab, and the directions between them.

use std::fmt;

/// One of the two hosts of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// Host with the addresses 10.77.*i*.1, or 10.9.0.11 and up in one subnet.
    A,
    /// Host with the addresses 10.77.*i*.2, or 10.9.0.21 and up in one subnet.
    B,
}

impl Host {
    /// Both hosts, A first.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Returns the other one of the two hosts.
    pub fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// Direction of frames on a cable between hosts A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Frames that host A sends to host B.
    AToB,
    /// Frames that host B sends to host A.
    BToA,
    /// Frames of both directions.
    Both,
}

impl Direction {
    /// Returns the hosts that receive frames of this direction.
    pub(crate) fn destinations(self) -> &'static [Host] {
        match self {
            Self::AToB => &[Host::B],
            Self::BToA => &[Host::A],
            Self::Both => &Host::ALL,
        }
    }
}
