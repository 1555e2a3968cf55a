//! Stand-in for `bench.rs` without the feature `bench`: a daemon refuses every benchmark.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use nicstripe_proto::{
    PathId, Session,
    message::{BenchBody, BenchRefusal, BenchRefused},
};

use super::{jobs::Jobs, path_connection::PathConnection, serve::Serve};

pub(crate) const SERVES_BENCH: bool = false;

pub(crate) trait ServeBench {}

impl<T> ServeBench for T {}

#[derive(Debug)]
pub(super) struct SessionBench;

pub(super) struct Tap<'a> {
    pub(super) session: &'a mut Session,
    pub(super) connections: &'a BTreeMap<PathId, PathConnection>,
    pub(super) jobs: &'a Jobs,
    pub(super) now: Instant,
}

impl SessionBench {
    pub(super) fn new(_: Option<Arc<dyn Serve>>) -> Self {
        Self
    }

    pub(super) fn next(&self) -> Option<Instant> {
        None
    }

    pub(super) fn is_running(&self) -> bool {
        false
    }

    pub(super) fn on_message(&mut self, body: BenchBody, tap: &mut Tap<'_>) {
        if matches!(body, BenchBody::Ask(_)) {
            let refused = BenchRefused {
                why: BenchRefusal::Disabled,
                retry_after_ms: None,
            };
            tap.session.send_bench_message(BenchBody::Refused(refused));
        }
    }

    pub(super) fn poll(&mut self, _: &mut Tap<'_>) {}
}
