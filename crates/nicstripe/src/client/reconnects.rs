//! How long a call waits for a daemon that the client has lost.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};

use super::sessions::Inner;
use crate::report::{
    error::Error,
    event::{Event, UnreachableNotice},
};

/// Attempts of one call to reach a daemon again, for the client's patience, which starts over once
/// the daemon was reached. [`Client`](super::Client) has the table of what waits and what is repeated.
#[derive(Debug)]
pub(super) struct Reconnects<'a> {
    inner: &'a Inner,
    lost_since: Option<Instant>,
    notice: UnreachableNotice,
}

impl<'a> Reconnects<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Self {
            inner,
            lost_since: None,
            notice: UnreachableNotice::new(),
        }
    }

    /// Waits before the attempt that follows `error`, and tells `events` of it.
    ///
    /// # Errors
    ///
    /// No further attempt is made: [`Error::Abandoned`] after the client's patience, otherwise
    /// `error`.
    pub(super) async fn again(
        &mut self,
        error: Error,
        events: Option<&mpsc::Sender<Event>>,
    ) -> Result<(), Error> {
        let patience = self.inner.settings.session.patience;
        let since = match &error {
            _ if self.inner.is_peer_gone() => return Err(error),
            // There was a session, so the patience starts over.
            Error::Ended { .. } => {
                self.lost_since = Some(Instant::now());
                Duration::ZERO
            }
            Error::Connect { .. }
            | Error::Refused { .. }
            | Error::Full { .. }
            | Error::Reconnect { .. } => self.lost_since.get_or_insert_with(Instant::now).elapsed(),
            _ => return Err(error),
        };
        if since >= patience {
            return Err(self.inner.abandoned(since));
        }
        if let Some(events) = events {
            self.tell(events, since);
        }
        // A call may be polled where there is no timer.
        let pause = async { tokio::time::sleep(PAUSE).await };
        self.inner.runtime.run(pause).await
    }

    fn tell(&mut self, events: &mpsc::Sender<Event>, since: Duration) {
        let _ = events.try_send(Event::Waiting { since });
        if self.notice.is_due(since) {
            let _ = events.try_send(Event::Unreachable {
                host: self.inner.host.clone(),
                interfaces: Vec::new(),
                since,
                patience: Some(self.inner.settings.session.patience),
            });
        }
    }
}

/// Pause between attempts to reconnect to a lost daemon.
const PAUSE: Duration = Duration::from_millis(500);
