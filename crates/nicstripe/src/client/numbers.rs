//! Numbers of a session's paths: 64 for as long as it lasts.

use std::{collections::BTreeMap, net::IpAddr};

use nicstripe_proto::{LAST_PATH, PathId};

use super::linker::FIRST_PATH;
use crate::session::PathPlan;

/// Gives each path its number.
///
/// A link that was given up and is made again gets the numbers that it had: what is counted by path stays that link's, and a cable that comes
/// and goes does not use them up.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u16,
    /// Those that are free again, by our interface and the peer's address.
    free: BTreeMap<(String, IpAddr), Vec<PathId>>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: FIRST_PATH.0 + 1, free: BTreeMap::new() }
    }
}

impl Numbers {
    /// How many no path has had.
    pub(super) fn unused(&self) -> usize {
        usize::from((LAST_PATH.0 + 1).saturating_sub(self.next))
    }

    /// Returns the number of a new path; `None` if all were used for other links.
    pub(super) fn take(&mut self, plan: &PathPlan) -> Option<PathId> {
        let had = self.free.get_mut(&link(plan)).and_then(Vec::pop);
        had.or_else(|| {
            let number = (self.next <= LAST_PATH.0).then_some(PathId(self.next))?;
            self.next += 1;
            Some(number)
        })
    }

    /// A path is given up.
    pub(super) fn give_back(&mut self, path: PathId, plan: &PathPlan) {
        self.free.entry(link(plan)).or_default().push(path);
    }

    #[cfg(test)]
    pub(super) fn use_up(&mut self) {
        self.next = LAST_PATH.0 + 1;
    }
}

fn link(plan: &PathPlan) -> (String, IpAddr) {
    (plan.interface.clone(), plan.remote.ip())
}
