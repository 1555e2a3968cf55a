//! Frames as an end sends them, above TLS, where a test can see and change them.

use nicstripe_proto::{
    ChunkId, Decoder, Frame, Message,
    frame::{FrameType, HEADER_LEN, Piece},
};

/// Calls `each` for every frame of the bytes, which begin and end with one.
pub(super) fn each_frame(mut bytes: &mut [u8], mut each: impl FnMut(FrameType, &mut [u8])) {
    while let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        let kind = FrameType::ALL
            .into_iter()
            .find(|kind| *kind as u8 == header[0])
            .unwrap();
        let [.., a, b, c, d] = *header;
        let len = HEADER_LEN + u32::from_le_bytes([a, b, c, d]) as usize;
        let (frame, rest) = bytes.split_at_mut(len);
        each(kind, frame);
        bytes = rest;
    }
}

/// Returns the control message in a frame.
pub(super) fn message_in(frame: &[u8]) -> Option<Message> {
    let mut input = frame;
    match Decoder::new().next(&mut input) {
        Ok(Some(Piece::Frame(Frame::Control { body, .. }))) => minicbor::decode(&body).ok(),
        _ => None,
    }
}

/// Returns the chunk in a frame.
pub(super) fn chunk_in(frame: &[u8]) -> Option<ChunkId> {
    let mut input = frame;
    match Decoder::new().next(&mut input) {
        Ok(Some(Piece::DataStart(header))) => Some(header.chunk),
        _ => None,
    }
}
