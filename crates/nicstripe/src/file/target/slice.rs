//! Ranges of a file that several transfers write at the same time.

use std::{fs::File, io, thread::sleep, time::Duration};

use nicstripe_proto::{FailCode, Grid, Subtree, message::Slice};
use rustix::{
    fs::{FileType, FlockOperation, OFlags, flock, fstat},
    io::Errno,
    process::geteuid,
};

use super::{Files, Sidecar, Target, TargetRequest, TargetState, open_part, refuse_existing};
use crate::file::{attributes::Attributes, error::FileError, target::Spared};

/// Opens the file of a slice; makes it if it only gets data. Nothing is locked: other slices are written at
/// the same time.
pub(super) fn open(
    mut request: TargetRequest,
    slice: Slice,
    grid: Grid,
) -> Result<(Target, Vec<Subtree>), FileError> {
    if !grid.is_open() || slice.offset > slice.size || i64::try_from(slice.size).is_err() {
        let why = "a slice is a stream into a file of known size";
        return Err(request.error("write")(io::Error::other(why)).with_code(FailCode::Refused));
    }
    request.options.replace = true;
    refuse_existing(&request)?;
    let gets_attributes = slice.mtime.is_some() || slice.mode.is_some();
    let flags = match gets_attributes {
        true => OFlags::empty(),
        false => OFlags::CREATE,
    };
    let part = open_part(&request.dir, &request.name, flags).map_err(request.error("open"))?;
    let stat = fstat(&part).map_err(|cause| request.error("stat")(cause.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        let cause = io::Error::other("it is not a regular file with one name");
        return Err(request.error("write")(cause).with_code(FailCode::NotAFile));
    }
    let size = stat.st_size as u64;
    if gets_attributes && size != slice.size {
        let why = format!("it has {size} bytes, expected {}", slice.size);
        return Err(request.error("write")(io::Error::other(why)).with_code(FailCode::Refused));
    }
    // Who may write the file meanwhile could change what was verified.
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        let cause = io::Error::other("users other than the daemon's may write it");
        return Err(request.error("write")(cause).with_code(FailCode::NotPermitted));
    }
    request.forget_content(&part, &stat)?;
    if size < slice.size {
        lengthen(&part, slice.size).map_err(request.error("size"))?;
    }
    let preserves = slice.mode.is_some() && request.options.preserve;
    let mask = if preserves { 0 } else { request.mask() };
    request.attributes = gets_attributes.then(|| Attributes {
        mode: Some(slice.mode.unwrap_or(0o666) & 0o777 & !mask),
        mtime: slice.mtime,
        asks_for_mode: preserves,
        is_new: true,
        ..Attributes::default()
    });
    // That of a slice is not that of the file.
    request.sidecar = Sidecar::None;
    let files = Files {
        part,
        _lock: None,
        part_name: None,
        journal_name: None,
        journal: None,
        state: TargetState::Slice(slice),
        spared: Spared::default(),
    };
    Ok((Target::new(request, files, false), Vec::new()))
}

/// Makes a file at least this long. Others may make it longer at the same time.
fn lengthen(part: &File, size: u64) -> io::Result<()> {
    lock(part)?;
    let found = fstat(part)?.st_size as u64;
    let lengthened = match found < size {
        true => part.set_len(size),
        false => Ok(()),
    };
    flock(part, FlockOperation::Unlock)?;
    lengthened
}

/// Locks a file for as long as its size takes. Another user who may read it can lock it as well, and is not
/// waited for without an end.
fn lock(part: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match flock(part, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE),
            locked => return Ok(locked?),
        }
    }
    Err(io::Error::other("another program has locked it"))
}

/// How often a locked file is tried, and the time between two tries: a second in all.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Returns the position in the file of bytes at `offset` in the slice.
pub(super) fn position(slice: Slice, offset: u64, len: usize) -> io::Result<u64> {
    let at = slice.offset.checked_add(offset);
    let end = at.and_then(|at| at.checked_add(len as u64));
    at.filter(|_| end.is_some_and(|end| end <= slice.size))
        .ok_or_else(|| io::Error::other("it ends before the data of the slice"))
}
