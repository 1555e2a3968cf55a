//! Output of a tree's receiver: verdicts in order, results, and events for the local user.

use std::{
    collections::{HashSet, VecDeque},
    time::Instant,
};

use nicstripe_proto::{
    FailCode, Name,
    name::printable,
    tree::{
        Content, Entry, EntryFailure, EntryId, LargeFile, Reason, TreeMessage, Trouble, Verdict,
        message::MOST_MESSAGE,
    },
};

use crate::{
    file::{FileError, Lost},
    text::logged::boundary,
    tree::{
        channel::{PROGRESS_PAUSE, ReceiverChannel, WalkProgress},
        halt::{Halt, breach},
        options::{EntryOutcome, FailedEntry, TreeReport},
    },
};

/// Queued verdicts and results of a tree's receiver.
///
/// A result waits for the verdict of its entry: the sender rejects results of undecided entries.
pub(super) struct Outbox {
    /// Names of special files that the sender has but does not copy. They are not deleted as
    /// surplus.
    specials: HashSet<Name>,
    /// Memory of `specials` in bytes, and its limit. Above the limit no file counts as surplus.
    special_bytes: usize,
    /// Memory of the report's large files in bytes.
    large_bytes: usize,
    most_special_bytes: usize,
    channel: Box<dyn ReceiverChannel>,
    list: bool,
    first_undecided: u64,
    verdicts: VecDeque<Option<Verdict>>,
    done: Vec<u64>,
    failed: Vec<EntryFailure>,
    failed_bytes: usize,
    deleted: Vec<Name>,
    /// Number of entries stored without privileged attributes that were not yet reported to the
    /// sender.
    stripped: u64,
    /// Counter of entries whose file system did not keep their attributes.
    pub(super) lost: Lost,
    progress_told: Option<Instant>,
    pub(super) report: TreeReport,
    pub(super) progress: WalkProgress,
}

impl Outbox {
    /// Creates an empty outbox. `most_special_bytes` limits the memory for names of special files.
    pub(super) fn new(
        channel: Box<dyn ReceiverChannel>,
        list: bool,
        most_special_bytes: usize,
    ) -> Self {
        Self {
            channel,
            list,
            first_undecided: 0,
            verdicts: VecDeque::new(),
            done: Vec::new(),
            failed: Vec::new(),
            failed_bytes: 0,
            deleted: Vec::new(),
            stripped: 0,
            lost: Lost::default(),
            progress_told: None,
            specials: HashSet::new(),
            special_bytes: 0,
            large_bytes: 0,
            most_special_bytes: most_special_bytes.min(MOST_SPECIAL_BYTES),
            report: TreeReport::default(),
            progress: WalkProgress::default(),
        }
    }

    pub(super) fn next_entry(&self) -> EntryId {
        EntryId(self.first_undecided + self.verdicts.len() as u64)
    }

    /// Adds the next entry to the queue; its verdict is still open.
    pub(super) fn expect_verdict(&mut self) {
        self.verdicts.push_back(None);
    }

    /// Returns the number of entries whose verdict has not been sent.
    pub(super) fn undecided(&self) -> usize {
        self.verdicts.len()
    }

    /// Returns the memory of queued failures and of the names of special files, in bytes.
    pub(super) fn footprint(&self) -> usize {
        self.failed_bytes + self.special_bytes
    }

    pub(super) fn decide(&mut self, id: EntryId, verdict: Verdict) {
        let index =
            id.0.checked_sub(self.first_undecided)
                .and_then(|index| usize::try_from(index).ok());
        if let Some(slot) = index.and_then(|index| self.verdicts.get_mut(index)) {
            *slot = Some(verdict);
        }
    }

    /// Counts a file that need not be sent in the progress.
    pub(super) fn skip_file(&mut self, entry: &Entry) {
        if let Content::File { size, .. } = entry.content {
            self.progress.files_done += 1;
            self.progress.skipped_bytes = self.progress.skipped_bytes.saturating_add(size);
        }
    }

    /// Counts and reports a file that was received, or would be in a dry run.
    pub(super) fn copied_file(
        &mut self,
        name: Option<Name>,
        verdict: Verdict,
        bytes: u64,
    ) -> Result<(), Halt> {
        self.report.files += 1;
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        self.progress.files_done += 1;
        self.tell(name, EntryOutcome::Copied { verdict, bytes })
    }

    pub(super) fn done(&mut self, id: EntryId) {
        self.done.push(id.0);
    }

    /// Counts a failure and queues it for the sender. `id` is `None` if the sender expects no
    /// result for the entry.
    pub(super) fn fail(
        &mut self,
        id: Option<EntryId>,
        name: Option<Name>,
        error: &FileError,
    ) -> Result<(), Halt> {
        let text = cut(error.one_line());
        self.failed_bytes += size_of::<EntryFailure>() + text.len();
        self.failed.push(EntryFailure {
            id,
            code: error.code,
            text: text.clone(),
        });
        self.note_failure(name, error.code, text)
    }

    /// Counts a failure that the sender already knows, and reports it to the local user.
    pub(super) fn note_failure(
        &mut self,
        name: Option<Name>,
        code: FailCode,
        text: String,
    ) -> Result<(), Halt> {
        let shown = name.as_ref().map(Name::to_string).unwrap_or_default();
        self.note(shown, name, code, text)
    }

    /// Counts a file that the sender cannot send, and reports it to the local user.
    pub(super) fn trouble(&mut self, trouble: Trouble) -> Result<(), Halt> {
        let shown = match (&trouble.name, trouble.label) {
            (Some(name), _) => name.to_string(),
            (None, label) => cut(printable(label.unwrap_or_default().as_bytes())),
        };
        let text = announced(&trouble.reason);
        self.note(shown, trouble.name, trouble.reason.code, text)
    }

    fn note(
        &mut self,
        shown: String,
        name: Option<Name>,
        code: FailCode,
        text: String,
    ) -> Result<(), Halt> {
        self.report.fail(FailedEntry {
            name: shown,
            code,
            text: text.clone(),
        });
        self.tell(name, EntryOutcome::Failed { code, text })
    }

    /// Records a special file of the sender that is not copied, so that it is not deleted as
    /// surplus.
    pub(super) fn special(&mut self, name: Name) -> Result<(), Halt> {
        self.report.special += 1;
        let bytes = SPECIAL_BYTES + bytes_of(&name);
        if self.special_bytes <= self.most_special_bytes && self.specials.insert(name.clone()) {
            self.special_bytes += bytes;
        }
        self.tell(Some(name), EntryOutcome::Special)
    }

    /// Records a large file whose pieces the caller copies.
    pub(super) fn large(&mut self, name: Name, large: LargeFile) -> Result<(), Halt> {
        self.large_bytes += SPECIAL_BYTES + bytes_of(&name) + large.footprint();
        if self.large_bytes > MOST_LARGE_BYTES {
            let most = MOST_LARGE_BYTES >> 20;
            breach!("peer exceeded the limit of {most} MiB for large files in a share");
        }
        self.report.large.push((name, large));
        Ok(())
    }

    /// Returns true if the sender has a special file of this name that is not copied, or has too
    /// many of them to remember.
    pub(super) fn is_special(&self, name: &Name) -> bool {
        self.special_bytes > self.most_special_bytes || self.specials.contains(name)
    }

    /// Counts entries stored without some of the requested attributes.
    pub(super) fn stripped(&mut self, count: u64) {
        self.report.stripped += count;
        self.stripped += count;
    }

    pub(super) fn deleted(&mut self, name: Name) -> Result<(), Halt> {
        self.report.deleted += 1;
        self.deleted.push(name.clone());
        self.tell(Some(name), EntryOutcome::Deleted)?;
        if self.deleted.len() >= MOST_UNTOLD_DELETED {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Reports the outcome of an entry to the local user.
    pub(super) fn tell(&mut self, name: Option<Name>, outcome: EntryOutcome) -> Result<(), Halt> {
        match name {
            Some(name) if self.list => Halt::unless(self.channel.tell(&name, outcome)),
            _ => Ok(()),
        }
    }

    pub(super) fn consumed(&mut self) -> Result<(), Halt> {
        Halt::unless(self.channel.consumed())
    }

    pub(super) fn start_standalone(&mut self, id: EntryId, size: u64) -> Result<(), Halt> {
        // The sender must learn that the file is wanted before the transfer is requested.
        self.flush()?;
        Halt::unless(self.channel.start_standalone(id, size))
    }

    /// Sends all verdicts and results that are ready.
    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        self.flush_verdicts()?;
        self.flush_results()?;
        if self
            .progress_told
            .is_none_or(|announced| announced.elapsed() >= PROGRESS_PAUSE)
        {
            self.report_progress()?;
        }
        Ok(())
    }

    pub(super) fn report_progress(&mut self) -> Result<(), Halt> {
        self.progress_told = Some(Instant::now());
        Halt::unless(self.channel.progress(self.progress))
    }

    fn flush_verdicts(&mut self) -> Result<(), Halt> {
        let count = self
            .verdicts
            .iter()
            .take_while(|verdict| verdict.is_some())
            .count();
        let verdicts: Vec<Verdict> = self.verdicts.drain(..count).flatten().collect();
        for part in verdicts.chunks(MOST_VERDICTS) {
            let message = TreeMessage::Verdicts {
                first: EntryId(self.first_undecided),
                verdicts: part.to_vec(),
            };
            self.first_undecided += part.len() as u64;
            Halt::unless(self.channel.send(message))?;
        }
        Ok(())
    }

    fn flush_results(&mut self) -> Result<(), Halt> {
        let lost = self.lost.take();
        self.stripped(lost);
        let first_undecided = self.first_undecided;
        let (mut done, later): (Vec<u64>, Vec<u64>) = std::mem::take(&mut self.done)
            .into_iter()
            .partition(|id| *id < first_undecided);
        self.done = later;
        done.sort_unstable();
        let is_known = |failure: &EntryFailure| failure.id.is_none_or(|id| id.0 < first_undecided);
        let (failed, later) = std::mem::take(&mut self.failed)
            .into_iter()
            .partition(is_known);
        self.failed = later;
        self.failed_bytes = self
            .failed
            .iter()
            .map(|failure| size_of::<EntryFailure>() + failure.text.len())
            .sum();

        let mut message = Results::default();
        for (first, count) in ranges(&done) {
            self.add(&mut message, RANGE_LEN, |message| {
                message.done.push((EntryId(first), count));
            })?;
        }
        for failure in Vec::into_iter(failed) {
            self.add(&mut message, failure.text.len() + FAILURE_LEN, |message| {
                message.failed.push(failure);
            })?;
        }
        for name in std::mem::take(&mut self.deleted) {
            let len = name
                .components()
                .map(|component| component.len() + COMPONENT_LEN)
                .sum::<usize>()
                + COMPONENT_LEN;
            self.add(&mut message, len, |message| message.deleted.push(name))?;
        }
        let stripped = std::mem::take(&mut self.stripped);
        if stripped > 0 {
            self.add(&mut message, NUMBER_LEN, |message| {
                message.stripped = Some(stripped);
            })?;
        }
        self.send_results(&mut message)
    }

    /// Adds a result of `len` bytes to the message; sends the message first if the result does not
    /// fit.
    fn add(
        &mut self,
        message: &mut Results,
        len: usize,
        put: impl FnOnce(&mut Results),
    ) -> Result<(), Halt> {
        if message.len + len > MOST_MESSAGE - MESSAGE_LEN {
            self.send_results(message)?;
        }
        message.len += len;
        put(message);
        Ok(())
    }

    fn send_results(&mut self, message: &mut Results) -> Result<(), Halt> {
        let Results {
            len,
            done,
            failed,
            deleted,
            stripped,
        } = std::mem::take(message);
        if len == 0 {
            return Ok(());
        }
        Halt::unless(self.channel.send(TreeMessage::Results {
            done,
            failed,
            deleted,
            stripped,
        }))
    }

    pub(super) fn finish(mut self, result: Result<(), FileError>) {
        let lost = self.lost.take();
        self.stripped(lost);
        let report = self.report;
        self.channel.finish(result.map(|()| report));
    }
}

/// Message with the results of entries, being assembled.
#[derive(Default)]
struct Results {
    /// Upper bound of the message's CBOR size in bytes, without the fields around the lists.
    len: usize,
    done: Vec<(EntryId, u64)>,
    failed: Vec<EntryFailure>,
    deleted: Vec<Name>,
    stripped: Option<u64>,
}

/// Returns the ranges of consecutive numbers in a sorted list, each as its first number and its
/// length.
fn ranges(sorted: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &id in sorted {
        match ranges.last_mut() {
            Some((first, count)) if *first + *count == id => *count += 1,
            _ => ranges.push((id, 1)),
        }
    }
    ranges
}

/// Truncates a text to [`MOST_TEXT`] bytes, at a character boundary.
fn cut(mut text: String) -> String {
    text.truncate(boundary(&text, MOST_TEXT));
    text
}

/// Maximum number of verdicts in a message: each takes one byte.
const MOST_VERDICTS: usize = MOST_MESSAGE - MESSAGE_LEN;

/// Upper bound of the size of the CBOR fields around the lists of a message, in bytes.
const MESSAGE_LEN: usize = 64;

/// Maximum length of a CBOR number in bytes.
const NUMBER_LEN: usize = 9;

/// Maximum length of a CBOR range in bytes: two numbers of 9 bytes and the array's head.
const RANGE_LEN: usize = 19;

/// Maximum length of a failure in bytes without its text: map, keys, number, code, text length.
const FAILURE_LEN: usize = 24;

/// Maximum length of the CBOR head of a name's component or of a list, in bytes.
const COMPONENT_LEN: usize = 3;

/// Maximum length of a failure's text in bytes, see [`EntryFailure::text`].
const MOST_TEXT: usize = 1024;

/// Maximum number of queued names of deleted files. The receiver sends them when the queue is full.
const MOST_UNTOLD_DELETED: usize = 256;

/// Returns the memory of a recorded name in bytes, without that of its record.
fn bytes_of(name: &Name) -> usize {
    name.components()
        .map(|component| component.len() + COMPONENT_BYTES)
        .sum()
}

/// Returns the text of a failure that the sender reported, escaped and truncated.
pub(super) fn announced(reason: &Reason) -> String {
    cut(printable(reason.text.as_bytes()))
}

/// Maximum memory of the large files of a share in bytes: some 200,000 of 1 GiB in 8 shares.
const MOST_LARGE_BYTES: usize = 64 << 20;

/// Limit on the memory of recorded names of special files in bytes: 65,536 names.
const MOST_SPECIAL_BYTES: usize = 8 << 20;

/// Approximate memory overhead in bytes of a recorded name of a special file (`SPECIAL_BYTES`), and
/// of each of its components.
const SPECIAL_BYTES: usize = 64;
const COMPONENT_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_one_range() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), [(0, 3), (5, 1), (7, 2)]);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("ä".repeat(600)).len(), 1024);
        assert_eq!(cut("a".to_owned() + &"ä".repeat(600)).len(), 1023);
    }
}
