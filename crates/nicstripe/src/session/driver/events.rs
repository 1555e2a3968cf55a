//! Events of the protocol in a session's event loop: requests of the peer, progress of transfers,
//! and the end of the session.

use std::time::Instant;

use nicstripe_proto::{
    BitRate, Event as SessionEvent, FailCode, PathLoss, message::CloseCode, session::failure,
};

use super::Driver;
use crate::{
    report::error::Error,
    session::input::{LinkNews, Step},
    text::shown_interface,
};

impl Driver {
    /// Handles all pending events of the protocol. Returns true if there were any.
    pub(super) fn handle_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.session.poll_event() {
            any = true;
            self.handle_event(event, now);
        }
        any
    }

    fn handle_event(&mut self, event: SessionEvent, now: Instant) {
        match event {
            SessionEvent::Connect(path) => self.connect(path),
            SessionEvent::Disconnect(path) => self.disconnect(path, PathLoss::Silent),
            SessionEvent::PathChanged { path, state, loss } => {
                self.on_path_changed(path, state, loss);
            }
            SessionEvent::Damaged { path, times, pause } => self.on_damaged(path, times, pause),
            SessionEvent::PutRequested(put) => self.on_put_requested(put),
            SessionEvent::GetRequested(get) => {
                self.limit_rate(get.limit_bps, now);
                self.on_get_requested(get);
            }
            SessionEvent::TreePutRequested(put) => self.on_tree_put_requested(put),
            SessionEvent::TreeRequested(get) => {
                self.limit_rate(get.limit_bps, now);
                self.on_tree_requested(get);
            }
            SessionEvent::TunnelsRequested(mux) => self.on_tunnels_requested(mux),
            SessionEvent::TreeMessage(body) => self.on_tree_message(body.transfer, body.message),
            SessionEvent::Offered(offer) => self.on_offered(&offer),
            event => self.on_progress(event, now),
        }
    }

    /// Handles events of running transfers and of the session's end.
    fn on_progress(&mut self, event: SessionEvent, now: Instant) {
        match event {
            SessionEvent::Accepted {
                transfer,
                resumed_bytes,
                memory,
            } => {
                self.start_source(transfer, memory);
                self.on_started(transfer, resumed_bytes, now);
            }
            SessionEvent::Released { transfer, chunk } => self.on_released(transfer, chunk),
            SessionEvent::Sync { transfer, subtrees } => {
                self.account_mut(|account| account.sync_begun(transfer));
                if let Some(target) = self.ends.target(transfer).cloned() {
                    self.jobs
                        .step(transfer, Step::Synced, move || target.sync(subtrees));
                }
            }
            SessionEvent::Holes { transfer, holes } => {
                if let Some(target) = self.ends.target(transfer).cloned() {
                    self.jobs
                        .step(transfer, Step::HolesMade, move || target.make_holes(holes));
                }
            }
            SessionEvent::SourceRead { transfer, .. } => self.on_source_read(transfer),
            SessionEvent::Asked(ask) => self.serve_ask(ask),
            SessionEvent::Answered(answer) => self.on_answered(answer),
            SessionEvent::Bench(body) => self.on_bench_message(body, now),
            SessionEvent::Completed(complete) => {
                if let Some(tally) = self.waiters.tally(complete.transfer) {
                    tally.on_peer_streams(&complete.streams);
                }
            }
            SessionEvent::Commit { transfer, digest } => {
                match self.ends.target(transfer).cloned() {
                    Some(target) => self.jobs.commit(transfer, digest, target),
                    None => self.ends.end_stream(transfer, digest),
                }
                self.poll_mux(transfer);
            }
            SessionEvent::Mismatch {
                transfer,
                received,
                sent,
            } => {
                if let Some(target) = self.ends.target(transfer).cloned() {
                    self.without_waiting(move || target.discard());
                }
                self.account_mut(|account| account.meters.totals().digest_mismatches += 1);
                let error = Error::Digest { sent, received };
                self.session.fail(failure(
                    transfer,
                    FailCode::Digest,
                    error.to_string(),
                    false,
                ));
                self.end_transfer(transfer, Err(error));
            }
            SessionEvent::Committed(committed) => {
                self.on_peer_committed(committed.transfer, committed.digest);
            }
            SessionEvent::Failed(fail) => {
                let error = Error::Peer {
                    host: self.config.host.clone(),
                    code: fail.code,
                    text: fail.text,
                    resumable: fail.resumable,
                };
                self.fail_locally(fail.transfer, error);
            }
            SessionEvent::Abandoned => {
                let (host, waited) = (&self.config.host, self.config.session.patience);
                Self::end_waiting(&mut self.waiters, &mut self.asks, || Error::Abandoned {
                    host: host.clone(),
                    waited,
                });
                self.closing = Some(CloseCode::Cancelled);
            }
            SessionEvent::PeerInterfaces(interfaces) => {
                self.plan(LinkNews::PeerInterfaces(
                    interfaces.into_iter().map(shown_interface).collect(),
                ));
            }
            SessionEvent::Expected(connections) => {
                if let Some(service) = self.config.service.clone() {
                    service.expect(connections, self.handle.clone());
                }
            }
            SessionEvent::Closed(code) => {
                let (host, why) = (&self.config.host, close_text(code));
                Self::end_waiting(&mut self.waiters, &mut self.asks, || {
                    Error::ended(host, &why)
                });
                self.closing = Some(code);
            }
            _ => {}
        }
    }

    /// Applies the rate limit that a request contains.
    fn limit_rate(&mut self, limit_bps: Option<u64>, now: Instant) {
        if let Some(limit) = limit_bps {
            self.session.limit_rate(BitRate(limit), now);
        }
    }
}

/// Returns an error text for the code with which the peer closed the session.
fn close_text(code: CloseCode) -> String {
    match code {
        CloseCode::Done => "it closed the session",
        CloseCode::Cancelled => "interrupted at the peer",
        CloseCode::ShuttingDown => "it is shutting down",
        CloseCode::RightsChanged => "its list of peers was changed for this machine",
    }
    .into()
}
