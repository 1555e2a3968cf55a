//! Reports of a daemon's session to its log and metrics.

use nicstripe_proto::message::CloseCode;

use super::{Driver, account::Account};
use crate::{
    report::{
        error::Error,
        metrics::{InterfaceBytes, PathCounts},
    },
    session::waiters::Outcome,
};

impl Driver {
    /// Reports to the metrics if a report is due.
    pub(super) fn report_now_and_then(&mut self) {
        if self.account.as_ref().is_some_and(Account::is_due) {
            self.report();
        }
    }

    /// Reports the session's paths, running transfers and bytes to the metrics.
    pub(super) fn report(&mut self) {
        let Some(account) = &mut self.account else {
            return;
        };
        let mut paths = PathCounts::default();
        let mut moved: Vec<(String, InterfaceBytes)> = Vec::new();
        for connection in self.connections.values_mut() {
            if !connection.retired {
                paths.count(&connection.state);
            }
            let bytes = std::mem::take(&mut connection.moved);
            moved.push((connection.plan.interface.clone(), bytes));
        }
        let running = account.transfers().into_iter();
        let repeated = running.map(|transfer| self.session.stats(transfer).repeated_bytes);
        account.report(paths, &moved, repeated.sum());
    }

    /// Reports to the metrics and logs the end of a daemon's session.
    ///
    /// A client closes its session when it has everything, so the close may overtake the end of its
    /// last transfer. Such a transfer counts as successful if all its data has arrived.
    pub(super) fn close_account(&mut self, code: CloseCode) {
        let open = self.account.as_ref().map(Account::transfers);
        for transfer in open.into_iter().flatten() {
            let stats = self.session.stats(transfer);
            let is_whole =
                stats.resumed_bytes + stats.unsent_bytes + stats.delivered_bytes >= stats.size;
            let done = Outcome {
                digest: None,
                size: stats.size,
                tree: None,
            };
            let cancelled = Error::Cancelled { resumable: true };
            let result = if code == CloseCode::Done && is_whole {
                Ok(done)
            } else {
                Err(cancelled)
            };
            self.account_mut(|account| account.ended(transfer, &result, &stats));
        }
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
