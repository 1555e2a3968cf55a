//! Pairing: selects the interface of the peer to which each local interface connects.
//!
//! A plan derived from two lists of interfaces is a hypothesis. A link is used once a connection
//! over it is authenticated and has arrived at the intended interface. A [`Pairing`] plans,
//! receives the results, and plans again.
//!
//! Link-local pairs are probed first, because link-local addresses fit any two interfaces. Pairs
//! that would replace a working or lost link are also probed, so that no link is closed for an
//! unreachable pair. A client's [`Session`](crate::Session) decides when to probe, connect and
//! disconnect.

mod candidate;
mod explain;
mod hungarian;
mod machine;
pub(crate) mod matching;
pub(crate) mod probes;
mod state;

#[cfg(test)]
mod tests;

pub use self::{
    candidate::{Candidate, CandidateId, PathEnd, Preference},
    explain::{Explanation, Fact, LeftOut, Side},
    machine::{MOST_ADDRESSES, MOST_INTERFACES, MOST_PROBES, Pairing},
    matching::choose,
    probes::{PROBE_BURST, PROBES_PER_SECOND},
    state::{CandidateState, Failure, Obstacle},
};
