//! Files that one daemon fetches from another, for a client of both.

use std::{net::IpAddr, ops::Range, sync::Arc, time::Duration};

use nicstripe_proto::{
    Digest, Name, Offer, SourceIdentity, TransferId,
    message::{self, AnswerKind, AskKind, Feature, GetRange, MOST_ADMITTED, OfferKind, Put},
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    Client, Transfer,
    objects::Stat,
    request::{ObjectDownload, download_of},
};
use crate::{
    daemon::{
        DaemonBuilder,
        fetcher::{Awaited, Feed, FeedFile, Feeder, Fetcher, Next},
    },
    file::{FileError, options::CopyOptions, timestamp_of},
    links::route_keeper::RouteKeeper,
    report::error::Error,
    session::kind::{
        object::{FEED_CHUNKS, Read},
        stream_offer,
    },
    trust::{Identity, Peers, PublicKey, PublicLine},
};

/// File, or range of one, that a daemon shall [fetch](Client::fetch_from) from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// Public key of the other daemon.
    pub key: PublicKey,
    /// Addresses of the other daemon, 1 to 16, to be tried in this order.
    pub addresses: Vec<IpAddr>,
    /// TCP port of the other daemon.
    pub port: u16,
    /// Name of the file at the other daemon.
    pub from: Name,
    /// Bytes of the file to fetch, at most 64 MiB.
    pub range: Range<u64>,
    /// BLAKE3 digest of these bytes. What has another digest gets no name.
    pub digest: Digest,
    /// Name of the file at the daemon.
    pub to: Name,
    /// Modification time and permission bits of a whole file, for
    /// [`CopyOptions::times`] and [`CopyOptions::preserve`]; a slice has its own.
    pub metadata: Option<(std::time::SystemTime, u32)>,
    /// How it is stored: as a file, or in a [slice](CopyOptions::slice) of one.
    pub options: CopyOptions,
}

impl FetchRequest {
    fn on_wire(&self, offset: u64) -> message::Fetch {
        let len = self.range.end.saturating_sub(self.range.start);
        let (modified, mode) = self.metadata.unzip();
        let kind = match self.options.slice {
            Some(_) => OfferKind::Pipe,
            None => OfferKind::File,
        };
        let source = SourceIdentity {
            size: len,
            mtime: modified.map(timestamp_of).unwrap_or_default(),
            ..SourceIdentity::default()
        };
        message::Fetch {
            key: *self.key.as_bytes(),
            addresses: self.addresses.clone(),
            port: self.port,
            name: self.from.clone(),
            at: self.range.start,
            len,
            digest: self.digest,
            put: Put {
                name: self.to.clone(),
                offer: Offer {
                    source,
                    ..stream_offer(TransferId(0), kind, mode.unwrap_or(0o666))
                },
                options: message::PutOptions {
                    restart: true,
                    ..self.options.on_wire()
                },
                into: None,
                entry: None,
                attributes: None,
            },
            offset,
        }
    }
}

/// Files that daemons fetch from each other.
impl Client {
    /// Returns the key with which the daemon fetches from others for this client: a new one in each
    /// session, which has no rights anywhere until a client [admits](Self::admit) it.
    ///
    /// # Errors
    ///
    /// The daemon does not support it ([`Error::Unsupported`]), or the client may not write there.
    pub async fn fetch_key(&self) -> Result<PublicKey, Error> {
        match self.ask_for(Feature::Fetches, AskKind::FetchKey).await? {
            AnswerKind::Key { key } => PublicKey::from_bytes(key).map_err(|_| self.nonsense()),
            _ => Err(self.nonsense()),
        }
    }

    /// Lets another key read these files of the daemon, besides those of earlier calls, until the
    /// session of this client ends. It gets nothing else, and nothing that this client may not read.
    /// The daemon remembers the latest 1,024 names of a key.
    ///
    /// # Errors
    ///
    /// The daemon does not support it ([`Error::Unsupported`]), trusts the key already, or this client
    /// has admitted 16 others.
    pub async fn admit(&self, key: &PublicKey, names: &[Name]) -> Result<(), Error> {
        for names in names.chunks(MOST_ADMITTED) {
            let ask = AskKind::Admit {
                key: *key.as_bytes(),
                names: names.to_vec(),
            };
            match self.ask_for(Feature::Fetches, ask).await? {
                AnswerKind::Done => {}
                _ => return Err(self.nonsense()),
            }
        }
        Ok(())
    }

    /// Has the daemon fetch a file from another daemon, over all cables that join the two, and store it
    /// durably. Bytes with another digest than that of the request are refused before the file gets its
    /// name.
    ///
    /// # Errors
    ///
    /// With [`Error::fail_code`]: [`Digest`](crate::FailCode::Digest) if the other daemon has other bytes,
    /// [`Busy`](crate::FailCode::Busy) if it did not give them within 10 s; otherwise as for a
    /// [`put`](Self::put). The daemon does not support it ([`Error::Unsupported`]).
    pub async fn fetch_from(&self, request: &FetchRequest) -> Result<Stat, Error> {
        if !request.on_wire(0).is_within_limits() {
            let why = "at most 64 MiB of a file are fetched at once, from 1 to 16 addresses";
            return Err(FileError::refused("fetch", &request.from, why).into());
        }
        let session = self.session_with(Feature::Fetches).await?;
        let mut offset = 0;
        loop {
            let ask = AskKind::Fetch(Box::new(request.on_wire(offset)));
            match self.ask_on(&session, ask).await? {
                AnswerKind::Copied {
                    copy: Some(stat), ..
                } => return Ok(Stat::of_wire(stat)),
                AnswerKind::Copied { upto, .. } => offset = upto,
                _ => return Err(self.nonsense()),
            }
        }
    }
}

/// Fetches from other daemons as their client.
#[derive(Debug)]
struct AsClient;

impl DaemonBuilder {
    /// Lets peers that may write have the daemon [fetch](Client::fetch_from) files from other daemons; by
    /// default it connects to none. It proves a key that only the peer can have
    /// [admitted](Client::admit) there, and accepts only the daemon with the key that the peer says.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().fetches();
    /// ```
    pub fn fetches(mut self) -> Self {
        self.fetcher = Some(Arc::new(AsClient));
        self
    }
}

impl Fetcher for AsClient {
    fn connect(
        &self,
        feeder: Feeder,
        identity: Identity,
        routes: Option<Arc<RouteKeeper>>,
    ) -> Awaited<Arc<dyn Feed>> {
        Box::pin(async move {
            let mut peers = Peers::default();
            let trusted = peers.add(&PublicLine::new(feeder.key, ""), None);
            trusted.map_err(|error| Error::failed("trust another daemon", error))?;
            let mut last = Error::ended("another daemon", "it has no address");
            for address in &feeder.addresses {
                let mut builder = Client::builder()
                    .identity(identity.clone())
                    .peers(peers.clone())
                    .port(feeder.port)
                    .patience(PATIENCE);
                if let Some(keeper) = &routes {
                    builder = builder.route_keeper(keeper.clone());
                }
                let host = address.to_string();
                match timeout(CONNECT, builder.connect(&host)).await {
                    Ok(Ok(client)) => return Ok(Arc::new(client) as Arc<dyn Feed>),
                    Ok(Err(error)) => last = error,
                    Err(_) => last = Error::ended(&host, "no answer"),
                }
            }
            Err(last)
        })
    }
}

impl Feed for Client {
    fn open(&self, name: Name, range: GetRange) -> Box<dyn FeedFile> {
        let (to, chunks) = mpsc::channel(FEED_CHUNKS);
        // Others may write elsewhere in the file. The digest shows if the range is right.
        let options = CopyOptions {
            allow_changing: true,
            ..CopyOptions::default()
        };
        let download = download_of(name, self.inner.limit_bps(), options, Some(range));
        let transfer = self.start(ObjectDownload::new(download, to));
        let transfer = Some(transfer);
        Box::new(FetchedFile { transfer, chunks })
    }
}

struct FetchedFile {
    /// `None` once it has ended.
    transfer: Option<Transfer>,
    chunks: mpsc::Receiver<Read>,
}

impl FeedFile for FetchedFile {
    fn next(&mut self) -> Next<'_> {
        Box::pin(async move {
            loop {
                match self.chunks.recv().await {
                    Some(Read::Begun(_)) => {}
                    Some(Read::Chunk(chunk)) => return Ok(Some(chunk)),
                    None => break,
                }
            }
            match self.transfer.take() {
                Some(transfer) => transfer.finish().await.map(|_| None),
                None => Ok(None),
            }
        })
    }
}

/// Time for which one address of another daemon is tried.
const CONNECT: Duration = Duration::from_secs(4);

/// Time for which another daemon that is lost is waited for: less than the daemon waits for its bytes.
const PATIENCE: Duration = Duration::from_secs(5);
