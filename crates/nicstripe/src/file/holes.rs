//! Holes of sparse files: detection in a source, creation in a target.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    time::{Duration, Instant},
};

use nicstripe_proto::{Extent, HoleMap};
use rustix::{
    fs::{FallocateFlags, SeekFrom, Stat, fallocate, seek},
    io::Errno,
};

/// Returns the holes of a regular file. Stops after [`MOST_TIME`]; the remainder then counts as
/// data.
pub(super) fn find_holes(file: &File, stat: &Stat) -> HoleMap {
    let (size, mut holes) = (stat.st_size as u64, HoleMap::default());
    if !may_have_holes(stat) {
        return holes;
    }
    let started = Instant::now();
    let mut offset = 0;
    while started.elapsed() < MOST_TIME {
        let Some(hole) = next_hole(file, offset, size) else {
            break;
        };
        offset = hole.offset + hole.len;
        if holes.push(hole, size).is_err() {
            break;
        }
    }
    holes
}

/// Returns true if a file of at least [`LEAST_SIZE`] bytes uses less storage than its size.
/// Compressing file systems also report that, without holes.
pub(crate) fn may_have_holes(stat: &Stat) -> bool {
    stat.st_size as u64 >= LEAST_SIZE
        && (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64
}

/// Returns true if an open file has a hole before its end.
pub(crate) fn has_hole(file: impl AsFd, stat: &Stat) -> bool {
    seek(file, SeekFrom::Hole(0)).is_ok_and(|at| at < stat.st_size as u64)
}

/// Returns the first hole at or after `offset`; the end of the file does not count as a hole.
fn next_hole(file: &File, offset: u64, size: u64) -> Option<Extent> {
    let start = seek(file, SeekFrom::Hole(offset))
        .ok()
        .filter(|start| *start < size)?;
    let end = match seek(file, SeekFrom::Data(start)) {
        Ok(end) => end.min(size),
        Err(Errno::NXIO) => size,
        Err(_) => return None,
    };
    (start < end).then_some(Extent {
        offset: start,
        len: end - start,
    })
}

/// Makes an extent read as zeros: punches a hole if the file system or device supports it,
/// otherwise writes zeros.
pub(super) fn make_zeros(file: &File, extent: Extent) -> io::Result<()> {
    match punch(file, extent) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        result => return Ok(result?),
    }
    let mut offset = extent.offset;
    let end = extent.offset + extent.len;
    while offset < end {
        let len = (end - offset).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..len as usize], offset)?;
        offset += len;
    }
    Ok(())
}

/// Punches a hole for each part of an extent that contains only zeros, in whole blocks. `size` is
/// the size of the file in bytes.
pub(super) fn punch_zeros(file: &File, extent: Extent, size: u64) -> io::Result<()> {
    let Some(Extent { mut offset, len }) = whole_blocks(extent, size) else {
        return Ok(());
    };
    let end = offset + len;
    let mut buffer = vec![0; ZEROS.len()];
    while offset < end {
        let bytes = &mut buffer[..(end - offset).min(ZEROS.len() as u64) as usize];
        file.read_exact_at(bytes, offset)?;
        if is_zeros(bytes) {
            // Not supported by every file system; the written zeros remain correct.
            let _ = punch(
                file,
                Extent {
                    offset,
                    len: bytes.len() as u64,
                },
            );
        }
        offset += bytes.len() as u64;
    }
    Ok(())
}

/// Returns the whole blocks of an extent in a file of `size` bytes. The file's partial last block
/// counts as whole.
pub(super) fn whole_blocks(extent: Extent, size: u64) -> Option<Extent> {
    let (start, end) = (
        extent.offset.next_multiple_of(BLOCK),
        extent.offset + extent.len,
    );
    let end = if end >= size { end } else { end - end % BLOCK };
    (start < end).then(|| Extent {
        offset: start,
        len: end - start,
    })
}

pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    bytes
        .chunks(ZEROS.len())
        .all(|bytes| *bytes == ZEROS[..bytes.len()])
}

fn punch(file: &File, extent: Extent) -> rustix::io::Result<()> {
    fallocate(
        file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        extent.offset,
        extent.len,
    )
}

/// Minimum size in bytes of a file that is searched for holes. Holes in a smaller file would save
/// less than one frame, or than a separate transfer costs.
const LEAST_SIZE: u64 = 64 * 1024;

/// Time limit of the search for holes: 65,536 holes take 50 ms on ext4 (measured); a network file
/// system may be slow.
const MOST_TIME: Duration = Duration::from_secs(2);

/// Granularity of holes in bytes: a multiple of the block size of every file system in use.
pub(super) const BLOCK: u64 = 4096;

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file of `size` bytes with data at these offsets and of these lengths. The other
    /// parts are holes, if the file system supports them.
    fn sparse(size: u64, data: &[(u64, usize)]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        data.iter()
            .for_each(|(offset, len)| file.write_all_at(&vec![7; *len], *offset).unwrap());
        file
    }

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    fn holes(file: &File) -> Vec<(u64, u64)> {
        let stat = rustix::fs::fstat(file).unwrap();
        find_holes(file, &stat)
            .extents()
            .iter()
            .map(|hole| (hole.offset, hole.len))
            .collect()
    }

    #[test]
    fn holes_are_found_also_at_both_ends() {
        assert_eq!(
            holes(&sparse(10 << 20, &[(1 << 20, 4096), (5 << 20, 1 << 20)])),
            [
                (0, 1 << 20),
                ((1 << 20) + 4096, (4 << 20) - 4096),
                (6 << 20, 4 << 20)
            ]
        );
        assert_eq!(holes(&sparse(1 << 20, &[])), [(0, 1 << 20)]);
        assert_eq!(holes(&sparse((1 << 20) + 1, &[(0, (1 << 20) + 1)])), []);
        assert_eq!(holes(&sparse(0, &[])), []);
    }

    #[test]
    fn only_zeros_become_a_hole() {
        let file = sparse(1 << 20, &[(0, 1 << 20)]);
        file.write_all_at(&[0; 9000], 4000).unwrap();
        file.write_all_at(&vec![0; 200_000], 300_000).unwrap();
        for extent in [extent(0, 5000), extent(300_000, 200_000)] {
            punch_zeros(&file, extent, 1 << 20).unwrap();
        }
        let found = holes(&file);
        assert!(found.len() == 1, "{found:?}");
        assert!(found[0].0 >= 300_000, "{found:?}");
        assert!(found[0].0 + found[0].1 <= 500_000, "{found:?}");
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4000].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_made_zeros_reads_as_zeros() {
        let file = sparse(1 << 20, &[(0, 1 << 20)]);
        make_zeros(&file, extent(5, 500_000)).unwrap();
        let mut bytes = vec![1; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(is_zeros(&bytes[5..500_005]) && bytes[..5] == [7; 5] && bytes[500_005] == 7);
    }

    #[test]
    fn whole_blocks_end_with_the_file() {
        let blocks = |offset, len| {
            whole_blocks(extent(offset, len), 10_000).map(|extent| (extent.offset, extent.len))
        };
        assert_eq!(blocks(0, 4096), Some((0, 4096)));
        assert_eq!(blocks(1, 8191), Some((4096, 4096)));
        assert_eq!(blocks(1, 8190), None);
        assert_eq!(blocks(5000, 5000), Some((8192, 1808)));
        assert_eq!(blocks(9000, 1000), None);
    }

    #[test]
    fn holes_are_found_where_the_file_system_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("f")).unwrap();
        file.set_len(1 << 20).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert!(may_have_holes(&stat));
        assert!(has_hole(&file, &stat));
        file.set_len(100).unwrap();
        assert!(!may_have_holes(&rustix::fs::fstat(&file).unwrap()));
    }
}
