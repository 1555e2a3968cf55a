//! Read jobs of a tree's sender: contents of small files, and digests.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use nicstripe_proto::{Digest, FailCode, SourceIdentity, tree::EntryId};
use rustix::{
    buffer::spare_capacity,
    fs::{FileType, OFlags, fstat},
    io::{Errno, pread},
};

use crate::{
    file::{FileError, Hashing, IoPool, ReadOptions, SOURCE_FLAGS, Source, identity_of},
    tree::{
        anchor::Location,
        channel::{Done, ReadFile, SenderInput},
        walk::code_of,
    },
};

/// Maximum number of files that are being read, or were read and wait to be packed.
const MOST_READS: usize = 64;

const MOST_DIGESTS: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct ReadRequest {
    pub(super) id: EntryId,
    pub(super) location: Location,
    /// Identity of the file when the walk found it.
    pub(super) identity: SourceIdentity,
}

/// Read jobs of a tree's sender on the I/O threads. Dropping it cancels jobs that have not begun.
pub(super) struct Reads {
    pool: IoPool,
    done: mpsc::Sender<SenderInput>,
    stopped: Arc<AtomicBool>,
    allow_changing: bool,
    /// Limit in bytes on contents that are being read, or wait to be packed. A single file may
    /// exceed it.
    most_bytes: u64,
    waiting: VecDeque<ReadRequest>,
    ready: VecDeque<ReadFile>,
    files: usize,
    bytes: u64,
    digests: usize,
}

impl Reads {
    pub(super) fn new(
        pool: IoPool,
        done: mpsc::Sender<SenderInput>,
        allow_changing: bool,
        most_bytes: u64,
    ) -> Self {
        Self {
            pool,
            done,
            stopped: Arc::default(),
            allow_changing,
            most_bytes,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            files: 0,
            bytes: 0,
            digests: 0,
        }
    }

    /// Returns true if no file waits to be read or packed.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.files == 0
    }

    pub(super) fn is_reading(&self) -> bool {
        self.files > self.ready.len() || self.digests > 0
    }

    pub(super) fn has_room_for_digest(&self) -> bool {
        self.digests < MOST_DIGESTS
    }

    pub(super) fn want(&mut self, request: ReadRequest) {
        self.waiting.push_back(request);
    }

    /// Starts read jobs up to the limits. Removes and returns the queued files for which
    /// `is_wanted` is false.
    pub(super) fn begin(&mut self, is_wanted: impl Fn(EntryId) -> bool) -> Vec<EntryId> {
        let mut unwanted = Vec::new();
        while let Some(next) = self.waiting.front() {
            let size = next.identity.size;
            if self.files >= MOST_READS || (self.files > 0 && self.bytes + size > self.most_bytes) {
                break;
            }
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            if !is_wanted(request.id) {
                unwanted.push(request.id);
                continue;
            }
            (self.files, self.bytes) = (self.files + 1, self.bytes + size);
            self.read(request);
        }
        unwanted
    }

    fn read(&self, request: ReadRequest) {
        let (done, stopped, allow_changing) =
            (self.done.clone(), self.stopped.clone(), self.allow_changing);
        self.pool.run(move || {
            if !stopped.load(Ordering::Relaxed) {
                let content = read(&request, allow_changing);
                // Fails if the sender has ended; then the content is not needed.
                let _ = done.send(SenderInput::Job(Done::Content(ReadFile {
                    id: request.id,
                    size: request.identity.size,
                    content,
                })));
            }
        });
    }

    /// Queues a file that was read, so that it can be packed.
    pub(super) fn arrived(&mut self, file: ReadFile) {
        self.ready.push_back(file);
    }

    /// Returns the next file that was read, which makes room for further reads.
    pub(super) fn next(&mut self) -> Option<(EntryId, Result<Vec<u8>, FileError>)> {
        let ReadFile { id, size, content } = self.ready.pop_front()?;
        (self.files, self.bytes) = (self.files - 1, self.bytes - size);
        Some((id, content))
    }

    pub(super) fn digest(&mut self, request: ReadRequest) {
        self.digests += 1;
        let (id, done) = (request.id, self.done.clone());
        let mut digesting = Digesting {
            hashing: Hashing::of(request.identity.size),
            request,
            allow_changing: self.allow_changing,
            file: None,
        };
        self.pool.run_in_turns(
            self.stopped.clone(),
            move || digesting.turn(),
            move |result| {
                if let Some(result) = result {
                    // An error is not reported here: without a digest the file counts as different,
                    // and reading its content fails again.
                    let digest = result.ok();
                    let _ = done.send(SenderInput::Job(Done::Digest { id, digest }));
                }
            },
        );
    }

    pub(super) fn digested(&mut self) {
        self.digests = self.digests.saturating_sub(1);
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// File whose digest is being computed.
struct Digesting {
    request: ReadRequest,
    allow_changing: bool,
    file: Option<File>,
    hashing: Hashing,
}

impl Digesting {
    fn turn(&mut self) -> Result<ControlFlow<Digest>, FileError> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.request, self.allow_changing)?),
        };
        self.hashing
            .turn(|bytes, offset| file.read_exact_at(bytes, offset))
            .map_err(|error| unread(&self.request, error))
    }
}

pub(super) fn open_standalone(
    request: &ReadRequest,
    options: ReadOptions,
) -> Result<Source, FileError> {
    Source::of(
        open(request, options.allow_changing)?,
        request.location.label(),
        options,
    )
}

/// Reads a whole file. Fails if its identity, before or after the read, differs from the one that
/// the walk found.
fn read(request: &ReadRequest, allow_changing: bool) -> Result<Vec<u8>, FileError> {
    let file = open(request, allow_changing)?;
    let size = request.identity.size as usize;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let at = bytes.len() as u64;
        match pread(&file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(unread(request, io::ErrorKind::UnexpectedEof.into())),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(unread(request, error.into())),
        }
    }
    // The allocator may have given more room than was asked for.
    bytes.truncate(size);
    check(request, &file, allow_changing)?;
    Ok(bytes)
}

fn open(request: &ReadRequest, allow_changing: bool) -> Result<File, FileError> {
    let opened = request
        .location
        .open(SOURCE_FLAGS | OFlags::NOFOLLOW)
        .map_err(|error| {
            let code = code_of(&error);
            FileError::new("open", request.location.label(), error).with_code(code)
        })?;
    let file = File::from(opened);
    check(request, &file, allow_changing)?;
    Ok(file)
}

fn check(request: &ReadRequest, file: &File, allow_changing: bool) -> Result<(), FileError> {
    let label = || request.location.label();
    let changed = |error: io::Error| {
        FileError::new("send", label(), error).with_code(FailCode::SourceChanged)
    };
    let stat = fstat(file).map_err(|error| FileError::new("stat", label(), error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(changed(io::Error::other("it is no longer a regular file")));
    }
    if allow_changing {
        return Ok(());
    }
    request
        .identity
        .check(&identity_of(&stat))
        .map_err(|error| changed(io::Error::other(error)))
}

fn unread(request: &ReadRequest, error: io::Error) -> FileError {
    let label = request.location.label();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let error = io::Error::other("it was truncated while being read");
            FileError::new("read", label, error).with_code(FailCode::SourceChanged)
        }
        _ => FileError::new("read", label, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::anchor::{Anchor, Base};

    const MOST: u64 = 8 << 20;

    fn request(id: u64, size: u64) -> ReadRequest {
        let anchor = Arc::new(Anchor::open(Base::Path("/".into()), false).unwrap());
        let location = Location::beneath_anchor(anchor, b"nicstripe does not exist");
        ReadRequest {
            id: EntryId(id),
            location,
            identity: SourceIdentity {
                size,
                ..SourceIdentity::default()
            },
        }
    }

    #[test]
    fn no_more_is_read_ahead_than_may_be_and_a_larger_file_alone() {
        let (done, jobs) = mpsc::channel();
        let mut reads = Reads::new(IoPool::start().unwrap(), done, false, MOST);
        (0..100).for_each(|id| reads.want(request(id, 1 << 20)));
        assert!(reads.begin(|_| true).is_empty());
        assert_eq!((reads.files as u64, reads.bytes), (MOST >> 20, MOST));
        for _ in 0..100 {
            let Ok(SenderInput::Job(Done::Content(file))) = jobs.recv() else {
                panic!("no content")
            };
            assert_eq!(
                file.content.as_ref().unwrap_err().code,
                FailCode::SourceChanged
            );
            reads.arrived(file);
            assert!(reads.next().is_some());
            reads.begin(|_| true);
            assert!(reads.bytes <= MOST);
        }
        assert!(reads.is_empty() && !reads.is_reading());
        (0..100).for_each(|id| reads.want(request(id, 1)));
        reads.want(request(100, 2 * MOST));
        reads.begin(|_| true);
        assert_eq!(reads.files, MOST_READS);
        assert_eq!(reads.begin(|_| false), [0; 0].map(EntryId));
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_read() {
        let (done, _jobs) = mpsc::channel();
        let mut reads = Reads::new(IoPool::start().unwrap(), done, false, MOST);
        (0..4).for_each(|id| reads.want(request(id, 1)));
        assert_eq!(reads.begin(|id| id.0 == 2), [0, 1, 3].map(EntryId));
        assert_eq!(reads.files, 1);
    }
}
