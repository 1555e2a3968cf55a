//! Owner and mode checks of part files and journals, because any user with write access to the
//! directory can create a file of that name.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{FileType, Stat, fstat},
    process::geteuid,
};

use super::probe::probed;

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
    /// Returns true if an open file of a directory is a regular file with one link, owned by this
    /// process's user, without permissions beyond `self`.
    ///
    /// Checks the open file, not its name. Some file systems decide on owners and modes themselves
    /// (FAT, SMB, ntfs-3g, NFS with squashed users): what a new file of this process has there, each
    /// of its files may have. The mount options then decide who may write.
    pub(super) fn are_all(self, dir: &OwnedFd, file: impl AsFd) -> io::Result<bool> {
        let stat = fstat(file)?;
        let is_alone =
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
        let own = geteuid().as_raw();
        Ok(is_alone && (self.include(&stat, own, 0) || self.include_as_new(dir, &stat)?))
    }

    /// Returns true if the permissions are at most those of a new file, or of `self`.
    fn include_as_new(self, dir: &OwnedFd, stat: &Stat) -> io::Result<bool> {
        let new = probed(dir, |file| Ok(fstat(file)?))?;
        Ok(stat.st_dev == new.st_dev && self.include(stat, new.st_uid, new.st_mode & 0o077))
    }

    fn include(self, stat: &Stat, own: u32, bits: u32) -> bool {
        let is_owner = stat.st_uid == own || Some(stat.st_uid) == self.owner;
        is_owner && stat.st_mode & 0o077 & !(self.bits | bits) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[test]
    fn a_file_system_with_owners_grants_nothing_and_keeps_no_probe() {
        let folder = tempfile::tempdir().unwrap();
        let dir = OwnedFd::from(File::open(folder.path()).unwrap());
        let path = folder.path().join("file");
        for (mode, expected) in [(0o600, true), (0o620, false), (0o604, false)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let file = File::open(&path).unwrap();
            let are_all = Others::default().are_all(&dir, &file).unwrap();
            assert_eq!(are_all, expected, "{mode:o}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
