//! Events of the protocol in a session's event loop: requests of the peer, progress of transfers,
//! and the end of the session.

use std::time::Instant;

use nicstripe_proto::{
    Event as SessionEvent, FailCode,
    message::{CloseCode, TreeBody},
    session::failure,
};

use super::Driver;
use crate::{
    report::error::Error,
    session::{inbox::Step, jobs::TargetLease, transfer::Running},
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
            SessionEvent::Disconnect(path) => self.disconnect(path),
            SessionEvent::Retire(path) => self.release(path),
            SessionEvent::Probe(candidate) => self.probe(candidate),
            SessionEvent::HoldRoutes(paths) => self.hold_routes(paths),
            SessionEvent::Announce(connections) => self.announce(connections),
            SessionEvent::GivenUp(path) => self.give_up_path(path),
            SessionEvent::PathChanged { path, status, loss } => {
                self.on_path_changed(path, &status, loss);
            }
            SessionEvent::Damaged { path, times, pause } => self.on_damaged(path, times, pause),
            SessionEvent::Requested(request) => self.on_requested(request, now),
            SessionEvent::TreeMessage(TreeBody { transfer, message }) => {
                self.act(transfer, |kind, _| kind.hear(message));
            }
            SessionEvent::Offered(offer) => self.on_offered(&offer),
            SessionEvent::Accepted {
                transfer,
                resumed_bytes,
                memory,
            } => {
                self.act(transfer, |kind, at| kind.on_accepted(memory, at));
                self.on_started(transfer, resumed_bytes, now);
            }
            SessionEvent::Released { transfer, chunk } => {
                let running = self.running.get_mut(transfer);
                if let Some(buffer) = running.and_then(Running::buffer_mut) {
                    buffer.chunks.remove(&chunk);
                }
            }
            SessionEvent::Sync { transfer, subtrees } => {
                self.record_mut(transfer, |record, _| record.sync_begun());
                if let Some(target) = self.target(transfer) {
                    let sync = move |target: &TargetLease| target.sync(subtrees);
                    self.jobs.step(transfer, Step::Synced, target, sync);
                }
            }
            SessionEvent::Holes { transfer, holes } => {
                if let Some(target) = self.target(transfer) {
                    let make = move |target: &TargetLease| target.make_holes(holes);
                    self.jobs.step(transfer, Step::HolesMade, target, make);
                }
            }
            SessionEvent::SourceRead { transfer, .. } => self.on_source_read(transfer),
            SessionEvent::Asked(ask) => self.serve_ask(ask),
            SessionEvent::Answered(answer) => self.on_answered(answer),
            SessionEvent::Bench(body) => {
                self.act_on_bench(now, |bench, tap| bench.on_message(body, tap));
            }
            SessionEvent::Completed(complete) => {
                if let Some(tally) = self.running.tally(complete.transfer) {
                    tally.on_peer_streams(&complete.streams);
                }
            }
            SessionEvent::Commit { transfer, digest } => match self.target(transfer) {
                Some(target) => self.jobs.commit(transfer, digest, target),
                None => self.end_stream(transfer, digest),
            },
            SessionEvent::Mismatch {
                transfer,
                received,
                sent,
            } => {
                if let Some(target) = self.target(transfer) {
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
            SessionEvent::Committed(committed) => self.on_peer_committed(committed),
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
                Self::end_waiting(&mut self.running, &mut self.asks, || Error::Abandoned {
                    host: host.clone(),
                    waited,
                });
                self.closing = Some(CloseCode::Cancelled);
            }
            SessionEvent::PeerInterfaces(interfaces) => {
                let shown = interfaces.into_iter().map(shown_interface).collect();
                self.session.handle_peer_interfaces(shown, now);
            }
            SessionEvent::Expected(connections) => {
                if let Some(service) = self.config.service.clone() {
                    service.expect(connections, self.jobs.handle());
                }
            }
            SessionEvent::Closed(code) => {
                let (host, why) = (&self.config.host, close_text(code));
                Self::end_waiting(&mut self.running, &mut self.asks, || {
                    Error::ended(host, &why)
                });
                self.closing = Some(code);
            }
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
