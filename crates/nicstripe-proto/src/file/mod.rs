//! Files in the protocol: names, chunks, hashes, holes and the resume journal.

pub(crate) mod attributes;
pub mod etag;
pub mod extent;
pub mod grid;
pub mod hash_tree;
pub mod hole;
pub mod journal;
pub mod name;
pub mod outline;
pub(crate) mod statement;
