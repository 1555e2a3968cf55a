//! Fuzz targets: one function per parser, for bytes from a peer or a disk.
//!
//! Besides the absence of panics, each target checks round trips, independence of fragmentation,
//! and bounds. `fuzz/fuzz_targets` calls these functions. The tests in this module run them on
//! every file of `fuzz/corpus`.

mod disk;
mod hostile;
pub(crate) mod samples;
mod says;
mod tape;
mod tunnels;
mod wire;

pub use self::{
    disk::{extents, journal},
    hostile::session,
    tunnels::{mux, tunnels},
    wire::{batches, discovery, frames, greetings, invitations, messages, names},
};

#[cfg(test)]
mod tests;
