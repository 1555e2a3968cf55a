//! Benchmark report, as structs that are written to and read from JSON.
//!
//! Units are part of the names; bytes, microseconds and bits per second are integers. Unknown
//! values are absent, never 0 or -1. Within one version of [`SCHEMA`], fields are only added.
//! `docs/schema/nicstripe-bench-report-1.json` describes the document, and a test validates written
//! reports against it.

pub use nicstripe_link::facts::{HostFacts, InterfaceFacts};
use nicstripe_proto::{
    BitRate,
    theory::{IpVersion, Theory},
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::statistics::{agree, as_values, deviation, mean, median, percentile};

/// Name and version of the report's JSON format.
pub const SCHEMA: &str = "nicstripe-bench-report/1";

/// Report of one benchmark: plan, machines, links, measurements and summary.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Name and version of the report's format, see [`SCHEMA`].
    pub schema: String,
    /// Random id of the benchmark, 32 hexadecimal digits.
    pub id: String,
    /// Start time of the benchmark, RFC 3339 in UTC.
    pub started: String,
    /// Duration of the whole benchmark in seconds.
    pub elapsed_s: f64,
    /// True if the whole plan was measured. The report of an interrupted benchmark has the results
    /// measured before it was interrupted.
    pub complete: bool,
    /// Program versions of client and daemon.
    pub versions: Ends<String>,
    /// Plan by which the benchmark ran.
    pub plan: PlanSummary,
    /// Facts about the client's and the daemon's machine.
    pub hosts: Ends<HostFacts>,
    /// Measured links, ordered by id.
    pub links: Vec<BenchLink>,
    /// Completed loads, in chronological order.
    pub runs: Vec<Run>,
    /// Sweeps over message sizes, buffer sizes, connection counts or MTUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// Rates of disk read, network and disk write; absent if no disk was measured.
    pub disk: Option<DiskReport>,
    /// Medians, ratios and the bottleneck, computed from all loads.
    pub summary: Summary,
    /// Comparison with an earlier report; absent if none was given.
    pub baseline: Option<Comparison>,
}

/// A pair of values, one for the client and one for the daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize + Known"))]
pub struct Ends<T> {
    /// Value of the client, the end that connects.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub client: T,
    /// Value of the daemon, the end that accepts.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub daemon: T,
}

impl<T> Ends<T> {
    /// Returns the values of the sender and of the receiver of data in this direction.
    pub(crate) fn by(self, way: Direction) -> (T, T) {
        match way {
            Direction::ToDaemon => (self.client, self.daemon),
            Direction::ToClient => (self.daemon, self.client),
        }
    }
}

/// Value in [`Ends`] that is omitted from the JSON report if it is unknown.
pub trait Known {
    /// Returns true if the value is unknown.
    fn is_unknown(&self) -> bool {
        false
    }
}

impl Known for String {}
impl Known for HostFacts {}
impl Known for InterfaceFacts {}

impl<T> Known for Option<T> {
    fn is_unknown(&self) -> bool {
        self.is_none()
    }
}

/// Settings of a benchmark, as written to the report.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Kinds of load to run.
    pub phases: Vec<Phase>,
    /// Maximum duration of one load in milliseconds, without warm-up.
    pub load_ms: u64,
    /// Warm-up at the start of each load in milliseconds; excluded from the results.
    pub warm_up_ms: u64,
    /// Sampling interval in milliseconds.
    pub interval_ms: u64,
    /// Minimum and maximum number of repeats of each load.
    pub repeats: [u32; 2],
    /// Number of TCP connections per link.
    pub streams: u32,
    /// Payload bytes per message of a load.
    pub message_bytes: u64,
    /// Requested socket buffer size in bytes; absent if left to the kernel.
    pub socket_buffer_bytes: Option<u64>,
}

/// Kind of load: the links and directions that carry data at the same time.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No load; measures the round trips of each link.
    #[default]
    Idle,
    /// One link at a time, client to daemon.
    Solo,
    /// All links, client to daemon.
    Together,
    /// All links, daemon to client.
    Reverse,
    /// All links, both directions at once.
    Both,
    /// Two links at a time, to detect bottlenecks shared by links.
    Pair,
}

impl Phase {
    /// Returns the directions that carry data in this phase.
    pub(crate) fn ways(self) -> &'static [Direction] {
        match self {
            Self::Idle => &[],
            Self::Solo | Self::Together | Self::Pair => &[Direction::ToDaemon],
            Self::Reverse => &[Direction::ToClient],
            Self::Both => &[Direction::ToDaemon, Direction::ToClient],
        }
    }
}

/// Link between two machines: one interface of the client and one of the daemon.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchLink {
    /// Id of the link in this report, from 1.
    pub id: u32,
    /// Interfaces of the link at client and daemon.
    pub ends: Ends<InterfaceFacts>,
    /// IP addresses of the link's connections at client and daemon.
    pub addresses: Ends<String>,
    /// Theoretical maximum of the goodput in bit/s; absent if neither end knows the line rate.
    pub theory_bps: Option<u64>,
    /// Line rate, MTU and header sizes from which `theory_bps` was computed.
    pub theory: Option<TheoryInputs>,
    /// Statistics of the round trips without load.
    pub rtt_idle: Option<RoundTrips>,
    /// True if a check found that packets arrive at the interface they were sent to.
    pub verified: Option<bool>,
}

/// Inputs of a link's theoretical goodput: `line × (mtu − ip − tcp) / (mtu + 38 + 4·vlan)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TheoryInputs {
    /// Line rate in bit/s, the lower one of both directions.
    pub line_bps: u64,
    /// Path MTU of the link in bytes.
    pub mtu: u32,
    /// IP version of the connections, 4 or 6.
    pub ip: u8,
    /// True if TCP timestamps are enabled, which take 12 bytes per packet.
    pub timestamps: bool,
    /// Number of VLAN tags per Ethernet frame, 4 bytes each.
    pub vlan_tags: u8,
}

impl From<TheoryInputs> for Theory {
    fn from(inputs: TheoryInputs) -> Self {
        Self {
            line: BitRate(inputs.line_bps),
            mtu: inputs.mtu,
            ip: if inputs.ip == 6 {
                IpVersion::V6
            } else {
                IpVersion::V4
            },
            timestamps: inputs.timestamps,
            vlan_tags: inputs.vlan_tags,
        }
    }
}

/// Statistics of round-trip times, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Number of measured round trips.
    pub count: u64,
    /// Shortest round trip in microseconds.
    pub min_us: f64,
    /// Mean round-trip time in microseconds.
    pub avg_us: f64,
    /// Longest round trip in microseconds.
    pub max_us: f64,
    /// Standard deviation of the round-trip times in microseconds.
    pub std_us: f64,
    /// Median round-trip time in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the round-trip times in microseconds.
    pub p99_us: f64,
}

impl RoundTrips {
    /// Returns the statistics of round-trip times in microseconds; `None` if no value is finite.
    pub fn of(micros: &[f64]) -> Option<Self> {
        let finite = || micros.iter().copied().filter(|time| time.is_finite());
        Some(Self {
            count: finite().count() as u64,
            min_us: finite().min_by(f64::total_cmp)?,
            avg_us: mean(micros)?,
            max_us: finite().max_by(f64::total_cmp)?,
            std_us: deviation(micros)?,
            p50_us: median(micros)?,
            p99_us: percentile(micros, 99.0)?,
        })
    }
}

/// Results of one load.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Links and directions that carried the load.
    pub phase: Phase,
    /// Index of the repeat of this load, from 1.
    pub repeat: u32,
    /// Start of the measurement window on the client's clock, in microseconds since the benchmark
    /// began.
    pub began_us: u64,
    /// Length of the measurement window in microseconds on the receiver's clock: from the end of
    /// the warm-up of all links until the first sender stopped.
    pub window_us: u64,
    /// True if the rate had settled when the load ended.
    pub stable: bool,
    /// Results of the load per link and direction.
    pub flows: Vec<Flow>,
    /// Sum of the received bytes of all flows in the measurement window, as a rate in bit/s.
    pub total_bps: u64,
    /// Processor time of client and daemon in the measurement window.
    pub cpu: Ends<Option<CpuUse>>,
    /// Samples taken during the load, in chronological order per direction.
    pub intervals: Vec<Interval>,
    /// Number of transfers of any client that ran at the daemon during the load. They used part of
    /// the links' capacity.
    pub other_transfers: Option<u32>,
}

/// Direction of the data between client and daemon.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Data from the client to the daemon.
    #[default]
    ToDaemon,
    /// Data from the daemon to the client.
    ToClient,
}

impl Direction {
    /// Returns the phase that loads all links in this direction.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::ToDaemon => Phase::Together,
            Self::ToClient => Phase::Reverse,
        }
    }
}

/// Result of one link in one direction, in the measurement window of a load.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Id of the link, see [`BenchLink::id`].
    pub link: u32,
    /// Direction of the data.
    pub way: Direction,
    /// Payload bytes received in the measurement window, counted by the receiver.
    pub bytes: u64,
    /// Goodput over the measurement window, in bit/s.
    pub goodput_bps: u64,
    /// Bytes sent by the sender's interface in the measurement window, headers included.
    pub interface_sent_bytes: Option<u64>,
    /// Bytes received by the receiver's interface in the measurement window, headers included.
    pub interface_received_bytes: Option<u64>,
    /// TCP statistics of the sender's kernel (TCP_INFO), combined over the link's connections.
    pub tcp: Option<TcpUse>,
    /// Bottleneck of this link in this load.
    pub limiter: Limiter,
}

/// TCP statistics (TCP_INFO) of one link in a measurement window.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpUse {
    /// TCP payload bytes sent, retransmissions included.
    pub sent_bytes: Option<u64>,
    /// Payload bytes that TCP retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// Time during which TCP had data to send, in microseconds; mean over the link's connections.
    pub busy_us: Option<u64>,
    /// Part of `busy_us` limited by the receive window of the peer.
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` limited by the size of the send buffer.
    pub sndbuf_limited_us: Option<u64>,
    /// Mean congestion window over the samples, in bytes.
    pub cwnd_bytes: Option<u64>,
    /// Mean smoothed RTT over the samples, in microseconds.
    pub rtt_avg_us: Option<u64>,
    /// Maximum smoothed RTT of the samples, in microseconds.
    pub rtt_max_us: Option<u64>,
    /// Sender's socket buffer in bytes at the end of the measurement window, as returned by
    /// `getsockopt`; minimum over the link's connections.
    pub send_buffer_bytes: Option<u64>,
    /// Receiver's socket buffer in bytes at the end of the measurement window, as returned by
    /// `getsockopt`; minimum over the link's connections.
    pub receive_buffer_bytes: Option<u64>,
}

/// Bottleneck of one link or of all links.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The cable is used to capacity, the best case.
    Cable,
    /// The sending program had no data to send.
    Sender,
    /// The receiving program reads too slowly.
    Receiver,
    /// The receiver's socket buffer is too small.
    ReceiveBuffer,
    /// The sender's socket buffer is too small.
    SendBuffer,
    /// A processor core, or the CPU quota of a control group, at client or daemon.
    Cpu,
    /// TCP lost packets and retransmitted them.
    Loss,
    /// A bottleneck shared by several links, such as a bus or a switch.
    Shared,
    /// The TCP window that the systems allow is smaller than bandwidth × delay.
    Window,
    /// No known bottleneck was detected.
    #[default]
    Unknown,
}

/// Processor time of one machine in a measurement window.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Time of all processes of the machine in user space, in microseconds.
    pub user_us: u64,
    /// Time of the whole machine in the kernel without interrupts, in microseconds.
    pub system_us: u64,
    /// Time of the whole machine in hard and soft interrupts, in microseconds.
    pub softirq_us: u64,
    /// Time of the nicstripe process in user space and kernel, in microseconds.
    pub process_us: u64,
    /// Utilization of the busiest core in percent, 0 to 100.
    pub worst_core_pct: Option<f64>,
    /// Time during which a control group's quota throttled the process, in microseconds.
    pub throttled_us: Option<u64>,
}

/// One sample of a load, on the receiver's clock. In [`Phase::Both`] the samples of one receiver
/// follow those of the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Direction of the sampled data.
    pub way: Direction,
    /// Start of the sample in microseconds since the load began, warm-up included.
    pub t_us: u64,
    /// Length of the sample in microseconds.
    pub dt_us: u64,
    /// Received bytes per link, in the order of the load's flows of this direction.
    pub bytes: Vec<u64>,
    /// Bytes retransmitted by the sender per link, in the order of `bytes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retransmitted_bytes: Vec<u64>,
    /// Smoothed RTT in microseconds at the end of the sample per link, in the order of `bytes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_us: Vec<u64>,
}

/// Quantity that a sweep varies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepKind {
    /// Message size, as in NetPIPE.
    #[default]
    Message,
    /// Socket buffer size.
    Buffer,
    /// Number of TCP connections per link.
    Streams,
    /// Every combination of socket buffer size and connection count.
    Grid,
    /// MTU of the interfaces.
    Mtu,
}

/// Sweep: a series of measurements that vary one quantity, or two for a grid.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Quantity that the sweep varies.
    pub kind: SweepKind,
    /// Id of the measured link; absent if the sweep covers all links.
    pub link: Option<u32>,
    /// Measured points, ordered by size.
    pub points: Vec<SweepPoint>,
    /// Start of the plateau: the smallest value of the swept quantity that reaches 98 % of the best
    /// rate.
    pub plateau: Option<u64>,
    /// Bandwidth × delay under load in bytes; only in a sweep of buffer sizes.
    pub bdp_bytes: Option<u64>,
    /// Latency in microseconds: half the round trip of messages up to 64 bytes.
    pub latency_us: Option<f64>,
    /// Message size in bytes that reaches half of the maximum rate.
    pub half_size_bytes: Option<u64>,
    /// Mean rate of the best tenth of the points, in bit/s.
    pub top_decile_bps: Option<u64>,
    /// Recommended setting or conclusion, in one sentence.
    pub advice: String,
    /// Reason why the sweep ended.
    pub stopped: String,
}

/// Results for one value of the swept quantity.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Value of the swept quantity: bytes, or a number of connections; absent for the system's
    /// default.
    pub size: Option<u64>,
    /// Number of connections per link, the second dimension of a grid.
    pub streams: Option<u32>,
    /// Median and range of the rate over the repeats, in bit/s.
    pub rate: Spread,
    /// Time of one message in microseconds: half a round trip up to 64 KiB, one-way delivery above.
    pub time_us: Option<f64>,
    /// Processor seconds of both ends together per gigabit of payload.
    pub cpu_s_per_gbit: Option<f64>,
    /// Socket buffer size in bytes that the kernel granted for the requested `size`.
    pub got_bytes: Option<u64>,
    /// True if the rate is below 90 % of rates before and after it, confirmed by a second
    /// measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropout: bool,
    /// True if the rate was computed instead of measured, for lack of a privilege.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub computed: bool,
}

/// Median and range of a rate over repeated loads, in bit/s. The default has no repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median rate in bit/s.
    pub median_bps: u64,
    /// Lowest rate of the repeats in bit/s.
    pub min_bps: u64,
    /// Highest rate of the repeats in bit/s.
    pub max_bps: u64,
    /// Number of repeats.
    pub n: u32,
    /// True if the rates of the repeats agree: their range is at most 2 % of the median, or its 95
    /// % confidence interval lies within ± 2.5 % of it.
    pub stable: bool,
}

impl Spread {
    /// Returns the statistics of repeated rates; `None` for an empty list.
    pub fn of(rates: &[BitRate]) -> Option<Self> {
        let (min, max) = (rates.iter().min()?, rates.iter().max()?);
        Some(Self {
            median_bps: median(&as_values(rates))?.round() as u64,
            min_bps: min.0,
            max_bps: max.0,
            n: u32::try_from(rates.len()).unwrap_or(u32::MAX),
            stable: agree(rates),
        })
    }

    pub(crate) fn median(self) -> BitRate {
        BitRate(self.median_bps)
    }
}

/// Rates of the stages of a copy: disk read, network, disk write and all together.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Direction of the copy.
    #[serde(default)]
    pub way: Direction,
    /// Number of bytes that each stage moves.
    pub bytes: u64,
    /// Rate of reading the source, bypassing the page cache.
    pub read: Option<Spread>,
    /// Rate of the network over all links, from memory to memory.
    pub network: Option<Spread>,
    /// Rate of writing the target, final sync included.
    pub write: Option<Spread>,
    /// Rate of a whole copy until it is durable. The copy is then discarded.
    pub all: Option<Spread>,
    /// Slowest stage: `read`, `network` or `write`.
    pub narrowest: Option<String>,
    /// Types of the file systems at client and daemon, such as `ext4`.
    pub file_systems: Ends<Option<String>>,
}

/// Medians, ratios and the bottleneck of a benchmark.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Results per link, in the order of [`BenchReport::links`].
    pub links: Vec<LinkSummary>,
    /// Total rate of all links, client to daemon.
    pub together: Option<Spread>,
    /// Total rate of all links, daemon to client.
    pub reverse: Option<Spread>,
    /// Total rate of all links in both directions at once, both directions added.
    pub both: Option<Spread>,
    /// Mean of the best tenth of the intervals of `together` in bit/s, each interval capped at
    /// theory.
    pub top_decile_bps: Option<u64>,
    /// Sum of the theoretical goodput of all links in bit/s; absent if that of one link is unknown.
    pub theory_bps: Option<u64>,
    /// Efficiency: `together` ÷ `theory_bps`, 1 if equal.
    pub efficiency: Option<f64>,
    /// Scaling: `together` ÷ the sum of the rates of each link alone.
    pub scaling: Option<f64>,
    /// Jain's fairness index of the links' rates, each divided by its theory (by its rate alone if
    /// the theory is unknown).
    pub fairness: Option<f64>,
    /// TCP efficiency of RFC 6349: percentage of sent bytes that are not retransmissions.
    pub tcp_efficiency_pct: Option<f64>,
    /// Transfer time ratio of RFC 6349: actual time ÷ theoretical time.
    pub transfer_time_ratio: Option<f64>,
    /// Buffer delay of RFC 6349: increase of the RTT under load, in percent.
    pub buffer_delay_pct: Option<f64>,
    /// Processor seconds of each machine per gigabit of payload in `together`.
    pub cpu_s_per_gbit: Ends<Option<f64>>,
    /// Processor MHz of each machine per Mbit/s of payload, a traditional rule of thumb.
    pub cpu_mhz_per_mbps: Ends<Option<f64>>,
    /// Bottleneck of all links together.
    pub limiter: Option<Limiter>,
    /// Summary in one sentence that names the links and the machines.
    pub sentence: String,
}

/// Rates, losses and the bottleneck of one link.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Id of the link, see [`BenchLink::id`].
    pub link: u32,
    /// Rate of the link without load on the others, in bit/s.
    pub alone: Option<Spread>,
    /// Rate of the link while all links carry data, in bit/s.
    pub together: Option<Spread>,
    /// Efficiency of the link: `together` ÷ its theoretical goodput.
    pub efficiency: Option<f64>,
    /// Bytes retransmitted on the link in the `together` loads of all repeats.
    pub retransmitted_bytes: Option<u64>,
    /// Mean smoothed RTT of the link under load, in microseconds.
    pub rtt_loaded_us: Option<u64>,
    /// Bottleneck of the link while all links carry data.
    pub limiter: Option<Limiter>,
}

/// Result of comparing a report with an earlier one (the baseline).
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Id of the earlier report.
    pub id: String,
    /// Total rate of all links in the earlier report.
    pub baseline: Spread,
    /// Change of the median rate in percent; negative means slower than before.
    pub change_pct: f64,
    /// Noise of the rates in percent; a smaller change of the median is not significant.
    pub noise_pct: f64,
    /// BaselineVerdict of the comparison.
    pub verdict: BaselineVerdict,
    /// Reason why the reports are not comparable; absent if they are.
    pub why: Option<String>,
}

/// BaselineVerdict of comparing two benchmarks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineVerdict {
    /// The change is within the noise.
    #[default]
    Same,
    /// The new report is faster, beyond the noise.
    Better,
    /// The new report is slower, beyond the noise.
    Regression,
    /// The reports differ in links, MTUs, directions or format version.
    NotComparable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_told_as_ping_tells_them() {
        let found = RoundTrips::of(&[40.0, 60.0, 50.0, 50.0]).unwrap();
        assert_eq!(
            (
                found.count,
                found.min_us,
                found.avg_us,
                found.max_us,
                found.p50_us
            ),
            (4, 40.0, 50.0, 60.0, 50.0)
        );
        assert_eq!(RoundTrips::of(&[]), None);
    }
}
