//! Running sessions: one task per session owns its state and applies inputs from connections, disks
//! and commands.
//!
//! `nicstripe-proto` makes the protocol's decisions, and this module carries them out. [`driver`] is
//! the event loop and [`input`] its inputs. [`endpoint`] has the sources and sinks of transfers, one
//! file for each kind, and [`serve`] the service that a daemon offers to the peer.
//! [`path_connection`] holds a path's connections, and [`congestion`] selects their congestion
//! control.

mod congestion;
mod driver;
pub(crate) mod endpoint;
mod input;
mod last_progress;
mod path_connection;
mod serve;
mod shares;
#[cfg(test)]
mod simulated;
mod tally;
mod waiters;

#[cfg(feature = "bench")]
pub(crate) use self::input::BenchInput;
pub(crate) use self::{
    driver::{Connect, Driver, DriverConfig, Joining},
    input::{Command, Fault, Input, LinkNews, SessionHandle},
    last_progress::NOTICE,
    path_connection::{Arriving, Capacities, Capacity, Established, LinkRates, PathPlan},
    serve::{Pending, Serve, TargetAttempt},
    shares::ChunkShares,
    tally::Tally,
    waiters::{Audience, Outcome, SharedProgress, Waiter},
};
