//! Large files; each share copies some pieces. The process that finds all pieces makes the file of
//! them: one process at a time, and none again.
//!
//! The pieces are ranges of one sparse file in a directory of the record, whose name is a hash of the file's
//! path, size and time. An empty file is the mark of each piece that is durable. At the end that file is
//! renamed to `whole`, the marks are removed, and then it gets its name: so a mark without its piece is never
//! believed, wherever the process is killed.

use std::{
    collections::BTreeSet,
    fs::{File, FileTimes, Metadata, Permissions},
    io,
    ops::Range,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nicstripe::{
    Client, CopyOptions, ETag, Error, Kind, LargeFile, Name, OpenOptions, RenameOptions, escaped,
    storage::LocalDir,
};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

use super::{
    super::slices::{self, BLOCK, SliceError, Version},
    store::{OWN, PART, Store, WHOLE},
};
use crate::failure::{Failure, Fault, exit::Exit};

#[derive(Debug, Clone)]
pub(super) struct Large {
    client: Client,
    store: Store,
    /// Name of the directory with the pieces in the store.
    dir: String,
    pieces: Store,
    ends: Ends,
    /// Name of the file relative to the target.
    name: Name,
    file: LargeFile,
    replace: bool,
    preserve: bool,
}

/// Source and target of a large file.
#[derive(Debug, Clone)]
pub(super) enum Ends {
    Put {
        from: PathBuf,
        to: Name,
    },
    Get {
        from: Name,
        etag: Option<ETag>,
        target: PathBuf,
    },
}

/// Outcome of the pieces of this share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The file at the target is that of the source.
    Unchanged,
    /// They are there; another share will make the file of all pieces. So many bytes were copied.
    Partial { bytes: u64 },
    /// They were the last ones, and the file has its name. So many bytes were copied.
    Complete { bytes: u64 },
}

impl Large {
    pub(super) fn new(
        client: &Client,
        store: &Store,
        (ends, name, file): (Ends, &Name, &LargeFile),
        options: CopyOptions,
    ) -> Result<Self, Failure> {
        let dir = format!("{}{DIR}", Version::from(file).word(name));
        Ok(Self {
            client: client.clone(),
            pieces: store.sub(&dir)?,
            store: store.clone(),
            dir,
            ends,
            name: name.clone(),
            file: file.clone(),
            replace: options.replace,
            preserve: options.preserve,
        })
    }

    /// Copies the pieces of this share that are missing, and makes the file if it then has all.
    pub(super) async fn copy(self) -> Result<Outcome, Failure> {
        let one = Arc::new(self);
        if one.is_there().await? {
            one.pieces.clear().await?;
            return Ok(Outcome::Unchanged);
        }
        let bytes = match one.there().await? {
            There::Pieces(there) => one.copy_missing(&there).await?,
            There::All | There::Whole => 0,
        };
        let claim = format!("{}{CLAIM}", one.dir);
        for _ in 0..MOST_TRIES {
            if let There::Pieces(_) = one.there().await? {
                return Ok(Outcome::Partial { bytes });
            }
            if let Some(hold) = one.store.hold(&claim).await? {
                let made = one.make_once().await;
                drop(hold);
                if let Store::Here { .. } = one.store {
                    one.store.remove(&[claim]).await?;
                }
                return made.map(|()| Outcome::Complete { bytes });
            }
            // Another process makes the file now.
            sleep(PAUSE).await;
        }
        let name = &one.name;
        let text = format!("another process has not completed {name} within 10 minutes");
        Err(Fault::new(Exit::Temporary, text).into())
    }

    /// Returns true if the target has the file already.
    async fn is_there(&self) -> Result<bool, Failure> {
        let found = match &self.ends {
            Ends::Put { to, .. } => slices::found(&self.client, to).await?,
            Ends::Get { target, .. } => {
                // A tree without other files has not made it.
                std::fs::create_dir_all(target).map_err(Failure::writing(target))?;
                let (target, name) = (target.clone(), self.name.clone());
                let found = spawn_blocking(move || LocalDir::open(&target)?.stat(&name)).await?;
                found.map_err(Error::from)?
            }
        };
        match found {
            None => Ok(false),
            Some(found)
                if found.kind == Kind::File
                    && Version::from(&self.file).is_kept_as(found.size, found.modified) =>
            {
                Ok(true)
            }
            Some(found) if found.kind == Kind::File && self.replace => Ok(false),
            Some(_) => {
                let text = format!("cannot replace {}: it exists and differs", self.name);
                Err(Fault::new(Exit::Files, text).into())
            }
        }
    }

    /// Returns what the target has of the file.
    async fn there(&self) -> Result<There, Failure> {
        let found = self.pieces.list().await?;
        if found.iter().any(|(file, _)| file == WHOLE) {
            return Ok(There::Whole);
        }
        let indices = found.iter().filter_map(|(file, _)| file.parse().ok());
        let pieces: BTreeSet<u32> = indices.filter(|index| *index < self.file.count()).collect();
        match pieces.len() == self.file.count() as usize {
            true => Ok(There::All),
            false => Ok(There::Pieces(pieces)),
        }
    }

    /// Copies the pieces of this share that are not at the target, some at a time. Returns their bytes.
    async fn copy_missing(self: &Arc<Self>, there: &BTreeSet<u32>) -> Result<u64, Failure> {
        let mut missing = self
            .file
            .pieces()
            .filter(|(index, _)| !there.contains(index));
        let mut bytes = 0;
        let mut tasks: JoinSet<Result<u64, Failure>> = JoinSet::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some((index, range)) = missing.next()
            {
                let one = self.clone();
                tasks.spawn(async move {
                    let len = range.end - range.start;
                    match &one.ends {
                        Ends::Put { from, .. } => one.put(from, range).await?,
                        Ends::Get { from, etag, .. } => one.get((from, *etag), range).await?,
                    }
                    let mark = index.to_string();
                    one.pieces.write(&mark, String::new()).await?;
                    Ok(len)
                });
            }
            match tasks.join_next().await {
                Some(copied) => bytes += copied??,
                None => return Ok(bytes),
            }
        }
    }

    async fn put(&self, from: &Path, range: Range<u64>) -> Result<(), Failure> {
        let part = self.pieces.name(PART)?;
        let version = Version::from(&self.file);
        let is_same = |found: &Metadata| version.is_of(found);
        let put = slices::put(&self.client, (from, range), (&part, version.size), is_same);
        put.await.map_err(|error| match error {
            SliceError::Changed => changed(escaped(from.as_os_str().as_bytes())),
            SliceError::Source(error) => Failure::opening(from)(error),
            SliceError::Target(error) => error.into(),
        })
    }

    async fn get(
        &self,
        (from, etag): (&Name, Option<ETag>),
        range: Range<u64>,
    ) -> Result<(), Failure> {
        let options = OpenOptions {
            range: Some(range.clone()),
            only_if: etag,
        };
        let mut reader = self.client.open_with(from, options).await?;
        let stat = reader.stat();
        if (stat.size, stat.modified) != (self.file.size(), self.file.modified()) {
            return Err(changed(from.to_string()));
        }
        let pieces = self.pieces.path()?;
        let writing = Failure::writing(pieces);
        let file = open_part(pieces).map_err(writing)?;
        let mut at = range.start;
        while at < range.end {
            let mut block = Vec::with_capacity(BLOCK);
            while block.len() < BLOCK {
                let Some(chunk) = reader.next_chunk().await? else {
                    break;
                };
                block.extend_from_slice(chunk.as_ref());
            }
            if block.is_empty() {
                return Err(changed(from.to_string()));
            }
            let (file, offset) = (file.clone(), at);
            at += block.len() as u64;
            // Zeros stay a hole.
            if block.iter().any(|byte| *byte != 0) {
                let write = move || file.write_all_at(&block, offset);
                spawn_blocking(write).await?.map_err(writing)?;
            }
        }
        let synced = spawn_blocking(move || file.sync_data()).await?;
        synced.map_err(writing)
    }

    /// Makes the file of its pieces, unless another process has.
    async fn make_once(&self) -> Result<(), Failure> {
        if !self.is_there().await? {
            match self.there().await? {
                There::Pieces(_) => return Ok(()),
                There::All => self.end_part().await?,
                There::Whole => {}
            }
            let marks = (0..self.file.count()).map(|index| index.to_string());
            self.pieces.remove(&marks.collect::<Vec<_>>()).await?;
            self.name_whole().await?;
        }
        self.pieces.clear().await
    }

    /// Gives the file of all pieces its time and mode, and calls it whole.
    async fn end_part(&self) -> Result<(), Failure> {
        match &self.ends {
            Ends::Put { .. } => {
                let (part, whole) = (self.pieces.name(PART)?, self.pieces.name(WHOLE)?);
                let version = Version::from(&self.file);
                slices::end(&self.client, &part, version, self.preserve).await?;
                let renamed = self.client.rename(&part, &whole, RenameOptions::default());
                Ok(renamed.await?)
            }
            Ends::Get { .. } => {
                let pieces = self.pieces.path()?.to_owned();
                let (file, preserve, part) = (self.file.clone(), self.preserve, pieces.join(PART));
                let ended = spawn_blocking(move || end_part_here(&pieces, &file, preserve)).await?;
                ended.map_err(Failure::writing(&part))
            }
        }
    }

    async fn name_whole(&self) -> Result<(), Failure> {
        match &self.ends {
            Ends::Put { to, .. } => {
                let whole = self.pieces.name(WHOLE)?;
                Ok(slices::name(&self.client, &whole, to, self.replace).await?)
            }
            Ends::Get { target, .. } => {
                let (target, whole) = (target.clone(), self.pieces.path()?.join(WHOLE));
                let (name, replace) = (self.name.clone(), self.replace);
                let place = move || LocalDir::open(&target)?.place(&whole, &name, replace);
                Ok(spawn_blocking(place).await?.map_err(Error::from)?)
            }
        }
    }
}

/// State of a large file at the target.
enum There {
    /// Some pieces, of all shares.
    Pieces(BTreeSet<u32>),
    /// All pieces.
    All,
    /// The file, which only needs its name.
    Whole,
}

pub(super) fn is_of_pieces(entry: &str) -> bool {
    entry.ends_with(DIR)
}

fn end_part_here(pieces: &Path, file: &LargeFile, preserve: bool) -> io::Result<()> {
    let path = pieces.join(PART);
    let part = File::options().write(true).custom_flags(OWN).open(&path)?;
    part.set_len(file.size())?;
    // The file was made with all bits that the umask leaves.
    let left = part.metadata()?.permissions().mode() & 0o666;
    let mask = if preserve {
        0o777
    } else {
        left | left >> 2 & 0o111
    };
    part.set_permissions(Permissions::from_mode(file.mode() & 0o777 & mask))?;
    part.set_times(FileTimes::new().set_modified(file.modified()))?;
    part.sync_all()?;
    std::fs::rename(&path, pieces.join(WHOLE))
}

/// Opens the file whose ranges are the pieces.
fn open_part(pieces: &Path) -> io::Result<Arc<File>> {
    std::fs::create_dir_all(pieces)?;
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OWN)
        .open(pieces.join(PART))?;
    Ok(Arc::new(file))
}

/// `source` is escaped.
fn changed(source: String) -> Failure {
    let text = format!("{source} changed while its pieces were copied");
    Fault::new(Exit::SourceChanged, text).into()
}

/// Number of pieces that are copied at a time: enough to fill the links while others are made durable.
const AT_ONCE: usize = 4;

/// Number of looks at a file that another process makes, and the time between two: 10 minutes in all, in
/// which it syncs and renames the file.
const MOST_TRIES: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(500);

/// End of the name of a directory with pieces, and of the file that the process has that makes the file.
const DIR: &str = ".pieces";
const CLAIM: &str = ".claim";
