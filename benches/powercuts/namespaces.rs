//! Namespaces for one program, in which all that it mounts and starts ends with it.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use super::{bench_support::is_installed, volume::Kind};

/// Why no power can be cut here, of disks with these file systems; `more` is a program that is needed besides.
pub(crate) fn obstacle(kinds: &[Kind], more: Option<&'static str>) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount".to_owned());
    }
    if let Some(missing) = ["setpriv", "unshare", "mount"].into_iter().chain(more).find(|program| !is_installed(program)) {
        return Some(format!("{missing} is not installed"));
    }
    if let Some(obstacle) = kinds.iter().find_map(|kind| kind.obstacle()) {
        return Some(obstacle);
    }
    // Root of a container may be kept from these, and from namespaces.
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = File::options().read(true).write(true).open(device) {
            return Some(format!("cannot open {device}: {error}"));
        }
    }
    match command(Path::new("true")).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("no private mounts here: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Some(format!("cannot start setpriv: {error}")),
    }
}

/// A program in namespaces of mounts and processes: however this process ends, the program ends, and with it all that it started; then
/// its mounts are gone, and with the mounts their loop devices.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]).arg(program);
    command
}
