//! Client: connects to a daemon, keeps a session with it, and copies files over it.

mod at_daemon;
pub(crate) mod blocking;
mod builder;
mod carried;
mod entries;
mod exec;
mod facts;
mod fetches;
mod files;
mod handle;
mod listener;
mod making;
#[cfg(feature = "bench")]
mod measured;
mod objects;
mod reader;
mod receipts;
mod reconnects;
pub(crate) mod replicas;
mod request;
mod runtime;
mod sessions;
mod transfer;
#[cfg(feature = "trees")]
mod trees;
mod tunnels;
mod turns;
mod writer;

pub use self::{
    at_daemon::NotRemoved,
    builder::ClientBuilder,
    entries::{Entries, Entry},
    fetches::FetchRequest,
    handle::{Client, ConnectedPeer},
    listener::Listener,
    objects::{Content, Head, Kind, Stat},
    reader::{ObjectChunk, ObjectReader, OpenOptions},
    receipts::{Receipt, outline_of},
    transfer::Transfer,
    writer::ObjectWriter,
};
