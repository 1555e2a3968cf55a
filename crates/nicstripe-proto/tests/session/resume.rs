//! Tests of the data that a receiver claims to have.

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, Frame, Incoming, Message, Role, Subtree, Transmit,
};

use crate::peer::{T, Victim, put};

/// Number of pieces that the receiver has. Every second one of the last `LARGE` pieces is larger.
const PIECES: u64 = 2000;
const LARGE: u64 = 100;

#[test]
fn a_file_in_more_pieces_than_a_message_names_is_resumed_with_the_largest() {
    let mut victim = Victim::new(Role::Daemon);
    let mut offered = put(T);
    offered.offer.source.size = (PIECES * 3) << 18;
    victim.say(Message::Put(offered)).unwrap();
    // Every third chunk; at the end, every second piece is a pair of chunks.
    let pieces = (0..PIECES).map(|index| Subtree {
        first: ChunkId(index * 3),
        level: u8::from(index % 2 == 0 && index >= PIECES - LARGE),
        value: ChainingValue([1; 32]),
    });
    victim
        .session
        .accept(T, pieces.collect(), Acceptance::default());
    let have = accepted(&mut victim);
    assert_eq!(have.len(), 1400);
    let larger = have.iter().filter(|piece| piece.level == 1).count() as u64;
    assert_eq!(larger, LARGE / 2);
    // The receiver accepts chunks that it did not claim to have.
    let (mut dropped, mut written) = (0, 0);
    for chunk in (1345..1355).map(|index| index * 3) {
        if have.iter().any(|piece| piece.first == ChunkId(chunk)) {
            assert_eq!(victim.piece(chunk, 1 << 18, false), Ok(Incoming::Drop));
            dropped += 1;
        } else {
            assert!(victim.write(chunk, 1 << 18, false));
            written += 1;
        }
    }
    assert_eq!((dropped, written), (5, 5));
}

/// Returns the subtrees that the session lists in its acceptance.
fn accepted(victim: &mut Victim) -> Vec<Subtree> {
    let sent = victim.drain().1.into_iter();
    let mut messages = sent.filter_map(|sent| match sent {
        Transmit::Frame(Frame::Control { body, .. }) => minicbor::decode(&body).ok(),
        _ => None,
    });
    match messages.next() {
        Some(Message::Accept(accept)) => accept.have,
        other => panic!("{other:?}"),
    }
}
