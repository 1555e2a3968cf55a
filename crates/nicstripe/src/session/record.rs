//! Log records of a daemon's transfers.

use std::{fmt::Display, sync::Arc, time::Instant};

use nicstripe_proto::TransferStats;

use crate::{
    report::metrics::{Meters, RunningTransfer, TransferDirection},
    text::logged::logged,
    wire::clock,
};

/// Record of one transfer in the log and the metrics of a daemon.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) direction: TransferDirection,
    pub(super) started_at: Instant,
    sync_started_at: Option<Instant>,
    /// `None` for a standalone file of a tree, which has no log record because the tree has one.
    job: Option<Job>,
}

/// Transfer that counts as running in the metrics until it is dropped.
#[derive(Debug)]
struct Job(Arc<Meters>);

impl Drop for Job {
    fn drop(&mut self) {
        self.0.job_ended();
    }
}

impl Record {
    pub(super) fn new(
        meters: &Arc<Meters>,
        name: impl Display,
        direction: TransferDirection,
        is_entry: bool,
    ) -> Self {
        let job = (!is_entry).then(|| {
            meters.job_begun();
            Job(meters.clone())
        });
        Self {
            name: logged(name).to_string(),
            direction,
            started_at: clock::now(),
            sync_started_at: None,
            job,
        }
    }

    pub(super) fn is_entry(&self) -> bool {
        self.job.is_none()
    }

    /// Adds the name of the file if the request named its parent directory.
    pub(super) fn complete_name(&mut self, file: &str) {
        if self.name.rsplit('/').next() != Some(file) {
            self.name = logged(format_args!("{}/{file}", self.name)).to_string();
        }
    }

    pub(super) fn sync_begun(&mut self) {
        self.sync_started_at.get_or_insert_with(clock::now);
    }

    pub(super) fn synced(&mut self, meters: &Meters) {
        if let Some(started_at) = self.sync_started_at.take() {
            meters.totals().syncs.observe(clock::now() - started_at);
        }
    }

    pub(super) fn running(&self, stats: &TransferStats) -> RunningTransfer {
        RunningTransfer {
            name: self.name.clone(),
            direction: self.direction,
            since: clock::now() - self.started_at,
            bytes: stats.resumed_bytes + stats.delivered_bytes,
            size: Some(stats.size).filter(|size| *size > 0),
        }
    }
}
