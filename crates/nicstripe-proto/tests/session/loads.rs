//! Tests of benchmarks: loads over several paths, and the received bytes that count for a run.

use std::time::Duration;

use nicstripe_proto::{
    PathError, PathId, Role, SessionConfig,
    message::{
        BenchAdmitted, BenchAsk, BenchBody, BenchRefusal, BenchRefused, BenchSample, Message,
        PathSample, RunNumber, RunOrder, RunReady,
    },
};
use nicstripe_sim::End;

use crate::{
    harness::{Lab, Seed, ms, secs},
    hostile::Victim,
};

/// Size of a load packet in bytes, in a lab whose links run at 1/64 of their nominal rate.
pub(crate) const LOAD_LEN: u64 = 1024;

impl Lab {
    pub(crate) fn on_bench(&mut self, end: End, body: BenchBody) {
        let session = &mut self.peer_mut(end).session;
        match &body {
            BenchBody::Ask(_) => assert!(
                session.send_bench_message(BenchBody::Admitted(BenchAdmitted { seconds: 60 }))
            ),
            BenchBody::Run(order) => {
                assert!(session.send_bench_message(BenchBody::Ready(RunReady {
                    run: order.run,
                    ..RunReady::default()
                })));
            }
            BenchBody::Stop(number) => {
                session.end_run();
                let last = BenchSample {
                    run: number.run,
                    paths: vec![PathSample::default()],
                    last: true,
                    ..BenchSample::default()
                };
                assert!(
                    session.send_bench_message(BenchBody::Sample(last))
                        && session.send_bench_message(BenchBody::Stopped(*number))
                );
            }
            _ => {}
        }
        self.peer_mut(end).bench.push(body);
    }

    pub(crate) fn on_load(&mut self, path: PathId, to: End, run: u32, bytes: u64) {
        let now = self.now();
        let peer = self.peer_mut(to);
        peer.session.handle_heard(path, now);
        let gate = peer.session.load_gate();
        assert!(run <= gate.latest, "load without leave");
        let (came, counted) = peer.loads.entry((run, path)).or_default();
        *came += bytes;
        *counted += if gate.counted == Some(run) { bytes } else { 0 };
    }

    fn admitted(mut self) -> Self {
        let now = self.now();
        for index in 0..self.links.len() {
            self.peers[0].session.add_path(PathId(index as u16), now);
            self.connect(PathId(index as u16));
        }
        self.run_until(ms(10));
        self.tell(BenchBody::Ask(BenchAsk {
            id: [1; 16],
            seconds: 10,
        }));
        self.run_until(ms(20));
        assert!(matches!(self.peers[0].bench[..], [BenchBody::Admitted(_)]));
        self
    }

    fn tell(&mut self, body: BenchBody) {
        assert!(
            self.peers[0].session.send_bench_message(body.clone()),
            "{body:?}"
        );
    }

    fn begin_run(&mut self, run: u32, to_daemon: bool, to_client: bool, paths: &[u16]) {
        self.tell(BenchBody::Run(order(run, to_daemon, to_client, paths)));
    }

    fn stop_run(&mut self, run: u32) {
        self.tell(BenchBody::Stop(RunNumber { run }));
    }

    fn counted(&self, end: End, run: u32, path: u16) -> u64 {
        self.peer(end)
            .loads
            .get(&(run, PathId(path)))
            .map_or(0, |(_, counted)| *counted)
    }

    fn is_stopped(&self, run: u32) -> bool {
        self.peers[0]
            .bench
            .contains(&BenchBody::Stopped(RunNumber { run }))
    }

    /// Returns the counted bytes of a path in a run, as a share of the capacity of a link of `mbit`
    /// Mbit/s during `time`.
    fn part(&self, end: End, run: u32, path: u16, mbit: u64, time: Duration) -> f64 {
        let most = mbit as f64 * 1e6 / 8.0 / self.scale as f64 * time.as_secs_f64();
        self.counted(end, run, path) as f64 / most
    }
}

fn order(run: u32, to_daemon: bool, to_client: bool, paths: &[u16]) -> RunOrder {
    RunOrder {
        run,
        to_daemon,
        to_client,
        paths: paths.to_vec(),
        longest_ms: 10_000,
        interval_ms: 500,
        message_bytes: 1 << 18,
        socket_buffer: None,
    }
}

#[test]
fn each_path_carries_what_it_can_beside_slower_ones_and_both_ways() {
    let mut lab = Lab::scaled(Seed(1), 0)
        .link(1000)
        .link(1000)
        .link(10)
        .admitted();
    lab.begin_run(1, true, false, &[0, 1, 2]);
    lab.run_until(ms(2020));
    for (path, mbit) in [(0, 1000), (1, 1000), (2, 10)] {
        let part = lab.part(End::B, 1, path, mbit, secs(2));
        assert!((0.98..=1.0).contains(&part), "path {path}: {part}");
    }
    assert_eq!(
        lab.peer(End::A).loads.len(),
        0,
        "nothing was to be returned"
    );
    lab.stop_run(1);
    lab.run_until(secs(4));
    assert!(lab.is_stopped(1));
    lab.begin_run(2, true, true, &[0, 2]);
    lab.run_until(secs(6));
    for (end, path, mbit) in [
        (End::A, 0, 1000),
        (End::A, 2, 10),
        (End::B, 0, 1000),
        (End::B, 2, 10),
    ] {
        let part = lab.part(end, 2, path, mbit, secs(2));
        assert!((0.97..=1.0).contains(&part), "{end:?} path {path}: {part}");
    }
    assert_eq!(
        lab.counted(End::B, 2, 1),
        0,
        "a path outside the run is unaffected"
    );
}

#[test]
fn what_comes_after_the_end_of_a_run_does_not_count_for_it_nor_for_the_next() {
    let mut lab = Lab::scaled(Seed(2), 0).link(1000).link(10).admitted();
    lab.begin_run(1, true, false, &[0, 1]);
    lab.run_until(secs(2));
    lab.stop_run(1);
    lab.run_while(secs(5), |lab| !lab.is_stopped(1));
    let (came, counted) = lab.peer(End::B).loads[&(1, PathId(0))];
    lab.begin_run(2, true, false, &[0, 1]);
    lab.run_until(lab.net.now() + secs(1));
    let (late, still) = lab.peer(End::B).loads[&(1, PathId(0))];
    assert!(
        late > came && still == counted,
        "{came} {late} {counted} {still}: data in flight arrived and was not counted"
    );
    assert!(lab.counted(End::B, 2, 0) > 0 && lab.counted(End::B, 2, 1) > 0);
}

#[test]
fn a_path_that_is_cut_in_the_middle_costs_the_others_nothing_and_goes_on_when_it_is_back() {
    let mut lab = Lab::scaled(Seed(3), 0).link(1000).link(1000).admitted();
    lab.begin_run(1, true, true, &[0, 1]);
    lab.at(secs(1), |lab| lab.cut(0));
    lab.run_until(ms(1900));
    let before = [lab.counted(End::A, 1, 0), lab.counted(End::B, 1, 0)];
    lab.at(secs(2), |lab| lab.heal(0));
    lab.run_until(secs(4));
    for (end, before) in [(End::A, before[0]), (End::B, before[1])] {
        assert!(
            lab.counted(end, 1, 0) > before + before / 2,
            "{end:?}: the returned path is loaded again"
        );
        let part = lab.part(end, 1, 1, 1000, ms(3980));
        assert!((0.97..=1.0).contains(&part), "{end:?}: {part}");
    }
    lab.stop_run(1);
    lab.run_while(secs(6), |lab| !lab.is_stopped(1));
}

#[test]
fn stopping_works_while_the_path_of_the_message_is_lost() {
    let mut lab = Lab::scaled(Seed(4), 0).link(1000).link(1000).admitted();
    lab.begin_run(1, true, true, &[0, 1]);
    lab.run_until(secs(1));
    lab.cut_after = Some((End::A, |message| {
        matches!(message, Message::Bench(BenchBody::Stop(_)))
    }));
    lab.stop_run(1);
    lab.run_while(secs(4), |lab| !lab.is_stopped(1));
    let counted = lab.counted(End::A, 1, 0);
    lab.run_until(lab.net.now() + secs(1));
    assert_eq!(lab.counted(End::A, 1, 0), counted);
}

#[test]
fn who_is_refused_in_the_middle_is_loaded_no_more_and_may_ask_again() {
    let mut lab = Lab::scaled(Seed(5), 0).link(1000).admitted();
    lab.begin_run(1, true, true, &[0]);
    lab.run_until(secs(1));
    let refused = BenchRefused {
        why: BenchRefusal::TimeOver,
        retry_after_ms: None,
    };
    assert!(
        lab.peers[1]
            .session
            .send_bench_message(BenchBody::Refused(refused))
    );
    lab.run_until(secs(2));
    let counted = [lab.counted(End::A, 1, 0), lab.counted(End::B, 1, 0)];
    lab.run_until(secs(3));
    assert_eq!(
        [lab.counted(End::A, 1, 0), lab.counted(End::B, 1, 0)],
        counted
    );
    assert!(
        !lab.peers[0]
            .session
            .send_bench_message(BenchBody::Run(order(2, true, true, &[0])))
    );
    lab.tell(BenchBody::Ask(BenchAsk {
        id: [2; 16],
        seconds: 1,
    }));
    lab.run_until(secs(4));
    lab.begin_run(2, true, false, &[0]);
    lab.run_until(secs(5));
    assert!(lab.counted(End::B, 2, 0) > 0);
}

fn say(victim: &mut Victim, body: BenchBody) -> Result<(), PathError> {
    victim.say(&Message::Bench(body))
}

#[test]
fn a_daemon_benches_with_nobody_who_was_not_let_in_and_keeps_to_the_bounds() {
    let mut victim = Victim::new(Role::Daemon);
    assert!(say(&mut victim, BenchBody::Run(order(1, true, true, &[0]))).is_err());
    assert_eq!(victim.session.load_gate().latest, 0);
    let ask = BenchBody::Ask(BenchAsk {
        id: [1; 16],
        seconds: 1,
    });
    say(&mut victim, ask.clone()).unwrap();
    assert!(say(&mut victim, ask).is_err(), "asked twice");
    assert!(
        say(&mut victim, BenchBody::Run(order(1, true, true, &[0]))).is_err(),
        "waits"
    );
    assert!(
        victim
            .session
            .send_bench_message(BenchBody::Admitted(BenchAdmitted { seconds: 1 }))
    );
    let bad = |change: fn(&mut RunOrder)| {
        let mut order = order(1, true, true, &[0]);
        change(&mut order);
        BenchBody::Run(order)
    };
    for wrong in [
        bad(|order| order.paths = vec![]),
        bad(|order| order.paths = vec![64]),
        bad(|order| order.paths = vec![1, 1]),
        bad(|order| order.interval_ms = 1),
        bad(|order| order.message_bytes = 0),
        bad(|order| order.message_bytes = (1 << 18) + 1),
        bad(|order| order.socket_buffer = Some(u64::MAX)),
        bad(|order| order.run = 0),
        BenchBody::Stop(RunNumber { run: 1 }),
        BenchBody::Ready(RunReady::default()),
        BenchBody::Sample(BenchSample::default()),
    ] {
        assert!(say(&mut victim, wrong.clone()).is_err(), "{wrong:?}");
    }
    say(&mut victim, BenchBody::Run(order(1, true, true, &[0]))).unwrap();
    assert!(
        say(&mut victim, BenchBody::Run(order(2, true, true, &[0]))).is_err(),
        "one at a time"
    );
    say(&mut victim, BenchBody::Stop(RunNumber { run: 1 })).unwrap();
    victim.session.end_run();
    assert!(
        say(&mut victim, BenchBody::Run(order(1, true, true, &[0]))).is_err(),
        "a used number"
    );
    say(&mut victim, BenchBody::Leave).unwrap();
    say(&mut victim, BenchBody::Run(order(2, true, true, &[0]))).unwrap();
    assert_eq!(
        victim.session.run(),
        None,
        "late messages of an ended bench start nothing"
    );
}

#[test]
fn a_limit_holds_for_loads_as_well() {
    use nicstripe_proto::{BitRate, Transmit};
    let config = SessionConfig {
        rate_limit: Some(BitRate::from_mbit(100)),
        ..SessionConfig::default()
    };
    let mut lab = Lab::scaled(Seed(6), 0).link(1000).link(1000).admitted();
    let now = lab.now();
    let session = &mut lab.peers[0].session;
    session.limit_rate(config.rate_limit.unwrap(), now);
    session.limit_path(PathId(0), Some(BitRate::from_mbit(30)), now);
    lab.begin_run(1, true, false, &[0, 1]);
    let ready = BenchBody::Ready(RunReady {
        run: 1,
        ..RunReady::default()
    });
    let mut ended = nicstripe_proto::Session::new(Role::Client, config, now);
    assert!(!ended.send_bench_message(ready), "a daemon's word");
    lab.run_while(secs(1), |lab| {
        lab.peers[0]
            .connections
            .values()
            .any(|connection| connection.load.is_none())
    });
    let rates: Vec<_> = lab.peers[0]
        .connections
        .values()
        .map(|connection| connection.load.unwrap().rate.unwrap().0)
        .collect();
    assert_eq!(rates, [30_000_000, 50_000_000]);
    assert_ne!(
        ended.poll_transmit(PathId(0), now),
        Some(Transmit::Load(None))
    );
}
