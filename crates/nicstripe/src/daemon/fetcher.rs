//! Other daemons as this one sees them, from which it fetches for its peers.

use std::{fmt, net::IpAddr, pin::Pin, sync::Arc};

use nicstripe_proto::{Name, message::GetRange};

use crate::{
    file::ChunkBuffer,
    links::route_keeper::RouteKeeper,
    report::error::Error,
    trust::{Identity, PublicKey},
};

/// Connects to other daemons, for the peers of this one.
pub(crate) trait Fetcher: fmt::Debug + Send + Sync {
    /// Connects to a daemon with this key, at one of the addresses.
    fn connect(
        &self,
        feeder: Feeder,
        identity: Identity,
        routes: Option<Arc<RouteKeeper>>,
    ) -> Awaited<Arc<dyn Feed>>;
}

/// Session with another daemon, from which files are fetched.
pub(crate) trait Feed: fmt::Debug + Send + Sync {
    /// Opens a range of a file, which may change elsewhere meanwhile.
    fn open(&self, name: Name, range: GetRange) -> Box<dyn FeedFile>;
}

/// Range of a file of another daemon.
pub(crate) trait FeedFile: Send {
    /// Returns the next bytes; `None` after the last.
    fn next(&mut self) -> Next<'_>;
}

/// Future of the next bytes of a file.
pub(crate) type Next<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ChunkBuffer>, Error>> + Send + 'a>>;

/// Future of something from another daemon.
pub(crate) type Awaited<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Feeder {
    pub(crate) key: PublicKey,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}
