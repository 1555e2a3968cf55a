//! Owner and mode checks of part files and journals, because any user with write access to the
//! directory can create a file of that name.

use std::{fs::File, io};

use rustix::{
    fs::{FileType, FsWord, Stat, fstat, fstatfs},
    process::geteuid,
};

/// Owner and permission bits accepted on a part file or journal, in addition to those of this
/// process's user.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    /// Numeric ID of another user who may own the file.
    pub(super) owner: Option<u32>,
    /// Permission bits that group and others may have.
    pub(super) bits: u32,
}

impl Others {
    /// Returns true if an open file is a regular file with one link, owned by this process's user,
    /// without permissions beyond `self`.
    ///
    /// Checks the open file, not its name. On file systems without owners the mount options decide
    /// who may write, so owner and mode are not checked.
    pub(super) fn are_all(self, file: &File) -> io::Result<bool> {
        let stat = fstat(file)?;
        let is_alone =
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
        Ok(is_alone && (self.include(&stat) || WITHOUT_OWNERS.contains(&fstatfs(file)?.f_type)))
    }

    fn include(self, stat: &Stat) -> bool {
        let is_owner = stat.st_uid == geteuid().as_raw() || Some(stat.st_uid) == self.owner;
        is_owner && stat.st_mode & 0o077 & !self.bits == 0
    }
}

/// Magic numbers of file systems with one owner and mode for all files: FAT, exFAT, and those of
/// SMB (linux/magic.h).
const WITHOUT_OWNERS: [FsWord; 4] = [
    0x4d44,
    0x2011_bab0,
    0xff53_4d42_u32 as FsWord,
    0xfe53_4d42_u32 as FsWord,
];
