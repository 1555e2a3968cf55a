//! Mount and PID namespaces for a child program, so that its mounts and processes end with it.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use super::volume::Kind;
use crate::trial::is_installed;

/// Returns the reason why this machine cannot simulate power cuts on these file systems; `None` if
/// it can. `more` is an additional required program.
pub fn obstacle(kinds: &[Kind], more: Option<&'static str>) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount".to_owned());
    }
    if let Some(missing) = ["setpriv", "unshare", "mount"]
        .into_iter()
        .chain(more)
        .find(|program| !is_installed(program))
    {
        return Some(format!("{missing} is not installed"));
    }
    if let Some(obstacle) = kinds.iter().find_map(|kind| kind.obstacle()) {
        return Some(obstacle);
    }
    // Root in a container may lack access to these devices and to namespaces.
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = File::options().read(true).write(true).open(device) {
            return Some(format!("cannot open {device}: {error}"));
        }
    }
    match command(Path::new("true")).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "no private mounts here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("cannot start setpriv: {error}")),
    }
}

/// Returns a command that runs a program in new mount and PID namespaces. The program, its children
/// and their mounts end if this process is killed.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
        ])
        .arg(program);
    command
}
