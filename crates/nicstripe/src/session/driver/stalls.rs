//! Client: watches the progress of its peer. A peer that only answers heartbeats is connected, but
//! makes no transfer or request continue.

use std::{
    io,
    time::{Duration, Instant},
};

use nicstripe_proto::{BitRate, ChunkSize, FailCode, TransferId, TransferStats, session::failure};

use super::Driver;
use crate::{
    file::FileError,
    report::{
        error::Error,
        event::{Awaited, Event},
        metrics::TransferDirection,
    },
    session::{
        last_progress::{Mark, NOTICE},
        transfer::Running,
    },
};

impl Driver {
    /// Tells the owners of transfers and requests in which the peer makes no progress for
    /// [`NOTICE`], and ends those without progress for the session's patience, but not before.
    pub(super) fn watch_progress(&mut self, now: Instant) {
        if self.config.service.is_some() {
            return;
        }
        let is_peers_turn = self.session.is_connected() && !self.config.pool.is_busy();
        let patience = self.config.session.patience.max(NOTICE) + self.chunk_time();
        let mut stalled = Vec::new();
        for (transfer, mark) in self.running.marks(&self.session) {
            let Some(running) = self.running.get_mut(transfer) else {
                continue;
            };
            let is_peers_turn = is_peers_turn && running.is_peers_turn(&mark);
            let awaited = awaited(running, &self.session.stats(transfer));
            let Some((waiter, tally)) = running.program_mut() else {
                continue;
            };
            let silence = tally.last_progress.silence(mark, is_peers_turn, now);
            if tally.last_progress.is_to_tell(silence) {
                waiter.tell(Event::Stalled {
                    since: silence,
                    awaited,
                });
            }
            if silence >= patience {
                stalled.push((transfer, awaited, silence));
            }
        }
        for (transfer, awaited, waited) in stalled {
            self.end_stalled(transfer, awaited, waited);
        }
        self.watch_asks(patience, now);
    }

    /// Daemon: fails the transfers that must not outlast the peer's process, once that has closed all
    /// connections and made none for [`PEER_GONE`].
    pub(super) fn end_with_peer(&mut self, now: Instant) {
        let is_gone = |at: Instant| now.saturating_duration_since(at) >= PEER_GONE;
        if self.session.is_connected() || !self.hung_up_at.is_some_and(is_gone) {
            return;
        }
        for transfer in self.running.that_end_with_peer() {
            let cause = io::Error::other("the peer's program has gone");
            let error = FileError::new("serve", "the peer", cause);
            self.fail(transfer, error.with_code(FailCode::Cancelled));
        }
    }

    /// Does the same for requests about names.
    fn watch_asks(&mut self, patience: Duration, now: Instant) {
        let (is_connected, awaited) = (self.session.is_connected(), Awaited::Answer);
        let mut stalled = Vec::new();
        for (id, request) in &mut self.asks.open {
            let silence = request.last.silence(Mark::default(), is_connected, now);
            if request.last.is_to_tell(silence) {
                let since = silence;
                self.config.tell(Event::Stalled { since, awaited });
            }
            if silence >= patience {
                stalled.push((*id, silence));
            }
        }
        for (id, waited) in stalled {
            if let Some(request) = self.asks.open.remove(&id) {
                let host = self.config.host.clone();
                let error = Error::Stalled {
                    host,
                    awaited,
                    waited,
                };
                // Fails if the owner has cancelled the request.
                let _ = request.reply.send(Err(error.into()));
            }
        }
    }

    /// Returns the time that two chunks take under a rate limit. No progress shows meanwhile.
    fn chunk_time(&self) -> Duration {
        let limit = self.config.session.rate_limit;
        let bits = 2 * 8 * ChunkSize::DEFAULT.bytes();
        limit.map_or(Duration::ZERO, |BitRate(bps)| {
            Duration::from_secs(bits / bps.max(1))
        })
    }

    fn end_stalled(&mut self, transfer: TransferId, awaited: Awaited, waited: Duration) {
        let error = Error::Stalled {
            host: self.config.host.clone(),
            awaited,
            waited,
        };
        let text = crate::text::chain(&error);
        self.session
            .fail(failure(transfer, FailCode::Cancelled, text, true));
        self.fail_locally(transfer, error);
    }
}

/// Returns the step of the peer that a transfer waits for.
fn awaited(running: &Running, stats: &TransferStats) -> Awaited {
    let done = stats.delivered_bytes + stats.resumed_bytes + stats.unsent_bytes;
    match running.kind.direction() {
        _ if !running.has_started() => Awaited::Opening,
        TransferDirection::Send if stats.size > 0 && done >= stats.size => Awaited::Storing,
        TransferDirection::Send => Awaited::Receiving,
        TransferDirection::Receive => Awaited::Sending,
    }
}

/// Time without a connection after which a peer that has closed all is considered gone. A peer that
/// lives reconnects at once.
const PEER_GONE: Duration = Duration::from_secs(3);
