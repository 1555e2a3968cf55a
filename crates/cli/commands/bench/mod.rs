//! `nicstripe bench`: measures the links to a machine, and shows earlier reports.
//!
//! - [`arguments`]: the command line as typed
//! - [`session`]: one bench from connecting to the exit code
//! - [`live`], [`bars`], [`stream`], [`show`]: state and output of a running bench
//! - [`reading`]: values derived from a report, for [`table`], [`html`] and [`prom`]
//! - [`from_web`]: rates from a web server
//! - [`swept`], [`unit`], [`outcome`]: sweeps in [`table`], units, exit code
//! - [`history`], [`stored`]: stored reports, and their commands

pub(crate) mod arguments;
mod bars;
#[cfg(feature = "web")]
mod from_web;
mod history;
mod html;
mod live;
mod outcome;
mod prom;
mod reading;
mod session;
mod show;
mod stored;
mod stream;
mod swept;
mod table;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use self::arguments::Bench;

use self::history::History;
use crate::{failure::Failure, output::terminal::Terminal, places};

impl Bench {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        match &self.stored {
            Some(stored) => stored::run(stored, &History::of(&places::home()?), terminal),
            None => session::run(&self.measure, terminal),
        }
    }
}
