//! Tests of the journal's layout, byte for byte, and of its replay after every kind of damage.

use proptest::prelude::*;

use super::*;
use crate::file::hash_tree::SubtreeError;

proptest! {
    #[test]
    fn garbage_is_never_believed(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(replay(&garbage).is_err());
        let with_header = [&header().encode()[..], &garbage].concat();
        let replayed = replay(&with_header).unwrap();
        prop_assert_eq!(replayed.subtrees(), []);
        prop_assert_eq!(replayed.valid_len, HEADER_LEN as u64);
    }
}

#[test]
fn the_header_is_pinned_byte_for_byte() {
    let expected = [
        "4e49435354524a0a", // magic
        "0100",             // version
        "12",               // chunk size 2^18
        "0000000000",
        "0100200000000000", // file size
        "0200200000000000", // source size
        "00f1536500000000", // mtime
        "ffffffffffffffff", // ctime
        "15cd5b07",         // mtime, nanoseconds
        "ffc99a3b",         // ctime, nanoseconds
        "8877665544332211", // inode
        "01fe000000000000", // device
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf", // peer key
        "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf", // journal id
        "00000000",
        "d16c8187", // checksum
    ];
    assert_eq!(hex(&header().encode()), expected.concat());
}

#[test]
fn a_record_is_pinned_byte_for_byte() {
    let expected = [
        "01", // type
        "02", // level
        "000000000000",
        "0400000000000000", // first chunk
        "7777777777777777777777777777777777777777777777777777777777777777", // chaining value
        "000000000000000000000000",
        "1bc8b4e8", // checksum
    ];
    assert_eq!(
        hex(&record(4, 2, 0x77).encode(header().id)),
        expected.concat()
    );
}

#[test]
fn a_journal_cut_at_any_byte_keeps_its_whole_records() {
    let journal = journal();
    for len in 0..=journal.len() {
        let replayed = replay(&journal[..len]);
        if len < HEADER_LEN {
            assert_eq!(replayed.err(), Some(HeaderError::Torn { len }));
            continue;
        }
        let whole = (len - HEADER_LEN) / RECORD_LEN;
        assert_says(&replayed.unwrap(), whole, len);
    }
}

#[test]
fn a_flipped_bit_ends_the_journal_before_its_record() {
    let journal = journal();
    for bit in HEADER_LEN * 8..journal.len() * 8 {
        let damaged = with_flipped_bit(&journal, bit);
        assert_says(
            &replay(&damaged).unwrap(),
            (bit / 8 - HEADER_LEN) / RECORD_LEN,
            journal.len(),
        );
    }
}

#[test]
fn a_flipped_bit_in_the_header_is_an_error() {
    let journal = journal();
    for bit in 0..HEADER_LEN * 8 {
        let error = replay(&with_flipped_bit(&journal, bit)).unwrap_err();
        let expected = match bit / 8 {
            0..8 => matches!(error, HeaderError::Magic { .. }),
            8..10 => matches!(error, HeaderError::Version { .. }),
            _ => matches!(error, HeaderError::Checksum { .. }),
        };
        assert!(expected, "bit {bit}: {error:?}");
    }
}

#[test]
fn records_of_another_journal_are_not_believed() {
    let other = JournalId([0xee; 16]);
    let mut journal = journal();
    journal.extend(record(7, 0, 0x11).encode(other));
    assert_says(&replay(&journal).unwrap(), RECORDS.len(), journal.len());
    assert_eq!(
        Record::decode(&record(7, 0, 0x11).encode(other), header().id),
        None
    );
}

#[test]
fn zeros_at_the_end_are_no_records() {
    let journal = [journal(), vec![0; 4096]].concat();
    assert_says(&replay(&journal).unwrap(), RECORDS.len(), journal.len());
}

#[test]
fn records_after_a_damaged_one_are_not_believed() {
    let mut journal = journal();
    journal[HEADER_LEN + RECORD_LEN + 20] ^= 1;
    let mut replay = Replay::new(header());
    assert!(replay.feed(&journal[HEADER_LEN..][..RECORD_LEN]));
    assert!(!replay.feed(&journal[HEADER_LEN + RECORD_LEN..]));
    assert_says(&replay.finish(), 1, journal.len());
}

#[test]
fn repeated_and_nested_records_are_believed_once() {
    let first = subtree(0, 1, 0x01);
    let around = subtree(0, 2, 0x03);
    let journal = journal_of(&[first, first, subtree(2, 0, 0x02), around, first, around]);
    let replayed = replay(&journal).unwrap();
    assert_eq!(replayed.subtrees(), [around]);
    assert_eq!(replayed.tree.covered_chunks(), 4);
    assert_eq!(replayed.valid_len, journal.len() as u64);
}

#[test]
fn a_record_at_odds_with_an_earlier_one_or_with_the_file_ends_the_journal() {
    let first = subtree(0, 1, 0x01);
    let conflict = Subtree {
        value: ChainingValue([0x02; 32]),
        ..first
    };
    let misaligned = subtree(1, 1, 0x03);
    let out_of_range = subtree(9, 0, 0x04);
    for wrong in [conflict, misaligned, out_of_range] {
        let journal = journal_of(&[first, wrong, subtree(4, 0, 0x05)]);
        let replayed = replay(&journal).unwrap();
        assert_eq!(replayed.subtrees(), [first]);
        assert_eq!(replayed.valid_len, (HEADER_LEN + RECORD_LEN) as u64);
        assert!(replayed.tail_is_torn);
    }
    assert!(matches!(
        out_of_range.chunks(header().grid),
        Err(SubtreeError::OutOfRange { .. })
    ));
}

#[test]
fn other_files_and_other_versions_are_named() {
    let mut bytes = header().encode();
    bytes[8] = 2;
    assert_eq!(
        Header::decode(&bytes).unwrap_err().to_string(),
        "journal has layout version 2, expected 1"
    );
    bytes[..8].copy_from_slice(b"\x7fELF\0\0\0\0");
    let text =
        r#"not a journal: it starts with "\\x7fELF\\x00\\x00\\x00\\x00", expected "NICSTRJ\\n""#;
    assert_eq!(Header::decode(&bytes).unwrap_err().to_string(), text);
    assert_eq!(
        Header::decode(b"NIC").unwrap_err().to_string(),
        "journal has 3 bytes, expected at least 128"
    );
}

#[test]
fn a_chunk_size_of_another_program_is_an_error() {
    let mut bytes = header().encode();
    bytes[10] = 30;
    let checksum = crc32c::crc32c(&bytes[..HEADER_CRC]);
    put(&mut bytes, HEADER_CRC, checksum.to_le_bytes());
    assert_eq!(
        Header::decode(&bytes),
        Err(HeaderError::ChunkSize(InvalidChunkSize(30)))
    );
}

#[test]
fn every_difference_of_a_source_is_noticed() {
    let recorded = header().source;
    let replaced = |found| SourceChanged::Replaced {
        recorded: recorded.inode,
        found,
    };
    let size = SourceChanged::Size {
        recorded: recorded.size,
        found: 3,
    };
    let changes: [(fn(&mut SourceIdentity), _); 6] = [
        (|_| (), None),
        (|found| found.size = 3, Some(size)),
        (
            |found| found.mtime.seconds = 5,
            Some(SourceChanged::Modified),
        ),
        (
            |found| found.ctime.seconds = 5,
            Some(SourceChanged::Attributes),
        ),
        (|found| found.inode = 3, Some(replaced(3))),
        (|found| found.device = 3, Some(replaced(recorded.inode))),
    ];
    for (change, expected) in changes {
        let mut found = recorded;
        change(&mut found);
        assert_eq!(recorded.check(&found).err(), expected);
    }
}

#[test]
fn a_source_on_the_wire_is_read_as_it_was_written() {
    let source = header().source;
    let encoded = minicbor::to_vec(source).unwrap();
    assert_eq!(
        hex(&encoded),
        "a5001a0020000201821a6553f1001a075bcd150282201a3b9ac9ff031b11223344556677880419fe01"
    );
    assert_eq!(
        minicbor::decode::<SourceIdentity>(&encoded).unwrap(),
        source
    );
}

/// Panics unless exactly the first `whole` records of [`RECORDS`] were accepted from a journal of
/// `len` bytes.
fn assert_says(replayed: &Replayed, whole: usize, len: usize) {
    let valid_len = (HEADER_LEN + whole * RECORD_LEN) as u64;
    assert_eq!(replayed.header, header());
    assert_eq!(replayed.subtrees(), RECORDS[..whole]);
    assert_eq!(replayed.valid_len, valid_len);
    assert_eq!(replayed.tail_is_torn, valid_len < len as u64);
}

fn with_flipped_bit(journal: &[u8], bit: usize) -> Vec<u8> {
    let mut damaged = journal.to_vec();
    damaged[bit / 8] ^= 1 << (bit % 8);
    damaged
}

fn journal() -> Vec<u8> {
    journal_of(&RECORDS)
}

fn journal_of(subtrees: &[Subtree]) -> Vec<u8> {
    let records = subtrees
        .iter()
        .flat_map(|&subtree| Record { subtree }.encode(header().id));
    header().encode().into_iter().chain(records).collect()
}

fn header() -> Header {
    Header {
        grid: Grid::new(0x20_0001, ChunkSize::DEFAULT),
        source: SourceIdentity {
            size: 0x20_0002,
            mtime: Timestamp {
                seconds: 1_700_000_000,
                nanoseconds: 123_456_789,
            },
            ctime: Timestamp {
                seconds: -1,
                nanoseconds: 999_999_999,
            },
            inode: 0x1122_3344_5566_7788,
            device: 0xfe01,
        },
        peer_key: std::array::from_fn(|index| 0xa0 + index as u8),
        id: JournalId(std::array::from_fn(|index| 0xc0 + index as u8)),
    }
}

fn record(first: u64, level: u8, value: u8) -> Record {
    Record {
        subtree: subtree(first, level, value),
    }
}

const fn subtree(first: u64, level: u8, value: u8) -> Subtree {
    Subtree {
        first: ChunkId(first),
        level,
        value: ChainingValue([value; 32]),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records of a journal for a file of nine chunks. No two subtrees are siblings.
const RECORDS: [Subtree; 3] = [
    subtree(0, 1, 0x51),
    subtree(4, 2, 0x52),
    subtree(8, 0, 0x53),
];
