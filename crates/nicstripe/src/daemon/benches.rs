//! Limits of the benchmarks that peers run, and their queue.

use std::sync::Arc;

use nicstripe_bench::{Admissions, BenchLimits};
use parking_lot::RwLock;

use crate::session::SessionHandle;

/// Limits of the benchmarks of all peers, and their queue.
#[derive(Debug, Default)]
pub(super) struct Benches {
    limits: RwLock<BenchLimits>,
    pub(super) queue: Arc<Admissions<SessionHandle>>,
}

impl Benches {
    pub(super) fn of(limits: BenchLimits) -> Self {
        Self {
            limits: RwLock::new(limits),
            ..Self::default()
        }
    }

    pub(super) fn limits(&self) -> BenchLimits {
        self.limits.read().clone()
    }

    pub(super) fn set_limits(&self, limits: BenchLimits) {
        *self.limits.write() = limits;
    }
}
