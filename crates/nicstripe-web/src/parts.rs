//! Fetch in parts: streams of all links fill one file, or feed one stream.

use std::{path::PathBuf, sync::Arc, time::Duration};

use nicstripe::{
    CopyOptions, Event, LinkState,
    storage::{ChunkSize, Grid, LocalPart, LocalRequest},
};
use nicstripe_proto::{ChunkId, ChunkSet, HashTree, deal::Deal, hash_tree::ChainingValue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    answer::Version,
    ask::Link,
    blocking::blocking,
    climb::Climb,
    clock::now,
    contact::{Agreed, Answers},
    error::WebError,
    fetched::Fetched,
    moving::{LinkNow, Moving, Tell, Traffic},
    options::FetchOptions,
    proof::{Algorithm, Expected, Proof},
    state::{Content, Shared},
    stream::stream,
    target::{Output, Target, WINDOW, hash_behind, pour},
    url::WebUrl,
};

/// Where a fetch in parts writes.
pub(crate) enum Destination<'a> {
    File(PathBuf, CopyOptions),
    Stream(Output<'a>),
}

/// All that a fetch in parts consists of.
pub(crate) struct Parts<'a> {
    /// The first URL.
    pub(crate) url: &'a WebUrl,
    pub(crate) options: &'a FetchOptions,
    pub(crate) links: Vec<Link>,
    pub(crate) answers: Answers,
    pub(crate) agreed: Agreed,
    pub(crate) expected: Option<(Expected, Proof)>,
    pub(crate) stop: CancellationToken,
    pub(crate) tell: Tell,
}

/// Each chunk's value and the number of the URL that brought it.
pub(crate) type Brought = Vec<(ChunkId, usize, ChainingValue)>;

/// A file that has another digest than expected, with what each URL brought.
pub(crate) struct Wrong {
    pub(crate) error: WebError,
    pub(crate) brought: Brought,
}

impl From<WebError> for Wrong {
    fn from(error: WebError) -> Self {
        Self {
            error,
            brought: Vec::new(),
        }
    }
}

impl Parts<'_> {
    /// Fetches the file over all links, or those of one URL, and gives it its name once it is proved.
    pub(crate) async fn fetch(
        &self,
        only: Option<usize>,
        target: Destination<'_>,
    ) -> Result<(Fetched, Brought), Wrong> {
        let (expected, proof) = self.expected.clone().unzip();
        let (shared, output) = self.begin(only, target).await?;
        let resumed = shared.traffic.state.lock().resumed;
        (shared.traffic.tell)(Event::Started {
            size: shared.grid.size,
            resumed,
        });
        let moving = now();
        let mut streams = JoinSet::new();
        shared.add_streams(&mut streams);
        let algorithm = expected.as_ref().map(|expected| expected.algorithm);
        let algorithm = algorithm.filter(|algorithm| *algorithm != Algorithm::Blake3);
        // Data that must be in order can be behind what has arrived.
        let is_ordered = output.is_some() || algorithm.is_some();
        let poured = async {
            match (output, algorithm) {
                (Some(output), algorithm) => pour(&shared, output, algorithm).await.map(Ok),
                (None, Some(algorithm)) => hash_behind(&shared, algorithm).await,
                (None, None) => None,
            }
        };
        let watching = watch_over(&shared, &mut streams, self.options.patience);
        let (poured, ()) = tokio::join!(poured, watching);
        shared.traffic.stop.cancel();
        while streams.join_next().await.is_some() {}
        if let Some(error) = shared.unfinished(is_ordered && poured.is_none()) {
            return Err(keep(&shared, error).await.into());
        }
        let brought = std::mem::take(&mut shared.traffic.state.lock().file.brought);
        let of = shared.clone();
        let committed = blocking(move || {
            let digest = of.traffic.state.lock().file.tree.root();
            if let Some(expected) = expected {
                let found = match (expected.algorithm, digest, poured) {
                    (Algorithm::Blake3, Some(digest), _) => digest.0.to_vec(),
                    (_, _, Some(hashed)) => hashed?,
                    _ => return Err(WebError::Cancelled { resumable: true }),
                };
                check(&expected, &found, &of.url).inspect_err(|_| of.target.discard())?;
            }
            let etag = match &of.target {
                Target::File(part) => part.commit(digest)?,
                Target::Stream(_) => None,
            };
            Ok((digest, etag))
        });
        let (digest, etag) = match committed.await {
            Ok(committed) => committed,
            Err(error) => return Err(Wrong { error, brought }),
        };
        let mut report = shared.traffic.state.lock().report(shared.grid.size);
        (report.digest, report.etag, report.moving) = (digest, etag, now() - moving);
        let proof = proof.unwrap_or(Proof::Version);
        Ok((Fetched::new(report, proof), brought))
    }

    /// Opens the target, and collects what the streams share.
    async fn begin<'t>(
        &self,
        only: Option<usize>,
        target: Destination<'t>,
    ) -> Result<(Arc<Shared>, Option<Output<'t>>), WebError> {
        let version = &self.agreed.found.version;
        let size = version.size.unwrap_or_default();
        let chunk_size = ChunkSize::from_log2(CHUNK_LOG2).unwrap_or(ChunkSize::DEFAULT);
        let (target, have, output) = match target {
            Destination::File(path, copy) => {
                let expected = self.expected.as_ref().map(|(expected, _)| expected);
                let expected = expected.filter(|_| self.agreed.versions.len() > 1);
                let mut request = LocalRequest::new(size, origin(self.url, version, expected));
                request.chunk_size = chunk_size;
                request.modified = version.modified_at();
                request.mode = version.mode.filter(|_| self.options.preserve);
                let begun = move || Ok(LocalPart::begin(&path, request, copy)?);
                let (part, have) = blocking(begun).await?;
                (Target::File(Box::new(part)), have, None)
            }
            Destination::Stream(output) => {
                (Target::Stream(Default::default()), Vec::new(), Some(output))
            }
        };
        let grid = match &target {
            Target::File(part) => part.grid(),
            Target::Stream(_) => Grid::new(size, chunk_size),
        };
        let (streams, most) = self.options.streams();
        let is_used = |link: &Link| only.is_none_or(|source| link.source == source);
        let all = self.links.iter().zip(&self.answers);
        let now_of = |(link, answer): (&Link, &Option<Result<_, _>>)| {
            let answer = answer.clone();
            let answer = answer.map(|answer| self.agreed.joined(link, answer?));
            let now = LinkNow::of(link, answer, Climb::new(streams, most));
            (link.clone(), now)
        };
        let used = all.filter(|(link, _)| is_used(link)).map(now_of);
        let (links, links_now): (Vec<_>, Vec<_>) = used.unzip();
        let (mut tree, mut durable) = (HashTree::new(grid), ChunkSet::new());
        for subtree in have {
            if let (Ok(()), Ok(chunks)) = (tree.insert(subtree), subtree.chunks(grid)) {
                durable.insert(chunks);
            }
        }
        let mut deal = Deal::new(grid, durable, links_now.len());
        if output.is_some() {
            deal.limit(ChunkId(WINDOW));
        }
        let content = Content {
            tree,
            unsynced: (Vec::new(), 0),
            versions: self.agreed.versions.clone(),
            brought: Vec::new(),
            writing: ChunkSet::new(),
        };
        let moving = Moving::new(deal, links_now, content);
        let shared = Shared {
            url: self.url.clone(),
            links,
            grid,
            target,
            traffic: Traffic::new(moving, &self.stop, self.tell.clone()),
        };
        Ok((Arc::new(shared), output))
    }
}

/// Tells the progress and records what arrived, until all streams have ended, the fetch has failed, or
/// too little has arrived for too long.
async fn watch_over(shared: &Arc<Shared>, streams: &mut JoinSet<()>, patience: Duration) {
    let traffic = &shared.traffic;
    let mut syncing = JoinSet::new();
    let mut synced = now();
    let tick = |streams: &mut JoinSet<()>| {
        let progress = traffic.state.lock().progress(Some(shared.grid.size));
        (traffic.tell)(Event::Progress(progress));
        shared.add_streams(streams);
        let unsynced = traffic.state.lock().file.unsynced.1;
        let is_due = unsynced >= SYNC_BYTES || now() - synced >= SYNC_TIME;
        if is_due && unsynced > 0 && syncing.is_empty() {
            synced = now();
            syncing.spawn(sync(shared.clone()));
        }
        while syncing.try_join_next().is_some() {}
        if let Some(error) = shared.too_slow(patience) {
            traffic.fail(error);
        }
    };
    traffic.watch(streams, tick).await;
    while syncing.join_next().await.is_some() {}
}

impl Shared {
    /// Lets links have as many streams as make them faster.
    fn add_streams(self: &Arc<Self>, streams: &mut JoinSet<()>) {
        let at = now();
        let mut state = self.traffic.state.lock();
        let Moving { links, deal, .. } = &mut *state;
        for (index, link) in links.iter_mut().enumerate() {
            if link.is_left_out() {
                continue;
            }
            match link.state == LinkState::Up && !deal.is_suspect(index, at) && deal.has_more() {
                true => link.climb.measure(link.moved, at),
                false => link.climb.pause(),
            }
            while link.running < link.climb.streams() {
                link.running += 1;
                streams.spawn(stream(self.clone(), index));
            }
        }
    }

    /// Returns the error if hardly anything has arrived for so long. What a reader of the stream
    /// delays is no fault of the server.
    fn too_slow(&self, patience: Duration) -> Option<WebError> {
        let mut state = self.traffic.state.lock();
        let is_excused = self.target.is_blocked();
        let is_too_slow = state.is_too_slow(patience, SLOWEST, is_excused);
        is_too_slow.then(|| WebError::TimedOut {
            resumable: self.target.is_resumable() && state.deal.bytes_stored() > 0,
            url: self.url.to_string(),
            seconds: patience.as_secs(),
            causes: state.causes(),
        })
    }

    /// Returns why the fetch has ended without all chunks, or `is_cut` off before all of them were poured or
    /// hashed in order.
    fn unfinished(&self, is_cut: bool) -> Option<WebError> {
        let mut state = self.traffic.state.lock();
        let error = state.error.take();
        // A stream that cannot be written is an error, also after the last chunk arrived.
        if state.deal.is_done() && !is_cut && (error.is_none() || self.target.is_resumable()) {
            return None;
        }
        let resumable = self.target.is_resumable() && state.deal.bytes_stored() > 0;
        Some(error.unwrap_or(WebError::Cancelled { resumable }))
    }
}

/// Makes what is written durable, and records it.
async fn sync(shared: Arc<Shared>) {
    let subtrees = std::mem::take(&mut shared.traffic.state.lock().file.unsynced).0;
    let of = shared.clone();
    let synced = blocking(move || Ok(of.target.sync(subtrees)?)).await;
    if let Err(error) = synced {
        shared.traffic.fail(error);
    }
}

/// Records what arrived for the next fetch. Returns the error that ended this one. What belongs to
/// another version is deleted.
async fn keep(shared: &Arc<Shared>, error: WebError) -> WebError {
    match error {
        WebError::Changed { .. } => shared.target.discard(),
        _ => sync(shared.clone()).await,
    }
    error
}

/// Compares the digest of the file with the expected one.
pub(crate) fn check(expected: &Expected, found: &[u8], url: &WebUrl) -> Result<(), WebError> {
    match expected.value == found {
        true => Ok(()),
        false => Err(WebError::Digest {
            url: url.to_string(),
            algorithm: expected.algorithm.name(),
            expected: expected.hex(),
            found: hex::encode(found),
        }),
    }
}

/// Returns the hash of what the content is: the URL without its query, which signs, and the version. Of
/// several URLs, whose versions differ, the expected digest.
fn origin(url: &WebUrl, version: &Version, expected: Option<&Expected>) -> [u8; 32] {
    if let Some(expected) = expected {
        let digest = [expected.algorithm.name().as_bytes(), &expected.value].concat();
        return *blake3::hash(&digest).as_bytes();
    }
    let mut place = url.url().clone();
    // The query of a signed URL differs each time; without a tag it may be what distinguishes files.
    if version.tag.is_some() {
        place.set_query(None);
    }
    let mut hasher = blake3::Hasher::new();
    let tag = version.tag.as_deref().unwrap_or_default();
    let modified = version.modified.as_deref().unwrap_or_default();
    for text in ["nicstripe-web 1", place.as_str(), tag, modified] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// Chunks of 1 MiB: the unit of loss with a request, and of hedging.
const CHUNK_LOG2: u8 = 20;

/// Bytes per second below which a server is as good as silent.
const SLOWEST: u64 = 1 << 10;

/// Bytes and time between two records of durable chunks: a kill loses at most these.
const SYNC_BYTES: u64 = 16 << 20;
const SYNC_TIME: Duration = Duration::from_secs(2);
