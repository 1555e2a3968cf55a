//! What the fuzz targets run: one function a parser, from bytes as a peer or a disk may give them.
//!
//! Each checks more than that nothing panics: what is read and written again is the same, pieces of any length say what the whole says, and
//! bounds hold. `fuzz/fuzz_targets` calls these functions, and the tests here do with every file of `fuzz/corpus`.

mod disk;
mod hostile;
mod pair;
mod says;
mod tape;
mod tunnels;
mod wire;

pub use self::{
    disk::{extents, journal},
    hostile::session,
    pair::sessions,
    tunnels::{trunk, tunnels},
    wire::{discovery, frames, greetings, messages, names, parcels},
};

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod tests;
