//! Extended attributes: reading those of a source, and setting those of a received file.

use std::{
    collections::HashMap,
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nicstripe_proto::{
    name::escaped,
    tree::{Xattr, entry::MOST_XATTR_BYTES},
};
use rustix::{
    buffer::{SpareCapacity, spare_capacity},
    fs::{
        XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr, setxattr,
    },
    io::Errno,
};

use super::kept;

/// Returns the extended attributes of an open file or directory, except those that no receiver can
/// set.
///
/// # Errors
///
/// I/O errors, and more than [`MOST_XATTR_BYTES`]. A file system without extended attributes yields
/// an empty list.
pub(crate) fn xattrs_of(file: impl AsFd) -> io::Result<Vec<Xattr>> {
    let file = file.as_fd();
    let list = read(|list| flistxattr(file, list))?;
    collect(&list, |name| read(|value| fgetxattr(file, name, value)))
}

/// Returns the extended attributes of a symbolic link itself.
///
/// Uses a path in `/proc`, because no system call takes a directory and a name. If `/proc` is not
/// mounted, the list is empty.
pub(crate) fn xattrs_of_symlink(dir: impl AsFd, leaf: &[u8]) -> io::Result<Vec<Xattr>> {
    let path = proc_path(dir).join(OsStr::from_bytes(leaf));
    let list = match read(|list| llistxattr(&path, list)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list?,
    };
    collect(&list, |name| read(|value| lgetxattr(&path, name, value)))
}

/// Reads an extended attribute or a list of names with `call`.
pub(super) fn read(
    call: impl Fn(SpareCapacity<'_, u8>) -> rustix::io::Result<usize>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let mut read = call(spare_capacity(&mut bytes));
    if read == Err(Errno::RANGE) {
        bytes.reserve(MOST_BYTES);
        read = call(spare_capacity(&mut bytes));
    }
    match read {
        Err(Errno::NOTSUP) => {}
        read => drop(read?),
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

fn collect(list: &[u8], value_of: impl Fn(&CStr) -> io::Result<Vec<u8>>) -> io::Result<Vec<Xattr>> {
    let mut xattrs = Vec::new();
    let mut len = 0;
    for name in names_in(list).filter(|name| can_be_kept(name.to_bytes(), is_root())) {
        let value = match value_of(name) {
            // Removed since it was listed.
            Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => continue,
            value => value?,
        };
        len += name.to_bytes().len() + value.len();
        if len > MOST_XATTR_BYTES {
            return Err(io::Error::other(format!(
                "extended attributes exceed the limit of {MOST_XATTR_BYTES} bytes"
            )));
        }
        xattrs.push(Xattr {
            name: name.to_bytes().to_vec().into(),
            value: value.into(),
        });
    }
    Ok(xattrs)
}

/// Returns the names in a list of extended attributes.
fn names_in(list: &[u8]) -> impl Iterator<Item = &CStr> {
    list.split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns true if the receiver can set an extended attribute of this name.
fn can_be_kept(name: &[u8], is_root: bool) -> bool {
    is_plain_xattr(name) || (is_root && is_privileged_xattr(name))
}

/// Result of setting extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// False if the file system has no attributes of that kind, or does not know a user or group of
    /// an ACL.
    pub(super) all: bool,
    /// Permission bits (0o777) that the mode may have. Without its ACL, the group bits of the mode
    /// would grant the ACL's mask to the group.
    pub(super) mode: u32,
}

impl Kept {
    pub(super) const ALL: Self = Self {
        all: true,
        mode: 0o777,
    };
}

/// Sets extended attributes, and removes others of the same namespaces.
pub(super) fn set_xattrs(
    file: impl AsFd,
    wanted: &[Xattr],
    may_be_privileged: bool,
) -> io::Result<Kept> {
    let file = file.as_fd();
    let found = read(|list| flistxattr(file, list))?;
    let mut kept = Kept::ALL;
    let wanted: HashMap<&[u8], &[u8]> = wanted
        .iter()
        .map(|xattr| (&xattr.name[..], &xattr.value[..]))
        .collect();
    for name in names_in(&found)
        .filter(|name| is_plain_xattr(name.to_bytes()) && !wanted.contains_key(name.to_bytes()))
    {
        ignore_unsupported(fremovexattr(file, name))?;
    }
    for (name, value) in wanted {
        // File capabilities are as powerful as the owner: only root sets them, and only together
        // with owners.
        let is_allowed =
            is_plain_xattr(name) || (may_be_privileged && is_root() && is_privileged_xattr(name));
        if is_allowed && read_xattr(file, name, value.len()).as_deref() != Some(value) {
            let set = fsetxattr(file, name, value, XattrFlags::empty());
            let is_acl = name.starts_with(b"system.posix_acl_");
            // `INVAL`: a user namespace does not map each user.
            let is_lost = set == Err(Errno::NOTSUP) || (is_acl && set == Err(Errno::INVAL));
            if !is_lost {
                explain(set, name, value)?;
                continue;
            }
            kept.all = false;
            if name == b"system.posix_acl_access" {
                let group = acl_bits(value, GROUP_OBJ).unwrap_or(0);
                kept.mode = 0o707 | group << 3;
            }
        }
    }
    Ok(kept)
}

/// Sets the extended attributes of a symbolic link opened with `O_PATH` through its path in
/// `/proc`, which leads to the link itself. Sets none if `/proc` is not mounted.
pub(super) fn set_link_xattrs(link: &OwnedFd, wanted: &[Xattr]) -> io::Result<()> {
    let path = proc_path(link);
    for xattr in wanted
        .iter()
        .filter(|xattr| is_privileged_xattr(&xattr.name))
    {
        match setxattr(&path, &xattr.name[..], &xattr.value, XattrFlags::empty()) {
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

/// Returns true if the owner of a file may set the extended attribute `name`. The `system`
/// attributes are views of file system internals; of these, only ACLs mean the same on another file
/// system. A hash that nicstripe keeps belongs to its file.
fn is_plain_xattr(name: &[u8]) -> bool {
    (name.starts_with(b"user.") && name != kept::ATTRIBUTE.to_bytes())
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

/// Returns true if only root may set the extended attribute `name`.
pub(super) fn is_privileged_xattr(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Returns the permission bits that the default ACL of a directory grants: those of the owner, of
/// the mask (without one, of the group) and of others; `None` without a default ACL.
pub(super) fn default_acl_bits(dir: impl AsFd) -> Option<u32> {
    let dir = dir.as_fd();
    let acl = read(|acl| fgetxattr(dir, "system.posix_acl_default", acl)).ok()?;
    let group = acl_bits(&acl, MASK).or_else(|| acl_bits(&acl, GROUP_OBJ))?;
    Some(acl_bits(&acl, USER_OBJ)? << 6 | group << 3 | acl_bits(&acl, OTHER)?)
}

/// Returns true unless new files in a directory certainly inherit no ACL.
pub(crate) fn may_pass_acl_on(dir: impl AsFd) -> bool {
    let mut acl = [0; 0];
    // An empty buffer asks for the size.
    let size = fgetxattr(dir, "system.posix_acl_default", &mut acl[..]);
    !matches!(size, Err(Errno::NODATA | Errno::NOTSUP))
}

/// Returns the permissions of the first entry with this tag in an ACL: after a version of 4 bytes,
/// entries of tag, permissions and ID (linux/posix_acl_xattr.h).
fn acl_bits(acl: &[u8], tag: u16) -> Option<u32> {
    let mut entries = acl.get(4..)?.chunks_exact(8);
    let entry = entries.find(|entry| entry[..2] == tag.to_le_bytes())?;
    Some(u32::from(entry[2]) & 7)
}

/// Tags of ACL entries without an ID (linux/posix_acl.h).
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Returns the path of an open file in `/proc`, for system calls that take only a path.
pub(super) fn proc_path(file: impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_fd().as_raw_fd().to_string())
}

/// Maximum size in bytes of an attribute and of a list of names on Linux: XATTR_SIZE_MAX and
/// XATTR_LIST_MAX (linux/limits.h).
const MOST_BYTES: usize = 64 * 1024;

/// Size in bytes that a list of names or an attribute rarely exceeds. The kernel allocates as much as
/// the caller offers: reading an empty list with `MOST_BYTES` took 4 % of a copy of small files.
const USUAL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;
    use crate::file::Attributes;

    #[test]
    fn attributes_that_mean_something_elsewhere_are_kept() {
        assert!(can_be_kept(b"user.x", false) && can_be_kept(b"system.posix_acl_default", false));
        assert!(!can_be_kept(b"system.nfs4_acl", true));
        assert!(!can_be_kept(b"security.selinux", false));
        assert!(!can_be_kept(b"trusted.x", false));
        assert!(can_be_kept(b"security.capability", true));
    }

    #[test]
    fn extended_attributes_are_read_with_their_values() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("f")).unwrap();
        let long = b"two\0three".repeat(USUAL_BYTES);
        fsetxattr(&file, "user.b", &long, XattrFlags::empty())
            .expect("temporary files are on a file system with extended attributes");
        fsetxattr(&file, "user.a", b"", XattrFlags::empty()).unwrap();
        let mut found = xattrs_of(&file).unwrap();
        found.retain(|xattr| xattr.name.starts_with(b"user."));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let expected = [(&b"user.a"[..], &b""[..]), (b"user.b", &long)];
        assert_eq!(
            found
                .iter()
                .map(|xattr| (&xattr.name[..], &xattr.value[..]))
                .collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn an_acl_that_cannot_be_kept_grants_nothing_to_the_group() {
        // The owner rwx, user 7 rwx, the group ---, the mask rwx, others ---; and one without sense.
        let entry = |tag: u16, bits: u16, id: u32| {
            [
                &tag.to_le_bytes()[..],
                &bits.to_le_bytes(),
                &id.to_le_bytes(),
            ]
            .concat()
        };
        let none = u32::MAX;
        let entries = [
            entry(USER_OBJ, 7, none),
            entry(0x02, 7, 7),
            entry(GROUP_OBJ, 0, none),
            entry(MASK, 7, none),
            entry(OTHER, 0, none),
            entry(0x40, 7, none),
        ];
        let acl = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
        let file = tempfile::tempfile().unwrap();
        let attributes = Attributes {
            mode: Some(0o770),
            xattrs: Some(vec![Xattr {
                name: b"system.posix_acl_access".to_vec().into(),
                value: acl.into(),
            }]),
            ..Attributes::default()
        };
        attributes.apply(&file).unwrap();
        let mode = rustix::fs::fstat(&file).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn more_than_an_entry_may_have_is_an_error_with_the_limit() {
        let value_of = |_: &CStr| Ok(vec![1; 60_000]);
        assert_eq!(collect(b"user.a\0user.b\0", value_of).unwrap().len(), 2);
        let error = collect(b"user.a\0user.b\0user.c\0", value_of).unwrap_err();
        assert_eq!(
            error.to_string(),
            "extended attributes exceed the limit of 131072 bytes"
        );
    }

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
