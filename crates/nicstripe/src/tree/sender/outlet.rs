//! What a sender gives to its session: parcels, and what became of entries.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    FailCode, Name,
    frame::MAX_PAYLOAD,
    name::printable,
    tree::{EntryFailure, EntryId, ParcelWriter, Record, Verdict},
};

use super::{
    Ended,
    ledger::{Kind, Told},
};
use crate::{
    file::{ChunkBuffer, FileError},
    tree::{
        EntryOutcome, FailedEntry, TreeReport,
        port::{SenderPort, WalkProgress},
    },
};

/// Shortest time between two tellings of progress.
const PROGRESS_PAUSE: Duration = Duration::from_millis(50);

/// Most characters of a peer's text that are kept.
const MOST_TEXT: usize = 1024;

/// The port, the parcel that is being filled, and the report.
pub(super) struct Outlet {
    port: Box<dyn SenderPort>,
    parcel: Option<(ChunkBuffer, usize)>,
    parcel_begun: Instant,
    list: bool,
    is_dry_run: bool,
    report: TreeReport,
    progress: WalkProgress,
    is_told: bool,
    told_at: Option<Instant>,
}

impl Outlet {
    pub(super) fn new(port: Box<dyn SenderPort>, list: bool, is_dry_run: bool) -> Self {
        let (report, progress) = (TreeReport::default(), WalkProgress::default());
        Self { port, parcel: None, parcel_begun: Instant::now(), list, is_dry_run, report, progress, is_told: true, told_at: None }
    }

    /// Bytes of memory that the receiver has for entries, as far as it says.
    pub(super) fn receivers_memory(&self) -> usize {
        self.port.receivers_memory().map_or(usize::MAX, |memory| usize::try_from(memory).unwrap_or(usize::MAX))
    }

    /// Puts a record into the parcel, if it fits.
    pub(super) fn try_push(&mut self, record: &Record<'_>) -> bool {
        let (mut buffer, len) = self.parcel.take().unwrap_or_else(|| {
            self.parcel_begun = Instant::now();
            (self.port.buffer(), 0)
        });
        let mut writer = ParcelWriter::new(buffer.bytes_mut(MAX_PAYLOAD), len);
        let fits = writer.push(record);
        let len = writer.len();
        self.parcel = Some((buffer, len));
        fits
    }

    /// Bytes that the parcel has left.
    pub(super) fn room(&self) -> usize {
        MAX_PAYLOAD - self.parcel.as_ref().map_or(0, |(_, len)| *len)
    }

    /// How long the parcel has been filled; `None` if there is nothing in it.
    pub(super) fn parcel_age(&self) -> Option<Duration> {
        self.parcel.as_ref().filter(|(_, len)| *len > 0).map(|_| self.parcel_begun.elapsed())
    }

    /// Sends the parcel.
    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        match self.parcel.take() {
            Some((mut buffer, len)) if len > 0 => {
                buffer.bytes_mut(len);
                still(self.port.send(buffer))
            }
            _ => Ok(()),
        }
    }

    /// Says that no parcel follows.
    pub(super) fn last(&mut self) -> Result<(), Ended> {
        still(self.port.last())
    }

    /// Starts a file's own transfer.
    pub(super) fn start_alone(&mut self, id: EntryId, size: u64) -> Result<(), Ended> {
        still(self.port.start_alone(id, size))
    }

    /// An entry was found.
    pub(super) fn found(&mut self, kind: Kind) {
        if kind.is_file() {
            self.progress.files += 1;
            self.progress.bytes += kind.size();
            self.is_told = false;
        }
    }

    /// So many entries are there without their set-user-ID and the like.
    pub(super) fn stripped(&mut self, count: u64) {
        self.report.stripped = self.report.stripped.saturating_add(count);
    }

    /// Something that is not copied was found.
    pub(super) fn special(&mut self, name: &Name) -> Result<(), Ended> {
        self.report.special += 1;
        if self.list { still(self.port.tell(name, EntryOutcome::Special)) } else { Ok(()) }
    }

    /// The receiver makes no such device.
    pub(super) fn left_out(&mut self, told: &Told) -> Result<(), Ended> {
        self.report.special += 1;
        self.tell(told, EntryOutcome::Special)
    }

    /// Everything was found.
    pub(super) fn complete(&mut self) {
        self.progress.complete = true;
        self.is_told = false;
    }

    /// An entry is in place; in a dry run, would be.
    pub(super) fn copied(&mut self, told: &Told, verdict: Verdict) -> Result<(), Ended> {
        let counter = match told.kind {
            Kind::File { .. } => &mut self.report.files,
            Kind::Directory => &mut self.report.directories,
            Kind::Symlink => &mut self.report.symlinks,
            Kind::HardLink => &mut self.report.hard_links,
            Kind::Node => &mut self.report.nodes,
        };
        *counter += 1;
        let bytes = told.kind.size();
        self.report.bytes += bytes;
        self.file_done(told, self.is_dry_run);
        self.tell(told, EntryOutcome::Copied { verdict, bytes })
    }

    /// An entry was there, or what is there is newer.
    pub(super) fn skipped(&mut self, told: &Told, verdict: Verdict) -> Result<(), Ended> {
        match (verdict, told.kind) {
            (_, Kind::Directory) => {}
            (Verdict::Newer, _) => self.report.newer += 1,
            (_, Kind::HardLink) => self.report.hard_links += 1,
            _ => self.report.unchanged += 1,
        }
        self.file_done(told, true);
        self.tell(told, EntryOutcome::Skipped(verdict))
    }

    fn file_done(&mut self, told: &Told, is_skipped: bool) {
        if told.kind.is_file() {
            self.progress.files_done += 1;
            self.is_told = false;
        }
        if is_skipped {
            self.will_not_be_sent(told);
        }
    }

    /// The bytes of an entry need not be sent, or cannot be.
    pub(super) fn will_not_be_sent(&mut self, told: &Told) {
        self.progress.skipped_bytes += told.kind.size();
        self.is_told = false;
    }

    /// An entry failed at the other end: its text is the peer's.
    pub(super) fn failed_there(&mut self, told: Option<&Told>, failure: &EntryFailure) -> Result<(), Ended> {
        let text: String = failure.text.chars().take(MOST_TEXT).collect();
        self.failed(told, failure.code, printable(text.as_bytes()))
    }

    /// An entry failed; the text is escaped.
    pub(super) fn failed(&mut self, told: Option<&Told>, code: FailCode, text: String) -> Result<(), Ended> {
        let name = told.map(|told| told.location.label()).unwrap_or_default();
        self.fail(told.and_then(|told| told.location.name().ok().flatten()), FailedEntry { name, code, text })
    }

    /// Something failed, whose name is told if it has one.
    pub(super) fn fail(&mut self, name: Option<Name>, failure: FailedEntry) -> Result<(), Ended> {
        let outcome = self.list.then(|| EntryOutcome::Failed { code: failure.code, text: failure.text.clone() });
        self.report.fail(failure);
        match (name, outcome) {
            (Some(name), Some(outcome)) => still(self.port.tell(&name, outcome)),
            _ => Ok(()),
        }
    }

    /// So many things were deleted whose names nobody here asks for.
    pub(super) fn deleted_unnamed(&mut self, count: u64) {
        self.report.deleted = self.report.deleted.saturating_add(count);
    }

    /// Something was deleted at the other end; in a dry run, would be.
    pub(super) fn deleted(&mut self, name: &Name) -> Result<(), Ended> {
        self.report.deleted += 1;
        if self.list { still(self.port.tell(name, EntryOutcome::Deleted)) } else { Ok(()) }
    }

    fn tell(&mut self, told: &Told, outcome: EntryOutcome) -> Result<(), Ended> {
        match told.location.name() {
            Ok(Some(name)) if self.list => still(self.port.tell(&name, outcome)),
            _ => Ok(()),
        }
    }

    /// Tells progress if there is some and it is time. Returns how long to wait until it is time.
    pub(super) fn progress(&mut self) -> Result<Option<Duration>, Ended> {
        if self.is_told {
            return Ok(None);
        }
        let wait = self.told_at.map_or(Duration::ZERO, |at| PROGRESS_PAUSE.saturating_sub(at.elapsed()));
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        (self.is_told, self.told_at) = (true, Some(Instant::now()));
        still(self.port.progress(self.progress)).map(|()| None)
    }

    /// Ends with what came of it.
    pub(super) fn finish(mut self, ended: Result<(), Ended>) {
        let result = match ended {
            Err(Ended::Stopped) => return,
            Err(Ended::Failed(error)) => Err(error),
            Ok(()) => Ok(std::mem::take(&mut self.report)),
        };
        if result.is_ok() && !self.is_told && !self.port.progress(self.progress) {
            return;
        }
        self.port.finish(result);
    }
}

/// A port that says no has nobody behind it.
fn still(is_open: bool) -> Result<(), Ended> {
    if is_open { Ok(()) } else { Err(Ended::Stopped) }
}

impl From<FileError> for Ended {
    fn from(error: FileError) -> Self {
        Self::Failed(error)
    }
}
