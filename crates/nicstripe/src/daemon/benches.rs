//! State of the benchmarks that peers run against a daemon.

use std::sync::Arc;

use nicstripe_bench::Admissions;
pub(super) use nicstripe_bench::BenchLimits;
use parking_lot::RwLock;

use crate::session::SessionHandle;

#[derive(Debug)]
pub(super) struct Benches {
    pub(super) limits: RwLock<BenchLimits>,
    pub(super) queue: Arc<Admissions<SessionHandle>>,
}

impl Benches {
    pub(super) fn new(limits: BenchLimits) -> Self {
        Self {
            limits: RwLock::new(limits),
            queue: Arc::default(),
        }
    }
}
