//! Fuzz targets for journals after a crash, and for sets of chunks and holes.

use super::tape::Tape;
use crate::{
    extent::{ChunkId, ChunkRange, ChunkSet, Extent},
    grid::{ChunkSize, Grid},
    hole::{HoleMap, Zeros},
    journal::{HEADER_LEN, Header, RECORD_LEN, Record, Replay, Replayed, replay},
};

/// Fuzz target: replays a journal as a whole and in pieces. The low bits of the first byte select
/// the checksums to repair first. The second byte is the length of the pieces.
pub fn journal(data: &[u8]) {
    let [repair, piece_len, journal @ ..] = data else {
        return;
    };
    let mut journal = journal.to_vec();
    if repair & 1 != 0 {
        repair_header(&mut journal);
    }
    if repair & 2 != 0 {
        repair_records(&mut journal);
    }
    let Ok(header) = Header::decode(&journal) else {
        return;
    };
    assert_eq!(Header::decode(&header.encode()), Ok(header));
    let whole = replay(&journal).expect("its header is whole");
    check_replayed(&whole, &journal);
    let mut pieces = Replay::new(header);
    journal[HEADER_LEN..]
        .chunks(1 + usize::from(*piece_len))
        .for_each(|piece| _ = pieces.feed(piece));
    assert!(is_same(&pieces.finish(), &whole));
    // An append after the valid part must yield a journal without a torn tail.
    let cut = replay(&journal[..whole.valid_len as usize]).expect("its header is whole");
    assert!(
        !cut.tail_is_torn && cut.subtrees() == whole.subtrees() && cut.valid_len == whole.valid_len
    );
}

fn is_same(one: &Replayed, other: &Replayed) -> bool {
    (one.valid_len, one.tail_is_torn) == (other.valid_len, other.tail_is_torn)
        && one.subtrees() == other.subtrees()
}

fn check_replayed(replayed: &Replayed, journal: &[u8]) {
    assert!(replayed.valid_len >= HEADER_LEN as u64 && replayed.valid_len <= journal.len() as u64);
    assert!((replayed.valid_len - HEADER_LEN as u64).is_multiple_of(RECORD_LEN as u64));
    assert_eq!(
        replayed.tail_is_torn,
        replayed.valid_len < journal.len() as u64
    );
    let (grid, mut next) = (replayed.header.grid, 0);
    let mut covered = 0;
    for subtree in replayed.subtrees() {
        let range = subtree.chunks(grid).expect("a subtree of the file");
        assert!(
            range.first.0 >= next,
            "subtrees overlap or are out of order"
        );
        next = range.end().0;
        covered += range.count;
    }
    assert!(next <= grid.chunk_count());
    assert_eq!(covered, replayed.tree.covered_chunks());
    assert_eq!(replayed.tree.is_complete(), covered == grid.chunk_count());
    assert_eq!(replayed.tree.root().is_some(), replayed.tree.is_complete());
}

fn repair_header(journal: &mut [u8]) {
    let Some(header) = journal.first_chunk_mut::<HEADER_LEN>() else {
        return;
    };
    header[..8].copy_from_slice(b"NICSTRJ\n");
    let chunk_log2 = 12 + header[10] % 11;
    header[8..11].copy_from_slice(&[1, 0, chunk_log2]);
    let checksum = crc32c::crc32c(&header[..HEADER_LEN - 4]);
    header[HEADER_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
}

fn repair_records(journal: &mut [u8]) {
    let Some((header, records)) = journal.split_first_chunk_mut::<HEADER_LEN>() else {
        return;
    };
    let id = crc32c::crc32c(&header[104..120]);
    for record in records.as_chunks_mut::<RECORD_LEN>().0 {
        let checksum = crc32c::crc32c_append(id, &record[..RECORD_LEN - 4]);
        record[RECORD_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
        let read = Record::decode(
            record,
            crate::journal::JournalId(std::array::from_fn(|at| header[104 + at])),
        );
        assert!(read.is_none_or(|read| read.subtree.level == record[1]));
    }
}

/// Fuzz target: compares chunk sets with the bits of an integer, and hole maps with the bytes of a
/// simulated file.
pub fn extents(data: &[u8]) {
    let mut tape = Tape::new(data);
    if tape.is() {
        holes(&mut tape);
    } else {
        chunks(&mut tape);
    }
}

fn chunks(tape: &mut Tape<'_>) {
    // Ranges are truncated at `u64::MAX`, so no set contains that chunk.
    let base = if tape.is() { u64::MAX - 100 } else { 0 };
    let (mut set, mut bits) = (ChunkSet::new(), 0_u128);
    while !tape.is_empty() {
        let (what, first) = (tape.below(4), tape.below(128));
        let count = if tape.is() {
            tape.below(128)
        } else {
            tape.number()
        };
        let range = ChunkRange::new(ChunkId(base.saturating_add(first)), count);
        let mask = mask_of(range, base);
        let (before, before_len) = (bits, set.len());
        match what {
            0 => {
                bits |= mask;
                let added = set.insert(range);
                assert_eq!(before_len + added, set.len());
                assert!(
                    first.saturating_add(count) > 100
                        || added == u64::from((bits ^ before).count_ones())
                );
            }
            1 => {
                bits &= !mask;
                let removed = set.remove(range);
                assert_eq!(before_len - removed, set.len());
            }
            2 => {
                let (begin, taken) = (set.first(), set.take_first(count));
                assert_eq!(taken.is_none(), begin.is_none() || count == 0);
                if let Some(taken) = taken {
                    assert!(taken.count <= count && Some(taken.first) == begin);
                    bits &= !mask_of(taken, base);
                    // Fewer chunks than requested are taken only if the next chunk is missing.
                    assert!(taken.count == count || set.first() != Some(taken.end()));
                }
            }
            _ => {
                let gaps: u128 = set
                    .gaps(range)
                    .map(|gap| mask_of(gap, base))
                    .fold(0, |all, gap| all | gap);
                assert_eq!(gaps, mask & !bits);
            }
        }
        let all: Vec<ChunkRange> = set.ranges().collect();
        let ranges = all
            .iter()
            .fold(0, |bits, range| bits | mask_of(*range, base));
        assert_eq!(ranges, bits);
        assert!(all.windows(2).all(|pair| pair[0].end() < pair[1].first));
        assert!(all.iter().all(|range| !range.is_empty()));
        let last = all.last().map(|range| ChunkId(range.end().0 - 1));
        assert_eq!(set.last(), last);
        assert_eq!(
            set.len(),
            set.ranges().map(|range| range.count).sum::<u64>()
        );
        assert!(first >= 100 || set.contains(ChunkId(base + first)) == (bits >> first & 1 == 1));
        assert_eq!(set.is_empty(), set.first().is_none());
    }
}

/// Returns the range as a bit mask. Bit 0 of the mask is chunk `base`.
fn mask_of(range: ChunkRange, base: u64) -> u128 {
    let below = |end: u64| {
        if end - base >= 128 {
            u128::MAX
        } else {
            (1 << (end - base)) - 1
        }
    };
    below(range.end().0) & !below(range.first.0)
}

const CHUNK: u64 = 4096;

fn holes(tape: &mut Tape<'_>) {
    let size = tape.below(20) * CHUNK + tape.below(3);
    let grid = Grid::new(size, ChunkSize::MIN);
    let mut map = HoleMap::default();
    while !tape.is_empty() {
        let unit = if tape.is() { CHUNK } else { 64 };
        let offset = if tape.is() {
            tape.number()
        } else {
            tape.below(64) * unit
        };
        let len = if tape.is() {
            tape.number()
        } else {
            tape.below(64) * unit
        };
        let before = map.bytes();
        match map.push(Extent { offset, len }, size) {
            Ok(()) => assert_eq!(map.bytes(), before + len),
            Err(_) => assert_eq!(map.bytes(), before),
        }
    }
    let mut end = 0;
    for hole in map.extents() {
        assert!(
            hole.len > 0
                && (hole.offset > end || (end, hole.offset) == (0, 0))
                && hole.offset + hole.len <= size
        );
        end = hole.offset + hole.len;
    }
    let data: u64 = map.data(size).map(|extent| extent.len).sum();
    assert_eq!(data + map.bytes(), size);
    let mut chunks = map.chunks(grid);
    for chunk in grid.all_chunks().chunks() {
        let extent = grid.extent_of(chunk).expect("a chunk of the file");
        let here: u64 = map.within(extent).map(|part| part.len).sum();
        assert_eq!(chunks.contains(chunk), here == extent.len);
    }
    let mut left = chunks.len();
    while let Some(zeros) = Zeros::take(&mut chunks, grid) {
        assert!(zeros.first.0.is_multiple_of(1 << zeros.level));
        left -= 1 << zeros.level;
    }
    assert_eq!(left, 0);
}
