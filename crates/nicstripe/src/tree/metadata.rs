//! Metadata of source files: modes, owners, holes and extended attributes.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd},
};

use nicstripe_proto::tree::{Node, NodeKind, Owner, Xattr, entry::MOST_XATTR_BYTES};
use rustix::{
    fs::{
        FileType, SeekFrom, Stat, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query,
        lgetxattr, lgetxattr_query, llistxattr, llistxattr_query, major, minor, seek,
    },
    io::Errno,
};

use super::anchor::path_of_bytes;

/// Minimum size in bytes of a file that is checked for holes. In a smaller file, holes save less
/// than a standalone transfer costs.
const FEWEST_SPARSE: u64 = 64 * 1024;

/// Returns the permission bits with set-user-ID, set-group-ID and sticky.
pub(super) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// Returns the type and device number of a FIFO, socket or device; `None` for other file types.
pub(super) fn node_of(kind: FileType, stat: &Stat) -> Option<Node> {
    let kind = match kind {
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::CharacterDevice => NodeKind::CharDevice,
        FileType::BlockDevice => NodeKind::BlockDevice,
        _ => return None,
    };
    let (major, minor) = if kind.is_device() {
        (major(stat.st_rdev), minor(stat.st_rdev))
    } else {
        (0, 0)
    };
    Some(Node { kind, major, minor })
}

pub(super) fn owner_of(stat: &Stat) -> Owner {
    Owner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// Returns true if a file of at least [`FEWEST_SPARSE`] bytes uses less storage than its size.
/// Compressing file systems also report that, without holes.
pub(super) fn may_have_holes(stat: &Stat) -> bool {
    stat.st_size as u64 >= FEWEST_SPARSE
        && (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64
}

/// Returns true if an open file has a hole before its end.
pub(super) fn has_hole(file: impl AsFd, stat: &Stat) -> bool {
    seek(file, SeekFrom::Hole(0)).is_ok_and(|at| at < stat.st_size as u64)
}

/// Returns the extended attributes of an open file or directory, except those that no receiver can
/// set.
///
/// # Errors
///
/// I/O errors, and more than [`MOST_XATTR_BYTES`]. A file system without extended attributes yields
/// an empty list.
pub(super) fn xattrs_of(file: impl AsFd) -> io::Result<Vec<Xattr>> {
    let file = file.as_fd();
    let list = sized(|| flistxattr_query(file), |list| flistxattr(file, list))?;
    collect(&list, |name| {
        sized(
            || fgetxattr_query(file, name),
            |value| fgetxattr(file, name, value),
        )
    })
}

/// Returns the extended attributes of a symbolic link itself.
///
/// Uses a path in `/proc`, because no system call takes a directory and a name. If `/proc` is not
/// mounted, the list is empty.
pub(super) fn xattrs_of_symlink(dir: impl AsFd, leaf: &[u8]) -> io::Result<Vec<Xattr>> {
    let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    let path = std::path::Path::new(&path).join(path_of_bytes(leaf));
    let list = match sized(|| llistxattr_query(&path), |list| llistxattr(&path, list)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list?,
    };
    collect(&list, |name| {
        sized(
            || lgetxattr_query(&path, name),
            |value| lgetxattr(&path, name, value),
        )
    })
}

/// Reads an extended attribute or a list of names: queries the length, then reads the value.
fn sized(
    query: impl Fn() -> Result<usize, Errno>,
    read: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> io::Result<Vec<u8>> {
    let len = match query() {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        len => len?,
    };
    let mut bytes = vec![0; len];
    let len = read(&mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn collect(list: &[u8], value_of: impl Fn(&CStr) -> io::Result<Vec<u8>>) -> io::Result<Vec<Xattr>> {
    let is_root = rustix::process::geteuid().is_root();
    let mut xattrs = Vec::new();
    let mut len = 0;
    for name in list
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    {
        if !can_be_kept(name.to_bytes(), is_root) {
            continue;
        }
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

/// Returns true if the receiver can set an extended attribute of this name.
///
/// Only root can set `security` and `trusted`. The `system` attributes are views of file system
/// internals; of these, only ACLs mean the same on another file system.
fn can_be_kept(name: &[u8], is_root: bool) -> bool {
    match name.split(|byte| *byte == b'.').next() {
        Some(b"user") => true,
        Some(b"security" | b"trusted") => is_root,
        _ => matches!(
            name,
            b"system.posix_acl_access" | b"system.posix_acl_default"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;

    #[test]
    fn attributes_that_mean_something_elsewhere_are_kept() {
        assert!(can_be_kept(b"user.x", false) && can_be_kept(b"system.posix_acl_default", false));
        assert!(
            !can_be_kept(b"system.nfs4_acl", true)
                && !can_be_kept(b"security.selinux", false)
                && !can_be_kept(b"trusted.x", false)
        );
        assert!(can_be_kept(b"security.capability", true));
    }

    #[test]
    fn extended_attributes_are_read_with_their_values() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("f")).unwrap();
        fsetxattr(&file, "user.b", b"two\0three", XattrFlags::empty())
            .expect("temporary files are on a file system with extended attributes");
        fsetxattr(&file, "user.a", b"", XattrFlags::empty()).unwrap();
        let mut found = xattrs_of(&file).unwrap();
        found.retain(|xattr| xattr.name.starts_with(b"user."));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let expected = [(&b"user.a"[..], &b""[..]), (b"user.b", b"two\0three")];
        assert_eq!(
            found
                .iter()
                .map(|xattr| (&xattr.name[..], &xattr.value[..]))
                .collect::<Vec<_>>(),
            expected
        );
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
