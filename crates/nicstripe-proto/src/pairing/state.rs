//! Probe and connection states of a candidate.

/// Probe and connection state of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CandidateState {
    /// Not probed or connected yet, or not since the last connection was lost or closed. Previous states:
    /// `Verified`, `Failed`. Next states: any other.
    Untried,
    /// The peer has answered a probe. Previous states: any. Next states: `Verified`, `Failed`.
    Reached,
    /// A connection has arrived at the intended interface and is up. Previous states: any. Next
    /// states: `Untried` when the connection is lost or closed, `Failed`.
    Verified,
    /// A probe or a connection has failed. Previous states: any. Next states: `Reached`,
    /// `Verified`, and `Untried` when one of the interfaces came back or the subnet's other
    /// interfaces changed.
    Failed(Failure),
}

/// Reason why a candidate does not work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The probe or the connection attempt did not succeed.
    Unreachable(Obstacle),
    /// A required host route is missing: the peer did not prove that it owns the address, or the
    /// peer rejected the connection.
    Unrouted,
    /// The connection arrived at another interface of the peer than the intended one.
    WrongInterface {
        /// Name of the peer's interface at which the connection arrived.
        arrived: String,
    },
    /// Another machine answered.
    Stranger,
    /// The session has used all its path IDs.
    NoPathLeft,
}

/// Obstacle to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// No answer, and no error.
    Silence,
    /// The machine there refuses it: nothing listens at this address.
    Refused,
    /// The machine there accepted and reset it.
    Reset,
    /// A filter of this machine rejects it.
    FilteredHere,
    /// A filter of the peer or on the way rejects it.
    Filtered,
}

impl CandidateState {
    /// Returns the reason of a failure; `None` in any other state.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Untried | Self::Reached | Self::Verified => None,
        }
    }
}
