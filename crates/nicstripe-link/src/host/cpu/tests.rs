use super::*;

const TICK: Duration = Duration::from_millis(10);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// `/proc/stat` of Linux 6.18 in a virtual machine with two processors.
const STAT: &str = "\
cpu  1899188 2067902 1304920 2203084 50482 0 150502 9172 0 0
cpu0 936068 1026280 636693 1153889 12974 0 72204 4626 0 0
cpu1 963119 1041621 668227 1049195 37508 0 78297 4545 0 0
intr 136827060 0 0 0 0
ctxt 305534153
btime 1795288129
softirq 281605586 0 3761364 71865058 117159937 9165344 0 58200305 3561838 3233155 14658585
";

/// `/proc/stat` half a second after `STAT`: the second core only handled interrupts, and the first
/// was almost idle.
const LATER: &str = "\
cpu  1899190 2067902 1304924 2203128 50482 0 150552 9172 0 0
cpu0 936070 1026280 636697 1153933 12974 0 72204 4626 0 0
cpu1 963119 1041621 668227 1049195 37508 0 78347 4545 0 0
";

#[test]
fn the_machines_time_is_told_by_kinds_and_cores() {
    let reading = |text| CpuReading {
        machine: machine(text, TICK),
        process: None,
        throttled: Vec::new(),
    };
    let spent = reading(LATER).since(&reading(STAT));
    assert_eq!(
        (spent.user, spent.system, spent.interrupts),
        (Some(ms(20)), Some(ms(40)), Some(ms(500)))
    );
    assert_eq!(spent.cores, [ms(60), ms(500)]);
    assert_eq!((spent.process, spent.throttled), (None, None));
    assert_eq!(
        reading(STAT).since(&reading(STAT)).cores,
        [ms(0), ms(0)],
        "no time has passed"
    );
}

#[test]
fn a_machine_whose_times_cannot_be_read_has_none() {
    for text in [
        "",
        "intr 1 2 3\n",
        "cpu0 1 2 3 4\n",
        "cpu  1 2 3\n",
        "cpu  1 2 3 x\n",
        "cpu",
    ] {
        assert_eq!(machine(text, TICK), None, "{text:?}");
    }
    // Linux 2.4 reports four numbers.
    assert_eq!(machine("cpu  1 2 3 4\n", TICK).unwrap().total.user, ms(30));
}

#[test]
fn a_core_that_was_offline_at_either_reading_is_not_compared() {
    let (now, then) = (machine(LATER, TICK).unwrap(), machine(STAT, TICK).unwrap());
    let second = |all: &Machine| Machine {
        cores: [(1, all.cores[&1])].into(),
        ..all.clone()
    };
    assert_eq!(
        second(&now).cores_since(&then),
        [ms(0), ms(500)],
        "the first was offline"
    );
    assert_eq!(
        now.cores_since(&second(&then)),
        [ms(0), ms(500)],
        "and on again"
    );
    let none = CpuReading {
        machine: None,
        process: None,
        throttled: Vec::new(),
    };
    assert_eq!(none.since(&none).cores, []);
}

#[test]
fn what_a_hypervisor_takes_is_not_free() {
    let times = times("10 0 10 60 10 5 5 100", TICK).unwrap();
    // All but 70 of 200 ticks.
    assert_eq!(times.busy(), 130 * TICK);
}

/// `/proc/self/mountinfo` of a machine with systemd 255 and cgroup version 2 only.
const V2_MOUNTS: &str = "\
24 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
30 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
31 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

fn found(groups: &str, mounts: &str) -> Option<Vec<String>> {
    let levels = group(groups, mounts)?;
    let shown = levels
        .iter()
        .map(|level| level.to_str().unwrap().trim_end_matches('/').to_owned());
    Some(shown.collect())
}

#[test]
fn the_group_of_version_two_is_found_with_those_around_it() {
    let levels = found("0::/system.slice/nicstripe.service\n", V2_MOUNTS).unwrap();
    assert_eq!(
        levels,
        [
            "/sys/fs/cgroup/system.slice/nicstripe.service",
            "/sys/fs/cgroup/system.slice",
            "/sys/fs/cgroup"
        ]
    );
    let levels = found("0::/\n", V2_MOUNTS).unwrap();
    assert_eq!(
        levels,
        ["/sys/fs/cgroup"],
        "a container with a private namespace"
    );
    assert_eq!(
        found("0::/../../other\n", V2_MOUNTS),
        None,
        "outside the visible hierarchy"
    );
}

/// `/proc/self/mountinfo` in a container of Docker 20, on a kernel with cgroup version 1 and
/// without a cgroup namespace.
const V1_MOUNTS: &str = "\
1125 1102 0:47 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
1126 1125 0:29 /docker/4f1e /sys/fs/cgroup/systemd ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,xattr,name=systemd
1131 1125 0:34 /docker/4f1e /sys/fs/cgroup/cpuset ro,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,cpuset
1132 1125 0:35 /docker/4f1e /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:18 - cgroup cgroup rw,cpu,cpuacct
";

#[test]
fn the_group_of_version_one_is_that_of_the_processor() {
    let groups = "12:cpuset:/docker/4f1e\n5:cpu,cpuacct:/docker/4f1e/inner\n1:name=systemd:/docker/4f1e\n0::/system.slice/docker\n";
    let levels = found(groups, V1_MOUNTS).unwrap();
    assert_eq!(
        levels,
        [
            "/sys/fs/cgroup/cpu,cpuacct/inner",
            "/sys/fs/cgroup/cpu,cpuacct"
        ]
    );
    // With both versions mounted, version 1 has the CPU controller.
    let mixed = "9:name=systemd:/\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n";
    let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                  33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
                  41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    assert_eq!(
        found(mixed, mounts).unwrap(),
        ["/sys/fs/cgroup/cpu".to_owned()]
    );
}

#[test]
fn without_groups_there_is_no_quota_and_no_waiting() {
    assert_eq!(found("", ""), None);
    assert_eq!(found("0::/\n", ""), None, "not mounted");
    assert_eq!(
        found("5:cpu,cpuacct:/elsewhere\n", V1_MOUNTS),
        None,
        "not the mounted group"
    );
    let meter = CpuMeter {
        tick: TICK,
        groups: Vec::new(),
    };
    assert_eq!(meter.quota_millicores(), None);
    assert_eq!(meter.read().since(&meter.read()).throttled, None);
}

#[test]
fn quotas_of_both_versions_are_thousandths_of_a_core() {
    assert_eq!(quota_two("50000 100000\n"), Some(500));
    assert_eq!(quota_two("max 100000\n"), None);
    assert_eq!(quota_two("1000000 100000\n"), Some(10_000));
    assert_eq!(quota_two("1 0\n"), None);
    assert_eq!(quota_two(""), None);
    assert_eq!(quota_one("20000\n", "100000\n"), Some(200));
    assert_eq!(quota_one("-1\n", "100000\n"), None);
}

#[test]
fn the_quota_of_a_version_one_group_is_read_from_its_two_files() {
    let group = tempfile::tempdir().unwrap();
    fs::write(group.path().join("cpu.cfs_quota_us"), "20000\n").unwrap();
    assert_eq!(quota_of(group.path()), None);
    fs::write(group.path().join("cpu.cfs_period_us"), "100000\n").unwrap();
    assert_eq!(quota_of(group.path()), Some(200));
}

#[test]
fn the_tightest_quota_and_the_longest_wait_count() {
    let tree = tempfile::tempdir().unwrap();
    let inner = tree.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for (folder, quota, waited) in [
        (tree.path(), "150000 100000\n", 700),
        (&inner, "max 100000\n", 20),
    ] {
        fs::write(folder.join("cpu.max"), quota).unwrap();
        fs::write(
            folder.join("cpu.stat"),
            format!("usage_usec 99\nnr_throttled 2\nthrottled_usec {waited}\n"),
        )
        .unwrap();
    }
    let meter = CpuMeter {
        tick: TICK,
        groups: vec![inner, tree.path().to_owned()],
    };
    assert_eq!(meter.quota_millicores(), Some(1500));
    assert_eq!(meter.throttled_periods(), Some(2));
    let before = meter.read();
    fs::write(
        tree.path().join("cpu.stat"),
        "usage_usec 99\nthrottled_usec 1000\n",
    )
    .unwrap();
    assert_eq!(
        meter.read().since(&before).throttled,
        Some(Duration::from_micros(300))
    );
}

#[test]
fn waiting_for_a_quota_has_its_units() {
    assert_eq!(
        throttled("nr_periods 5\nnr_throttled 2\nthrottled_time 1500000\n"),
        Some(Duration::from_micros(1500))
    );
    assert_eq!(
        throttled("usage_usec 7\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1500\n"),
        Some(Duration::from_micros(1500))
    );
    assert_eq!(
        throttled("usage_usec 7\nuser_usec 5\nsystem_usec 2\n"),
        None,
        "a group of version two without a limit"
    );
}

#[test]
fn mounts_are_read_with_what_is_escaped() {
    let mount = Mount::parse(
        r"36 35 98:0 /a\040b /mnt\134x\011y rw master:1 - fuse.sshfs user@host:/ rw,user_id=0",
    )
    .unwrap();
    assert_eq!(
        (mount.id, mount.device, mount.kind),
        (36, "98:0", "fuse.sshfs")
    );
    assert_eq!(
        (mount.root.as_str(), mount.point.to_str().unwrap()),
        ("/a b", "/mnt\\x\ty")
    );
    assert_eq!(unescaped(r"\"), r"\");
    assert_eq!(unescaped(r"\9é\377\04"), r"\9é\377\04");
    for line in [
        "",
        "36",
        "36 35 98:0 / /mnt rw",
        "x 35 98:0 / /mnt rw - ext4 a rw",
        "36 35 98:0 / - ext4 a",
    ] {
        assert!(Mount::parse(line).is_none(), "{line:?}");
    }
}

#[test]
fn this_process_spends_time() {
    let meter = CpuMeter::find();
    let before = meter.read();
    let mut sum = 0_u64;
    while process_time().unwrap() < before.process.unwrap() + ms(30) {
        sum = std::hint::black_box(sum + 1);
    }
    let spent = meter.read().since(&before);
    assert!(spent.process.unwrap() >= ms(30), "{spent:?}");
    assert!(spent.user.is_some() && !spent.cores.is_empty(), "{spent:?}");
}
