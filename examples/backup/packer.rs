//! Splits the files of a directory into chunks, and sends those that the repository lacks.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use fastcdc::v2020::StreamCDC;
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
};

use crate::{
    Result,
    format::{Hash, Index, Kind, Node, Snapshot},
    repo::{INDEXES, PACKS, Repo, SNAPSHOTS},
};

impl Repo {
    pub(crate) async fn backup(&self, folder: PathBuf, pack_size: usize) -> Result<()> {
        let known = self.places().await?.into_keys().collect();
        let (full, mut packs) = mpsc::channel(1);
        let packer = Packer {
            folder,
            known,
            pack: Pack::default(),
            pack_size,
            full,
            manifest: Vec::new(),
            files: 0,
            bytes: 0,
        };
        let packing = spawn_blocking(move || packer.run());

        // Sends packs concurrently, each over all links. The packer waits while the maximum number
        // is in flight.
        let mut index = Index::default();
        let mut sending: JoinSet<Result<Hash>> = JoinSet::new();
        let mut sent = 0;
        while let Some(pack) = packs.recv().await {
            if sending.len() == PACKS_AT_ONCE {
                sending.join_next().await.transpose()?.transpose()?;
            }
            sent += pack.bytes.len();
            index.packs.push((Hash::of(&pack.bytes), pack.chunks));
            let repo = self.clone();
            sending.spawn(async move { repo.put(PACKS, pack.bytes).await });
        }
        while let Some(done) = sending.join_next().await {
            done??;
        }
        let snapshot = packing.await??;
        // All packs are durable at this point. The index may refer to the packs, and then the
        // snapshot to the index.
        if !index.packs.is_empty() {
            self.put(INDEXES, minicbor::to_vec(&index)?).await?;
        }
        let name = self.put(SNAPSHOTS, minicbor::to_vec(&snapshot)?).await?;
        println!(
            "{}: {} files, {} bytes, {sent} bytes sent",
            name.hex(),
            snapshot.files,
            snapshot.bytes
        );
        Ok(())
    }
}

/// Concatenated chunks, sent as one file.
#[derive(Debug, Default)]
struct Pack {
    bytes: Vec<u8>,
    chunks: Vec<(Hash, u32)>,
}

/// Reader of a directory that fills packs with new chunks on a separate thread. An unchanged
/// directory gives identical packs.
#[derive(Debug)]
struct Packer {
    folder: PathBuf,
    known: HashSet<Hash>,
    pack: Pack,
    pack_size: usize,
    full: mpsc::Sender<Pack>,
    manifest: Vec<u8>,
    files: u64,
    bytes: u64,
}

impl Packer {
    fn run(mut self) -> Result<Snapshot> {
        let time = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_millis() as u64;
        self.add(Path::new(""))?;
        let bytes = self.bytes;
        let manifest = std::mem::take(&mut self.manifest);
        let manifest = self.content(&manifest[..])?;
        self.send()?;
        Ok(Snapshot {
            time,
            files: self.files,
            bytes,
            manifest,
        })
    }

    /// Adds a path within the directory to the backup, recursively.
    fn add(&mut self, path: &Path) -> Result<()> {
        let full = self.folder.join(path);
        let at = |error: io::Error| format!("cannot read {}: {error}", full.display());
        let metadata = fs::symlink_metadata(&full).map_err(at)?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Dir,
            kind if kind.is_symlink() => Kind::Link(
                fs::read_link(&full)
                    .map_err(at)?
                    .into_os_string()
                    .into_vec(),
            ),
            kind if kind.is_file() => Kind::File(self.content(File::open(&full).map_err(at)?)?),
            _ => {
                eprintln!(
                    "skipped: {} is neither file, directory nor symbolic link",
                    full.display()
                );
                return Ok(());
            }
        };
        self.files += u64::from(metadata.is_file());
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let node = Node {
            path: path.as_os_str().as_bytes().to_vec(),
            mode: metadata.mode() & 0o7777,
            modified,
            kind,
        };
        minicbor::encode(&node, &mut self.manifest)?;
        if metadata.is_dir() {
            let mut names = fs::read_dir(&full)
                .map_err(at)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()
                .map_err(at)?;
            names.sort();
            names
                .iter()
                .try_for_each(|name| self.add(&path.join(name)))?;
        }
        Ok(())
    }

    /// Splits a file's content into chunks, and packs the new chunks. Returns the hashes of all
    /// chunks.
    fn content(&mut self, from: impl Read) -> Result<Vec<Hash>> {
        let mut chunks = Vec::new();
        for chunk in StreamCDC::new(from, CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX) {
            let bytes = chunk?.data;
            let hash = Hash::of(&bytes);
            self.bytes += bytes.len() as u64;
            chunks.push(hash);
            if self.known.insert(hash) {
                self.pack.chunks.push((hash, bytes.len() as u32));
                self.pack.bytes.extend_from_slice(&bytes);
            }
            if self.pack.bytes.len() >= self.pack_size {
                self.send()?;
            }
        }
        Ok(chunks)
    }

    fn send(&mut self) -> Result<()> {
        let pack = std::mem::take(&mut self.pack);
        if pack.bytes.is_empty() {
            return Ok(());
        }
        // Fails if the receiver has ended. The receiver reports the reason.
        self.full
            .blocking_send(pack)
            .map_err(|_| "interrupted".into())
    }
}

/// Minimum, average and maximum chunk size in bytes. Smaller chunks deduplicate better, but each
/// chunk costs memory and an entry in the manifest.
const CHUNK_MIN: usize = 128 << 10;
const CHUNK_AVERAGE: usize = 512 << 10;
const CHUNK_MAX: usize = 2 << 20;

/// Number of packs sent concurrently. While one pack becomes durable, the others keep the links
/// busy. Memory holds these packs, one being filled and one queued: 100 MiB in all.
const PACKS_AT_ONCE: usize = 4;
