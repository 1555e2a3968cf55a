//! Limits of the benchmarks that peers run, and their queue.

use std::sync::{Arc, PoisonError, RwLock};

use nicstripe_bench::{Admissions, BenchLimits};

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
        let limits = self.limits.read();
        limits.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_limits(&self, limits: BenchLimits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}
