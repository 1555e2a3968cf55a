//! `nicstripe bench`: what the cables to a machine carry, and what was measured before.
//!
//! [`arguments`] is what may be typed. [`session`] runs one bench from connecting to the exit code; [`live`] is what is known while it runs,
//! [`bars`], [`stream`] and [`show`] draw that. All else is a function of the report: [`reading`] has the questions that [`table`], [`html`]
//! and [`prom`] ask of it, [`remedy`] what helps, [`swept`] is the part of [`table`] about sweeps, [`unit`] how numbers are printed, [`outcome`] the exit code. [`history`] keeps reports,
//! [`stored`] and [`versus`] show them, [`files`] writes them. [`library`] is what the library does in it.

pub(crate) mod arguments;
mod bars;
mod failure;
mod files;
mod history;
mod html;
mod library;
mod live;
mod outcome;
mod prom;
mod reading;
mod remedy;
#[cfg(test)]
mod samples;
mod session;
mod show;
mod stored;
mod stream;
mod swept;
mod table;
mod unit;
mod versus;

pub(crate) use self::{arguments::Bench, failure::BenchError};

use crate::{failure::Failure, places, terminal::Terminal};

impl Bench {
    /// Measures, or shows what was measured before.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        match &self.stored {
            Some(stored) => stored::run(stored, &history::History::of(&places::home()?), nicstripe::bench::compare, terminal),
            None => library::run(&self.measure, terminal),
        }
    }
}
