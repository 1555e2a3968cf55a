//! Whether there is restic.

use std::process::{Command, Stdio};

/// Why no test can be run with restic, if so.
pub(crate) fn obstacle() -> Option<String> {
    let version = Command::new("restic").arg("version").stdin(Stdio::null()).output();
    version.err().map(|error| format!("restic is not installed: {error}"))
}
