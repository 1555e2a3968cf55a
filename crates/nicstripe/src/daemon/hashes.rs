//! Digests of files that a peer requests, read part by part.

use std::ops::ControlFlow;

use nicstripe_proto::{
    FailCode, Name,
    message::{AnswerKind, HashedFile, ObjectStat},
};

use super::{served_peer::ServedPeer, unfinished::Unfinished};
use crate::{
    file::{FileError, Hashing, Lease, OF_SOURCE, Source},
    storage::Served,
};

/// File that is being read.
#[derive(Debug)]
pub(super) struct Hash {
    name: Name,
    source: Source,
    /// Metadata of the file, with the kept digest, when it was opened.
    stat: ObjectStat,
    hashing: Hashing,
    _lease: Lease,
}

impl Unfinished<Hash> {
    /// Takes the file whose next part the peer asks for.
    pub(super) fn take_hash(&mut self, name: &Name, offset: u64) -> Result<Hash, FileError> {
        let is_it = |hash: &Hash| (&hash.name, hash.hashing.upto()) == (name, offset);
        self.take(is_it).ok_or_else(|| {
            let why = "it is no longer being read";
            FileError::refused("read", name, why).with_code(FailCode::Busy)
        })
    }
}

impl Hash {
    /// Opens the file with the rights of the peer, as for a get.
    pub(super) fn begin(peer: &ServedPeer, name: &Name) -> Result<Self, FileError> {
        let lease = peer.try_lease_files(OF_SOURCE, "read", name)?;
        let (source, mut stat) = peer.open_object("read", name)?;
        if let Served::Other(stored) = &peer.served {
            stat.digest = stored.to_find("read", Some(name))?.stat(name)?.digest;
        }
        source.drop_cache();
        Ok(Self {
            stat,
            hashing: Hashing::of(source.identity.size),
            name: name.clone(),
            source,
            _lease: lease,
        })
    }

    /// Returns true unless both read different files under the same name.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        self.name != other.name || self.source.identity == other.source.identity
    }

    /// Reads the next part, of a size that occupies a thread for some milliseconds. Returns the answer,
    /// and the rest if there is one.
    pub(super) fn go_on(mut self) -> Result<(AnswerKind, Option<Self>), FileError> {
        let source = &self.source;
        let turn = self
            .hashing
            .turn(|bytes, offset| source.read_exact_at(bytes, offset))?;
        let upto = self.hashing.upto();
        let ControlFlow::Break(digest) = turn else {
            return Ok((AnswerKind::Hashed { upto, file: None }, Some(self)));
        };
        self.source.check_unchanged()?;
        let stat = self.stat;
        let file = Some(HashedFile { stat, digest });
        Ok((AnswerKind::Hashed { upto, file }, None))
    }
}
