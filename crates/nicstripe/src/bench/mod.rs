//! Measures what the links between two machines carry, alone and together, through the sessions and paths that copies use.

mod baseline;
mod decided;
mod evidence;
#[cfg(test)]
mod fixture;
mod report;
mod summary;

pub use self::{
    baseline::compare,
    report::*,
    summary::{conclude, summarise},
};
