//! Request to receive a tree.

use std::sync::Arc;

use nicstripe_proto::{Name, tree::TreeRules};

use super::promised::Promised;
use crate::{
    file::Root,
    tree::{allowance::Receiving, filter::Filters},
};

/// Request to receive a tree: its target and options.
pub(crate) struct ReceiverRequest {
    /// Directory to which the peer's paths are confined.
    pub(crate) root: Arc<Root>,
    /// Path of the target beneath `root`; `None` is the root itself.
    pub(crate) target: Option<Name>,
    /// True if the single top-level entry is stored under the target's name, unless the target is
    /// an existing directory.
    pub(crate) as_name: bool,
    pub(crate) rules: TreeRules,
    pub(crate) peer_key: [u8; 32],
    pub(crate) append_only: bool,
    /// True if the sender may set set-user-ID and similar attributes; see
    /// [`Attributes::privileged`](crate::file::Attributes).
    pub(crate) privileged: bool,
    /// True if the local user gets an event for each entry.
    pub(crate) list: bool,
    /// Entries that the sender must announce; `None` unless the local side requested them.
    pub(crate) promised: Option<Promised>,
    pub(crate) filters: Filters,
    pub(crate) allowance: Receiving,
}
