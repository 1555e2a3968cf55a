//! Tests of trusted clients that misbehave in a benchmark or vanish: others do not wait for them,
//! and memory stays bounded.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    Message,
    load::MOST_STALE,
    message::{BenchAsk, BenchBody, RunNumber},
};

use super::{
    Stage,
    clients::{echo_frame, load_frame, run_of_all},
    wire::Wire,
    within,
};
use crate::{BenchPlan, bench::Phase};

impl Wire {
    async fn bench(&mut self, body: BenchBody) {
        self.say(&Message::Bench(body)).await.unwrap();
    }

    /// Waits for a benchmark message that satisfies `is_wanted`, and skips others.
    async fn told(&mut self, is_wanted: impl Fn(&BenchBody) -> bool) {
        loop {
            if let Message::Bench(body) = self.message().await.unwrap()
                && is_wanted(&body)
            {
                return;
            }
        }
    }

    async fn admitted(stage: &Stage) -> Self {
        let mut wire = Self::session([127, 0, 3, 1], stage.address(), &stage.client).await;
        wire.bench(BenchBody::Ask(BenchAsk {
            id: [9; 16],
            seconds: 1,
        }))
        .await;
        wire.told(|body| matches!(body, BenchBody::Admitted(_)))
            .await;
        wire
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_keeps_nobody_waiting_for_long() {
    let stage = Stage::new().await;
    let mut gone = Wire::admitted(&stage).await;
    gone.bench(BenchBody::Run(run_of_all())).await;
    gone.told(|body| matches!(body, BenchBody::Ready(_))).await;
    drop(gone);
    let began = Instant::now();
    let client = stage
        .client(&["127.0.0.9=127.0.1.1"])
        .connect("127.0.1.1")
        .await
        .unwrap();
    let plan = BenchPlan {
        load: Duration::from_millis(300),
        warm_up: Duration::ZERO,
        repeats: 1..=1,
        phases: vec![Phase::Together],
        ..BenchPlan::default()
    };
    let report = within(
        client
            .bench(BenchPlan {
                interval: Duration::from_millis(100),
                ..plan
            })
            .finish(),
    )
    .await
    .unwrap();
    assert!(
        report.complete && began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_for_echoes_and_does_not_read_loses_its_connection() {
    let stage = Stage::new().await;
    let mut evil = Wire::admitted(&stage).await;
    let echo = echo_frame(1 << 16);
    // After the daemon has closed, sent data is dropped without an error.
    for _ in 0..512 {
        within(evil.send_bytes(&echo)).await.unwrap();
    }
    within(evil.end()).await;
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_on_loading_when_its_run_is_over_loses_its_connection() {
    let stage = Stage::new().await;
    let mut evil = Wire::admitted(&stage).await;
    evil.bench(BenchBody::Run(super::clients::run_of_none()))
        .await;
    evil.told(|body| matches!(body, BenchBody::Ready(_))).await;
    evil.bench(BenchBody::Stop(RunNumber { run: 1 })).await;
    evil.told(|body| matches!(body, BenchBody::Stopped(_)))
        .await;
    let load = load_frame(1, 1 << 18);
    for _ in 0..(MOST_STALE >> 18) + 8 {
        within(evil.send_bytes(&load)).await.unwrap();
    }
    within(evil.end()).await;
    stage.still_serves("file").await;
}
