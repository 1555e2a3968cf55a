//! Tests with hostile peers. A protocol violation closes the path or is ignored, and honest
//! transfers continue.

use std::time::Duration;

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, ChunkRange, Digest, Event, Extent, FailCode, Frame,
    Incoming, Message, PathError, PathLoss, Request, Role, Subtree, TransferId, Transmit,
    grid::MOST_SIZE,
    message::{Accept, Committed, Holes, Keep, Values},
};

use crate::peer::{
    FULL, P, SIZE, Says, T, Victim, accept, acceptance, ack, cancel, chunk, committed, complete,
    credit, get, offer, put, put_with, verdict, window,
};

const UNKNOWN: TransferId = TransferId(99);

fn whole_file() -> Message {
    complete(T, Digest([1; 32]), None)
}

/// Returns the acceptance of a file whose first `chunks` chunks are compared.
fn delta(chunks: u64) -> Acceptance {
    Acceptance {
        delta: Some(chunks),
        ..Acceptance::default()
    }
}

/// Creates a daemon that receives a file of eight chunks as a delta. The daemon has sent the hashes
/// of its chunks 0 and 1, and is reading chunk 2.
fn comparing() -> Victim {
    let mut victim = Victim::accepting(Message::Put(put(T)), delta(4));
    let chunks: Vec<ChunkId> = std::iter::from_fn(|| Some(victim.session.poll_compare()?.1))
        .take(2)
        .collect();
    chunks.into_iter().for_each(|chunk| {
        victim
            .session
            .handle_compared(T, chunk, Some(ChainingValue([2; 32])));
    });
    assert_eq!(victim.session.poll_compare(), Some((T, ChunkId(2))));
    victim.drain();
    victim
}

/// Creates a client that sends a file of eight chunks. The client must compare the first four with
/// the receiver's.
fn compared() -> Victim {
    let mut victim = Victim::offering();
    let accept = Accept {
        delta: Some(4),
        ..acceptance(T)
    };
    victim.say(Message::Accept(accept)).unwrap();
    victim
}

/// Creates a daemon that receives a file of eight chunks whose holes the peer announces.
fn awaiting_holes() -> Victim {
    let how = Acceptance {
        holes: true,
        ..Acceptance::default()
    };
    Victim::accepting(Message::Put(put(T)), how)
}

fn keep(first: u64, count: u64) -> Message {
    Message::Keep(Keep {
        transfer: T,
        ranges: vec![ChunkRange::new(ChunkId(first), count)],
    })
}

fn values(first: u64, count: u64, bytes: usize) -> Message {
    Message::Values(Values {
        transfer: T,
        ranges: vec![ChunkRange::new(ChunkId(first), count)],
        values: vec![2; bytes],
    })
}

fn holes(extents: &[(u64, u64)]) -> Message {
    let extent = |&(offset, len): &(u64, u64)| Extent { offset, len };
    Message::Holes(Holes {
        transfer: T,
        extents: extents.iter().map(extent).collect(),
        last: true,
    })
}

/// Asserts that a new victim refuses each of these with the same variant of [`PathError`].
#[track_caller]
fn script(make: fn() -> Victim, says: &[Says], kind: &str) {
    for says in says {
        let mut victim = make();
        victim.refuses(says.clone(), kind);
        victim.is_healthy();
    }
}

#[test]
fn what_does_not_fit_the_state_ends_the_path_and_is_told_to_nobody() {
    let (sending, receiving) = (Victim::sending, Victim::receiving);
    script(
        || Victim::new(Role::Daemon),
        &[chunk(0, 1).into()],
        "Transfer",
    );
    script(
        sending,
        &[
            chunk(0, FULL).into(),
            accept(T).into(),
            accept(UNKNOWN).into(),
            Message::Offer(offer(T)).into(),
            Message::Put(put(T)).into(),
            whole_file().into(),
            keep(0, 1).into(),
            holes(&[]).into(),
            // Only the sender of a tree hears of verdicts and windows.
            verdict(T).into(),
        ],
        "Transfer",
    );
    script(
        receiving,
        &[
            ack(0, 1).into(),
            accept(T).into(),
            get(T).into(),
            Message::Offer(offer(T)).into(),
            Message::Put(put(T)).into(),
            committed(T).into(),
            committed(UNKNOWN).into(),
            complete(UNKNOWN, Digest([1; 32]), None).into(),
            values(0, 1, 32).into(),
        ],
        "Transfer",
    );
    script(
        Victim::offering,
        &[verdict(T).into(), window(9).into()],
        "Transfer",
    );
    script(
        receiving,
        &[
            chunk(8, FULL).into(),
            chunk(u64::MAX, FULL).into(),
            chunk(1, 1).into(),
        ],
        "Arrival",
    );
    script(receiving, &[keep(0, 1).into()], "Compared");
    script(sending, &[values(0, 1, 32).into()], "Compared");
    script(receiving, &[holes(&[]).into()], "Holes");
    script(
        receiving,
        &[
            Frame::Hello(vec![0xa0]).into(),
            Frame::Welcome(vec![0xa0]).into(),
            Frame::Refuse(vec![0xa0]).into(),
        ],
        "Unexpected",
    );
    script(
        receiving,
        &[
            // Numbers that were never sent or are far ahead.
            Frame::ControlAck { next: u64::MAX }.into(),
            Frame::Control {
                seq: u64::MAX,
                body: vec![0],
            }
            .into(),
        ],
        "Reliable",
    );
}

#[test]
fn data_before_it_was_accepted_and_beyond_the_credit_ends_the_path() {
    let mut victim = Victim::new(Role::Daemon);
    victim.say(Message::Put(put(T))).unwrap();
    victim.refuses(chunk(0, FULL), "Transfer");
    let mut victim = Victim::receiving();
    for index in 0..32 {
        victim.say(chunk(index % 8, FULL)).unwrap();
    }
    victim.refuses(chunk(0, FULL), "Credit");
}

#[test]
fn acknowledgements_of_what_was_never_sent_end_the_path_and_change_nothing() {
    let mut victim = Victim::sending();
    for (first, count) in [
        (2, 1),
        (0, 3),
        (0, u64::MAX),
        (7, 9),
        (u64::MAX - 1, 1),
        (100, 5),
    ] {
        victim.refuses(ack(first, count), "NeverSent");
    }
    assert_eq!(victim.delivered(), 0);
    for _ in 0..2 {
        victim.say(ack(0, 2)).unwrap();
        assert_eq!(victim.delivered(), 2 << 18);
    }
}

#[test]
fn a_second_digest_does_not_count() {
    let mut victim = Victim::receiving();
    for byte in [1, 2] {
        victim.say(complete(T, Digest([byte; 32]), None)).unwrap();
    }
    let events = victim.events();
    assert!(
        matches!(&events[..], [Event::Completed(complete)] if complete.digest == Digest([1; 32])),
        "{events:?}"
    );
}

#[test]
fn what_comes_for_a_transfer_that_has_ended_is_ignored() {
    let mut victim = Victim::receiving();
    victim.say(Message::Fail(cancel(T))).unwrap();
    assert_eq!(victim.events(), [Event::Failed(cancel(T))]);
    victim.say(Message::Fail(cancel(T))).unwrap();
    victim.say(accept(T)).unwrap();
    assert_eq!(victim.piece(0, FULL, false), Ok(Incoming::Drop));
    victim.session.committed(Committed {
        transfer: T,
        digest: Digest([0; 32]),
        etag: None,
    });
    let (events, sent) = victim.drain();
    assert_eq!(events, []);
    assert!(
        !sent
            .iter()
            .any(|transmit| matches!(transmit, Transmit::Frame(Frame::Control { .. }))),
        "{sent:?}"
    );
}

#[test]
fn a_commit_of_what_was_not_sent_is_a_failure() {
    let mut victim = Victim::sending();
    victim.say(committed(T)).unwrap();
    let events = victim.events();
    assert!(
        matches!(&events[..], [Event::Failed(fail)] if fail.code == FailCode::Protocol),
        "{events:?}"
    );
    victim.say(ack(0, 2)).unwrap();
    victim.is_healthy();
}

#[test]
fn sizes_beyond_the_limits_are_refused_and_the_largest_file_there_is_costs_no_memory() {
    for chunk_log2 in [0, 11, 19, 22, 63, 255] {
        let put = put_with(|offer| offer.chunk_log2 = chunk_log2);
        let refused = Victim::new(Role::Daemon).say(put);
        assert_eq!(refused, Err(PathError::ChunkSize(chunk_log2)));
    }
    let of = |size| {
        put_with(|offer| {
            offer.source.size = size;
            offer.chunk_log2 = 12;
        })
    };
    let mut victim = Victim::new(Role::Daemon);
    for beyond in [MOST_SIZE, u64::MAX] {
        assert_eq!(victim.say(of(beyond)), Err(PathError::FileSize(beyond)));
    }
    victim.say(of(MOST_SIZE - 1)).unwrap();
    let half = Subtree {
        first: ChunkId(0),
        level: 49,
        value: ChainingValue([0; 32]),
    };
    victim.session.accept(T, vec![half], Acceptance::default());
    victim.drain();
    assert!(victim.session.stats(T).resumed_bytes > 0);
}

#[test]
fn garbage_ends_the_path_and_takes_no_message_behind_it_along() {
    let mut victim = Victim::new(Role::Daemon);
    let put = minicbor::to_vec(Message::Put(put(T))).unwrap();
    let control = |seq, body| Frame::Control { seq, body };
    victim.say(control(1, put)).unwrap();
    let result = victim.say(control(0, vec![0xff, 0x00]));
    assert!(matches!(result, Err(PathError::Message(_))), "{result:?}");
    assert!(matches!(
        &victim.events()[..],
        [Event::Requested(Request::Put(_))]
    ));
}

#[test]
fn what_was_read_for_an_earlier_connection_is_not_sent_beyond_the_credit_of_the_next() {
    let mut victim = Victim::offering();
    victim.say(accept(T)).unwrap();
    // The first chunk is assigned, the connection is replaced while the chunk is read, and the
    // chunk is assigned again.
    for _ in 0..2 {
        victim.say(credit(1)).unwrap();
        assert!(victim.chunks().contains(&ChunkId(0)));
        victim.connect();
    }
    victim.say(credit(1)).unwrap();
    let read = victim.read(ChunkId(0));
    assert_eq!(read, None, "read for a connection that is gone");
    assert!(victim.chunks().contains(&ChunkId(0)));
    assert!(victim.read(ChunkId(0)).is_some());
    assert_eq!(victim.read(ChunkId(0)), None, "one credit, one chunk");
}

#[test]
fn a_transfer_that_failed_while_its_chunks_were_read_leaves_the_next_one_all_its_credit() {
    let mut victim = Victim::new(Role::Client);
    victim.say(credit(3)).unwrap();
    for transfer in [TransferId(1), TransferId(2)] {
        victim.session.put(put(transfer)).unwrap();
        victim.say(accept(transfer)).unwrap();
        assert_eq!(victim.chunks().len(), 3, "{transfer:?}");
        victim.session.fail(nicstripe_proto::session::failure(
            transfer,
            FailCode::Io,
            "cannot read",
            true,
        ));
    }
}

#[test]
fn a_thousand_failed_transfers_do_not_count_as_open() {
    let mut victim = Victim::new(Role::Daemon);
    for id in 1..3000 {
        let transfer = TransferId(id);
        victim.say(Message::Put(put(transfer))).unwrap();
        victim.say(Message::Fail(cancel(transfer))).unwrap();
        victim.drain();
    }
    // A used number.
    victim.refuses(Message::Put(put(TransferId(7))), "Transfer");
}

#[test]
fn absurd_heartbeats_and_credits_are_harmless() {
    let mut victim = Victim::sending();
    for (sent_us, echo_us) in [(u64::MAX, u64::MAX), (0, 1), (u64::MAX, 0), (0, 0)] {
        victim.say(Frame::Heartbeat { sent_us, echo_us }).unwrap();
    }
    victim.say(credit(u64::MAX)).unwrap();
    victim.say(credit(0)).unwrap();
    victim.drain();
    let at = victim.session.poll_timeout().unwrap();
    assert!(at <= victim.now + Duration::from_secs(4));
}

#[test]
fn chunks_are_kept_once_and_only_if_their_value_was_told_and_do_not_come_before() {
    for (first, count) in [(2, 1), (3, 1), (4, 1), (8, 1), (0, u64::MAX), (2, u64::MAX)] {
        let mut victim = comparing();
        victim.refuses(keep(first, count), "Compared");
        victim.is_healthy();
    }
    let mut victim = comparing();
    // Chunks that are being compared.
    for index in [2, 3] {
        victim.refuses(chunk(index, FULL), "Arrival");
    }
    for index in [0, 1, 4, 7] {
        victim.takes(index, FULL, false);
    }
    let mut victim = comparing();
    victim.say(keep(0, 2)).unwrap();
    assert_eq!(victim.session.stats(T).unsent_bytes, 2 << 18);
    victim.refuses(keep(1, 1), "Compared");
    assert_eq!(victim.session.stats(T).unsent_bytes, 2 << 18);
}

#[test]
fn values_are_taken_once_and_only_of_chunks_that_are_compared() {
    for (first, count, bytes) in [
        (4, 1, 32),
        (8, 1, 32),
        (3, 2, 64),
        (0, 2, 32),
        (0, 1, 64),
        (0, 1, 33),
        (0, u64::MAX, 32),
        (u64::MAX, 9, 32),
    ] {
        let mut victim = compared();
        assert!(
            victim.say(values(first, count, bytes)).is_err(),
            "{first}+{count}: {bytes} bytes"
        );
        victim.is_healthy();
    }
    let mut victim = compared();
    victim.say(values(0, 4, 128)).unwrap();
    victim.refuses(values(1, 1, 32), "Compared");
}

#[test]
fn nothing_is_sent_blind_while_its_value_is_awaited() {
    let mut victim = compared();
    victim.say(credit(32)).unwrap();
    assert_eq!(victim.chunks(), [4, 5, 6, 7].map(ChunkId));
    assert_eq!(victim.session.poll_hash(), None);
    victim.say(values(1, 2, 64)).unwrap();
    for (chunk, own) in [(1, 2), (2, 3)] {
        assert_eq!(victim.session.poll_hash(), Some((T, ChunkId(chunk))));
        victim
            .session
            .handle_chunk_hashed(T, ChunkId(chunk), ChainingValue([own; 32]));
    }
    for chunk in 4..8 {
        victim.read(ChunkId(chunk)).unwrap();
        victim.session.handle_chunk_flushed(P);
    }
    assert!(victim.chunks().contains(&ChunkId(2)));
}

#[test]
fn holes_that_make_no_sense_end_the_path() {
    awaiting_holes().refuses(holes(&[(0, SIZE + 1)]), "Holes");
    awaiting_holes().refuses(holes(&[(5, 5), (9, 1)]), "Holes");
    let mut victim = awaiting_holes();
    assert_eq!(victim.session.poll_zeros(), None);
    // Holes may follow the first chunks.
    victim.say(chunk(1, FULL)).unwrap();
    let whole = holes(&[(0, 3 << 18)]);
    victim.say(whole).unwrap();
    let after_the_last = victim.say(holes(&[]));
    assert!(
        matches!(after_the_last, Err(PathError::Holes(_))),
        "{after_the_last:?}"
    );
    assert_eq!(
        victim.session.poll_zeros(),
        None,
        "they are not in the file yet"
    );
    victim.session.handle_holes_made(T);
    victim.refuses(chunk(2, FULL), "Arrival");
    let zeros: Vec<u64> =
        std::iter::from_fn(|| Some(victim.session.poll_zeros()?.2.first.0)).collect();
    assert_eq!(zeros, [0, 2], "a received chunk is not a hole");
}

#[test]
fn a_peer_that_is_gone_has_nothing_hashed() {
    let mut victim = awaiting_holes();
    victim.say(holes(&[(0, SIZE)])).unwrap();
    victim.session.handle_holes_made(T);
    victim
        .session
        .handle_path_lost(P, PathLoss::Reset, victim.now);
    assert_eq!(
        victim.session.poll_zeros(),
        None,
        "no transfer waits for them"
    );
    victim.connect();
    assert!(victim.session.poll_zeros().is_some(), "it is back");
    let mut victim = Victim::accepting(Message::Put(put(T)), delta(8));
    victim
        .session
        .handle_path_lost(P, PathLoss::Reset, victim.now);
    assert_eq!(victim.session.poll_compare(), None);
}
