//! Chunks as zstd frames, where that makes a transfer shorter.

use std::{
    cell::RefCell,
    io,
    num::NonZero,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nicstripe_proto::BitRate;
use zstd::bulk::{Compressor, Decompressor};

use super::{BufferPool, ChunkBuffer};

/// Compresses the chunks of one transfer.
#[derive(Debug)]
pub(crate) struct Packer {
    /// Whether chunks without holes are tried as well.
    enabled: bool,
    policy: Mutex<Policy>,
}

impl Packer {
    pub(crate) fn new(enabled: bool) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get) as u32;
        Self { enabled, policy: Mutex::new(Policy::new(threads)) }
    }

    /// Returns a chunk as one zstd frame, shorter than it, if that pays on links of `rate` together, or if it `has_zeros` that vanish.
    pub(crate) fn pack(&self, bytes: &[u8], buffers: &BufferPool, rate: Option<BitRate>, has_zeros: bool) -> Option<ChunkBuffer> {
        let wanted = has_zeros || (self.enabled && self.policy().wants(rate, bytes.len() as u64));
        if !wanted {
            return None;
        }
        let started = Instant::now();
        let mut packed = buffers.take();
        // Less than the chunk, or the frame is of no use; the compressor gives up where it does not fit.
        let len = CONTEXTS.with_borrow_mut(|contexts| {
            let room = packed.bytes_mut(bytes.len().saturating_sub(1));
            contexts.compressor()?.compress_to_buffer(bytes, room)
        });
        let len = len.ok();
        if self.enabled && !has_zeros {
            self.policy().on_packed(bytes.len() as u64, len.unwrap_or(bytes.len()) as u64, started.elapsed());
        }
        packed.bytes_mut(len?);
        Some(packed)
    }

    fn policy(&self) -> std::sync::MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unpacks exactly `raw_len` bytes, at most a chunk, from exactly one frame; anything else is an error, and costs no more memory.
pub(crate) fn unpack(frame: &[u8], raw_len: u32, mut into: ChunkBuffer) -> io::Result<ChunkBuffer> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    if zstd::zstd_safe::find_frame_compressed_size(frame).ok() != Some(frame.len()) {
        return Err(damaged("not one zstd frame"));
    }
    let room = into.bytes_mut(raw_len as usize);
    if room.len() != raw_len as usize {
        return Err(damaged("more than a chunk"));
    }
    let len = CONTEXTS.with_borrow_mut(|contexts| contexts.decompressor()?.decompress_to_buffer(frame, room))?;
    if len != raw_len as usize {
        return Err(damaged("another length than was told"));
    }
    Ok(into)
}

thread_local! {
    /// A compressor takes some 600 KiB, which are not to be made for each chunk.
    static CONTEXTS: RefCell<Contexts> = RefCell::default();
}

#[derive(Default)]
struct Contexts {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
}

impl Contexts {
    fn compressor(&mut self) -> io::Result<&mut Compressor<'static>> {
        match &mut self.compressor {
            Some(compressor) => Ok(compressor),
            none => Ok(none.insert(Compressor::new(LEVEL)?)),
        }
    }

    fn decompressor(&mut self) -> io::Result<&mut Decompressor<'static>> {
        match &mut self.decompressor {
            Some(decompressor) => Ok(decompressor),
            none => {
                let mut decompressor = Decompressor::new()?;
                decompressor.set_parameter(zstd::zstd_safe::DParameter::WindowLogMax(MOST_WINDOW_LOG2))?;
                Ok(none.insert(decompressor))
            }
        }
    }
}

/// Decides which chunks are worth compressing.
///
/// Off while the last samples shrank by less than a tenth, or while compressing one takes longer, all threads at it, than the bytes it saves
/// take on the wire; then one chunk in 32 is tried all the same, as the content or the links may have changed.
#[derive(Debug)]
struct Policy {
    threads: u32,
    /// Raw bytes of a packed one, smoothed; unknown before the first.
    ratio: Option<f64>,
    /// Time to compress a byte on one thread, in seconds, smoothed.
    cost: f64,
    /// Bytes on the wire of one of the file, smoothed: the links' rates are measured in bytes of the file.
    share: f64,
    /// The highest rate of the wire that was seen: compressing too slowly must not make the links look slow.
    best_rate: f64,
    /// Chunks since the last that was tried.
    skipped: u32,
}

impl Policy {
    fn new(threads: u32) -> Self {
        Self { threads: threads.max(1), ratio: None, cost: 0.0, share: 1.0, best_rate: 0.0, skipped: 0 }
    }

    /// Whether the next chunk, of `len` bytes, is to be tried.
    fn wants(&mut self, rate: Option<BitRate>, len: u64) -> bool {
        if let Some(BitRate(bps)) = rate {
            self.best_rate = (self.best_rate * RATE_FADES).max(bps as f64 / 8.0 * self.share);
        }
        self.skipped += 1;
        let wanted = self.skipped >= RETRY_EVERY || self.pays(len as f64);
        if wanted {
            self.skipped = 0;
        } else {
            self.share += (1.0 - self.share) * SMOOTHING;
        }
        wanted
    }

    fn pays(&self, len: f64) -> bool {
        // Before the links' rate is known nothing says that it would.
        let Some(ratio) = self.ratio.filter(|_| self.best_rate > 0.0) else { return self.best_rate > 0.0 };
        let takes = self.cost * len / f64::from(self.threads);
        let saves = (1.0 - 1.0 / ratio) * len / self.best_rate;
        ratio >= LEAST_RATIO && takes <= saves
    }

    /// A chunk was compressed from `raw` to `packed` bytes.
    fn on_packed(&mut self, raw: u64, packed: u64, took: Duration) {
        let (ratio, cost) = (raw as f64 / packed.max(1) as f64, took.as_secs_f64() / raw.max(1) as f64);
        self.share += (1.0 / ratio - self.share) * SMOOTHING;
        self.cost = if self.ratio.is_none() { cost } else { self.cost + (cost - self.cost) * SMOOTHING };
        self.ratio = Some(self.ratio.map_or(ratio, |before| before + (ratio - before) * SMOOTHING));
    }
}

/// Compression level: 1 packs 300 to 600 MB/s a core; 3 packs a tenth better at two thirds of that (measured on source text).
const LEVEL: i32 = 1;

/// Largest window of a frame that is unpacked: 8 MiB. A chunk needs 256 KiB.
const MOST_WINDOW_LOG2: u32 = 23;

/// Ratio below which compressing is not worth the receiver's time.
const LEAST_RATIO: f64 = 1.1;

/// Of so many chunks that are not worth it one is tried: 3 % of the time at most.
const RETRY_EVERY: u32 = 32;

/// Weight of a new sample: the last eight count (picked by eye).
const SMOOTHING: f64 = 0.125;

/// What the highest rate that was seen loses with each chunk: half of it in 700 chunks, so that a link that was lost is forgotten.
const RATE_FADES: f64 = 0.999;

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 256 * 1024;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// How many of 320 chunks are tried that shrink by `ratio` and take `took` each, on links of `rate`.
    fn tried(policy: &mut Policy, rate: Option<BitRate>, ratio: f64, took: Duration) -> u32 {
        let mut tried = 0;
        for _ in 0..320 {
            // The links carry what they can: the more is saved, the more of the file they move.
            let measured = rate.map(|rate| BitRate((rate.0 as f64 / policy.share) as u64));
            if policy.wants(measured, CHUNK) {
                tried += 1;
                policy.on_packed(CHUNK, (CHUNK as f64 / ratio) as u64, took);
            }
        }
        tried
    }

    #[test]
    fn on_a_slow_link_everything_that_shrinks_is_compressed() {
        let mut policy = Policy::new(2);
        // 0.6 ms of two threads against 1.05 ms of a gigabit for half a chunk.
        assert_eq!(tried(&mut policy, Some(BitRate::from_gbit(1)), 2.0, micros(600)), 320);
    }

    #[test]
    fn on_a_fast_link_compressing_stops_although_it_shrinks() {
        let mut policy = Policy::new(2);
        // 0.3 ms against 0.1 ms of ten gigabits.
        let tried = tried(&mut policy, Some(BitRate::from_gbit(10)), 2.0, micros(600));
        assert!((10..=12).contains(&tried), "{tried}");
    }

    #[test]
    fn what_does_not_shrink_is_tried_once_in_a_while() {
        let mut policy = Policy::new(2);
        let tried = tried(&mut policy, Some(BitRate::from_mbit(100)), 1.0, micros(100));
        assert!((10..=12).contains(&tried), "{tried}");
    }

    #[test]
    fn content_that_begins_to_shrink_is_noticed() {
        let mut policy = Policy::new(2);
        tried(&mut policy, Some(BitRate::from_mbit(100)), 1.0, micros(100));
        assert!(tried(&mut policy, Some(BitRate::from_mbit(100)), 4.0, micros(100)) > 280);
    }

    #[test]
    fn while_no_rate_is_known_only_samples_are_taken() {
        let mut policy = Policy::new(2);
        assert_eq!(tried(&mut policy, None, 4.0, micros(100)), 10);
    }

    #[test]
    fn frames_come_back_as_they_were_and_random_bytes_stay_as_they_are() {
        let buffers = BufferPool::default();
        let text: Vec<u8> = b"all work and no play ".iter().copied().cycle().take(CHUNK as usize).collect();
        let mut random = vec![0; CHUNK as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut random);
        let packer = Packer::new(true);
        let packed = packer.pack(&text, &buffers, Some(BitRate::from_mbit(10)), false).unwrap();
        assert!(packed.bytes().len() < 1000);
        assert_eq!(unpack(packed.bytes(), CHUNK as u32, buffers.take()).unwrap().bytes(), text);
        assert!(packer.pack(&random, &buffers, Some(BitRate::from_mbit(10)), false).is_none());
        assert!(Packer::new(false).pack(&text, &buffers, Some(BitRate::from_mbit(10)), false).is_none());
        assert!(Packer::new(false).pack(&text, &buffers, None, true).is_some());
        assert!(packer.pack(&[1], &buffers, None, true).is_none(), "one byte does not become shorter");
    }

    #[test]
    fn anything_but_one_frame_of_the_length_that_was_told_is_refused() {
        let buffers = BufferPool::default();
        let zeros = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        for raw_len in [0, 1, CHUNK as u32, 1 << 20] {
            assert!(unpack(&zeros, raw_len, buffers.take()).is_err(), "{raw_len}");
        }
        let small = zstd::bulk::compress(&[0; 100], 1).unwrap();
        assert!(unpack(&small, 100, buffers.take()).is_ok());
        let twice = [&small[..], &small].concat();
        for (frame, raw_len) in [(&twice[..], 200), (&twice, 100), (&small, 99), (&small, 101), (&small[..5], 100), (b"", 1), (b"junk", 9)]
        {
            assert!(unpack(frame, raw_len, buffers.take()).is_err(), "{raw_len}");
        }
        for index in 0..small.len() {
            let mut garbled = small.clone();
            garbled[index] ^= 0x55;
            let _ = unpack(&garbled, 100, buffers.take());
        }
    }
}
