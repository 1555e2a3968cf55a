//! Files here that go along the chain, cut into items.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use nicstripe::{Digest, Name, chain::item_size};
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::super::slices::{BLOCK, Version, beside};

/// Large files, and the items that they are cut into once the receivers are known.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) files: Vec<LargeFile>,
    pub(super) items: Vec<Item>,
}

/// Large file here.
#[derive(Debug)]
pub(super) struct LargeFile {
    pub(super) path: PathBuf,
    pub(super) source: usize,
    /// Path components below the source; empty if the source is the file.
    pub(super) below: Vec<Vec<u8>>,
    pub(super) version: Version,
}

/// Range of a large file that a receiver gets at a time.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) file: usize,
    pub(super) range: Range<u64>,
    digest: OnceCell<Digest>,
}

impl Files {
    /// Returns the files of the sources of a copy, below directories only if it `is_recursive`.
    pub(super) fn of(sources: &[PathBuf], is_recursive: bool) -> Self {
        let mut files = Self::default();
        for (index, source) in sources.iter().enumerate() {
            files.add(source, index, &mut Vec::new(), is_recursive);
        }
        files
    }

    /// Adds what is at a path. What cannot be read fails in the copies that follow.
    fn add(&mut self, path: &Path, source: usize, below: &mut Vec<Vec<u8>>, is_recursive: bool) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        if found.is_dir() && is_recursive {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            for entry in entries {
                below.push(entry.file_name().as_bytes().to_vec());
                self.add(&entry.path(), source, below, is_recursive);
                below.pop();
            }
        }
        // Holes and other names of a file are kept by the copies that follow.
        let is_sparse = found.blocks() * 512 < found.len();
        let is_large = found.is_file() && found.len() >= LEAST;
        if !is_large || is_sparse || found.nlink() > 1 {
            return;
        }
        let Ok(version) = Version::of(&found) else {
            return;
        };
        self.files.push(LargeFile {
            path: path.to_owned(),
            source,
            below: below.clone(),
            version,
        });
    }

    /// Cuts the files into items for receivers whose cables carry `rate` bytes a second; `None` if that is
    /// unknown.
    pub(super) fn cut(&mut self, rate: Option<u64>) {
        let most = rate.map_or(LEAST_ITEM, |rate| rate / ITEMS_A_SECOND);
        let most = most.clamp(LEAST_ITEM, MOST_ITEM);
        for (file, large) in self.files.iter().enumerate() {
            let (size, mut start) = (large.version.size, 0);
            while start < size {
                let len = match large.is_one_item() {
                    true => size,
                    false => item_size(most, self.items.len()),
                };
                let end = size.min(start + len);
                self.items.push(Item {
                    file,
                    range: start..end,
                    digest: OnceCell::new(),
                });
                start = end;
            }
        }
    }
}

impl Item {
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl LargeFile {
    pub(super) fn is_one_item(&self) -> bool {
        self.version.size <= LEAST_ITEM
    }

    /// Returns the name of the file at a target whose sources are at these names; `None` if it has none
    /// there.
    pub(super) fn name_at(&self, places: &[Option<Name>]) -> Option<Name> {
        let place = places.get(self.source)?;
        let above = place.iter().flat_map(Name::components);
        let below = self.below.iter().map(Vec::as_slice);
        Name::new(above.chain(below)).ok()
    }

    /// Returns an error unless the file is the one that was found.
    pub(super) fn check(&self) -> io::Result<()> {
        let found = fs::metadata(&self.path)?;
        match self.version.is_of(&found) {
            true => Ok(()),
            false => Err(io::Error::other("it has changed")),
        }
    }

    /// Returns the digest of an item, which is read once.
    pub(super) async fn digest(&self, item: &Item) -> io::Result<Digest> {
        let read = || async {
            let (path, range) = (self.path.clone(), item.range.clone());
            let read = spawn_blocking(move || digest_of(&path, range)).await;
            read.map_err(io::Error::other)?
        };
        item.digest.get_or_try_init(read).await.copied()
    }
}

fn digest_of(path: &Path, range: Range<u64>) -> io::Result<Digest> {
    let file = File::open(path)?;
    let (mut hasher, mut at) = (blake3::Hasher::new(), range.start);
    let mut block = vec![0; BLOCK];
    while at < range.end {
        let len = BLOCK.min((range.end - at) as usize);
        file.read_exact_at(&mut block[..len], at)?;
        hasher.update(&block[..len]);
        at += len as u64;
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Returns the name under which a file is put together, next to its own.
pub(super) fn staging(name: &Name, file: &LargeFile) -> Option<Name> {
    let own = format!(".nicstripe-{}.chain", file.version.word(name));
    beside(Some(name), own.as_bytes()).ok()
}

/// Size of the files that go along the chain: of smaller ones, a batch of many is faster than each from
/// receiver to receiver.
const LEAST: u64 = 1 << 20;

/// Bounds of an item in bytes, and the number of items that the cables carry a second: few enough that
/// each costs little, and enough that a chain of many machines is soon full. On two cores, 2 GiB over two
/// gigabit cables to three machines cost 38 s of processor time in items of 4 MiB, and 33 in those of 16;
/// over two of 200 Mbit/s, they take 49.3 and 50.7 s.
const LEAST_ITEM: u64 = 4 << 20;
const MOST_ITEM: u64 = 16 << 20;
const ITEMS_A_SECOND: u64 = 12;
