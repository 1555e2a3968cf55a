//! Tests of temporary MTU changes. The original MTU is restored, whichever way the user and the
//! helper end.

use std::{
    fs::{self, File},
    thread,
    time::{Duration, Instant},
};

use nicstripe_link::{
    ChangedMtu, InterfaceIndex, MAX_ROUTES, MtuError, Mtus, RouteHelper, facts::Facts,
    is_signal_ignored,
};
use rtnetlink::LinkVeth;
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, geteuid, kill_process},
};

use crate::{
    helper::{Stage, kill, wait_for_end},
    lab::Namespace,
};

crate::tests![
    an_mtu_is_changed_and_put_back_on_request,
    an_mtu_is_put_back_when_the_helper_is_dropped,
    a_helper_in_a_thread_puts_mtus_back_as_well,
    an_mtu_is_put_back_when_its_time_is_over,
    a_helper_that_is_told_to_end_puts_mtus_back_and_keeps_its_routes,
    an_mtu_is_put_back_when_its_user_is_killed,
    an_mtu_that_both_left_is_put_back_at_the_next_start,
    after_a_kill_at_any_moment_every_mtu_is_as_it_was,
    what_an_interface_had_is_not_forgotten_over_many_changes,
    an_mtu_that_somebody_else_changed_stays,
    two_users_do_not_change_one_interface,
    what_another_user_left_is_restored_by_root_and_its_lock_is_not_waited_for,
    what_is_no_cable_or_out_of_range_is_refused,
    without_the_right_to_it_nothing_changes,
    a_record_of_another_namespace_is_left_to_it,
    an_interface_that_goes_takes_its_record_along,
    a_veth_says_what_it_is,
];

const LONG: Duration = Duration::from_secs(60);

fn mtu_of(stage: &Stage, interface: &str) -> u32 {
    stage.bench.lab.near.interface(interface).mtu
}

fn index(stage: &Stage, interface: &str) -> InterfaceIndex {
    stage.bench.index(interface)
}

#[track_caller]
fn await_mtu(stage: &Stage, interface: &str, expected: u32) {
    let start = Instant::now();
    while mtu_of(stage, interface) != expected {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{interface} has {}, expected {expected}",
            mtu_of(stage, interface)
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the recorded MTU changes of the near host that are still in effect.
fn changed(stage: &Stage) -> Vec<ChangedMtu> {
    mtus(stage, |mtus| mtus.list().unwrap())
}

fn mtus<T: Send>(stage: &Stage, body: impl FnOnce(Mtus) -> T + Send) -> T {
    stage
        .bench
        .lab
        .near
        .run(|| body(Mtus::open(stage.bench.state.path()).unwrap()))
}

fn an_mtu_is_changed_and_put_back_on_request() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let a1 = index(&stage, "a1");
    assert_eq!(helper.set_mtu(a1, 9000, LONG).unwrap(), 1500);
    assert_eq!((mtu_of(&stage, "a0"), mtu_of(&stage, "a1")), (1500, 9000));
    let expected = ChangedMtu {
        interface: a1,
        name: "a1".to_owned(),
        now: 9000,
        was: 1500,
        owner: helper.id(),
    };
    assert_eq!(changed(&stage), [expected]);
    mtus(&stage, |mtus| {
        assert_eq!(mtus.clean().unwrap(), [], "its owner is alive");
    });
    assert!(helper.restore_mtu(a1).unwrap());
    assert!(!helper.restore_mtu(a1).unwrap(), "twice is once");
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage)), (1500, vec![]));
}

fn an_mtu_is_put_back_when_the_helper_is_dropped() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    helper.set_mtu(index(&stage, "a0"), 4000, LONG).unwrap();
    helper.set_mtu(index(&stage, "a1"), 1280, LONG).unwrap();
    assert_eq!((mtu_of(&stage, "a0"), mtu_of(&stage, "a1")), (4000, 1280));
    drop(helper);
    assert_eq!((mtu_of(&stage, "a0"), mtu_of(&stage, "a1")), (1500, 1500));
}

fn a_helper_in_a_thread_puts_mtus_back_as_well() {
    let stage = Stage::new();
    let mut helper = stage
        .bench
        .lab
        .near
        .run(|| RouteHelper::in_process(stage.bench.state.path()).unwrap());
    helper.set_mtu(index(&stage, "a1"), 9000, LONG).unwrap();
    assert_eq!(changed(&stage)[0].owner, Some(std::process::id()));
    drop(helper);
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage)), (1500, vec![]));
}

fn an_mtu_is_put_back_when_its_time_is_over() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let a1 = index(&stage, "a1");
    helper.set_mtu(index(&stage, "a0"), 9000, LONG).unwrap();
    helper.set_mtu(a1, 9000, Duration::ZERO).unwrap();
    // The minimum duration is one second.
    await_mtu(&stage, "a1", 1500);
    assert_eq!(mtu_of(&stage, "a0"), 9000);
    // The helper still accepts changes.
    helper.set_mtu(a1, 4000, LONG).unwrap();
    assert_eq!(mtu_of(&stage, "a1"), 4000);
}

fn a_helper_that_is_told_to_end_puts_mtus_back_and_keeps_its_routes() {
    // The helper leaves those ignored that a shell or `nohup` has ignored.
    let signals = [Signal::TERM, Signal::INT, Signal::HUP]
        .into_iter()
        .filter(|signal| !is_signal_ignored(signal.as_raw()));
    for signal in signals {
        let stage = Stage::new();
        let mut helper = stage.helper();
        let (a1, route) = (index(&stage, "a1"), stage.bench.route("10.2.0.2", "a1"));
        helper.set_mtu(a1, 9000, LONG).unwrap();
        helper.add(&route).unwrap();
        kill_process(
            Pid::from_raw(helper.id().unwrap().cast_signed()).unwrap(),
            signal,
        )
        .unwrap();
        await_mtu(&stage, "a1", 1500);
        let error = helper.set_mtu(a1, 9000, LONG).unwrap_err();
        assert!(matches!(error, MtuError::Ending { .. }), "{error:?}");
        stage
            .bench
            .run(|routes| assert_eq!(routes.list_ours().unwrap(), [route]));
        drop(helper);
        stage
            .bench
            .run(|routes| assert_eq!(routes.list_ours().unwrap(), []));
    }
}

fn an_mtu_is_put_back_when_its_user_is_killed() {
    let stage = Stage::new();
    let mut user = stage.start_user(&format!("mtu {} 9000", index(&stage, "a1")));
    await_mtu(&stage, "a1", 9000);
    user.child.kill().unwrap();
    let killed = Instant::now();
    await_mtu(&stage, "a1", 1500);
    eprintln!(
        "the MTU is restored {:?} after its user was killed",
        killed.elapsed()
    );
}

fn an_mtu_that_both_left_is_put_back_at_the_next_start() {
    let stage = Stage::new();
    let mut user = stage.start_user(&format!("mtu {} 9000", index(&stage, "a1")));
    await_mtu(&stage, "a1", 9000);
    kill(user.helper);
    wait_for_end(user.helper);
    user.child.kill().unwrap();
    user.child.wait().unwrap();
    let left = changed(&stage);
    assert_eq!((left.len(), left[0].now, left[0].owner), (1, 9000, None));
    drop(stage.helper());
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage)), (1500, vec![]));
}

fn after_a_kill_at_any_moment_every_mtu_is_as_it_was() {
    let stage = Stage::new();
    let (a0, a1) = (index(&stage, "a0"), index(&stage, "a1"));
    let changes = [4000, 9000, 1400, 2000]
        .map(|mtu| format!("mtu {a0} {mtu}\nmtu {a1} {}", mtu + 8))
        .join("\n");
    let mut left = 0;
    for round in 0..60 {
        let mut user = stage.start_user(&changes);
        // The kills range from before the first change to after the last one. Each change takes a
        // millisecond or two.
        thread::sleep(Duration::from_micros(700 * (round / 3)));
        user.kill_with_helper(round % 3);
        let stays = (mtu_of(&stage, "a0"), mtu_of(&stage, "a1")) != (1500, 1500);
        assert!(
            round % 3 != 0 || !stays,
            "round {round}: the helper restores them"
        );
        left += u32::from(stays);
        drop(stage.helper());
        assert_eq!(
            (mtu_of(&stage, "a0"), mtu_of(&stage, "a1")),
            (1500, 1500),
            "round {round}"
        );
        assert_eq!(changed(&stage), [], "round {round}");
    }
    assert!(left > 0, "no kill hit a helper that had changed an MTU");
}

fn what_an_interface_had_is_not_forgotten_over_many_changes() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let a1 = index(&stage, "a1");
    for mtu in [4000, 9000, 1500, 1400, 9000] {
        assert_eq!(helper.set_mtu(a1, mtu, LONG).unwrap(), 1500);
        assert_eq!(mtu_of(&stage, "a1"), mtu);
    }
    // A rejected change preserves both the last MTU and the original MTU to restore.
    assert!(matches!(
        helper.set_mtu(a1, 100, LONG),
        Err(MtuError::OutOfRange { .. })
    ));
    assert_eq!(mtu_of(&stage, "a1"), 9000);
    drop(helper);
    assert_eq!(mtu_of(&stage, "a1"), 1500);
}

fn an_mtu_that_somebody_else_changed_stays() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let a1 = index(&stage, "a1");
    helper.set_mtu(a1, 9000, LONG).unwrap();
    stage.bench.lab.near.set("a1", |link| link.mtu(2000));
    assert!(!helper.restore_mtu(a1).unwrap());
    drop(helper);
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage)), (2000, vec![]));
}

fn two_users_do_not_change_one_interface() {
    let stage = Stage::new();
    let (mut first, mut second) = (stage.helper(), stage.helper());
    let a1 = index(&stage, "a1");
    first.set_mtu(a1, 9000, LONG).unwrap();
    let error = second.set_mtu(a1, 4000, LONG).unwrap_err();
    assert!(matches!(error, MtuError::HeldElsewhere { .. }), "{error:?}");
    assert!(!second.restore_mtu(a1).unwrap());
    assert_eq!(mtu_of(&stage, "a1"), 9000);
    // The MTU that a killed helper left is not the original MTU.
    kill(first.id().unwrap());
    wait_for_end(first.id().unwrap());
    assert_eq!(second.set_mtu(a1, 4000, LONG).unwrap(), 1500);
    drop(second);
    assert_eq!(mtu_of(&stage, "a1"), 1500);
}

fn what_another_user_left_is_restored_by_root_and_its_lock_is_not_waited_for() {
    let stage = Stage::new();
    let (a0, a1) = (index(&stage, "a0"), index(&stage, "a1"));
    let user = stage.start_user(&format!("mtu {a1} 9000"));
    await_mtu(&stage, "a1", 9000);
    kill(user.helper);
    wait_for_end(user.helper);
    let state = stage.bench.state.path();
    let own = format!("mtus.{}.jsonl", geteuid().as_raw());
    fs::rename(state.join(own), state.join("mtus.12345.jsonl")).unwrap();
    let lock = File::create(state.join("12345.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    mtus(&stage, |mtus| {
        let begun = Instant::now();
        assert_eq!(mtus.clean().unwrap(), []);
        let error = mtus.set(a1, 4000).unwrap_err();
        assert!(matches!(error, MtuError::HeldElsewhere { .. }), "{error:?}");
        assert_eq!(mtus.set(a0, 4000).unwrap(), 1500);
        assert!(mtus.restore(a0).unwrap());
        // A lock is waited for for 2 s. Each of the four calls takes a few milliseconds.
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    });
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage).len()), (9000, 1));
    // Closing the file would not do: a test that starts a program on another thread holds a copy of
    // the descriptor between fork and exec.
    flock(&lock, FlockOperation::Unlock).unwrap();
    let cleaned = mtus(&stage, |mtus| mtus.clean().unwrap());
    assert_eq!((cleaned.len(), mtu_of(&stage, "a1")), (1, 1500));
    assert_eq!(changed(&stage), []);
}

fn what_is_no_cable_or_out_of_range_is_refused() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let lo = helper.set_mtu(InterfaceIndex(1), 9000, LONG).unwrap_err();
    assert!(matches!(lo, MtuError::NotACable { .. }), "{lo:?}");
    let gone = helper
        .set_mtu(InterfaceIndex(4242), 9000, LONG)
        .unwrap_err();
    assert!(matches!(gone, MtuError::NoInterface { .. }), "{gone:?}");
    for mtu in [0, 1279, 65_536, u32::MAX] {
        let error = helper.set_mtu(index(&stage, "a1"), mtu, LONG).unwrap_err();
        assert!(
            matches!(error, MtuError::OutOfRange { .. })
                && error.to_string().contains(&mtu.to_string()),
            "{error:?}"
        );
    }
    assert_eq!(changed(&stage), []);
    let near = &stage.bench.lab.near;
    for number in 0..=MAX_ROUTES {
        let (one, other) = (format!("v{number}"), format!("w{number}"));
        near.add_link(LinkVeth::new(&one, &other).build());
        let set = helper.set_mtu(near.index(&one), 9000, LONG);
        assert!(
            if number < MAX_ROUTES {
                set.is_ok()
            } else {
                matches!(set, Err(MtuError::TooMany { .. }))
            },
            "{number}: {set:?}"
        );
    }
}

fn without_the_right_to_it_nothing_changes() {
    let stage = Stage::new();
    let a1 = index(&stage, "a1");
    let error = mtus(&stage, |mtus| {
        nicstripe_link::give_up_routes().unwrap();
        mtus.set(a1, 9000).unwrap_err()
    });
    assert!(matches!(error, MtuError::NotPermitted { .. }), "{error:?}");
    assert_eq!((mtu_of(&stage, "a1"), changed(&stage)), (1500, vec![]));
}

fn a_record_of_another_namespace_is_left_to_it() {
    let stage = Stage::new();
    let user = stage.start_user(&format!("mtu {} 9000", index(&stage, "a1")));
    await_mtu(&stage, "a1", 9000);
    kill(user.helper);
    wait_for_end(user.helper);
    let elsewhere = Namespace::new().unwrap();
    let cleaned = elsewhere.run(|| {
        Mtus::open(stage.bench.state.path())
            .unwrap()
            .clean()
            .unwrap()
    });
    assert_eq!((cleaned, mtu_of(&stage, "a1")), (vec![], 9000));
    let cleaned = mtus(&stage, |mtus| mtus.clean().unwrap());
    assert_eq!((cleaned.len(), mtu_of(&stage, "a1")), (1, 1500));
}

fn an_interface_that_goes_takes_its_record_along() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let a1 = index(&stage, "a1");
    helper.set_mtu(a1, 9000, LONG).unwrap();
    stage.bench.lab.near.remove_link("a1");
    assert!(!helper.restore_mtu(a1).unwrap());
    assert!(
        Mtus::open(stage.bench.state.path()).is_ok()
            && !Mtus::any_recorded(stage.bench.state.path())
    );
}

fn a_veth_says_what_it_is() {
    let stage = Stage::new();
    let facts = stage.bench.lab.near.run(Facts::of_this_machine);
    let veth = facts.interface("a1").unwrap();
    assert_eq!(veth.driver.as_deref(), Some("veth"));
    let offloads = veth.offloads.as_ref().unwrap();
    for offload in ["tso", "gso", "tx-checksum", "sg"] {
        assert!(
            offloads.iter().any(|one| one == offload),
            "{offload} is not among {offloads:?}"
        );
    }
}
