//! Attributes of a file: permission bits, owner, extended attributes, times.

use std::{
    collections::HashMap,
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nicstripe_proto::{
    journal::Timestamp,
    name::escaped,
    tree::{Content, Entry, Owner, TreeRules, Xattr, entry::weight_of},
};
use rustix::{
    fs::{
        AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod,
        fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, futimens, lsetxattr,
        utimensat,
    },
    io::Errno,
};

/// Attributes to set on a received file; `None` keeps the existing value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permission bits (0o7777). Set-user-ID and set-group-ID stay unchanged unless `privileged`.
    /// They also stay if they would grant the rights of an owner other than the sender's.
    pub(crate) mode: Option<u32>,
    pub(crate) mtime: Option<Timestamp>,
    /// User and group to set, if the process has the privilege.
    pub(crate) owner: Option<Owner>,
    /// Extended attributes to set, if the file system supports them. Existing attributes of the
    /// same namespaces are removed.
    pub(crate) xattrs: Option<Vec<Xattr>>,
    /// True if the sender may set set-user-ID, set-group-ID, file capabilities and other root-only
    /// attributes.
    pub(crate) privileged: bool,
}

impl Attributes {
    /// Returns true if an entry carries attributes that `rules` preserve and only a privileged
    /// sender may set.
    pub(crate) fn takes_privilege(entry: &Entry, rules: &TreeRules) -> bool {
        let has_mode = matches!(entry.content, Content::File { .. } | Content::Directory);
        let gives_bits = rules.modes && has_mode && entry.mode & SET_ID_BITS != 0;
        let gives_xattrs = || {
            entry
                .xattrs
                .iter()
                .flatten()
                .any(|xattr| is_privileged_xattr(&xattr.name))
        };
        gives_bits || (rules.xattrs && rules.owners && is_root() && gives_xattrs())
    }

    pub(crate) fn privileged(self, privileged: bool) -> Self {
        Self { privileged, ..self }
    }

    /// Returns the attributes that `rules` preserve for a new entry, under the file creation mask
    /// `umask`.
    pub(crate) fn of_new(entry: &Entry, rules: &TreeRules, umask: u32) -> Self {
        let mode = if rules.modes {
            entry.mode & ALL_BITS
        } else {
            entry.mode & 0o777 & !umask
        };
        Self {
            mode: Some(mode),
            mtime: Some(entry.mtime),
            ..Self::of_owner(entry, rules)
        }
    }

    /// Returns the attributes that `rules` preserve for an entry whose content is already present.
    /// `with_time` is true for directories and for files compared by BLAKE3; other comparisons
    /// imply equal times.
    pub(crate) fn of_same(entry: &Entry, rules: &TreeRules, with_time: bool) -> Self {
        let mode = rules.modes.then_some(entry.mode & ALL_BITS);
        Self {
            mode,
            mtime: with_time.then_some(entry.mtime),
            ..Self::of_owner(entry, rules)
        }
    }

    fn of_owner(entry: &Entry, rules: &TreeRules) -> Self {
        let owner = entry.owner.filter(|_| rules.owners);
        Self {
            owner,
            xattrs: entry.xattrs.clone().filter(|_| rules.xattrs),
            ..Self::default()
        }
    }

    /// Returns the size of the extended attributes in bytes, see [`Entry::weight`].
    pub(crate) fn weight(&self) -> usize {
        self.xattrs.as_deref().map_or(0, weight_of)
    }

    /// Returns true if the mode, owner or modification time differ from those of the existing file.
    /// Does not compare extended attributes, which require separate reads.
    pub(crate) fn differ(&self, stat: &Stat) -> bool {
        self.mode
            .is_some_and(|mode| self.bits_of(mode, stat, true) != stat.st_mode & ALL_BITS)
            || self.mtime.is_some_and(|mtime| mtime != mtime_of(stat))
            || self.owner.is_some_and(|owner| owner != owner_of(stat))
    }

    /// Sets the attributes that differ from those of `file`, in the order owner, extended
    /// attributes, mode, times: a change of owner clears mode bits, and an ACL changes the mode.
    pub(crate) fn apply(&self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        let owner_kept = match self.owner {
            Some(owner) if owner != owner_of(&stat) => {
                own(|uid, gid| fchown(file, uid, gid), owner)?
            }
            owner => owner.is_some(),
        };
        if let Some(xattrs) = &self.xattrs {
            set_xattrs(file, xattrs, owner_kept && self.privileged)?;
        }
        if let Some(mode) = self.mode {
            // A process without root cannot create a file of another owner.
            let is_harmless = owner_kept || !is_root();
            // A change of owner clears bits, and an ACL sets some.
            fchmod(
                file,
                Mode::from_raw_mode(self.bits_of(mode, &fstat(file)?, is_harmless)),
            )?;
        }
        match self.mtime {
            Some(mtime) if mtime != mtime_of(&stat) => Ok(futimens(file, &times_of(mtime))?),
            _ => Ok(()),
        }
    }

    /// Returns the permission bits to set. An unprivileged sender keeps the existing set-ID bits,
    /// such as set-group-ID that a directory inherited.
    fn bits_of(&self, mode: u32, found: &Stat, is_harmless: bool) -> u32 {
        match self.privileged && is_harmless {
            true => mode,
            false => (mode & !SET_ID_BITS) | (found.st_mode & SET_ID_BITS),
        }
    }

    /// Sets owner, mode and time of a FIFO, socket file or device opened with `O_PATH`. Set-ID bits
    /// have no meaning for these types. Without `/proc` mode and time stay unchanged.
    pub(crate) fn apply_to_node(&self, node: &OwnedFd) -> io::Result<()> {
        if let Some(owner) = self.owner {
            own(
                |uid, gid| chownat(node, "", uid, gid, AtFlags::EMPTY_PATH),
                owner,
            )?;
        }
        let path = Path::new("/proc/self/fd").join(node.as_raw_fd().to_string());
        if let Some(mode) = self.mode {
            match chmod(&path, Mode::from_raw_mode(mode & !SET_ID_BITS)) {
                Err(Errno::NOENT) => {}
                set => set?,
            }
        }
        match self.mtime {
            Some(mtime) => {
                match utimensat(rustix::fs::CWD, &path, &times_of(mtime), AtFlags::empty()) {
                    Err(Errno::NOENT) => Ok(()),
                    set => Ok(set?),
                }
            }
            None => Ok(()),
        }
    }

    /// Sets owner, extended attributes and modification time of a new symbolic link, which has no
    /// mode. Sets extended attributes only as root, for a privileged sender, and if the owner was
    /// set.
    pub(crate) fn apply_to_link(&self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let change = |uid, gid| chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        let owner_kept = self.owner.map(|owner| own(change, owner)).transpose()?;
        if let (Some(xattrs), Some(true), true) =
            (&self.xattrs, owner_kept, is_root() && self.privileged)
        {
            set_link_xattrs(dir, name, xattrs)?;
        }
        match self.mtime {
            Some(mtime) => Ok(utimensat(
                dir,
                name,
                &times_of(mtime),
                AtFlags::SYMLINK_NOFOLLOW,
            )?),
            None => Ok(()),
        }
    }
}

/// Returns the file creation mask of the process, read from /proc because umask(2) would change it
/// for all threads; 0o022 without /proc.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

pub(crate) fn mtime_of(stat: &Stat) -> Timestamp {
    Timestamp {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    }
}

fn owner_of(stat: &Stat) -> Owner {
    Owner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

fn times_of(mtime: Timestamp) -> Timestamps {
    let mtime = Timespec {
        tv_sec: mtime.seconds,
        tv_nsec: mtime.nanoseconds.min(999_999_999).into(),
    };
    Timestamps {
        last_access: mtime,
        last_modification: mtime,
    }
}

/// Sets user and group of a file; returns true if both were set. A process without the privilege
/// sets only the group, which must be one of its own.
fn own(
    chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    owner: Owner,
) -> io::Result<bool> {
    // The highest number means "unchanged" to the kernel.
    if owner.uid == u32::MAX || owner.gid == u32::MAX {
        return Ok(false);
    }
    let gid = Some(Gid::from_raw(owner.gid));
    match chown(Some(Uid::from_raw(owner.uid)), gid) {
        Err(Errno::PERM | Errno::INVAL) => {
            let _ = chown(None, gid);
            Ok(false)
        }
        other => Ok(other.map(|()| true)?),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_xattrs(file: impl AsFd, wanted: &[Xattr], may_be_privileged: bool) -> io::Result<()> {
    let file = file.as_fd();
    let found = match list_xattrs(file) {
        Err(Errno::NOTSUP) => return Ok(()),
        found => found?,
    };
    let wanted: HashMap<&[u8], &[u8]> = wanted
        .iter()
        .map(|xattr| (&xattr.name[..], &xattr.value[..]))
        .collect();
    for name in found
        .iter()
        .filter(|name| is_plain_xattr(name) && !wanted.contains_key(name.as_slice()))
    {
        ignore_unsupported(fremovexattr(file, name.as_slice()))?;
    }
    for (name, value) in wanted {
        // File capabilities are as powerful as the owner: only root sets them, and only together
        // with owners.
        let is_allowed =
            is_plain_xattr(name) || (may_be_privileged && is_root() && is_privileged_xattr(name));
        if is_allowed && read_xattr(file, name, value.len()).as_deref() != Some(value) {
            explain(
                fsetxattr(file, name, value, XattrFlags::empty()),
                name,
                value,
            )?;
        }
    }
    Ok(())
}

/// Sets the extended attributes of a symbolic link through its path in `/proc`, because no system
/// call takes a directory and a name. Sets none if `/proc` is not mounted.
fn set_link_xattrs(dir: &OwnedFd, name: &OsStr, wanted: &[Xattr]) -> io::Result<()> {
    let path = Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name);
    for xattr in wanted
        .iter()
        .filter(|xattr| is_privileged_xattr(&xattr.name))
    {
        match lsetxattr(&path, &xattr.name[..], &xattr.value, XattrFlags::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            set => explain(set, &xattr.name, &xattr.value)?,
        }
    }
    Ok(())
}

/// Replaces the errors for an extended attribute that is too large: `ENOSPC` would suggest a full
/// disk.
fn explain(set: rustix::io::Result<()>, name: &[u8], value: &[u8]) -> io::Result<()> {
    match set {
        Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => {
            let (name, len) = (escaped(name), value.len());
            Err(io::Error::other(format!(
                "the file system has no room for extended attribute {name} of {len} bytes"
            )))
        }
        set => ignore_unsupported(set),
    }
}

fn list_xattrs(file: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = vec![0; MOST_LISTED];
    let len = flistxattr(&file, &mut names[..])?;
    let names = names[..len]
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    Ok(names.map(|name| name.to_bytes().to_vec()).collect())
}

fn read_xattr(file: impl AsFd, name: &[u8], expected: usize) -> Option<Vec<u8>> {
    let mut value = vec![0; expected + 1];
    let len = fgetxattr(file, OsStr::from_bytes(name), &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn ignore_unsupported(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::NOTSUP) => Ok(()),
        other => Ok(other?),
    }
}

/// Returns true if the owner of a file may set the extended attribute `name`.
fn is_plain_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

fn is_privileged_xattr(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Mask of all permission bits, with set-user-ID, set-group-ID and sticky.
const ALL_BITS: u32 = 0o7777;

/// Mask of the set-user-ID and set-group-ID bits.
pub(crate) const SET_ID_BITS: u32 = 0o6000;

/// Maximum length in bytes of the name list of a file's extended attributes: XATTR_LIST_MAX of
/// linux/limits.h.
const MOST_LISTED: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_the_file_system_has_no_room_for_is_named() {
        let file = tempfile::tempfile().unwrap();
        let xattr = |len| {
            Some(vec![Xattr {
                name: b"user.large".to_vec().into(),
                value: vec![1; len].into(),
            }])
        };
        let apply = |len| {
            Attributes {
                xattrs: xattr(len),
                ..Attributes::default()
            }
            .apply(&file)
        };
        apply(10).unwrap();
        assert!(
            read_xattr(&file, b"user.large", 10).is_some(),
            "temporary files are on a file system with extended attributes"
        );
        // Above the kernel's limit for any file system: XATTR_SIZE_MAX is 65536.
        let error = apply(100_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file system has no room for extended attribute user.large of 100000 bytes"
        );
        assert_eq!(error.kind(), io::ErrorKind::Other, "the disk is not full");
    }
}
