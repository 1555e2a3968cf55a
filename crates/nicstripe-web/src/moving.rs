//! Transfer of a file over several links, in either direction: its assignment to them, and its progress.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe::{Event, LinkName, LinkProgress, LinkReport, LinkState, Progress, Report};
use nicstripe_proto::{
    BitRate, ChunkRange,
    deal::{Deal, Turn},
};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    climb::Climb,
    clock::now,
    error::{LinkError, WebError},
};

/// Hears what happens.
pub(crate) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// Transfer of a file over links, with what its streams share.
pub(crate) struct Traffic<F> {
    pub(crate) state: Mutex<Moving<F>>,
    /// Changes when a chunk is stored or becomes free.
    pub(crate) changed: watch::Sender<u64>,
    /// Cancelled when the transfer ends or has failed.
    pub(crate) stop: CancellationToken,
    pub(crate) tell: Tell,
}

/// State of a transfer.
pub(crate) struct Moving<F> {
    pub(crate) deal: Deal,
    pub(crate) links: Vec<LinkNow>,
    pub(crate) error: Option<WebError>,
    /// Bytes that moved over all links, also those in vain.
    pub(crate) moved: u64,
    pub(crate) resumed: u64,
    failovers: u32,
    /// Time of the last sufficient progress, and the bytes moved until then.
    pub(crate) heard: (Instant, u64),
    pub(crate) file: F,
}

pub(crate) struct LinkNow {
    pub(crate) name: LinkName,
    /// Name in messages.
    pub(crate) shown: String,
    pub(crate) state: LinkState,
    pub(crate) cause: Option<LinkError>,
    /// Where the file is for this link; `None` to ask again.
    pub(crate) location: Option<Url>,
    /// True if an answer had the version of the start.
    pub(crate) has_agreed: bool,
    /// Useless answers since the last byte.
    pub(crate) refusals: u32,
    /// True if bytes have moved.
    pub(crate) was_up: bool,
    pub(crate) failures: u32,
    /// Bytes that moved, also those of chunks that another link brought first.
    pub(crate) moved: u64,
    /// Streams that run, and how many should.
    pub(crate) running: usize,
    pub(crate) climb: Climb,
}

impl LinkNow {
    /// Returns the state of a link that has moved nothing.
    pub(crate) fn new(
        interface: &str,
        shown: String,
        remote: Option<IpAddr>,
        climb: Climb,
    ) -> Self {
        Self {
            name: LinkName::new(interface.to_owned(), remote.unwrap_or(UNKNOWN)),
            shown,
            state: LinkState::Connecting,
            cause: None,
            location: None,
            has_agreed: false,
            refusals: 0,
            was_up: false,
            failures: 0,
            moved: 0,
            running: 0,
            climb,
        }
    }

    pub(crate) fn is_left_out(&self) -> bool {
        matches!(self.state, LinkState::LeftOut(_))
    }

    /// Returns what to tell about the state of the link.
    pub(crate) fn event(&self) -> Event {
        Event::Link {
            link: self.name.clone(),
            state: self.state.clone(),
        }
    }
}

impl<F> Moving<F> {
    pub(crate) fn new(deal: Deal, links: Vec<LinkNow>, file: F) -> Self {
        Self {
            resumed: deal.bytes_stored(),
            deal,
            links,
            error: None,
            moved: 0,
            failovers: 0,
            heard: (now(), 0),
            file,
        }
    }

    /// Returns true if a link next to this one moves bytes.
    pub(crate) fn has_others(&self, link: usize) -> bool {
        let at = now();
        self.links.iter().enumerate().any(|(other, now)| {
            other != link && now.state == LinkState::Up && !self.deal.is_suspect(other, at)
        })
    }

    pub(crate) fn causes(&self) -> Vec<(String, LinkError)> {
        let cause = |link: &LinkNow| Some((link.shown.clone(), link.cause.clone()?));
        self.links.iter().filter_map(cause).collect()
    }

    /// Returns true if less than `slowest` bytes a second have moved for so long, which `is_excused` if others
    /// delay them.
    pub(crate) fn is_too_slow(
        &mut self,
        patience: Duration,
        slowest: u64,
        is_excused: bool,
    ) -> bool {
        let (since, moved) = self.heard;
        let time = now() - since;
        let enough = (slowest * time.as_secs().max(1)).max(1);
        if self.moved - moved >= enough || is_excused {
            self.heard = (now(), self.moved);
            return false;
        }
        time >= patience
    }

    /// Returns the progress. The size of a pipe is known at its end only.
    pub(crate) fn progress(&self, size: Option<u64>) -> Progress {
        let now = now();
        let mut progress = Progress::default();
        progress.bytes = self.deal.bytes_stored();
        (progress.size, progress.open) = (size.unwrap_or(progress.bytes), size.is_none());
        progress.resumed = self.resumed;
        for (index, link) in self.links.iter().enumerate() {
            let mut of_link = LinkProgress::new(link.name.clone());
            (of_link.bytes, of_link.rate) = self.deal.of_link(index, now);
            of_link.state = match &link.state {
                LinkState::Up if self.deal.is_suspect(index, now) => LinkState::Suspect,
                state => state.clone(),
            };
            progress.rate = BitRate(progress.rate.0 + of_link.rate.0);
            progress.links.push(of_link);
        }
        progress
    }

    pub(crate) fn report(&self, size: u64) -> Report {
        let mut report = Report::default();
        report.size = size;
        report.wire_bytes = self.moved;
        report.resumed_bytes = self.resumed;
        report.resent_bytes = (self.moved + self.resumed).saturating_sub(size);
        report.failovers = self.failovers;
        for (index, link) in self.links.iter().enumerate() {
            let mut of_link = LinkReport::new(link.name.clone());
            of_link.bytes = self.deal.of_link(index, now()).0;
            of_link.wire_bytes = of_link.bytes;
            of_link.state = link.state.clone();
            of_link.failures = link.failures;
            report.links.push(of_link);
        }
        report
    }
}

impl<F> Traffic<F> {
    pub(crate) fn new(moving: Moving<F>, stop: &CancellationToken, tell: Tell) -> Self {
        Self {
            state: Mutex::new(moving),
            changed: watch::Sender::new(0),
            stop: stop.child_token(),
            tell,
        }
    }

    /// Waits for the next work of a link. Returns `None` if nothing is left, the transfer has ended, or the
    /// link needs fewer streams.
    pub(crate) async fn turn(&self, link: usize) -> Option<ChunkRange> {
        loop {
            let mut changed = self.changed.subscribe();
            if self.stop.is_cancelled() || self.is_too_many(link) {
                return None;
            }
            let turn = self.state.lock().deal.next(link, now());
            let until = match turn {
                Turn::Done => return None,
                Turn::Fetch(run) => return Some(run),
                Turn::Wait(until) => until.unwrap_or_else(|| now() + LONGEST_WAIT),
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_until(until.into()) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// Returns true if a stream of the link is to end because the link needs fewer.
    fn is_too_many(&self, link: usize) -> bool {
        let now = &mut self.state.lock().links[link];
        let is_too_many = now.running > now.climb.streams();
        now.running -= usize::from(is_too_many);
        is_too_many
    }

    /// Notes the end of a run, `unmoved` bytes of which have not moved.
    pub(crate) fn ended(&self, link: usize, run: ChunkRange, unmoved: u64, has_failed: bool) {
        let mut state = self.state.lock();
        state.deal.ended(link, run, unmoved, has_failed, now());
        drop(state);
        self.wake();
    }

    /// Waits until all streams have ended, or the transfer has. `tick` looks after them meanwhile.
    pub(crate) async fn watch(
        &self,
        streams: &mut JoinSet<()>,
        mut tick: impl FnMut(&mut JoinSet<()>),
    ) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                ended = streams.join_next() => if ended.is_none() || self.state.lock().deal.is_done() {
                    return;
                },
                () = self.stop.cancelled() => return,
                _ = ticks.tick() => tick(streams),
            }
        }
    }

    /// Notes bytes that moved.
    pub(crate) fn heard(&self, link: usize, bytes: u64) {
        let mut state = self.state.lock();
        state.deal.heard(link, bytes, now());
        state.moved += bytes;
        let now = &mut state.links[link];
        (now.refusals, now.was_up) = (0, true);
        now.moved += bytes;
        if now.state != LinkState::Up {
            now.state = LinkState::Up;
            let event = now.event();
            drop(state);
            (self.tell)(event);
        }
    }

    /// Notes that a link moves nothing for now.
    pub(crate) fn down(&self, link: usize, error: LinkError) {
        let mut state = self.state.lock();
        let was_up = state.links[link].state == LinkState::Up;
        state.failovers += u32::from(was_up);
        let now = &mut state.links[link];
        now.failures += u32::from(was_up);
        now.state = LinkState::Down(error.to_string());
        now.cause = Some(error);
        let event = now.event();
        drop(state);
        if was_up {
            (self.tell)(event);
        }
    }

    /// Ends the transfer with an error; the first counts.
    pub(crate) fn fail(&self, error: WebError) {
        self.state.lock().error.get_or_insert(error);
        self.stop.cancel();
    }

    /// Lets streams that wait look again.
    pub(crate) fn wake(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Pauses between attempts, each twice as long as the one before.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(250))
    }
}

impl Pauses {
    /// Returns the next pause, which the server may have asked to be longer.
    pub(crate) fn after(&mut self, error: &LinkError) -> Duration {
        let asked = match error {
            LinkError::Later(_, after) => *after,
            _ => Duration::ZERO,
        };
        let pause = self.0.max(asked);
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// Address of a link that never answered.
pub(crate) const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

const TICK: Duration = Duration::from_millis(100);

/// Longest wait for a change, in case one was missed.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);
