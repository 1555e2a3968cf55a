//! CPU quota and memory limit for processes, with control groups, version 1 or 2.

use std::{
    fmt::Display,
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use crate::error::LabError;

/// Control group whose processes share a CPU quota.
///
/// It is initially empty: see [`CpuQuota::take`]. On drop, its processes move to the parent group,
/// and the group is removed. If the creating process is killed, a separate process removes the
/// group as soon as it is empty. Needs the privilege to create control groups, which usually only
/// root has.
#[derive(Debug)]
pub struct CpuQuota(Group);

impl CpuQuota {
    /// Creates a control group with a quota in thousandths of one core, at least 10 (the kernel's
    /// minimum). The kernel enforces it in periods of a tenth of a second.
    ///
    /// # Errors
    ///
    /// [`LabError::NoGroups`] without a cpu controller; [`LabError::Kernel`] if the kernel rejects a
    /// request, also without the privilege to create groups.
    pub fn new(millicores: u32) -> Result<Self, LabError> {
        let quota = Self(Group::new("cpu", &["cpu", "cpu,cpuacct"])?);
        quota.set(millicores)?;
        Ok(quota)
    }

    /// Changes the quota, in thousandths of one core.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the kernel rejects the quota.
    pub fn set(&self, millicores: u32) -> Result<(), LabError> {
        let quota = u64::from(millicores) * PERIOD_US / 1000;
        let written = match self.0.version {
            Version::V1 => (self.0.write("cpu.cfs_period_us", PERIOD_US))
                .and_then(|()| self.0.write("cpu.cfs_quota_us", quota)),
            Version::V2 => self.0.write("cpu.max", format_args!("{quota} {PERIOD_US}")),
        };
        let action = format_args!("give a control group {quota} of {PERIOD_US} µs");
        written.map_err(LabError::refused(action))
    }

    /// Moves a process with all its threads into the group. Children that it starts later belong to
    /// the group too.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the kernel refuses, also if the process does not exist.
    pub fn take(&self, pid: u32) -> Result<(), LabError> {
        let action = format_args!("put process {pid} into a control group");
        self.0
            .write(PROCESSES, pid)
            .map_err(LabError::refused(action))
    }

    /// Returns the file into which a process writes its ID to enter the group, as
    /// [`CpuQuota::take`] does for it.
    pub fn entrance(&self) -> PathBuf {
        self.0.folder.join(PROCESSES)
    }

    /// Returns the time during which the quota throttled the group since its creation, summed over
    /// CPUs.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the time cannot be read.
    pub fn throttled(&self) -> Result<Duration, LabError> {
        let text = fs::read_to_string(self.0.folder.join("cpu.stat"));
        text.and_then(|text| throttled_in(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()))
            .map_err(LabError::refused("read the times of a control group"))
    }
}

/// Control group whose processes share a memory limit, which includes the page cache.
///
/// It is removed as a [`CpuQuota`] is.
#[derive(Debug)]
pub struct MemoryLimit(Group);

impl MemoryLimit {
    /// Creates a control group with a limit in bytes.
    ///
    /// # Errors
    ///
    /// [`LabError::NoGroups`] without a memory controller; [`LabError::Kernel`] if the kernel
    /// rejects a request, also without the privilege to create groups.
    pub fn new(bytes: u64) -> Result<Self, LabError> {
        let group = Group::new("memory", &["memory"])?;
        let file = match group.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        let written = group.write(file, bytes);
        written.map_err(LabError::refused("limit the memory of a control group"))?;
        Ok(Self(group))
    }

    /// Returns the file into which a process writes its ID to enter the group.
    pub fn entrance(&self) -> PathBuf {
        self.0.folder.join(PROCESSES)
    }

    /// Returns the peak memory of the group in bytes, page cache included; `None` if the kernel
    /// does not report it.
    pub fn peak(&self) -> Option<u64> {
        let text = ["memory.max_usage_in_bytes", "memory.peak"]
            .iter()
            .find_map(|name| fs::read_to_string(self.0.folder.join(name)).ok())?;
        text.trim().parse().ok()
    }
}

/// Control group of one controller.
#[derive(Debug)]
struct Group {
    version: Version,
    /// Mount point of the controller: the parent of the lab's groups.
    base: PathBuf,
    folder: PathBuf,
    /// Process that removes the group's directory after its standard input is closed.
    sweeper: Child,
    lifeline: Option<ChildStdin>,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    V1,
    V2,
}

impl Group {
    /// Creates a group of `controller`, whose mount point in version 1 has one of the names `old`.
    fn new(controller: &'static str, old: &[&str]) -> Result<Self, LabError> {
        let (version, base) = find(controller, old).ok_or(LabError::NoGroups(controller))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("nicstripe-lab-{}-{number}", process::id()));
        let refused = || LabError::refused(format!("make control group {}", folder.display()));
        let mut sweeper = sweeper(&folder).map_err(refused())?;
        let lifeline = sweeper.stdin.take();
        let group = Self {
            version,
            base,
            folder: folder.clone(),
            sweeper,
            lifeline,
        };
        fs::create_dir(&folder).map_err(refused())?;
        Ok(group)
    }

    fn write(&self, file: &str, value: impl Display) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            for pid in fs::read_to_string(self.folder.join(PROCESSES))
                .unwrap_or_default()
                .lines()
            {
                // Fails if the process has ended in the meantime.
                let _ = fs::write(self.base.join(PROCESSES), pid);
            }
            match fs::remove_dir(&self.folder) {
                // A process that is about to end is still in the group.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(BETWEEN_REMOVALS);
                }
                _ => break,
            }
        }
        self.lifeline.take();
        let _ = self.sweeper.wait();
    }
}

/// Returns version and mount point of a controller.
fn find(controller: &str, old: &[&str]) -> Option<(Version, PathBuf)> {
    let groups = Path::new(CGROUPS);
    let mut old = old.iter().map(|name| groups.join(name));
    if let Some(base) = old.find(|base| base.join(PROCESSES).exists()) {
        return Some((Version::V1, base));
    }
    let controllers = fs::read_to_string(groups.join("cgroup.subtree_control")).ok()?;
    (controllers.split_whitespace())
        .any(|name| name == controller)
        .then(|| (Version::V2, groups.to_owned()))
}

/// Starts a process that waits for the end of its standard input, and then removes the control
/// group `folder` as soon as it is empty. It gives up after ten seconds.
fn sweeper(folder: &Path) -> io::Result<Child> {
    let script = "cat; for round in $(seq 100); do [ -d \"$0\" ] || exit 0; rmdir \"$0\" && exit 0; sleep 0.1; done";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Not in this process group, because it must outlive this process.
    command.process_group(0).spawn()
}

/// Parses the throttled time in `cpu.stat`: `throttled_time` of version 1 is in nanoseconds,
/// `throttled_usec` of version 2 in microseconds.
fn throttled_in(text: &str) -> Option<Duration> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_time", value) => value.parse().ok().map(Duration::from_nanos),
        ("throttled_usec", value) => value.parse().ok().map(Duration::from_micros),
        _ => None,
    })
}

const CGROUPS: &str = "/sys/fs/cgroup";
const PROCESSES: &str = "cgroup.procs";

/// Period of a CPU quota in microseconds: the default of the kernel and of containers.
const PERIOD_US: u64 = 100_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

const REMOVALS: usize = 100;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_tell_for_how_long_a_group_was_held_back() {
        let old = "nr_periods 12\nnr_throttled 5\nthrottled_time 1234567\n";
        let new = "usage_usec 9\nnr_throttled 5\nthrottled_usec 1234\n";
        assert_eq!(
            [old, new].map(throttled_in),
            [
                Some(Duration::from_nanos(1_234_567)),
                Some(Duration::from_micros(1234))
            ]
        );
        assert_eq!(throttled_in("usage_usec 9\n"), None);
    }
}
