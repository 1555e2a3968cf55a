//! Facts about a machine whose files were copied into a directory.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::facts::{
    interface::{BondFacts, InterfaceFacts},
    system::{System, list_directory, read_file},
    text::{last, number, number32, plain},
};

/// Recorded machine: a directory with copies of `/sys`, `/proc` and `/etc/os-release`.
///
/// Its file `interfaces.json` has the answers of the kernel and drivers, as an array of
/// [`InterfaceFacts`]. Without that file, the interfaces are derived from `/sys/class/net`.
///
/// Symbolic links are followed inside the directory: an absolute target is relative to it.
#[derive(Clone, Debug)]
pub struct Recorded {
    root: PathBuf,
    interfaces: Option<Vec<InterfaceFacts>>,
}

impl Recorded {
    /// Opens a recorded machine.
    ///
    /// # Errors
    ///
    /// The error of reading `root`; `InvalidData` if `interfaces.json` is no array of interfaces or
    /// longer than 16 MiB.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        fs::read_dir(&root)?;
        let mut recorded = Self {
            root,
            interfaces: None,
        };
        if let Some(path) = recorded.resolve("/interfaces.json") {
            let mut bytes = Vec::new();
            let file = File::open(recorded.below_root(&path))?;
            file.take(MOST_ANSWERS).read_to_end(&mut bytes)?;
            recorded.interfaces = Some(serde_json::from_slice(&bytes)?);
        }
        Ok(recorded)
    }

    /// Resolves a path without leaving the root. Returns the components of the existing file or
    /// directory; `None` if it does not exist or has more than 40 symbolic links.
    fn resolve(&self, path: &str) -> Option<Vec<String>> {
        let mut waiting: VecDeque<String> = components(path).collect();
        let mut resolved: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(component) = waiting.pop_front() {
            if component == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(component);
            let found = self.below_root(&resolved);
            if !fs::symlink_metadata(&found).ok()?.is_symlink() {
                continue;
            }
            links += 1;
            let target = fs::read_link(&found).ok()?;
            let target = target.to_str().filter(|_| links <= MOST_LINKS)?;
            resolved.pop();
            if target.starts_with('/') {
                resolved.clear();
            }
            for component in components(target).collect::<Vec<_>>().into_iter().rev() {
                waiting.push_front(component);
            }
        }
        Some(resolved)
    }

    fn below_root(&self, components: &[String]) -> PathBuf {
        components
            .iter()
            .fold(self.root.clone(), |path, next| path.join(next))
    }

    /// Derives an interface from `/sys/class/net`.
    fn interface(&self, name: String) -> Option<InterfaceFacts> {
        let directory = format!("/sys/class/net/{name}");
        let value = |file: &str| plain(&self.read(&format!("{directory}/{file}"))?);
        let index = number32(&value("ifindex")?)?;
        let entries = self.list(&directory);
        let lowers = entries
            .iter()
            .filter_map(|name| name.strip_prefix("lower_"));
        let lowers: Vec<_> = lowers.map(str::to_owned).collect();
        let kind = kind(&Signs {
            device_type: device_type(
                &self
                    .read(&format!("{directory}/uevent"))
                    .unwrap_or_default(),
            ),
            hardware: value("type").and_then(|text| number32(&text)),
            entries: &entries,
            has_peer: value("iflink").is_some_and(|link| number32(&link) != Some(index)),
        });
        let driver = self.follow(&format!("{directory}/device/driver"));
        let driver = driver.and_then(|path| plain(last(&path)));
        // A virtio card repeats the settings of the host.
        let has_cable = kind == "ethernet" && driver.as_deref() != Some("virtio_net");
        let speed = value("speed").filter(|_| has_cable);
        let speed = speed.and_then(|speed| known_speed(&speed));
        let master = self.follow(&format!("{directory}/master"));
        Some(InterfaceFacts {
            index: Some(index),
            mtu: value("mtu").and_then(|text| number32(&text)),
            line_bps: speed.map(|megabits| u64::from(megabits) * 1_000_000),
            duplex: value("duplex")
                .filter(|duplex| has_cable && matches!(duplex.as_str(), "half" | "full")),
            driver,
            up: value("flags").and_then(|flags| is_up(&flags)),
            // The file cannot be read while the interface is down.
            carrier: value("carrier").and_then(|text| Some(number(&text)? != 0)),
            mac: value("address").filter(|address| is_mac(address)),
            master: master.map(|path| last(&path).to_owned()),
            lower: (kind == "vlan").then(|| lowers.first().cloned()).flatten(),
            speed_mbps: speed,
            bond: (kind == "bond").then_some(BondFacts {
                members: lowers,
                ..BondFacts::default()
            }),
            kind: Some(kind.to_owned()),
            name,
            ..InterfaceFacts::default()
        })
    }
}

impl System for Recorded {
    fn read(&self, path: &str) -> Option<String> {
        let path = self.below_root(&self.resolve(path)?);
        // Opening a pipe would wait for its other end.
        is_file(&path).then(|| read_file(&path))?
    }

    fn list(&self, path: &str) -> Vec<String> {
        let path = self.resolve(path).map(|path| self.below_root(&path));
        path.map_or_else(Vec::new, |path| list_directory(&path))
    }

    fn follow(&self, path: &str) -> Option<String> {
        Some(format!("/{}", self.resolve(path)?.join("/")))
    }

    fn interfaces(&self) -> Vec<InterfaceFacts> {
        if let Some(recorded) = &self.interfaces {
            return recorded.clone();
        }
        let names = self.list("/sys/class/net").into_iter();
        let mut found: Vec<_> = names.filter_map(|name| self.interface(name)).collect();
        found.sort_by_key(|interface| interface.index);
        found
    }
}

fn components(path: &str) -> impl Iterator<Item = String> + '_ {
    path.split('/')
        .filter(|component| !component.is_empty() && *component != ".")
        .map(str::to_owned)
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Files that determine the kind of an interface.
struct Signs<'a> {
    /// `DEVTYPE` in the text of `uevent`; empty without one.
    device_type: &'a str,
    /// Hardware type of the link layer, `ARPHRD_*`.
    hardware: Option<u32>,
    /// Names in the interface's directory.
    entries: &'a [String],
    /// True if the interface belongs to another one: a VLAN to its card, a veth to its other end.
    has_peer: bool,
}

/// Returns the kind of an interface, by the names in [`InterfaceFacts::kind`].
fn kind(signs: &Signs<'_>) -> &'static str {
    let has = |name: &str| signs.entries.iter().any(|entry| entry == name);
    match signs.device_type {
        "bond" => return "bond",
        "bridge" => return "bridge",
        "vlan" | "macvlan" | "macsec" | "ipvlan" => return "vlan",
        "wlan" => return "wi-fi",
        "wwan" | "bluetooth" => return "other",
        "vxlan" | "geneve" | "gretap" | "l2tpeth" | "ppp" | "wireguard" => return "tunnel",
        _ => {}
    }
    match signs
        .hardware
        .and_then(|hardware| u16::try_from(hardware).ok())
    {
        Some(libc::ARPHRD_LOOPBACK) => "loopback",
        _ if has("tun_flags") => "tunnel",
        _ if has("wireless") || has("phy80211") => "wi-fi",
        Some(libc::ARPHRD_ETHER | libc::ARPHRD_INFINIBAND) if has("device") => "ethernet",
        Some(libc::ARPHRD_ETHER) if signs.entries.iter().any(|name| name.starts_with("lower_")) => {
            "vlan"
        }
        Some(libc::ARPHRD_ETHER) if signs.has_peer => "veth",
        Some(
            libc::ARPHRD_PPP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT
            | libc::ARPHRD_IPGRE
            | libc::ARPHRD_NONE,
        ) => "tunnel",
        _ => "other",
    }
}

/// Returns `DEVTYPE` in the text of a `uevent` file; empty without one.
fn device_type(uevent: &str) -> &str {
    uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="))
        .unwrap_or_default()
}

/// Parses a rate in Mbit/s. Drivers report -1, 0 or 2^32 - 1 if it is unknown.
fn known_speed(text: &str) -> Option<u32> {
    let speed: i32 = text.parse().ok()?;
    u32::try_from(speed).ok().filter(|speed| *speed > 0)
}

/// Parses the flags of an interface, such as `0x1003`: true if it is enabled.
fn is_up(flags: &str) -> Option<bool> {
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    Some(flags & libc::IFF_UP as u32 != 0)
}

/// Returns true for a hardware address of six bytes that is not zero.
fn is_mac(address: &str) -> bool {
    let is_byte =
        |pair: &str| pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
    address.split(':').count() == 6
        && address.split(':').all(is_byte)
        && address != "00:00:00:00:00:00"
}

/// Runs the parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let signs = Signs {
        device_type: device_type(text),
        hardware: number32(text),
        entries: &[text.to_owned()],
        has_peer: text.len().is_multiple_of(2),
    };
    let _ = (kind(&signs), known_speed(text), is_up(text), is_mac(text));
}

/// Maximum number of symbolic links in a path, as in the kernel (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;
/// Maximum length of `interfaces.json` in bytes: 256 interfaces with 64 KiB each.
const MOST_ANSWERS: u64 = 16 << 20;

#[cfg(test)]
mod tests;
