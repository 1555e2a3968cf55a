//! How long a call waits for a daemon that the client has lost.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};

use super::sessions::Inner;
use crate::report::{
    error::Error,
    event::{Event, UnreachableNotice},
};

/// Attempts of one call to reach a daemon again, for the client's patience, which starts over once
/// data of the call have moved, or a session has lasted as long. [`Client`](super::Client) has the
/// table of what waits and what is repeated.
#[derive(Debug)]
pub(super) struct Reconnects<'a> {
    inner: &'a Inner,
    lost_since: Option<Instant>,
    /// Time of the last error.
    last: Option<Instant>,
    /// Amount that had moved at the last loss.
    moved: u64,
    notice: UnreachableNotice,
}

impl<'a> Reconnects<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Self {
            inner,
            lost_since: None,
            last: None,
            moved: 0,
            notice: UnreachableNotice::new(),
        }
    }

    /// Waits before the attempt that follows `error`, and reports it to `events`. `moved` changes when
    /// data of the call move: a daemon that ends each session is not waited for any longer than one
    /// that is silent.
    ///
    /// # Errors
    ///
    /// No further attempt is made: [`Error::Abandoned`] after the client's patience, otherwise
    /// `error`.
    pub(super) async fn again(
        &mut self,
        error: Error,
        moved: u64,
        events: Option<&mpsc::Sender<Event>>,
    ) -> Result<(), Error> {
        let patience = self.inner.settings.session.patience;
        match &error {
            _ if self.inner.is_peer_gone() => return Err(error),
            Error::Ended { .. }
            | Error::Connect { .. }
            | Error::Refused { .. }
            | Error::Full { .. }
            | Error::Reconnect { .. } => {}
            _ => return Err(error),
        }
        let now = Instant::now();
        let had_session = matches!(error, Error::Ended { .. })
            && self.last.is_some_and(|last| now - last > patience);
        if moved != self.moved || had_session {
            self.lost_since = None;
        }
        (self.moved, self.last) = (moved, Some(now));
        let since = now - *self.lost_since.get_or_insert(now);
        if since >= patience {
            return Err(self.inner.abandoned(since));
        }
        if let Some(events) = events {
            self.tell(events, since);
        }
        // A call may be polled without a timer.
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
