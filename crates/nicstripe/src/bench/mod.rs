//! Measures what the links between two machines carry, alone and together, through the sessions and paths that copies use.

mod baseline;
mod decided;
#[allow(dead_code, reason = "until a bench measures disks")]
mod disk;
mod event;
mod evidence;
#[cfg(test)]
mod fixture;
mod report;
mod summary;

pub use self::{
    baseline::compare,
    event::BenchEvent,
    report::*,
    summary::{conclude, summarise},
};
