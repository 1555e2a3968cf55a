use super::*;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
    let ack = Frame::Ack {
        transfer: TransferId(1),
        ranges: vec![ChunkRange::new(ChunkId(2), 3)],
    };
    let (seq, body) = (0x0102, vec![9]);
    let (sent_us, echo_us) = (1, 2);
    for (frame, expected) in [
        (Frame::Hello(vec![0xa0]), "01000000 01000000 a0"),
        (Frame::Welcome(vec![0xa0]), "02000000 01000000 a0"),
        (Frame::Refuse(vec![0xa0]), "03000000 01000000 a0"),
        (
            Frame::Control { seq, body },
            "04000000 09000000 0201000000000000 09",
        ),
        (
            Frame::ControlAck { next: 3 },
            "05000000 08000000 0300000000000000",
        ),
        (
            ack,
            "07000000 18000000 01000000 00000000 0200000000000000 0300000000000000",
        ),
        (
            Frame::Credit { frames: 32 },
            "08000000 08000000 2000000000000000",
        ),
        (
            Frame::Heartbeat { sent_us, echo_us },
            "09000000 10000000 0100000000000000 0200000000000000",
        ),
        (Frame::Close { code: 1 }, "0a000000 04000000 01000000"),
    ] {
        let bytes = encoded(&frame);
        assert_eq!(hex(&bytes), expected.replace(' ', ""), "{frame:?}");
        assert_eq!(pieces(&mut Decoder::new(), &bytes), Ok(vec![frame]));
    }
}

/// Returns the header of a data frame, and the frame's bytes with the payload `hi`.
fn data(len: u32, last: bool, packed: Option<u32>) -> (DataHeader, Vec<u8>) {
    let header = DataHeader {
        transfer: TransferId(5),
        chunk: ChunkId(6),
        value: ChainingValue([7; 32]),
        len,
        raw_len: 0,
        last,
    };
    let header = packed.map_or(header, |len| header.packed(len));
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    (header, [&bytes[..], b"hi"].concat())
}

/// Decodes the first piece of a frame whose word at byte 12 is replaced.
fn with_word(bytes: &[u8], word: u32) -> FrameError {
    let mut garbled = bytes.to_vec();
    garbled[12..16].copy_from_slice(&word.to_le_bytes());
    Decoder::new().next(&mut &garbled[..]).unwrap_err()
}

#[test]
fn a_data_frame_is_pinned_byte_for_byte() {
    let (header, bytes) = data(2, false, None);
    let expected = format!(
        "06000000 32000000 05000000 00000000 0600000000000000 {} 6869",
        "07".repeat(32)
    );
    assert_eq!(hex(&bytes), expected.replace(' ', ""));
    let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
    for expected in [
        Some(Piece::DataStart(header)),
        Some(Piece::DataBytes(b"hi")),
        Some(Piece::DataEnd),
        None,
    ] {
        assert_eq!(decoder.next(&mut input), Ok(expected));
    }
}

#[test]
fn the_last_chunk_is_marked_and_all_other_bits_beside_are_refused() {
    let (header, bytes) = data(2, true, None);
    assert_eq!(bytes[12..16], [0, 0, 0, 0x80]);
    let first = Decoder::new().next(&mut &bytes[..]).unwrap();
    assert_eq!(first, Some(Piece::DataStart(header)));
    for bit in 20..31 {
        let error = with_word(&bytes, LAST | 1 << bit);
        assert_eq!(error, FrameError::Reserved(1 << bit));
    }
}

#[test]
fn a_packed_chunk_is_pinned_and_must_be_shorter_than_what_it_unpacks_to() {
    let (header, bytes) = data(1 << 18, true, Some(2));
    let lens = (header.len, header.raw_len, header.chunk_len());
    assert_eq!(lens, (2, 1 << 18, 1 << 18));
    assert_eq!(bytes[8..16], [5, 0, 0, 0, 0, 0, 4, 0x80]);
    let first = Decoder::new().next(&mut &bytes[..]).unwrap();
    assert_eq!(first, Some(Piece::DataStart(header)));
    for raw_len in [2, 1, (1 << 18) + 1] {
        let expected = FrameError::RawLen { raw_len, len: 2 };
        assert_eq!(with_word(&bytes, raw_len), expected);
    }
    assert_eq!(with_word(&bytes, 1 << 20), FrameError::Reserved(1 << 20));
}

#[test]
fn loads_and_echoes_are_pinned_byte_for_byte() {
    let load = LoadHeader { run: 3, len: 2 };
    let echo = |reply, len| EchoHeader {
        token: 0x0102,
        reply,
        len,
    };
    let (ask, answer) = (echo(false, 1), echo(true, 0));
    let mut bytes = Vec::new();
    load.encode(&mut bytes);
    bytes.extend(b"hi");
    let asked = bytes.len();
    ask.encode(&mut bytes);
    bytes.push(7);
    answer.encode(&mut bytes);
    let expected = "0b000000 0a000000 03000000 00000000 6869 \
                    0c000000 11000000 0201000000000000 00000000 00000000 07 \
                    0c000000 10000000 0201000000000000 01000000 00000000";
    assert_eq!(hex(&bytes), expected.replace(' ', ""));

    let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
    let filler = |bytes| Some(Piece::Filler { bytes, left: 0 });
    for expected in [
        Some(Piece::Load(load)),
        filler(b"hi"),
        Some(Piece::Echo(ask)),
        filler(&[7]),
        Some(Piece::Echo(answer)),
        None,
    ] {
        assert_eq!(decoder.next(&mut input), Ok(expected));
    }

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
