//! Protocol core of nicstripe, without I/O.
//!
//! Covers frames and their limits, sessions that outlive their paths, scheduling of chunks over
//! paths, reassembly, durability and verification. Nothing here opens a socket or a file or reads
//! the clock. Input is a method call with `now`; output is polled until none is left. The tests run
//! the same code under virtual time.
//!
//! Data flow: [`sender`] has [`stripe`] assign a chunk to a [`path`], and [`frame`] encodes it.
//! [`receiver`] accepts what [`hash_tree`] has verified, and [`journal`] records what is durable.
//! [`session`] joins the two ends, [`pairing`] selects the links, and [`discovery`] finds daemons
//! before a session exists.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bench;
mod delta_receiver;
mod delta_sender;
pub mod discovery;
pub mod extent;
pub mod flap_damping;
mod flow;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod grid;
pub mod hash_tree;
pub mod hole;
pub mod journal;
pub mod load;
pub mod message;
pub mod name;
mod pace;
pub mod pairing;
pub mod path;
pub mod receiver;
pub mod reliable;
pub mod sender;
pub mod session;
pub mod stripe;
pub mod tree;
pub mod tunnel;
pub mod units;

pub use self::{
    extent::{ChunkId, ChunkRange, ChunkSet, Extent},
    frame::{DataHeader, Decoder, Frame, FrameError, Piece},
    grid::{ChunkSize, Grid},
    hash_tree::{ChainingValue, Digest, HashTree, Subtree},
    hole::{HoleMap, Zeros},
    journal::SourceIdentity,
    message::{FailCode, Message, Offer},
    name::{Name, NameError},
    path::{LAST_PATH, PathId, PathLoss, PathState},
    session::{
        Acceptance, Event, Incoming, Offering, PathError, Role, Session, SessionConfig, SessionId,
        TransferId, TransferStats, Transmit,
    },
    units::BitRate,
};
