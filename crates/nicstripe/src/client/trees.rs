//! Trees: from what a user wants to what both ends do.

use std::path::{Path, PathBuf};

use nicstripe_proto::{Name, TransferId};

use super::Inner;
use crate::{
    error::Error,
    session::{Alone, Command, Reply},
    tree::TreeOptions,
};

pub(super) fn put(
    _inner: &Inner,
    _transfer: TransferId,
    _sources: &[PathBuf],
    _name: Option<Name>,
    _as_name: bool,
    _options: &TreeOptions,
    _alone: Alone,
    _reply: Reply,
) -> Result<Command, Error> {
    Err(Error::Cancelled { resumable: false })
}

pub(super) fn get(
    _inner: &Inner,
    _transfer: TransferId,
    _peer_key: [u8; 32],
    _sources: &[(Option<Name>, bool)],
    _target: &Path,
    _as_name: bool,
    _options: &TreeOptions,
    _limit_bps: Option<u64>,
    _alone: Alone,
    _reply: Reply,
) -> Result<Command, Error> {
    Err(Error::Cancelled { resumable: false })
}
