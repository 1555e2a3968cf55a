//! What of a target does not come: its holes, and what of the file that has the name stays.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, OnceLock, PoisonError},
};

use nicstripe_proto::{ChainingValue, ChunkId, ChunkSet, Extent, FailCode, Grid, HoleMap, hash_tree::chunk_value};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, copy_file_range, fallocate, fstat, ioctl_ficlone, openat};

use super::{Place, TMPFS_MAGIC, Target, TargetRequest};
use crate::file::{
    FileError,
    buffer::ChunkBuffer,
    holes::{is_zeros, make_zeros, punch_zeros, whole_blocks},
};

/// What a target knows of what does not come.
#[derive(Debug, Default)]
pub(super) struct Spared {
    /// Set when the sender has told its holes.
    pub(super) holes: OnceLock<HoleMap>,
    /// Chunks that were written as they came, although parts of them may be holes: these are looked for before the file gets its name.
    pub(super) written_whole: Mutex<ChunkSet>,
    /// The file that has the name, to be compared.
    pub(super) basis: Option<Basis>,
    /// What an earlier attempt left durable: it must not be written to but with the same bytes.
    pub(super) durable: ChunkSet,
    /// Whether the part file was new and empty, so that whatever is not written is zeros.
    pub(super) is_new: bool,
}

/// The file that has the name.
#[derive(Debug)]
pub(super) struct Basis {
    /// Where its chunks have to be copied from; none where they are in the target already.
    copied_from: Option<File>,
    /// Whether a part of it can become part of the target without being written.
    can_share: bool,
    /// Chunks of the new file that it has as a whole, from the first.
    chunks: u64,
}

impl Basis {
    /// Opens the file that has the name, for a new part file or, with `part`, one that was begun before. Where the file system can, a new part
    /// file becomes a clone of it.
    pub(super) fn open(request: &TargetRequest<'_>, grid: Grid, part: &File, is_new: bool) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let old = File::from(openat(&request.dir, request.name, flags, Mode::empty()).ok()?);
        let stat = fstat(&old).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)?;
        let chunks = chunks_within(grid, stat.st_size as u64);
        if chunks == 0 {
            return None;
        }
        let is_clone = is_new && ioctl_ficlone(part, &old).is_ok();
        // A part file that was begun before may have been no clone, and what it has of its own must stay.
        let can_share = !is_new && can_share(request, &old);
        Some(Self { copied_from: (!is_clone).then_some(old), can_share, chunks })
    }

    /// The target itself, of `size` bytes.
    pub(super) fn of_itself(grid: Grid, size: u64) -> Self {
        Self { copied_from: None, can_share: false, chunks: chunks_within(grid, size) }
    }

    /// Whether the part file is a clone of it.
    pub(super) fn is_clone(&self) -> bool {
        self.copied_from.is_none()
    }
}

/// Chunks of `grid` that a file of `size` bytes has as a whole.
fn chunks_within(grid: Grid, size: u64) -> u64 {
    if size >= grid.size { grid.chunk_count() } else { size / grid.chunk_size.bytes() }
}

impl Target {
    /// Whether the sender will tell holes.
    pub(crate) fn awaits_holes(&self) -> bool {
        self.offer.data.is_some()
    }

    /// How many chunks, from the first, are to be compared with what is there.
    pub(crate) fn delta(&self) -> Option<u64> {
        self.spared.basis.as_ref().map(|basis| basis.chunks)
    }

    /// Sees to it that chunks that are holes read as zeros, and takes the space that the others need.
    pub(crate) fn make_holes(&self, holes: HoleMap) -> Result<(), FileError> {
        if self.place == Place::Named {
            return Ok(());
        }
        if self.holds_old_data() {
            for range in holes.chunks(self.grid).ranges() {
                for extent in self.spared.durable.gaps(range).filter_map(|gap| self.grid.extent_of_range(gap)) {
                    make_zeros(&self.part, extent).map_err(|cause| self.error("make a hole in", cause).resumable())?;
                }
            }
        } else {
            self.reserve_data(&holes)?;
        }
        let _ = self.spared.holes.set(holes);
        Ok(())
    }

    /// Whether there may be something else than zeros where nothing was received.
    fn holds_old_data(&self) -> bool {
        !self.spared.is_new
            || !matches!(self.place, Place::Part | Place::Unnamed)
            || self.spared.basis.as_ref().is_some_and(Basis::is_clone)
    }

    fn reserve_data(&self, holes: &HoleMap) -> Result<(), FileError> {
        if rustix::fs::fstatfs(&self.part).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC) {
            return Ok(());
        }
        for Extent { offset, len } in holes.data(self.grid.size) {
            match fallocate(&self.part, FallocateFlags::empty(), offset, len) {
                Err(rustix::io::Errno::NOSPC) => {
                    let cause = io::Error::other("the disk is full");
                    return Err(FileError::new("receive", &self.shown, cause).with_code(FailCode::NoSpace));
                }
                // Not every file system can.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// The parts of a chunk that have to be written: all but what the sender says is a hole, is zeros, and reads as zeros already.
    pub(super) fn parts_to_write(&self, chunk: ChunkId, extent: Extent, bytes: &[u8]) -> Vec<Extent> {
        let may_leave_out = !self.holds_old_data() && self.spared.basis.is_none();
        match self.spared.holes.get() {
            Some(holes) if may_leave_out => parts_outside(holes, extent, bytes, self.grid.size),
            _ => {
                self.look_for_holes_in(chunk);
                vec![extent]
            }
        }
    }

    /// Zeros of this chunk that are holes at the sender take space here: they are punched before the file gets its name.
    fn look_for_holes_in(&self, chunk: ChunkId) {
        if self.awaits_holes() {
            self.spared.written_whole.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk);
        }
    }

    /// Turns zeros that were written into the holes that they are at the sender.
    pub(super) fn punch_written(&self) -> io::Result<()> {
        let Some(holes) = self.spared.holes.get().filter(|_| self.place != Place::Device) else { return Ok(()) };
        let chunks = std::mem::take(&mut *self.spared.written_whole.lock().unwrap_or_else(PoisonError::into_inner));
        for extent in chunks.ranges().filter_map(|range| self.grid.extent_of_range(range)) {
            for hole in holes.within(extent) {
                punch_zeros(&self.part, hole, self.grid.size)?;
            }
        }
        Ok(())
    }

    /// Reads a chunk of the file that is there and puts it where the new file has it; nothing where it cannot be read.
    pub(crate) fn compare_chunk(&self, chunk: ChunkId, buffer: &mut ChunkBuffer) -> Result<Option<ChainingValue>, FileError> {
        let Some((basis, extent)) = self.spared.basis.as_ref().zip(self.grid.extent_of(chunk)) else { return Ok(None) };
        let copied_from = basis.copied_from.as_ref().filter(|_| !self.spared.durable.contains(chunk));
        // What was shared is read from the target: so what was compared is what is there, whoever writes the old file meanwhile.
        let copied_from = copied_from.filter(|old| !(basis.can_share && share(old, &self.part, extent)));
        let bytes = buffer.bytes_mut(extent.len as usize);
        if let Err(error) = copied_from.unwrap_or(&self.part).read_exact_at(bytes, extent.offset) {
            tracing::debug!(chunk = chunk.0, %error, "cannot read what is there");
            return Ok(None);
        }
        let Ok(value) = chunk_value(self.grid, chunk, bytes) else { return Ok(None) };
        let parts = match self.spared.holes.get() {
            // A new file is zeros where nothing is written.
            Some(holes) if copied_from.is_some() && self.spared.is_new => parts_outside(holes, extent, bytes, self.grid.size),
            _ => {
                self.look_for_holes_in(chunk);
                Vec::from_iter(copied_from.is_some().then_some(extent))
            }
        };
        self.store_parts(parts, extent, bytes)?;
        Ok(Some(value))
    }

    /// Writes parts of a chunk whose bytes these are.
    pub(super) fn store_parts(&self, parts: Vec<Extent>, extent: Extent, bytes: &[u8]) -> Result<(), FileError> {
        for part in parts {
            let bytes = &bytes[(part.offset - extent.offset) as usize..][..part.len as usize];
            self.store(bytes, part.offset).map_err(|cause| self.error("write", cause).resumable())?;
        }
        Ok(())
    }
}

/// Whether the file system can clone the file that has the name.
fn can_share(request: &TargetRequest<'_>, old: &File) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(&request.dir, ".", flags, Mode::RUSR | Mode::WUSR).is_ok_and(|probe| ioctl_ficlone(probe, old).is_ok())
}

/// Lets the target have an extent of the old file, in the kernel; says whether it has all of it.
fn share(old: &File, target: &File, extent: Extent) -> bool {
    let (mut from, mut to) = (extent.offset, extent.offset);
    let end = extent.offset + extent.len;
    while from < end {
        let left = (end - from) as usize;
        match copy_file_range(old, Some(&mut from), target, Some(&mut to), left) {
            Ok(copied) if copied > 0 => {}
            _ => return false,
        }
    }
    true
}

/// The parts of an extent, whose bytes these are, that are not zeros in holes of the file of `size` bytes.
fn parts_outside(holes: &HoleMap, extent: Extent, bytes: &[u8], size: u64) -> Vec<Extent> {
    let end = extent.offset + extent.len;
    let of = |part: &Extent| (part.offset - extent.offset) as usize..(part.offset + part.len - extent.offset) as usize;
    let blocks = holes.within(extent).filter_map(|hole| whole_blocks(hole, size));
    let (mut parts, mut next) = (Vec::new(), extent.offset);
    for hole in blocks.filter(|hole| is_zeros(&bytes[of(hole)])).chain([Extent { offset: end, len: 0 }]) {
        parts.extend((next < hole.offset).then(|| Extent { offset: next, len: hole.offset - next }));
        next = hole.offset + hole.len;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_shared_as_a_whole_or_not_at_all() {
        let (old, new) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..100_000_u32).map(|byte| byte as u8).collect();
        old.write_all_at(&bytes, 0).unwrap();
        new.set_len(100_000).unwrap();
        assert!(share(&old, &new, Extent { offset: 4096, len: 65_536 }));
        let mut found = vec![0; 100_000];
        new.read_exact_at(&mut found, 0).unwrap();
        assert!(found[4096..4096 + 65_536] == bytes[4096..4096 + 65_536]);
        assert!(found[..4096].iter().chain(&found[4096 + 65_536..]).all(|byte| *byte == 0));
        assert!(!share(&old, &new, Extent { offset: 98_304, len: 4096 }), "the old file ends before");
    }
}
