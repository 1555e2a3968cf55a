//! Shares of the files of a tree, for copies by several processes that do not know of each other.
//!
//! A file's path is hashed to one of [`BUCKETS`] buckets. The buckets lie end to end on a line, each as
//! long as its files weigh, and each share is a part of the line of equal length. All who list the same
//! tree cut it alike.
//!
//! A large file is cut into pieces of equal length, and each piece has its own bucket.

use std::{fmt, ops::Range, str::FromStr, time::SystemTime};

use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::file::journal::Timestamp;

/// One of several shares of the files of a tree: its number, from 1, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode)]
pub struct Share {
    #[n(0)]
    number: u32,
    #[n(1)]
    of: u32,
}

impl Share {
    /// Maximum number of shares. A share of more would have less than 26 buckets, and could weigh 4 % more
    /// than another.
    pub const MOST: u32 = 10_000;

    /// Returns the share `number` of `of`.
    ///
    /// # Errors
    ///
    /// `of` is 0 or more than [`Share::MOST`], or `number` is not between 1 and `of`.
    pub fn new(number: u32, of: u32) -> Result<Self, ShareError> {
        if !(1..=Self::MOST).contains(&of) {
            return Err(ShareError::Count { of });
        }
        match (1..=of).contains(&number) {
            true => Ok(Self { number, of }),
            false => Err(ShareError::Number { number, of }),
        }
    }

    /// Returns the number of the share, from 1.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns the number of shares.
    pub const fn of(self) -> u32 {
        self.of
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Share {
    type Err = ShareError;

    /// Parses `K/N` in decimal digits.
    fn from_str(text: &str) -> Result<Self, ShareError> {
        let parse = |digits: &str| {
            let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| is_digits)
        };
        let (number, of) = text.split_once('/').ok_or(ShareError::Syntax)?;
        match (parse(number), parse(of)) {
            (Some(number), Some(of)) => Self::new(number, of),
            _ => Err(ShareError::Syntax),
        }
    }
}

impl<'b, C> Decode<'b, C> for Share {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = decoder.position();
        let wrong = || decode::Error::message("not a share").at(position);
        match decoder.array()? {
            Some(2) => Self::new(decoder.u32()?, decoder.u32()?).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

/// Error of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The text is not `K/N`.
    #[error("expected K/N, such as 1/8")]
    Syntax,
    /// This number of shares is impossible.
    #[error("{of} shares, expected 1 to {max}", max = Share::MOST)]
    Count {
        /// Number of shares.
        of: u32,
    },
    /// There is no share of this number.
    #[error("there is no share {number} of {of}: expected 1 to {of}")]
    Number {
        /// Number of the share.
        number: u32,
        /// Number of shares.
        of: u32,
    },
}

/// Number of buckets. Two large files of a tree of 100 are in the same one with a probability of 2 %.
pub const BUCKETS: usize = 1 << 18;

/// Bucket of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u32);

impl Bucket {
    /// Returns the bucket of a path relative to the source, with `/` between its components: the first 18
    /// bits of its BLAKE3 hash.
    pub fn of(path: &[u8]) -> Self {
        let hash = blake3::hash(path);
        let [a, b, c, ..] = *hash.as_bytes();
        Self(u32::from_be_bytes([0, a, b, c]) >> 6)
    }

    /// Returns the bucket of a piece of a large file: that of its path, a zero and the index of the piece
    /// in decimal digits.
    pub fn of_piece(path: &[u8], index: u32) -> Self {
        Self::of(&[path, b"\0", index.to_string().as_bytes()].concat())
    }
}

/// Pieces of a large file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    size: u64,
    len: u64,
}

impl Pieces {
    /// Size in bytes above which a file is large: 1 GiB.
    pub const LARGE: u64 = 1 << 30;
    /// Maximum number of pieces.
    pub const MOST: u32 = 1024;

    /// Returns the pieces of a file of this size; `None` if it is not large. A piece is 16 MiB long, and
    /// twice as long as often as it takes to have at most [`Pieces::MOST`].
    pub fn of(size: u64) -> Option<Self> {
        let lens = (24..u64::BITS).map(|log2| 1 << log2);
        let mut lens = lens.filter(|len: &u64| size.div_ceil(*len) <= u64::from(Self::MOST));
        let len = lens.next().filter(|_| size > Self::LARGE)?;
        Some(Self { size, len })
    }

    /// Returns the number of pieces.
    pub fn count(self) -> u32 {
        u32::try_from(self.size.div_ceil(self.len)).unwrap_or(Self::MOST)
    }

    /// Returns the bytes of a piece. Beyond the last one the range is empty.
    pub fn range(self, index: u32) -> Range<u64> {
        let at = |index: u64| index.saturating_mul(self.len).min(self.size);
        at(u64::from(index))..at(u64::from(index) + 1)
    }
}

/// Large file of a tree, and those of its pieces that belong to one share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeFile {
    size: u64,
    mtime: Timestamp,
    mode: u32,
    pieces: Vec<u32>,
}

impl LargeFile {
    /// Returns the file with these pieces, in ascending order. `None` if the file is not large, has no such
    /// pieces, or its time is not one.
    pub fn new(size: u64, mtime: Timestamp, mode: u32, pieces: Vec<u32>) -> Option<Self> {
        let count = Pieces::of(size)?.count();
        let is_valid = pieces.is_sorted_by(|one, next| one < next)
            && pieces.last().is_none_or(|last| *last < count)
            && mtime.nanoseconds < 1_000_000_000
            && mode <= 0o7777;
        is_valid.then_some(Self {
            size,
            mtime,
            mode,
            pieces,
        })
    }

    /// Returns the size of the file in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the modification time of the file; the beginning of 1970 if [`SystemTime`] has none such.
    pub fn modified(&self) -> SystemTime {
        self.mtime
            .to_system_time()
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the permission bits of the file.
    pub const fn mode(&self) -> u32 {
        self.mode
    }

    /// Returns the memory of the pieces in bytes.
    pub fn footprint(&self) -> usize {
        self.pieces.len() * size_of::<u32>()
    }

    /// Returns true if the share has any of the pieces.
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Returns the number of pieces of the file.
    pub fn count(&self) -> u32 {
        Pieces::of(self.size).map_or(0, Pieces::count)
    }

    /// Returns the pieces of the share: their indices and their bytes.
    pub fn pieces(&self) -> impl Iterator<Item = (u32, Range<u64>)> {
        let pieces = Pieces::of(self.size);
        let of = move |index| pieces.map_or(0..0, |pieces| pieces.range(index));
        self.pieces.iter().map(move |index| (*index, of(*index)))
    }
}

impl<C> Encode<C> for LargeFile {
    fn encode<W: encode::Write>(
        &self,
        encoder: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(4)?.u64(self.size)?;
        self.mtime.encode(encoder, ctx)?;
        encoder.u32(self.mode)?;
        self.pieces.encode(encoder, ctx)
    }
}

impl<'b, C> Decode<'b, C> for LargeFile {
    fn decode(decoder: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, decode::Error> {
        let position = decoder.position();
        let wrong = || decode::Error::message("not a large file").at(position);
        if decoder.array()? != Some(4) {
            return Err(wrong());
        }
        let (size, mtime) = (decoder.u64()?, Timestamp::decode(decoder, ctx)?);
        let mode = decoder.u32()?;
        let most = u64::from(Pieces::MOST);
        let count = decoder.array()?.filter(|count| *count <= most);
        let count = count.ok_or_else(wrong)?;
        let pieces = (0..count)
            .map(|_| decoder.u32())
            .collect::<Result<_, _>>()?;
        Self::new(size, mtime, mode, pieces).ok_or_else(wrong)
    }
}

/// Weights of the files of a tree, from which its shares follow.
#[derive(Debug)]
pub struct Deal {
    weights: Box<[u64]>,
}

impl Default for Deal {
    fn default() -> Self {
        Self {
            weights: vec![0; BUCKETS].into(),
        }
    }
}

impl Deal {
    /// Memory of the weights in bytes: 2 MiB.
    pub const BYTES: usize = BUCKETS * size_of::<u64>();

    /// Adds a file of this size in bytes.
    pub fn add(&mut self, bucket: Bucket, size: u64) {
        if let Some(weight) = self.weights.get_mut(bucket.0 as usize) {
            *weight = weight.saturating_add(size).saturating_add(WEIGHT_OF_FILE);
        }
    }

    /// Returns the buckets of a share: those whose middle lies in its part of the line.
    pub fn cut(&self, share: Share) -> Cut {
        let whole: u128 = self.weights.iter().copied().map(u128::from).sum();
        // Twice the position on the line, so that the middle of a bucket is an integer.
        let bound = |number: u32| 2 * whole * u128::from(number) / u128::from(share.of);
        let (first, end) = (bound(share.number - 1), bound(share.number));
        let is_last = share.number == share.of;
        let (mut before, mut buckets) = (0_u128, None::<Range<u32>>);
        for (index, weight) in (0..).zip(&self.weights) {
            let weight = u128::from(*weight);
            let middle = 2 * before + weight;
            before += weight;
            if weight > 0 && middle >= first && (middle < end || is_last) {
                buckets = Some(buckets.map_or(index, |range| range.start)..index + 1);
            }
        }
        Cut(buckets.unwrap_or(0..0))
    }
}

/// Weight of a file beyond its size, in bytes: what a small one costs besides its content, between two
/// machines with a gigabit cable.
const WEIGHT_OF_FILE: u64 = 8 << 10;

/// Buckets of one share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut(Range<u32>);

impl Cut {
    /// Returns true if the files of a bucket belong to the share.
    pub fn contains(&self, bucket: Bucket) -> bool {
        self.0.contains(&bucket.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(number: u32, of: u32) -> Share {
        Share::new(number, of).unwrap()
    }

    /// Returns the weights of all shares of files with these sizes. Each file must be in exactly one.
    fn weights(sizes: &[u64], of: u32) -> Vec<u64> {
        let bucket = |index: usize| Bucket::of(format!("dir/{index}").as_bytes());
        let mut deal = Deal::default();
        for (index, size) in sizes.iter().enumerate() {
            deal.add(bucket(index), *size);
        }
        let cuts: Vec<Cut> = (1..=of).map(|number| deal.cut(share(number, of))).collect();
        let mut weights = vec![0; of as usize];
        for (index, size) in sizes.iter().enumerate() {
            let mut owners = (0..cuts.len()).filter(|at| cuts[*at].contains(bucket(index)));
            weights[owners.next().unwrap()] += size + WEIGHT_OF_FILE;
            assert_eq!(owners.next(), None);
        }
        weights
    }

    #[test]
    fn a_share_is_one_of_as_many_as_there_are() {
        assert_eq!("3/8".parse(), Ok(share(3, 8)));
        assert_eq!(share(3, 8).to_string(), "3/8");
        for (text, error) in [
            ("", ShareError::Syntax),
            ("3", ShareError::Syntax),
            ("a/b", ShareError::Syntax),
            ("+1/4", ShareError::Syntax),
            ("1/4/4", ShareError::Syntax),
            ("0/4", ShareError::Number { number: 0, of: 4 }),
            ("5/4", ShareError::Number { number: 5, of: 4 }),
            ("1/0", ShareError::Count { of: 0 }),
            ("1/10001", ShareError::Count { of: 10_001 }),
        ] {
            assert_eq!(text.parse::<Share>(), Err(error), "{text}");
        }
        for bytes in [
            &[0x82, 0, 4][..],
            &[0x82, 5, 4],
            &[0x81, 1],
            &[0x83, 1, 4, 0],
        ] {
            assert!(decode::<Share>(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(decode::<Share>(&[0x82, 1, 4]).unwrap(), share(1, 4));
    }

    #[test]
    fn the_bucket_of_a_path_is_pinned() {
        // b3sum of "dir/file" begins with digits whose first 18 bits are these.
        let hash = blake3::hash(b"dir/file");
        let first = u32::from_be_bytes(hash.as_bytes()[..4].try_into().unwrap());
        assert_eq!(Bucket::of(b"dir/file"), Bucket(first >> 14));
    }

    #[test]
    fn pieces_of_a_large_file_are_at_most_1024_and_cover_it() {
        assert_eq!(Pieces::of(Pieces::LARGE), None);
        for size in [
            Pieces::LARGE + 1,
            16 << 30,
            (16 << 30) + 1,
            1 << 40,
            i64::MAX as u64,
            u64::MAX,
        ] {
            let pieces = Pieces::of(size).unwrap();
            let mut end = 0;
            for index in 0..pieces.count() {
                let range = pieces.range(index);
                assert!(range.start == end && range.end > end, "{size} {index}");
                end = range.end;
            }
            assert_eq!(end, size);
            assert!((64..=1024).contains(&pieces.count()), "{size}");
        }
    }

    #[test]
    fn a_large_file_is_what_it_was_on_the_wire_and_nothing_else_is_one() {
        let at = Timestamp {
            seconds: -1,
            nanoseconds: 999_999_999,
        };
        let file = |size, pieces| LargeFile::new(size, at, 0o644, pieces);
        let whole = file(2 << 30, vec![0, 5, 127]).unwrap();
        let bytes = minicbor::to_vec(&whole).unwrap();
        assert_eq!(decode::<LargeFile>(&bytes).unwrap(), whole);
        assert_eq!(whole.pieces().last(), Some((127, (127 << 24)..(2 << 30))));
        for (size, pieces) in [
            (1 << 30, vec![0]),
            (2 << 30, vec![128]),
            (2 << 30, vec![1, 1]),
            (2 << 30, vec![2, 1]),
        ] {
            assert_eq!(file(size, pieces.clone()), None);
            let evil = LargeFile {
                size,
                pieces,
                ..whole.clone()
            };
            let bytes = minicbor::to_vec(&evil).unwrap();
            assert!(decode::<LargeFile>(&bytes).is_err(), "{evil:?}");
        }
        let evil = LargeFile {
            pieces: (0..2000).collect(),
            ..whole
        };
        assert!(decode::<LargeFile>(&minicbor::to_vec(&evil).unwrap()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn each_file_is_in_one_share_and_shares_differ_by_less_than_the_largest_bucket(
            sizes in proptest::collection::vec(prop_oneof![0..100_000_u64, 0..1_u64 << 32], 0..200),
            of in 1..40_u32,
        ) {
            let weights = weights(&sizes, of);
            let mean = weights.iter().sum::<u64>() / u64::from(of);
            // Two files may share a bucket; the three largest bound what any bucket weighs.
            let mut largest: Vec<u64> = sizes.iter().map(|size| size + WEIGHT_OF_FILE).collect();
            largest.sort_unstable();
            let bucket: u64 = largest.iter().rev().take(3).sum();
            for weight in weights {
                prop_assert!(weight.abs_diff(mean) <= bucket + 1, "{weight} {mean}");
            }
        }
    }

    #[test]
    fn shares_of_many_files_differ_by_less_than_5_percent_of_their_mean() {
        let sizes: Vec<u64> = (0..20_000_u64)
            .map(|index| index * index % 99_991)
            .collect();
        let weights = weights(&sizes, 8);
        let mean = weights.iter().sum::<u64>() / 8;
        for weight in weights {
            assert!(weight.abs_diff(mean) * 1000 < mean, "{weight} {mean}");
        }
    }
}
