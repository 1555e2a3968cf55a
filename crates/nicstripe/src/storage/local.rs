//! Local file that a program fills from elsewhere.

use std::{io, ops::ControlFlow, path::Path, time::SystemTime};

use nicstripe_proto::{
    ChunkSize, Digest, ETag, Grid, Offer, SourceIdentity, Subtree, TransferId,
    journal::Timestamp,
    message::{OfferKind, PutOptions},
};

use crate::file::{
    self, FileError, Sidecar, TargetRequest, creation_mask, make_parents, open_parent,
    options::CopyOptions, timestamp_of, umask,
};

/// File of this machine that a program fills at any offsets, as a copy fills its target: hidden
/// until it is complete, then durable under its name.
///
/// Data that [`sync`](Self::sync) has recorded survives a kill and a power cut, and the next
/// [`begin`](Self::begin) of the same path, origin and size returns it. A part that is dropped
/// before its first `sync` leaves nothing. All calls block.
///
/// ```
/// use nicstripe::{CopyOptions, storage::{LocalPart, LocalRequest}};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("greeting");
/// let (part, have) = LocalPart::begin(&path, LocalRequest::new(5, [0; 32]), CopyOptions::default())?;
/// assert!(have.is_empty());
/// part.write_all_at(b"hello", 0)?;
/// part.commit(None)?;
/// assert_eq!(std::fs::read(path)?, b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalPart {
    target: file::Target,
}

/// Content of a [`LocalPart`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocalRequest {
    /// Size of the file in bytes; `None` if unknown until the end. Such a part is never resumed.
    pub size: Option<u64>,
    /// Hash of what the content is, such as a place and a version. Only a part with an equal origin
    /// is resumed.
    pub origin: [u8; 32],
    /// Bytes per chunk, which [`LocalPart::sync`] counts in.
    pub chunk_size: ChunkSize,
    /// Modification time of the complete file; `None` for the time of the commit.
    pub modified: Option<SystemTime>,
    /// Permissions of the complete file; `None` for those of a new file.
    pub mode: Option<u32>,
}

impl LocalRequest {
    /// Returns the request for a file of this size in bytes and this origin, in chunks of 256 KiB.
    pub const fn new(size: u64, origin: [u8; 32]) -> Self {
        Self {
            size: Some(size),
            origin,
            chunk_size: ChunkSize::DEFAULT,
            modified: None,
            mode: None,
        }
    }
}

impl LocalPart {
    /// Starts the file `path`, or resumes an earlier attempt. Returns the part, and the subtrees that
    /// are durable from that attempt.
    ///
    /// Of the options `replace`, `force`, `restart` and `parents` count.
    ///
    /// # Errors
    ///
    /// The name exists and must not be replaced, is of another kind, or its directory does not exist;
    /// another process fills the file; or the disk is full.
    pub fn begin(
        path: &Path,
        request: LocalRequest,
        options: CopyOptions,
    ) -> Result<(Self, Vec<Subtree>), FileError> {
        if options.parents {
            make_parents(path)?;
        }
        let request = target_request(path, &request, options)?;
        let (target, mut have) = file::Target::open(request)?;
        // An earlier attempt may have completed the file, and ended before its journal was gone.
        if let Some(mut rehash) = target.rehash() {
            have = loop {
                if let ControlFlow::Break(found) = target.rehash_turn(&mut rehash)? {
                    break found;
                }
            };
        }
        Ok((Self { target }, have))
    }

    /// Returns the division of the file into chunks.
    pub fn grid(&self) -> Grid {
        self.target.grid
    }

    /// Writes bytes at `offset`. May be called concurrently for disjoint extents. Waits for a running
    /// [`sync`](Self::sync) when 32 MiB have been written since it began.
    ///
    /// # Errors
    ///
    /// The disk is full, or failed.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.target.write_all_at(bytes, offset)
    }

    /// Fills `bytes` with written data from `offset`.
    ///
    /// # Errors
    ///
    /// The file is too short, or the disk failed.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.target.read_exact_at(bytes, offset)
    }

    /// Makes all data written before the call durable, then records the subtrees as such.
    ///
    /// # Errors
    ///
    /// After an error no data of the part can be trusted.
    pub fn sync(&self, durable: Vec<Subtree>) -> Result<(), FileError> {
        self.target.sync(durable)
    }

    /// Makes the complete file durable under its name. Returns its entity tag. `digest` is its BLAKE3
    /// hash, which is kept next to it.
    ///
    /// # Errors
    ///
    /// The name was taken meanwhile and must not be replaced, or the disk failed.
    pub fn commit(&self, digest: Option<Digest>) -> Result<Option<ETag>, FileError> {
        self.target.commit(digest.unwrap_or(Digest::NONE))?;
        Ok(self.target.etag())
    }

    /// Deletes the part and its data.
    pub fn discard(&self) {
        self.target.discard();
    }
}

/// Takes the place of a peer's key in the names of hidden files: one program fills a name at a time.
const FILLER: [u8; 32] = *b"nicstripe: filled by a program.\0";

fn target_request(
    path: &Path,
    request: &LocalRequest,
    options: CopyOptions,
) -> Result<TargetRequest, FileError> {
    let (dir, name) = open_parent(path)?;
    let mask = creation_mask(&dir, umask());
    Ok(TargetRequest {
        dir,
        name: name.to_owned(),
        offer: offer(
            request,
            request.mode.map_or(0o666 & !mask, |mode| mode & 0o777),
        ),
        options: PutOptions {
            replace: options.replace || options.force,
            force: options.force,
            restart: options.restart,
            preserve: request.modified.is_some(),
            ..PutOptions::default()
        },
        peer_key: FILLER,
        attributes: None,
        sidecar: Sidecar::Kept(None),
    })
}

/// Describes the content as a peer would. The origin takes the fields that tell files of a peer apart.
fn offer(request: &LocalRequest, mode: u32) -> Offer {
    let word = |at: usize| {
        let bytes = request.origin[at..at + 8].try_into();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let size = request.size.unwrap_or_default();
    Offer {
        transfer: TransferId(0),
        source: SourceIdentity {
            size,
            mtime: request.modified.map(timestamp_of).unwrap_or_default(),
            ctime: Timestamp {
                seconds: word(0).cast_signed(),
                nanoseconds: word(8) as u32,
            },
            inode: word(16),
            device: word(24),
        },
        chunk_log2: request.chunk_size.log2(),
        mode,
        kind: request.size.is_none().then_some(OfferKind::Pipe),
        data: None,
        object: None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nicstripe_proto::{ChunkId, hash_tree::chunk_value};
    use nicstripe_testkit::names;

    use super::*;

    const BYTES: &[u8] = b"what a program fetched";

    fn begin(path: &Path, origin: u8) -> (LocalPart, Vec<Subtree>) {
        let request = LocalRequest::new(BYTES.len() as u64, [origin; 32]);
        LocalPart::begin(path, request, CopyOptions::default()).unwrap()
    }

    fn fill(part: &LocalPart) -> Subtree {
        part.write_all_at(BYTES, 0).unwrap();
        let chunk = ChunkId(0);
        let subtree = Subtree::of_chunk(chunk, chunk_value(part.grid(), chunk, BYTES).unwrap());
        part.sync(vec![subtree]).unwrap();
        subtree
    }

    #[test]
    fn a_file_has_the_time_and_the_permissions_that_were_asked_for() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut request = LocalRequest::new(BYTES.len() as u64, [1; 32]);
        request.mode = Some(0o104_640);
        request.modified = Some(SystemTime::UNIX_EPOCH);
        let (part, _) = LocalPart::begin(&path, request, CopyOptions::default()).unwrap();
        fill(&part);
        part.commit(None).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o640);
        assert_eq!(found.modified().unwrap(), SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn what_was_recorded_is_there_for_the_same_origin_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (part, have) = begin(&path, 1);
        assert!(have.is_empty());
        let subtree = fill(&part);
        drop(part);
        assert!(!path.exists());
        let (part, have) = begin(&path, 1);
        assert_eq!(have, [subtree]);
        drop(part);
        let (part, have) = begin(&path, 2);
        assert!(have.is_empty());
        drop(part);
        assert_eq!(
            names(folder.path()),
            [""; 0],
            "a part without a record is gone"
        );
    }

    #[test]
    fn a_file_whose_name_came_before_a_kill_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (part, _) = begin(&path, 1);
        let subtree = fill(&part);
        let is_journal = |name: &String| name.ends_with("journal");
        let journal = names(folder.path()).into_iter().find(is_journal).unwrap();
        let journal = folder.path().join(journal);
        let kept = folder.path().join("kept");
        fs::hard_link(&journal, &kept).unwrap();
        part.commit(None).unwrap();
        drop(part);
        fs::rename(kept, journal).unwrap();
        let (part, have) = begin(&path, 1);
        assert_eq!(have, [subtree]);
        part.commit(None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), BYTES);
        assert_eq!(names(folder.path()), ["file"]);
    }
}
