//! Tests of benchmark messages from a hostile peer.

use nicstripe_proto::{
    PathError, Role,
    message::{
        BenchAdmitted, BenchAsk, BenchBody, BenchSample, Message, RunNumber, RunOrder, RunReady,
    },
};

use crate::peer::Victim;

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

fn say(victim: &mut Victim, body: BenchBody) -> Result<(), PathError> {
    victim.say(Message::Bench(body))
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
