//! Digests of files that a peer requests, read part by part.

use std::{ops::ControlFlow, time::Instant};

use nicstripe_proto::{
    FailCode, Name,
    message::{AnswerKind, HashedFile},
};

use super::{
    served_peer::ServedPeer,
    unfinished::{PART, Unfinished},
};
use crate::file::{FileError, Hashing, Lease, OF_SOURCE, ReadOptions, Source};

/// File that is being read.
#[derive(Debug)]
pub(super) struct Hash {
    name: Name,
    source: Source,
    hashing: Hashing,
    _lease: Lease,
}

impl Unfinished<Hash> {
    /// Takes the file whose next part the peer asks for.
    pub(super) fn take_hash(&mut self, name: &Name, offset: u64) -> Result<Hash, FileError> {
        let is_it = |hash: &Hash| (&hash.name, hash.hashing.upto()) == (name, offset);
        self.take(is_it)
            .ok_or_else(|| FileError::refused("read", name, "it is not being read"))
    }
}

impl Hash {
    /// Opens the file with the rights of the peer, as for a get.
    pub(super) fn begin(peer: &ServedPeer, name: &Name) -> Result<Self, FileError> {
        let lease = peer.files().try_lease(OF_SOURCE).ok_or_else(|| {
            let why = "limit of concurrent operations for this key reached";
            FileError::refused("read", name, why).with_code(FailCode::Busy)
        })?;
        let source = peer.served.open_source(name, ReadOptions::default())?;
        source.drop_cache();
        Ok(Self {
            hashing: Hashing::of(source.identity.size),
            name: name.clone(),
            source,
            _lease: lease,
        })
    }

    /// Reads for about [`PART`]. Returns the answer, and the rest if there is one.
    pub(super) fn go_on(mut self) -> Result<(AnswerKind, Option<Self>), FileError> {
        let begun = Instant::now();
        let digest = loop {
            let source = &self.source;
            let turn = self
                .hashing
                .turn(|bytes, offset| source.read_exact_at(bytes, offset))?;
            match turn {
                ControlFlow::Break(digest) => break digest,
                ControlFlow::Continue(()) if begun.elapsed() >= PART => {
                    let upto = self.hashing.upto();
                    return Ok((AnswerKind::Hashed { upto, file: None }, Some(self)));
                }
                ControlFlow::Continue(()) => {}
            }
        };
        self.source.check_unchanged()?;
        let Some(stat) = self.source.object() else {
            let why = "it is not a regular file";
            return Err(FileError::refused("read", &self.name, why).with_code(FailCode::NotAFile));
        };
        let file = Some(HashedFile { stat, digest });
        let upto = self.hashing.upto();
        Ok((AnswerKind::Hashed { upto, file }, None))
    }
}
