//! Root directory of the daemon.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nicstripe::trust::Home;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::error::ServeError;

/// Returns the canonical path of the directory to serve. Checks that this user can read it, and
/// that it contains neither the private key nor the peers file nor the settings.
pub(super) fn find(root: &Path, home: &Home) -> Result<PathBuf, ServeError> {
    let failed = |source| ServeError::Root {
        path: root.to_owned(),
        source,
    };
    let path = fs::canonicalize(root).map_err(failed)?;
    if !path.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    may(&path, Access::READ_OK | Access::EXEC_OK).map_err(failed)?;
    match home.found_in(&path).map_err(failed)? {
        None => Ok(path),
        Some(file) => Err(ServeError::RootOfKeys { path, file }),
    }
}

/// Returns the error that a write to the directory would have; `None` if writing is possible.
pub(super) fn write_error(root: &Path) -> Option<io::Error> {
    may(root, Access::WRITE_OK).err()
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
