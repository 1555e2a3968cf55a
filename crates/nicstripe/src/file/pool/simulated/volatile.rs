//! Volatile cache of a simulated disk: the files of one folder; a power cut keeps what was
//! synced, and any part of what was not.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::DirEntryExt,
    },
    path::{Path, PathBuf},
};

use nicstripe_sim::Rng;

/// Names and contents of a folder that a power cut cannot undo.
#[derive(Debug)]
pub(super) struct Durable {
    folder: PathBuf,
    /// Inode of each name.
    names: Names,
    /// Content of each inode at its last sync.
    contents: BTreeMap<u64, Vec<u8>>,
}

type Names = BTreeMap<OsString, u64>;

/// Content of a folder at one moment, to which it can be returned.
#[derive(Debug)]
pub(crate) struct Image {
    folder: PathBuf,
    files: BTreeMap<OsString, Vec<u8>>,
}

impl Durable {
    /// Takes all that is in `folder` as durable.
    pub(super) fn of(folder: &Path) -> Self {
        let names = names_in(folder);
        let contents = names
            .iter()
            .map(|(name, inode)| (*inode, fs::read(folder.join(name)).unwrap()))
            .collect();
        Self {
            folder: folder.to_owned(),
            names,
            contents,
        }
    }

    /// Notes the sync of a file, which includes the file's name as on common file systems, or that
    /// of the folder.
    pub(super) fn on_synced(&mut self, of: BorrowedFd<'_>) {
        let (path, now) = (path_of(of), names_in(&self.folder));
        if path == self.folder {
            self.names = now;
            return;
        }
        let name = path.file_name().unwrap().to_owned();
        // No name of this folder: the file was deleted, or is another end's.
        if let Some(inode) = now.get(&name) {
            self.contents.insert(*inode, fs::read(&path).unwrap());
            self.names.insert(name, *inode);
        }
    }

    /// Returns what a power cut at this moment leaves. `rng` chooses it.
    pub(super) fn after_cut(&self, rng: &mut Rng) -> Image {
        let now = names_in(&self.folder);
        let names = if rng.below(2) == 0 { &self.names } else { &now };
        let mut left = |inode: &u64| {
            let synced = self.contents.get(inode).cloned().unwrap_or_default();
            match now.iter().find(|(_, other)| *other == inode) {
                Some((name, _)) => {
                    let written = fs::read(self.folder.join(name)).unwrap();
                    torn(&synced, &written, rng)
                }
                None => synced,
            }
        };
        Image {
            folder: self.folder.clone(),
            files: names
                .iter()
                .map(|(name, inode)| (name.clone(), left(inode)))
                .collect(),
        }
    }
}

impl Image {
    /// Returns the folder as it is, which outlives the death of a process.
    pub(crate) fn of(folder: &Path) -> Self {
        let read = |name: OsString| {
            let content = fs::read(folder.join(&name)).unwrap();
            (name, content)
        };
        Self {
            folder: folder.to_owned(),
            files: names_in(folder).into_keys().map(read).collect(),
        }
    }

    /// Returns the folder to this content. Leaves files alone that have it.
    pub(crate) fn restore(self) {
        for name in names_in(&self.folder).into_keys() {
            if !self.files.contains_key(&name) {
                fs::remove_file(self.folder.join(name)).unwrap();
            }
        }
        for (name, content) in self.files {
            let path = self.folder.join(name);
            if fs::read(&path).ok().as_ref() != Some(&content) {
                fs::write(path, content).unwrap();
            }
        }
    }
}

pub(super) fn is_journal(file: BorrowedFd<'_>) -> bool {
    path_of(file)
        .to_string_lossy()
        .contains("nicstripe-journal")
}

pub(super) fn is_folder(file: BorrowedFd<'_>) -> bool {
    path_of(file).is_dir()
}

fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn names_in(folder: &Path) -> Names {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name(), entry.ino()))
        .collect()
}

/// Unit that a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

/// Returns what is left of a file after a power cut. Bytes that were not synced may be there, may
/// be missing, and, if nothing was in their place before, may be anything.
fn torn(synced: &[u8], written: &[u8], rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(3) {
        0 => synced.len(),
        1 => written.len(),
        _ => {
            let (least, most) = (
                synced.len().min(written.len()),
                synced.len().max(written.len()),
            );
            least + rng.below((most - least) as u64 + 1) as usize
        }
    };
    let byte = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    // All sectors are equally likely to have been written: none, some or all.
    let share = rng.below(5);
    let mut left = synced.to_vec();
    left.resize(len, 0);
    for first in (0..len).step_by(SECTOR) {
        let sector = first..len.min(first + SECTOR);
        let is_equal = match (synced.get(sector.clone()), written.get(sector.clone())) {
            (Some(synced), Some(written)) => synced == written,
            _ => false,
        };
        if is_equal {
            continue;
        }
        let has_arrived = rng.below(4) < share;
        let is_garbage = rng.below(16) == 0;
        for at in sector {
            if byte(synced, at) != byte(written, at) {
                let is_new = byte(synced, at) == 0;
                left[at] = match (has_arrived, is_new && is_garbage) {
                    (_, true) => rng.next_u64() as u8,
                    (true, false) => byte(written, at),
                    (false, false) => byte(synced, at),
                };
            }
        }
    }
    left
}
