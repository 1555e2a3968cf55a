//! Shared state of the streams of a fetch.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    ops::ControlFlow,
    sync::Arc,
    time::Instant,
};

use nicstripe::{Event, FileError, LinkName, LinkProgress, LinkState, Progress};
use nicstripe_proto::{
    BitRate, ChunkId, ChunkRange, ChunkSet, Grid, HashTree, Subtree, deal::Deal,
    hash_tree::ChainingValue,
};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    answer::Version,
    ask::{Found, Link, other_range},
    climb::Climb,
    clock::now,
    error::{Breach, LinkError, WebError},
    target::Target,
    url::WebUrl,
};

/// Hears what happens.
pub(crate) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// A fetch in parts.
pub(crate) struct Shared {
    /// The first URL.
    pub(crate) url: WebUrl,
    pub(crate) links: Vec<Link>,
    pub(crate) grid: Grid,
    pub(crate) target: Target,
    pub(crate) state: Mutex<State>,
    /// Changes when a chunk is stored or becomes free.
    pub(crate) changed: watch::Sender<u64>,
    /// Cancelled when the fetch ends or has failed.
    pub(crate) stop: CancellationToken,
    pub(crate) tell: Tell,
}

pub(crate) struct State {
    pub(crate) deal: Deal,
    pub(crate) tree: HashTree,
    /// Chunks that are written and not yet recorded, and their bytes.
    pub(crate) unsynced: (Vec<Subtree>, u64),
    pub(crate) links: Vec<LinkNow>,
    /// Version at each URL; `None` while no link has an answer.
    pub(crate) versions: Vec<Option<Version>>,
    /// Value of each chunk and the URL that brought it, if there are several.
    pub(crate) brought: Vec<(ChunkId, usize, ChainingValue)>,
    pub(crate) error: Option<WebError>,
    /// Bytes that arrived over all links.
    pub(crate) received: u64,
    pub(crate) resumed: u64,
    pub(crate) failovers: u32,
    /// Chunks that are being written, so that no two links write one.
    pub(crate) writing: ChunkSet,
    /// When enough had arrived last, and the bytes received until then.
    pub(crate) heard: (Instant, u64),
}

/// A link as it is now.
pub(crate) struct LinkNow {
    pub(crate) name: LinkName,
    /// Name in messages.
    shown: String,
    pub(crate) state: LinkState,
    pub(crate) cause: Option<LinkError>,
    /// Where the file is for this link; `None` to ask again.
    location: Option<Url>,
    /// True if an answer had the version of the start.
    has_agreed: bool,
    /// Useless answers since the last byte.
    refusals: u32,
    /// True if bytes have arrived.
    was_up: bool,
    pub(crate) failures: u32,
    /// Bytes that arrived, also those of chunks that another link brought first.
    pub(crate) received: u64,
    /// Streams that run, and how many should.
    pub(crate) running: usize,
    pub(crate) climb: Climb,
}

impl LinkNow {
    /// Returns the state of a link that has answered, failed, or not yet done either.
    pub(crate) fn of(link: &Link, found: Option<&Result<Found, LinkError>>, climb: Climb) -> Self {
        let answer = found.and_then(|found| found.as_ref().ok());
        let cause = found.and_then(|found| found.as_ref().err()).cloned();
        let remote = answer.and_then(|found| found.remote);
        Self {
            name: LinkName::new(link.interface.clone(), remote.unwrap_or(UNKNOWN)),
            shown: link.shown(),
            state: match &cause {
                None => LinkState::Connecting,
                Some(cause) if cause.is_final() => LinkState::LeftOut(cause.to_string()),
                Some(cause) => LinkState::Down(cause.to_string()),
            },
            cause,
            location: answer.map(|found| found.location.clone()),
            has_agreed: answer.is_some(),
            refusals: 0,
            was_up: false,
            failures: 0,
            received: 0,
            running: 0,
            climb,
        }
    }

    pub(crate) fn is_left_out(&self) -> bool {
        matches!(self.state, LinkState::LeftOut(_))
    }

    /// Returns the version of the last answer, if it was another one than that of the start.
    fn found_other_version(&self) -> Option<&str> {
        match &self.cause {
            Some(LinkError::Breach(Breach::OtherVersion(found))) => Some(found),
            _ => None,
        }
    }
}

impl State {
    /// Notes a chunk that is stored and may be recorded.
    pub(crate) fn keep(&mut self, subtree: Subtree, bytes: u64) {
        // A chunk is stored once.
        let _ = self.tree.insert(subtree);
        self.unsynced.0.push(subtree);
        self.unsynced.1 += bytes;
    }

    /// Returns true if a link beside this one brings bytes.
    fn has_others(&self, link: usize) -> bool {
        let at = now();
        self.links.iter().enumerate().any(|(other, now)| {
            other != link && now.state == LinkState::Up && !self.deal.is_suspect(other, at)
        })
    }

    /// Returns each link with its last error.
    pub(crate) fn causes(&self) -> Vec<(String, LinkError)> {
        let cause = |link: &LinkNow| Some((link.shown.clone(), link.cause.clone()?));
        self.links.iter().filter_map(cause).collect()
    }

    pub(crate) fn progress(&self, size: u64) -> Progress {
        let now = now();
        let mut progress = Progress::default();
        progress.size = size;
        progress.resumed = self.resumed;
        progress.bytes = self.deal.bytes_stored();
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
}

impl Shared {
    /// Returns where the file is for a link, and its version there. Asks the server if that is unknown.
    pub(crate) async fn location(&self, link: usize) -> Result<(Url, Version), LinkError> {
        let of = &self.links[link];
        let known = {
            let state = self.state.lock();
            let location = state.links[link].location.clone();
            location.zip(state.versions[of.source].clone())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let found = of.asked.find(of).await?;
        let mut state = self.state.lock();
        let version = state.versions[of.source].get_or_insert_with(|| found.version.clone());
        if found.version != *version || version.size != Some(self.grid.size) {
            return Err(Breach::OtherVersion(found.version.to_string()).into());
        }
        if !found.can_be_dealt() {
            return Err(other_range(0, 1, 0, self.grid.size).into());
        }
        let now = &mut state.links[link];
        // An event may have named the link by its address already.
        if let (Some(remote), UNKNOWN) = (found.remote, now.name.remote) {
            now.name.remote = remote;
        }
        (now.location, now.has_agreed) = (Some(found.location.clone()), true);
        Ok((found.location, found.version))
    }

    /// Notes bytes that arrived.
    pub(crate) fn heard(&self, link: usize, bytes: u64) {
        let mut state = self.state.lock();
        let at = now();
        state.deal.heard(link, bytes, at);
        state.received += bytes;
        let now = &mut state.links[link];
        (now.refusals, now.was_up) = (0, true);
        now.received += bytes;
        if now.state != LinkState::Up {
            now.state = LinkState::Up;
            let link = now.name.clone();
            drop(state);
            (self.tell)(Event::Link {
                link,
                state: LinkState::Up,
            });
        }
    }

    /// Returns true if another link brings bytes.
    pub(crate) fn has_others(&self, link: usize) -> bool {
        self.state.lock().has_others(link)
    }

    pub(crate) fn wants_any(&self, link: usize, chunks: ChunkRange) -> bool {
        let state = self.state.lock();
        chunks.chunks().any(|chunk| state.deal.wants(link, chunk))
    }

    /// Notes the failure of a request to `location`, `None` if the way there failed. Breaks if the link
    /// is of no more use.
    pub(crate) fn lost(
        &self,
        link: usize,
        error: LinkError,
        location: Option<&Url>,
    ) -> ControlFlow<()> {
        let mut state = self.state.lock();
        let has_others = state.has_others(link);
        let now = &mut state.links[link];
        if now.is_left_out() {
            return ControlFlow::Break(());
        }
        // A signed URL expires, and a server may begin to redirect: the first one knows where to.
        if error.is_final() && location.is_some() && now.location.as_ref() == location {
            now.location = None;
        }
        now.refusals += u32::from(error.is_final());
        let is_other_version = matches!(&error, LinkError::Breach(Breach::OtherVersion(_)));
        if is_other_version && now.was_up && !has_others {
            now.cause = Some(error);
            let changed = self.changed_over(&state, link);
            drop(state);
            self.fail(changed);
            return ControlFlow::Break(());
        }
        if !error.is_final() || (now.refusals <= MOST_REFUSALS && !is_other_version) {
            drop(state);
            self.down(link, error);
            return self.is_hopeless(link);
        }
        now.state = LinkState::LeftOut(error.to_string());
        now.cause = Some(error);
        let said = (now.name.clone(), now.state.clone());
        drop(state);
        (self.tell)(Event::Link {
            link: said.0,
            state: said.1,
        });
        let _ = self.is_hopeless(link);
        ControlFlow::Break(())
    }

    /// Ends the fetch if every link is excluded, or one is and no other has brought a byte.
    fn is_hopeless(&self, link: usize) -> ControlFlow<()> {
        let state = self.state.lock();
        let is_over = state.links.iter().any(LinkNow::is_left_out)
            && state
                .links
                .iter()
                .all(|link| link.is_left_out() || (!link.was_up && link.cause.is_some()));
        let is_out = state.links[link].is_left_out();
        let error = is_over.then(|| self.hopeless(&state));
        drop(state);
        if let Some(error) = error {
            self.fail(error);
        }
        match is_over || is_out {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Returns why no link is of use: the file has changed, or the links have their own reasons.
    fn hopeless(&self, state: &State) -> WebError {
        let has_changed = |now: &LinkNow| now.has_agreed && now.found_other_version().is_some();
        match state.links.iter().position(has_changed) {
            Some(link) => self.changed_over(state, link),
            None => WebError::NoAnswer {
                url: self.url.to_string(),
                causes: state.causes(),
                resumable: state.deal.bytes_stored() > 0,
            },
        }
    }

    /// Returns the error for a link that had the version of the start, and found another one.
    fn changed_over(&self, state: &State, link: usize) -> WebError {
        let of = &self.links[link];
        let expected = &state.versions[of.source];
        let found = state.links[link].found_other_version();
        WebError::Changed {
            url: of.asked.url.to_string(),
            interface: of.interface.clone(),
            expected: expected
                .as_ref()
                .map(Version::to_string)
                .unwrap_or_default(),
            found: found.unwrap_or_default().to_owned(),
        }
    }

    /// Notes that a link brings nothing for now.
    pub(crate) fn down(&self, link: usize, error: LinkError) {
        let mut state = self.state.lock();
        let was_up = state.links[link].state == LinkState::Up;
        state.failovers += u32::from(was_up);
        let now = &mut state.links[link];
        now.failures += u32::from(was_up);
        now.state = LinkState::Down(error.to_string());
        now.cause = Some(error);
        let said = (now.name.clone(), now.state.clone());
        drop(state);
        if was_up {
            (self.tell)(Event::Link {
                link: said.0,
                state: said.1,
            });
        }
    }

    /// Ends the fetch with an error; the first counts.
    pub(crate) fn fail(&self, error: WebError) {
        self.state.lock().error.get_or_insert(error);
        self.stop.cancel();
    }

    pub(crate) fn of_disk(&self, error: io::Error) -> WebError {
        FileError::new("write", &self.url, error).into()
    }
}

/// Address of a link that never answered.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Useless answers in a row after which a link is left out: one machine behind a name may err.
const MOST_REFUSALS: u32 = 3;
