//! What the receiver tells: verdicts in their order, results, and its own user.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    FailCode, Name,
    name::printable,
    tree::{EntryFailure, EntryId, Reason, TreeMessage, Trouble, Verdict, message::MOST_MESSAGE},
};

use super::Halt;
use crate::{
    file::FileError,
    tree::{
        EntryOutcome, FailedEntry, TreeReport,
        port::{ReceiverPort, WalkProgress},
    },
};

/// What is to be told, until it is.
///
/// A result waits for the verdict of its entry: the sender knows nothing of a result before.
pub(super) struct Outbox {
    /// What the sender has and is not copied: no surplus.
    specials: HashSet<Name>,
    /// Bytes of these, and most that are kept: beyond, nothing is surplus.
    special_bytes: usize,
    most_special_bytes: usize,
    port: Box<dyn ReceiverPort>,
    list: bool,
    first_untold: u64,
    verdicts: VecDeque<Option<Verdict>>,
    done: Vec<u64>,
    failed: Vec<EntryFailure>,
    failed_bytes: usize,
    deleted: Vec<Name>,
    /// Counted in the report, and not told.
    stripped: u64,
    progress_told: Option<Instant>,
    /// What became of the tree so far.
    pub(super) report: TreeReport,
    /// How far it is.
    pub(super) progress: WalkProgress,
}

impl Outbox {
    /// Begins; names of what is not copied may take so many bytes.
    pub(super) fn new(port: Box<dyn ReceiverPort>, list: bool, most_special_bytes: usize) -> Self {
        Self {
            port,
            list,
            first_untold: 0,
            verdicts: VecDeque::new(),
            done: Vec::new(),
            failed: Vec::new(),
            failed_bytes: 0,
            deleted: Vec::new(),
            stripped: 0,
            progress_told: None,
            specials: HashSet::new(),
            special_bytes: 0,
            most_special_bytes: most_special_bytes.min(MOST_SPECIAL_BYTES),
            report: TreeReport::default(),
            progress: WalkProgress::default(),
        }
    }

    /// Another entry was told.
    pub(super) fn expect_verdict(&mut self) {
        self.verdicts.push_back(None);
    }

    /// Entries whose verdict was not told.
    pub(super) fn untold(&self) -> usize {
        self.verdicts.len()
    }

    /// Bytes of what is kept of entries until it is told, or for good.
    pub(super) fn kept(&self) -> usize {
        self.failed_bytes + self.special_bytes
    }

    /// Sets the verdict of an entry.
    pub(super) fn decide(&mut self, id: EntryId, verdict: Verdict) {
        let index = id.0.checked_sub(self.first_untold).and_then(|index| usize::try_from(index).ok());
        if let Some(slot) = index.and_then(|index| self.verdicts.get_mut(index)) {
            *slot = Some(verdict);
        }
    }

    /// A wanted entry is in place.
    pub(super) fn done(&mut self, id: EntryId) {
        self.done.push(id.0);
    }

    /// Something failed. Results tell it; `id` is `None` where the sender does not wait for a result of it.
    pub(super) fn fail(&mut self, id: Option<EntryId>, name: Option<Name>, error: &FileError) -> Result<(), Halt> {
        let text = cut(error.one_line());
        self.failed_bytes += size_of::<EntryFailure>() + text.len();
        self.failed.push(EntryFailure { id, code: error.code, text: text.clone() });
        self.note_failure(name, error.code, text)
    }

    /// Something failed that the sender knows of.
    pub(super) fn note_failure(&mut self, name: Option<Name>, code: FailCode, text: String) -> Result<(), Halt> {
        let shown = name.as_ref().map(Name::to_string).unwrap_or_default();
        self.note(shown, name, code, text)
    }

    /// The sender came upon something that it cannot send.
    pub(super) fn trouble(&mut self, trouble: Trouble) -> Result<(), Halt> {
        let Trouble { name, reason, label } = trouble;
        let label = || label.map(|label| cut(printable(label.as_bytes())));
        let shown = name.as_ref().map(Name::to_string).or_else(label).unwrap_or_default();
        self.note(shown, name, reason.code, told(&reason))
    }

    fn note(&mut self, shown: String, name: Option<Name>, code: FailCode, text: String) -> Result<(), Halt> {
        self.report.fail(FailedEntry { name: shown, code, text: text.clone() });
        self.tell(name, EntryOutcome::Failed { code, text })
    }

    /// The sender came upon something that is not copied.
    pub(super) fn special(&mut self, name: Name) -> Result<(), Halt> {
        self.report.special += 1;
        let bytes = SPECIAL_BYTES + name.components().map(|component| component.len() + COMPONENT_BYTES).sum::<usize>();
        if self.special_bytes <= self.most_special_bytes && self.specials.insert(name.clone()) {
            self.special_bytes += bytes;
        }
        self.tell(Some(name), EntryOutcome::Special)
    }

    /// Whether the sender has something of that name, which is not copied; said of all names where there are too many of these.
    pub(super) fn is_special(&self, name: &Name) -> bool {
        self.special_bytes > self.most_special_bytes || self.specials.contains(name)
    }

    /// An entry does not get set-user-ID and the like from this sender.
    pub(super) fn stripped(&mut self) {
        self.report.stripped += 1;
        self.stripped += 1;
    }

    /// Something was deleted, or would be.
    pub(super) fn deleted(&mut self, name: Name) -> Result<(), Halt> {
        self.report.deleted += 1;
        self.deleted.push(name.clone());
        self.tell(Some(name), EntryOutcome::Deleted)?;
        if self.deleted.len() >= MOST_UNTOLD_DELETED { self.flush() } else { Ok(()) }
    }

    /// Tells the user what became of an entry.
    pub(super) fn tell(&mut self, name: Option<Name>, outcome: EntryOutcome) -> Result<(), Halt> {
        match name {
            Some(name) if self.list => go_on(self.port.tell(&name, outcome)),
            _ => Ok(()),
        }
    }

    /// Another parcel may come.
    pub(super) fn consumed(&mut self) -> Result<(), Halt> {
        go_on(self.port.consumed())
    }

    /// A file becomes a transfer of its own.
    pub(super) fn start_alone(&mut self, id: EntryId, size: u64) -> Result<(), Halt> {
        // The sender has to know that it is wanted before it is asked for.
        self.flush()?;
        go_on(self.port.start_alone(id, size))
    }

    /// Sends what can be sent.
    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        self.flush_verdicts()?;
        self.flush_results()?;
        if self.progress_told.is_none_or(|told| told.elapsed() >= PROGRESS_PAUSE) {
            self.tell_progress()?;
        }
        Ok(())
    }

    pub(super) fn tell_progress(&mut self) -> Result<(), Halt> {
        self.progress_told = Some(Instant::now());
        go_on(self.port.progress(self.progress))
    }

    fn flush_verdicts(&mut self) -> Result<(), Halt> {
        let count = self.verdicts.iter().take_while(|verdict| verdict.is_some()).count();
        let verdicts: Vec<Verdict> = self.verdicts.drain(..count).flatten().collect();
        for part in verdicts.chunks(MOST_VERDICTS) {
            let message = TreeMessage::Verdicts { first: EntryId(self.first_untold), verdicts: part.to_vec() };
            self.first_untold += part.len() as u64;
            go_on(self.port.send(message))?;
        }
        Ok(())
    }

    fn flush_results(&mut self) -> Result<(), Halt> {
        let first_untold = self.first_untold;
        let (mut done, later): (Vec<u64>, Vec<u64>) = std::mem::take(&mut self.done).into_iter().partition(|id| *id < first_untold);
        self.done = later;
        done.sort_unstable();
        let is_known = |failure: &EntryFailure| failure.id.is_none_or(|id| id.0 < first_untold);
        let (failed, later) = std::mem::take(&mut self.failed).into_iter().partition(is_known);
        self.failed = later;
        self.failed_bytes = self.failed.iter().map(|failure| size_of::<EntryFailure>() + failure.text.len()).sum();

        let mut message = Results::default();
        for (first, count) in ranges(&done) {
            self.add(&mut message, RANGE_LEN, |message| message.done.push((EntryId(first), count)))?;
        }
        for failure in Vec::into_iter(failed) {
            self.add(&mut message, failure.text.len() + FAILURE_LEN, |message| message.failed.push(failure))?;
        }
        for name in std::mem::take(&mut self.deleted) {
            let len = name.components().map(|component| component.len() + COMPONENT_LEN).sum::<usize>() + COMPONENT_LEN;
            self.add(&mut message, len, |message| message.deleted.push(name))?;
        }
        let stripped = std::mem::take(&mut self.stripped);
        if stripped > 0 {
            self.add(&mut message, NUMBER_LEN, |message| message.stripped = Some(stripped))?;
        }
        self.send_results(&mut message)
    }

    /// Puts `len` bytes more into a message, and sends it first where they would not fit.
    fn add(&mut self, message: &mut Results, len: usize, put: impl FnOnce(&mut Results)) -> Result<(), Halt> {
        if message.len + len > MOST_MESSAGE - MESSAGE_LEN {
            self.send_results(message)?;
        }
        message.len += len;
        put(message);
        Ok(())
    }

    fn send_results(&mut self, message: &mut Results) -> Result<(), Halt> {
        let Results { len, done, failed, deleted, stripped } = std::mem::take(message);
        if len == 0 {
            return Ok(());
        }
        go_on(self.port.send(TreeMessage::Results { done, failed, deleted, stripped }))
    }

    /// Tells the end, well or not.
    pub(super) fn finish(self, result: Result<(), FileError>) {
        let report = self.report;
        self.port.finish(result.map(|()| report));
    }
}

/// A message of results that is being filled.
#[derive(Default)]
struct Results {
    /// Most bytes that it takes in CBOR, without what is around the lists.
    len: usize,
    done: Vec<(EntryId, u64)>,
    failed: Vec<EntryFailure>,
    deleted: Vec<Name>,
    stripped: Option<u64>,
}

fn go_on(is_open: bool) -> Result<(), Halt> {
    if is_open { Ok(()) } else { Err(Halt::Stopped) }
}

/// Ranges of sorted numbers: the first, and how many.
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

/// Cuts a text to [`MOST_TEXT`] bytes, at a character.
fn cut(mut text: String) -> String {
    if text.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
    }
    text
}

/// Verdicts in one message: a byte each, and room for what is around them.
const MOST_VERDICTS: usize = MOST_MESSAGE - MESSAGE_LEN;

/// Bytes of CBOR around the lists of a message, generously.
const MESSAGE_LEN: usize = 64;

/// Most bytes of a number.
const NUMBER_LEN: usize = 9;

/// Most bytes of a range: two numbers of 9 bytes and the array's head.
const RANGE_LEN: usize = 19;

/// Most bytes of a failure besides its text: map, keys, number, code, length of the text.
const FAILURE_LEN: usize = 24;

/// Most bytes of a component besides its own, or of a list's head.
const COMPONENT_LEN: usize = 3;

/// Most bytes of a failure's text; see [`EntryFailure::text`].
const MOST_TEXT: usize = 1024;

/// Names of deleted things that are kept until they are sent.
const MOST_UNTOLD_DELETED: usize = 256;

/// Least time between two tellings of progress.
const PROGRESS_PAUSE: Duration = Duration::from_millis(50);

/// What the sender says of a failure, for people.
pub(super) fn told(reason: &Reason) -> String {
    cut(printable(reason.text.as_bytes()))
}

/// Most bytes of names that are kept of what is not copied: 65,536 of them.
const MOST_SPECIAL_BYTES: usize = 8 << 20;

/// What such a name takes in memory besides its components, and each of these besides its bytes, about.
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
