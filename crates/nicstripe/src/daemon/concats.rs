//! Files that a peer puts together at the daemon of others, part by part.

use std::time::Instant;

use nicstripe_proto::{
    ChunkSize, Digest, ETag, Extent, FailCode, Name, Offer, SourceIdentity, TransferId,
    message::{AnswerKind, ObjectStat, OfferKind, Put, PutOptions},
};

use super::{
    served_peer::ServedPeer,
    unfinished::{PART, Unfinished},
};
use crate::file::{CommitStage, FileError, Lease, OF_SOURCE, OF_TARGET, ReadOptions, Source, TURN};

/// File that is being put together. Without a commit it leaves nothing.
#[derive(Debug)]
pub(super) struct Concat {
    to: Name,
    target: crate::storage::Target,
    /// Bytes of the new file.
    upto: u64,
    /// File that is being appended, with the number of its bytes that are.
    part: Option<(Name, Source, u64)>,
    _lease: Lease,
}

/// What the peer wants to put together.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConcatRequest<'a> {
    pub(super) to: &'a Name,
    pub(super) replace: bool,
    /// Tag of the file that is replaced.
    pub(super) only_if: Option<ETag>,
}

impl Unfinished<Concat> {
    /// Takes the file that the peer asks to go on with.
    pub(super) fn take_concat(&mut self, to: &Name, offset: u64) -> Result<Concat, FileError> {
        let is_it = |concat: &Concat| (&concat.to, concat.upto) == (to, offset);
        self.take(is_it).ok_or_else(|| {
            let why = "no such file is being put together";
            FileError::refused("write", to, why)
        })
    }
}

impl Concat {
    /// Opens the new file with the rights of the peer, as for a put.
    pub(super) fn begin(peer: &ServedPeer, request: ConcatRequest<'_>) -> Result<Self, FileError> {
        let to = request.to;
        peer.check_writable(to)?;
        let lease = peer.files().try_lease(OF_SOURCE + OF_TARGET);
        let lease = lease.ok_or_else(|| {
            let why = "limit of concurrent operations for this key reached";
            FileError::refused("write", to, why).with_code(FailCode::Busy)
        })?;
        let put = Put {
            name: to.clone(),
            offer: Offer {
                transfer: TransferId(0),
                source: SourceIdentity::default(),
                chunk_log2: ChunkSize::DEFAULT.log2(),
                mode: 0o666,
                kind: Some(OfferKind::Pipe),
                data: None,
                object: None,
            },
            options: PutOptions {
                replace: request.replace,
                only_if: request.only_if,
                restart: true,
                ..PutOptions::default()
            },
            into: None,
            entry: None,
            attributes: None,
        };
        let (target, _) = peer.open_target_now(&put)?;
        Ok(Self {
            to: to.clone(),
            target,
            upto: 0,
            part: None,
            _lease: lease,
        })
    }

    pub(super) fn is_to(&self, name: &Name) -> bool {
        self.to == *name
    }

    /// Appends a file from the byte `from` on, for about [`PART`]. Returns its metadata if it is
    /// appended whole.
    pub(super) fn append(
        &mut self,
        peer: &ServedPeer,
        name: &Name,
        from: u64,
    ) -> Result<Option<ObjectStat>, FileError> {
        let begun = Instant::now();
        let source = match self.part.take() {
            Some((known, source, upto)) if (&known, upto) == (name, from) && from > 0 => source,
            _ if from > 0 => {
                let why = "it is not being appended";
                return Err(FileError::refused("append", name, why));
            }
            _ => peer.served.open_source(name, ReadOptions::default())?,
        };
        let size = source.identity.size;
        let mut upto = from;
        while upto < size {
            let extent = Extent {
                offset: upto,
                len: (size - upto).min(TURN),
            };
            let copied = self.target.copy_from(&source, extent, self.upto)?;
            (upto, self.upto) = (upto + copied, self.upto + copied);
            if upto < size && begun.elapsed() >= PART {
                self.target.sync_copied()?;
                self.part = Some((name.clone(), source, upto));
                return Ok(None);
            }
        }
        source.check_unchanged()?;
        let stat = source.object().ok_or_else(|| {
            let why = "it is not a regular file";
            FileError::refused("append", name, why).with_code(FailCode::NotAFile)
        });
        stat.map(Some)
    }

    /// Gives the new file its name, durably. Returns its entity tag.
    pub(super) fn commit(self) -> Result<Option<ETag>, FileError> {
        let mut stage = CommitStage::default();
        // Nothing compares the digest without `verify`.
        while self
            .target
            .commit_turn(Digest::NONE, &mut stage)?
            .is_continue()
        {}
        Ok(self.target.etag())
    }

    /// Returns the answer to a request, with the metadata of what is complete.
    pub(super) fn progress(&self, complete: Option<ObjectStat>) -> AnswerKind {
        AnswerKind::Copied {
            upto: self.upto,
            copy: complete,
        }
    }
}
