//! Tests with hostile peers. A protocol violation closes the path or is ignored, and honest
//! transfers continue.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, ChunkRange, DataHeader, Digest, Event, Extent, FailCode,
    Frame, Incoming, Message, Name, Offer, PathError, PathId, PathLoss, PathState, Request, Role,
    Session, SessionConfig, SourceIdentity, Subtree, TransferId, Transmit,
    grid::MOST_SIZE,
    message::{Accept, Committed, Complete, Fail, Get, Holes, Keep, Put, PutOptions, Values},
};
use nicstripe_sim::Rng;

pub(crate) const P: PathId = PathId(0);
pub(crate) const T: TransferId = TransferId(1);
const SIZE: u64 = 8 << 18;

/// Honest session with one open path. The test acts as the session's peer and sends arbitrary
/// frames.
pub(crate) struct Victim {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    seq: u64,
}

impl Victim {
    pub(crate) fn new(role: Role) -> Self {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut session = Session::new(role, SessionConfig::default(), now);
        session.handle_path_open(P, now);
        let mut victim = Self {
            session,
            now,
            seq: 0,
        };
        victim.drain();
        victim
    }

    pub(crate) fn say(&mut self, message: &Message) -> Result<(), PathError> {
        self.say_bytes(minicbor::to_vec(message).unwrap())
    }

    fn say_bytes(&mut self, body: Vec<u8>) -> Result<(), PathError> {
        self.seq += 1;
        self.session.handle_frame(
            P,
            Frame::Control {
                seq: self.seq - 1,
                body,
            },
            self.now,
        )
    }

    fn data(&mut self, chunk: u64, len: u32) -> Result<Incoming, PathError> {
        self.piece(chunk, len, false)
    }

    /// Delivers the header of a data frame with `len` bytes of a chunk. `last` marks the final
    /// chunk of a stream.
    pub(crate) fn piece(
        &mut self,
        chunk: u64,
        len: u32,
        last: bool,
    ) -> Result<Incoming, PathError> {
        self.session
            .handle_chunk(P, &header(chunk, len, last), self.now)
    }

    /// Delivers a chunk and reports it as verified and written. Returns true if the chunk is new.
    pub(crate) fn write(&mut self, chunk: u64, len: u32, last: bool) -> bool {
        let incoming = self.piece(chunk, len, last);
        assert!(
            matches!(incoming, Ok(Incoming::Write { .. })),
            "{incoming:?}"
        );
        self.session
            .handle_chunk_written(P, &header(chunk, len, last), self.now)
    }

    pub(crate) fn drain(&mut self) -> (Vec<Event>, Vec<Transmit>) {
        let events = std::iter::from_fn(|| self.session.poll_event()).collect();
        (
            events,
            std::iter::from_fn(|| self.session.poll_transmit(P, self.now))
                .take(1000)
                .collect(),
        )
    }

    /// Creates a daemon that receives a file of eight chunks.
    pub(crate) fn receiving() -> Self {
        let mut victim = Self::new(Role::Daemon);
        victim.say(&Message::Put(put(T))).unwrap();
        victim.session.accept(T, Vec::new(), Acceptance::default());
        victim.drain();
        victim
    }

    /// Creates a client that sends a file of eight chunks. Two chunks are in flight.
    fn sending() -> Self {
        let mut victim = Self::new(Role::Client);
        victim.session.put(put(T)).unwrap();
        victim.drain();
        victim.say(&accept(T)).unwrap();
        victim
            .session
            .handle_frame(P, Frame::Credit { frames: 2 }, victim.now)
            .unwrap();
        let chunks = victim
            .drain()
            .1
            .into_iter()
            .filter_map(|transmit| match transmit {
                Transmit::Chunk { chunk, .. } => Some(chunk),
                Transmit::Frame(_) | Transmit::Load(_) => None,
            });
        for chunk in chunks.collect::<Vec<_>>() {
            assert!(
                victim
                    .session
                    .handle_chunk_read(P, T, chunk, ChainingValue([1; 32]), victim.now)
                    .is_some()
            );
        }
        victim
    }

    pub(crate) fn is_healthy(&mut self) {
        self.session
            .handle_timeout(self.now + Duration::from_millis(1));
        assert_eq!(
            self.session.paths().next().unwrap().1.state(),
            PathState::Open
        );
    }
}

pub(crate) fn header(chunk: u64, len: u32, last: bool) -> DataHeader {
    DataHeader {
        transfer: T,
        chunk: ChunkId(chunk),
        value: ChainingValue([0; 32]),
        len,
        raw_len: 0,
        last,
    }
}

pub(crate) fn offer(transfer: TransferId) -> Offer {
    Offer {
        transfer,
        source: SourceIdentity {
            size: SIZE,
            ..SourceIdentity::default()
        },
        chunk_log2: 18,
        mode: 0o600,
        kind: None,
        data: None,
    }
}

pub(crate) fn put(transfer: TransferId) -> Put {
    Put {
        name: Name::new(["a"]).unwrap(),
        offer: offer(transfer),
        options: PutOptions::default(),
        into: None,
        entry: None,
    }
}

pub(crate) fn get(transfer: TransferId) -> Message {
    let name = Name::new(["a"]).unwrap();
    Message::Get(Get {
        transfer,
        name,
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    })
}

pub(crate) fn accept(transfer: TransferId) -> Message {
    Message::Accept(Accept {
        transfer,
        have: Vec::new(),
        window: None,
        delta: None,
        memory: None,
    })
}

pub(crate) fn ack(first: u64, count: u64) -> Frame {
    Frame::Ack {
        transfer: T,
        ranges: vec![ChunkRange {
            first: ChunkId(first),
            count,
        }],
    }
}

#[test]
fn data_beyond_the_credit_ends_the_path() {
    let mut victim = Victim::receiving();
    for index in 0..32 {
        victim.data(index % 8, 1 << 18).unwrap();
    }
    assert_eq!(victim.data(0, 1 << 18), Err(PathError::Credit));
}

#[test]
fn data_that_is_of_no_transfer_or_no_chunk_ends_the_path() {
    let mut victim = Victim::new(Role::Daemon);
    assert!(matches!(victim.data(0, 1), Err(PathError::Transfer { .. })));
    victim.say(&Message::Put(put(T))).unwrap();
    assert!(
        matches!(victim.data(0, 1 << 18), Err(PathError::Transfer { .. })),
        "data before it was accepted"
    );
    let mut victim = Victim::receiving();
    assert!(matches!(
        victim.data(8, 1 << 18),
        Err(PathError::Arrival(_))
    ));
    assert!(matches!(
        victim.data(u64::MAX, 1 << 18),
        Err(PathError::Arrival(_))
    ));
    assert!(matches!(victim.data(7, 1), Err(PathError::Arrival(_))));
    victim.is_healthy();
}

#[test]
fn data_towards_a_sender_ends_the_path() {
    let mut victim = Victim::sending();
    assert!(matches!(
        victim.data(0, 1 << 18),
        Err(PathError::Transfer { .. })
    ));
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
        let result = victim
            .session
            .handle_frame(P, ack(first, count), victim.now);
        assert!(
            matches!(result, Err(PathError::NeverSent { .. })),
            "{first}+{count}: {result:?}"
        );
    }
    assert_eq!(victim.session.stats(T).delivered_bytes, 0);
    victim
        .session
        .handle_frame(P, ack(0, 2), victim.now)
        .unwrap();
    assert_eq!(victim.session.stats(T).delivered_bytes, 2 << 18);
    victim
        .session
        .handle_frame(P, ack(0, 2), victim.now)
        .unwrap();
    assert_eq!(victim.session.stats(T).delivered_bytes, 2 << 18);
}

#[test]
fn acknowledgements_towards_a_receiver_end_the_path() {
    let mut victim = Victim::receiving();
    assert!(matches!(
        victim.session.handle_frame(P, ack(0, 1), victim.now),
        Err(PathError::Transfer { .. })
    ));
}

#[test]
fn messages_that_do_not_fit_the_state_end_the_path() {
    let unknown = TransferId(99);
    let complete = |transfer| {
        Message::Complete(Complete {
            transfer,
            digest: Digest([1; 32]),
            streams: Vec::new(),
            end: None,
            changing: false,
        })
    };
    let committed = |transfer| {
        Message::Committed(Committed {
            transfer,
            digest: Digest([1; 32]),
        })
    };
    let cases = [
        (Victim::sending(), accept(T)),
        (Victim::sending(), Message::Offer(offer(T))),
        (Victim::sending(), complete(T)),
        (Victim::sending(), Message::Put(put(T))),
        (Victim::sending(), accept(unknown)),
        (Victim::receiving(), Message::Put(put(T))),
        (Victim::receiving(), get(T)),
        (Victim::receiving(), Message::Offer(offer(T))),
        (Victim::receiving(), committed(T)),
        (Victim::receiving(), accept(T)),
        (Victim::receiving(), complete(unknown)),
        (Victim::receiving(), committed(unknown)),
    ];
    for (mut victim, message) in cases {
        let result = victim.say(&message);
        assert!(
            matches!(result, Err(PathError::Transfer { .. })),
            "{message:?}: {result:?}"
        );
        assert_eq!(victim.drain().0, [], "{message:?}");
        victim.is_healthy();
    }
}

#[test]
fn a_second_digest_does_not_count() {
    let mut victim = Victim::receiving();
    for byte in [1, 2] {
        victim
            .say(&Message::Complete(Complete {
                transfer: T,
                digest: Digest([byte; 32]),
                streams: Vec::new(),
                end: None,
                changing: false,
            }))
            .unwrap();
    }
    let events = victim.drain().0;
    assert!(
        matches!(&events[..], [Event::Completed(complete)] if complete.digest == Digest([1; 32])),
        "{events:?}"
    );
}

#[test]
fn what_comes_for_a_transfer_that_has_ended_is_ignored() {
    let mut victim = Victim::receiving();
    let fail = Fail {
        transfer: T,
        code: FailCode::Cancelled,
        text: String::new(),
        resumable: true,
    };
    victim.say(&Message::Fail(fail.clone())).unwrap();
    assert_eq!(victim.drain().0, [Event::Failed(fail.clone())]);
    victim.say(&Message::Fail(fail)).unwrap();
    victim.say(&accept(T)).unwrap();
    assert_eq!(victim.data(0, 1 << 18), Ok(Incoming::Drop));
    victim.session.committed(Committed {
        transfer: T,
        digest: Digest([0; 32]),
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
    victim
        .say(&Message::Committed(Committed {
            transfer: T,
            digest: Digest([0; 32]),
        }))
        .unwrap();
    let events = victim.drain().0;
    assert!(
        matches!(&events[..], [Event::Failed(fail)] if fail.code == FailCode::Protocol),
        "{events:?}"
    );
    victim
        .session
        .handle_frame(P, ack(0, 2), victim.now)
        .unwrap();
    victim.is_healthy();
}

#[test]
fn chunk_sizes_that_do_not_fit_a_frame_are_refused() {
    for chunk_log2 in [0, 11, 19, 22, 63, 255] {
        let mut victim = Victim::new(Role::Daemon);
        let put = Put {
            offer: Offer {
                chunk_log2,
                ..offer(T)
            },
            ..put(T)
        };
        assert_eq!(
            victim.say(&Message::Put(put)),
            Err(PathError::ChunkSize(chunk_log2))
        );
    }
}

#[test]
fn the_largest_file_there_is_costs_no_memory() {
    let mut victim = Victim::new(Role::Daemon);
    let of = |size| Put {
        offer: Offer {
            source: SourceIdentity {
                size,
                ..SourceIdentity::default()
            },
            chunk_log2: 12,
            ..offer(T)
        },
        ..put(T)
    };
    for beyond in [MOST_SIZE, u64::MAX] {
        assert_eq!(
            victim.say(&Message::Put(of(beyond))),
            Err(PathError::FileSize(beyond))
        );
    }
    victim.say(&Message::Put(of(MOST_SIZE - 1))).unwrap();
    victim.session.accept(
        T,
        vec![Subtree {
            first: ChunkId(0),
            level: 49,
            value: ChainingValue([0; 32]),
        }],
        Acceptance::default(),
    );
    victim.drain();
    assert!(victim.session.stats(T).resumed_bytes > 0);
}

#[test]
fn garbage_ends_the_path_and_takes_no_message_behind_it_along() {
    let mut victim = Victim::new(Role::Daemon);
    let put = minicbor::to_vec(Message::Put(put(T))).unwrap();
    let control = |seq, body| Frame::Control { seq, body };
    victim
        .session
        .handle_frame(P, control(1, put), victim.now)
        .unwrap();
    let result = victim
        .session
        .handle_frame(P, control(0, vec![0xff, 0x00]), victim.now);
    assert!(matches!(result, Err(PathError::Message(_))), "{result:?}");
    assert!(matches!(
        &victim.drain().0[..],
        [Event::Requested(Request::Put(_))]
    ));
}

#[test]
fn numbers_that_were_never_sent_or_are_far_ahead_end_the_path() {
    let mut victim = Victim::receiving();
    let far = Frame::Control {
        seq: u64::MAX,
        body: vec![0],
    };
    assert!(matches!(
        victim.session.handle_frame(P, far, victim.now),
        Err(PathError::Reliable(_))
    ));
    let never = Frame::ControlAck { next: u64::MAX };
    assert!(matches!(
        victim.session.handle_frame(P, never, victim.now),
        Err(PathError::Reliable(_))
    ));
}

#[test]
fn what_was_read_for_an_earlier_connection_is_not_sent_beyond_the_credit_of_the_next() {
    let mut victim = Victim::new(Role::Client);
    let credit = |victim: &mut Victim| {
        victim
            .session
            .handle_frame(P, Frame::Credit { frames: 1 }, victim.now)
            .unwrap();
    };
    victim.session.put(put(T)).unwrap();
    victim.drain();
    victim.say(&accept(T)).unwrap();
    let read = |victim: &mut Victim| {
        victim
            .session
            .handle_chunk_read(P, T, ChunkId(0), ChainingValue([1; 32]), victim.now)
    };
    // The first chunk is assigned, the connection is replaced while the chunk is read, and the
    // chunk is assigned again.
    for _ in 0..2 {
        credit(&mut victim);
        assert!(victim.drain().1.iter().any(|transmit| matches!(
            transmit,
            Transmit::Chunk {
                chunk: ChunkId(0),
                ..
            }
        )));
        victim.session.handle_path_open(P, victim.now);
    }
    credit(&mut victim);
    assert_eq!(
        read(&mut victim),
        None,
        "read for a connection that is gone"
    );
    assert!(victim.drain().1.iter().any(|transmit| matches!(
        transmit,
        Transmit::Chunk {
            chunk: ChunkId(0),
            ..
        }
    )));
    assert!(read(&mut victim).is_some());
    assert_eq!(read(&mut victim), None, "one credit, one chunk");
}

#[test]
fn a_transfer_that_failed_while_its_chunks_were_read_leaves_the_next_one_all_its_credit() {
    let mut victim = Victim::new(Role::Client);
    victim
        .session
        .handle_frame(P, Frame::Credit { frames: 3 }, victim.now)
        .unwrap();
    for transfer in [TransferId(1), TransferId(2)] {
        victim.session.put(put(transfer)).unwrap();
        victim.say(&accept(transfer)).unwrap();
        let chunks = victim
            .drain()
            .1
            .into_iter()
            .filter(|transmit| matches!(transmit, Transmit::Chunk { .. }))
            .count();
        assert_eq!(chunks, 3, "{transfer:?}");
        victim.session.fail(nicstripe_proto::session::failure(
            transfer,
            FailCode::Io,
            "cannot read",
            true,
        ));
    }
}

#[test]
fn transfers_without_end_are_refused() {
    let mut victim = Victim::new(Role::Daemon);
    let refused = (1..5000)
        .map(|id| victim.say(&Message::Put(put(TransferId(id)))))
        .find_map(Result::err);
    assert_eq!(refused, Some(PathError::TooManyTransfers));
}

#[test]
fn a_thousand_failed_transfers_do_not_count_as_open() {
    let mut victim = Victim::new(Role::Daemon);
    for id in 1..3000 {
        let transfer = TransferId(id);
        victim.say(&Message::Put(put(transfer))).unwrap();
        victim
            .say(&Message::Fail(Fail {
                transfer,
                code: FailCode::Cancelled,
                text: String::new(),
                resumable: false,
            }))
            .unwrap();
        victim.drain();
    }
    assert!(
        matches!(
            victim.say(&Message::Put(put(TransferId(7)))),
            Err(PathError::Transfer { .. })
        ),
        "a used number"
    );
}

#[test]
fn absurd_heartbeats_and_credits_are_harmless() {
    let mut victim = Victim::sending();
    for (sent_us, echo_us) in [(u64::MAX, u64::MAX), (0, 1), (u64::MAX, 0), (0, 0)] {
        victim
            .session
            .handle_frame(P, Frame::Heartbeat { sent_us, echo_us }, victim.now)
            .unwrap();
    }
    victim
        .session
        .handle_frame(P, Frame::Credit { frames: u64::MAX }, victim.now)
        .unwrap();
    victim
        .session
        .handle_frame(P, Frame::Credit { frames: 0 }, victim.now)
        .unwrap();
    victim.drain();
    let at = victim.session.poll_timeout().unwrap();
    assert!(at <= victim.now + Duration::from_secs(4));
}

/// Creates a daemon that receives a file of eight chunks as a delta. The daemon has sent the hashes
/// of its chunks 0 and 1, and is reading chunk 2.
fn comparing() -> Victim {
    let mut victim = Victim::new(Role::Daemon);
    victim.say(&Message::Put(put(T))).unwrap();
    victim.session.accept(
        T,
        Vec::new(),
        Acceptance {
            delta: Some(4),
            ..Acceptance::default()
        },
    );
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
    let mut victim = Victim::new(Role::Client);
    victim.session.put(put(T)).unwrap();
    victim.drain();
    victim
        .say(&Message::Accept(Accept {
            transfer: T,
            have: Vec::new(),
            window: None,
            delta: Some(4),
            memory: None,
        }))
        .unwrap();
    victim
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

#[test]
fn chunks_are_kept_once_and_only_if_their_value_was_told() {
    for (first, count) in [(2, 1), (3, 1), (4, 1), (8, 1), (0, u64::MAX), (2, u64::MAX)] {
        let mut victim = comparing();
        let result = victim.say(&keep(first, count));
        assert!(
            matches!(result, Err(PathError::Compared { .. })),
            "{first}+{count}: {result:?}"
        );
        victim.is_healthy();
    }
    let mut victim = comparing();
    victim.say(&keep(0, 2)).unwrap();
    assert_eq!(victim.session.stats(T).unsent_bytes, 2 << 18);
    assert!(matches!(
        victim.say(&keep(1, 1)),
        Err(PathError::Compared { .. })
    ));
    assert_eq!(victim.session.stats(T).unsent_bytes, 2 << 18);
    assert!(matches!(
        Victim::receiving().say(&keep(0, 1)),
        Err(PathError::Compared { .. })
    ));
    assert!(matches!(
        Victim::sending().say(&keep(0, 1)),
        Err(PathError::Transfer { .. })
    ));
}

#[test]
fn a_chunk_that_is_being_compared_must_not_come() {
    let mut victim = comparing();
    for chunk in [2, 3] {
        assert!(matches!(
            victim.data(chunk, 1 << 18),
            Err(PathError::Arrival(_))
        ));
    }
    for chunk in [0, 1, 4, 7] {
        assert!(
            matches!(victim.data(chunk, 1 << 18), Ok(Incoming::Write { .. })),
            "{chunk}"
        );
    }
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
            victim.say(&values(first, count, bytes)).is_err(),
            "{first}+{count}: {bytes} bytes"
        );
        victim.is_healthy();
    }
    let mut victim = compared();
    victim.say(&values(0, 4, 128)).unwrap();
    assert!(matches!(
        victim.say(&values(1, 1, 32)),
        Err(PathError::Compared { .. })
    ));
    assert!(matches!(
        Victim::sending().say(&values(0, 1, 32)),
        Err(PathError::Compared { .. })
    ));
    assert!(matches!(
        Victim::receiving().say(&values(0, 1, 32)),
        Err(PathError::Transfer { .. })
    ));
}

#[test]
fn nothing_is_sent_blind_while_its_value_is_awaited() {
    let mut victim = compared();
    victim
        .session
        .handle_frame(P, Frame::Credit { frames: 32 }, victim.now)
        .unwrap();
    let sent = |victim: &mut Victim| -> Vec<u64> {
        let chunks = victim
            .drain()
            .1
            .into_iter()
            .filter_map(|transmit| match transmit {
                Transmit::Chunk { chunk, .. } => Some(chunk.0),
                Transmit::Frame(_) | Transmit::Load(_) => None,
            });
        chunks.collect()
    };
    assert_eq!(sent(&mut victim), [4, 5, 6, 7]);
    assert_eq!(victim.session.poll_hash(), None);
    victim.say(&values(1, 2, 64)).unwrap();
    for (chunk, own) in [(1, 2), (2, 3)] {
        assert_eq!(victim.session.poll_hash(), Some((T, ChunkId(chunk))));
        victim
            .session
            .handle_chunk_hashed(T, ChunkId(chunk), ChainingValue([own; 32]));
    }
    for chunk in 4..8 {
        victim
            .session
            .handle_chunk_read(P, T, ChunkId(chunk), ChainingValue([1; 32]), victim.now)
            .unwrap();
        victim.session.handle_chunk_flushed(P);
    }
    assert!(sent(&mut victim).contains(&2));
}

#[test]
fn holes_that_make_no_sense_end_the_path() {
    let announced = || {
        let mut victim = Victim::new(Role::Daemon);
        victim.say(&Message::Put(put(T))).unwrap();
        victim.session.accept(
            T,
            Vec::new(),
            Acceptance {
                holes: true,
                ..Acceptance::default()
            },
        );
        victim.drain();
        victim
    };
    let holes = |extents: &[(u64, u64)], last| {
        Message::Holes(Holes {
            transfer: T,
            extents: extents
                .iter()
                .map(|&(offset, len)| Extent { offset, len })
                .collect(),
            last,
        })
    };
    for extents in [
        &[(0, 0)][..],
        &[(0, SIZE + 1)],
        &[(SIZE, 1)],
        &[(u64::MAX, 1)],
        &[(1, u64::MAX)],
        &[(5, 5), (9, 1)],
    ] {
        let mut victim = announced();
        assert!(
            matches!(victim.say(&holes(extents, true)), Err(PathError::Holes(_))),
            "{extents:?}"
        );
        assert_eq!(victim.drain().0, []);
    }
    assert!(matches!(
        Victim::receiving().say(&holes(&[], true)),
        Err(PathError::Holes(_))
    ));
    assert!(matches!(
        Victim::sending().say(&holes(&[], true)),
        Err(PathError::Transfer { .. })
    ));

    let mut victim = announced();
    assert_eq!(victim.session.poll_zeros(), None);
    assert!(
        victim.data(1, 1 << 18).is_ok(),
        "holes may follow the first chunks"
    );
    victim.say(&holes(&[(0, 3 << 18)], true)).unwrap();
    assert!(
        matches!(victim.say(&holes(&[], true)), Err(PathError::Holes(_))),
        "after the last"
    );
    assert_eq!(
        victim.session.poll_zeros(),
        None,
        "they are not in the file yet"
    );
    victim.session.handle_holes_made(T);
    assert!(matches!(
        victim.data(2, 1 << 18),
        Err(PathError::Arrival(_))
    ));
    let zeros: Vec<u64> =
        std::iter::from_fn(|| Some(victim.session.poll_zeros()?.2.first.0)).collect();
    assert_eq!(zeros, [0, 2], "a received chunk is not a hole");
}

#[test]
fn a_peer_that_is_gone_has_nothing_hashed() {
    let mut victim = Victim::new(Role::Daemon);
    victim.say(&Message::Put(put(T))).unwrap();
    victim.session.accept(
        T,
        Vec::new(),
        Acceptance {
            holes: true,
            ..Acceptance::default()
        },
    );
    victim
        .say(&Message::Holes(Holes {
            transfer: T,
            extents: vec![Extent {
                offset: 0,
                len: SIZE,
            }],
            last: true,
        }))
        .unwrap();
    victim.session.handle_holes_made(T);
    victim
        .session
        .handle_path_lost(P, PathLoss::Reset, victim.now);
    assert_eq!(
        victim.session.poll_zeros(),
        None,
        "no transfer waits for them"
    );
    victim.session.handle_path_open(P, victim.now);
    assert!(victim.session.poll_zeros().is_some(), "it is back");
    let mut victim = Victim::new(Role::Daemon);
    victim.say(&Message::Put(put(T))).unwrap();
    victim.session.accept(
        T,
        Vec::new(),
        Acceptance {
            delta: Some(8),
            ..Acceptance::default()
        },
    );
    victim
        .session
        .handle_path_lost(P, PathLoss::Reset, victim.now);
    assert_eq!(victim.session.poll_compare(), None);
}

#[test]
fn random_frames_never_panic_and_leave_the_sessions_books_right() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut victim = if seed % 2 == 0 {
            Victim::sending()
        } else {
            Victim::receiving()
        };
        for _ in 0..60 {
            let number = |rng: &mut Rng| match rng.below(4) {
                0 => rng.below(10),
                1 => u64::MAX - rng.below(3),
                2 => 0,
                _ => rng.next_u64(),
            };
            match rng.below(9) {
                0 => drop(victim.session.handle_frame(
                    P,
                    ack(number(&mut rng), number(&mut rng)),
                    victim.now,
                )),
                1 => drop(victim.session.handle_frame(
                    P,
                    Frame::Credit {
                        frames: number(&mut rng),
                    },
                    victim.now,
                )),
                2 => drop(victim.session.handle_frame(
                    P,
                    Frame::ControlAck {
                        next: number(&mut rng),
                    },
                    victim.now,
                )),
                3 => drop(victim.data(rng.below(9), if rng.below(5) == 0 { 1 } else { 1 << 18 })),
                4 => drop(victim.say(&accept(TransferId(rng.below(3) as u32)))),
                5 => drop(victim.say(&Message::Offer(offer(TransferId(rng.below(3) as u32))))),
                6 => drop(
                    victim.say_bytes((0..rng.below(40)).map(|_| rng.next_u64() as u8).collect()),
                ),
                7 => victim.now += Duration::from_millis(rng.below(300)),
                _ => {
                    let (sent_us, echo_us) = (number(&mut rng), number(&mut rng));
                    drop(victim.session.handle_frame(
                        P,
                        Frame::Heartbeat { sent_us, echo_us },
                        victim.now,
                    ));
                }
            }
            victim.session.handle_timeout(victim.now);
            victim.drain();
            // A victim that receives a file has written none of it.
            let most = if seed % 2 == 0 { SIZE } else { 0 };
            assert!(
                victim.session.stats(T).delivered_bytes <= most,
                "seed {seed}"
            );
            let held = victim
                .session
                .paths()
                .map(|(_, path)| path.held_chunks())
                .sum::<u64>();
            assert!(held <= 32, "seed {seed}: {held}");
        }
    }
}
