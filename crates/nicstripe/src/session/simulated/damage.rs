//! Tests with messages that are lost with their link, and with links that damage chunks.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use nicstripe_proto::{ChunkId, FailCode, Message, PathId, Session};
use nicstripe_sim::{End, Rng};
use tokio::time::sleep;

use super::{
    files,
    frames::{chunk_in, each_frame, message_in},
    lab::{Direction, Lab, Links, both_ways, ideal, in_virtual_time, mib, ms, secs},
};
use crate::report::error::Error;

/// Size of the file in bytes: 6 MiB take 0.5 s over one link of 100 Mbit/s.
const SIZE: u64 = mib(6);

const OVER_ONE_LINK: Duration = ms(503);

type Kind = (&'static str, fn(&Message) -> bool);

const PUT: Kind = ("put", |message| matches!(message, Message::Put(_)));
const GET: Kind = ("get", |message| matches!(message, Message::Get(_)));
const OFFER: Kind = ("offer", |message| matches!(message, Message::Offer(_)));
const ACCEPT: Kind = ("accept", |message| matches!(message, Message::Accept(_)));
const COMPLETE: Kind = ("complete", |message| {
    matches!(message, Message::Complete(_))
});
const COMMITTED: Kind = ("committed", |message| {
    matches!(message, Message::Committed(_))
});
const FAIL: Kind = ("fail", |message| matches!(message, Message::Fail(_)));
const VALUES: Kind = ("values", |message| matches!(message, Message::Values(_)));
const KEEP: Kind = ("keep", |message| matches!(message, Message::Keep(_)));
const HOLES: Kind = ("holes", |message| matches!(message, Message::Holes(_)));

/// Messages of a transfer, with the end that sends them.
const MESSAGES: [(Direction, End, Kind); 9] = [
    (Direction::Put, End::A, PUT),
    (Direction::Put, End::B, ACCEPT),
    (Direction::Put, End::A, COMPLETE),
    (Direction::Put, End::B, COMMITTED),
    (Direction::Get, End::A, GET),
    (Direction::Get, End::B, OFFER),
    (Direction::Get, End::A, ACCEPT),
    (Direction::Get, End::B, COMPLETE),
    (Direction::Get, End::A, COMMITTED),
];

/// Cuts the link over which `from` sends its first message of this kind, just before it does.
/// Returns a flag that is true afterwards.
fn cut_before(lab: &Lab, from: End, (_, is_it): Kind) -> Arc<AtomicBool> {
    let (is_cut, network) = (Arc::new(AtomicBool::new(false)), lab.links.network.clone());
    let done = is_cut.clone();
    lab.links.network.intercept(move |link, end, frames| {
        each_frame(frames, |_, frame| {
            let it = end == from && message_in(frame).is_some_and(|message| is_it(&message));
            if it && !done.swap(true, Ordering::Relaxed) {
                network.apply(|net| net.cut(link));
            }
        });
    });
    is_cut
}

#[test]
fn a_control_message_whose_link_is_cut_arrives_over_another() {
    for (direction, from, kind) in MESSAGES {
        in_virtual_time(async move {
            let mut lab = Lab::new(3, &[100, 100]).await;
            let is_cut = cut_before(&lab, from, kind);
            lab.deliver(direction, SIZE, secs(60)).await;
            let (name, took) = (kind.0, lab.now());
            assert!(is_cut.load(Ordering::Relaxed), "{direction:?}: no {name}");
            assert!(
                took <= OVER_ONE_LINK + ms(500),
                "{direction:?} {name}: {took:?}"
            );
        });
    }
}

#[test]
fn holes_and_what_the_receiver_has_are_known_although_the_link_is_cut_under_the_message() {
    for direction in Direction::BOTH {
        let (sender, receiver) = (direction.sender(), direction.sender().other());
        for (from, kind) in [(receiver, VALUES), (sender, KEEP), (sender, HOLES)] {
            in_virtual_time(async move {
                let mut lab = files::with_delta(&[100, 100]).await;
                let is_cut = cut_before(&lab, from, kind);
                // Of 25 MiB, 30 chunks are sent.
                files::copy(&mut lab, direction, (100, &[(5, 30)]), (90, 3)).await;
                let (name, took) = (kind.0, lab.now());
                assert!(is_cut.load(Ordering::Relaxed), "{direction:?}: no {name}");
                assert!(took < secs(2), "{direction:?} {name}: {took:?}");
            });
        }
    }
}

#[test]
fn a_failure_whose_link_is_cut_is_known_at_both_ends() {
    both_ways(async move |direction| {
        let mut lab = Lab::new(3, &[100, 100]).await;
        let receiver = direction.sender().other();
        let is_cut = cut_before(&lab, receiver, FAIL);
        lab.disks[receiver as usize].set_free(Some(SIZE / 2));
        let copy = lab.copy(direction, SIZE).await;
        let ended = copy.end(secs(60)).await;
        let code = ended.as_ref().err().and_then(Error::fail_code);
        assert_eq!(code, Some(FailCode::NoSpace), "{ended:?}");
        assert!(is_cut.load(Ordering::Relaxed));
        sleep(secs(1)).await;
        let at_daemon = lab.meters.read().transfers_ended;
        let ended: Vec<_> = at_daemon.iter().map(|((_, how), n)| (*how, *n)).collect();
        assert_eq!(ended, [("no_space", 1)], "{direction:?}");
    });
}

/// Chunks that arrive damaged: some once, others while a link is bad.
pub(super) struct Damage {
    once: BTreeSet<ChunkId>,
    windows: Vec<Window>,
    rng: Rng,
}

struct Window {
    link: usize,
    time: Range<Duration>,
    /// One chunk out of this number is damaged.
    one_in: u64,
}

impl Damage {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            once: BTreeSet::new(),
            windows: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    /// Damages a chunk when it is sent first.
    pub(super) fn once(&mut self, chunk: u64) {
        self.once.insert(ChunkId(chunk));
    }

    /// Damages one chunk out of `one_in` on a link, for some time.
    pub(super) fn during(&mut self, link: usize, time: Range<Duration>, one_in: u64) {
        self.windows.push(Window { link, time, one_in });
    }

    /// Damages what is sent from now on. Returns the number of chunks damaged so far.
    pub(super) fn begin(mut self, links: &Links) -> Arc<AtomicU64> {
        let (damaged, network) = (Arc::new(AtomicU64::new(0)), links.network.clone());
        let count = damaged.clone();
        links.network.intercept(move |link, _, frames| {
            each_frame(frames, |_, frame| {
                let Some(chunk) = chunk_in(frame) else { return };
                let (now, rng) = (network.now(), &mut self.rng);
                let mut windows = self.windows.iter();
                let is_bad = windows.any(|window| {
                    let is_now = window.link == link.index() && window.time.contains(&now);
                    is_now && rng.below(window.one_in) == 0
                });
                if self.once.remove(&chunk) || is_bad {
                    *frame.last_mut().unwrap() ^= 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        damaged
    }
}

#[test]
fn a_damaged_chunk_is_counted_and_sent_again() {
    for direction in Direction::BOTH {
        for rates in [&[100, 100][..], &[100]] {
            in_virtual_time(async move {
                let mut lab = Lab::new(3, rates).await;
                let mut damage = Damage::new(0);
                for chunk in [0, 7, 15, 23] {
                    damage.once(chunk);
                }
                let damaged = damage.begin(&lab.links);
                let tally = lab.deliver(direction, SIZE, secs(60)).await;
                assert_eq!(damaged.load(Ordering::Relaxed), 4);
                // The link is given up, with all that is in flight on it.
                assert!((1..=4).contains(&tally.failovers), "{}", tally.failovers);
                if direction == Direction::Put {
                    assert!(tally.stats.repeated_bytes >= 4 << 18);
                    assert_eq!(lab.meters.read().corrupt_chunks, 4);
                }
            });
        }
    }
}

/// Returns how often an end has closed the path over each of two links because of damaged data.
async fn damages(lab: &Lab, end: End) -> [u32; 2] {
    let look = |session: &Session| [0, 1].map(|id| session.path(PathId(id)).unwrap().damages);
    lab.inspect(end, look).await
}

#[test]
fn a_link_that_damages_what_it_carries_gets_less_and_less_of_it_and_is_named() {
    both_ways(async move |direction| {
        let size = mib(32);
        let mut lab = Lab::new(3, &[25, 25]).await;
        let mut damage = Damage::new(0);
        damage.during(0, Duration::ZERO..secs(60), 10);
        let damaged = damage.begin(&lab.links);
        lab.deliver(direction, size, secs(120)).await;
        let took = lab.now();
        let [bad, good] = damages(&lab, direction.sender().other()).await;
        println!("{direction:?}: {took:?}, {bad} times, {damaged:?} chunks");
        // At the start, at the first reuse, and after 2, 4 and 8 s.
        assert!((3..=5).contains(&bad), "{bad}");
        assert_eq!(good, 0);
        let ideal = ideal(25, size);
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    });
}

#[test]
fn a_link_that_damaged_one_chunk_is_used_again_at_once() {
    both_ways(async move |direction| {
        let size = mib(32);
        let mut lab = Lab::new(3, &[100, 100]).await;
        let mut damage = Damage::new(0);
        damage.once(24);
        damage.begin(&lab.links);
        lab.deliver(direction, size, secs(60)).await;
        let took = lab.now();
        let damages = damages(&lab, direction.sender().other()).await;
        assert_eq!(damages.iter().sum::<u32>(), 1);
        // The path is reconnected after 250 ms.
        assert!(took <= ideal(200, size) + ms(400), "{took:?}");
    });
}

#[test]
fn the_only_link_is_used_whatever_it_damages() {
    both_ways(async move |direction| {
        let mut lab = Lab::new(3, &[100]).await;
        let mut damage = Damage::new(0);
        damage.during(0, Duration::ZERO..secs(60), 10);
        let damaged = damage.begin(&lab.links);
        lab.deliver(direction, mib(16), secs(60)).await;
        let (took, damaged) = (lab.now(), damaged.load(Ordering::Relaxed) as u32);
        println!("{direction:?}: {took:?}, {damaged} chunks");
        assert!(damaged >= 3, "{damaged}");
        // Each damaged chunk costs a reconnection, and what was in flight behind it.
        assert!(took <= ideal(100, mib(16)) + damaged * ms(300), "{took:?}");
    });
}

#[test]
fn what_was_sent_twice_is_counted_alike_at_both_ends() {
    both_ways(async move |direction| {
        let mut lab = Lab::new(1, &[200, 10]).await;
        let tally = lab.deliver(direction, mib(16), secs(60)).await;
        let ours = tally.stats;
        assert_eq!(ours.delivered_bytes, mib(16));
        assert_eq!(ours.by_path.values().sum::<u64>(), mib(16));
        sleep(secs(2)).await;
        let daemon = lab.meters.read();
        let [sent, received] = match direction {
            Direction::Put => [ours.repeated_bytes, daemon.resent_bytes],
            Direction::Get => [daemon.resent_bytes, ours.repeated_bytes],
        };
        assert!(sent > 0);
        assert!(received <= sent, "{received} of {sent}");
    });
}
