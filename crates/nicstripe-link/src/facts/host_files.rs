//! Facts about a machine from files of `/proc`, `/sys` and `/etc`.

use crate::facts::{
    host::HostFacts,
    live::Live,
    system::System,
    text::{list_len, number, plain},
};

impl HostFacts {
    /// Reads the facts of this machine. Needs no privileges and takes about a millisecond.
    pub fn read() -> Self {
        Self::of(&Live)
    }

    /// Reads the facts of a machine.
    pub(crate) fn of(system: &dyn System) -> Self {
        let told = system.host();
        let cpuinfo = system.read("/proc/cpuinfo").unwrap_or_default();
        let setting = |name: &str| system.read(&format!("/proc/sys/{name}"));
        let number_of = |name| number(&setting(name)?);
        let text_of = |name| plain(&setting(name)?);
        let os = |path: &&str| os_name(&system.read(path)?);
        Self {
            name: told.name.or_else(|| text_of("kernel/hostname")),
            os: OS_FILES.iter().find_map(os).or(told.os),
            kernel: told.kernel.or_else(|| text_of("kernel/osrelease")),
            cpu: model(&cpuinfo),
            cores: told.cores.or_else(|| cores(system, &cpuinfo)),
            cpu_mhz: megahertz(
                |file| system.read(&format!("{FREQUENCIES}/{file}")),
                &cpuinfo,
            ),
            congestion: text_of("net/ipv4/tcp_congestion_control"),
            timestamps: number_of("net/ipv4/tcp_timestamps").map(|value| value != 0),
            receive_buffer_max_bytes: number_of("net/core/rmem_max"),
            send_buffer_max_bytes: number_of("net/core/wmem_max"),
            cpu_quota_millicores: told.cpu_quota_millicores,
        }
    }
}

/// Returns the number of processors that are online.
fn cores(system: &dyn System, cpuinfo: &str) -> Option<u32> {
    let online = system.read("/sys/devices/system/cpu/online");
    let listed = || {
        let lines = cpuinfo.lines().filter(|line| line.starts_with("processor"));
        u32::try_from(lines.count()).ok().filter(|count| *count > 0)
    };
    online.and_then(|text| list_len(&text)).or_else(listed)
}

/// Returns the distribution's name from the text of os-release(5).
fn os_name(text: &str) -> Option<String> {
    let value = |key: &str| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        plain(value.trim().trim_matches(['"', '\'']))
    };
    value("PRETTY_NAME").or_else(|| value("NAME"))
}

/// Returns the CPU or board model from the text of `/proc/cpuinfo`. The key depends on the
/// architecture: x86, RISC-V and LoongArch, POWER, Arm boards, s390.
fn model(cpuinfo: &str) -> Option<String> {
    let key = |key: &str| field(cpuinfo, key).and_then(plain);
    [
        "model name",
        "Model Name",
        "uarch",
        "cpu",
        "Model",
        "Hardware",
    ]
    .iter()
    .find_map(|name| key(name))
}

fn field<'t>(cpuinfo: &'t str, key: &str) -> Option<&'t str> {
    cpuinfo.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim_end() == key).then_some(value.trim())
    })
}

/// Returns the CPU frequency in MHz from the cpufreq files (kHz) or `/proc/cpuinfo` (MHz, or
/// `1991.000000MHz` on POWER).
fn megahertz(cpufreq: impl Fn(&str) -> Option<String>, cpuinfo: &str) -> Option<u32> {
    let from_file =
        |file| number(&cpufreq(file)?).and_then(|kilohertz| u32::try_from(kilohertz / 1000).ok());
    let present = || {
        let text = field(cpuinfo, "cpu MHz").or_else(|| field(cpuinfo, "clock"))?;
        let value: f64 = text.trim_end_matches("MHz").parse().ok()?;
        // The cast saturates, and converts NaN to 0.
        Some(value.round() as u32)
    };
    from_file("base_frequency")
        .or_else(present)
        .or_else(|| from_file("cpuinfo_max_freq"))
        .filter(|megahertz| *megahertz > 0)
}

/// Runs all parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let _ = (os_name(text), model(text));
    let _ = megahertz(|_| Some(text.to_owned()), text);
}

const OS_FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
const FREQUENCIES: &str = "/sys/devices/system/cpu/cpu0/cpufreq";

#[cfg(test)]
mod tests {
    use super::*;

    const EPYC: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\
                        stepping\t: 1\ncpu MHz\t\t: 2596.100\ncache size\t: 512 KB\n\nprocessor\t: 1\ncpu MHz\t\t: 3100.000\n";
    const BOARD: &str = "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n\
                         Revision\t: c04170\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n";
    const POWER: &str =
        "processor\t: 0\ncpu\t\t: POWER9 (raw), altivec supported\nclock\t\t: 2300.000000MHz\n";

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn the_processor_is_named_on_several_architectures() {
        let named = [EPYC, BOARD, POWER].map(|text| model(text).unwrap());
        assert_eq!(
            named,
            [
                "AMD EPYC",
                "Raspberry Pi 5 Model B Rev 1.0",
                "POWER9 (raw), altivec supported"
            ]
        );
        assert_eq!(model(""), None);
        assert_eq!(model("model name\t:\n"), None);
    }

    #[test]
    fn the_nominal_frequency_counts_before_that_of_the_moment() {
        let freq = |kilohertz: &'static str, name: &'static str| {
            move |file: &str| (file == name).then(|| kilohertz.to_owned())
        };
        assert_eq!(
            megahertz(freq("2100000\n", "base_frequency"), EPYC),
            Some(2100)
        );
        assert_eq!(
            megahertz(freq("3800000\n", "cpuinfo_max_freq"), EPYC),
            Some(2596)
        );
        assert_eq!(
            megahertz(freq("2400000\n", "cpuinfo_max_freq"), BOARD),
            Some(2400)
        );
        assert_eq!(megahertz(none, POWER), Some(2300));
        assert_eq!(megahertz(none, BOARD), None);
        assert_eq!(megahertz(none, "cpu MHz : nan\n"), None);
        assert_eq!(megahertz(none, "cpu MHz : 0.000\n"), None);
    }

    #[test]
    fn the_distribution_has_its_pretty_name() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n";
        assert_eq!(
            os_name(debian).as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
        assert_eq!(os_name("ID=x\nNAME=Alpine\n").as_deref(), Some("Alpine"));
        assert_eq!(os_name("ID=x\n"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn this_machine_has_a_name_a_kernel_and_cores() {
        let facts = HostFacts::read();
        assert!(
            facts.name.is_some() && facts.kernel.is_some() && facts.os.is_some(),
            "{facts:?}"
        );
        assert!(
            facts.cores.unwrap() >= 1 && facts.congestion.is_some(),
            "{facts:?}"
        );
        assert!(
            facts
                .receive_buffer_max_bytes
                .is_none_or(|bytes| bytes > 1000),
            "{facts:?}"
        );
    }
}
