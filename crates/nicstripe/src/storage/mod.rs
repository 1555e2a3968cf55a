//! Storage of the files that a daemon serves.
//!
//! A [`Daemon`](crate::Daemon) serves a directory of the file system by default. Alternatives are
//! [`MemoryStorage`], for tests and programs that embed a daemon, or the program's own [`Storage`].
//! An implementation needs three traits: [`Storage`] opens, lists and renames; [`StoredFile`] is a
//! file being read; [`StoredPart`] is a file being received, invisible until complete.
//!
//! All calls may block. They come concurrently from the daemon's I/O threads, never from an async
//! task. An implementation must not panic.
//!
//! A [`Storage`] holds single files only. The daemon rejects tree copies and disk benchmarks on it.

mod backend;
mod local;
mod local_dir;
mod memory;
mod served;
mod target;
#[cfg(test)]
mod tests;

pub use self::{
    backend::{Kind, Listed, PartRequest, Replace, Stat, Storage, StoredPart},
    local::{LocalPart, LocalRequest},
    local_dir::LocalDir,
    memory::MemoryStorage,
};
pub(crate) use self::{
    served::{Served, Stored},
    target::{Target, TargetOpened},
};
pub use crate::file::{FileIdentity, StoredFile};
pub use nicstripe_proto::{ChainingValue, ChunkId, ChunkSize, Grid, Subtree};
