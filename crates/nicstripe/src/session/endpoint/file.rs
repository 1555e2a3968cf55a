//! Files and block devices, which are read and written at any offset.

use std::{fs, io, os::unix::fs::FileTypeExt, path::PathBuf, sync::Arc};

use nicstripe_proto::{
    Acceptance, Offer, TransferId,
    message::{Get, Put, PutOptions},
};

use super::{Scope, Sink, SinkOpened, Source, request};
use crate::{
    file::{self, FileError, TargetRequest, make_parents, open_parent},
    storage::Target,
};

/// Source of a file that is open for reading.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<file::Source>,
    /// Request to store the file; `None` in a daemon, whose peer has requested it.
    put: Option<Box<Put>>,
}

impl FileSource {
    /// Creates the source of a file that the peer has requested.
    pub(crate) fn requested(file: file::Source) -> Self {
        Self {
            file: Arc::new(file),
            put: None,
        }
    }

    /// Creates the source of a file that the peer is asked to store. Replaces the offer in `put`.
    pub(crate) fn stored(file: file::Source, put: Box<Put>) -> Self {
        Self {
            put: Some(put),
            ..Self::requested(file)
        }
    }

    fn offer(&self, transfer: TransferId) -> Offer {
        Offer {
            transfer,
            source: self.file.identity,
            chunk_log2: self.file.grid().chunk_size.log2(),
            mode: self.file.mode & 0o777,
            kind: None,
            data: self.file.data(),
        }
    }
}

impl Source for FileSource {
    fn announce(&mut self, at: &mut Scope<'_>) {
        at.session.prepare(at.transfer, self.file.offering.clone());
        let offer = self.offer(at.transfer);
        let offered = match self.put.take() {
            Some(put) => at.session.put(Put { offer, ..*put }),
            None => at.session.offer(offer),
        };
        // Own offers use a valid chunk size and an existing file.
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    fn file(&self) -> Option<&Arc<file::Source>> {
        Some(&self.file)
    }
}

/// Open target of a file that this end receives: a file, or a part of a storage.
#[derive(Debug)]
pub(crate) struct FileSink(Arc<Target>);

impl FileSink {
    pub(crate) fn boxed(target: Target) -> Box<dyn Sink> {
        Box::new(Self(Arc::new(target)))
    }
}

impl Sink for FileSink {
    fn start(&mut self, _at: &mut Scope<'_>) -> io::Result<Acceptance> {
        Ok(Acceptance {
            holes: self.0.awaits_holes,
            delta: self.0.delta(),
            ..Acceptance::default()
        })
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.grid.known_size())
    }

    fn target(&self) -> Option<&Arc<Target>> {
        Some(&self.0)
    }
}

/// Local file that a client fetches, opened once the daemon offers the data.
#[derive(Debug)]
pub(crate) struct LocalFile {
    pub(crate) get: Box<Get>,
    pub(crate) target: LocalTarget,
}

/// Local target of a file that a client fetches.
#[derive(Debug, Clone)]
pub(crate) struct LocalTarget {
    pub(crate) path: PathBuf,
    pub(crate) options: PutOptions,
    pub(crate) peer_key: [u8; 32],
}

impl Sink for LocalFile {
    fn request(&mut self, at: &mut Scope<'_>) {
        request(&self.get, at);
    }

    fn open(&mut self, offer: &Offer, at: &mut Scope<'_>) -> bool {
        let (target, offer, pool) = (self.target.clone(), offer.clone(), at.jobs.pool.clone());
        at.jobs.open_sink(at.transfer, async move {
            let opened = pool.call(move || target.open(&offer)).await;
            opened.unwrap_or_else(|| {
                let cause = io::Error::other("internal error");
                Err(FileError::new("open", "the target", cause))
            })
        });
        false
    }
}

impl LocalTarget {
    /// Opens the target with the rights of the local user.
    fn open(self, offer: &Offer) -> Result<SinkOpened, FileError> {
        // A device may be named by a symlink (/dev/disk). Other symlinks are replaced and not
        // followed.
        let is_device =
            fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_block_device());
        let device = is_device.then(|| self.path.canonicalize().ok()).flatten();
        let path = device.as_ref().unwrap_or(&self.path);
        if self.options.parents {
            make_parents(path)?;
        }
        let (dir, name) = open_parent(path)?;
        let (target, have) = file::Target::open(TargetRequest {
            dir,
            name: name.to_owned(),
            offer: offer.clone(),
            options: self.options,
            peer_key: self.peer_key,
            attributes: None,
        })?;
        Ok((FileSink::boxed(target.into()), have))
    }
}
