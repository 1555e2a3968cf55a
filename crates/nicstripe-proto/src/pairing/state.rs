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
    /// Neither the probe nor the connection attempt was answered.
    Unreachable,
    /// A required host route is missing: the peer did not prove that it owns the address, or the
    /// peer rejected the connection.
    Unrouted,
    /// The connection arrived at another interface of the peer than the intended one.
    WrongInterface {
        /// Name of the peer's interface at which the connection arrived.
        arrived: String,
    },
    /// Any other failure of the connection.
    Other,
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
