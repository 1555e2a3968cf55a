//! Requests of a client for transfers.

use crate::{
    id::TransferId,
    wire::message::{EntryRef, Exec, Get, GetTree, Put, PutTree},
};

/// Client's request for a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a transfer, and a put is the usual one"
)]
pub enum Request {
    /// Upload of a file.
    Put(Put),
    /// Download of a file.
    Get(Get),
    /// Upload of a tree.
    PutTree(PutTree),
    /// Download of trees.
    GetTree(GetTree),
    /// Batches of the tunnel multiplexer to the daemon.
    TunnelsUp(TransferId),
    /// Batches of the tunnel multiplexer to the client. Follows the request for the other
    /// direction.
    TunnelsDown(TransferId),
    /// Command to run, with the transfer of its standard input.
    Exec(Exec),
    /// Output, error output or status of a command, by its number in [`Exec::streams`]. Follows the
    /// request for the command.
    ExecOutput(TransferId),
}

impl Request {
    /// Returns the ID of the requested transfer.
    pub fn transfer(&self) -> TransferId {
        match self {
            Self::Put(put) => put.offer.transfer,
            Self::Get(get) => get.transfer,
            Self::PutTree(put) => put.transfer,
            Self::GetTree(get) => get.transfer,
            Self::Exec(exec) => exec.first,
            Self::TunnelsUp(transfer)
            | Self::TunnelsDown(transfer)
            | Self::ExecOutput(transfer) => *transfer,
        }
    }

    /// Returns the tree entry of a standalone file; `None` for other requests.
    pub fn entry(&self) -> Option<EntryRef> {
        match self {
            Self::Put(put) => put.entry,
            Self::Get(get) => get.entry,
            _ => None,
        }
    }

    /// Returns true if the daemon sends the data.
    pub fn is_download(&self) -> bool {
        match self {
            Self::Get(_) | Self::GetTree(_) | Self::TunnelsDown(_) | Self::ExecOutput(_) => true,
            Self::Put(_) | Self::PutTree(_) | Self::TunnelsUp(_) | Self::Exec(_) => false,
        }
    }

    /// Returns the rate in bit/s to which the client limits the daemon, if it does.
    pub fn limit_bps(&self) -> Option<u64> {
        match self {
            Self::Get(get) => get.limit_bps,
            Self::GetTree(get) => get.limit_bps,
            _ => None,
        }
    }
}
