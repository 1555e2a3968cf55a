//! What the processor does: of the whole machine by cores, of this process, and how long a control group's quota held it back.
//!
//! The texts of `/proc` and `/sys` are read by pure functions. What is missing, as it may be in a container, is `None` and never 0.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Reads the processor's times. Finds the files once; a reading takes some 50 µs and grows with the number of cores.
#[derive(Debug)]
pub struct CpuMeter {
    /// Nanoseconds of a tick of `/proc/stat`.
    tick: Duration,
    /// This process's control group and those that it is in, if they can be found.
    groups: Vec<PathBuf>,
    version: GroupVersion,
}

impl Default for CpuMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuMeter {
    /// Finds where to read. Never fails: what cannot be found is absent from each reading.
    pub fn new() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let place = group(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        let version = place.as_ref().map_or(GroupVersion::Two, |place| place.version);
        Self { tick: tick(), groups: place.map(|place| place.levels()).unwrap_or_default(), version }
    }

    /// Reads all there is at this moment.
    pub fn read(&self) -> CpuReading {
        CpuReading {
            machine: fs::read_to_string("/proc/stat").ok().and_then(|text| machine(&text, self.tick)),
            process: process_time().ok(),
            throttled: self.groups.iter().map(|group| throttled(&fs::read_to_string(group.join("cpu.stat")).ok()?)).collect(),
        }
    }

    /// Returns the processor time that the tightest quota around this process allows, in thousandths of one core; `None` without a quota.
    pub fn quota_millicores(&self) -> Option<u64> {
        self.groups.iter().filter_map(|group| self.quota_of(group)).min()
    }

    fn quota_of(&self, group: &Path) -> Option<u64> {
        let text = |file| fs::read_to_string(group.join(file)).ok();
        match self.version {
            GroupVersion::One => quota_one(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?),
            GroupVersion::Two => quota_two(&text("cpu.max")?),
        }
    }
}

/// Times since the machine, the process and its control group began; the difference of two readings is what counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReading {
    machine: Option<Machine>,
    process: Option<Duration>,
    /// By control groups, the process's own first.
    throttled: Vec<Option<Duration>>,
}

impl CpuReading {
    /// Returns what was spent since an earlier reading of the same meter.
    pub fn since(&self, earlier: &Self) -> CpuSpent {
        let machine = self.machine.as_ref().zip(earlier.machine.as_ref());
        let total = machine.map(|(now, then)| now.total.since(&then.total));
        let levels = self.throttled.iter().zip(&earlier.throttled);
        CpuSpent {
            user: total.map(|total| total.user),
            system: total.map(|total| total.system),
            interrupts: total.map(|total| total.interrupts),
            worst_core: machine.and_then(|(now, then)| now.worst_core(then)),
            process: self.process.zip(earlier.process).map(|(now, then)| now.saturating_sub(then)),
            // A group that waits because one around it does is not counted again.
            throttled: levels.filter_map(|(now, then)| Some((*now)?.saturating_sub((*then)?))).max(),
        }
    }
}

impl CpuReading {
    /// Returns how long each core was not free since an earlier reading of the same meter, by the cores' numbers; zero for those that were
    /// switched off at one of the two.
    pub fn cores_since(&self, earlier: &Self) -> Vec<Duration> {
        let Some((now, then)) = self.machine.as_ref().zip(earlier.machine.as_ref()) else { return Vec::new() };
        let mut busy = Vec::new();
        for (number, times) in &now.cores {
            let place = *number as usize;
            let spent = then.times_of(*number).map(|then| times.since(then).busy()).unwrap_or_default();
            if place >= MOST_CORES {
                continue;
            }
            busy.resize(busy.len().max(place + 1), Duration::ZERO);
            busy[place] = spent;
        }
        busy
    }
}

/// What was spent between two readings. Times of the machine have the grain of the kernel's clock tick, 10 ms in most places.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSpent {
    /// Of all cores in user space.
    pub user: Option<Duration>,
    /// Of all cores in the kernel, interrupts not included.
    pub system: Option<Duration>,
    /// Of all cores in interrupts and what they leave for later (hard and soft).
    pub interrupts: Option<Duration>,
    /// How much of its time the busiest core was not free, 0.0 to 1.0; what a hypervisor took from it is not free. `None` also where less
    /// than a tick has passed.
    pub worst_core: Option<f64>,
    /// Of this process, user and system.
    pub process: Option<Duration>,
    /// For how long a quota held this process's control group back, or the one of those around it that waited longest; summed over its
    /// processors, so that it can be more than what has passed.
    pub throttled: Option<Duration>,
}

/// The first lines of `/proc/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    total: Times,
    /// With the numbers of the cores: those that are switched off have none.
    cores: Vec<(u32, Times)>,
}

impl Machine {
    fn worst_core(&self, earlier: &Self) -> Option<f64> {
        let spent = self.cores.iter().filter_map(|(number, times)| Some(times.since(earlier.times_of(*number)?)));
        spent.filter_map(|spent| spent.busy_share()).max_by(f64::total_cmp)
    }

    fn times_of(&self, number: u32) -> Option<&Times> {
        self.cores.iter().find(|(core, _)| *core == number).map(|(_, times)| times)
    }
}

/// Where a processor's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    user: Duration,
    system: Duration,
    interrupts: Duration,
    idle: Duration,
    stolen: Duration,
}

impl Times {
    /// Waiting for a disk may be counted back (`Documentation/filesystems/proc.rst`).
    fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            idle: self.idle.saturating_sub(earlier.idle),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }

    fn busy(&self) -> Duration {
        self.user.saturating_add(self.system).saturating_add(self.interrupts).saturating_add(self.stolen)
    }

    fn busy_share(&self) -> Option<f64> {
        let busy = self.busy();
        let all = busy.saturating_add(self.idle);
        (!all.is_zero()).then(|| busy.as_secs_f64() / all.as_secs_f64())
    }
}

/// Reads `/proc/stat`.
fn machine(text: &str, tick: Duration) -> Option<Machine> {
    let mut machine = Machine { total: Times::default(), cores: Vec::new() };
    let mut has_total = false;
    for line in text.lines() {
        // The lines of processors are the first.
        let Some(rest) = line.strip_prefix("cpu") else { break };
        let (number, fields) = rest.split_once(' ')?;
        let times = times(fields, tick)?;
        match number.parse() {
            Ok(number) => machine.cores.push((number, times)),
            Err(_) => (machine.total, has_total) = (times, true),
        }
    }
    has_total.then_some(machine)
}

/// `user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; the last of them are missing on old kernels. What guests
/// take is in the user's already.
fn times(fields: &str, tick: Duration) -> Option<Times> {
    let ticks: Vec<u64> = fields.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, idle, rest @ ..] = ticks.as_slice() else { return None };
    let of = |ticks: u64| Duration::from_nanos(ticks.saturating_mul(u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX)));
    let at = |place: usize| of(rest.get(place).copied().unwrap_or(0));
    Some(Times {
        user: of(*user).saturating_add(of(*nice)),
        system: of(*system),
        interrupts: at(1).saturating_add(at(2)),
        idle: of(*idle).saturating_add(at(0)),
        stolen: at(3),
    })
}

/// How control groups are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupVersion {
    One,
    Two,
}

/// Where the files of this process's control group are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupPlace {
    version: GroupVersion,
    /// Where the tree is mounted.
    mounted: PathBuf,
    /// The group's place below that.
    below: PathBuf,
}

impl GroupPlace {
    /// The group, and those that it is in as far as they can be seen.
    fn levels(&self) -> Vec<PathBuf> {
        self.below.ancestors().take(MOST_LEVELS).map(|level| self.mounted.join(level)).collect()
    }
}

/// Finds the control group that limits the processor, from `/proc/self/cgroup` and `/proc/self/mountinfo`. Where both kinds are in use it is
/// the one that has the processor.
fn group(groups: &str, mounts: &str) -> Option<GroupPlace> {
    let mut lines = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let one = lines.clone().find(|(controllers, _)| controllers.split(',').any(|controller| controller == "cpu"));
    let (version, path) = match one {
        Some((_, path)) => (GroupVersion::One, path),
        None => (GroupVersion::Two, lines.find(|(controllers, _)| controllers.is_empty())?.1),
    };
    let mount = mounts.lines().filter_map(Mount::parse).find(|mount| match version {
        GroupVersion::One => mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "cpu"),
        GroupVersion::Two => mount.kind == "cgroup2",
    })?;
    // A container sees its own group as the root, or its path as it is outside: then that of the mount is left out.
    let below = Path::new(path).strip_prefix(&mount.root).ok()?;
    // Outside of what can be seen: "/..".
    let is_plain = below.components().all(|component| matches!(component, std::path::Component::Normal(_)));
    is_plain.then(|| GroupPlace { version, mounted: mount.place, below: below.to_owned() })
}

/// A line of `mountinfo`.
pub(crate) struct Mount<'t> {
    /// The mount's number.
    pub(crate) id: u64,
    /// The device's numbers, as the text has them.
    pub(crate) device: &'t str,
    /// What of the file system is mounted.
    root: String,
    place: PathBuf,
    /// The file system's type.
    pub(crate) kind: &'t str,
    options: &'t str,
}

impl<'t> Mount<'t> {
    /// `id parent major:minor root place options [fields…] - type source super-options`
    pub(crate) fn parse(line: &'t str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let (id, _parent, device) = (left.next()?.parse().ok()?, left.next()?, left.next()?);
        let (root, place) = (unescaped(left.next()?), unescaped(left.next()?));
        let mut right = right.split(' ');
        let (kind, _source, options) = (right.next()?, right.next()?, right.next().unwrap_or_default());
        Some(Self { id, device, root, place: place.into(), kind, options })
    }
}

/// Spaces, tabs, line ends and backslashes are `\040` and the like.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
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

/// Reads `cpu.stat` of either version: `throttled_usec`, or `throttled_time` in nanoseconds. `None` in a group without a limit of its own,
/// where the second version says nothing of it.
fn throttled(text: &str) -> Option<Duration> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", value) => value.parse().ok().map(Duration::from_micros),
        ("throttled_time", value) => value.parse().ok().map(Duration::from_nanos),
        _ => None,
    })
}

/// Reads `cpu.max`: `max 100000`, or `50000 100000`.
fn quota_two(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    millicores(quota.parse().ok()?, period.parse().ok()?)
}

/// Reads `cpu.cfs_quota_us`, -1 for none, and `cpu.cfs_period_us`.
fn quota_one(quota: &str, period: &str) -> Option<u64> {
    millicores(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn millicores(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}

/// The time of one tick of `/proc/stat`.
fn tick() -> Duration {
    // SAFETY: sysconf takes a number and answers with one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs(1) / u32::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// What this process has spent, its ended threads included.
fn process_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a live timespec, which the kernel fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Reads one text as each kind of file, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let read = machine(text, Duration::from_millis(10));
    let _ = read.as_ref().and_then(|read| read.worst_core(&Machine { total: Times::default(), cores: read.cores.clone() }));
    let (first, second) = text.split_once("\n\n").unwrap_or((text, text));
    let _ = group(first, second).map(|place| place.levels());
    let _ = (throttled(text), quota_two(text), quota_one(first, second));
}

/// More than any kernel is built for (`CONFIG_NR_CPUS`).
const MOST_CORES: usize = 8192;
/// Deeper than any tree of groups that people make; each level is a file to be read.
const MOST_LEVELS: usize = 16;

#[cfg(test)]
mod tests;
