//! Comparison of announced files with existing ones by BLAKE3.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::File,
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nicstripe_proto::{
    Digest,
    tree::{Content, Entry, EntryId, Existing},
};
use rustix::fs::{Stat, fstat};

use super::{
    completion::Completion,
    context::{Context, Held},
    jobs::Jobs,
    leaf::Leaf,
};
use crate::file::{Hashing, MOST_UNIT, nanoseconds_between, time_unit_of};
use crate::tree::halt::Halt;

/// Announced entry with the existing object of its name.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    pub(super) leaf: Leaf,
    pub(super) existing: Option<(Existing, Stat)>,
}

pub(super) struct Comparison {
    context: Rc<Context>,
    jobs: Jobs,
    undecided: HashMap<EntryId, (Candidate, Held)>,
    /// Undecided files whose hashing has not begun.
    to_hash: VecDeque<EntryId>,
    /// Keys of the names of undecided files.
    names: HashSet<u64>,
    /// Units in which the target's file systems keep times, in nanoseconds, by device number.
    time_units: HashMap<u64, u64>,
    /// True once the tree has ended early, which cancels running hash jobs.
    is_stopped: Arc<AtomicBool>,
}

impl Comparison {
    pub(super) fn new(context: Rc<Context>, jobs: Jobs) -> Self {
        Self {
            context,
            jobs,
            undecided: HashMap::new(),
            to_hash: VecDeque::new(),
            names: HashSet::new(),
            time_units: HashMap::new(),
            is_stopped: Arc::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.undecided.is_empty()
    }

    pub(super) fn contains(&self, id: EntryId) -> bool {
        self.undecided.contains_key(&id)
    }

    /// Returns true if a file of this name is being compared.
    pub(super) fn is_busy(&self, leaf: &Leaf) -> bool {
        self.names.contains(&leaf.key())
    }

    /// Gives an existing file the time of the entry if its file system could not keep that time more
    /// exactly. A dry run, which creates no file to find that out, compares the times as they are.
    pub(super) fn round_time(&mut self, candidate: &mut Candidate) {
        let Candidate {
            entry,
            leaf,
            existing: Some((Existing::File { size, mtime, .. }, stat)),
        } = candidate
        else {
            return;
        };
        let apart = nanoseconds_between(entry.mtime, *mtime);
        let is_alike = matches!(entry.content, Content::File { size: sent, .. } if sent == *size);
        if !is_alike || apart == 0 || apart >= MOST_UNIT || self.context.request.rules.dry_run {
            return;
        }
        let unit = self.time_units.entry(stat.st_dev).or_insert_with(|| {
            let dir = leaf.parent.open();
            dir.and_then(|dir| time_unit_of(&dir)).unwrap_or(1)
        });
        if apart < *unit {
            *mtime = entry.mtime;
        }
    }

    /// Returns true if the digest of the existing file decides.
    pub(super) fn needs_digest(&self, candidate: &Candidate) -> bool {
        let sizes = (&candidate.entry.content, &candidate.existing);
        self.context.request.rules.checksum
            && matches!(
                sizes,
                (
                    Content::File { size, digest: Some(_), .. },
                    Some((Existing::File { size: found, .. }, _)),
                ) if found == size
            )
    }

    pub(super) fn push(&mut self, candidate: Candidate) -> Result<(), Halt> {
        let entry = &candidate.entry;
        let held = self
            .context
            .hold_attributes(entry.weight(), entry.footprint())?;
        self.names.insert(candidate.leaf.key());
        self.to_hash.push_back(entry.id);
        self.undecided.insert(entry.id, (candidate, held));
        Ok(())
    }

    /// Starts jobs that hash existing files, up to [`MOST_HASHING`].
    pub(super) fn begin(&mut self) {
        while self.hashing() < MOST_HASHING
            && let Some(id) = self.to_hash.pop_front()
        {
            let Some((candidate, _)) = self.undecided.get(&id) else {
                continue;
            };
            let size = match &candidate.existing {
                Some((_, stat)) => stat.st_size as u64,
                None => 0,
            };
            let mut job = HashJob {
                leaf: candidate.leaf.clone(),
                size,
                file: None,
                hashing: Hashing::of(size),
            };
            self.jobs.run_in_turns(
                self.is_stopped.clone(),
                move || job.turn(),
                move |result| Completion::Hashed(id, result.and_then(Result::ok)),
            );
        }
    }

    pub(super) fn hashing(&self) -> usize {
        self.undecided.len() - self.to_hash.len()
    }

    /// Removes and returns a file with the digest of the existing one.
    pub(super) fn finish(&mut self, id: EntryId, digest: Option<Digest>) -> Option<Candidate> {
        let (mut candidate, _) = self.undecided.remove(&id)?;
        self.names.remove(&candidate.leaf.key());
        if let Some((Existing::File { digest: found, .. }, _)) = &mut candidate.existing {
            *found = digest;
        }
        Some(candidate)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Existing file that is being hashed for its comparison.
struct HashJob {
    leaf: Leaf,
    size: u64,
    file: Option<File>,
    hashing: Hashing,
}

impl HashJob {
    /// Continues the BLAKE3 digest of the file. Fails if its size is another at the end.
    fn turn(&mut self) -> io::Result<ControlFlow<Digest>> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(self.leaf.open_regular()?),
        };
        let turn = self
            .hashing
            .turn(|bytes, offset| file.read_exact_at(bytes, offset))?;
        if turn.is_break() && fstat(file)?.st_size as u64 != self.size {
            return Err(io::Error::other("its size changed meanwhile"));
        }
        Ok(turn)
    }
}

/// Maximum number of files hashed concurrently for comparison.
const MOST_HASHING: usize = 16;
