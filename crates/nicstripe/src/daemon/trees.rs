//! Trees that a peer sends and asks for.

use std::io;

use nicstripe_proto::message::{GetTree, PutTree};

use super::Service;
use crate::{
    file::FileError,
    tree::port::{ReceiverRun, SenderRun},
};

impl Service {
    /// Gets ready to receive a tree.
    pub(crate) fn receive_tree(&self, put: PutTree) -> Result<ReceiverRun, FileError> {
        let _ = put;
        Err(FileError::new("receive", "the tree", io::Error::other("later")))
    }

    /// Gets ready to send trees.
    pub(crate) fn send_tree(&self, get: GetTree) -> Result<SenderRun, FileError> {
        let _ = get;
        Err(FileError::new("send", "the tree", io::Error::other("later")))
    }
}
