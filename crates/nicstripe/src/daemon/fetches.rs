//! Files that a peer has this daemon fetch from another one.

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Digest, FailCode, Name,
    message::{AnswerKind, Fetch, GetRange, ObjectStat},
};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{
    fetcher::{Feed, FeedFile, Feeder, Fetcher},
    files::io_threads_gone,
    objects::Objects,
    served_peer::ServedPeer,
    unfinished::Unfinished,
};
use crate::{
    file::{FileError, Lease, OF_TARGET},
    report::error::Error,
    storage::Target,
    text::logged::logged_error,
    trust::{Identity, PublicKey},
};

/// Fetches of this daemon for a peer in one session.
#[derive(Debug)]
pub(super) struct Fetches {
    peer: Arc<ServedPeer>,
    objects: Arc<Objects>,
    /// Key pair of this daemon towards the others: a new one, which has only the rights that the peer
    /// gives it there.
    identity: OnceLock<Identity>,
    /// Sessions with other daemons. Each is made once, however many files wait for it.
    feeds: Mutex<HashMap<Feeder, Arc<Connection>>>,
    unfinished: Mutex<Unfinished<Fetching>>,
}

/// Session with another daemon, once it is made.
type Connection = tokio::sync::Mutex<Option<Arc<dyn Feed>>>;

/// File or range that is being fetched. Without a commit it leaves nothing, or in a slice what is
/// written again.
struct Fetching {
    request: Fetch,
    from: Box<dyn FeedFile>,
    target: Arc<Target>,
    hasher: blake3::Hasher,
    upto: u64,
    _leases: [Lease; 2],
}

impl fmt::Debug for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetching")
            .field("name", &self.request.put.name)
            .finish_non_exhaustive()
    }
}

impl Fetches {
    pub(super) fn new(peer: &Arc<ServedPeer>, objects: &Arc<Objects>) -> Self {
        Self {
            peer: peer.clone(),
            objects: objects.clone(),
            identity: OnceLock::new(),
            feeds: Mutex::default(),
            unfinished: Mutex::default(),
        }
    }

    pub(super) fn key(&self) -> Result<AnswerKind, FileError> {
        self.fetcher()?;
        let key = *self.identity()?.public_key().as_bytes();
        Ok(AnswerKind::Key { key })
    }

    fn identity(&self) -> Result<&Identity, FileError> {
        if let Some(identity) = self.identity.get() {
            return Ok(identity);
        }
        let failed = |error| FileError::new("make", "a key", io::Error::other(error));
        let identity = Identity::generate().map_err(failed)?;
        Ok(self.identity.get_or_init(|| identity))
    }

    fn fetcher(&self) -> Result<&dyn Fetcher, FileError> {
        let name = "from another daemon";
        self.peer.check_writable("fetch", &name)?;
        let fetcher = self.peer.shared.fetcher.as_deref();
        fetcher.ok_or_else(|| FileError::refused("fetch", name, "this daemon does not"))
    }

    /// Fetches the next part of a file, and commits it at its end.
    pub(super) async fn fetch(&self, request: Fetch) -> Result<AnswerKind, FileError> {
        let (fetcher, offset) = (self.fetcher()?, request.offset);
        let request = Fetch {
            offset: 0,
            ..request
        };
        let fetching = match offset {
            0 => self.begin(fetcher, request).await?,
            _ => {
                let is_it = |one: &Fetching| one.upto == offset && one.request == request;
                self.unfinished.lock().take(is_it).ok_or_else(|| {
                    let why = "no such file is being fetched";
                    FileError::refused("fetch", &request.put.name, why)
                })?
            }
        };
        self.go_on(fetching).await
    }

    async fn begin(&self, fetcher: &dyn Fetcher, request: Fetch) -> Result<Fetching, FileError> {
        let (name, identity) = (&request.put.name, self.identity()?);
        let lease = self.peer.try_lease_files(OF_TARGET, "fetch", name)?;
        let memory = self.peer.memory().try_lease(OF_FETCH);
        let memory = memory.ok_or_else(|| {
            let why = "limit of memory for this key reached";
            FileError::refused("fetch", name, why).with_code(FailCode::Busy)
        })?;
        let key = PublicKey::from_bytes(request.key);
        let key = key.map_err(|error| FileError::refused("fetch", name, error.to_string()))?;
        let feeder = Feeder {
            key,
            addresses: request.addresses.clone(),
            port: request.port,
        };
        let range = GetRange {
            offset: request.at,
            len: request.len,
        };
        let made = timeout(PATIENCE, self.feed(fetcher, identity, &feeder)).await;
        let made = made.unwrap_or_else(|_| Err(Error::ended("another daemon", "no answer")));
        let feed = match made {
            Ok(feed) => feed,
            // Why is for the log of this machine: the peer must not learn what else is in its networks.
            Err(error) => {
                let addresses: Vec<_> = feeder.addresses.iter().map(IpAddr::to_string).collect();
                tracing::info!(
                    key = %feeder.key,
                    addresses = addresses.join(" "),
                    port = feeder.port,
                    error = %logged_error(&error),
                    "cannot fetch from another daemon"
                );
                self.feeds.lock().remove(&feeder);
                let cause = io::Error::other("the other daemon cannot be reached");
                return Err(unreached(name, cause));
            }
        };
        let from = feed.open(request.name.clone(), range);
        let (peer, put) = (self.peer.clone(), request.put.clone());
        let open = move || peer.open_target_now(&put);
        let opened = self.peer.pool().call(open).await;
        let (target, _) = opened.unwrap_or_else(|| Err(io_threads_gone("the target")))?;
        Ok(Fetching {
            request,
            from,
            target: Arc::new(target),
            hasher: blake3::Hasher::new(),
            upto: 0,
            _leases: [lease, memory],
        })
    }

    /// Returns the session with a daemon, which is made if there is none.
    async fn feed(
        &self,
        fetcher: &dyn Fetcher,
        identity: &Identity,
        feeder: &Feeder,
    ) -> Result<Arc<dyn Feed>, Error> {
        let connection = {
            let mut feeds = self.feeds.lock();
            if !feeds.contains_key(feeder) && feeds.len() >= MOST_FEEDS {
                feeds.clear();
            }
            feeds.entry(feeder.clone()).or_default().clone()
        };
        let mut made = connection.lock().await;
        if let Some(feed) = &*made {
            return Ok(feed.clone());
        }
        let routes = self.peer.shared.routes.clone();
        let feed = fetcher
            .connect(feeder.clone(), identity.clone(), routes)
            .await?;
        Ok(made.insert(feed).clone())
    }

    async fn go_on(&self, mut fetching: Fetching) -> Result<AnswerKind, FileError> {
        let begun = Instant::now();
        while fetching.upto < fetching.request.len {
            fetching.fetch_some(&self.peer).await?;
            if begun.elapsed() >= PART && fetching.upto < fetching.request.len {
                let upto = fetching.upto;
                self.unfinished.lock().keep(fetching);
                return Ok(AnswerKind::Copied { upto, copy: None });
            }
        }
        fetching.commit(&self.objects, &self.peer).await
    }
}

impl Fetching {
    async fn fetch_some(&mut self, peer: &ServedPeer) -> Result<(), FileError> {
        let name = self.request.put.name.clone();
        let chunk = match timeout(PATIENCE, self.from.next()).await {
            Ok(Ok(Some(chunk))) => chunk,
            // The file there has other content than the peer says.
            Ok(Ok(None)) => return Err(wrong(&name)),
            Ok(Err(error)) => return Err(unreached(&name, io::Error::other(error))),
            Err(_) => return Err(unreached(&name, io::ErrorKind::TimedOut.into())),
        };
        let len = chunk.bytes().len() as u64;
        if len > self.request.len - self.upto {
            return Err(wrong(&name));
        }
        let (target, at) = (self.target.clone(), self.upto);
        let mut hasher = std::mem::take(&mut self.hasher);
        let write = move || {
            hasher.update(chunk.bytes());
            target.write_all_at(chunk.bytes(), at).map(|()| hasher)
        };
        let written = peer.pool().call(write).await;
        self.hasher = written.unwrap_or_else(|| Err(io_threads_gone("the target")))?;
        self.upto += len;
        Ok(())
    }

    /// Makes what was fetched durable under its name, if it is what the peer says.
    async fn commit(
        self,
        objects: &Arc<Objects>,
        peer: &ServedPeer,
    ) -> Result<AnswerKind, FileError> {
        let (name, objects) = (self.request.put.name.clone(), objects.clone());
        let found = Digest(*self.hasher.finalize().as_bytes());
        if found != self.request.digest {
            self.target.discard();
            return Err(wrong(&name));
        }
        let kept = self.request.put.options.slice.is_none().then_some(found);
        let commit = move || {
            let etag = self.target.commit(kept)?;
            let stat = objects.stat(&name)?;
            Ok(AnswerKind::Copied {
                upto: self.request.len,
                copy: Some(ObjectStat { etag, ..stat }),
            })
        };
        let committed = peer.pool().call(commit).await;
        committed.unwrap_or_else(|| Err(io_threads_gone("what was fetched")))
    }
}

/// Returns the error if the other daemon did not give a file.
fn unreached(name: &Name, cause: io::Error) -> FileError {
    FileError::new("fetch", name, cause).with_code(FailCode::Busy)
}

/// Returns the error if the other daemon gave other bytes.
fn wrong(name: &Name) -> FileError {
    let why = "the other daemon has other bytes";
    FileError::refused("fetch", name, why).with_code(FailCode::Digest)
}

/// Memory of a file that is being fetched in bytes: the chunks that wait to be written.
const OF_FETCH: usize = 4 << 20;

/// Maximum number of daemons from which one session fetches.
const MOST_FEEDS: usize = 8;

/// Time after which a part ends, so that the peer learns of its progress.
const PART: Duration = Duration::from_secs(2);

/// Time without a byte after which the other daemon counts as lost. A cable that is cut is given up
/// after 1.5 s.
const PATIENCE: Duration = Duration::from_secs(10);
