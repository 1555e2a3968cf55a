//! Benchmark support of sessions without the feature `bench`: a daemon rejects every benchmark, and
//! a client starts none.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    PathId,
    message::{BenchBody, BenchRefusal, BenchRefused},
};

use super::Driver;
use crate::session::input::BenchInput;

#[derive(Debug, Default)]
pub(super) struct SessionBench;

impl SessionBench {
    pub(super) fn next(&self) -> Option<Instant> {
        None
    }

    pub(super) fn is_running(&self) -> bool {
        false
    }
}

impl Driver {
    pub(super) fn on_bench_input(&self, input: BenchInput, _now: Instant) {
        match input {}
    }

    pub(super) fn on_bench_message(&mut self, body: BenchBody, _now: Instant) {
        let Some(service) = &self.config.service else {
            return;
        };
        if let BenchBody::Ask(_) = body {
            let why = service.bench_refusal().unwrap_or(BenchRefusal::Disabled);
            self.session
                .send_bench_message(BenchBody::Refused(BenchRefused {
                    why,
                    retry_after_ms: None,
                }));
        }
    }

    pub(super) fn poll_bench(&self, _now: Instant) {}

    pub(super) fn release_bench(&self, _now: Instant) {}

    pub(super) fn on_pinged(&self, _path: PathId, _times: Vec<Duration>) {}
}
