//! Tests that kill the processes of a copy, at random moments or while the disk syncs slowly.

use std::{thread, time::Duration};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    crashes::{
        case::Case,
        field::Field,
        kills::{MOST_LOST, Round, Runner, most},
        random,
    },
    tests,
    trial::{Test, amount},
};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = tests![
    kills_at_random_moments_leave_what_a_rerun_finishes,
    a_disk_that_is_slow_to_sync_holds_back_what_a_crash_would_lose,
];

fn kills_at_random_moments_leave_what_a_rerun_finishes() {
    let first = random::seed();
    let mut runner = Runner::new();
    for seed in first..first + amount(6, 120) {
        let round = Round::of(seed, None);
        eprintln!("seed {seed}: {round:?}");
        runner.run(&round);
    }
    eprintln!("{} kills: {:?}", runner.figures.kills(), runner.figures);
}

fn a_disk_that_is_slow_to_sync_holds_back_what_a_crash_would_lose() -> Completion {
    let (case, mut field) = (Case::named("put-vast").unwrap(), Field::new());
    case.prepare(&field);
    let Some(daemon) = field.start_slow_to_sync(Duration::from_secs(2)) else {
        return Completion::ignored_with("this machine has no strace");
    };
    let cp = field.start_cp(&case, &["--json-stream"]);
    cp.await_bytes(1);
    // The first sync begins at 16 MiB and is still running.
    thread::sleep(Duration::from_millis(1500));
    cp.signal(Signal::KILL);
    let arrived = most(&cp.finish(), "progress", "bytes").unwrap();
    assert!(
        arrived <= MOST_LOST,
        "{arrived} bytes had arrived, and nothing of it was durable"
    );
    daemon.kill();
    Completion::Completed
}
