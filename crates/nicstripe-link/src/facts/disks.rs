//! Facts about a machine's disks.

use serde::{Deserialize, Serialize};

use crate::facts::{limits::MOST_DISKS, system::System, text::number};

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    /// Name of the block device, such as `nvme0n1`.
    pub name: String,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// True if the disk has rotating platters, or its driver says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

/// Lists the disks and software RAIDs of a machine in alphabetical order.
pub(crate) fn disks(system: &dyn System) -> Vec<DiskFacts> {
    let names = system.list(BLOCKS).into_iter();
    names
        .filter(|name| is_disk(name))
        .take(MOST_DISKS)
        .map(|name| {
            let value = |file| number(&system.read(&format!("{BLOCKS}/{name}/{file}"))?);
            DiskFacts {
                bytes: value("size").and_then(|sectors| sectors.checked_mul(SECTOR)),
                rotational: value("queue/rotational").map(|value| value != 0),
                name,
            }
        })
        .collect()
}

/// Returns true for a SCSI, NVMe, virtio, Xen or MMC disk, and for a software RAID. Excludes the
/// boot partitions of MMC, the paths of an NVMe disk with several, and disks in memory.
fn is_disk(name: &str) -> bool {
    let is_kind = |prefix: &&str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains("boot") && !rest.contains('c'))
    };
    match name.strip_prefix("sd").or(name.strip_prefix("vd")) {
        Some(letters) => letters.bytes().all(|byte| byte.is_ascii_lowercase()),
        None => ["nvme", "xvd", "mmcblk", "md"].iter().any(is_kind),
    }
}

const BLOCKS: &str = "/sys/block";
/// Unit of a block device's size, whatever the disk's sectors are.
const SECTOR: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_known_by_their_names() {
        for disk in [
            "sda", "sdaa", "sdc", "nvme0n1", "vdc", "mmcblk0", "md127", "xvda",
        ] {
            assert!(is_disk(disk), "{disk}");
        }
        for other in [
            "loop0",
            "ram0",
            "zram0",
            "dm-0",
            "sr0",
            "mmcblk0boot0",
            "nvme0c0n1",
            "fd0",
        ] {
            assert!(!is_disk(other), "{other}");
        }
    }
}
