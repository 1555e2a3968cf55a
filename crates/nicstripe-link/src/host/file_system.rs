//! File system type of an open file.

use std::{fs, os::fd::AsFd};

use rustix::fs::{AtFlags, FsWord, StatxFlags, fstat, fstatfs, major, minor, statx};

use crate::host::cpu::Mount;

/// Returns the file system type of an open file or directory, as in mount(8): `ext4`, `nfs4`,
/// `fuse.sshfs`.
///
/// Looks up `/proc/self/mountinfo` by mount ID (Linux 5.8), or by device. Falls back to the
/// `statfs` magic number, which covers the most common types. Returns `None` for others.
pub fn file_system(file: &impl AsFd) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let by_mount = || named(&mounts, |mount| Some(mount.id) == mount_id(file));
    let by_device = || {
        let device = fstat(file).ok()?.st_dev;
        let device = format!("{}:{}", major(device), minor(device));
        named(&mounts, |mount| mount.device == device)
    };
    by_mount()
        .or_else(by_device)
        .or_else(|| by_magic(fstatfs(file).ok()?.f_type).map(str::to_owned))
}

fn mount_id(file: &impl AsFd) -> Option<u64> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_told.then_some(found.stx_mnt_id)
}

fn named(mounts: &str, is_it: impl Fn(&Mount<'_>) -> bool) -> Option<String> {
    mounts
        .lines()
        .filter_map(Mount::parse)
        .find(is_it)
        .map(|mount| mount.kind.to_owned())
}

/// Returns the name of a file system by its `statfs` magic number (linux/magic.h).
fn by_magic(magic: FsWord) -> Option<&'static str> {
    Some(match magic {
        // ext2, ext3 and ext4 share one number.
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0xff53_4d42 => "cifs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x7366_746e => "ntfs3",
        _ => return None,
    })
}

/// Parses a text as `/proc/self/mountinfo`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let _ = named(text, |mount| mount.id == 0);
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684092k
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resv_strict
99 27 0:51 /sub /mnt/b\\040c rw - btrfs /dev/vdb rw,subvol=/sub
";

    #[test]
    fn a_mount_is_found_by_its_number_and_by_its_device() {
        assert_eq!(
            named(MOUNTS, |mount| mount.id == 99).as_deref(),
            Some("btrfs")
        );
        assert_eq!(
            named(MOUNTS, |mount| mount.device == "254:0").as_deref(),
            Some("ext4")
        );
        assert_eq!(named(MOUNTS, |mount| mount.id == 1), None);
        assert_eq!(named("", |_| true), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn proc_calls_itself_proc() {
        assert_eq!(
            file_system(&File::open("/proc/self").unwrap()).as_deref(),
            Some("proc")
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn both_ways_name_a_temporary_folder_alike() {
        let folder = File::open(tempfile::tempdir().unwrap().path()).unwrap();
        let name = file_system(&folder).unwrap();
        let magic = by_magic(fstatfs(&folder).unwrap().f_type);
        assert!(
            magic.is_none_or(|magic| name.starts_with(&magic[..3])),
            "{name} is not {magic:?}"
        );
    }
}
