//! Data kept next to a file in extended attributes: the BLAKE3 hash of its content, and the attributes of
//! an object.
//!
//! A hash is believed only while size, modification time and inode are those of the file when it was
//! kept. Another program that changes the content in place and sets the modification time back, or
//! does so within a tick of the file system's clock, is not noticed; reading the file notices.

use std::{ffi::CStr, fs::File, io, os::fd::AsFd, path::Path};

use nicstripe_proto::{Digest, ObjectAttributes, SourceIdentity, journal::Timestamp};
use rustix::{
    fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat, lgetxattr},
    io::Errno,
};

use super::{
    disk,
    stored::identity_of,
    xattrs::{proc_path, read},
};

/// Extended attribute of the hash. Not copied with a tree, and not taken from a peer.
pub(super) const ATTRIBUTE: &CStr = c"user.nicstripe.blake3";

/// Extended attribute of an object's attributes, as CBOR.
const ATTRIBUTES: &CStr = c"user.nicstripe.attributes";

/// Keeps the hash of a file whose content does not change any more, before its mode may bar that.
/// `mtime` is the modification time that the file will get; `None` if it keeps its own. A file system
/// may have no room for the hash, or no extended attributes: then it is unknown later.
pub(super) fn keep(file: impl AsFd, digest: Digest, mtime: Option<Timestamp>) {
    let file = file.as_fd();
    if let Ok(stat) = fstat(file) {
        let found = identity_of(&stat);
        let identity = SourceIdentity {
            mtime: mtime.unwrap_or(found.mtime),
            ..found
        };
        let value = value_of(&identity, digest);
        let _ = fsetxattr(file, ATTRIBUTE, &value, XattrFlags::empty());
    }
}

/// Forgets the hash of a file that is about to be written in place, durably.
pub(super) fn forget(file: &File) -> io::Result<()> {
    match fremovexattr(file, ATTRIBUTE) {
        Ok(()) => disk::sync_all(file),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the hash that is kept next to an open file with this identity.
pub(super) fn kept(file: impl AsFd, identity: &SourceIdentity) -> Option<Digest> {
    let mut value = [0; LEN + 1];
    let len = fgetxattr(file, ATTRIBUTE, &mut value[..]).ok()?;
    believed(value.get(..len)?, identity)
}

/// Returns the hash that is kept next to the file `name` of a directory, which has this identity.
/// `None` without `/proc`.
pub(crate) fn kept_in(
    dir: impl AsFd,
    name: impl AsRef<Path>,
    identity: &SourceIdentity,
) -> Option<Digest> {
    let mut value = [0; LEN + 1];
    let path = proc_path(dir).join(name);
    let len = lgetxattr(path, ATTRIBUTE, &mut value[..]).ok()?;
    believed(value.get(..len)?, identity)
}

pub(super) fn keep_attributes(file: impl AsFd, attributes: &ObjectAttributes) -> io::Result<()> {
    let value = minicbor::to_vec(attributes).map_err(io::Error::other)?;
    Ok(fsetxattr(file, ATTRIBUTES, &value, XattrFlags::empty())?)
}

/// Returns the attributes of an open file; `None` if it has none.
pub(super) fn attributes_of(file: impl AsFd) -> Option<ObjectAttributes> {
    let file = file.as_fd();
    minicbor::decode(&read(|value| fgetxattr(file, ATTRIBUTES, value)).ok()?).ok()
}

/// Returns the attributes of the file `name` of a directory; `None` if it has none, and without `/proc`.
pub(crate) fn attributes_in(dir: impl AsFd, name: impl AsRef<Path>) -> Option<ObjectAttributes> {
    let path = proc_path(dir).join(name);
    minicbor::decode(&read(|value| lgetxattr(&path, ATTRIBUTES, value)).ok()?).ok()
}

fn believed(value: &[u8], identity: &SourceIdentity) -> Option<Digest> {
    let digest = Digest(*value.last_chunk()?);
    (value == value_of(identity, digest)).then_some(digest)
}

/// Returns the value of the attribute: version, size, modification time, inode (little-endian), hash.
fn value_of(identity: &SourceIdentity, digest: Digest) -> [u8; LEN] {
    let SourceIdentity {
        size, mtime, inode, ..
    } = identity;
    let mut value = Vec::with_capacity(LEN);
    value.push(VERSION);
    value.extend(size.to_le_bytes());
    value.extend(mtime.seconds.to_le_bytes());
    value.extend(mtime.nanoseconds.to_le_bytes());
    value.extend(inode.to_le_bytes());
    value.extend(digest.0);
    std::array::from_fn(|index| value.get(index).copied().unwrap_or_default())
}

const VERSION: u8 = 1;
const LEN: usize = 1 + 8 + 8 + 4 + 8 + 32;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        os::unix::fs::FileExt as _,
        time::{Duration, SystemTime},
    };

    use super::*;

    fn identity(file: &File) -> SourceIdentity {
        identity_of(&fstat(file).unwrap())
    }

    #[test]
    fn a_hash_is_believed_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "content").unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let digest = Digest([7; 32]);
        keep(&file, digest, None);
        let dir = File::open(folder.path()).unwrap();
        let found = || {
            (
                kept(&file, &identity(&file)),
                kept_in(&dir, "file", &identity(&file)),
            )
        };
        assert_eq!(found(), (Some(digest), Some(digest)));
        // Also under another name.
        fs::rename(&path, folder.path().join("renamed")).unwrap();
        assert_eq!(kept_in(&dir, "renamed", &identity(&file)), Some(digest));
        fs::rename(folder.path().join("renamed"), &path).unwrap();

        file.set_modified(SystemTime::now() + Duration::from_secs(9))
            .unwrap();
        assert_eq!(kept(&file, &identity(&file)), None);
        keep(&file, digest, None);
        file.write_all(b"more").unwrap();
        assert_eq!(kept(&file, &identity(&file)), None);
        keep(&file, digest, None);
        forget(&file).unwrap();
        assert_eq!(kept(&file, &identity(&file)), None);

        // A copy with all attributes and times is another inode.
        keep(&file, digest, None);
        let copy = File::create(folder.path().join("copy")).unwrap();
        copy.write_all_at(&fs::read(&path).unwrap(), 0).unwrap();
        copy.set_modified(file.metadata().unwrap().modified().unwrap())
            .unwrap();
        let value = value_of(&identity(&file), digest);
        fsetxattr(&copy, ATTRIBUTE, &value, XattrFlags::empty()).unwrap();
        assert_eq!(kept(&copy, &identity(&copy)), None);
    }
}
