//! What is known of a candidate.

/// What is known of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing, or nothing since it was lost. From: `Verified`, `Failed`. To: any other.
    Untried,
    /// A probe was answered. From: any. To: `Verified`, `Failed`.
    Reached,
    /// A connection arrived at the interface it was aimed at, and is there. From: any. To: `Untried` when it is lost, `Failed`.
    Verified,
    /// It does not work. From: any. To: `Untried` when an interface of it came back or its subnet changed hands, `Reached`, `Verified`.
    Failed(Failure),
}

/// Why a candidate does not work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing answered.
    Unreachable,
    /// A host route that it needs could not be had: whose the address is was not proved, or the peer did not let its connection in.
    Unrouted,
    /// It led to another interface than it was aimed at.
    WrongInterface {
        /// The peer's name of the interface at which it arrived.
        arrived: String,
    },
    /// Something else went wrong with it.
    Other,
}

impl State {
    /// Whether nothing is known.
    pub fn is_untried(&self) -> bool {
        *self == Self::Untried
    }

    /// Returns why it failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Untried | Self::Reached | Self::Verified => None,
        }
    }
}
