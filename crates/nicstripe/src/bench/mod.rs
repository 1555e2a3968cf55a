//! Measures what the links between two machines carry, alone and together, through the sessions and paths that copies use.

#[allow(dead_code, reason = "until a bench measures disks")]
mod disk;
mod report;

pub use self::report::*;
