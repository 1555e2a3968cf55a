//! Shared state of the streams of a fetch.

use std::{io, ops::ControlFlow};

use nicstripe::{FileError, LinkState};
use nicstripe_proto::{
    ChunkId, ChunkRange, ChunkSet, Grid, HashTree, Subtree, hash_tree::ChainingValue,
};
use reqwest::Url;

use crate::{
    answer::Version,
    ask::{Found, Link, other_range},
    climb::Climb,
    error::{Breach, LinkError, WebError},
    moving::{LinkNow, Moving, Traffic, UNKNOWN},
    target::Target,
    url::WebUrl,
};

/// A fetch in parts.
pub(crate) struct Shared {
    /// The first URL.
    pub(crate) url: WebUrl,
    pub(crate) links: Vec<Link>,
    pub(crate) grid: Grid,
    pub(crate) target: Target,
    pub(crate) traffic: Traffic<Content>,
}

/// What is known of a file that is fetched.
pub(crate) struct Content {
    pub(crate) tree: HashTree,
    /// Chunks that are written and not yet recorded, and their bytes.
    pub(crate) unsynced: (Vec<Subtree>, u64),
    /// Version at each URL; `None` while no link has an answer.
    pub(crate) versions: Vec<Option<Version>>,
    /// Value of each chunk and the URL that brought it, if there are several.
    pub(crate) brought: Vec<(ChunkId, usize, ChainingValue)>,
    /// Chunks that are being written, so that no two links write one.
    pub(crate) writing: ChunkSet,
}

impl Content {
    /// Notes a chunk that is stored and may be recorded.
    pub(crate) fn keep(&mut self, subtree: Subtree, bytes: u64) {
        // A chunk is stored once.
        let _ = self.tree.insert(subtree);
        self.unsynced.0.push(subtree);
        self.unsynced.1 += bytes;
    }
}

impl LinkNow {
    /// Returns the state of a link that has answered, failed, or not yet done either.
    pub(crate) fn of(link: &Link, found: Option<Result<Found, LinkError>>, climb: Climb) -> Self {
        let new = |remote| Self::new(&link.interface, link.shown(), remote, climb);
        match found {
            None => new(None),
            Some(Ok(found)) => Self {
                location: Some(found.location),
                has_agreed: true,
                ..new(found.remote)
            },
            Some(Err(cause)) => Self {
                state: match cause.is_final() {
                    true => LinkState::LeftOut(cause.to_string()),
                    false => LinkState::Down(cause.to_string()),
                },
                cause: Some(cause),
                ..new(None)
            },
        }
    }

    /// Returns the version of the last answer, if it was another one than that of the start.
    fn found_other_version(&self) -> Option<&str> {
        match &self.cause {
            Some(LinkError::Breach(Breach::OtherVersion(found))) => Some(found),
            _ => None,
        }
    }
}

impl Shared {
    /// Returns where the file is for a link, and its version there. Asks the server if that is unknown.
    pub(crate) async fn location(&self, link: usize) -> Result<(Url, Version), LinkError> {
        let of = &self.links[link];
        let known = {
            let state = self.traffic.state.lock();
            let location = state.links[link].location.clone();
            location.zip(state.file.versions[of.source].clone())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let found = of.asked.find(of).await?;
        let mut state = self.traffic.state.lock();
        let version = state.file.versions[of.source].get_or_insert_with(|| found.version.clone());
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

    pub(crate) fn wants_any(&self, link: usize, chunks: ChunkRange) -> bool {
        let state = self.traffic.state.lock();
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
        let mut state = self.traffic.state.lock();
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
            self.traffic.fail(changed);
            return ControlFlow::Break(());
        }
        if !error.is_final() || (now.refusals <= MOST_REFUSALS && !is_other_version) {
            drop(state);
            self.traffic.down(link, error);
            return self.is_hopeless(link);
        }
        now.state = LinkState::LeftOut(error.to_string());
        now.cause = Some(error);
        let event = now.event();
        drop(state);
        (self.traffic.tell)(event);
        let _ = self.is_hopeless(link);
        ControlFlow::Break(())
    }

    /// Ends the fetch if every link is excluded, or one is and no other has brought a byte.
    fn is_hopeless(&self, link: usize) -> ControlFlow<()> {
        let state = self.traffic.state.lock();
        let is_over = state.links.iter().any(LinkNow::is_left_out)
            && state
                .links
                .iter()
                .all(|link| link.is_left_out() || (!link.was_up && link.cause.is_some()));
        let is_out = state.links[link].is_left_out();
        let error = is_over.then(|| self.hopeless(&state));
        drop(state);
        if let Some(error) = error {
            self.traffic.fail(error);
        }
        match is_over || is_out {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Returns why no link is of use: the file has changed, or the links have their own reasons.
    fn hopeless(&self, state: &Moving<Content>) -> WebError {
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
    fn changed_over(&self, state: &Moving<Content>, link: usize) -> WebError {
        let of = &self.links[link];
        let expected = &state.file.versions[of.source];
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

    pub(crate) fn of_disk(&self, error: io::Error) -> WebError {
        FileError::new("write", &self.url, error).into()
    }
}

/// Useless answers in a row after which a link is excluded: one machine behind a name may err.
const MOST_REFUSALS: u32 = 3;
