//! Running daemon: serves until it is shut down.

use std::sync::Arc;

use nicstripe_proto::message::CloseCode;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{handle::DaemonHandle, revocation, shared::Shared, watch::Watch};
use crate::{
    links::{
        discovery::Responder,
        listeners::{ListenAddress, Listeners},
    },
    report::error::Error,
    session::{Command, SessionHandle},
};

/// Daemon with open listening sockets, started by [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    pub(super) shared: Arc<Shared>,
    listeners: Listeners,
    addresses: Vec<ListenAddress>,
    responder: Option<Responder>,
}

impl Daemon {
    pub(super) fn new(
        shared: Arc<Shared>,
        listeners: Listeners,
        responder: Option<Responder>,
    ) -> Self {
        Self {
            shared,
            addresses: listeners.addresses(),
            listeners,
            responder,
        }
    }

    /// Returns the listening addresses at the time of [`bind`](crate::DaemonBuilder::bind). A
    /// running daemon also listens on new interfaces, unless interfaces or addresses were set
    /// explicitly.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let port = daemon.addresses().first().map(|listened| listened.address.port());
    /// println!("{port:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Returns a handle that reads the daemon's metrics and changes its limits while it runs.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let handle = daemon.handle();
    /// tokio::spawn(daemon.run(nicstripe::CancellationToken::new()));
    /// println!("{} sessions", handle.metrics().sessions);
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle(&self) -> DaemonHandle {
        DaemonHandle {
            shared: self.shared.clone(),
        }
    }

    /// Serves until `shutdown` is cancelled, then closes all sessions so that transfers can be
    /// resumed.
    ///
    /// All sessions together have [`Limits::shutdown_time`](crate::Limits::shutdown_time) for this.
    /// A resumed transfer retransmits data that was not durable by then. The listening sockets are
    /// closed when this returns, so that their addresses can be bound again.
    ///
    /// Dropping the future, or aborting its task, ends the daemon at once: no session executes
    /// another request, and no further file gets its name. The tasks of the sessions and sockets
    /// end shortly afterwards, since a drop cannot wait for them.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let shutdown = nicstripe::CancellationToken::new();
    /// let running = tokio::spawn(daemon.run(shutdown.clone()));
    /// // When the program ends:
    /// shutdown.cancel();
    /// running.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let mut stop = StopOnDrop {
            shared: self.shared.clone(),
            closing: Vec::new(),
        };
        let mut watch = Watch::new(self.shared.clone(), self.listeners, self.responder);
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = watch.run() => {}
            () = revocation::watch(self.shared.clone()) => {}
        }
        self.shared.ending.cancel();
        watch.close().await;
        let sessions: Vec<SessionHandle> = self
            .shared
            .sessions
            .lock()
            .drain()
            .map(|(_, entry)| entry.handle)
            .collect();
        stop.closing.clone_from(&sessions);
        let all_ended: JoinSet<()> = sessions.iter().cloned().map(end).collect();
        if tokio::time::timeout(self.shared.limits().shutdown_time, all_ended.join_all())
            .await
            .is_err()
        {
            let left = sessions
                .iter()
                .filter(|session| !session.ended.is_cancelled())
                .count();
            tracing::warn!(
                sessions = left,
                "ended before all received data was durable; the missing part is retransmitted"
            );
        }
        Ok(())
    }
}

/// Guard that ends a daemon's sessions when its future ends or is dropped. Their tasks have no other
/// owner.
struct StopOnDrop {
    shared: Arc<Shared>,
    /// Sessions that an orderly shutdown has taken from the shared list.
    closing: Vec<SessionHandle>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.shared.ending.cancel();
        self.closing.iter().for_each(|session| session.stop());
        let sessions = self.shared.sessions.lock();
        sessions.values().for_each(|entry| entry.handle.stop());
    }
}

/// Closes a session with the reason "shutting down" and waits until it has ended.
async fn end(session: SessionHandle) {
    session
        .command(Command::Close(CloseCode::ShuttingDown))
        .await;
    session.ended.cancelled().await;
}
