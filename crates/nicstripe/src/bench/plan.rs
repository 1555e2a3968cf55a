//! What is to be measured.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use nicstripe_proto::Name;

use super::report::{Phase, PlanSummary, SweepKind};

/// What is to be measured.
///
/// Defaults: every phase but pairs, which follow where links share something; loads of at most 10 s after 1 s that does not count, sampled
/// each half second, ended when the rate has settled; 6 to 12 repeats; messages of 256 KiB; 200 round trips a link; no sweeps, no disks.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// Which loads. `Idle` is the round trips.
    pub phases: Vec<Phase>,
    /// Longest time of one load, its warm-up not included.
    pub load: Duration,
    /// Time at the start of each load that does not count.
    pub warm_up: Duration,
    /// Time between two samples: 20 ms to 1 min.
    pub interval: Duration,
    /// Fewest and most repeats of each load.
    pub repeats: RangeInclusive<u32>,
    /// Whether a load ends when its rate has settled, after 3 s at the earliest.
    pub settle: bool,
    /// Payload bytes of one message, 1 to 256 KiB.
    pub message_bytes: u32,
    /// Socket buffers that both ends set; `None`: the kernels size them.
    pub socket_buffer: Option<u64>,
    /// Round trips a link without load.
    pub pings: u32,
    /// What is swept besides.
    pub sweeps: Vec<SweepKind>,
    /// Which disks are measured.
    pub disk: Option<DiskPlan>,
    /// No load begins after so long.
    pub budget: Option<Duration>,
}

/// Disks to measure.
#[derive(Debug, Clone)]
pub struct DiskPlan {
    /// The file here that would be copied; in the reverse way, where it would be copied to.
    pub file: PathBuf,
    /// What it is or would be called at the daemon, relative to its root; `None`: as here. What is there is not touched.
    pub name: Option<Name>,
    /// Whether it would be copied from the daemon to here.
    pub reverse: bool,
    /// Bytes that each stage moves; those of the source, if that has fewer. The copy itself is left out if it has more.
    pub bytes: u64,
}

impl Default for BenchPlan {
    fn default() -> Self {
        Self {
            phases: vec![Phase::Idle, Phase::Solo, Phase::Together, Phase::Reverse, Phase::Both],
            load: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            interval: Duration::from_millis(500),
            repeats: 6..=12,
            settle: true,
            message_bytes: 256 * 1024,
            socket_buffer: None,
            pings: 200,
            sweeps: Vec::new(),
            disk: None,
            budget: None,
        }
    }
}

impl BenchPlan {
    /// The same within the bounds of the protocol.
    pub(super) fn bounded(self) -> Self {
        let (least, most) = (Duration::from_millis(20), Duration::from_secs(60));
        let fewest = (*self.repeats.start()).max(1);
        Self {
            load: self.load.clamp(Duration::from_millis(100), Duration::from_secs(24 * 3600)),
            warm_up: self.warm_up.min(Duration::from_secs(60)),
            interval: self.interval.clamp(least, most),
            repeats: fewest..=(*self.repeats.end()).max(fewest),
            message_bytes: self.message_bytes.clamp(1, 256 * 1024),
            socket_buffer: self.socket_buffer.map(|bytes| bytes.clamp(1, 1 << 30)),
            pings: self.pings.max(1),
            ..self
        }
    }

    /// What a report says of it.
    pub(super) fn summary(&self, streams: u32) -> PlanSummary {
        let millis = |time: Duration| time.as_millis() as u64;
        PlanSummary {
            phases: self.phases.clone(),
            load_ms: millis(self.load),
            warm_up_ms: millis(self.warm_up),
            interval_ms: millis(self.interval),
            repeats: [*self.repeats.start(), *self.repeats.end()],
            streams,
            message_bytes: self.message_bytes.into(),
            socket_buffer_bytes: self.socket_buffer,
        }
    }
}
