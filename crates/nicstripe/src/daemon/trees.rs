//! Tree transfers of a daemon, requested by a peer.

use std::sync::Arc;

use nicstripe_proto::message::{GetTree, MOST_SOURCES, PutTree};
use tokio::sync::Semaphore;

use super::served_peer::{ServedPeer, leased};
use crate::{
    file::FileError,
    session::{
        SessionHandle,
        kind::{
            Opened,
            tree::{TreeSink, TreeSource},
        },
    },
    text::shown_path,
    tree::{
        allowance::{Receiving, Sending, of_request, of_walk},
        filter::Filters,
        receiver::ReceiverRequest,
        sender::SenderRequest,
        walk::SendSource,
    },
    trust::Access,
};

#[derive(Debug)]
pub(super) struct Trees {
    peer: Arc<ServedPeer>,
    permits: Arc<Semaphore>,
}

impl Trees {
    pub(super) fn new(peer: &Arc<ServedPeer>) -> Self {
        Self {
            peer: peer.clone(),
            permits: Arc::new(Semaphore::new(MOST_TREES)),
        }
    }

    /// Checks a peer's request to send a tree and reserves its resources. Returns the receiver's
    /// end, ready to run.
    pub(super) async fn receive(
        self: Arc<Self>,
        put: PutTree,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        self.peer.end_earlier_sessions(&session).await;
        let inbox = self.peer.shared.inbox.as_ref();
        let promised = inbox.map(|inbox| inbox.of_tree(&put)).transpose()?;
        let PutTree {
            target,
            as_name,
            rules,
            heeds_memory,
            ..
        } = put;
        let name = shown_path(target.as_ref());
        let access = self.peer.access;
        self.peer.check_writable("receive", &name)?;
        if rules.delete && access != Access::Full {
            let why = "this peer may not delete here";
            return Err(FileError::not_permitted("delete in", name, why));
        }
        let root = self.peer.served.root("receive a tree in", &name)?.clone();
        let least_and_most = if heeds_memory {
            Receiving::LEASE
        } else {
            (Receiving::UNHEEDING, Receiving::UNHEEDING)
        };
        let (reservation, memory) = self
            .reserve(&session, least_and_most, of_request(&rules.filters, &[]))
            .await?;
        let filters = Filters::new(&rules.filters)?;
        let request = ReceiverRequest {
            root,
            target,
            as_name,
            rules,
            peer_key: *self.peer.resume_key.as_bytes(),
            append_only: access == Access::AppendOnly,
            privileged: self.peer.rights.options().special_modes,
            list: false,
            promised,
            filters,
            allowance: Receiving::within(memory, heeds_memory),
        };
        let sink = TreeSink::new(request.into_run(reservation), None);
        Ok((Box::new(sink), Vec::new()))
    }

    /// Checks a peer's request to fetch trees and reserves their resources. Returns the sender's
    /// end, ready to run.
    pub(super) async fn send(
        self: Arc<Self>,
        get: GetTree,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        self.peer
            .check_readable("send trees of", &"this directory")?;
        let GetTree {
            sources,
            walk,
            rules,
            ..
        } = get;
        let count = sources.len();
        if !(1..=MOST_SOURCES).contains(&count) {
            let why = format!("peer requested {count} sources, expected 1 to {MOST_SOURCES}");
            return Err(FileError::violated("send", "trees", why));
        }
        let root = self.peer.served.root("send", &"a tree")?;
        let (reservation, memory) = self
            .reserve(&session, Sending::LEASE, of_walk(&rules.filters, &walk))
            .await?;
        let sources = sources.into_iter().map(|source| SendSource::Beneath {
            root: root.clone(),
            name: source.name,
            contents: source.content,
        });
        let request = SenderRequest {
            sources: sources.collect(),
            rules,
            walk,
            list: false,
            reports_large: false,
            allowance: Sending::within(memory),
        };
        let source = TreeSource::new(request.into_run(reservation), None);
        Ok((Box::new(source), Vec::new()))
    }

    /// Reserves a permit, file descriptors and between `least` and `most` bytes of memory for a
    /// tree transfer, and returns the reservation with the remaining bytes. `request_size` is
    /// the size of the request's filters and names in bytes, which counts towards the memory.
    async fn reserve(
        &self,
        session: &SessionHandle,
        (least, most): (usize, usize),
        request_size: usize,
    ) -> Result<(impl Send + 'static + use<>, usize), FileError> {
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| {
            let why = format!("limit of {MOST_TREES} concurrent trees per session reached");
            FileError::refused("begin", "another tree", why)
        })?;
        let memory = self.peer.memory();
        let memory = memory.lease_between(least + request_size, most + request_size);
        let memory = leased(memory, session, "tree").await?;
        let files = self.peer.shared.trees.of(self.peer.key());
        let files = leased(files.lease(OF_TREE), session, "tree").await?;
        let left = memory.count.saturating_sub(request_size);
        Ok(((permit, files, memory), left))
    }
}

/// Maximum number of concurrent tree transfers per session; `cp` uses one.
const MOST_TREES: usize = 4;

/// Number of file descriptors that a typical tree needs. A large tree uses more: up to
/// [`most_directories`] for directories of each kind, and some for the files being read or written.
const OF_TREE: usize = 48;
