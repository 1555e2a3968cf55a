//! Inspection of a file system after a power cut.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

use nicstripe_proto::{
    HashTree, Subtree,
    hash_tree::chunk_value,
    journal::{self, Replayed},
};

use super::{
    disk::Position,
    history::{History, Thing, Verdict},
};
use crate::{bench::Result, tree::walk};

/// Violations found after one or more power cuts.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Number of checked paths with an acknowledged copy.
    pub acknowledged: u64,
    pub lost: u64,
    pub wrong: u64,
    pub partial: u64,
    /// Number of chunks that journals record as durable in part files.
    pub claimed: u64,
    /// Number of journals with a false record.
    pub false_claims: u64,
    /// Descriptions of the violations, one sentence each.
    pub notes: Vec<String>,
}

impl Findings {
    /// Returns true if no violation was found.
    pub fn is_clean(&self) -> bool {
        self.notes.is_empty()
    }

    /// Adds the violations and counts of another inspection.
    pub fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.partial += other.partial;
        self.claimed += other.claimed;
        self.false_claims += other.false_claims;
        self.notes.extend(other.notes);
    }

    /// Inspects all paths and journals of a file system after a power cut at `cut`.
    pub fn of(folder: &Path, history: &History, cut: Position) -> Result<Self> {
        let mut findings = Self::default();
        let expected = history.expected(cut);
        for (path, expected) in &expected {
            findings.acknowledged += u64::from(expected.is_acknowledged);
            // Content that cannot be read counts as different.
            let found = Thing::at(&folder.join(path));
            let verdict = found
                .as_ref()
                .map_or(Verdict::Wrong, |found| expected.judge(found));
            let counter = match verdict {
                Verdict::Right => continue,
                Verdict::Lost => &mut findings.lost,
                Verdict::Wrong => &mut findings.wrong,
                Verdict::Partial => &mut findings.partial,
            };
            *counter += 1;
            findings.notes.push(format!(
                "{} is {verdict:?}: found {found:?}, {expected:?}",
                path.display()
            ));
        }
        for path in walk(folder) {
            let name = path.strip_prefix(folder)?;
            match Kind::of(name) {
                // Created by ext4.
                _ if name.starts_with("lost+found") => {}
                Kind::Plain if !expected.contains_key(name) => {
                    findings.wrong += 1;
                    findings
                        .notes
                        .push(format!("{} was never copied", name.display()));
                }
                Kind::Journal => findings.check_journal(&path)?,
                Kind::Plain | Kind::Part => {}
            }
        }
        Ok(findings)
    }

    /// Checks by hashes that the part file has all chunks that the journal records as durable.
    fn check_journal(&mut self, path: &Path) -> Result<()> {
        // Not a journal, or incomplete: records nothing.
        let Ok(replayed) = journal::replay(&fs::read(path)?) else {
            return Ok(());
        };
        let Some(part) = part_of(path, &replayed)? else {
            return Ok(());
        };
        let file = File::open(&part)?;
        if file.metadata()?.len() != replayed.header.grid.size {
            // The receiver starts from the beginning.
            return Ok(());
        }
        self.claimed += replayed.tree.covered_chunks();
        if !replayed.subtrees().iter().try_fold(true, |all, subtree| {
            Ok::<_, io::Error>(all && is_there(&file, &replayed, *subtree)?)
        })? {
            self.false_claims += 1;
            self.notes.push(format!(
                "{} lacks data that its journal records",
                part.display()
            ));
        }
        Ok(())
    }
}

/// Returns true if the file's chunks below a subtree hash to the subtree's value.
fn is_there(file: &File, replayed: &Replayed, subtree: Subtree) -> io::Result<bool> {
    let grid = replayed.header.grid;
    let mut tree = HashTree::new(grid);
    let chunks = subtree.chunks(grid).map_err(io::Error::other)?;
    for chunk in chunks.chunks() {
        let Some(extent) = grid.extent_of(chunk) else {
            return Ok(false);
        };
        let mut bytes = vec![0; extent.len as usize];
        file.read_exact_at(&mut bytes, extent.offset)?;
        let value = chunk_value(grid, chunk, &bytes).map_err(io::Error::other)?;
        tree.insert(Subtree::of_chunk(chunk, value))
            .map_err(io::Error::other)?;
    }
    Ok(tree.subtrees().eq([subtree]))
}

/// Returns the path of a journal's part file; `None` if the part file does not exist. The name of
/// the part file has a tag derived from the journal's ID.
fn part_of(journal: &Path, replayed: &Replayed) -> Result<Option<PathBuf>> {
    let tag: String = blake3::hash(&replayed.header.id.0).as_bytes()[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let end = format!(".{tag}.nicstripe-part");
    for entry in fs::read_dir(journal.parent().unwrap_or(journal))? {
        let entry = entry?;
        if entry.file_name().as_bytes().ends_with(end.as_bytes()) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Kind of file, by its name: journal or part file of an unfinished copy, or any other file.
enum Kind {
    Plain,
    Part,
    Journal,
}

impl Kind {
    fn of(path: &Path) -> Self {
        let name = path.file_name().map_or(&[][..], OsStr::as_bytes);
        match name.starts_with(b".") {
            true if name.ends_with(b".nicstripe-journal") => Self::Journal,
            true if name.ends_with(b".nicstripe-part") => Self::Part,
            _ => Self::Plain,
        }
    }
}
