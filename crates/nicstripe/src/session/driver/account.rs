//! Log records and metrics of a daemon's session.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, FailCode, PathLoss, TokenBucket, TransferId, TransferStats,
    message::{AnswerKind, AskKind, CloseCode},
};

use super::Driver;
use crate::{
    report::{
        error::Error,
        event::LinkName,
        link_text::state_of,
        metrics::{
            InterfaceBytes, Live, MeterId, Meters, PathCounts, RunningLink, RunningSession,
            loss_word,
        },
    },
    session::{record::Record, serve::Serve, waiters::Outcome},
    text::logged::{logged, logged_error},
    wire::clock,
};

#[derive(Debug)]
pub(super) struct Account {
    pub(super) meters: Arc<Meters>,
    meter: MeterId,
    /// Name of the peer in the peers file, or the fingerprint of its key.
    peer: String,
    started_at: Instant,
    /// Bytes that ended transfers retransmitted or received twice.
    repeated_bytes: u64,
    /// Bytes retransmitted or received twice that are already reported to the metrics, including
    /// those of running transfers.
    reported_bytes: u64,
    /// Times and reasons of recent connection losses. Those within [`REPORT_INTERVAL`] of the
    /// session's end are part of the end and do not count as losses.
    lost: Vec<(Instant, PathLoss)>,
    /// Payload bytes of the whole session.
    moved: InterfaceBytes,
    transfers_done: u64,
    transfers_failed: u64,
    records: TokenBucket,
    /// Number of log records suppressed by the rate limit since the last summary.
    left_out: u64,
    reported_at: Instant,
}

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limit of log records per session: burst, and records per second. A peer that repeats
/// requests must not fill the disk.
const MOST_RECORDS: u32 = 20;
const RECORDS_PER_SECOND: u32 = 10;

impl Account {
    /// Logs the start of a daemon's session and registers it in the metrics. Returns `None` for a
    /// client, whose owner receives events instead.
    pub(super) fn begin(
        service: Option<&Arc<dyn Serve>>,
        peer: &str,
        now: Instant,
    ) -> Option<Self> {
        let meters = service?.meters().clone();
        tracing::info!(peer, "session begins");
        Some(Self {
            meter: meters.session_begun(),
            meters,
            peer: peer.to_owned(),
            started_at: now,
            repeated_bytes: 0,
            reported_bytes: 0,
            lost: Vec::new(),
            moved: InterfaceBytes::default(),
            transfers_done: 0,
            transfers_failed: 0,
            records: TokenBucket::new(MOST_RECORDS, RECORDS_PER_SECOND, now),
            left_out: 0,
            reported_at: now,
        })
    }

    /// Logs the result of a name request that changes a name. Does not log read-only requests.
    pub(super) fn answered(&mut self, ask: &AskKind, answer: &AnswerKind) {
        let (what, name) = match ask {
            AskKind::List { .. }
            | AskKind::Walk { .. }
            | AskKind::Stat { .. }
            | AskKind::Hash { .. }
            | AskKind::FetchKey
            | AskKind::Admit { .. }
            | AskKind::Facts { .. } => return,
            AskKind::Copy { .. } if matches!(answer, AnswerKind::Copied { copy: None, .. }) => {
                return;
            }
            AskKind::Concat { part: Some(_), .. } => return,
            AskKind::Concat { to, .. } => ("concat", logged(to).to_string()),
            AskKind::Fetch(_) if matches!(answer, AnswerKind::Copied { copy: None, .. }) => return,
            AskKind::Fetch(fetch) => ("fetch", logged(&fetch.put.name).to_string()),
            AskKind::Copy { from, to, .. } => {
                ("copy", logged(format_args!("{from} -> {to}")).to_string())
            }
            AskKind::RemoveMany { names, .. } => {
                let first = names.first().map(|name| logged(name).to_string());
                let others = names.len().saturating_sub(1);
                (
                    "remove",
                    format!("{} and {others} more", first.unwrap_or_default()),
                )
            }
            AskKind::Remove { name, .. } => ("remove", logged(name).to_string()),
            AskKind::Rename { from, to, .. } => {
                ("rename", logged(format_args!("{from} -> {to}")).to_string())
            }
            AskKind::MakeDir { name } => ("make_dir", logged(name).to_string()),
        };
        if !self.records.take(clock::now()) {
            self.left_out += 1;
            return;
        }
        self.report_excluded();
        match answer {
            AnswerKind::Failed { code, text } => {
                tracing::info!(peer = self.peer, what, %name, result = code.word(), error = %logged(text), "name not changed");
            }
            _ => tracing::info!(peer = self.peer, what, %name, "name changed"),
        }
    }

    /// Logs that the data of a transfer starts to move. `name` is the name of the file if it was
    /// not part of the request.
    pub(super) fn started(
        &mut self,
        transfer: TransferId,
        record: &mut Record,
        size: Option<u64>,
        resumed: u64,
        name: Option<&str>,
    ) {
        if let Some(name) = name {
            record.complete_name(name);
        }
        if self.may_record(record) {
            let (peer, name, direction) = (&self.peer, &record.name, record.direction.word());
            tracing::info!(peer, transfer = transfer.0, direction, %name, size_bytes = size, resumed_bytes = resumed, "transfer begins");
        }
    }

    pub(super) fn ended(
        &mut self,
        transfer: TransferId,
        record: &Record,
        result: &Result<Outcome, Error>,
        stats: &TransferStats,
    ) {
        self.repeated_bytes += stats.repeated_bytes;
        let ended = (record.direction, result_word(result));
        *self
            .meters
            .totals()
            .transfers_ended
            .entry(ended)
            .or_default() += 1;
        match result {
            Ok(_) => self.transfers_done += 1,
            Err(_) => self.transfers_failed += 1,
        }
        if self.may_record(record) {
            self.record_end(transfer, record, result, stats);
        }
    }

    fn record_end(
        &self,
        transfer: TransferId,
        record: &Record,
        result: &Result<Outcome, Error>,
        stats: &TransferStats,
    ) {
        let took = clock::now() - record.started_at;
        let (peer, name, direction, links) = (
            &self.peer,
            &record.name,
            record.direction.word(),
            stats.by_path.len(),
        );
        let (moved_bytes, seconds) = (
            stats.delivered_bytes,
            (took.as_secs_f64() * 1e3).round() / 1e3,
        );
        let rate_bps = BitRate::from_bytes_over(moved_bytes, took).0;
        match result {
            Ok(Outcome {
                tree: Some(tree), ..
            }) => tracing::info!(
                peer, transfer = transfer.0, direction, %name, files = tree.files, size_bytes = tree.bytes, failed_files = tree.failed,
                moved_bytes, seconds, rate_bps, links, "tree done"
            ),
            Ok(Outcome { digest, size, .. }) => tracing::info!(
                peer, transfer = transfer.0, direction, %name, size_bytes = size, moved_bytes, seconds, rate_bps, links,
                blake3 = digest.as_ref().map(tracing::field::display), "transfer done"
            ),
            // A client that looks at its target only now may find that nothing has changed.
            Err(error) if error.fail_code() == Some(FailCode::Exists) => tracing::info!(
                peer, transfer = transfer.0, direction, %name, result = result_word(result),
                error = %logged_error(error), "target exists"
            ),
            Err(error) => tracing::info!(
                peer, transfer = transfer.0, direction, %name, moved_bytes, seconds, links, result = result_word(result),
                error = %logged_error(error), "transfer failed"
            ),
        }
    }

    pub(super) fn path_lost(&mut self, loss: PathLoss) {
        self.lost.push((clock::now(), loss));
    }

    /// Adds the path losses that the session has survived for [`REPORT_INTERVAL`] to the metrics.
    fn count_losses(&mut self) {
        for (_, loss) in self
            .lost
            .extract_if(.., |(at, _)| clock::now() - *at >= REPORT_INTERVAL)
        {
            let mut totals = self.meters.totals();
            *totals.paths_lost.entry(loss_word(loss)).or_default() += 1;
        }
    }

    pub(super) fn closed(&mut self, code: CloseCode, links: usize) {
        let seconds = ((clock::now() - self.started_at).as_secs_f64() * 1e3).round() / 1e3;
        let (peer, reason) = (&self.peer, close_word(code));
        let InterfaceBytes {
            received: received_bytes,
            sent: sent_bytes,
        } = self.moved;
        let (transfers_done, transfers_failed) = (self.transfers_done, self.transfers_failed);
        tracing::info!(
            peer,
            reason,
            seconds,
            links,
            received_bytes,
            sent_bytes,
            transfers_done,
            transfers_failed,
            "session ends"
        );
        self.report_excluded();
    }

    /// Returns true if the rate limit allows a log record about this transfer, and counts the
    /// record. Returns false for standalone files of a tree.
    fn may_record(&mut self, record: &Record) -> bool {
        if record.is_entry() {
            return false;
        }
        let may = self.records.take(clock::now());
        self.left_out += u64::from(!may);
        if may {
            self.report_excluded();
        }
        may
    }

    fn report_excluded(&mut self) {
        if self.left_out > 0 {
            tracing::info!(
                peer = self.peer,
                records = self.left_out,
                "log limit reached: transfers not logged"
            );
            self.left_out = 0;
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.meters.session_ended(self.meter);
    }
}

impl Driver {
    /// Reports to the metrics if [`REPORT_INTERVAL`] has passed since the last report.
    pub(super) fn report_now_and_then(&mut self) {
        let is_due = |account: &Account| clock::now() - account.reported_at >= REPORT_INTERVAL;
        if self.account.as_ref().is_some_and(is_due) {
            self.report();
        }
    }

    /// Reports the session's paths, running transfers and bytes to the metrics.
    fn report(&mut self) {
        let Some(account) = &mut self.account else {
            return;
        };
        let mut paths = PathCounts::default();
        let mut moved: Vec<(String, InterfaceBytes)> = Vec::new();
        let mut links = Vec::new();
        let interval = clock::now() - account.reported_at;
        for (id, connection) in &mut self.connections {
            let Some(path) = self.session.path(*id) else {
                continue;
            };
            let plan = path.plan();
            let bytes = std::mem::take(&mut connection.moved);
            account.moved.received += bytes.received;
            account.moved.sent += bytes.sent;
            moved.push((plan.interface.clone(), bytes));
            if !path.is_retired() {
                let state = state_of(plan, &path.status());
                paths.count(&state);
                links.push(RunningLink {
                    link: LinkName::from(plan),
                    state,
                    received: BitRate::from_bytes_over(bytes.received, interval),
                    sent: BitRate::from_bytes_over(bytes.sent, interval),
                });
            }
        }
        let (mut count, mut transfers, mut repeated) = (0, Vec::new(), account.repeated_bytes);
        for (transfer, record) in self.running.records() {
            let stats = self.session.stats(transfer);
            count += 1;
            repeated += stats.repeated_bytes;
            if !record.is_entry() {
                transfers.push(record.running(&stats));
            }
        }
        let new = repeated.saturating_sub(account.reported_bytes);
        let live = Live {
            paths,
            transfers: count,
            session: Some(RunningSession {
                peer: account.peer.clone(),
                since: clock::now() - account.started_at,
                links,
                transfers,
            }),
        };
        account.meters.report(account.meter, live, &moved, new);
        account.reported_bytes = account.reported_bytes.max(repeated);
        account.count_losses();
        account.reported_at = clock::now();
    }

    /// Reports to the metrics and logs the end of a daemon's session.
    ///
    /// A client closes its session when it has everything, so the close may overtake the end of its
    /// last transfer. Such a transfer counts as successful if all its data has arrived.
    pub(super) fn close_account(&mut self, code: CloseCode) {
        let Some(mut account) = self.account.take() else {
            return;
        };
        for (transfer, record) in self.running.records_mut() {
            let Some(record) = record.take() else {
                continue;
            };
            let stats = self.session.stats(transfer);
            let is_whole =
                stats.resumed_bytes + stats.unsent_bytes + stats.delivered_bytes >= stats.size;
            let done = Outcome {
                digest: None,
                etag: None,
                size: stats.size,
                tree: None,
            };
            let result = if code == CloseCode::Done && is_whole {
                Ok(done)
            } else {
                Err(Error::Cancelled { resumable: true })
            };
            account.ended(transfer, &record, &result, &stats);
        }
        self.account = Some(account);
        self.report();
        let links = self
            .connections
            .values()
            .filter(|connection| connection.generation > 0)
            .count();
        if let Some(account) = &mut self.account {
            account.closed(code, links);
        }
    }
}

fn close_word(code: CloseCode) -> &'static str {
    match code {
        CloseCode::Done => "done",
        CloseCode::Cancelled => "cancelled",
        CloseCode::ShuttingDown => "shutting_down",
        CloseCode::RightsChanged => "rights_changed",
    }
}

fn result_word(result: &Result<Outcome, Error>) -> &'static str {
    match result {
        Ok(_) => "done",
        // Errors without a code come from the end of the session.
        Err(error) => error.fail_code().unwrap_or(FailCode::Cancelled).word(),
    }
}
