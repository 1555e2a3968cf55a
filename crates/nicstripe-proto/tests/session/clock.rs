//! Tests of the timeouts that a session requests, and of the frequency of its requests.

use std::time::Duration;

use nicstripe_proto::{Frame, Transmit};

use crate::peer::{P, Victim};

/// Maximum delay of an acknowledgement, as in `nicstripe-proto`.
const ACK_DELAY: Duration = Duration::from_millis(10);

#[test]
fn the_clock_says_once_what_is_due_where_there_is_no_room_for_it() {
    let mut victim = Victim::receiving();
    victim.write(0, 1 << 18, false);
    let until = victim.now + Duration::from_secs(30);
    let mut calls = 0;
    while victim.now < until {
        let at = victim
            .session
            .poll_timeout()
            .expect("a path that is open has a clock");
        assert!(
            at > victim.now,
            "call {calls} was due {:?} ago",
            victim.now - at
        );
        victim.now = at;
        victim.session.handle_timeout(at);
        // The session receives from the peer, but its own frames are not sent.
        victim.session.handle_heard(P, at);
        calls += 1;
    }
    let sent = victim.drain().1;
    assert!(
        sent.iter()
            .any(|sent| matches!(sent, Transmit::Frame(Frame::Ack { .. }))),
        "{sent:?}"
    );
    victim.now += Duration::from_secs(1);
    victim.session.handle_timeout(victim.now);
    let sent = victim.drain().1;
    assert!(
        matches!(sent[..], [Transmit::Frame(Frame::Heartbeat { .. })]),
        "{sent:?}"
    );
}

#[test]
fn the_clock_says_that_an_acknowledgement_has_waited_long_enough() {
    let mut victim = Victim::receiving();
    victim.write(0, 1 << 18, false);
    assert!(
        victim.drain().1.is_empty(),
        "alone, it waits for more chunks"
    );
    let at = victim.session.poll_timeout().unwrap();
    assert!(at <= victim.now + ACK_DELAY, "{:?}", at - victim.now);
    victim.now = at;
    victim.session.handle_timeout(at);
    assert!(matches!(
        victim.drain().1[..],
        [Transmit::Frame(Frame::Ack { .. })]
    ));
    assert!(victim.session.poll_timeout().unwrap() > victim.now);
}
