//! States of a candidate.

/// State of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Not tried, or not since it was lost. From: `Verified`, `Failed`. To: any other.
    Untried,
    /// A probe was answered. From: any. To: `Verified`, `Failed`.
    Reached,
    /// A connection arrived at the intended interface and is up. From: any. To: `Untried` when it
    /// is lost, `Failed`.
    Verified,
    /// It does not work. From: any. To: `Untried` when an interface of it came back or the sharing
    /// of its subnet changed, `Reached`, `Verified`.
    Failed(Failure),
}

/// Reason why a candidate does not work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing answered.
    Unreachable,
    /// It lacks a host route: the owner of the address was not proved, or the peer rejected the
    /// connection.
    Unrouted,
    /// It led to another interface than intended.
    WrongInterface {
        /// The peer's name of the interface at which it arrived.
        arrived: String,
    },
    /// Another failure.
    Other,
}

impl State {
    /// Returns true if the candidate is untried.
    pub fn is_untried(&self) -> bool {
        *self == Self::Untried
    }

    /// Returns the reason of a failed candidate.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Untried | Self::Reached | Self::Verified => None,
        }
    }
}
