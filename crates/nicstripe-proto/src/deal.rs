//! Assignment of the bytes of a file to links that are asked for them, by rate: connections to a web server,
//! or daemons that have the same file.
//!
//! Links pull **runs** of chunks, each one request. A run takes a link half a second at its rate, so
//! that requests are rare and little is lost with a link. At the end an idle link fetches chunks of
//! others again ([`Striper::hedge`]): the newest, which their link would fetch last.

use std::time::{Duration, Instant};

use crate::{
    extent::{ChunkId, ChunkRange, ChunkSet},
    grid::Grid,
    id::PathId,
    path::stripe::{PathLoad, Striper},
    units::BitRate,
};

/// Division of a file into pieces of one size: chunks, or parts of an upload. Their numbers are those of
/// chunks.
#[derive(Debug, Clone, Copy)]
pub struct Pieces {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of each piece but the last.
    pub each: u64,
}

impl Pieces {
    /// Returns the number of pieces.
    pub fn count(self) -> u64 {
        self.size.div_ceil(self.each)
    }

    /// Returns the bytes of a run of pieces.
    pub fn len(self, run: ChunkRange) -> u64 {
        let at = |piece: u64| piece.saturating_mul(self.each).min(self.size);
        at(run.first.0.saturating_add(run.count)) - at(run.first.0)
    }
}

impl From<Grid> for Pieces {
    fn from(grid: Grid) -> Self {
        Self {
            size: grid.size,
            each: grid.chunk_size.bytes(),
        }
    }
}

/// Bytes of a file that are to be moved, and who moves them.
#[derive(Debug)]
pub struct Deal {
    pieces: Pieces,
    /// Most bytes of a run.
    longest: u64,
    striper: Striper,
    links: Vec<Load>,
    stored: ChunkSet,
    /// First chunk that has no room yet.
    limit: ChunkId,
}

/// State of a link.
#[derive(Debug, Clone, Default)]
struct Load {
    rate: Rate,
    /// Bytes that are asked for and have not arrived.
    in_flight: u64,
    /// Time of the last byte, or of the first request since the link was idle; `None` while idle.
    heard: Option<Instant>,
    requests: usize,
    /// True after a failure: the next request is a small one.
    failed: bool,
    /// Bytes of chunks that this link brought first.
    brought: u64,
}

/// Next work of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Ask for these chunks.
    Fetch(ChunkRange),
    /// Nothing to do until the state changes, at the latest at this time.
    Wait(Option<Instant>),
    /// Every chunk is stored.
    Done,
}

impl Deal {
    /// Deals the pieces that are not in `have` to this many links.
    pub fn new(pieces: impl Into<Pieces>, have: ChunkSet, links: usize) -> Self {
        let pieces = pieces.into();
        let all = ChunkRange::new(ChunkId(0), pieces.count());
        let missing = have.gaps(all).collect();
        Self {
            pieces,
            longest: LONGEST_RUN,
            striper: Striper::new(missing),
            links: vec![Load::default(); links],
            stored: have,
            limit: ChunkId(pieces.count()),
        }
    }

    /// Deals one piece at a time.
    pub fn one_by_one(mut self) -> Self {
        self.longest = self.pieces.each;
        self
    }

    /// Deals no chunk from this one on until there is room for it.
    pub fn limit(&mut self, chunk: ChunkId) {
        self.limit = chunk;
    }

    /// Notes the end of an input of unknown length: no piece from this one on exists.
    pub fn end_at(&mut self, piece: ChunkId) {
        let rest = self.pieces.count().saturating_sub(piece.0);
        self.striper.acknowledge(ChunkRange::new(piece, rest));
    }

    /// Returns the next work of a link.
    pub fn next(&mut self, link: usize, now: Instant) -> Turn {
        if self.is_done() {
            return Turn::Done;
        }
        let room = self
            .striper
            .first_queued()
            .map_or(0, |first| self.limit.0.saturating_sub(first.0));
        let most = self.run_length(link).min(room);
        if most > 0
            && let Some(run) = self.striper.assign(path(link), most, now)
        {
            return self.begin(link, run, now);
        }
        if self.links[link].failed {
            return Turn::Wait(None);
        }
        let loads = self.loads(now);
        let load = |path: PathId| loads[usize::from(path.0)];
        let chunk_bytes = self.pieces.each;
        let hedged = self
            .striper
            .hedge(path(link), chunk_bytes, Duration::ZERO, load, now);
        if let Some((chunk, _)) = hedged {
            return self.begin(link, chunk.into(), now);
        }
        let late = self.striper.hedge_at(path(link), load);
        let suspect = self
            .links
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != link);
        let suspect = suspect
            .filter_map(|(_, load)| Some(load.heard? + SUSPECT_AFTER))
            .min();
        Turn::Wait(
            [late, suspect]
                .into_iter()
                .flatten()
                .filter(|at| *at > now)
                .min(),
        )
    }

    /// Notes bytes that arrived over a link.
    pub fn heard(&mut self, link: usize, bytes: u64, now: Instant) {
        let load = &mut self.links[link];
        load.in_flight = load.in_flight.saturating_sub(bytes);
        load.heard = Some(now);
        load.failed = false;
        load.rate.add(bytes, now);
    }

    /// Returns true if a chunk is still to come over this link.
    pub fn wants(&self, link: usize, chunk: ChunkId) -> bool {
        self.striper.is_carried_by(chunk, path(link))
    }

    /// Notes that a chunk is stored. Returns false if another link was faster.
    pub fn stored(&mut self, link: usize, chunk: ChunkId) -> bool {
        let was_first = self.stored.insert(chunk) > 0;
        if was_first {
            self.striper.acknowledge(chunk.into());
            self.links[link].brought += self.pieces.len(chunk.into());
        }
        was_first
    }

    /// Ends a request. `left` are its chunks that did not arrive, which return to the queue;
    /// `unread` the bytes that it did not bring.
    pub fn ended(
        &mut self,
        link: usize,
        left: ChunkRange,
        unread: u64,
        has_failed: bool,
        now: Instant,
    ) {
        for chunk in left.chunks() {
            self.striper.release_chunk(chunk, path(link));
        }
        let load = &mut self.links[link];
        load.in_flight = load.in_flight.saturating_sub(unread);
        load.requests = load.requests.saturating_sub(1);
        load.failed |= has_failed;
        if load.requests == 0 {
            (load.heard, load.in_flight) = (None, 0);
            load.rate.pause(now);
        }
    }

    /// Returns true if nothing has arrived over the link for too long, or it has failed.
    pub fn is_suspect(&self, link: usize, now: Instant) -> bool {
        let load = &self.links[link];
        load.failed
            || load
                .heard
                .is_some_and(|heard| now.saturating_duration_since(heard) >= SUSPECT_AFTER)
    }

    /// Returns true if there are chunks that no link fetches yet.
    pub fn has_more(&self) -> bool {
        self.striper.queued() > 0
    }

    /// Returns true if every piece is stored.
    pub fn is_done(&self) -> bool {
        self.striper.is_done()
    }

    /// Returns the number of pieces before the first that is not stored.
    pub fn complete_until(&self) -> u64 {
        let all = ChunkRange::new(ChunkId(0), self.pieces.count());
        let gap = self.stored.gaps(all).next();
        gap.map_or(self.pieces.count(), |gap| gap.first.0)
    }

    /// Returns the number of bytes that are stored.
    pub fn bytes_stored(&self) -> u64 {
        self.stored
            .ranges()
            .map(|range| self.pieces.len(range))
            .sum()
    }

    /// Returns the bytes that a link brought first, and its rate now.
    pub fn of_link(&self, link: usize, now: Instant) -> (u64, BitRate) {
        let load = &self.links[link];
        let is_moving = load.requests > 0 && !self.is_suspect(link, now);
        (
            load.brought,
            load.rate
                .known()
                .filter(|_| is_moving)
                .unwrap_or(BitRate::ZERO),
        )
    }

    fn begin(&mut self, link: usize, run: ChunkRange, now: Instant) -> Turn {
        let bytes = self.pieces.len(run);
        let load = &mut self.links[link];
        load.in_flight += bytes;
        load.requests += 1;
        if load.heard.is_none() {
            load.heard = Some(now);
            load.rate.resume(now);
        }
        Turn::Fetch(run)
    }

    /// Returns the number of chunks of the next run of a link: half a second, and at most an equal
    /// share of what is left.
    fn run_length(&self, link: usize) -> u64 {
        let load = &self.links[link];
        if load.failed {
            return 1;
        }
        let chunk = self.pieces.each;
        let by_rate = load
            .rate
            .known()
            .map_or(FIRST_RUN, |rate| rate.bytes_in(RUN_TIME))
            / chunk;
        // Of what has room, which for a stream is little.
        let room = self.limit.0.saturating_sub(self.stored.len());
        let share = self.striper.queued().min(room) / (2 * self.links.len().max(1) as u64);
        by_rate.min(self.longest / chunk).min(share).max(1)
    }

    fn loads(&self, now: Instant) -> Vec<PathLoad> {
        let load = |(index, load): (usize, &Load)| PathLoad {
            in_flight: load.in_flight,
            rate: Some(load.rate.known().unwrap_or(UNMEASURED)),
            suspect: self.is_suspect(index, now),
        };
        self.links.iter().enumerate().map(load).collect()
    }
}

/// Rate of a link while it is asked for bytes, averaged over about a second.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    average: Option<f64>,
    /// Bytes of the present measurement, and the time that it has taken before `since`.
    bytes: u64,
    taken: Duration,
    /// Time from which it takes; `None` while the link is idle.
    since: Option<Instant>,
}

impl Rate {
    fn add(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        let taken = self.taken
            + self
                .since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if taken < WINDOW {
            return;
        }
        let measured = self.bytes as f64 * 8.0 / taken.as_secs_f64();
        self.average = Some(
            self.average
                .map_or(measured, |average| average + NEWEST * (measured - average)),
        );
        (self.bytes, self.taken) = (0, Duration::ZERO);
        self.since = self.since.map(|_| now);
    }

    fn resume(&mut self, now: Instant) {
        self.since = Some(now);
    }

    fn pause(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.taken += now.saturating_duration_since(since);
        }
    }

    fn known(&self) -> Option<BitRate> {
        self.average.map(|average| BitRate(average as u64))
    }
}

fn path(link: usize) -> PathId {
    PathId(link as u16)
}

/// Duration of a run at the link's rate. A request costs a round trip, which the link's other
/// requests fill; a run that is lost with its link is fetched again.
const RUN_TIME: Duration = Duration::from_millis(500);

/// Bytes of a run over a link of unknown rate.
const FIRST_RUN: u64 = 4 << 20;

/// Most bytes of a run: half a second at 1 Gbit/s.
const LONGEST_RUN: u64 = 64 << 20;

/// Rate by which a first request is late: a server far away takes several round trips to begin.
const UNMEASURED: BitRate = BitRate::from_mbit(10);

/// Silence after which others fetch the chunks of a link.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(1000);

/// Least time over which a rate is measured.
const WINDOW: Duration = Duration::from_millis(200);

/// Weight of the newest measurement.
const NEWEST: f64 = 0.4;

#[cfg(test)]
mod tests {
    use crate::grid::ChunkSize;

    use super::*;

    /// Links in virtual time: bytes per second of each, and when it dies.
    struct Lab {
        deal: Deal,
        now: Instant,
        links: Vec<(f64, Option<Duration>)>,
        running: Vec<Vec<Request>>,
        fetched: u64,
    }

    struct Request {
        run: ChunkRange,
        /// Bytes that arrived.
        arrived: f64,
    }

    const CHUNK: u64 = 1 << 20;

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    impl Lab {
        fn new(chunks: u64, links: &[(f64, Option<Duration>)]) -> Self {
            let grid = Grid::new(chunks * CHUNK, ChunkSize::from_log2(20).unwrap());
            Self {
                deal: Deal::new(grid, ChunkSet::new(), links.len()),
                now: origin(),
                links: links.to_vec(),
                running: links.iter().map(|_| Vec::new()).collect(),
                fetched: 0,
            }
        }

        /// Runs until everything is stored. Returns the time that it took.
        fn run(&mut self) -> Duration {
            let (start, step) = (self.now, Duration::from_micros(500));
            while !self.deal.is_done() {
                let at = self.now - start;
                assert!(
                    at < Duration::from_secs(3600),
                    "it never ends: {:?}",
                    self.deal
                );
                for link in 0..self.links.len() {
                    self.ask(link);
                    let (rate, dies) = self.links[link];
                    if dies.is_none_or(|dies| at < dies) {
                        self.move_bytes(link, rate * step.as_secs_f64());
                    }
                }
                self.now += step;
            }
            self.now - start
        }

        fn ask(&mut self, link: usize) {
            while self.running[link].len() < 2 {
                match self.deal.next(link, self.now) {
                    Turn::Fetch(run) => self.running[link].push(Request { run, arrived: 0.0 }),
                    Turn::Wait(_) | Turn::Done => return,
                }
            }
        }

        fn move_bytes(&mut self, link: usize, bytes: f64) {
            let each = bytes / self.running[link].len().max(1) as f64;
            let mut kept = Vec::new();
            for mut request in std::mem::take(&mut self.running[link]) {
                let before = request.arrived as u64 / CHUNK;
                request.arrived = (request.arrived + each).min((request.run.count * CHUNK) as f64);
                self.deal.heard(link, each as u64, self.now);
                for index in before..request.arrived as u64 / CHUNK {
                    self.deal.stored(link, ChunkId(request.run.first.0 + index));
                    self.fetched += CHUNK;
                }
                let arrived = request.arrived as u64 / CHUNK;
                let left = ChunkRange::new(
                    ChunkId(request.run.first.0 + arrived),
                    request.run.count - arrived,
                );
                match left.chunks().any(|chunk| self.deal.wants(link, chunk)) {
                    true => kept.push(request),
                    false => {
                        let unread = request.run.count * CHUNK - request.arrived as u64;
                        self.deal.ended(link, left, unread, false, self.now);
                    }
                }
            }
            self.running[link] = kept;
        }
    }

    const GIGABIT: f64 = 117e6;

    #[test]
    fn equal_links_carry_equal_shares_to_the_end() {
        let mut lab = Lab::new(2048, &[(GIGABIT, None), (GIGABIT, None)]);
        let took = lab.run().as_secs_f64();
        let ideal = 2048.0 * CHUNK as f64 / (2.0 * GIGABIT);
        assert!(took < ideal * 1.02, "{took} s, ideal {ideal} s");
        assert!(
            lab.fetched < 2048 * CHUNK * 102 / 100,
            "{} bytes",
            lab.fetched
        );
    }

    #[test]
    fn a_link_fifty_times_slower_costs_nothing() {
        let mut lab = Lab::new(1024, &[(GIGABIT, None), (GIGABIT / 50.0, None)]);
        let took = lab.run().as_secs_f64();
        let ideal = 1024.0 * CHUNK as f64 / (GIGABIT * 1.02);
        assert!(took < ideal * 1.03, "{took} s, ideal {ideal} s");
    }

    #[test]
    fn a_link_that_dies_costs_its_share_and_a_second() {
        for dies in [0, 300, 1000, 2500, 4000, 4300, 4550] {
            let dies = Duration::from_millis(dies);
            let mut lab = Lab::new(1024, &[(GIGABIT, None), (GIGABIT, Some(dies))]);
            let took = lab.run().as_secs_f64();
            let total = 1024.0 * CHUNK as f64;
            let by_both = (GIGABIT * 2.0 * dies.as_secs_f64()).min(total);
            let ideal = dies.as_secs_f64() + (total - by_both) / GIGABIT;
            assert!(took < ideal + 1.5, "{dies:?}: {took} s, ideal {ideal} s");
        }
    }

    #[test]
    fn what_is_there_is_not_fetched() {
        let mut lab = Lab::new(16, &[(GIGABIT, None)]);
        let have: ChunkSet = [ChunkRange::new(ChunkId(3), 10)].into_iter().collect();
        lab.deal = Deal::new(lab.deal.pieces, have, 1);
        assert_eq!(lab.deal.bytes_stored(), 10 * CHUNK);
        lab.run();
        assert_eq!(lab.fetched, 6 * CHUNK);
        assert_eq!(lab.deal.bytes_stored(), 16 * CHUNK);
        let full: ChunkSet = [ChunkRange::new(ChunkId(0), 16)].into_iter().collect();
        assert_eq!(
            Deal::new(lab.deal.pieces, full, 1).next(0, lab.now),
            Turn::Done
        );
    }

    #[test]
    fn chunks_of_a_failed_request_go_to_another_link_and_the_failed_one_begins_small() {
        let mut lab = Lab::new(64, &[(GIGABIT, None), (GIGABIT, None)]);
        let Turn::Fetch(run) = lab.deal.next(0, lab.now) else {
            panic!()
        };
        assert!(run.count > 1);
        lab.deal.ended(0, run, run.count * CHUNK, true, lab.now);
        let Turn::Fetch(again) = lab.deal.next(0, lab.now) else {
            panic!()
        };
        assert_eq!(again, ChunkRange::new(run.first, 1));
        lab.deal.ended(0, again, CHUNK, true, lab.now);
        lab.links[0].1 = Some(Duration::ZERO);
        lab.run();
        assert_eq!(lab.deal.bytes_stored(), 64 * CHUNK);
    }

    #[test]
    fn an_idle_link_waits_for_what_may_become_late() {
        let mut lab = Lab::new(1, &[(GIGABIT, None), (GIGABIT, None)]);
        assert!(matches!(lab.deal.next(0, lab.now), Turn::Fetch(_)));
        let Turn::Wait(Some(at)) = lab.deal.next(1, lab.now) else {
            panic!()
        };
        assert!(at > lab.now && at <= lab.now + SUSPECT_AFTER);
        assert!(matches!(lab.deal.next(1, at), Turn::Fetch(_)));
    }
}
