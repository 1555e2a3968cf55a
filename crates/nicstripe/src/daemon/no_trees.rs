//! Stand-in for `trees.rs` without the feature `trees`: refuses trees.

use std::sync::Arc;

use nicstripe_proto::message::{GetTree, PutTree};

use super::served_peer::ServedPeer;
use crate::{
    file::FileError,
    session::{SessionHandle, kind::Opened},
};

#[derive(Debug)]
pub(super) struct Trees;

impl Trees {
    pub(super) fn new(_: &Arc<ServedPeer>) -> Self {
        Self
    }

    pub(super) async fn receive(
        self: Arc<Self>,
        _: PutTree,
        _: SessionHandle,
    ) -> Result<Opened, FileError> {
        Err(FileError::refused("receive", "a tree", NO_TREES))
    }

    pub(super) async fn send(
        self: Arc<Self>,
        _: GetTree,
        _: SessionHandle,
    ) -> Result<Opened, FileError> {
        Err(FileError::refused("send", "a tree", NO_TREES))
    }
}

const NO_TREES: &str = "this daemon does not support trees";
