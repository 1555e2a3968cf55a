//! A session at work: one task owns its state and applies what streams, disks and commands tell it.
//!
//! `nicstripe-proto` decides; this module asks it and does what it says. [`driver`] is the loop, [`input`] what it is told, [`work`] the files of a
//! transfer, [`live`] and [`kept`] what is no file, [`ports`] the way to the threads of trees, [`slot`] the connections of a path,
//! [`congestion`] how they give way to losses.

mod audience;
mod congestion;
mod driver;
mod input;
mod kept;
mod live;
mod ports;
mod shares;
mod slot;
mod tally;
mod waiters;
mod work;

pub(crate) use self::{
    audience::Audience,
    driver::{BenchCommand, BenchNews, BenchPath, Driver, DriverConfig, sleep_until},
    input::{Alone, Arriving, Command, GetInto, Input, LinkNews, PutFrom, SessionHandle},
    kept::ToRead,
    live::Giver,
    shares::ChunkShares,
    slot::{Capacities, Capacity, Established, LinkRates, PathPlan},
    tally::{Tally, all_verified},
    waiters::{SharedProgress, Waiter},
    work::{Access, Fault, LocalTarget, Outcome, WorkDone, offer_of},
};
