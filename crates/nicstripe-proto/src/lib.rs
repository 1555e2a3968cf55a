//! The part of nicstripe that decides.
//!
//! Frames and their limits, the session that outlives its paths, who carries which chunk, what has arrived, what is durable, and whether
//! it is what was sent. Nothing here opens a socket or a file or asks for the time: input is a method call with `now`, output is polled
//! until there is none, and the same code runs under virtual time in the tests.
//!
//! The way of a byte through this crate: [`sender`] lets [`stripe`] assign a chunk to a [`path`], [`frame`] lays it out, [`receiver`]
//! keeps what [`hash_tree`] has proved, and [`journal`] lists what is durable. [`session`] holds the two ends together; [`pairing`]
//! chooses the cables, and [`discovery`] is what is said before there is a session.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod basis;
pub mod bench;
mod comparison;
pub mod discovery;
pub mod extent;
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
pub mod steady;
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
        Acceptance, Event, Incoming, Offering, PathError, Role, Session, SessionConfig, SessionId, TransferId, TransferStats, Transmit,
    },
    units::BitRate,
};
