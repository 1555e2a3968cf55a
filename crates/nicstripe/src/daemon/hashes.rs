//! Digests of files that a peer requests, read part by part.

use std::{ops::ControlFlow, time::SystemTime};

use nicstripe_proto::{
    Digest, FailCode, Name, Statement,
    message::{AnswerKind, HashedFile, ObjectStat, Signed},
};

use super::{served_peer::ServedPeer, unfinished::Unfinished};
use crate::{
    file::{FileError, Hashing, Lease, OF_SOURCE, Source, timestamp_of},
    storage::Served,
    trust::sign,
};

/// File that is being read.
#[derive(Debug)]
pub(super) struct Hash {
    name: Name,
    /// Words of the peer in a statement about the file; `None` if it wants none.
    words: Option<Digest>,
    source: Source,
    /// Metadata of the file, with the kept digest, when it was opened.
    stat: ObjectStat,
    hashing: Hashing,
    _lease: Lease,
}

impl Unfinished<Hash> {
    /// Takes the file whose next part the peer asks for.
    pub(super) fn take_hash(
        &mut self,
        (name, words): (&Name, Option<Digest>),
        offset: u64,
    ) -> Result<Hash, FileError> {
        let is_it =
            |hash: &Hash| (&hash.name, hash.words, hash.hashing.upto()) == (name, words, offset);
        self.take(is_it).ok_or_else(|| {
            let why = "it is no longer being read";
            FileError::refused("read", name, why).with_code(FailCode::Busy)
        })
    }
}

impl Hash {
    /// Opens the file with the rights of the peer, as for a get.
    pub(super) fn begin(
        peer: &ServedPeer,
        (name, words): (&Name, Option<Digest>),
    ) -> Result<Self, FileError> {
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
            words,
            source,
            _lease: lease,
        })
    }

    /// Returns true unless both read different files under the same name.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        self.name != other.name || self.source.identity == other.source.identity
    }

    /// Reads the next part, of a size that occupies a thread for some milliseconds. Returns the answer,
    /// and the rest if any.
    pub(super) fn go_on(
        mut self,
        peer: &ServedPeer,
    ) -> Result<(AnswerKind, Option<Self>), FileError> {
        let source = &self.source;
        let turn = self
            .hashing
            .turn(|bytes, offset| source.read_exact_at(bytes, offset))?;
        let upto = self.hashing.upto();
        let values = match self.words {
            Some(_) => self.hashing.take_values(),
            None => Vec::new(),
        };
        let answer = |file| AnswerKind::Hashed { upto, file, values };
        let ControlFlow::Break(digest) = turn else {
            return Ok((answer(None), Some(self)));
        };
        self.source.check_unchanged()?;
        let sign = |words| self.sign(peer, digest, words);
        let file = HashedFile {
            stat: self.stat,
            digest,
            signed: self.words.map(sign).transpose()?,
        };
        Ok((answer(Some(Box::new(file))), None))
    }

    fn sign(&self, peer: &ServedPeer, digest: Digest, words: Digest) -> Result<Signed, FileError> {
        let at = timestamp_of(SystemTime::now());
        let statement = Statement {
            name: self.name.clone(),
            size: self.source.identity.size,
            modified: self.stat.mtime,
            digest,
            at,
            sender: peer.key(),
            words,
        };
        let signature = sign(&peer.shared.identity, &statement.text());
        let cannot = || FileError::refused("sign for", &self.name, "this key cannot sign");
        let signature = signature.ok_or_else(cannot)?;
        Ok(Signed { at, signature })
    }
}
