//! Order of the changes that this process makes to the names of a file system.
//!
//! The kernel cannot replace, rename or remove a file only if it is a certain one. Such a change
//! excludes all others of this process from its check on. A change by another program between the
//! check and the change, a few microseconds, is not noticed.

use std::{collections::BTreeMap, ffi::OsStr, fmt::Display, io, os::fd::OwnedFd};

use nicstripe_proto::{ETag, FailCode};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{FileType, OFlags, fstat};

use super::{beneath::open_entry, error::FileError, stored::etag_of};

/// Lock of each file system, by its device number. One that does not answer delays no other.
static FILE_SYSTEMS: Mutex<BTreeMap<u64, &'static RwLock<()>>> = Mutex::new(BTreeMap::new());

/// Permission to change a name, with or without a condition. Held until the change is made.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
pub(crate) enum NameChange {
    Any(RwLockReadGuard<'static, ()>),
    /// With the file that is checked: if the change removes its last name, its blocks are freed when it
    /// is closed, after the others may continue.
    Conditional(RwLockWriteGuard<'static, ()>, OwnedFd),
}

impl NameChange {
    /// Waits for the permission to change names in a directory.
    pub(crate) fn any(dir: &OwnedFd) -> io::Result<Self> {
        Ok(Self::Any(lock_of(dir)?.read()))
    }

    /// Waits for the permission to change the file `name` of a directory, if it has the tag
    /// `only_if`; `None` for any change. `shown` names the file in errors.
    ///
    /// # Errors
    ///
    /// [`FailCode::Precondition`]: it does not exist, is no regular file, or has another tag.
    pub(crate) fn of_file(
        dir: &OwnedFd,
        name: &OsStr,
        only_if: Option<ETag>,
        operation: &'static str,
        shown: &dyn Display,
    ) -> Result<Self, FileError> {
        let failed = |cause| FileError::new(operation, shown, cause);
        let Some(tag) = only_if else {
            return Self::any(dir).map_err(failed);
        };
        let guard = lock_of(dir).map_err(failed)?.write();
        let Ok(file) = open_entry(dir, name, OFlags::PATH) else {
            return Err(untagged(tag, operation, shown));
        };
        let found = fstat(&file).map_err(|cause| failed(cause.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(untagged(tag, operation, shown));
        }
        check_tag(Some(etag_of(&found)), tag, operation, shown)?;
        Ok(Self::Conditional(guard, file.into()))
    }
}

/// Checks that the file of a name has a tag; `found` is `None` if there is no such file.
pub(crate) fn check_tag(
    found: Option<ETag>,
    expected: ETag,
    operation: &'static str,
    shown: &dyn Display,
) -> Result<(), FileError> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => {
            let why = format!("its entity tag is {found} and not {expected}");
            let error = FileError::new(operation, shown, io::Error::other(why));
            Err(error.with_code(FailCode::Precondition))
        }
        None => Err(untagged(expected, operation, shown)),
    }
}

fn untagged(expected: ETag, operation: &'static str, shown: &dyn Display) -> FileError {
    let why = format!("no file of that name has the entity tag {expected}");
    let error = FileError::new(operation, shown, io::Error::other(why));
    error.with_code(FailCode::Precondition)
}

fn lock_of(dir: &OwnedFd) -> io::Result<&'static RwLock<()>> {
    let device = fstat(dir)?.st_dev;
    let mut locks = FILE_SYSTEMS.lock();
    Ok(locks
        .entry(device)
        .or_insert_with(|| Box::leak(Box::default())))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use rustix::fs::{renameat, stat};

    use super::*;

    #[test]
    fn of_those_who_replace_the_same_content_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "0").unwrap();
        for round in 0..50 {
            let tag = etag_of(&stat(path("file")).unwrap());
            let replaced = AtomicU32::new(0);
            thread::scope(|threads| {
                for writer in 0..4 {
                    let (replaced, folder) = (&replaced, folder.path());
                    threads.spawn(move || {
                        let new = format!("new {writer}");
                        fs::write(folder.join(&new), format!("{round} {writer}")).unwrap();
                        let dir = OwnedFd::from(File::open(folder).unwrap());
                        let change =
                            NameChange::of_file(&dir, "file".as_ref(), Some(tag), "replace", &"it");
                        match change {
                            Ok(_change) => {
                                renameat(&dir, &new, &dir, "file").unwrap();
                                replaced.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => assert_eq!(error.code, FailCode::Precondition),
                        }
                    });
                }
            });
            assert_eq!(replaced.into_inner(), 1);
        }
    }

    #[test]
    fn what_is_no_file_has_no_tag() {
        let folder = tempfile::tempdir().unwrap();
        let dir = OwnedFd::from(File::open(folder.path()).unwrap());
        fs::create_dir(folder.path().join("dir")).unwrap();
        for name in ["dir", "missing"] {
            let tag = stat(folder.path().join("dir")).map(|found| etag_of(&found));
            let change = NameChange::of_file(&dir, name.as_ref(), tag.ok(), "remove", &name);
            assert_eq!(change.unwrap_err().code, FailCode::Precondition, "{name}");
        }
    }
}
