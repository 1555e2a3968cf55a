//! Protocol core of nicstripe, without I/O.
//!
//! Covers frames and their limits, sessions that outlive their paths, scheduling of chunks over
//! paths, reassembly, durability and verification. The crate never opens a socket or a file, and
//! never reads the clock. Input is a method call with `now`; output is polled until none remains.
//! The tests run the same code in virtual time.
//!
//! Each layer uses the layers below it:
//!
//! | module | layer |
//! | --- | --- |
//! | [`session`] | one association of two peers: paths, transfers, messages, timers |
//! | `transfer` | sending and receiving halves of a transfer, and their parts for `--delta` |
//! | [`path`] | state of a path, its flow control, [`stripe`] and reliable control messages |
//! | `wire` | [`frame`], control [`message`], metering of [`load`] |
//! | [`tree`] | records and rules of directory trees |
//! | `file` | [`etag`], [`extent`], [`grid`], [`hash_tree`], [`hole`], [`journal`], [`name`], [`outline`] |
//! | `id`, `failure`, [`units`], [`TokenBucket`] | identities, categories of failures, rates, rate limits |
//! | [`theory`] | maximum goodput of a link |
//!
//! In addition, [`chain`] orders the receivers of a copy to many, [`deal`] divides a file among links that are asked for it, [`pairing`] selects the links, [`discovery`], [`bootstrap`] and [`invitation`] find a
//! peer before a session exists, and [`tunnel`] multiplexes the connections of other programs.
//!
//! Data flow: the sending half lets [`stripe`] assign a chunk to a [`path`], and [`frame`] encodes
//! the chunk. The receiving half accepts chunks that [`hash_tree`] has verified, and [`journal`]
//! records the durable chunks.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bootstrap;
pub mod chain;
pub mod deal;
pub mod discovery;
mod failure;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod id;
pub mod invitation;
pub mod pairing;
pub mod path;
pub mod session;
pub mod theory;
mod token_bucket;
mod transfer;
pub mod tree;
pub mod tunnel;
pub mod units;
mod wire;

pub use self::{
    failure::FailCode,
    file::{
        attributes::{AttributesError, MOST_ATTRIBUTES, ObjectAttributes},
        etag::{self, ETag},
        extent::{self, ChunkId, ChunkRange, ChunkSet, Extent},
        grid::{self, ChunkSize, Grid},
        hash_tree::{self, ChainingValue, Digest, HashTree, Subtree},
        hole::{self, HoleMap, Zeros},
        journal::{self, SourceIdentity},
        name::{self, Name, NameError},
        outline::{self, Outline},
        statement::Statement,
    },
    id::{LAST_PATH, PathId, Role, SessionId, TransferId},
    path::{PathLoss, PathState, stripe},
    session::{
        Acceptance, Event, Incoming, Offering, PathError, Request, Session, SessionConfig, Transmit,
    },
    token_bucket::TokenBucket,
    transfer::{receiver::ArrivalError, stats::TransferStats},
    units::BitRate,
    wire::{
        frame::{self, DataHeader, Decoder, Frame, FrameError, Piece},
        load,
        message::{self, Message, Offer},
    },
};
