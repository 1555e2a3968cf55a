//! Tests of benchmarks: loads over several paths, and the received bytes that count for a run.

use nicstripe_bench::{BenchCommand, BenchNews};
use nicstripe_proto::{
    BitRate, SessionConfig,
    message::{BenchAsk, BenchBody, BenchSample, RunNumber, RunOrder},
};
use nicstripe_sim::End;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::lab::{Lab, in_virtual_time, ms, secs};
use crate::session::{BenchInput, Command};

/// Benchmark of a lab's session that the daemon has admitted.
struct Bench {
    lab: Lab,
    news: mpsc::Receiver<BenchNews>,
    /// Samples of the client and of the daemon.
    samples: [Vec<BenchSample>; 2],
}

impl Bench {
    /// Starts a benchmark.
    async fn admitted(lab: Lab) -> Self {
        // The paths connect.
        sleep(ms(10)).await;
        let (owner, news) = mpsc::channel(4096);
        let mut bench = Self {
            lab,
            news,
            samples: Default::default(),
        };
        bench.command(BenchCommand::Attach(owner)).await;
        let (id, seconds) = ([1; 16], 60);
        bench.tell(BenchBody::Ask(BenchAsk { id, seconds })).await;
        bench
            .hear(|body| matches!(body, BenchBody::Admitted(_)))
            .await;
        bench
    }

    async fn command(&self, command: BenchCommand) {
        let command = Command::Bench(BenchInput::Command(command));
        self.lab.command(command).await;
    }

    async fn tell(&self, body: BenchBody) {
        self.command(BenchCommand::Tell(Box::new(body))).await;
    }

    /// Starts a run that loads these paths towards the given ends.
    async fn begin(&mut self, run: u32, to: &[End], paths: &[u16]) {
        let order = RunOrder {
            run,
            to_daemon: to.contains(&End::B),
            to_client: to.contains(&End::A),
            paths: paths.to_vec(),
            longest_ms: 20_000,
            interval_ms: 100,
            message_bytes: 1 << 18,
            socket_buffer: None,
        };
        self.samples = Default::default();
        self.tell(BenchBody::Run(order)).await;
        self.hear(|body| matches!(body, BenchBody::Ready(_))).await;
    }

    async fn stop(&mut self, run: u32) {
        self.tell(BenchBody::Stop(RunNumber { run })).await;
        self.stopped(run).await;
    }

    async fn stopped(&mut self, run: u32) {
        let stopped = BenchBody::Stopped(RunNumber { run });
        self.hear(|body| *body == stopped).await;
    }

    /// Waits until the daemon sends such a message.
    async fn hear(&mut self, is_it: impl Fn(&BenchBody) -> bool) {
        let heard = async {
            loop {
                match self.news.recv().await.expect("the session ended") {
                    BenchNews::Said(BenchBody::Sample(sample), _) => self.samples[1].push(sample),
                    BenchNews::Sample(sample, _) => self.samples[0].push(sample),
                    BenchNews::Said(body, _) if is_it(&body) => break,
                    _ => {}
                }
            }
        };
        timeout(secs(4), heard).await.expect("the daemon is silent");
    }

    /// Returns the rate in Mbit/s that this end has counted on a path in the run.
    fn rate(&self, at: End, path: usize) -> f64 {
        let samples = &self.samples[at as usize];
        let last = samples.iter().find(|sample| sample.last);
        let (first, last) = (&samples[0], last.expect("no last sample"));
        let bytes = last.paths[path].received - first.paths[path].received;
        bytes as f64 * 8.0 / (last.at_us - first.at_us) as f64
    }

    /// Asserts that a path carried between `least` and 1 of `mbit` Mbit/s to this end.
    fn assert_rate(&self, at: End, path: usize, mbit: f64, least: f64) {
        let part = self.rate(at, path) / mbit;
        assert!((least..=1.0).contains(&part), "{at:?} path {path}: {part}");
    }
}

#[test]
fn each_path_carries_what_it_can_beside_slower_ones_and_both_ways() {
    in_virtual_time(async {
        let mut bench = Bench::admitted(Lab::new(1, &[100, 100, 10]).await).await;
        bench.begin(1, &[End::B], &[0, 1, 2]).await;
        sleep(secs(1)).await;
        bench.stop(1).await;
        for (path, mbit) in [(0, 100.0), (1, 100.0), (2, 10.0)] {
            bench.assert_rate(End::B, path, mbit, 0.98);
            assert_eq!(bench.rate(End::A, path), 0.0, "nothing was to be returned");
        }
        // Data of the run on the slow link does not count for the next.
        sleep(secs(1)).await;
        let unloaded = bench.lab.links.delivered(1, End::A);
        bench.begin(2, &End::BOTH, &[0, 2]).await;
        sleep(secs(2)).await;
        bench.stop(2).await;
        for end in End::BOTH {
            bench.assert_rate(end, 0, 100.0, 0.97);
            bench.assert_rate(end, 1, 10.0, 0.97);
        }
        let more = bench.lab.links.delivered(1, End::A) - unloaded;
        assert!(
            more < 1 << 20,
            "a path outside the run carried {more} bytes"
        );
    });
}

#[test]
fn what_comes_after_the_end_of_a_run_does_not_count_for_it_nor_for_the_next() {
    in_virtual_time(async {
        let mut bench = Bench::admitted(Lab::new(2, &[100, 10]).await).await;
        bench.begin(1, &[End::B], &[0, 1]).await;
        sleep(ms(500)).await;
        bench.stop(1).await;
        let counted = bench.samples[1].pop().unwrap().paths[1].received;
        let links = bench.lab.links.clone();
        let arrived = links.delivered(1, End::A);
        bench.begin(2, &[End::B], &[0, 1]).await;
        sleep(ms(500)).await;
        let late = links.delivered(1, End::A) - arrived;
        bench.stop(2).await;
        assert!(late > 1 << 17, "{late} bytes were in flight");
        assert_eq!(bench.samples[1][0].paths[1].received, counted);
        assert!((0..2).all(|path| bench.rate(End::B, path) > 1.0));
    });
}

#[test]
fn a_path_that_is_cut_in_the_middle_costs_the_others_nothing_and_goes_on_when_it_is_back() {
    in_virtual_time(async {
        let mut bench = Bench::admitted(Lab::new(3, &[50, 50]).await).await;
        bench.begin(1, &End::BOTH, &[0, 1]).await;
        let began = bench.lab.now();
        bench.lab.at(began + secs(1), |links| links.cut(0));
        bench.lab.at(began + secs(2), |links| links.heal(0));
        sleep(secs(4)).await;
        bench.stop(1).await;
        for end in End::BOTH {
            let samples = &bench.samples[end as usize];
            let received = |at: usize| samples[at].paths[0].received;
            let (cut, last) = (received(19) - received(0), received(samples.len() - 1));
            assert!(
                last - received(0) > cut + cut / 2,
                "{end:?}: the returned path is loaded again"
            );
            bench.assert_rate(end, 1, 50.0, 0.97);
        }
    });
}

#[test]
fn stopping_works_while_a_path_is_lost() {
    for (path, delay) in [(0, 0), (0, 1), (1, 0), (1, 5)] {
        in_virtual_time(async move {
            let mut bench = Bench::admitted(Lab::new(4, &[100, 100]).await).await;
            bench.begin(1, &End::BOTH, &[0, 1]).await;
            sleep(ms(200)).await;
            bench.tell(BenchBody::Stop(RunNumber { run: 1 })).await;
            sleep(ms(delay)).await;
            bench.lab.links.cut(path);
            bench.stopped(1).await;
            sleep(ms(300)).await;
            let other = |bench: &Bench| bench.lab.links.delivered(1 - path, End::A);
            let before = other(&bench);
            sleep(secs(1)).await;
            assert!(other(&bench) - before < 1 << 14, "the load goes on");
        });
    }
}

#[test]
fn a_limit_holds_for_loads_as_well() {
    in_virtual_time(async {
        let config = SessionConfig {
            rate_limit: Some(BitRate::from_mbit(50)),
            ..SessionConfig::default()
        };
        let cap = Some(BitRate::from_mbit(10));
        let lab = Lab::with(6, &[100, 100], config, cap).await;
        let mut bench = Bench::admitted(lab).await;
        bench.begin(1, &[End::B], &[0, 1]).await;
        sleep(secs(4)).await;
        bench.stop(1).await;
        // Each path has its share of the limit, and the first at most its own.
        for (path, mbit) in [(0, 10.0), (1, 25.0)] {
            let part = bench.rate(End::B, path) / mbit;
            assert!((0.98..=1.01).contains(&part), "path {path}: {part}");
        }
    });
}
