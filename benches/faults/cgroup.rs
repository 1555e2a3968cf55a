//! Memory cgroups (v1 or v2) for client and daemon. The memory limit includes the page cache.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use nicstripe_lab::Host;
use nicstripe_testkit::bench::{Result, Scene};

/// Memory cgroups of client and daemon. Removed on drop, or by a separate process if this process
/// is killed.
pub(crate) struct Groups {
    folders: [PathBuf; 2],
    /// Shell that removes the cgroups when its standard input is closed.
    sweeper: Child,
    lifeline: Option<ChildStdin>,
}

impl Groups {
    /// Returns the reason why memory cgroups cannot be created; `None` if they can.
    pub(crate) fn obstacle() -> Option<String> {
        Self::new(64 << 20).err().map(|error| error.to_string())
    }

    /// Creates two memory cgroups with a limit of `bytes` each.
    pub(crate) fn new(bytes: u64) -> Result<Self> {
        let (base, limit) = base()?;
        let folders = ["client", "daemon"]
            .map(|end| base.join(format!("nicstripe-bench-{}-{end}", std::process::id())));
        let script = "cat; for round in 1 2 3 4 5 6 7 8 9 10; do rmdir \"$@\" 2> /dev/null; [ -d \"$1\" ] || [ -d \"$2\" ] || exit 0; sleep 0.2; done";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sweep"])
            .args(&folders)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        // In a separate process group, because the shell must outlive this process.
        let mut sweeper = command.process_group(0).spawn()?;
        let lifeline = sweeper.stdin.take();
        let groups = Self {
            folders,
            sweeper,
            lifeline,
        };
        for folder in &groups.folders {
            fs::create_dir(folder)
                .map_err(|error| format!("no memory cgroup in {}: {error}", base.display()))?;
            fs::write(folder.join(limit), bytes.to_string())
                .map_err(|error| format!("cannot limit memory: {error}"))?;
        }
        Ok(groups)
    }

    /// Wraps a command so that it runs in a memory cgroup: `end` is 0 for the client on host A, 1
    /// for the daemon on host B.
    pub(crate) fn inside(&self, scene: &Scene<'_>, command: &Command, end: usize) -> Command {
        let mut inside = scene.lab.command(Host::ALL[end], "sh");
        inside
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&self.folders[end]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Returns the peak memory of a cgroup in bytes, page cache included; `None` if the kernel does
    /// not report it. `end` is 0 for the client, 1 for the daemon.
    pub(crate) fn peak(&self, end: usize) -> Option<u64> {
        let folder = &self.folders[end];
        let text = ["memory.max_usage_in_bytes", "memory.peak"]
            .iter()
            .find_map(|name| fs::read_to_string(folder.join(name)).ok())?;
        text.trim().parse().ok()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
        self.lifeline.take();
        let _ = self.sweeper.wait();
    }
}

/// Returns the parent folder of memory cgroups, and the name of their limit file.
fn base() -> Result<(PathBuf, &'static str)> {
    let (old, new) = (
        Path::new("/sys/fs/cgroup/memory"),
        Path::new("/sys/fs/cgroup"),
    );
    if old.join("memory.limit_in_bytes").exists() {
        return Ok((old.to_owned(), "memory.limit_in_bytes"));
    }
    match fs::read_to_string(new.join("cgroup.subtree_control")) {
        Ok(text) if text.split_whitespace().any(|name| name == "memory") => {
            Ok((new.to_owned(), "memory.max"))
        }
        _ => Err("no memory cgroup (v1 or v2)".into()),
    }
}
