//! Operations of a client that benchmarks need: discarded copies, further sessions and the route
//! keeper.

use std::path::Path;

use nicstripe_proto::{Name, message::Feature, session::MOST_STREAMS};

use super::{
    Client, Transfer,
    files::{FileDownload, FileUpload},
};
use crate::{
    file::options::CopyOptions, links::route_keeper::RouteKeeper, report::error::Error,
    session::SessionHandle,
};

impl Client {
    /// Sends a file like [`Client::put`] for a dry run: the daemon makes it durable and then
    /// discards it.
    pub(crate) fn try_put(&self, source: &Path, name: Option<Name>) -> Transfer {
        self.start(FileUpload {
            source: source.to_owned(),
            name,
            options: CopyOptions::default(),
            trial: true,
        })
    }

    /// Fetches a file like [`Client::get`] for a dry run: makes it durable and then discards it.
    pub(crate) fn try_get(&self, name: Name, target: &Path) -> Transfer {
        self.start(FileDownload {
            name,
            target: target.to_owned(),
            options: CopyOptions::default(),
            trial: true,
        })
    }

    /// Returns a handle to the running session, or to a new one if it has ended. The daemon must
    /// support benchmarks.
    pub(crate) async fn session_handle(&self) -> Result<SessionHandle, Error> {
        let session = self.inner.session().await?;
        session.peer.require(Feature::Bench, self.host())?;
        Ok(session.handle)
    }

    /// Returns an error if no call can succeed any more in this process.
    pub(crate) fn require_open(&self) -> Result<(), Error> {
        self.inner.require_open()
    }

    /// Opens another session with the same daemon, optionally with another number of connections
    /// per link and another socket buffer size in bytes. Fails at once if the daemon has no free
    /// session.
    pub(crate) async fn another(
        &self,
        streams: Option<u8>,
        socket_buffer: Option<u64>,
    ) -> Result<Self, Error> {
        let mut settings = self.inner.settings.clone();
        let session = &mut settings.session;
        (session.socket_buffer, session.queues) = (socket_buffer, false);
        session.streams = streams
            .map(|streams| streams.clamp(1, MOST_STREAMS))
            .or(session.streams);
        settings.identity = Some(self.inner.identity.clone());
        settings.connect(&self.inner.host).await
    }

    /// Returns the route keeper, which changes MTUs for a benchmark; `None` without a state
    /// directory.
    pub(crate) fn keeper(&self) -> Option<RouteKeeper> {
        self.inner.settings.session_routes()
    }
}
