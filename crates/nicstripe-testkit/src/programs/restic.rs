//! Detects restic on this machine.

use std::process::{Command, Stdio};

/// Returns the reason why tests with restic cannot run; `None` if they can.
pub fn obstacle() -> Option<String> {
    let version = Command::new("restic")
        .arg("version")
        .stdin(Stdio::null())
        .output();
    version
        .err()
        .map(|error| format!("restic is not installed: {error}"))
}
