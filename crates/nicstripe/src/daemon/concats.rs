//! Files that a peer makes at the daemon of others, part by part: copies, and files put together.

use std::time::Instant;

use nicstripe_proto::{
    ChunkSize, Digest, ETag, Extent, Name, ObjectAttributes, Offer, SourceIdentity, TransferId,
    message::{AnswerKind, ObjectStat, OfferKind, Put, PutOptions},
};

use super::{
    served_peer::ServedPeer,
    unfinished::{PART, Unfinished},
};
use crate::{
    file::{FileError, Lease, OF_SOURCE, OF_TARGET, Source, TURN, check_tag},
    storage::Target,
};

/// File that is being made of others. Without a commit it leaves nothing.
#[derive(Debug)]
pub(super) struct Concat {
    to: Name,
    target: Target,
    /// Bytes of the new file.
    upto: u64,
    /// File that is being appended.
    part: Option<Part>,
    /// File that the new one is a copy of; `None` for one of several files.
    from: Option<Name>,
    /// Kept digest of the file that is copied, when it was opened.
    digest: Option<Digest>,
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

/// Request for a file that is made of others.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConcatRequest<'a> {
    /// File to copy; `None` to append several.
    pub(super) from: Option<&'a Name>,
    pub(super) to: &'a Name,
    pub(super) replace: bool,
    /// Tag of the file that is copied, otherwise of the one that is replaced.
    pub(super) only_if: Option<ETag>,
    /// Attributes of the new file; only to begin. A copy has those of its file.
    pub(super) attributes: Option<&'a ObjectAttributes>,
}

impl Unfinished<Concat> {
    /// Takes the file that the peer asks to continue with.
    pub(super) fn take_concat(
        &mut self,
        request: ConcatRequest<'_>,
        offset: u64,
    ) -> Result<Concat, FileError> {
        let ConcatRequest { from, to, .. } = request;
        let is_it =
            |concat: &Concat| (concat.from.as_ref(), &concat.to, concat.upto) == (from, to, offset);
        self.take(is_it).ok_or_else(|| match from {
            Some(from) => FileError::refused("copy", from, "no such copy is under way"),
            None => FileError::refused("write", to, "no such file is being put together"),
        })
    }
}

impl Concat {
    /// Opens the new file, and the one that it is a copy of, with the rights of the peer, as for a put
    /// and a get.
    pub(super) fn begin(peer: &ServedPeer, request: ConcatRequest<'_>) -> Result<Self, FileError> {
        let ConcatRequest { from, to, .. } = request;
        let (to_do, verb) = match from {
            Some(_) => ("copy to", "copy"),
            None => ("write", "write"),
        };
        peer.check_writable(to_do, to)?;
        let lease = peer.try_lease_files(OF_SOURCE + OF_TARGET, verb, from.unwrap_or(to))?;
        let part = from.map(|from| Part::open(peer, verb, from)).transpose()?;
        if let (Some(part), Some(tag)) = (&part, request.only_if) {
            check_tag(part.stat.etag, tag, verb, &part.name)?;
        }
        let source = part.as_ref().map(|part| &part.source);
        let put = Put {
            name: to.clone(),
            offer: Offer {
                transfer: TransferId(0),
                source: source.map_or_else(SourceIdentity::default, |source| source.identity),
                chunk_log2: ChunkSize::DEFAULT.log2(),
                mode: source.map_or(0o666, |source| source.mode & 0o777),
                kind: source.is_none().then_some(OfferKind::Pipe),
                data: None,
                object: None,
            },
            options: PutOptions {
                replace: request.replace,
                only_if: request.only_if.filter(|_| source.is_none()),
                restart: true,
                ..PutOptions::default()
            },
            into: None,
            entry: None,
            attributes: match source {
                Some(source) => source.attributes(),
                None => request.attributes.cloned(),
            },
        };
        let (target, _) = peer.open_target_now(&put)?;
        Ok(Self {
            to: to.clone(),
            target,
            upto: 0,
            from: from.cloned(),
            digest: part.as_ref().and_then(|part| part.stat.digest),
            part,
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
            Some(part) if part.name == *name && self.from.is_some() => part,
            _ => Part::open(peer, "append", name)?,
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
        self.target.commit(self.digest)
    }

    /// Returns the answer to a request, with the metadata of what is complete.
    pub(super) fn progress(&self, complete: Option<ObjectStat>) -> AnswerKind {
        AnswerKind::Copied {
            upto: self.upto,
            copy: complete,
        }
    }
}

impl Part {
    fn open(peer: &ServedPeer, verb: &'static str, name: &Name) -> Result<Self, FileError> {
        let (source, stat) = peer.open_object(verb, name)?;
        Ok(Self {
            name: name.clone(),
            source,
            stat,
            upto: 0,
        })
    }
}
