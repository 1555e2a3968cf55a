//! Copies of files that a peer requests within the daemon, part by part.

use std::time::Instant;

use nicstripe_proto::{
    ChunkSize, Digest, ETag, Extent, Name, Offer, TransferId,
    message::{AnswerKind, Put, PutOptions},
};

use super::{
    served_peer::ServedPeer,
    unfinished::{PART, Unfinished},
};
use crate::{
    file::{FileError, Lease, OF_SOURCE, OF_TARGET, Source, TURN, check_tag},
    storage::Target,
};

/// File that is being copied. Without a commit it leaves nothing.
#[derive(Debug)]
pub(super) struct Copy {
    from: Name,
    to: Name,
    source: Source,
    /// Digest of the file that is kept of it, when it was opened.
    digest: Option<Digest>,
    target: Target,
    upto: u64,
    _lease: Lease,
}

/// Request of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyRequest<'a> {
    pub(super) from: &'a Name,
    pub(super) to: &'a Name,
    pub(super) replace: bool,
    pub(super) only_if: Option<ETag>,
}

impl Unfinished<Copy> {
    /// Takes the copy whose next part the peer asks for.
    pub(super) fn take_copy(
        &mut self,
        request: CopyRequest<'_>,
        offset: u64,
    ) -> Result<Copy, FileError> {
        let is_it =
            |copy: &Copy| (&copy.from, &copy.to, copy.upto) == (request.from, request.to, offset);
        self.take(is_it).ok_or_else(|| {
            let why = "no such copy is under way";
            FileError::refused("copy", request.from, why)
        })
    }
}

impl Copy {
    /// Opens both files with the rights of the peer, which may see names, as for a get and a put.
    pub(super) fn begin(peer: &ServedPeer, request: CopyRequest<'_>) -> Result<Self, FileError> {
        let CopyRequest { from, to, .. } = request;
        peer.check_writable("copy to", to)?;
        let lease = peer.try_lease_files(OF_SOURCE + OF_TARGET, "copy", from)?;
        let (source, object) = peer.open_object("copy", from)?;
        if let Some(tag) = request.only_if {
            check_tag(object.etag, tag, "copy", from)?;
        }
        let put = Put {
            name: to.clone(),
            offer: Offer {
                transfer: TransferId(0),
                source: source.identity,
                chunk_log2: ChunkSize::DEFAULT.log2(),
                mode: source.mode & 0o777,
                kind: None,
                data: None,
                object: None,
            },
            options: PutOptions {
                replace: request.replace,
                restart: true,
                ..PutOptions::default()
            },
            into: None,
            entry: None,
            attributes: source.attributes(),
        };
        let (target, _) = peer.open_target_now(&put)?;
        Ok(Self {
            from: from.clone(),
            to: to.clone(),
            source,
            digest: object.digest,
            target,
            upto: 0,
            _lease: lease,
        })
    }

    /// Copies for about [`PART`]. Returns false if bytes are left.
    pub(super) fn go_on(&mut self) -> Result<bool, FileError> {
        let begun = Instant::now();
        let size = self.source.identity.size;
        while self.upto < size {
            let extent = Extent {
                offset: self.upto,
                len: (size - self.upto).min(TURN),
            };
            self.upto += self.target.copy_from(&self.source, extent, extent.offset)?;
            if self.upto < size && begun.elapsed() >= PART {
                self.target.sync_copied()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the whole copy its name, durably. Returns its entity tag.
    pub(super) fn commit(self) -> Result<Option<ETag>, FileError> {
        self.source.check_unchanged()?;
        self.target.commit(self.digest)
    }

    pub(super) fn is_to(&self, name: &Name) -> bool {
        self.to == *name
    }

    /// Returns the answer to a request whose part is copied.
    pub(super) fn progress(&self) -> AnswerKind {
        AnswerKind::Copied {
            upto: self.upto,
            copy: None,
        }
    }
}
