//! Running sessions: one task per session owns its state and applies inputs from connections, disks
//! and commands.
//!
//! `nicstripe-proto` makes the protocol's decisions, and this module carries them out. [`driver`] is
//! the event loop, [`inbox`] its inputs, [`jobs`] the jobs that it starts, and [`handle`] the handle of
//! others to it. [`transfer`] has the running transfers, [`kind`] one file for each kind of them,
//! [`bench`] the benchmark, and [`serve`] the service that a daemon offers to the peer.
//! [`path_connection`] holds a path's connections, and [`congestion`] selects their congestion control.

#[cfg_attr(not(feature = "bench"), path = "no_bench.rs")]
mod bench;
mod congestion;
mod driver;
mod handle;
mod inbox;
mod jobs;
pub(crate) mod kind;
mod last_progress;
mod path_connection;
mod record;
mod serve;
mod shares;
#[cfg(test)]
mod simulated;
mod tally;
mod transfer;
mod waiters;

#[cfg(test)]
pub(crate) use self::inbox::Inspect;
pub(crate) use self::{
    bench::SERVES_BENCH,
    driver::{Driver, DriverConfig, Joining, LinkSteps, StepFuture},
    handle::SessionHandle,
    inbox::{Begin, Command, Input, Unanswered},
    jobs::Fault,
    last_progress::NOTICE,
    path_connection::{Arriving, Established},
    serve::{Answering, Pending, Serve},
    shares::ChunkShares,
    tally::Tally,
    waiters::{Audience, Outcome, SharedProgress, Starter, Waiter},
};
#[cfg(feature = "bench")]
pub(crate) use self::{bench::ServeBench, inbox::BenchInput};
