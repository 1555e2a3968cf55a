//! Large files, of which each share copies some pieces. Whoever finds all pieces there makes the file of
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
    Client, CopyOptions, ETag, Kind, LargeFile, Name, OpenOptions, RenameOptions, escaped,
    storage::LocalDir,
};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

use super::{
    super::slices::{self, BLOCK, SliceError, Version},
    store::{OWN, Store, appended, inside, marking},
};
use crate::{
    failure::{CommandError, Failure, exit::Exit},
    text::invocation::Invocation,
};

/// Large file that is copied in pieces.
#[derive(Debug, Clone)]
pub(super) struct Large {
    client: Client,
    store: Store,
    /// Name of the directory with the pieces in the store.
    dir: String,
    way: Way,
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

/// Direction of the pieces, with the directory that they go to.
#[derive(Debug, Clone)]
enum Way {
    Put {
        from: PathBuf,
        to: Name,
        pieces: Name,
    },
    Get {
        from: Name,
        etag: Option<ETag>,
        target: PathBuf,
        pieces: PathBuf,
    },
}

/// What became of the pieces of this share.
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
        let way = match (ends, store) {
            (Ends::Put { from, to }, Store::AtDaemon { dir: record, .. }) => Way::Put {
                from,
                to,
                pieces: inside(record, &dir)?,
            },
            (Ends::Get { from, etag, target }, Store::Here { dir: record }) => Way::Get {
                from,
                etag,
                target,
                pieces: record.join(&dir),
            },
            _ => {
                let why = "the record of shares is not at the target";
                return Err(Failure::Runtime(io::Error::other(why)));
            }
        };
        Ok(Self {
            client: client.clone(),
            store: store.clone(),
            dir,
            way,
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
            clear(&one.store, &one.dir).await?;
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
                    one.store.remove(&[claim], &[]).await?;
                }
                return made.map(|()| Outcome::Complete { bytes });
            }
            // Another process makes the file now.
            sleep(PAUSE).await;
        }
        let name = one.name.clone();
        Err(PieceError::Busy { name }.into())
    }

    /// Returns true if the target has the file already.
    async fn is_there(&self) -> Result<bool, Failure> {
        let found = match &self.way {
            Way::Put { to, .. } => match self.client.stat(to).await {
                Err(error) if error.is_not_found() => None,
                found => Some(found?),
            },
            Way::Get { target, .. } => {
                // A tree without other files has not made it.
                std::fs::create_dir_all(target).map_err(Failure::writing(target))?;
                let (target, name) = (target.clone(), self.name.clone());
                blocking(move || LocalDir::open(&target)?.stat(&name))
                    .await?
                    .map_err(nicstripe::Error::from)?
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
                let name = self.name.clone();
                Err(PieceError::Exists { name }.into())
            }
        }
    }

    /// Returns what the target has of the file.
    async fn there(&self) -> Result<There, Failure> {
        let found = self.store.list(Some(&self.dir)).await?;
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
                    match &one.way {
                        Way::Put { from, pieces, .. } => one.put(from, pieces, index, range).await,
                        Way::Get {
                            from, etag, pieces, ..
                        } => one.get((from, *etag), pieces, index, range).await,
                    }
                    .map(|()| len)
                });
            }
            match tasks.join_next().await {
                Some(copied) => {
                    bytes +=
                        copied.map_err(|error| Failure::Runtime(io::Error::other(error)))??;
                }
                None => return Ok(bytes),
            }
        }
    }

    async fn put(
        &self,
        from: &Path,
        pieces: &Name,
        index: u32,
        range: Range<u64>,
    ) -> Result<(), Failure> {
        let part = inside(pieces, PART)?;
        let version = Version::from(&self.file);
        let is_same = |found: &Metadata| version.is_of(found);
        let put = slices::put(&self.client, (from, range), (&part, version.size), is_same);
        put.await.map_err(|error| match error {
            SliceError::Changed => changed(escaped(from.as_os_str().as_bytes())),
            SliceError::Source(error) => Failure::opening(from)(error),
            SliceError::Target(error) => error.into(),
        })?;
        let mark = inside(pieces, &index.to_string())?;
        self.client.write(&mark, "", marking()).await?;
        Ok(())
    }

    async fn get(
        &self,
        (from, etag): (&Name, Option<ETag>),
        pieces: &Path,
        index: u32,
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
                blocking(write).await?.map_err(writing)?;
            }
        }
        let mark = pieces.join(index.to_string());
        let finish = move || file.sync_data().and_then(|()| appended(&mark).map(drop));
        blocking(finish).await?.map_err(writing)
    }

    /// Makes the file of its pieces, unless another process has.
    async fn make_once(&self) -> Result<(), Failure> {
        if !self.is_there().await? {
            match self.there().await? {
                There::Pieces(_) => return Ok(()),
                There::All => self.end_part().await?,
                There::Whole => {}
            }
            let marks = (0..self.file.count()).map(|index| format!("{}/{index}", self.dir));
            self.store.remove(&marks.collect::<Vec<_>>(), &[]).await?;
            self.name_whole().await?;
        }
        clear(&self.store, &self.dir).await
    }

    /// Gives the file of all pieces its time and mode, and calls it whole.
    async fn end_part(&self) -> Result<(), Failure> {
        match &self.way {
            Way::Put { pieces, .. } => {
                let (part, whole) = (inside(pieces, PART)?, inside(pieces, WHOLE)?);
                let version = Version::from(&self.file);
                slices::end(&self.client, &part, version, self.preserve).await?;
                let renamed = self.client.rename(&part, &whole, RenameOptions::default());
                Ok(renamed.await?)
            }
            Way::Get { pieces, .. } => {
                let (file, preserve, pieces) = (self.file.clone(), self.preserve, pieces.clone());
                let part = pieces.join(PART);
                let ended = blocking(move || end_part_here(&pieces, &file, preserve)).await?;
                ended.map_err(Failure::writing(&part))
            }
        }
    }

    /// Gives the whole file its name.
    async fn name_whole(&self) -> Result<(), Failure> {
        match &self.way {
            Way::Put { to, pieces, .. } => {
                let options = RenameOptions {
                    replace: self.replace,
                    parents: true,
                    only_if: None,
                };
                let whole = inside(pieces, WHOLE)?;
                Ok(self.client.rename(&whole, to, options).await?)
            }
            Way::Get { target, pieces, .. } => {
                let (target, whole) = (target.clone(), pieces.join(WHOLE));
                let (name, replace) = (self.name.clone(), self.replace);
                let place = move || LocalDir::open(&target)?.place(&whole, &name, replace);
                Ok(blocking(place).await?.map_err(nicstripe::Error::from)?)
            }
        }
    }
}

/// What the target has of a large file.
enum There {
    /// Some pieces, of all shares.
    Pieces(BTreeSet<u32>),
    /// All pieces.
    All,
    /// The file, which only needs its name.
    Whole,
}

/// Removes the pieces of a large file.
pub(super) async fn clear(store: &Store, dir: &str) -> Result<(), Failure> {
    let found = store.list(Some(dir)).await?;
    let files: Vec<String> = found
        .into_iter()
        .map(|(file, _)| format!("{dir}/{file}"))
        .collect();
    store.remove(&files, &[dir]).await
}

/// Returns true if an entry of a record is a directory with pieces.
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

/// Opens the file of which the pieces are ranges.
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
    PieceError::Changed { name: source }.into()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Failure::Runtime(io::Error::other(error)))
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

/// Name of the file of which the pieces are ranges, and its name once all are there.
const PART: &str = "part";
const WHOLE: &str = "whole";

/// Error of a large file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PieceError {
    #[error("{name} changed while its pieces were copied")]
    Changed { name: String },
    #[error("cannot replace {name}: it exists and differs")]
    Exists { name: Name },
    #[error("another process has not completed {name} within 10 minutes")]
    Busy { name: Name },
}

impl CommandError for PieceError {
    fn exit(&self) -> Exit {
        match self {
            Self::Changed { .. } => Exit::SourceChanged,
            Self::Exists { .. } => Exit::Files,
            Self::Busy { .. } => Exit::Temporary,
        }
    }

    fn hint(&self, _: &Invocation) -> Option<String> {
        None
    }
}
