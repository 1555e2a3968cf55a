//! Path identifiers of a session, which has 64 for its lifetime.

use std::{collections::BTreeMap, net::IpAddr};

use nicstripe_proto::{LAST_PATH, PathId};

use crate::session::PathPlan;

/// Allocator of path identifiers.
///
/// A link that is retired and added again reuses its identifiers. This keeps per-path counters with
/// their link, and a flapping link does not exhaust the identifiers.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u16,
    /// Released identifiers, by local interface and remote address.
    free: BTreeMap<(String, IpAddr), Vec<PathId>>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            next: FIRST_PATH.0 + 1,
            free: BTreeMap::new(),
        }
    }
}

impl Numbers {
    /// Returns the number of identifiers that were never used.
    pub(crate) fn unused(&self) -> usize {
        usize::from((LAST_PATH.0 + 1).saturating_sub(self.next))
    }

    /// Allocates the identifier of a new path. Returns `None` if other links have used all
    /// identifiers.
    pub(crate) fn take(&mut self, plan: &PathPlan) -> Option<PathId> {
        let had = self.free.get_mut(&link(plan)).and_then(Vec::pop);
        had.or_else(|| {
            let number = (self.next <= LAST_PATH.0).then_some(PathId(self.next))?;
            self.next += 1;
            Some(number)
        })
    }

    pub(crate) fn release(&mut self, path: PathId, plan: &PathPlan) {
        self.free.entry(link(plan)).or_default().push(path);
    }

    #[cfg(test)]
    pub(crate) fn use_up(&mut self) {
        self.next = LAST_PATH.0 + 1;
    }
}

fn link(plan: &PathPlan) -> (String, IpAddr) {
    (plan.interface.clone(), plan.remote.ip())
}

/// Path of the first connection of a session.
pub(crate) const FIRST_PATH: PathId = PathId(0);
