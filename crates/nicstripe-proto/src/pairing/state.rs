//! Probe and connection states of a candidate.

/// Probe and connection state of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Not probed or connected yet, or not since its last connection was lost. From: `Verified`,
    /// `Failed`. To: any other.
    Untried,
    /// The peer has answered a probe. From: any. To: `Verified`, `Failed`.
    Reached,
    /// A connection has arrived at the intended interface and is up. From: any. To: `Untried` when
    /// the connection is lost, `Failed`.
    Verified,
    /// A probe or connection has failed. From: any. To: `Untried` when one of its interfaces came
    /// back or the sharing of its subnet changed, `Reached`, `Verified`.
    Failed(Failure),
}

/// Reason why a candidate does not work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing answered the probe or the connection attempt.
    Unreachable,
    /// A required host route is missing: the ownership of the address was not proved, or the peer
    /// rejected the connection.
    Unrouted,
    /// The connection arrived at another interface of the peer than intended.
    WrongInterface {
        /// Name of the interface, on the peer, at which the connection arrived.
        arrived: String,
    },
    /// Any other failure of the connection.
    Other,
}

impl State {
    /// Returns the reason of a failure, or `None` in any other state.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Untried | Self::Reached | Self::Verified => None,
        }
    }
}
