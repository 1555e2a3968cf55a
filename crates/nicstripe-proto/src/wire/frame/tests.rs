use proptest::prelude::*;

use super::*;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn every_frame() -> Vec<(Frame, Vec<u8>)> {
    let range = |first, count| ChunkRange {
        first: ChunkId(first),
        count,
    };
    vec![
        (Frame::Hello(vec![0xa0]), vec![1, 0, 0, 0, 1, 0, 0, 0, 0xa0]),
        (
            Frame::Welcome(vec![0xa0]),
            vec![2, 0, 0, 0, 1, 0, 0, 0, 0xa0],
        ),
        (
            Frame::Refuse(vec![0xa0]),
            vec![3, 0, 0, 0, 1, 0, 0, 0, 0xa0],
        ),
        (
            Frame::Control {
                seq: 0x0102,
                body: vec![9],
            },
            vec![4, 0, 0, 0, 9, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 9],
        ),
        (
            Frame::ControlAck { next: 3 },
            vec![5, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Frame::Ack {
                transfer: TransferId(1),
                ranges: vec![range(2, 3)],
            },
            vec![
                7, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0,
                0, 0, 0, 0, 0,
            ],
        ),
        (
            Frame::Credit { frames: 32 },
            vec![8, 0, 0, 0, 8, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Frame::Heartbeat {
                sent_us: 1,
                echo_us: 2,
            },
            vec![
                9, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            ],
        ),
        (
            Frame::Close { code: 1 },
            vec![10, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0],
        ),
    ]
}

fn pieces(decoder: &mut Decoder, mut input: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    while let Some(piece) = decoder.next(&mut input)? {
        if let Piece::Frame(frame) = piece {
            frames.push(frame);
        }
    }
    Ok(frames)
}

#[test]
fn every_frame_is_pinned_byte_for_byte() {
    for (frame, bytes) in every_frame() {
        assert_eq!(encoded(&frame), bytes, "{frame:?}");
        assert_eq!(pieces(&mut Decoder::new(), &bytes), Ok(vec![frame]));
    }
}

#[test]
fn a_data_frame_is_pinned_byte_for_byte() {
    let value = ChainingValue([7; 32]);
    let header = DataHeader {
        transfer: TransferId(5),
        chunk: ChunkId(6),
        value,
        len: 2,
        raw_len: 0,
        last: false,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    let mut expected = vec![
        6, 0, 0, 0, 50, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    ];
    expected.extend([7; 32]);
    assert_eq!(bytes, expected);

    bytes.extend(b"hi");
    let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::DataStart(header))));
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::DataBytes(b"hi"))));
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::DataEnd)));
    assert_eq!(decoder.next(&mut input), Ok(None));
}

#[test]
fn the_last_chunk_is_marked_and_all_other_bits_beside_are_refused() {
    let header = DataHeader {
        transfer: TransferId(5),
        chunk: ChunkId(6),
        value: ChainingValue([7; 32]),
        len: 2,
        raw_len: 0,
        last: true,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend(b"hi");
    assert_eq!(bytes[12..16], [0, 0, 0, 0x80]);
    assert_eq!(
        Decoder::new().next(&mut &bytes[..]),
        Ok(Some(Piece::DataStart(header)))
    );
    for bit in 20..31 {
        let mut garbled = bytes.clone();
        garbled[12..16].copy_from_slice(&(LAST | 1 << bit).to_le_bytes());
        assert_eq!(
            Decoder::new().next(&mut &garbled[..]),
            Err(FrameError::Reserved(1 << bit))
        );
    }
}

#[test]
fn a_packed_chunk_is_pinned_and_must_be_shorter_than_what_it_unpacks_to() {
    let value = ChainingValue([7; 32]);
    let header = DataHeader {
        transfer: TransferId(5),
        chunk: ChunkId(6),
        value,
        len: 1 << 18,
        raw_len: 0,
        last: true,
    }
    .packed(2);
    assert_eq!(
        (header.len, header.raw_len, header.chunk_len()),
        (2, 1 << 18, 1 << 18)
    );
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    assert_eq!(bytes[8..16], [5, 0, 0, 0, 0, 0, 4, 0x80]);
    assert_eq!(
        Decoder::new().next(&mut &bytes[..]),
        Ok(Some(Piece::DataStart(header)))
    );
    for (raw_len, expected) in [
        (2, FrameError::RawLen { raw_len: 2, len: 2 }),
        (1, FrameError::RawLen { raw_len: 1, len: 2 }),
        (
            (1 << 18) + 1,
            FrameError::RawLen {
                raw_len: (1 << 18) + 1,
                len: 2,
            },
        ),
        (1 << 20, FrameError::Reserved(1 << 20)),
    ] {
        bytes[12..16].copy_from_slice(&u32::to_le_bytes(raw_len));
        assert_eq!(Decoder::new().next(&mut &bytes[..]), Err(expected));
    }
}

#[test]
fn loads_and_echoes_are_pinned_byte_for_byte() {
    let (load, ask) = (
        LoadHeader { run: 3, len: 2 },
        EchoHeader {
            token: 0x0102,
            reply: false,
            len: 1,
        },
    );
    let answer = EchoHeader {
        reply: true,
        len: 0,
        ..ask
    };
    let mut bytes = Vec::new();
    load.encode(&mut bytes);
    assert_eq!(bytes, [11, 0, 0, 0, 10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(b"hi");
    let asked = bytes.len();
    ask.encode(&mut bytes);
    assert_eq!(
        bytes[asked..],
        [
            12, 0, 0, 0, 17, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        ]
    );
    bytes.push(7);
    let answered = bytes.len();
    answer.encode(&mut bytes);
    assert_eq!(
        bytes[answered..],
        [
            12, 0, 0, 0, 16, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0
        ]
    );

    let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::Load(load))));
    assert_eq!(
        decoder.next(&mut input),
        Ok(Some(Piece::Filler {
            bytes: b"hi",
            left: 0
        }))
    );
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::Echo(ask))));
    assert_eq!(
        decoder.next(&mut input),
        Ok(Some(Piece::Filler {
            bytes: &[7],
            left: 0
        }))
    );
    assert_eq!(decoder.next(&mut input), Ok(Some(Piece::Echo(answer))));
    assert_eq!(decoder.next(&mut input), Ok(None));

    for (frame, at, bits) in [(0, 12, 1), (asked, 16, 2), (asked, 20, 1)] {
        let mut garbled = bytes[frame..].to_vec();
        garbled[at] = bits;
        assert_eq!(
            Decoder::new().next(&mut &garbled[..]),
            Err(FrameError::Reserved(bits.into()))
        );
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_the_body_arrives() {
    for kind in FrameType::ALL {
        let mut header = vec![kind as u8, 0, 0, 0];
        header.extend((kind.max_body() as u32 + 1).to_le_bytes());
        let refused = pieces(&mut Decoder::new(), &header);
        assert_eq!(
            refused,
            Err(FrameError::TooLong {
                kind,
                len: kind.max_body() as u32 + 1
            })
        );
    }
}

#[test]
fn unknown_types_and_reserved_bits_are_refused() {
    assert_eq!(
        pieces(&mut Decoder::new(), &[0; 8]),
        Err(FrameError::UnknownType(0))
    );
    assert_eq!(
        pieces(&mut Decoder::new(), &[13, 0, 0, 0, 0, 0, 0, 0]),
        Err(FrameError::UnknownType(13))
    );
    assert_eq!(
        pieces(&mut Decoder::new(), &[10, 1, 0, 0, 4, 0, 0, 0]),
        Err(FrameError::Reserved(1))
    );
}

proptest! {
    #[test]
    fn frames_survive_any_fragmentation(cuts in prop::collection::vec(1usize..40, 1..60)) {
        let all = every_frame();
        let bytes: Vec<u8> = all.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let (mut decoder, mut got, mut rest) = (Decoder::new(), Vec::new(), &bytes[..]);
        for cut in cuts.into_iter().chain(std::iter::once(usize::MAX)) {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            got.extend(pieces(&mut decoder, head).unwrap());
            rest = tail;
        }
        prop_assert_eq!(got, all.into_iter().map(|(frame, _)| frame).collect::<Vec<_>>());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = pieces(&mut Decoder::new(), &bytes);
    }

    #[test]
    fn a_changed_bit_never_panics(index in 0usize..2000, bit in 0u8..8) {
        let mut bytes: Vec<u8> = every_frame().into_iter().flat_map(|(_, bytes)| bytes).collect();
        let index = index % bytes.len();
        bytes[index] ^= 1 << bit;
        let _ = pieces(&mut Decoder::new(), &bytes);
    }
}
