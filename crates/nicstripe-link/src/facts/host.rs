//! Names and limits of a machine.

use serde::{Deserialize, Serialize};

/// Facts about one machine: host name, kernel, CPU and TCP settings. Unavailable facts are `None`.
/// A text has at most 128 bytes and no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the distribution from `/etc/os-release`; without one, the kernel's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Release of the kernel, such as `6.18.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// CPU model; on a small board, the board model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Number of logical CPUs in the calling thread's affinity mask; of a recorded machine, those
    /// that are online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// CPU frequency in MHz: the nominal one, otherwise the current one, otherwise the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_mhz: Option<u32>,
    /// Default TCP congestion control of the calling thread's network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// True if TCP timestamps are enabled in the calling thread's network namespace; they take 12
    /// bytes per packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// Maximum `SO_RCVBUF` in bytes (`net.core.rmem_max`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer_max_bytes: Option<u64>,
    /// Maximum `SO_SNDBUF` in bytes (`net.core.wmem_max`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer_max_bytes: Option<u64>,
    /// Lowest CPU quota of this process's control groups, in thousandths of a core; `None` without
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota_millicores: Option<u64>,
}
