//! CPU time of the machine per core and of this process, and throttling by control group quotas.
//!
//! Pure functions parse the texts of `/proc` and `/sys`. Missing values, as in some containers, are
//! `None` and never 0.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};

/// Reader of the CPU times of the machine, this process and its control groups. Locates the files
/// once; a reading takes about 50 µs, and longer with more cores.
#[derive(Debug)]
pub struct CpuMeter {
    /// Duration of one clock tick, the unit of `/proc/stat`.
    tick: Duration,
    /// Directories of this process's control group and its ancestors; empty if not found.
    groups: Vec<PathBuf>,
}

impl CpuMeter {
    /// Locates the files of `/proc` and `/sys`. Never fails: values that cannot be found are `None`
    /// in each reading.
    pub fn find() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let groups = group(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        Self {
            tick: Duration::from_secs(1) / (clock_ticks_per_second().max(1) as u32),
            groups: groups.unwrap_or_default(),
        }
    }

    /// Reads the current CPU times. Unavailable ones are `None`.
    pub fn read(&self) -> CpuReading {
        CpuReading {
            machine: fs::read_to_string("/proc/stat")
                .ok()
                .and_then(|text| machine(&text, self.tick)),
            process: process_time(),
            throttled: self
                .groups
                .iter()
                .map(|group| throttled(&fs::read_to_string(group.join("cpu.stat")).ok()?))
                .collect(),
        }
    }

    /// Returns the lowest CPU quota of this process's control groups, in thousandths of one core;
    /// `None` without a quota.
    pub(crate) fn quota_millicores(&self) -> Option<u64> {
        self.groups.iter().filter_map(|group| quota_of(group)).min()
    }

    /// Returns the number of periods in which the quota of a control group stopped this process:
    /// the greatest of all its groups. `None` if no group counts them.
    pub(crate) fn throttled_periods(&self) -> Option<u64> {
        let stat = |group: &PathBuf| fs::read_to_string(group.join("cpu.stat")).ok();
        let groups = self.groups.iter();
        groups
            .filter_map(|group| throttled_periods(&stat(group)?))
            .max()
    }
}

/// Cumulative CPU times of the machine, the process and its control groups. Only the difference of
/// two readings is meaningful.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReading {
    machine: Option<Machine>,
    process: Option<Duration>,
    /// Throttled time of each control group, the process's own group first.
    throttled: Vec<Option<Duration>>,
}

impl CpuReading {
    /// Returns the CPU time spent since an earlier reading of the same meter.
    pub fn since(&self, earlier: &Self) -> CpuSpent {
        let machine = self.machine.as_ref().zip(earlier.machine.as_ref());
        let total = machine.map(|(now, then)| now.total.since(&then.total));
        let levels = self.throttled.iter().zip(&earlier.throttled);
        CpuSpent {
            user: total.map(|total| total.user),
            system: total.map(|total| total.system),
            interrupts: total.map(|total| total.interrupts),
            process: self
                .process
                .zip(earlier.process)
                .map(|(now, then)| now.saturating_sub(then)),
            // The maximum, not the sum: an ancestor's throttling also stalls the groups inside it.
            throttled: levels
                .filter_map(|(now, then)| Some((*now)?.saturating_sub((*then)?)))
                .max(),
            cores: machine
                .map(|(now, then)| now.cores_since(then))
                .unwrap_or_default(),
        }
    }
}

/// CPU time spent between two readings. Machine times have the resolution of the kernel's clock
/// tick, usually 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSpent {
    /// User time of all processes, summed over all cores.
    pub user: Option<Duration>,
    /// Kernel time without interrupts, summed over all cores.
    pub system: Option<Duration>,
    /// Time in hardware and software interrupts, summed over all cores.
    pub interrupts: Option<Duration>,
    /// User and kernel time of this process.
    pub process: Option<Duration>,
    /// Throttled time of this process's control group, or of an ancestor that was throttled longer.
    /// Summed over CPUs, so it can exceed the elapsed time.
    pub throttled: Option<Duration>,
    /// Busy time of each core, indexed by core number; stolen time counts as busy. It is zero for a
    /// core that was offline at either reading.
    pub cores: Vec<Duration>,
}

/// CPU times of the machine from the `cpu` lines of `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Machine {
    total: Times,
    /// CPU times of each online core, by core number; `/proc/stat` has no line for offline cores.
    cores: BTreeMap<u32, Times>,
}

impl Machine {
    fn cores_since(&self, earlier: &Self) -> Vec<Duration> {
        let mut busy = Vec::new();
        for (number, times) in self.cores.range(..MOST_CORES) {
            busy.resize(*number as usize, Duration::ZERO);
            let spent = earlier.cores.get(number).map(|then| times.since(then));
            busy.push(spent.map(|spent| spent.busy()).unwrap_or_default());
        }
        busy
    }
}

/// CPU time of a core or the machine, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    user: Duration,
    system: Duration,
    interrupts: Duration,
    stolen: Duration,
}

impl Times {
    /// Returns the time spent since `earlier`, at least zero per state.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }

    fn busy(&self) -> Duration {
        self.user
            .saturating_add(self.system)
            .saturating_add(self.interrupts)
            .saturating_add(self.stolen)
    }
}

/// Parses `/proc/stat`; `tick` is the duration of one clock tick.
fn machine(text: &str, tick: Duration) -> Option<Machine> {
    let mut machine = Machine::default();
    let mut has_total = false;
    for line in text.lines() {
        // The CPU lines come first.
        let Some(rest) = line.strip_prefix("cpu") else {
            break;
        };
        let (number, fields) = rest.split_once(' ')?;
        let times = times(fields, tick)?;
        match number.parse() {
            Ok(number) => _ = machine.cores.insert(number, times),
            Err(_) => (machine.total, has_total) = (times, true),
        }
    }
    has_total.then_some(machine)
}

/// Parses `user nice system idle iowait irq softirq steal guest guest_nice`, in clock ticks. Old
/// kernels omit the last fields. User time already includes guest time.
fn times(fields: &str, tick: Duration) -> Option<Times> {
    let ticks: Vec<u64> = fields
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [user, nice, system, _idle, rest @ ..] = ticks.as_slice() else {
        return None;
    };
    let of = |ticks: u64| {
        Duration::from_nanos(
            ticks.saturating_mul(u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX)),
        )
    };
    let at = |index: usize| of(rest.get(index).copied().unwrap_or(0));
    Some(Times {
        user: of(*user).saturating_add(of(*nice)),
        system: of(*system),
        interrupts: at(1).saturating_add(at(2)),
        stolen: at(3),
    })
}

/// Finds the control group that limits the CPU, from the texts of `/proc/self/cgroup` and
/// `/proc/self/mountinfo`. If cgroup versions 1 and 2 are both mounted, this is the one with the
/// CPU controller.
///
/// Returns the directories of the control group and its visible ancestors, the group's own first.
fn group(groups: &str, mounts: &str) -> Option<Vec<PathBuf>> {
    let mut lines = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let one = lines
        .clone()
        .find(|(controllers, _)| controllers.split(',').any(|controller| controller == "cpu"));
    let is_one = one.is_some();
    let (_, path) = one.or_else(|| lines.find(|(controllers, _)| controllers.is_empty()))?;
    let mut mounts = mounts.lines().filter_map(Mount::parse);
    let mount = mounts.find(|mount| match is_one {
        true => mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "cpu"),
        false => mount.kind == "cgroup2",
    })?;
    // A container sees its own group either as the root or by its path on the host. In the second
    // case, strip the mount's root.
    let below = Path::new(path).strip_prefix(&mount.root).ok()?;
    // A group outside the visible hierarchy starts with "/..".
    let is_plain = below
        .components()
        .all(|component| matches!(component, std::path::Component::Normal(_)));
    let levels = below.ancestors().take(MOST_LEVELS);
    is_plain.then(|| levels.map(|level| mount.point.join(level)).collect())
}

/// Mount of a file system, parsed from a line of `/proc/PID/mountinfo`.
pub(crate) struct Mount<'t> {
    pub(crate) id: u64,
    /// Device number of the file system as `major:minor`.
    pub(crate) device: &'t str,
    /// Directory that is mounted, as an absolute path within its file system.
    root: String,
    point: PathBuf,
    /// File system type, such as `cgroup2`.
    pub(crate) kind: &'t str,
    options: &'t str,
}

impl<'t> Mount<'t> {
    /// Parses a line of `mountinfo`: `id parent major:minor root mount-point options [fields…] -
    /// type source super-options`.
    pub(crate) fn parse(line: &'t str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let (id, _parent, device) = (left.next()?.parse().ok()?, left.next()?, left.next()?);
        let (root, point) = (unescaped(left.next()?), unescaped(left.next()?));
        let mut right = right.split(' ');
        let (kind, _source, options) = (
            right.next()?,
            right.next()?,
            right.next().unwrap_or_default(),
        );
        Some(Self {
            id,
            device,
            root,
            point: point.into(),
            kind,
            options,
        })
    }
}

/// Decodes the octal escapes of spaces, tabs, line ends and backslashes, such as `\040`.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
            .filter(u8::is_ascii);
        match digits {
            Some(byte) => {
                text.push(byte.into());
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// Parses the throttled time in `cpu.stat` of either cgroup version: `throttled_usec`, or
/// `throttled_time` in nanoseconds. Returns `None` for a version 2 group without a limit, which has
/// no such line.
fn throttled(text: &str) -> Option<Duration> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", value) => value.parse().ok().map(Duration::from_micros),
        ("throttled_time", value) => value.parse().ok().map(Duration::from_nanos),
        _ => None,
    })
}

/// Parses the number of throttled periods in `cpu.stat` of either cgroup version.
fn throttled_periods(text: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix("nr_throttled ")?.trim().parse().ok();
    text.lines().find_map(value)
}

/// Returns the quota of a control group, whose files differ between the cgroup versions.
fn quota_of(group: &Path) -> Option<u64> {
    let text = |file| fs::read_to_string(group.join(file)).ok();
    match text("cpu.max") {
        Some(two) => quota_two(&two),
        None => quota_one(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?),
    }
}

/// Parses a cgroup version 2 quota (`cpu.max`) into thousandths of a core: `50000 100000` yields
/// 500, `max 100000` yields `None`.
fn quota_two(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    millicores(quota.parse().ok()?, period.parse().ok()?)
}

/// Parses a cgroup version 1 quota into thousandths of a core, from `cpu.cfs_quota_us` (-1 means
/// none) and `cpu.cfs_period_us`.
fn quota_one(quota: &str, period: &str) -> Option<u64> {
    millicores(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn millicores(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}

/// Returns the CPU time of this process, including its finished threads.
fn process_time() -> Option<Duration> {
    clock_gettime(ClockId::ProcessCPUTime).try_into().ok()
}

/// Runs all parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let read = machine(text, Duration::from_millis(10));
    let _ = read.map(|read| read.cores_since(&Machine::default()));
    let (first, second) = text.split_once("\n\n").unwrap_or((text, text));
    let _ = group(first, second);
    let _ = (throttled(text), quota_two(text), quota_one(first, second));
    let _ = throttled_periods(text);
}

/// Maximum number of cores in a reading: the largest `CONFIG_NR_CPUS` of x86-64.
const MOST_CORES: u32 = 8192;
/// Maximum number of nested control groups to read: more than practical hierarchies have. Each
/// level costs reading one file.
const MOST_LEVELS: usize = 16;

#[cfg(test)]
mod tests;
