//! Files that a peer puts together at the daemon of others, part by part.

use std::time::Instant;

use nicstripe_proto::{
    ChunkSize, ETag, Extent, Name, ObjectAttributes, Offer, SourceIdentity, TransferId,
    message::{AnswerKind, ObjectStat, OfferKind, Put, PutOptions},
};

use super::{
    served_peer::ServedPeer,
    unfinished::{PART, Unfinished},
};
use crate::{
    file::{FileError, Lease, OF_SOURCE, OF_TARGET, Source, TURN},
    storage::Target,
};

/// File that is being put together. Without a commit it leaves nothing.
#[derive(Debug)]
pub(super) struct Concat {
    to: Name,
    target: Target,
    /// Bytes of the new file.
    upto: u64,
    /// File that is being appended.
    part: Option<Part>,
    _lease: Lease,
}

#[derive(Debug)]
struct Part {
    name: Name,
    source: Source,
    /// Metadata of the file when it was opened.
    stat: ObjectStat,
    /// Number of its bytes that are appended.
    upto: u64,
}

/// Files that the peer wants to put together.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConcatRequest<'a> {
    pub(super) to: &'a Name,
    pub(super) replace: bool,
    /// Tag of the file that is replaced.
    pub(super) only_if: Option<ETag>,
    /// Attributes of the new file; only to begin.
    pub(super) attributes: Option<&'a ObjectAttributes>,
}

impl Unfinished<Concat> {
    /// Takes the file that the peer asks to continue with.
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
        peer.check_writable("write", to)?;
        let lease = peer.try_lease_files(OF_SOURCE + OF_TARGET, "write", to)?;
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
            attributes: request.attributes.cloned(),
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
        let mut part = match self.part.take() {
            Some(part) if (&part.name, part.upto) == (name, from) && from > 0 => part,
            _ if from > 0 => {
                let why = "it is not being appended";
                return Err(FileError::refused("append", name, why));
            }
            _ => {
                let (source, stat) = peer.open_object("append", name)?;
                Part {
                    name: name.clone(),
                    source,
                    stat,
                    upto: 0,
                }
            }
        };
        let size = part.source.identity.size;
        while part.upto < size {
            let extent = Extent {
                offset: part.upto,
                len: (size - part.upto).min(TURN),
            };
            let copied = self.target.copy_from(&part.source, extent, self.upto)?;
            part.upto += copied;
            self.upto += copied;
            if part.upto < size && begun.elapsed() >= PART {
                self.target.sync_copied()?;
                self.part = Some(part);
                return Ok(None);
            }
        }
        part.source.check_unchanged()?;
        Ok(Some(part.stat))
    }

    /// Gives the new file its name, durably. Returns its entity tag.
    pub(super) fn commit(self) -> Result<Option<ETag>, FileError> {
        self.target.commit(None)
    }

    /// Returns the answer to a request, with the metadata of what is complete.
    pub(super) fn progress(&self, complete: Option<ObjectStat>) -> AnswerKind {
        AnswerKind::Copied {
            upto: self.upto,
            copy: complete,
        }
    }
}
