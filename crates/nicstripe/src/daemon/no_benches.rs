//! Stand-in for `benches.rs` without the feature `bench`: the session refuses benchmarks.

#[derive(Debug, Clone, Default)]
pub(super) struct BenchLimits {}

#[derive(Debug)]
pub(super) struct Benches;

impl Benches {
    pub(super) fn new(_: BenchLimits) -> Self {
        Self
    }
}
