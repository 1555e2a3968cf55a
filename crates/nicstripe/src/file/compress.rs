//! Compression of chunks into zstd frames, if it pays.

use std::{
    cell::RefCell,
    num::NonZero,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use nicstripe_proto::BitRate;
use parking_lot::Mutex;
use zstd::zstd_safe::{CCtx, DCtx, find_frame_compressed_size};

use super::buffer::{BufferPool, ChunkBuffer};

/// True if this program decompresses chunks.
pub(crate) const UNPACKS: bool = true;

#[derive(Debug)]
pub(crate) struct Packer {
    /// True if all chunks may be compressed, not only those with zeros.
    enabled: bool,
    policy: Mutex<Policy>,
}

impl Packer {
    pub(crate) fn new(enabled: bool) -> Self {
        // Asked once per process: the answer takes six files of the control groups, for each file.
        static THREADS: LazyLock<u32> =
            LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get) as u32);
        Self {
            enabled,
            policy: Mutex::new(Policy::new(*THREADS)),
        }
    }

    /// Compresses a chunk into a zstd frame. Returns `None` if the frame is not shorter, or if
    /// compression would not pay off at the links' total `rate`. Always tries chunks with
    /// `has_zeros`.
    pub(crate) fn pack(
        &self,
        bytes: &[u8],
        buffers: &BufferPool,
        rate: Option<BitRate>,
        has_zeros: bool,
    ) -> Option<ChunkBuffer> {
        let is_worth_it =
            has_zeros || (self.enabled && self.policy.lock().wants(rate, bytes.len() as u64));
        if !is_worth_it {
            return None;
        }
        let started = Instant::now();
        let mut packed = buffers.take();
        // The output buffer is smaller than the chunk, so that the compressor stops if it gains
        // nothing.
        let len = CONTEXTS.with_borrow_mut(|contexts| {
            let room = packed.bytes_mut(bytes.len().saturating_sub(1));
            contexts.0.compress(room, bytes, LEVEL)
        });
        let len = len.ok();
        if self.enabled && !has_zeros {
            self.policy.lock().on_packed(
                bytes.len() as u64,
                len.unwrap_or(bytes.len()) as u64,
                started.elapsed(),
            );
        }
        packed.bytes_mut(len?);
        Some(packed)
    }
}

/// Decompresses exactly one frame of exactly `raw_len` bytes, at most a chunk, into `into`. Returns
/// `None` for any other input, without using more memory.
pub(crate) fn unpack(frame: &[u8], raw_len: u32, mut into: ChunkBuffer) -> Option<ChunkBuffer> {
    if find_frame_compressed_size(frame).ok()? != frame.len() {
        return None;
    }
    let room = into.bytes_mut(raw_len as usize);
    if room.len() != raw_len as usize {
        return None;
    }
    let len = CONTEXTS.with_borrow_mut(|contexts| contexts.1.decompress(room, frame));
    (len.ok()? == raw_len as usize).then_some(into)
}

thread_local! {
    /// zstd contexts of the thread. A compressor takes about 600 KiB, too much to allocate per
    /// chunk.
    static CONTEXTS: RefCell<(CCtx<'static>, DCtx<'static>)> =
        RefCell::new((CCtx::create(), DCtx::create()));
}

/// Policy that decides which chunks to compress.
///
/// Compression is off while recent samples shrank by less than a tenth. It is also off while
/// compressing a chunk on all threads takes longer than sending the saved bytes. While off, it
/// still tries one chunk in 32, as content or links may have changed.
#[derive(Debug)]
struct Policy {
    threads: u32,
    /// Raw size divided by compressed size, smoothed; `None` before the first sample.
    ratio: Option<f64>,
    /// Compression time per byte on one thread, in seconds, smoothed.
    cost: f64,
    /// Wire bytes per file byte, smoothed; converts the measured file rate into a wire rate.
    share: f64,
    /// Highest wire rate seen, in bytes per second. Kept so that slow compression does not make the
    /// links look slow.
    best_rate: f64,
    /// Number of chunks since compression was last tried.
    skipped: u32,
}

impl Policy {
    fn new(threads: u32) -> Self {
        Self {
            threads: threads.max(1),
            ratio: None,
            cost: 0.0,
            share: 1.0,
            best_rate: 0.0,
            skipped: 0,
        }
    }

    /// Returns true if compression of the next chunk, of `len` bytes, should be tried.
    fn wants(&mut self, rate: Option<BitRate>, len: u64) -> bool {
        if let Some(BitRate(bps)) = rate {
            self.best_rate = (self.best_rate * RATE_FADES).max(bps as f64 / 8.0 * self.share);
        }
        self.skipped += 1;
        let is_worth_it = self.skipped >= RETRY_EVERY || self.pays(len as f64);
        if is_worth_it {
            self.skipped = 0;
        } else {
            self.share += (1.0 - self.share) * SMOOTHING;
        }
        is_worth_it
    }

    fn pays(&self, len: f64) -> bool {
        // Off until the links' rate is known; then on until the first sample.
        let Some(ratio) = self.ratio.filter(|_| self.best_rate > 0.0) else {
            return self.best_rate > 0.0;
        };
        let takes = self.cost * len / f64::from(self.threads);
        let saves = (1.0 - 1.0 / ratio) * len / self.best_rate;
        ratio >= LEAST_RATIO && takes <= saves
    }

    fn on_packed(&mut self, raw: u64, packed: u64, took: Duration) {
        let (ratio, cost) = (
            raw as f64 / packed.max(1) as f64,
            took.as_secs_f64() / raw.max(1) as f64,
        );
        self.share += (1.0 / ratio - self.share) * SMOOTHING;
        self.cost = if self.ratio.is_none() {
            cost
        } else {
            self.cost + (cost - self.cost) * SMOOTHING
        };
        self.ratio = Some(
            self.ratio
                .map_or(ratio, |before| before + (ratio - before) * SMOOTHING),
        );
    }
}

/// zstd compression level: 1 compresses 300 to 600 MB/s per core; 3 saves a tenth more at two
/// thirds of that rate (measured on source text).
const LEVEL: i32 = 1;

/// Minimum compression ratio that is worth the receiver's CPU time.
const LEAST_RATIO: f64 = 1.1;

/// Number of chunks per sample while compression is off: 3 % of the CPU time at most.
const RETRY_EVERY: u32 = 32;

/// Weight of a new sample in the moving averages: about the last eight count (picked by eye).
const SMOOTHING: f64 = 0.125;

/// Decay factor of the highest wire rate per chunk. The rate halves in 700 chunks, so that a lost
/// link stops counting.
const RATE_FADES: f64 = 0.999;

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 256 * 1024;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Returns the number of chunks tried out of 320, each with this ratio and compression time, on
    /// links of `rate`.
    fn tried(policy: &mut Policy, rate: Option<BitRate>, ratio: f64, took: Duration) -> u32 {
        let mut tried = 0;
        for _ in 0..320 {
            // The links are saturated: better compression raises the file rate.
            let measured = rate.map(|rate| BitRate((rate.0 as f64 / policy.share) as u64));
            if policy.wants(measured, CHUNK) {
                tried += 1;
                policy.on_packed(CHUNK, (CHUNK as f64 / ratio) as u64, took);
            }
        }
        tried
    }

    #[test]
    fn chunks_are_compressed_while_that_is_faster_and_else_tried_once_in_a_while() {
        let (mbit, gbit) = (BitRate::from_mbit(100), BitRate::from_gbit);
        for (rate, ratio, took, expected) in [
            // 0.6 ms split over two threads, against 1.05 ms at 1 Gbit/s for half a chunk.
            (Some(gbit(1)), 2.0, 600, 320..=320),
            // 0.3 ms against 0.1 ms at 10 Gbit/s.
            (Some(gbit(10)), 2.0, 600, 10..=12),
            // It does not shrink.
            (Some(mbit), 1.0, 100, 10..=12),
            // While no rate is known, only samples are taken.
            (None, 4.0, 100, 10..=10),
        ] {
            let tried = tried(&mut Policy::new(2), rate, ratio, micros(took));
            assert!(expected.contains(&tried), "{rate:?} {ratio}: {tried}");
        }
    }

    #[test]
    fn content_that_begins_to_shrink_is_noticed() {
        let mut policy = Policy::new(2);
        tried(&mut policy, Some(BitRate::from_mbit(100)), 1.0, micros(100));
        assert!(tried(&mut policy, Some(BitRate::from_mbit(100)), 4.0, micros(100)) > 280);
    }

    #[test]
    fn frames_come_back_as_they_were_and_random_bytes_stay_as_they_are() {
        let buffers = BufferPool::default();
        let text: Vec<u8> = b"all work and no play "
            .iter()
            .copied()
            .cycle()
            .take(CHUNK as usize)
            .collect();
        let mut random = vec![0; CHUNK as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut random);
        let packer = Packer::new(true);
        let slow = Some(BitRate::from_mbit(10));
        let packed = packer.pack(&text, &buffers, slow, false).unwrap();
        assert!(packed.bytes().len() < 1000);
        let unpacked = unpack(packed.bytes(), CHUNK as u32, buffers.take());
        assert_eq!(unpacked.unwrap().bytes(), text);
        assert!(packer.pack(&random, &buffers, slow, false).is_none());
        let other = Packer::new(false);
        assert!(other.pack(&text, &buffers, slow, false).is_none());
        assert!(other.pack(&text, &buffers, None, true).is_some());
        // One byte does not become shorter.
        assert!(packer.pack(&[1], &buffers, None, true).is_none());
    }

    #[test]
    fn anything_but_one_frame_of_the_length_that_was_told_is_refused() {
        let buffers = BufferPool::default();
        let zeros = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        for raw_len in [0, 1, CHUNK as u32, 1 << 20] {
            let unpacked = unpack(&zeros, raw_len, buffers.take());
            assert!(unpacked.is_none(), "{raw_len}");
        }
        let small = zstd::bulk::compress(&[0; 100], 1).unwrap();
        assert!(unpack(&small, 100, buffers.take()).is_some());
        let twice = [&small[..], &small].concat();
        for (frame, raw_len) in [
            (&twice[..], 200),
            (&twice, 100),
            (&small, 99),
            (&small, 101),
            (&small[..5], 100),
            (b"", 1),
            (b"junk", 9),
        ] {
            let unpacked = unpack(frame, raw_len, buffers.take());
            assert!(unpacked.is_none(), "{raw_len}");
        }
        for index in 0..small.len() {
            let mut garbled = small.clone();
            garbled[index] ^= 0x55;
            let _ = unpack(&garbled, 100, buffers.take());
        }
    }
}
