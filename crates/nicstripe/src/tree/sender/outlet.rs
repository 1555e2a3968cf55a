//! Output of a tree's sender: batches, outcomes of entries and the report.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    FailCode, Name,
    frame::MAX_PAYLOAD,
    name::printable,
    tree::{BatchWriter, EntryFailure, EntryId, LargeFile, Record, Verdict},
};

use super::{
    Halt, SenderRequest,
    ledger::{Announced, Kind},
};
use crate::{
    file::ChunkBuffer,
    tree::{
        channel::{PROGRESS_PAUSE, SenderChannel, WalkProgress},
        options::{EntryOutcome, FailedEntry, TreeReport},
    },
};

/// Maximum number of characters kept of an error message from the peer.
const MOST_TEXT: usize = 1024;

/// Output of a tree's sender: the channel, the batch being filled, and the report.
pub(super) struct Outlet {
    channel: Box<dyn SenderChannel>,
    batch: Option<(ChunkBuffer, usize)>,
    batch_begun: Instant,
    list: bool,
    reports_large: bool,
    is_dry_run: bool,
    report: TreeReport,
    progress: WalkProgress,
    is_told: bool,
    told_at: Option<Instant>,
}

impl Outlet {
    pub(super) fn new(channel: Box<dyn SenderChannel>, request: &SenderRequest) -> Self {
        let (report, progress) = (TreeReport::default(), WalkProgress::default());
        Self {
            channel,
            batch: None,
            batch_begun: Instant::now(),
            list: request.list,
            reports_large: request.reports_large,
            is_dry_run: request.rules.dry_run,
            report,
            progress,
            is_told: true,
            told_at: None,
        }
    }

    /// Returns the memory limit for entries that the receiver announced, in bytes; unlimited if it
    /// announced none.
    pub(super) fn receivers_memory(&self) -> usize {
        self.channel
            .receivers_memory()
            .map_or(usize::MAX, |memory| {
                usize::try_from(memory).unwrap_or(usize::MAX)
            })
    }

    /// Adds a record to the current batch; returns false if it does not fit.
    pub(super) fn try_push(&mut self, record: &Record<'_>) -> bool {
        let (mut buffer, len) = self.batch.take().unwrap_or_else(|| {
            self.batch_begun = Instant::now();
            (self.channel.buffer(), 0)
        });
        let mut writer = BatchWriter::new(buffer.bytes_mut(MAX_PAYLOAD), len);
        let fits = writer.push(record);
        let len = writer.len();
        self.batch = Some((buffer, len));
        fits
    }

    pub(super) fn room(&self) -> usize {
        MAX_PAYLOAD - self.batch.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Returns the time since the first record of the current batch; `None` if no batch is begun.
    pub(super) fn batch_age(&self) -> Option<Duration> {
        self.batch
            .as_ref()
            .filter(|(_, len)| *len > 0)
            .map(|_| self.batch_begun.elapsed())
    }

    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        match self.batch.take() {
            Some((mut buffer, len)) if len > 0 => {
                buffer.bytes_mut(len);
                Halt::unless(self.channel.send(buffer))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn last(&mut self) -> Result<(), Halt> {
        Halt::unless(self.channel.last())
    }

    pub(super) fn start_standalone(&mut self, id: EntryId, size: u64) -> Result<(), Halt> {
        Halt::unless(self.channel.start_standalone(id, size))
    }

    pub(super) fn found(&mut self, kind: Kind) {
        if kind.is_file() {
            self.progress.files += 1;
            self.progress.bytes += kind.size();
            self.is_told = false;
        }
    }

    /// Counts entries stored without set-user-ID bits or other privileged attributes.
    pub(super) fn stripped(&mut self, count: u64) {
        self.report.stripped = self.report.stripped.saturating_add(count);
    }

    /// Counts and reports a special file that is not copied, or that the receiver skips.
    pub(super) fn special(&mut self, name: Option<&Name>) -> Result<(), Halt> {
        self.report.special += 1;
        self.tell(name, EntryOutcome::Special)
    }

    /// Reports a large file whose pieces the caller copies. A daemon keeps none: a peer could make
    /// millions of them, without content.
    pub(super) fn large(&mut self, name: Name, large: LargeFile) {
        if self.reports_large {
            self.report.large.push((name, large));
        }
    }

    pub(super) fn complete(&mut self) {
        self.progress.complete = true;
        self.is_told = false;
    }

    /// Counts and reports an entry that was copied, or would be in a dry run.
    pub(super) fn copied(&mut self, announced: &Announced, verdict: Verdict) -> Result<(), Halt> {
        let counter = match announced.kind {
            Kind::File { .. } => &mut self.report.files,
            Kind::Directory => &mut self.report.directories,
            Kind::Symlink => &mut self.report.symlinks,
            Kind::HardLink => &mut self.report.hard_links,
            Kind::Node => &mut self.report.nodes,
        };
        *counter += 1;
        let bytes = announced.kind.size();
        self.report.bytes += bytes;
        self.file_done(announced, self.is_dry_run);
        let outcome = EntryOutcome::Copied { verdict, bytes };
        self.tell(announced.name().as_ref(), outcome)
    }

    /// Counts and reports an entry that is unchanged or newer at the receiver.
    pub(super) fn skipped(&mut self, announced: &Announced, verdict: Verdict) -> Result<(), Halt> {
        match (verdict, announced.kind) {
            (_, Kind::Directory) => {}
            (Verdict::Newer, _) => self.report.newer += 1,
            _ => self.report.unchanged += 1,
        }
        self.file_done(announced, true);
        self.tell(announced.name().as_ref(), EntryOutcome::Skipped(verdict))
    }

    fn file_done(&mut self, announced: &Announced, is_skipped: bool) {
        if announced.kind.is_file() {
            self.progress.files_done += 1;
            self.is_told = false;
        }
        if is_skipped {
            self.will_not_be_sent(announced);
        }
    }

    /// Counts the size of an entry that will not be sent in the progress.
    pub(super) fn will_not_be_sent(&mut self, announced: &Announced) {
        self.progress.skipped_bytes += announced.kind.size();
        self.is_told = false;
    }

    /// Counts and reports a failure that the receiver announced. Escapes the peer's text.
    pub(super) fn failed_there(
        &mut self,
        announced: Option<&Announced>,
        failure: &EntryFailure,
    ) -> Result<(), Halt> {
        let text: String = failure.text.chars().take(MOST_TEXT).collect();
        self.failed(announced, failure.code, printable(text.as_bytes()))
    }

    /// Counts and reports a failed entry; `text` is already escaped.
    pub(super) fn failed(
        &mut self,
        announced: Option<&Announced>,
        code: FailCode,
        text: String,
    ) -> Result<(), Halt> {
        let name = announced
            .map(|announced| announced.location.label())
            .unwrap_or_default();
        self.fail(
            announced.and_then(Announced::name),
            FailedEntry { name, code, text },
        )
    }

    /// Counts a failure, and reports its entry if it has a name.
    pub(super) fn fail(&mut self, name: Option<Name>, failure: FailedEntry) -> Result<(), Halt> {
        let outcome = EntryOutcome::Failed {
            code: failure.code,
            text: failure.text.clone(),
        };
        self.report.fail(failure);
        self.tell(name.as_ref(), outcome)
    }

    /// Counts deletions at the receiver whose names the local user does not need.
    pub(super) fn deleted_unnamed(&mut self, count: u64) {
        self.report.deleted = self.report.deleted.saturating_add(count);
    }

    /// Counts and reports a deletion at the receiver, or one that a dry run would do.
    pub(super) fn deleted(&mut self, name: &Name) -> Result<(), Halt> {
        self.report.deleted += 1;
        self.tell(Some(name), EntryOutcome::Deleted)
    }

    fn tell(&mut self, name: Option<&Name>, outcome: EntryOutcome) -> Result<(), Halt> {
        match name {
            Some(name) if self.list => Halt::unless(self.channel.tell(name, outcome)),
            _ => Ok(()),
        }
    }

    /// Reports progress if it changed and [`PROGRESS_PAUSE`] has elapsed. Returns the remaining
    /// time if it has not.
    pub(super) fn progress(&mut self) -> Result<Option<Duration>, Halt> {
        if self.is_told {
            return Ok(None);
        }
        let wait = self.told_at.map_or(Duration::ZERO, |at| {
            PROGRESS_PAUSE.saturating_sub(at.elapsed())
        });
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        (self.is_told, self.told_at) = (true, Some(Instant::now()));
        Halt::unless(self.channel.progress(self.progress)).map(|()| None)
    }

    pub(super) fn finish(mut self, ended: Result<(), Halt>) {
        let result = match ended {
            Err(Halt::Stopped) => return,
            Err(Halt::Failed(error)) => Err(error),
            Ok(()) => Ok(std::mem::take(&mut self.report)),
        };
        if result.is_ok() && !self.is_told && !self.channel.progress(self.progress) {
            return;
        }
        self.channel.finish(result);
    }
}
