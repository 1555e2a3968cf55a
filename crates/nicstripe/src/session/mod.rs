//! Running sessions: one task per session owns its state and applies inputs from connections, disks
//! and commands.
//!
//! `nicstripe-proto` makes the decisions, this module carries them out. [`driver`] is the event
//! loop and [`input`] its inputs. [`open_files`] holds open files, [`retransmit`] and [`reorder`]
//! the retransmit and reorder buffers of streamed data. [`tree_channel`] connects tree threads,
//! [`path_connection`] holds a path's connections, [`congestion`] selects their congestion control.

mod audience;
mod congestion;
mod driver;
mod input;
mod open_files;
mod path_connection;
mod presence;
mod reorder;
mod retransmit;
mod shares;
#[cfg(test)]
mod simulated;
mod tally;
mod tree_channel;
mod waiters;

pub(crate) use self::{
    audience::Audience,
    driver::{BenchCommand, BenchNews, BenchPath, Connect, Driver, DriverConfig, Joining},
    input::{Command, Fault, GetInto, Input, LinkNews, PutFrom, SessionHandle, StandaloneFiles},
    open_files::{Access, IoResult, LocalTarget, offer_of},
    path_connection::{Capacities, Capacity, Established, LinkRates, PathPlan},
    presence::Arriving,
    reorder::ReadItem,
    retransmit::ChunkSender,
    shares::ChunkShares,
    tally::{Tally, all_verified},
    waiters::{Outcome, SharedProgress, Waiter},
};
