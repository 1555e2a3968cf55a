//! Parts of a target that are not transferred: holes, and chunks reused from the existing file.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt, sync::OnceLock};

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkSet, Extent, Grid, HoleMap, hash_tree::chunk_value,
};
use parking_lot::Mutex;
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, copy_file_range, fallocate, fstat, ioctl_ficlone,
    openat,
};

use super::{Target, TargetRequest, TargetState};
use crate::file::{
    beneath::{is_tmpfs, open_entry},
    buffer::ChunkBuffer,
    error::FileError,
    holes::{is_zeros, make_zeros, punch_zeros, whole_blocks},
    pool::TURN,
};

/// Parts of a target file that are not transferred: holes and reused chunks.
#[derive(Debug, Default)]
pub(super) struct Spared {
    pub(super) holes: OnceLock<HoleMap>,
    /// Chunks that were written as a whole and may contain holes; the holes are punched before the
    /// commit.
    pub(super) written_whole: Mutex<ChunkSet>,
    /// Existing file to compare with in a delta transfer.
    pub(super) basis: Option<Basis>,
    /// Chunks made durable by an earlier attempt. They may only be overwritten with the same bytes.
    pub(super) durable: ChunkSet,
    /// True if the part file was created empty, so that unwritten parts read as zeros.
    pub(super) is_new: bool,
}

impl Spared {
    /// Returns true if the target already contains the data of the existing file.
    pub(super) fn is_clone(&self) -> bool {
        let basis = self.basis.as_ref();
        basis.is_some_and(|basis| basis.copied_from.is_none())
    }
}

/// Existing file from which the delta receiver takes unchanged chunks.
#[derive(Debug)]
pub(super) struct Basis {
    /// File to copy chunks from; `None` if the target already contains its data, as a clone or an
    /// in-place target does.
    copied_from: Option<File>,
    /// True if the target can share extents with the file instead of copying them (reflink).
    can_share: bool,
    /// Number of leading chunks that the existing file holds completely.
    chunks: u64,
}

impl Basis {
    /// Opens the existing file as the basis of a new or resumed part file. Clones it into a new
    /// part file if the file system supports it.
    pub(super) fn open(
        request: &TargetRequest,
        grid: Grid,
        part: &File,
        is_new: bool,
    ) -> Option<Self> {
        let old = open_entry(&request.dir, &request.name, OFlags::RDONLY).ok()?;
        let stat = fstat(&old)
            .ok()
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)?;
        let chunks = chunks_within(grid, stat.st_size as u64);
        if chunks == 0 {
            return None;
        }
        let is_clone = is_new && ioctl_ficlone(part, &old).is_ok();
        // A resumed part file may not be a clone, and its own data must stay.
        let can_share = !is_new && can_share(request, &old);
        Some(Self {
            copied_from: (!is_clone).then_some(old),
            can_share,
            chunks,
        })
    }

    /// Creates the basis of an in-place target, which is the existing file of `size` bytes itself.
    pub(super) fn of_itself(grid: Grid, size: u64) -> Self {
        Self {
            copied_from: None,
            can_share: false,
            chunks: chunks_within(grid, size),
        }
    }
}

/// Returns the number of chunks of `grid` that a file of `size` bytes holds completely.
fn chunks_within(grid: Grid, size: u64) -> u64 {
    if size >= grid.size {
        grid.chunk_count()
    } else {
        size / grid.chunk_size.bytes()
    }
}

impl Target {
    /// Returns true if the sender will announce the holes of the file.
    pub(crate) fn awaits_holes(&self) -> bool {
        self.request.offer.data.is_some()
    }

    /// Returns the number of leading chunks to compare with the existing file; `None` without
    /// delta.
    pub(crate) fn delta(&self) -> Option<u64> {
        self.files.spared.basis.as_ref().map(|basis| basis.chunks)
    }

    /// Makes the announced holes read as zeros, and allocates the space for the data.
    pub(crate) fn make_holes(&self, holes: HoleMap) -> Result<(), FileError> {
        if self.files.state == TargetState::Named {
            return Ok(());
        }
        if self.holds_old_data() {
            let (holes, durable) = (holes.chunks(self.grid), &self.files.spared.durable);
            let gaps = holes.ranges().flat_map(|range| durable.gaps(range));
            for extent in gaps.filter_map(|gap| self.grid.extent_of_range(gap)) {
                make_zeros(&self.files.part, extent)
                    .map_err(|cause| self.error("make a hole in", cause).resumable())?;
            }
        } else {
            self.reserve_data(&holes)?;
        }
        let _ = self.files.spared.holes.set(holes);
        Ok(())
    }

    /// Returns true if ranges of the target that were not received may contain non-zero bytes.
    fn holds_old_data(&self) -> bool {
        !self.files.spared.is_new
            || !matches!(self.files.state, TargetState::Part | TargetState::Unnamed)
            || self.files.spared.is_clone()
    }

    fn reserve_data(&self, holes: &HoleMap) -> Result<(), FileError> {
        if is_tmpfs(&self.files.part) {
            return Ok(());
        }
        for Extent { offset, len } in holes.data(self.grid.size) {
            match fallocate(&self.files.part, FallocateFlags::empty(), offset, len) {
                Err(rustix::io::Errno::NOSPC) => return Err(self.no_space("the disk is full")),
                // Not supported by every file system.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Returns the ranges of a chunk to write. Omits zeros in the sender's holes if the target
    /// already reads as zeros there.
    pub(super) fn parts_to_write(
        &self,
        chunk: ChunkId,
        extent: Extent,
        bytes: &[u8],
    ) -> Vec<Extent> {
        let may_leave_out = !self.holds_old_data() && self.files.spared.basis.is_none();
        match self.files.spared.holes.get() {
            Some(holes) if may_leave_out => parts_outside(holes, extent, bytes, self.grid.size),
            _ => {
                self.look_for_holes_in(chunk);
                vec![extent]
            }
        }
    }

    /// Marks a chunk that is written whole although it may contain holes. The sender's holes in it
    /// are punched before the commit.
    fn look_for_holes_in(&self, chunk: ChunkId) {
        if self.awaits_holes() {
            self.files.spared.written_whole.lock().insert(chunk);
        }
    }

    /// Returns the extents of the marked chunks, in which the sender's holes were written as zeros.
    pub(super) fn extents_to_punch(&self) -> VecDeque<Extent> {
        if self.files.state == TargetState::Device {
            return VecDeque::new();
        }
        let chunks = std::mem::take(&mut *self.files.spared.written_whole.lock());
        chunks
            .ranges()
            .filter_map(|range| self.grid.extent_of_range(range))
            .collect()
    }

    /// Punches the sender's holes in the first of these extents, up to [`TURN`] bytes, and removes
    /// what is done. Returns true at the end.
    pub(super) fn punch(&self, extents: &mut VecDeque<Extent>) -> io::Result<bool> {
        let Some(holes) = self.files.spared.holes.get() else {
            return Ok(true);
        };
        let mut left = TURN;
        while let Some(extent) = extents.front_mut() {
            let first = holes.within(*extent).find(|hole| hole.len > 0);
            let Some(Extent { offset, len }) = first else {
                extents.pop_front();
                continue;
            };
            // A cut at a multiple of the block size splits no block.
            let end = (offset + len).min((offset / TURN + 1) * TURN);
            let piece = Extent {
                offset,
                len: end - offset,
            };
            let cost = piece.len.max(PUNCH_COST);
            if cost > left {
                return Ok(false);
            }
            left -= cost;
            punch_zeros(&self.files.part, piece, self.grid.size)?;
            extent.len = (extent.offset + extent.len).saturating_sub(end);
            extent.offset = end;
        }
        Ok(true)
    }

    /// Reads a chunk of the existing file and copies it to the target. Returns its hash, or `None`
    /// if it cannot be read.
    pub(crate) fn compare_chunk(
        &self,
        chunk: ChunkId,
        buffer: &mut ChunkBuffer,
    ) -> Result<Option<ChainingValue>, FileError> {
        let Some((basis, extent)) = self
            .files
            .spared
            .basis
            .as_ref()
            .zip(self.grid.extent_of(chunk))
        else {
            return Ok(None);
        };
        let copied_from = basis
            .copied_from
            .as_ref()
            .filter(|_| !self.files.spared.durable.contains(chunk));
        // A shared extent is read from the target, so that a concurrent write to the old file
        // cannot change compared data.
        let copied_from =
            copied_from.filter(|old| !(basis.can_share && share(old, &self.files.part, extent)));
        let bytes = buffer.bytes_mut(extent.len as usize);
        if let Err(error) = copied_from
            .unwrap_or(&self.files.part)
            .read_exact_at(bytes, extent.offset)
        {
            tracing::debug!(chunk = chunk.0, %error, "cannot read existing data");
            return Ok(None);
        }
        let Ok(value) = chunk_value(self.grid, chunk, bytes) else {
            return Ok(None);
        };
        let parts = match self.files.spared.holes.get() {
            // A new file reads as zeros except for written ranges.
            Some(holes) if copied_from.is_some() && self.files.spared.is_new => {
                parts_outside(holes, extent, bytes, self.grid.size)
            }
            _ => {
                self.look_for_holes_in(chunk);
                Vec::from_iter(copied_from.is_some().then_some(extent))
            }
        };
        self.store_parts(parts, extent, bytes)?;
        Ok(Some(value))
    }

    /// Writes `parts` of a chunk to the target, from the chunk's `bytes`.
    pub(super) fn store_parts(
        &self,
        parts: Vec<Extent>,
        extent: Extent,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        for part in parts {
            let bytes = &bytes[(part.offset - extent.offset) as usize..][..part.len as usize];
            self.store(bytes, part.offset)
                .map_err(|cause| self.error("write", cause).resumable())?;
        }
        Ok(())
    }
}

/// Cost of a hole in bytes, however small it is: as many can be read in the time of its system
/// calls (picked by eye).
const PUNCH_COST: u64 = 64 << 10;

/// Returns true if the file system can clone the existing file (FICLONE).
fn can_share(request: &TargetRequest, old: &File) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(&request.dir, ".", flags, Mode::RUSR | Mode::WUSR)
        .is_ok_and(|probe| ioctl_ficlone(probe, old).is_ok())
}

/// Copies an extent of the old file to the target in the kernel, shared if possible. Returns true
/// if the whole extent was copied.
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

/// Returns the ranges of an extent to write: all except zeros in holes. `size` is the size of the
/// file in bytes.
fn parts_outside(holes: &HoleMap, extent: Extent, bytes: &[u8], size: u64) -> Vec<Extent> {
    let end = extent.offset + extent.len;
    let of = |part: &Extent| {
        (part.offset - extent.offset) as usize..(part.offset + part.len - extent.offset) as usize
    };
    let blocks = holes
        .within(extent)
        .filter_map(|hole| whole_blocks(hole, size));
    let (mut parts, mut next) = (Vec::new(), extent.offset);
    for hole in blocks
        .filter(|hole| is_zeros(&bytes[of(hole)]))
        .chain([Extent {
            offset: end,
            len: 0,
        }])
    {
        parts.extend((next < hole.offset).then(|| Extent {
            offset: next,
            len: hole.offset - next,
        }));
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
        let share = |offset, len| share(&old, &new, Extent { offset, len });
        assert!(share(4096, 65_536));
        let mut found = vec![0; 100_000];
        new.read_exact_at(&mut found, 0).unwrap();
        assert!(found[4096..4096 + 65_536] == bytes[4096..4096 + 65_536]);
        let mut others = found[..4096].iter().chain(&found[4096 + 65_536..]);
        assert!(others.all(|byte| *byte == 0));
        assert!(!share(98_304, 4096), "the old file ends before");
    }
}
