//! Measures what the links between two machines carry, alone and together, through the sessions and paths that copies use.

mod disk;
mod report;

pub use self::report::*;
