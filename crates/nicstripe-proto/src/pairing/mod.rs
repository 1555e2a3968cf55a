//! Pairing: selects which local interface connects to which interface of the peer.
//!
//! A plan derived from two lists of interfaces is a hypothesis. A link is used once a connection
//! over it was authenticated and arrived at the intended interface. A [`Pairing`] plans, takes the
//! results, and plans again.
//!
//! Link-local pairs are probed first, since the addresses fit any two
//! interfaces. Pairs that would replace a working or lost link are also probed, so that an
//! unreachable pair closes no link. A [`Planner`] decides when to probe, connect and disconnect.

mod candidate;
mod explain;
mod hungarian;
mod machine;
mod matching;
mod planner;
mod state;

#[cfg(test)]
mod tests;

pub use self::{
    candidate::{Candidate, CandidateId, PathEnd, Preference},
    explain::{Explanation, Fact, LeftOut, Side},
    machine::{MOST_ADDRESSES, MOST_INTERFACES, MOST_PROBES, Pairing},
    matching::choose,
    planner::{Planner, Step},
    state::{Failure, State},
};
