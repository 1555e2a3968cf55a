//! Root directory of the daemon.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nicstripe::trust::Home;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::{
    failure::{Fault, exit::Exit, usage},
    text::invocation::Invocation,
};

/// Returns the canonical path of the directory to serve. Checks that this user can read it, and
/// that it contains neither the private key nor the peers file nor the settings.
pub(super) fn find(root: &Path, home: &Home) -> Result<PathBuf, Fault> {
    let failed =
        |error: io::Error| Fault::new(Exit::Files, format!("cannot serve {root:?}")).because(error);
    let path = fs::canonicalize(root).map_err(failed)?;
    if !path.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    may(&path, Access::READ_OK | Access::EXEC_OK).map_err(failed)?;
    match home.found_in(&path).map_err(failed)? {
        None => Ok(path),
        // A peer that may write there could grant itself rights.
        Some(file) => {
            let text = format!(
                "cannot serve {path:?}: it contains this machine's key, peers file or settings: {file:?}"
            );
            let program = Invocation::of_this_process().program();
            let hint = format!("serve another directory: {program} serve DIR");
            Err(usage(text).with_hint(hint))
        }
    }
}

/// Returns the error that a write to the directory would have; `None` if writing is possible.
pub(super) fn write_error(root: &Path) -> Option<io::Error> {
    may(root, Access::WRITE_OK).err()
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
