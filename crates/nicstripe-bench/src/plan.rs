//! Plan of a benchmark: the loads, sweeps and disk stages to run.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use nicstripe_proto::Name;

use crate::report::{Phase, PlanSummary, SweepKind};

/// Plan of a benchmark: the loads, sweeps and disk stages to run.
///
/// Defaults:
///
/// - all phases except pairs, which are added if links share a bottleneck;
/// - loads of at most 10 s after a warm-up of 1 s, sampled every 0.5 s, ended once the rate has
///   settled;
/// - 6 to 12 repeats;
/// - messages of 256 KiB;
/// - 200 round trips per link;
/// - no sweeps, no disks.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// Kinds of load to run. `Idle` measures round trips.
    pub phases: Vec<Phase>,
    /// Maximum duration of one load, without warm-up.
    pub load: Duration,
    /// Warm-up at the start of each load; excluded from the results.
    pub warm_up: Duration,
    /// Sampling interval: 20 ms to 1 min.
    pub interval: Duration,
    /// Minimum and maximum number of repeats of each load.
    pub repeats: RangeInclusive<u32>,
    /// True if a load ends once its rate has settled, after at least 3 s.
    pub settle: bool,
    /// Payload bytes per message of a load, 1 to 256 KiB.
    pub message_bytes: u32,
    /// Socket buffer size set at both ends, in bytes; `None` leaves it to the kernels.
    pub socket_buffer: Option<u64>,
    /// Number of round trips to measure per link.
    pub pings: u32,
    /// Sweeps to run after the loads.
    pub sweeps: Vec<SweepKind>,
    /// Disk-to-disk copy whose stages are measured; `None` skips this measurement.
    pub disk: Option<DiskPlan>,
    /// Time since the start of the benchmark after which no load starts; `None` sets no limit.
    pub budget: Option<Duration>,
}

/// Copy from disk to disk whose stages are measured.
#[derive(Debug, Clone)]
pub struct DiskPlan {
    /// Local source file; with `reverse`, the local target.
    pub file: PathBuf,
    /// File at the daemon, relative to its root; `None` uses the local file name. An existing file
    /// is not modified.
    pub name: Option<Name>,
    /// True for a copy from the daemon to the client.
    pub reverse: bool,
    /// Bytes moved by each stage; at most the size of the source. The copy itself is skipped if the
    /// source is larger.
    pub bytes: u64,
}

impl Default for BenchPlan {
    fn default() -> Self {
        Self {
            phases: vec![
                Phase::Idle,
                Phase::Solo,
                Phase::Together,
                Phase::Reverse,
                Phase::Both,
            ],
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
    /// Returns the plan with each setting clamped to the limits of the protocol.
    pub(crate) fn bounded(self) -> Self {
        let (least, most) = (Duration::from_millis(20), Duration::from_secs(60));
        let fewest = (*self.repeats.start()).max(1);
        Self {
            load: self
                .load
                .clamp(Duration::from_millis(100), Duration::from_secs(24 * 3600)),
            warm_up: self.warm_up.min(Duration::from_secs(60)),
            interval: self.interval.clamp(least, most),
            repeats: fewest..=(*self.repeats.end()).max(fewest),
            message_bytes: self.message_bytes.clamp(1, 256 * 1024),
            socket_buffer: self.socket_buffer.map(|bytes| bytes.clamp(1, 1 << 30)),
            pings: self.pings.max(1),
            ..self
        }
    }

    /// Returns the plan as a struct of the report.
    pub(crate) fn summary(&self, streams: u32) -> PlanSummary {
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
