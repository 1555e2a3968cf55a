//! Tree transfers of a daemon, requested by a peer.

use std::io;

use nicstripe_proto::{
    FailCode,
    message::{GetTree, MOST_SOURCES, PutTree},
};

use super::service::{MOST_TREES, Service, leased};
use crate::{
    file::{FileError, OF_TREE},
    session::SessionHandle,
    text::shown_path,
    tree::{
        allowance::{Receiving, Sending, of_request},
        channel::{ReceiverRun, SenderRun},
        filter::Filters,
        receiver::ReceiverRequest,
        sender::SenderRequest,
        walk::SendSource,
    },
    trust,
};

impl Service {
    /// Checks a peer's request to send a tree and reserves its resources. Returns the receiver,
    /// ready to run.
    pub(super) async fn prepare_receiver(
        &self,
        put: PutTree,
        session: &SessionHandle,
    ) -> Result<ReceiverRun, FileError> {
        let inbox = self.shared.inbox.as_ref();
        let promised = inbox.map(|inbox| inbox.of_tree(&put)).transpose()?;
        let PutTree {
            target,
            as_name,
            rules,
            heeds_memory,
            ..
        } = put;
        let name = shown_path(target.as_ref());
        let access = self.access;
        self.check_writable(&name)?;
        if rules.delete && access != trust::Access::Full {
            let why = "this peer may not delete here";
            return Err(FileError::not_permitted("delete in", name, why));
        }
        let root = self.served.root("receive a tree in", &name)?.clone();
        let least_and_most = if heeds_memory {
            Receiving::LEASE
        } else {
            (Receiving::UNHEEDING, Receiving::UNHEEDING)
        };
        let (reservation, memory) = self
            .reserve_tree(session, least_and_most, of_request(&rules.filters, &[]))
            .await?;
        let filters = Filters::new(&rules.filters)?;
        let request = ReceiverRequest {
            root,
            target,
            as_name,
            rules,
            peer_key: *self.resume_key.as_bytes(),
            append_only: access == trust::Access::AppendOnly,
            privileged: self.special_modes,
            list: false,
            promised,
            filters,
            allowance: Receiving::within(memory, heeds_memory),
        };
        Ok(request.into_run(reservation))
    }

    /// Checks a peer's request to fetch trees and reserves their resources. Returns the sender,
    /// ready to run.
    pub(super) async fn prepare_sender(
        &self,
        get: GetTree,
        session: &SessionHandle,
    ) -> Result<SenderRun, FileError> {
        let GetTree {
            sources,
            walk,
            rules,
            ..
        } = get;
        if sources.is_empty() || sources.len() > MOST_SOURCES {
            let why = io::Error::other(format!(
                "peer requested {} sources, expected 1 to {MOST_SOURCES}",
                sources.len()
            ));
            return Err(FileError::new("send", "trees", why).with_code(FailCode::Protocol));
        }
        let root = self.served.root("send", &"a tree")?;
        let names = walk.only.as_deref().unwrap_or_default();
        let (reservation, memory) = self
            .reserve_tree(session, Sending::LEASE, of_request(&rules.filters, names))
            .await?;
        let beneath = |name, contents| SendSource::Beneath {
            root: root.clone(),
            name,
            contents,
        };
        let request = SenderRequest {
            sources: sources
                .into_iter()
                .map(|source| beneath(source.name, source.content))
                .collect(),
            rules,
            walk,
            list: false,
            allowance: Sending::within(memory),
        };
        Ok(request.into_run(reservation))
    }

    /// Reserves a permit, file descriptors and between `least` and `most` bytes of memory for a
    /// tree transfer, and returns the reservation with the remaining bytes. `request_size` is
    /// the size of the request's filters and names in bytes, which counts towards the memory.
    async fn reserve_tree(
        &self,
        session: &SessionHandle,
        (least, most): (usize, usize),
        request_size: usize,
    ) -> Result<(impl Send + 'static + use<>, usize), FileError> {
        let permit = self.trees.clone().try_acquire_owned().map_err(|_| {
            let why = io::Error::other(format!(
                "limit of {MOST_TREES} concurrent trees per session reached"
            ));
            FileError::new("begin", "another tree", why).with_code(FailCode::Refused)
        })?;
        let key = *self.key.as_bytes();
        let memory = self.shared.memory.of(key);
        let memory = memory.lease_between(least + request_size, most + request_size);
        let memory = leased(memory, session, "tree").await?;
        let files = self.shared.trees.of(key);
        let files = leased(files.lease(OF_TREE), session, "tree").await?;
        let left = memory.count.saturating_sub(request_size);
        Ok(((permit, files, memory), left))
    }
}
