//! Tests with hostile peers that violate the rules of pipes, batches and send windows.

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, Digest, Event, FailCode, Incoming, Message, PathError,
    Request, Role, TransferId,
    grid::MOST_SIZE,
    message::{
        Accept, End, Exec, MOST_WORD_BYTES, MOST_WORDS, OfferKind, OpenTunnels, TreeBody,
        TreeSource, Word,
    },
};

use crate::peer::{
    FULL, SIZE, T, Victim, accept, acceptance, ack, chunk, complete, credit, end, get, get_tree,
    header, put, put_of, put_tree, verdict, window,
};

impl Victim {
    /// Creates a daemon that receives a pipe of unknown length. `room` is the daemon's send window
    /// in chunks; `None` writes to a file instead.
    fn piped(room: Option<u64>) -> Self {
        let how = Acceptance {
            room,
            ..Acceptance::default()
        };
        Self::accepting(put_of(OfferKind::Pipe), how)
    }

    /// Creates a daemon that receives a tree with a send window of `room` batches.
    fn taking_batches(room: u64) -> Self {
        let how = Acceptance {
            room: Some(room),
            ..Acceptance::default()
        };
        Self::accepting(put_tree(T), how)
    }

    /// Creates a client that sends a tree, with three queued batches and a send window of two.
    fn giving() -> Self {
        let mut victim = Self::offering_tree();
        victim.say(accept(T)).unwrap();
        victim.give(7..=9);
        victim.say(credit(2)).unwrap();
        victim.send_chunks();
        victim
    }

    /// Queues batches of these lengths.
    fn give(&mut self, lens: impl IntoIterator<Item = u32>) {
        for len in lens {
            self.session
                .give(T, len, ChainingValue([1; 32]), false)
                .unwrap();
        }
    }
}

/// Returns a request for the whole served directory.
fn get_all(transfer: TransferId) -> Message {
    let everything = TreeSource {
        name: None,
        content: true,
    };
    get_tree(transfer, vec![everything])
}

#[test]
fn a_chunk_beyond_the_window_ends_the_path_and_nothing_more_is_kept() {
    for mut victim in [Victim::piped(Some(4)), Victim::taking_batches(4)] {
        for beyond in [4, 5, 1 << 40, u64::MAX] {
            victim.refuses(chunk(beyond, FULL), "Arrival");
        }
        assert!((0..4).all(|index| victim.write(index, FULL, false)));
        // All four are kept.
        victim.refuses(chunk(4, FULL), "Arrival");
        victim.session.taken(T, 1);
        assert!(victim.write(4, FULL, false));
        victim.refuses(chunk(5, FULL), "Arrival");
        victim.is_healthy();
    }
}

#[test]
fn a_window_that_shrinks_changes_nothing_and_one_of_any_size_is_taken() {
    let mut victim = Victim::offering_tree();
    let accept = Accept {
        window: Some(2),
        ..acceptance(T)
    };
    victim.say(Message::Accept(accept)).unwrap();
    victim.say(credit(100)).unwrap();
    victim.give(1..=6);
    // A path gets only a few chunks per assignment.
    let sent = |victim: &mut Victim| (0..3).map(|_| victim.send_chunks()).sum::<u64>();
    assert_eq!(sent(&mut victim), 2);
    for (chunks, more) in [(1, 0), (0, 0), (3, 1), (2, 0), (u64::MAX, 3), (0, 0)] {
        victim.say(window(chunks)).unwrap();
        assert_eq!(sent(&mut victim), more, "after a window of {chunks}");
    }
    victim.is_healthy();
}

#[test]
fn a_short_chunk_that_is_not_the_last_and_a_second_last_end_the_path() {
    let mut victim = Victim::piped(None);
    // Short and not the last, then longer than a chunk.
    victim.refuses(chunk(0, FULL - 1), "Arrival");
    victim.refuses(header(0, FULL + 1, true), "Arrival");
    assert!(victim.write(3, 5, true));
    for (another, len) in [(2, FULL), (2, 5), (4, FULL), (4, 5), (3, 6), (u64::MAX, 1)] {
        victim.refuses(header(another, len, true), "Arrival");
    }
    let behind_the_last = chunk(4, FULL);
    victim.refuses(behind_the_last, "Arrival");
    assert_eq!(
        victim.piece(3, 5, true),
        Ok(Incoming::Drop),
        "the same again"
    );
    assert!(victim.write(1, FULL, false));
    victim.say(end(4, 3 * u64::from(FULL) + 5)).unwrap();
    victim.is_healthy();

    let mut victim = Victim::piped(None);
    assert!(victim.write(6, FULL, false));
    let last_before_it = header(5, FULL, true);
    victim.refuses(last_before_it, "Arrival");
    victim.is_healthy();
}

#[test]
fn an_end_that_does_not_fit_what_came_ends_the_path() {
    let full = u64::from(FULL);
    for (chunks, size) in [
        (0, 0),
        (3, 3 * full),
        (4, 3 * full),
        (4, 4 * full + 1),
        (5, 4 * full),
        (1 << 44, MOST_SIZE),
        (4, u64::MAX),
        (u64::MAX, 0),
    ] {
        let mut victim = Victim::piped(None);
        assert!(victim.write(3, FULL, false));
        victim.refuses(end(chunks, size), "Arrival");
        victim.is_healthy();
    }
    for (chunks, size) in [
        (3, 2 * full + 5),
        (4, 3 * full + 6),
        (5, 3 * full + 5),
        (4, u64::MAX),
        (0, 0),
    ] {
        let mut victim = Victim::piped(None);
        assert!(victim.write(3, 5, true));
        victim.refuses(end(chunks, size), "Arrival");
    }
    for (chunks, size) in [(0, 0), (3, 0)] {
        let mut victim = Victim::taking_batches(64);
        assert!(victim.write(3, 1, false));
        victim.refuses(end(chunks, size), "Arrival");
    }
    // The end of a file is known.
    Victim::receiving().refuses(end(8, SIZE), "Arrival");
    // The only chunk was not marked as the last: its value is that of an inner part, so the digest
    // would not be a valid BLAKE3 hash.
    let mut victim = Victim::piped(None);
    assert!(victim.write(0, FULL, false));
    victim.refuses(end(1, full), "Arrival");
}

#[test]
fn an_end_before_a_chunk_that_is_still_verified_ends_the_path() {
    for mut victim in [
        Victim::piped(None),
        Victim::piped(Some(8)),
        Victim::taking_batches(8),
    ] {
        victim.takes(5, FULL, false);
        victim.refuses(end(1, u64::from(FULL)), "Arrival");
        victim.written(&chunk(5, FULL));
        assert_eq!(victim.events(), [], "nothing is whole");
    }
}

#[test]
fn a_second_end_counts_for_nothing() {
    let mut victim = Victim::taking_batches(8);
    assert!((0..3).all(|index| victim.write(index, 7, false)));
    for chunks in [4, 3, 4, 5] {
        victim.say(end(chunks, 0)).unwrap();
    }
    assert!(
        matches!(&victim.events()[..], [Event::Completed(complete)] if complete.end == Some(End { chunks: 4, size: 0 }))
    );
    let behind_the_end = chunk(4, 7);
    victim.refuses(behind_the_end, "Arrival");
    assert!(victim.write(3, 7, false));
    assert_eq!(
        victim.events(),
        [Event::Commit {
            transfer: T,
            digest: Digest::NONE
        }]
    );
}

#[test]
fn batches_with_a_digest_are_a_mismatch() {
    let mut victim = Victim::taking_batches(8);
    let (digest, end) = (Digest([1; 32]), Some(End { chunks: 0, size: 0 }));
    victim.say(complete(T, digest, end)).unwrap();
    let events = victim.events();
    assert!(
        matches!(&events[..], [Event::Completed(_), Event::Mismatch { sent, .. }] if *sent == digest),
        "{events:?}"
    );
}

#[test]
fn a_file_in_batches_ends_the_path() {
    let mut victim = Victim::new(Role::Daemon);
    victim.refuses(put_of(OfferKind::Batches), "Transfer");
    victim.is_healthy();
}

#[test]
fn what_becomes_of_a_tree_is_told_to_its_sender_alone() {
    for mut victim in [Victim::taking_batches(8), Victim::offering_tree()] {
        victim.refuses(verdict(T), "Transfer");
        victim.refuses(window(9), "Transfer");
        victim.is_healthy();
    }
    let mut victim = Victim::giving();
    victim.say(verdict(T)).unwrap();
    assert!(matches!(
        &victim.events()[..],
        [Event::TreeMessage(TreeBody { transfer: T, .. })]
    ));
    let of_an_unknown_tree = verdict(TransferId(9));
    victim.refuses(of_an_unknown_tree, "Transfer");
}

#[test]
fn trees_under_a_number_that_was_used_end_the_path() {
    let zero = TransferId(0);
    for first in [put_tree(T), get_all(T), Message::Put(put(T)), get(T)] {
        for second in [put_tree(T), get_all(T), put_tree(zero), get_all(zero)] {
            let mut victim = Victim::new(Role::Daemon);
            victim.say(&first).unwrap();
            victim.drain();
            victim.refuses(second, "Transfer");
            victim.is_healthy();
        }
    }
}

#[test]
fn trees_that_are_asked_of_a_client_can_be_refused() {
    for ask in [get_all(T), put_tree(T)] {
        let mut victim = Victim::new(Role::Client);
        victim.say(&ask).unwrap();
        assert!(matches!(
            &victim.events()[..],
            [Event::Requested(Request::GetTree(_) | Request::PutTree(_))]
        ));
        let fail = nicstripe_proto::session::failure(
            T,
            FailCode::Refused,
            "a client serves no files",
            false,
        );
        victim.session.fail(fail);
        assert_eq!(victim.piece(0, 1, false), Ok(Incoming::Drop));
        victim.say(window(5)).unwrap();
        victim.say(verdict(T)).unwrap();
        assert_eq!(victim.events(), []);
        victim.is_healthy();
    }
}

#[test]
fn acknowledgements_of_batches_that_were_never_given_end_the_path() {
    let mut victim = Victim::giving();
    for (first, count) in [(2, 1), (0, 3), (3, 1), (0, u64::MAX), (u64::MAX - 1, 1)] {
        victim.refuses(ack(first, count), "NeverSent");
    }
    victim.say(ack(0, 2)).unwrap();
    let released = |event: &Event| {
        matches!(
            event,
            Event::Released {
                chunk: ChunkId(0 | 1),
                ..
            }
        )
    };
    let events = victim.events();
    assert!(
        events.len() == 2 && events.iter().all(released),
        "{events:?}"
    );
    assert_eq!(victim.delivered(), 7 + 8);
}

#[test]
fn transfers_without_end_are_refused() {
    let file = |id| Message::Put(put(TransferId(id)));
    let tree = |id: u32| {
        if id.is_multiple_of(2) {
            get_all(TransferId(id))
        } else {
            put_tree(TransferId(id))
        }
    };
    for request in [file as fn(u32) -> Message, tree] {
        let mut victim = Victim::new(Role::Daemon);
        let refused = (1..5000)
            .map(|id| victim.say(request(id)))
            .find_map(Result::err);
        assert_eq!(refused, Some(PathError::TooManyTransfers));
    }
}

#[test]
fn a_mux_needs_two_new_numbers_and_a_daemon() {
    let mux = |up, down| {
        Message::OpenTunnels(OpenTunnels {
            up: TransferId(up),
            down: TransferId(down),
        })
    };
    let mut victim = Victim::new(Role::Daemon);
    victim.say(mux(3, 4)).unwrap();
    assert!(matches!(
        &victim.events()[..],
        [Event::Requested(_), Event::Requested(_)]
    ));
    for wrong in [mux(3, 4), mux(4, 5), mux(6, 6), mux(6, 5), mux(u32::MAX, 0)] {
        victim.refuses(wrong, "Transfer");
    }
    victim.say(mux(7, 8)).unwrap();
    victim.is_healthy();
    Victim::new(Role::Client).refuses(mux(1, 2), "Unexpected");
}

fn exec(first: u32, words: &[&[u8]]) -> Message {
    Message::Exec(Exec {
        first: TransferId(first),
        words: words.iter().map(|word| Word(word.to_vec())).collect(),
    })
}

#[test]
fn a_command_needs_four_new_numbers_words_without_nul_and_a_daemon() {
    let id: &[&[u8]] = &[b"id"];
    let mut victim = Victim::new(Role::Daemon);
    victim.say(exec(3, id)).unwrap();
    assert_eq!(victim.events().len(), 4);
    for wrong in [exec(3, id), exec(6, id), exec(0, id)] {
        victim.refuses(wrong, "Transfer");
    }
    let (long, many) = (
        vec![b'a'; MOST_WORD_BYTES],
        vec![b"a".as_slice(); MOST_WORDS + 1],
    );
    let wrong: [(u32, &[&[u8]]); 12] = [
        (7, &[]),
        (7, &[b""]),
        (7, &[b"", b"id"]),
        (7, &[b"\0"]),
        (7, &[b"id\0"]),
        (7, &[b"\0id"]),
        (7, &[b"id", b"-u\0"]),
        (7, &[b"id", b"\0", b"-u"]),
        (7, &[&long]),
        (7, &many),
        (u32::MAX - 2, id),
        (u32::MAX, id),
    ];
    for (first, words) in wrong {
        victim.refuses(exec(first, words), "Unexpected");
    }
    victim.say(exec(7, id)).unwrap();
    victim.is_healthy();
    Victim::new(Role::Client).refuses(exec(1, id), "Unexpected");
}

#[test]
fn a_command_without_room_for_its_four_transfers_is_not_requested() {
    for before in 1..=4 {
        let mut victim = Victim::new(Role::Daemon);
        (1..=before).for_each(|first| victim.say(get(TransferId(first))).unwrap());
        let mut requested = victim.events().len();
        let mut first = before + 1;
        let end = loop {
            let said = victim.say(exec(first, &[b"id"]));
            let events = victim.events().len();
            match said {
                Ok(()) => assert_eq!(events, 4),
                Err(end) => break (end, events),
            }
            requested += events;
            first += 4;
        };
        assert!(
            requested > 64 && end.1 == 0,
            "{before}: {requested}, {end:?}"
        );
    }
}
