//! Tests with hostile peers that violate the rules of pipes, batches and send windows.

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, DataHeader, Digest, Event, Frame, Incoming, Message, Name,
    Offer, PathError, Request, Role, TransferId, Transmit,
    grid::MOST_SIZE,
    message::{
        Complete, End, GetTree, MOST_SOURCES, OfferKind, OpenTunnels, Put, PutTree, TreeBody,
        TreeSource, WalkRules, Window,
    },
    tree::{EntryFailure, EntryId, TreeMessage, TreeRules, Verdict},
};
use nicstripe_sim::Rng;

use crate::hostile::{P, T, Victim, accept, ack, get, header, offer, put};

const FULL: u32 = 1 << 18;

/// Returns options with a send window of `room` chunks.
fn within(room: Option<u64>) -> Acceptance {
    Acceptance {
        room,
        ..Acceptance::default()
    }
}

impl Victim {
    /// Creates a daemon that receives a pipe of unknown length. `room` is the daemon's send window
    /// in chunks; `None` writes to a file instead.
    fn piped(room: Option<u64>) -> Self {
        let mut victim = Self::new(Role::Daemon);
        let put = Put {
            offer: Offer {
                kind: Some(OfferKind::Pipe),
                ..offer(T)
            },
            ..put(T)
        };
        victim.say(&Message::Put(put)).unwrap();
        victim.session.accept(T, Vec::new(), within(room));
        victim.drain();
        victim
    }

    /// Creates a daemon that receives a tree with a send window of `room` batches.
    fn taking_batches(room: u64) -> Self {
        let mut victim = Self::new(Role::Daemon);
        victim.say(&Message::PutTree(put_tree(T))).unwrap();
        victim.session.accept(T, Vec::new(), within(Some(room)));
        victim.drain();
        victim
    }

    /// Creates a client that sends a tree, with three queued batches and a send window of two.
    fn giving() -> Self {
        let mut victim = Self::new(Role::Client);
        victim.session.put_tree(put_tree(T));
        victim.drain();
        victim.say(&accept(T)).unwrap();
        for len in [7, 8, 9] {
            victim
                .session
                .give(T, len, ChainingValue([1; 32]), false)
                .unwrap();
        }
        victim
            .session
            .handle_frame(P, Frame::Credit { frames: 2 }, victim.now)
            .unwrap();
        victim.send_chunks();
        victim
    }

    /// Begins to send all chunks that the session permits. Returns their headers.
    fn send_chunks(&mut self) -> Vec<DataHeader> {
        let chunks = self
            .drain()
            .1
            .into_iter()
            .filter_map(|transmit| match transmit {
                Transmit::Chunk { chunk, .. } => Some(chunk),
                Transmit::Frame(_) | Transmit::Load(_) => None,
            });
        let chunks: Vec<ChunkId> = chunks.collect();
        let begin = |chunk| {
            self.session
                .handle_chunk_read(P, T, chunk, ChainingValue([1; 32]), self.now)
        };
        let begun: Vec<DataHeader> = chunks.into_iter().filter_map(begin).collect();
        begun
            .iter()
            .for_each(|_| self.session.handle_chunk_flushed(P));
        begun
    }

    fn complete(&mut self, end: Option<End>) -> Result<(), PathError> {
        let digest = Digest::NONE;
        self.say(&Message::Complete(Complete {
            transfer: T,
            digest,
            streams: Vec::new(),
            end,
            changing: false,
        }))
    }
}

fn put_tree(transfer: TransferId) -> PutTree {
    PutTree {
        transfer,
        target: None,
        as_name: false,
        rules: TreeRules::default(),
        heeds_memory: false,
    }
}

fn get_tree(transfer: TransferId) -> Message {
    let sources = vec![TreeSource {
        name: None,
        content: true,
    }];
    Message::GetTree(GetTree {
        transfer,
        sources,
        walk: WalkRules::default(),
        rules: TreeRules::default(),
        limit_bps: None,
    })
}

fn told(transfer: TransferId) -> Message {
    let message = TreeMessage::Verdicts {
        first: EntryId(0),
        verdicts: vec![Verdict::Create],
    };
    Message::Tree(TreeBody { transfer, message })
}

fn window(chunks: u64) -> Message {
    Message::Window(Window {
        transfer: T,
        chunks,
    })
}

fn is_breach(result: &Result<Incoming, PathError>) -> bool {
    matches!(result, Err(PathError::Arrival(_)))
}

#[test]
fn a_chunk_beyond_the_window_ends_the_path_and_nothing_more_is_kept() {
    for mut victim in [Victim::piped(Some(4)), Victim::taking_batches(4)] {
        for chunk in [4, 5, 1 << 40, u64::MAX] {
            let result = victim.piece(chunk, FULL, false);
            assert!(is_breach(&result), "{chunk}: {result:?}");
        }
        assert!((0..4).all(|chunk| victim.write(chunk, FULL, false)));
        assert!(
            is_breach(&victim.piece(4, FULL, false)),
            "all four are kept"
        );
        victim.session.taken(T, 1);
        assert!(victim.write(4, FULL, false));
        assert!(is_breach(&victim.piece(5, FULL, false)));
        victim.is_healthy();
    }
}

#[test]
fn a_copy_of_what_is_kept_is_not_kept_twice() {
    let mut victim = Victim::taking_batches(4);
    assert!(matches!(
        victim.piece(0, 5, false),
        Ok(Incoming::Write { .. })
    ));
    assert!(
        matches!(victim.piece(0, 6, false), Ok(Incoming::Write { .. })),
        "another copy, while the first is verified"
    );
    assert!(
        victim
            .session
            .handle_chunk_written(P, &header(0, 5, false), victim.now)
    );
    assert!(
        !victim
            .session
            .handle_chunk_written(P, &header(0, 6, false), victim.now)
    );
    assert_eq!(victim.piece(0, 5, false), Ok(Incoming::Drop));
    assert_eq!(victim.session.stats(T).delivered_bytes, 5);
}

#[test]
fn a_window_that_shrinks_changes_nothing_and_one_of_any_size_is_taken() {
    let mut victim = Victim::new(Role::Client);
    victim.session.put_tree(put_tree(T));
    victim.drain();
    victim
        .say(&Message::Accept(nicstripe_proto::message::Accept {
            transfer: T,
            have: Vec::new(),
            window: Some(2),
            delta: None,
            memory: None,
        }))
        .unwrap();
    victim
        .session
        .handle_frame(P, Frame::Credit { frames: 100 }, victim.now)
        .unwrap();
    for len in 1..=6 {
        victim
            .session
            .give(T, len, ChainingValue([1; 32]), false)
            .unwrap();
    }
    // A path gets only a few chunks per assignment.
    let sent = |victim: &mut Victim| {
        (0..3)
            .map(|_| victim.send_chunks().len() as u64)
            .sum::<u64>()
    };
    assert_eq!(sent(&mut victim), 2);
    for (chunks, more) in [(1, 0), (0, 0), (3, 1), (2, 0), (u64::MAX, 3), (0, 0)] {
        victim.say(&window(chunks)).unwrap();
        assert_eq!(sent(&mut victim), more, "after a window of {chunks}");
    }
    victim.is_healthy();
}

#[test]
fn a_short_chunk_that_is_not_the_last_and_a_second_last_end_the_path() {
    let mut victim = Victim::piped(None);
    assert!(
        is_breach(&victim.piece(0, FULL - 1, false)),
        "short, not the last"
    );
    assert!(
        is_breach(&victim.piece(0, FULL + 1, true)),
        "longer than a chunk"
    );
    assert!(victim.write(3, 5, true));
    for (chunk, len) in [(2, FULL), (2, 5), (4, FULL), (4, 5), (3, 6), (u64::MAX, 1)] {
        assert!(
            is_breach(&victim.piece(chunk, len, true)),
            "another last: {chunk}, {len} bytes"
        );
    }
    assert!(is_breach(&victim.piece(4, FULL, false)), "behind the last");
    assert_eq!(
        victim.piece(3, 5, true),
        Ok(Incoming::Drop),
        "the same again"
    );
    assert!(victim.write(1, FULL, false));
    victim.is_healthy();
}

#[test]
fn a_last_chunk_before_one_that_has_come_ends_the_path() {
    let mut victim = Victim::piped(None);
    assert!(victim.write(6, FULL, false));
    assert!(is_breach(&victim.piece(5, FULL, true)));
    victim.is_healthy();
}

#[test]
fn an_end_that_does_not_fit_what_came_ends_the_path() {
    let full = u64::from(FULL);
    let cases = [
        (0, 0),
        (3, 3 * full),
        (4, 3 * full),
        (4, 4 * full + 1),
        (5, 4 * full),
        (1 << 44, MOST_SIZE),
        (4, u64::MAX),
        (u64::MAX, 0),
    ];
    for (chunks, size) in cases {
        let mut victim = Victim::piped(None);
        assert!(victim.write(3, FULL, false));
        let result = victim.complete(Some(End { chunks, size }));
        assert!(
            matches!(result, Err(PathError::Arrival(_))),
            "{chunks} {size}: {result:?}"
        );
        assert_eq!(victim.drain().0, []);
        victim.is_healthy();
    }
    for (chunks, size) in [(0, 0), (3, 0)] {
        let mut victim = Victim::taking_batches(64);
        assert!(victim.write(3, 1, false));
        assert!(matches!(
            victim.complete(Some(End { chunks, size })),
            Err(PathError::Arrival(_))
        ));
    }
    let mut victim = Victim::new(Role::Daemon);
    victim.say(&Message::Put(put(T))).unwrap();
    victim.session.accept(T, Vec::new(), Acceptance::default());
    let size = 8 << 18;
    assert!(
        matches!(
            victim.complete(Some(End { chunks: 8, size })),
            Err(PathError::Arrival(_))
        ),
        "the end of a file is known"
    );
}

#[test]
fn an_end_before_a_chunk_that_is_still_verified_ends_the_path() {
    for mut victim in [
        Victim::piped(None),
        Victim::piped(Some(8)),
        Victim::taking_batches(8),
    ] {
        assert!(matches!(
            victim.piece(5, FULL, false),
            Ok(Incoming::Write { .. })
        ));
        let result = victim.complete(Some(End {
            chunks: 1,
            size: u64::from(FULL),
        }));
        assert!(matches!(result, Err(PathError::Arrival(_))), "{result:?}");
        victim
            .session
            .handle_chunk_written(P, &header(5, FULL, false), victim.now);
        assert_eq!(victim.drain().0, [], "nothing is whole");
    }
}

#[test]
fn an_only_chunk_that_was_not_called_the_last_has_no_digest_and_ends_the_path() {
    // The value is that of an inner part, so the digest would not be a valid BLAKE3 hash.
    let mut victim = Victim::piped(None);
    assert!(victim.write(0, FULL, false));
    let result = victim.complete(Some(End {
        chunks: 1,
        size: u64::from(FULL),
    }));
    assert!(matches!(result, Err(PathError::Arrival(_))), "{result:?}");
    assert_eq!(victim.drain().0, []);
}

#[test]
fn a_second_end_counts_for_nothing() {
    let mut victim = Victim::taking_batches(8);
    assert!((0..3).all(|chunk| victim.write(chunk, 7, false)));
    victim.complete(Some(End { chunks: 4, size: 0 })).unwrap();
    for chunks in [3, 4, 5] {
        victim.complete(Some(End { chunks, size: 0 })).unwrap();
    }
    assert!(
        matches!(&victim.drain().0[..], [Event::Completed(complete)] if complete.end == Some(End { chunks: 4, size: 0 }))
    );
    assert!(is_breach(&victim.piece(4, 7, false)), "behind the end");
    assert!(victim.write(3, 7, false));
    assert_eq!(
        victim.drain().0,
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
    victim
        .say(&Message::Complete(Complete {
            transfer: T,
            digest,
            streams: Vec::new(),
            end,
            changing: false,
        }))
        .unwrap();
    let events = victim.drain().0;
    assert!(
        matches!(&events[..], [Event::Completed(_), Event::Mismatch { sent, .. }] if *sent == digest),
        "{events:?}"
    );
}

#[test]
fn a_file_in_batches_ends_the_path() {
    let mut victim = Victim::new(Role::Daemon);
    let put = Put {
        offer: Offer {
            kind: Some(OfferKind::Batches),
            ..offer(T)
        },
        ..put(T)
    };
    assert!(matches!(
        victim.say(&Message::Put(put)),
        Err(PathError::Transfer { .. })
    ));
    assert_eq!(victim.drain().0, []);
    victim.is_healthy();
}

#[test]
fn what_becomes_of_a_tree_is_told_to_its_sender_alone() {
    let mut file = Victim::new(Role::Client);
    file.session.put(put(T)).unwrap();
    file.drain();
    let offered = {
        let mut victim = Victim::new(Role::Client);
        victim.session.put_tree(put_tree(T));
        victim.drain();
        victim
    };
    for (mut victim, what) in [
        (Victim::taking_batches(8), "its receiver"),
        (offered, "before it was accepted"),
        (file, "a file"),
    ] {
        assert!(
            matches!(victim.say(&told(T)), Err(PathError::Transfer { .. })),
            "{what}"
        );
        assert!(
            matches!(victim.say(&window(9)), Err(PathError::Transfer { .. })),
            "{what}"
        );
        assert_eq!(victim.drain().0, [], "{what}");
        victim.is_healthy();
    }
    let mut victim = Victim::giving();
    victim.say(&told(T)).unwrap();
    assert!(matches!(
        &victim.drain().0[..],
        [Event::TreeMessage(TreeBody { transfer: T, .. })]
    ));
    assert!(
        matches!(
            victim.say(&told(TransferId(9))),
            Err(PathError::Transfer { .. })
        ),
        "an unknown tree"
    );
}

#[test]
fn a_file_being_sent_hears_nothing_of_trees() {
    let mut victim = Victim::new(Role::Client);
    victim.session.put(put(T)).unwrap();
    victim.drain();
    victim.say(&accept(T)).unwrap();
    victim.drain();
    assert!(matches!(
        victim.say(&told(T)),
        Err(PathError::Transfer { .. })
    ));
    assert_eq!(victim.drain().0, []);
}

#[test]
fn trees_under_a_number_that_was_used_end_the_path() {
    for first in [
        Message::PutTree(put_tree(T)),
        get_tree(T),
        Message::Put(put(T)),
        get(T),
    ] {
        for second in [
            Message::PutTree(put_tree(T)),
            get_tree(T),
            Message::PutTree(put_tree(TransferId(0))),
            get_tree(TransferId(0)),
        ] {
            let mut victim = Victim::new(Role::Daemon);
            victim.say(&first).unwrap();
            victim.drain();
            assert!(
                matches!(victim.say(&second), Err(PathError::Transfer { .. })),
                "{first:?}, {second:?}"
            );
            assert_eq!(victim.drain().0, []);
            victim.is_healthy();
        }
    }
}

#[test]
fn trees_that_are_asked_of_a_client_can_be_refused() {
    for ask in [get_tree(T), Message::PutTree(put_tree(T))] {
        let mut victim = Victim::new(Role::Client);
        victim.say(&ask).unwrap();
        assert!(matches!(
            &victim.drain().0[..],
            [Event::Requested(Request::GetTree(_) | Request::PutTree(_))]
        ));
        let fail = nicstripe_proto::session::failure(
            T,
            nicstripe_proto::FailCode::Refused,
            "a client serves no files",
            false,
        );
        victim.session.fail(fail);
        assert_eq!(victim.piece(0, 1, false), Ok(Incoming::Drop));
        victim.say(&window(5)).unwrap();
        victim.say(&told(T)).unwrap();
        assert_eq!(victim.drain().0, []);
        victim.is_healthy();
    }
}

#[test]
fn acknowledgements_of_batches_that_were_never_given_end_the_path() {
    let mut victim = Victim::giving();
    for (first, count) in [(2, 1), (0, 3), (3, 1), (0, u64::MAX), (u64::MAX - 1, 1)] {
        let result = victim
            .session
            .handle_frame(P, ack(first, count), victim.now);
        assert!(
            matches!(result, Err(PathError::NeverSent { .. })),
            "{first}+{count}: {result:?}"
        );
    }
    victim
        .session
        .handle_frame(P, ack(0, 2), victim.now)
        .unwrap();
    let released = |event: &Event| {
        matches!(
            event,
            Event::Released {
                chunk: ChunkId(0 | 1),
                ..
            }
        )
    };
    let events = victim.drain().0;
    assert!(
        events.len() == 2 && events.iter().all(released),
        "{events:?}"
    );
    assert_eq!(victim.session.stats(T).delivered_bytes, 7 + 8);
}

#[test]
fn trees_without_end_are_refused() {
    let mut victim = Victim::new(Role::Daemon);
    let ask = |id: u32| {
        if id.is_multiple_of(2) {
            get_tree(TransferId(id))
        } else {
            Message::PutTree(put_tree(TransferId(id)))
        }
    };
    let refused = (1..5000)
        .map(|id| victim.say(&ask(id)))
        .find_map(Result::err);
    assert_eq!(refused, Some(PathError::TooManyTransfers));
}

#[test]
fn the_longest_messages_of_trees_fit_in_a_control_message() {
    let name = || Name::new(vec![vec![b'x'; 255]; 1]).unwrap();
    let sources = vec![
        TreeSource {
            name: Some(name()),
            content: true
        };
        200
    ];
    assert!(sources.len() <= MOST_SOURCES);
    let failed = vec![
        EntryFailure {
            id: Some(EntryId(u64::MAX)),
            code: nicstripe_proto::FailCode::Io,
            text: "ä".repeat(512)
        };
        57
    ];
    let message = TreeMessage::Results {
        done: Vec::new(),
        failed,
        deleted: Vec::new(),
        stripped: None,
    };
    for message in [
        Message::GetTree(GetTree {
            transfer: T,
            sources,
            walk: WalkRules::default(),
            rules: TreeRules::default(),
            limit_bps: None,
        }),
        Message::Tree(TreeBody {
            transfer: T,
            message,
        }),
    ] {
        assert!(minicbor::to_vec(message).unwrap().len() <= nicstripe_proto::frame::MAX_CONTROL);
    }
}

#[test]
fn random_frames_never_panic_and_keep_no_more_than_the_window() {
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let room = 1 + rng.below(9);
        let mut victim = match seed % 4 {
            0 => Victim::piped(None),
            1 => Victim::piped(Some(room)),
            2 => Victim::taking_batches(room),
            _ => Victim::giving(),
        };
        let (mut arrived, mut kept, mut taken) = (Vec::new(), 0, 0);
        for _ in 0..80 {
            let number = |rng: &mut Rng| match rng.below(4) {
                0 | 1 => rng.below(10),
                2 => u64::MAX - rng.below(3),
                _ => rng.next_u64(),
            };
            match rng.below(10) {
                0..=3 => {
                    let len = [1, 5, FULL - 1, FULL, FULL][rng.below(5) as usize];
                    let header = header(number(&mut rng), len, rng.below(6) == 0);
                    if let Ok(Incoming::Write { .. }) =
                        victim.session.handle_chunk(P, &header, victim.now)
                    {
                        arrived.push(header);
                    }
                }
                4 | 5 if !arrived.is_empty() => {
                    let header = arrived.swap_remove(rng.below(arrived.len() as u64) as usize);
                    match rng.below(4) {
                        0 => victim.session.handle_chunk_unwritten(P, T, header.chunk),
                        _ => {
                            kept += u64::from(
                                victim.session.handle_chunk_written(P, &header, victim.now),
                            );
                        }
                    }
                }
                6 if taken < kept => {
                    taken += 1;
                    victim.session.taken(T, 1);
                }
                7 => drop(victim.say(&window(number(&mut rng)))),
                8 if rng.below(5) == 0 => {
                    let chunks = rng.below(10);
                    let size =
                        [0, chunks * u64::from(FULL), number(&mut rng)][rng.below(3) as usize];
                    drop(victim.complete((rng.below(4) > 0).then_some(End { chunks, size })));
                }
                8 => drop(victim.session.handle_frame(
                    P,
                    ack(number(&mut rng), number(&mut rng)),
                    victim.now,
                )),
                _ => drop(victim.say(&told(TransferId(rng.below(3) as u32)))),
            }
            victim.session.handle_timeout(victim.now);
            victim.drain();
            let held: u64 = victim
                .session
                .paths()
                .map(|(_, path)| path.held_chunks())
                .sum();
            assert_eq!(held, arrived.len() as u64, "seed {seed}");
            assert!(
                seed % 4 == 0 || kept - taken <= room,
                "seed {seed}: {kept} buffered and {taken} consumed, of {room}"
            );
        }
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
    victim.say(&mux(3, 4)).unwrap();
    assert!(matches!(
        &victim.drain().0[..],
        [Event::Requested(_), Event::Requested(_)]
    ));
    for wrong in [mux(3, 4), mux(4, 5), mux(6, 6), mux(6, 5), mux(u32::MAX, 0)] {
        assert!(
            matches!(victim.say(&wrong), Err(PathError::Transfer { .. })),
            "{wrong:?}"
        );
        assert_eq!(victim.drain().0, []);
    }
    victim.say(&mux(7, 8)).unwrap();
    victim.is_healthy();
    assert!(matches!(
        Victim::new(Role::Client).say(&mux(1, 2)),
        Err(PathError::Unexpected(_))
    ));
}
