//! Request of a tree and the counters that all parts of its receiver share.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    rc::Rc,
    sync::Arc,
};

use nicstripe_proto::tree::{Entry, MOST_PENDING_WEIGHT, NodeKind};
use rustix::process::geteuid;

use super::{dirs::TreeDir, request::ReceiverRequest};
use crate::file::{Attributes, Lost, hidden_name};
use crate::tree::halt::{Halt, breach};

/// Request of a tree, and what its entries have in common. No part of the receiver changes it.
pub(super) struct Context {
    pub(super) request: ReceiverRequest,
    lost: Lost,
    pub(super) memory: Rc<Memory>,
}

impl Context {
    /// `lost` counts entries whose file system did not keep their attributes.
    pub(super) fn new(request: ReceiverRequest, lost: Lost) -> Rc<Self> {
        Rc::new(Self {
            request,
            lost,
            memory: Rc::default(),
        })
    }

    pub(super) fn attributes_of_new(&self, entry: &Entry, dir: &Arc<TreeDir>) -> Attributes {
        let attributes = Attributes::of_new(entry, &self.request.rules, dir.creation_mask())
            .privileged(self.request.privileged)
            .counted_by(&self.lost);
        // Without any to set, only an inherited ACL would need removal.
        let xattrs = attributes
            .xattrs
            .filter(|xattrs| !xattrs.is_empty() || dir.passes_acl_on());
        Attributes {
            xattrs,
            ..attributes
        }
    }

    /// Returns the attributes to set on an existing file or directory.
    pub(super) fn attributes_of_same(&self, entry: &Entry, with_time: bool) -> Attributes {
        Attributes::of_same(entry, &self.request.rules, with_time)
            .privileged(self.request.privileged)
            .counted_by(&self.lost)
    }

    /// Returns true if the sender may create a node of this kind. A device requires a privileged
    /// sender and a receiver that runs as root, because access to a device is equivalent to root.
    pub(super) fn may_have(&self, kind: NodeKind) -> bool {
        !kind.is_device() || (self.request.privileged && geteuid().is_root())
    }

    /// Like [`Memory::hold`]. Fails if too many attributes are pending.
    pub(super) fn hold_attributes(&self, weight: usize, footprint: usize) -> Result<Held, Halt> {
        let held = self.memory.hold(weight, footprint);
        if self.memory.has_too_many_attributes() {
            breach!("peer exceeded the limit of pending attributes");
        }
        Ok(held)
    }

    /// Returns the hidden name of a file or link from this sender that is not complete.
    pub(super) fn hidden_name(&self, name: &OsStr) -> OsString {
        hidden_name(name, &self.request.peer_key, "part")
    }
}

/// Memory of the entries that wait, in bytes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Size of buffered extended attributes.
    weight: Cell<usize>,
    footprint: Cell<usize>,
}

/// Memory of one waiting entry, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    memory: Rc<Memory>,
    weight: usize,
    footprint: usize,
}

impl Memory {
    pub(super) fn hold(self: &Rc<Self>, weight: usize, footprint: usize) -> Held {
        self.weight.set(self.weight.get() + weight);
        self.footprint.set(self.footprint.get() + footprint);
        Held {
            memory: self.clone(),
            weight,
            footprint,
        }
    }

    pub(super) fn footprint(&self) -> usize {
        self.footprint.get()
    }

    /// Returns true if the buffered attributes exceed [`MOST_WEIGHT`].
    pub(super) fn has_too_many_attributes(&self) -> bool {
        self.weight.get() > MOST_WEIGHT
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Memory { weight, footprint } = &*self.memory;
        weight.set(weight.get() - self.weight);
        footprint.set(footprint.get() - self.footprint);
    }
}

/// Limit on the extended attributes of unfinished entries in bytes. Four times the limit of a
/// correct sender, because a directory counts at the receiver before its end is announced.
const MOST_WEIGHT: usize = 4 * MOST_PENDING_WEIGHT;
