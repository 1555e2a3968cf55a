//! What is known of a candidate.

/// What is known of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing. To: any other.
    Untried,
    /// A probe was answered. From: any. To: `Verified`, `Failed`.
    Reached,
    /// A connection arrived at the interface it was aimed at. From: any. To: `Failed`, or `Reached` when another candidate that uses one of
    /// its interfaces was verified: each interface has one verified link at most.
    Verified,
    /// It does not work. From: any. To: `Untried` when an interface of it came back or its subnet changed hands, `Reached`, `Verified`.
    Failed(Failure),
}

/// Why a candidate does not work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing answered.
    Unreachable,
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
