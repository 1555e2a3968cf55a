//! Files and block devices, which are read and written at any offset.

use std::{fs, io, os::unix::fs::FileTypeExt, path::PathBuf, sync::Arc};

use nicstripe_proto::{
    Acceptance, Offer,
    message::{EntryRef, Get, Put, PutOptions},
};

use super::{Kind, Opened, Scope, Upload, check_batches};
use crate::{
    file::{self, FileError, Sidecar, TargetRequest, make_parents, open_parent},
    report::{error::Error, metrics::TransferDirection},
    storage::Target,
};

#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<file::Source>,
    /// Where the peer is asked to store the file; `None` in a daemon, whose peer has requested it.
    stored: Option<Stored>,
}

/// Place at the peer for a file.
#[derive(Debug)]
pub(crate) enum Stored {
    Named(Upload),
    /// Standalone file of a tree, which knows its name.
    Entry(EntryRef, PutOptions),
}

impl FileSource {
    pub(crate) fn new(file: file::Source, stored: Option<Stored>) -> Self {
        let file = Arc::new(file);
        Self { file, stored }
    }
}

impl Kind for FileSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        at.session.prepare(at.transfer, self.file.offering.clone());
        let offer = Offer {
            transfer: at.transfer,
            source: self.file.identity,
            chunk_log2: self.file.grid().chunk_size.log2(),
            mode: self.file.mode & 0o777,
            kind: None,
            data: self.file.data(),
            object: match self.stored {
                Some(_) => None,
                None => self.file.object(),
            },
        };
        let offered = match &self.stored {
            Some(Stored::Named(upload)) => at.session.put(upload.put(offer)),
            Some(Stored::Entry(entry, options)) => {
                at.session.put(Put::of_entry(*entry, offer, *options))
            }
            None => at.session.offer(offer),
        };
        // Own offers use a valid chunk size and an existing file.
        debug_assert!(offered.is_ok(), "{offered:?}");
        Ok(())
    }

    fn size(&self) -> Option<u64> {
        Some(self.file.identity.size)
    }

    fn file(&self) -> Option<&Arc<file::Source>> {
        Some(&self.file)
    }
}

/// Open target of a file that this end receives: a file, or a part of a storage.
#[derive(Debug)]
pub(crate) struct FileSink(Arc<Target>);

impl FileSink {
    pub(crate) fn boxed(target: Target) -> Box<dyn Kind> {
        Box::new(Self(Arc::new(target)))
    }
}

impl Kind for FileSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        at.accept(Acceptance {
            holes: self.0.awaits_holes,
            delta: self.0.delta(),
            ..Acceptance::default()
        });
        Ok(())
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
    pub(crate) download: Get,
    pub(crate) target: LocalTarget,
}

#[derive(Debug, Clone)]
pub(crate) struct LocalTarget {
    pub(crate) path: PathBuf,
    pub(crate) options: PutOptions,
    pub(crate) peer_key: [u8; 32],
}

impl Kind for LocalFile {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        at.get(&self.download);
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        check_batches(offer, false)?;
        let (target, offer, pool) = (self.target.clone(), offer.clone(), at.jobs.pool.clone());
        at.jobs.open(at.transfer, async move {
            let opened = pool.call(move || target.open(&offer)).await;
            opened.unwrap_or_else(|| {
                let cause = io::Error::other("internal error");
                Err(FileError::new("open", "the target", cause))
            })
        });
        Ok(())
    }
}

impl LocalTarget {
    /// Opens the target with the rights of the local user.
    fn open(self, offer: &Offer) -> Result<Opened, FileError> {
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
            sidecar: Sidecar::None,
        })?;
        Ok((FileSink::boxed(target.into()), have))
    }
}
