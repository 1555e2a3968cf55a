//! Tests with a single flipped bit in any frame, above TLS.
//!
//! On a real connection TLS detects all flips before a frame is decoded. Here TLS seals the flipped
//! bit, which shows that the layers above are safe without it. Damaged data is never written,
//! acknowledged or committed; it is resent. Flips elsewhere cause no panic, and no wrong file
//! is ever committed. A hundred thousand: `NICSTRIPE_SEEDS=100000 cargo test --release -p nicstripe
//! --lib flipped -- --nocapture`

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex},
};

use nicstripe_proto::frame::{DATA_HEADER_LEN, FrameType, HEADER_LEN};
use nicstripe_sim::{End, Rng};
use tokio::time::timeout;

use super::{
    frames::each_frame,
    lab::{Copy, Direction, Lab, in_virtual_time, secs},
    random::seeds,
};

const FLIPS: u64 = 120;

/// Size of the file in bytes: two chunks, the second short.
const SIZE: u64 = (256 << 10) + 1000;

/// Number of frames of a transfer.
const FRAMES: u64 = 12;

/// Flip of one bit in the frame with this index, counted from the start of a transfer.
struct Flip {
    frames_before: u64,
    rng: Rng,
    flipped: Option<FrameType>,
}

impl Flip {
    /// Flips one bit. In data frames, half of the flips hit the header.
    fn on_frame(&mut self, kind: FrameType, frame: &mut [u8]) {
        let Some(before) = self.frames_before.checked_sub(1) else {
            if self.flipped.is_none() {
                let header = HEADER_LEN + DATA_HEADER_LEN;
                let in_header = kind == FrameType::Data && self.rng.below(2) == 0;
                let among = if in_header { header } else { frame.len() };
                frame[self.rng.below(among as u64) as usize] ^= 1 << self.rng.below(8);
                self.flipped = Some(kind);
            }
            return;
        };
        self.frames_before = before;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Arrived,
    Failed,
    Stuck,
}

#[test]
fn a_flipped_bit_never_makes_a_wrong_file_and_data_come_again() {
    let mut tally: BTreeMap<_, u64> = BTreeMap::new();
    let mut seeds = seeds(FLIPS).peekable();
    while seeds.peek().is_some() {
        in_virtual_time(async {
            let lab = &mut Lab::new(1, &[1000, 1000]).await;
            for seed in seeds.by_ref() {
                println!("seed {seed}");
                let (kind, verdict) = run(lab, seed).await;
                *tally
                    .entry((kind.map(|kind| kind as u8), verdict))
                    .or_default() += 1;
                // A session may end, or not recover, from what an honest peer does not send.
                if verdict != Verdict::Arrived {
                    break;
                }
            }
        });
    }
    println!("{tally:?}");
}

/// Copies a file while a bit is flipped. Returns the type of the flipped frame and the result.
async fn run(lab: &mut Lab, seed: u64) -> (Option<FrameType>, Verdict) {
    let mut rng = Rng::new(seed);
    let direction = Direction::BOTH[rng.below(2) as usize];
    let flip = Arc::new(Mutex::new(Flip {
        frames_before: rng.below(FRAMES),
        rng,
        flipped: None,
    }));
    let flipping = flip.clone();
    lab.links.network.intercept(move |_, _, frames| {
        let mut flip = flipping.lock().unwrap();
        each_frame(frames, |kind, frame| flip.on_frame(kind, frame));
    });
    let copy = lab.copy(direction, SIZE).await;
    let verdict = end(copy).await;
    let kind = flip.lock().unwrap().flipped;
    if kind == Some(FrameType::Data) {
        assert_eq!(verdict, Verdict::Arrived, "damaged data was not sent again");
    }
    let sent = fs::read(lab.file(direction.sender())).unwrap();
    if verdict == Verdict::Arrived {
        assert_eq!(visible(lab, direction.sender().other()).len(), 1);
    }
    for end in End::BOTH {
        let contents = visible(lab, end);
        assert!(
            contents.iter().all(|content| *content == sent),
            "a wrong file is committed"
        );
        let names = fs::read_dir(lab.folder_of(end)).unwrap();
        names.for_each(|name| fs::remove_file(name.unwrap().path()).unwrap());
    }
    (kind, verdict)
}

async fn end(copy: Copy) -> Verdict {
    match timeout(secs(10), copy.ended).await {
        Ok(Ok(Ok(_))) => Verdict::Arrived,
        Ok(Ok(Err(_))) => Verdict::Failed,
        Ok(Err(_)) => panic!("the session ended without a word"),
        Err(_) => Verdict::Stuck,
    }
}

/// Returns the contents of the files at this end, except hidden ones.
fn visible(lab: &Lab, end: End) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(lab.folder_of(end))
        .unwrap()
        .map(Result::unwrap);
    let named = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    named.map(|entry| fs::read(entry.path()).unwrap()).collect()
}
