//! Tests of records that are decrypted where their plaintext belongs.

use std::ops::Range;

use nicstripe_sim::Rng;
use rustls::ContentType;

use super::super::record::MAX_PLAINTEXT;
use super::*;

/// Plaintext of a connection: in its place if that is known, otherwise passed on.
struct Placed {
    /// Positions of the bytes whose place is known, in order.
    rooms: Vec<Range<usize>>,
    /// All bytes, and behind them what decryption leaves there.
    bytes: Vec<u8>,
    len: usize,
    passed: usize,
}

impl Placed {
    fn new(rooms: impl IntoIterator<Item = Range<usize>>, total: usize) -> Self {
        Self {
            rooms: rooms.into_iter().collect(),
            bytes: vec![0xee; total + 4096],
            len: 0,
            passed: 0,
        }
    }
}

impl Plaintext<TlsError> for Placed {
    fn room(&mut self) -> Option<Room<'_>> {
        let room = self.rooms.iter().find(|room| room.contains(&self.len))?;
        Some(Room {
            bytes: &mut self.bytes[self.len..room.end + 4096],
            data: room.end - self.len,
        })
    }

    fn filled(&mut self, len: usize) -> Result<(), TlsError> {
        self.len += len;
        Ok(())
    }

    fn take(&mut self, plaintext: &[u8]) -> Result<(), TlsError> {
        self.bytes[self.len..][..plaintext.len()].copy_from_slice(plaintext);
        self.len += plaintext.len();
        self.passed += plaintext.len();
        Ok(())
    }
}

/// Receives `records` as a connection does, `at_once()` bytes at a time.
fn receive(
    pair: &mut Pair,
    mut records: &[u8],
    placed: &mut Placed,
    mut at_once: impl FnMut() -> usize,
) -> Result<(), TlsError> {
    let mut received = Vec::new();
    while !records.is_empty() {
        let (now, rest) = records.split_at(at_once().min(records.len()));
        records = rest;
        let space = match received.is_empty() {
            true => pair.server.space(placed),
            false => &mut [],
        };
        let (in_space, behind) = now.split_at(space.len().min(now.len()));
        space[..in_space.len()].copy_from_slice(in_space);
        pair.server.received_in_space(in_space.len());
        received.extend_from_slice(behind);
        let done = pair
            .server
            .receive(&mut received, &mut pair.to_client, placed)?;
        received.drain(..done.discard);
    }
    Ok(())
}

/// Connection with records of random lengths, kinds and keys in flight, and random rooms for their
/// plaintext.
struct InFlight {
    pair: Pair,
    data: Vec<u8>,
    records: Vec<u8>,
    placed: Placed,
    rng: Rng,
}

impl InFlight {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::open();
        pair.client.renew_after(1 + rng.below(40));
        let longest = [50, 3_000, 40_000][rng.below(3) as usize];
        let mut up_to = |most: u64| 1 + rng.below(most) as usize;
        let data = noise(200_000);
        let (mut rooms, mut at) = (Vec::new(), 0);
        while at < data.len() {
            let from = at + up_to(30_000) - 1;
            at = from + up_to(60_000);
            rooms.push(from..at.min(data.len()));
        }
        let (mut rest, out) = (&data[..], &mut pair.to_server);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(up_to(longest).min(rest.len()));
            rest = later;
            pair.client.send(&[now], out).unwrap();
            match up_to(20) {
                1 => pair.client.ask_to_renew(out),
                // Padding without data.
                2 => pair
                    .client
                    .send_record(ContentType::ApplicationData, &[], out),
                // Padded data: its type is before the zeros.
                3 if rest.len() > 100 => {
                    let (now, later) = rest.split_at(up_to(100));
                    rest = later;
                    let padded = [now, &[23], &vec![0; up_to(9_000)]].concat();
                    pair.client
                        .send_record(ContentType::Unknown(0), &padded, out);
                }
                _ => {}
            }
        }
        Self {
            records: pair.to_server.pending().to_vec(),
            placed: Placed::new(rooms, data.len()),
            pair,
            data,
            rng,
        }
    }

    /// Receives the records in pieces of random lengths, and checks the plaintext so far.
    fn receive(&mut self) -> Result<(), TlsError> {
        let longest = [1_000, 20_000, 300_000][self.rng.below(3) as usize];
        let at_once = || 1 + self.rng.below(longest) as usize;
        let result = receive(&mut self.pair, &self.records, &mut self.placed, at_once);
        assert!(self.placed.bytes[..self.placed.len] == self.data[..self.placed.len]);
        result
    }
}

#[test]
fn every_byte_arrives_once_and_in_order_whatever_its_records_rooms_and_pieces() {
    let mut passed = 0;
    for seed in 0..200 {
        let mut in_flight = InFlight::new(seed);
        in_flight.receive().unwrap();
        assert_eq!(in_flight.placed.len, in_flight.data.len(), "seed {seed}");
        passed += in_flight.placed.passed;
    }
    assert!(passed < 200 * 150_000, "most bytes are in rooms: {passed}");
}

#[test]
fn no_byte_after_a_changed_one_is_filled_in() {
    for seed in 0..200 {
        let mut in_flight = InFlight::new(seed);
        let at = in_flight.rng.below(in_flight.records.len() as u64) as usize;
        let mut record = 0;
        while let Ok(Some(len)) = record_len(&in_flight.records[record..])
            && record + len <= at
        {
            record += len;
        }
        // The last byte of the version in a header is ignored (RFC 8446, section 5.1).
        let is_ignored = at == record + 2;
        in_flight.records[at] ^= 1 << in_flight.rng.below(8);
        // A longer record may also wait for more.
        let has_failed = in_flight.receive().is_err();
        let is_whole = in_flight.placed.len == in_flight.data.len();
        assert_eq!(!has_failed && is_whole, is_ignored, "seed {seed}");
    }
}

#[test]
fn what_is_longer_than_its_room_is_passed_on_whole() {
    let mut pair = Pair::open();
    let (data, out) = (noise(40_000), &mut pair.to_server);
    pair.client.send(&[&data], out).unwrap();
    // Padding, padded data (the type is before the zeros), a request for other keys.
    pair.client
        .send_record(ContentType::ApplicationData, &[], out);
    pair.client
        .send_record(ContentType::Unknown(0), b"padded\x17\0\0\0", out);
    pair.client.ask_to_renew(out);
    pair.client.send(&[b"after"], out).unwrap();
    let records = out.pending().to_vec();
    let whole = 2 * MAX_PLAINTEXT;
    let rooms = [0..39_000, 40_000..41_000];
    let mut placed = Placed::new(rooms, 41_000);
    receive(&mut pair, &records, &mut placed, || usize::MAX).unwrap();
    assert_eq!((placed.len, placed.passed), (40_011, 40_000 - whole));
    assert!(placed.bytes[..40_000] == data);
    assert_eq!(placed.bytes[40_000..placed.len], *b"paddedafter");
}

#[test]
fn a_chunk_in_full_records_is_received_in_its_place() {
    let mut pair = Pair::open();
    let data = noise(10 * MAX_PLAINTEXT + 28);
    pair.client.send(&[&data], &mut pair.to_server).unwrap();
    let records = pair.to_server.pending().to_vec();
    let mut placed = Placed::new(Some(0..data.len()), data.len());
    assert_eq!(pair.server.space(&mut placed).len(), records.len());
    receive(&mut pair, &records, &mut placed, || 50_000).unwrap();
    assert_eq!((placed.len, placed.passed), (data.len(), 0));
    assert!(placed.bytes[..data.len()] == data);
}
