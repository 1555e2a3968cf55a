//! A file as the protocol sees it: its name, chunks, hashes, holes and journal.

pub mod extent;
pub mod grid;
pub mod hash_tree;
pub mod hole;
pub mod journal;
pub mod name;
