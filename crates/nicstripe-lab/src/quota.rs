//! CPU quota for processes, with the cpu controller of control groups, version 1 or 2.

use std::{
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
pub struct CpuQuota {
    controller: Controller,
    folder: PathBuf,
    /// Process that removes the group's directory after its standard input is closed.
    sweeper: Child,
    lifeline: Option<ChildStdin>,
}

impl CpuQuota {
    /// Creates a control group with a quota in thousandths of one core, at least 10 (the kernel's
    /// minimum). The kernel enforces it in periods of a tenth of a second.
    ///
    /// # Errors
    ///
    /// [`LabError::NoCpuGroups`] without a cpu controller; [`LabError::Kernel`] if the kernel
    /// rejects a request, also without the privilege to create groups.
    pub fn new(millicores: u32) -> Result<Self, LabError> {
        let controller = Controller::find().ok_or(LabError::NoCpuGroups)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = controller
            .base()
            .join(format!("nicstripe-lab-{}-{number}", process::id()));
        let refused = || LabError::refused(format!("make control group {}", folder.display()));
        let mut sweeper = sweeper(&folder).map_err(refused())?;
        let lifeline = sweeper.stdin.take();
        let quota = Self {
            controller,
            folder: folder.clone(),
            sweeper,
            lifeline,
        };
        fs::create_dir(&folder).map_err(refused())?;
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
        let write = |file, text: String| fs::write(self.folder.join(file), text);
        let written = match self.controller {
            Controller::V1(_) => write("cpu.cfs_period_us", PERIOD_US.to_string())
                .and_then(|()| write("cpu.cfs_quota_us", quota.to_string())),
            Controller::V2(_) => write("cpu.max", format!("{quota} {PERIOD_US}")),
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
        move_to(pid, &self.folder).map_err(LabError::refused(action))
    }

    /// Returns the file into which a process writes its ID to enter the group, as
    /// [`CpuQuota::take`] does for it.
    pub fn entrance(&self) -> PathBuf {
        self.folder.join(PROCESSES)
    }

    /// Returns the time during which the quota throttled the group since its creation, summed over
    /// CPUs.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the time cannot be read.
    pub fn throttled(&self) -> Result<Duration, LabError> {
        let text = fs::read_to_string(self.folder.join("cpu.stat"));
        text.and_then(|text| throttled_in(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()))
            .map_err(LabError::refused("read the times of a control group"))
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            for pid in fs::read_to_string(self.folder.join(PROCESSES))
                .unwrap_or_default()
                .lines()
                .flat_map(str::parse)
            {
                // Fails if the process has ended in the meantime.
                let _ = move_to(pid, self.controller.base());
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

/// Version and mount point of the cpu controller. The mount point is the parent of the lab's
/// groups.
#[derive(Debug)]
enum Controller {
    V1(PathBuf),
    V2(PathBuf),
}

impl Controller {
    fn find() -> Option<Self> {
        let v1 = ["cpu", "cpu,cpuacct"].map(|name| Path::new(CGROUPS).join(name));
        if let Some(base) = v1.into_iter().find(|base| base.join(PROCESSES).exists()) {
            return Some(Self::V1(base));
        }
        let controllers =
            fs::read_to_string(Path::new(CGROUPS).join("cgroup.subtree_control")).ok()?;
        controllers
            .split_whitespace()
            .any(|name| name == "cpu")
            .then(|| Self::V2(PathBuf::from(CGROUPS)))
    }

    fn base(&self) -> &Path {
        match self {
            Self::V1(base) | Self::V2(base) => base,
        }
    }
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

fn move_to(pid: u32, folder: &Path) -> io::Result<()> {
    fs::write(folder.join(PROCESSES), pid.to_string())
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
