//! Names and limits of a machine.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Facts about one machine: host name, kernel, CPU and TCP settings. Unavailable facts are `None`.
/// A text has at most 128 bytes and no control characters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Host name of the machine.
    pub name: Option<String>,
    /// Name of the distribution from `/etc/os-release`; without one, the kernel's name.
    pub os: Option<String>,
    /// Release of the kernel, such as `6.18.0`.
    pub kernel: Option<String>,
    /// CPU model; on a small board, the board model.
    pub cpu: Option<String>,
    /// Number of logical CPUs in the calling thread's affinity mask; of a recorded machine, those
    /// that are online.
    pub cores: Option<u32>,
    /// CPU frequency in MHz: the nominal one, otherwise the current one, otherwise the maximum.
    pub cpu_mhz: Option<u32>,
    /// Default TCP congestion control of the calling thread's network namespace.
    pub congestion: Option<String>,
    /// True if TCP timestamps are enabled in the calling thread's network namespace; they take 12
    /// bytes per packet.
    pub timestamps: Option<bool>,
    /// Maximum `SO_RCVBUF` in bytes (`net.core.rmem_max`).
    pub receive_buffer_max_bytes: Option<u64>,
    /// Maximum `SO_SNDBUF` in bytes (`net.core.wmem_max`).
    pub send_buffer_max_bytes: Option<u64>,
    /// Lowest CPU quota of this process's control groups, in thousandths of a core; `None` without
    /// one.
    pub cpu_quota_millicores: Option<u64>,
}
