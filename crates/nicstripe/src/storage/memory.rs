//! Storage in memory, for tests and for programs that embed a daemon.

mod blocks;
mod tree;

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use nicstripe_proto::{ETag, FailCode, Name, ObjectAttributes, Subtree};
use parking_lot::Mutex;

use self::{
    blocks::{Blocks, Space},
    tree::{Content, Tree},
};
use super::backend::{Listed, PartRequest, Replace, Stat, Storage, StoredPart};
use crate::{
    file::{FileError, FileIdentity, StoredFile},
    trust::PublicKey,
};

/// In-memory storage, for tests and for programs that embed a daemon. Clones are cheap and share
/// the same files.
///
/// No file outlives the process. Interrupted transfers can resume as long as the storage exists. A
/// file takes memory in blocks of 256 KiB, up to the last byte written in each; holes take none.
///
/// ```
/// use nicstripe::{Daemon, Name, storage::MemoryStorage};
///
/// let storage = MemoryStorage::new();
/// storage.insert(&Name::parse(b"motd")?, b"welcome")?;
/// let _builder = Daemon::builder().storage(storage.clone());
/// assert_eq!(storage.contents(&Name::parse(b"motd")?).as_deref(), Some(&b"welcome"[..]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStorage(Arc<Memory>);

struct Memory {
    state: Mutex<Objects>,
    space: Arc<Space>,
    next_version: AtomicU64,
}

#[derive(Default)]
struct Objects {
    tree: Tree,
    parts: HashMap<PartKey, Arc<Part>>,
}

type PartKey = (Name, PublicKey);

/// Unfinished file: its data, and the subtrees of its hash tree recorded as durable. Kept so that a
/// transfer can resume.
struct Part {
    origin: [u8; 32],
    blocks: Mutex<Blocks>,
    durable: Mutex<Vec<Subtree>>,
}

impl Part {
    /// Returns true if a transfer holds the part next to the storage.
    fn is_open(part: &Arc<Self>) -> bool {
        Arc::strong_count(part) > 1
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::with_limit(u64::MAX)
    }
}

impl MemoryStorage {
    /// Creates an empty storage, limited only by the machine's memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty storage that holds at most `bytes` bytes, unfinished files included. Writes
    /// beyond the limit fail like those on a full disk.
    pub fn with_limit(bytes: u64) -> Self {
        let memory = Memory {
            state: Mutex::default(),
            space: Arc::new(Space::of(bytes)),
            next_version: AtomicU64::new(1),
        };
        Self(Arc::new(memory))
    }

    /// Stores a file, replacing an existing one of that name.
    ///
    /// # Errors
    ///
    /// The name is a directory, its directory does not exist, or the storage is full.
    pub fn insert(&self, name: &Name, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
        let bytes = bytes.as_ref();
        let blocks = Mutex::new(Blocks::new(self.0.space.clone()));
        Blocks::write(&blocks, bytes, 0).map_err(|cause| FileError::new("write", name, cause))?;
        let content = self.content(
            blocks.into_inner(),
            bytes.len() as u64,
            0o644,
            None,
            ObjectAttributes::new(),
        );
        self.0.state.lock().tree.put(name, content, Replace::Always)
    }

    /// Returns a copy of a file's content, or `None` if the file does not exist.
    pub fn contents(&self, name: &Name) -> Option<Vec<u8>> {
        let content = self.0.state.lock().tree.file(name).ok()?;
        let mut bytes = vec![0; usize::try_from(content.size).ok()?];
        content.read(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    /// Returns the memory in use in bytes, including unfinished files.
    pub fn used(&self) -> u64 {
        self.0.space.used()
    }

    /// Returns the number of unfinished files: those being received, and those kept for a resume.
    pub fn unfinished(&self) -> usize {
        self.0.state.lock().parts.len()
    }

    /// Deletes unfinished files that no transfer has open.
    pub fn forget_unfinished(&self) {
        let parts = &mut self.0.state.lock().parts;
        parts.retain(|_, part| Part::is_open(part));
    }

    fn content(
        &self,
        blocks: Blocks,
        size: u64,
        mode: u32,
        modified: Option<SystemTime>,
        attributes: ObjectAttributes,
    ) -> Content {
        let version = self.0.next_version.fetch_add(1, Ordering::Relaxed);
        Content {
            blocks,
            size,
            mode,
            modified: modified.unwrap_or_else(SystemTime::now),
            version,
            attributes,
        }
    }
}

impl Storage for MemoryStorage {
    fn open(&self, name: &Name) -> Result<Box<dyn StoredFile>, FileError> {
        let content = self.0.state.lock().tree.file(name)?;
        Ok(Box::new(OpenContent(content)))
    }

    fn begin(
        &self,
        request: &PartRequest<'_>,
    ) -> Result<(Box<dyn StoredPart>, Vec<Subtree>), FileError> {
        let mut state = self.0.state.lock();
        state.tree.check_free(request.name, request.replace)?;
        let key = (request.name.clone(), request.peer);
        if let Some(part) = state.parts.get(&key) {
            if Part::is_open(part) {
                let why = io::Error::other("another transfer is writing it");
                return Err(FileError::new("receive", request.name, why).with_code(FailCode::Busy));
            }
            // Deleted first, so that the new part may use its memory.
            if part.origin != request.origin || request.restart {
                state.parts.remove(&key);
            }
        }
        let new_part = || Part {
            origin: request.origin,
            blocks: Mutex::new(Blocks::new(self.0.space.clone())),
            durable: Mutex::default(),
        };
        let part = state.parts.get(&key).cloned();
        let part = part.unwrap_or_else(|| Arc::new(new_part()));
        let have = part.durable.lock().clone();
        let left = request
            .size
            .unwrap_or(0)
            .saturating_sub(part.blocks.lock().bytes());
        self.0
            .space
            .check(left)
            .map_err(|cause| FileError::new("receive", request.name, cause))?;
        state.parts.insert(key.clone(), part.clone());
        drop(state);
        Ok((
            Box::new(MemoryPart {
                storage: self.clone(),
                key,
                part,
                replace: request.replace,
                mode: request.mode,
                modified: request.modified,
                attributes: request.attributes.cloned().unwrap_or_default(),
            }),
            have,
        ))
    }

    fn keeps_attributes(&self) -> bool {
        true
    }

    fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Listed, FileError> {
        self.0.state.lock().tree.list(dir, after, most)
    }

    fn stat(&self, name: &Name) -> Result<Stat, FileError> {
        self.0.state.lock().tree.stat(name)
    }

    fn remove(&self, name: &Name) -> Result<(), FileError> {
        self.0.state.lock().tree.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError> {
        self.0.state.lock().tree.rename(from, to, replace)
    }

    fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        self.0.state.lock().tree.make_dir(name)
    }

    fn remove_if(&self, name: &Name, tag: ETag) -> Result<(), FileError> {
        let tree = &mut self.0.state.lock().tree;
        tree.check_tag("remove", name, tag)?;
        tree.remove(name)
    }

    fn rename_if(&self, from: &Name, to: &Name, replace: bool, tag: ETag) -> Result<(), FileError> {
        let tree = &mut self.0.state.lock().tree;
        tree.check_tag("rename", from, tag)?;
        tree.rename(from, to, replace)
    }
}

/// Content of a file that is open, whatever becomes of its name.
#[derive(Debug)]
struct OpenContent(Arc<Content>);

impl StoredFile for OpenContent {
    fn identity(&self) -> io::Result<FileIdentity> {
        // Constant for an open file: new content of the name is another object.
        Ok(self.0.identity())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read(bytes, offset)
    }

    fn mode(&self) -> u32 {
        self.0.mode
    }

    fn attributes(&self) -> ObjectAttributes {
        self.0.attributes.clone()
    }
}

struct MemoryPart {
    storage: MemoryStorage,
    key: PartKey,
    part: Arc<Part>,
    replace: Replace,
    mode: u32,
    modified: Option<SystemTime>,
    attributes: ObjectAttributes,
}

impl MemoryPart {
    fn name(&self) -> &Name {
        &self.key.0
    }
}

impl StoredPart for MemoryPart {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Blocks::write(&self.part.blocks, bytes, offset)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.part.blocks.lock().read(bytes, offset);
        Ok(())
    }

    fn sync(&self, durable: &[Subtree]) -> io::Result<()> {
        self.part.durable.lock().extend_from_slice(durable);
        Ok(())
    }

    fn commit(&self, size: u64) -> Result<Option<FileIdentity>, FileError> {
        let mut state = self.storage.0.state.lock();
        state.tree.check_free(self.name(), self.replace)?;
        let blocks = self.part.blocks.lock().take();
        let content = self.storage.content(
            blocks,
            size,
            self.mode,
            self.modified,
            self.attributes.clone(),
        );
        let identity = content.identity();
        state.parts.remove(&self.key);
        state.tree.put(self.name(), content, self.replace)?;
        Ok(Some(identity))
    }

    fn discard(&self) {
        let mut state = self.storage.0.state.lock();
        if state
            .parts
            .get(&self.key)
            .is_some_and(|part| Arc::ptr_eq(part, &self.part))
        {
            state.parts.remove(&self.key);
        }
    }
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStorage")
            .field("used", &self.used())
            .field("unfinished", &self.unfinished())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPart")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}
