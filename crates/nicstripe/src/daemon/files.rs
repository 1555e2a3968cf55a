//! Sources and sinks of the files that a peer requests and sends.

use std::{io, sync::Arc};

use nicstripe_proto::{
    FailCode, Name, Offer,
    message::{Get, Put, PutOptions},
};

use super::served_peer::{ServedPeer, leased, only_appends};
use crate::{
    file::{FileError, Lease, OF_SOURCE, OF_TARGET, ReadOptions, lacked_directory},
    session::{
        SessionHandle,
        kind::{
            Opened,
            entry::{open_source, open_target},
            file::{FileSink, FileSource},
            tree::TreeThread,
        },
    },
    storage::TargetOpened,
    trust::Access,
};

impl ServedPeer {
    pub(super) async fn open_source(
        self: Arc<Self>,
        get: Get,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        let lease = self.lease_files(OF_SOURCE, &session).await?;
        let opened = match get.entry {
            Some(entry) => open_source(tree.as_ref(), entry.id).await?,
            None => {
                self.check_readable("open", &get.name)?;
                let options = ReadOptions {
                    allow_changing: get.allow_changing,
                    compress: get.compress,
                    range: get.range,
                };
                let peer = self.clone();
                let open = move || peer.served.open_source(&get.name, options);
                let opened = self.pool().call(open).await;
                opened.unwrap_or_else(|| Err(io_threads_gone("a file")))?
            }
        };
        let mut file = opened.keep(lease);
        let holes = file.hole_memory();
        if holes > FREE_HOLES {
            let memory = self.memory();
            file = file.keep(leased(memory.lease(holes), &session, "sparse file").await?);
        }
        Ok((Box::new(FileSource::new(file, None)), Vec::new()))
    }

    pub(super) async fn open_sink(
        self: Arc<Self>,
        put: Put,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        if put.entry.is_none() {
            self.check_writable("receive", &put.name)?;
        }
        let leases = self.lease_target(&put.offer, &session).await?;
        let attempt = || {
            let (peer, tree, put) = (self.clone(), tree.clone(), put.clone());
            async move {
                if let Some(entry) = put.entry {
                    let opened = open_target(tree.as_ref(), entry.id, put.offer, put.options);
                    let (target, have) = opened.await?;
                    return Ok((target.into(), have));
                }
                let pool = peer.pool();
                let opened = pool.call(move || peer.open_target_now(&put)).await;
                opened.unwrap_or_else(|| Err(io_threads_gone("the target")))
            }
        };
        let (target, have) = self.once_free(&session, attempt).await?;
        Ok((FileSink::boxed(target.keep(leases)), have))
    }

    /// Leases the descriptors of a file to receive, and the memory of its map of holes.
    async fn lease_target(
        &self,
        offer: &Offer,
        session: &SessionHandle,
    ) -> Result<Vec<Lease>, FileError> {
        let mut leases = vec![self.lease_files(OF_TARGET, session).await?];
        if offer.data.is_some() {
            let memory = self.memory();
            leases.push(leased(memory.lease(OF_HOLES), session, "sparse file").await?);
        }
        Ok(leases)
    }

    /// Opens the target of a put. Directories that were made for it are made again if they are removed
    /// before they have it, as empty ones are when another put fails.
    pub(super) fn open_target_now(&self, put: &Put) -> Result<TargetOpened, FileError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_open_target(put) {
                Err(error)
                    if put.options.parents
                        && tries < MOST_TRIES
                        && lacked_directory(&error.source) => {}
                opened => return opened,
            }
        }
    }

    fn try_open_target(&self, put: &Put) -> Result<TargetOpened, FileError> {
        let name = match &put.into {
            Some(own) if self.served.is_directory(&put.name) => put
                .name
                .join(own.file_name())
                .map_err(|error| FileError::refused("receive", &put.name, error))?,
            _ => put.name.clone(),
        };
        if let Some(inbox) = &self.shared.inbox {
            inbox.check(&name, put)?;
        }
        if put.options.parents {
            self.make_parents(&name)?;
        }
        let append_only = self.access == Access::AppendOnly;
        let asked = put.options;
        if asked.slice.is_some() && (append_only || self.shared.inbox.is_some()) {
            return Err(only_appends("write a range of", &name));
        }
        let replaces = asked.replace || asked.force || asked.delta || asked.in_place;
        if append_only && asked.only_if.is_some() {
            return Err(only_appends("replace", &name));
        }
        let options = match () {
            // A dry run changes nothing, so any name is permitted.
            () if asked.trial => PutOptions {
                replace: true,
                restart: true,
                trial: true,
                ..PutOptions::default()
            },
            () if append_only => PutOptions {
                replace: false,
                force: false,
                delta: false,
                in_place: false,
                ..asked
            },
            () => asked,
        };
        self.served
            .open_target(
                &name,
                &put.offer,
                options,
                put.attributes.as_ref(),
                self.resume_key,
            )
            .map_err(|error| match error.code {
                FailCode::Exists if append_only && replaces => only_appends("replace", &name),
                _ => error,
            })
    }

    fn make_parents(&self, name: &Name) -> Result<(), FileError> {
        let mut components: Vec<&[u8]> = name.components().collect();
        components.pop();
        match Name::new(components) {
            Ok(parent) => self.make_dir(&parent),
            // The name has no parent below the root.
            Err(_) => Ok(()),
        }
    }
}

pub(super) fn io_threads_gone(what: &str) -> FileError {
    FileError::new("open", what, io::Error::other("the I/O threads have ended"))
}

/// Attempts to open a target in directories that others remove.
const MOST_TRIES: u32 = 10;

/// Memory for the map of holes of a received file in bytes: 65,536 extents of 16 bytes, in the list
/// of the protocol, in that of the target, and as chunks.
const OF_HOLES: usize = 4 << 20;

/// Memory of the map of holes of a sent file that is not charged to the peer, in bytes.
const FREE_HOLES: usize = 16 << 10;
