//! Benchmark report, as structs that are written to and read from JSON.
//!
//! Units are part of the names; bytes, microseconds and bits per second are integers. Unknown
//! values are absent, never 0 or -1. Within one version of [`SCHEMA`], fields are only added.
//! `docs/schema/nicstripe-bench-report-1.json` describes the document, and a test validates written
//! reports against it.

use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "nicstripe-bench-report/1";

/// Result of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Random id, 32 hexadecimal digits.
    pub id: String,
    /// Start time, RFC 3339 in UTC.
    pub started: String,
    /// Duration in seconds.
    pub elapsed_s: f64,
    /// True if the whole plan was measured. An interrupted benchmark has the results up to then.
    pub complete: bool,
    /// Version of the program at both ends.
    pub versions: Ends<String>,
    /// Plan of the benchmark.
    pub plan: PlanSummary,
    /// Both machines.
    pub hosts: Ends<HostFacts>,
    /// Links, ordered by id.
    pub links: Vec<BenchLink>,
    /// Loads, in chronological order.
    pub runs: Vec<Run>,
    /// Sweeps over one or two quantities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// Stages of a copy from disk to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
    /// Summary of the results.
    pub summary: Summary,
    /// Comparison with another report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Comparison>,
}

/// A value for each end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize + Known"))]
pub struct Ends<T> {
    /// The connecting end.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub client: T,
    /// The accepting end.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub daemon: T,
}

/// Value of one end that is omitted from the document if unknown.
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

/// Plan of a benchmark, as reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Phases to run.
    pub phases: Vec<Phase>,
    /// Maximum duration of one load in milliseconds, without warm-up.
    pub load_ms: u64,
    /// Warm-up at the start of each load in milliseconds, which does not count.
    pub warm_up_ms: u64,
    /// Sampling interval in milliseconds.
    pub interval_ms: u64,
    /// Minimum and maximum repeats of each load.
    pub repeats: [u32; 2],
    /// Connections per link.
    pub streams: u32,
    /// Payload bytes per message.
    pub message_bytes: u64,
    /// Requested socket buffer size; absent if left to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_buffer_bytes: Option<u64>,
}

/// Kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Round trips without load.
    Idle,
    /// One link alone, client to daemon.
    Solo,
    /// All links, client to daemon.
    Together,
    /// All links, daemon to client.
    Reverse,
    /// All links, both directions at once.
    Both,
    /// A pair of links, to detect shared bottlenecks.
    Pair,
}

/// Facts about one machine, as visible from its process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Processor model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Logical processors available to the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Nominal or current frequency in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_mhz: Option<u32>,
    /// Default congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Largest receive buffer that can be requested (`rmem_max`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_max_bytes: Option<u64>,
    /// Largest send buffer that can be requested (`wmem_max`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_max_bytes: Option<u64>,
    /// CPU quota of the control group, in thousandths of one core; absent without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota_millicores: Option<u64>,
}

/// One link: a pair of interfaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchLink {
    /// Number in this report, from 1.
    pub id: u32,
    /// Both interfaces.
    pub ends: Ends<InterfaceFacts>,
    /// Addresses of the connections.
    pub addresses: Ends<String>,
    /// Theoretical maximum of the goodput; absent if neither end knows the line rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory_bps: Option<u64>,
    /// Inputs of that computation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory: Option<TheoryInputs>,
    /// Round trips without load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_idle: Option<RoundTrips>,
    /// True if packets arrived at the interfaces they were aimed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
}

/// Facts about one interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Interface name.
    pub name: String,
    /// MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Negotiated line rate, or the rate of a slower shaper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_bps: Option<u64>,
    /// Driver name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Half or full duplex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<String>,
    /// Enabled offloads, by kernel name: `tso`, `gso`, `gro`, `tx-checksum`, `rx-checksum`, `sg`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloads: Option<Vec<String>>,
}

/// Inputs of a link's theoretical goodput: `line × (mtu − ip − tcp) / (mtu + 38 + 4·vlan)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TheoryInputs {
    /// Rate of the slower line in the slower direction.
    pub line_bps: u64,
    /// Size of the packets that get through, in bytes.
    pub mtu: u32,
    /// IP version, 4 or 6.
    pub ip: u8,
    /// True if TCP timestamps are on, which take 12 bytes.
    pub timestamps: bool,
    /// Number of VLAN tags.
    pub vlan_tags: u8,
}

/// Round-trip times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Number of round trips.
    pub count: u64,
    /// Minimum.
    pub min_us: f64,
    /// Mean.
    pub avg_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Standard deviation.
    pub std_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Kind of load.
    pub phase: Phase,
    /// Repeat number, from 1.
    pub repeat: u32,
    /// Start of the window on the client's clock, in microseconds since the benchmark began.
    pub began_us: u64,
    /// Length of the window on the receiver's clock: from the end of the warm-up of all links until
    /// the first sender stopped.
    pub window_us: u64,
    /// True if the rate had settled at the end.
    pub stable: bool,
    /// Results per link and direction.
    pub flows: Vec<Flow>,
    /// Sum of the flows' bytes in the window, in bit/s.
    pub total_bps: u64,
    /// Processor time of both ends in the window.
    pub cpu: Ends<Option<CpuUse>>,
    /// Samples.
    pub intervals: Vec<Interval>,
    /// Transfers of any client at the daemon at any time during the load, which used part of the
    /// links' capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_transfers: Option<u32>,
}

/// Direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Client to daemon.
    ToDaemon,
    /// Daemon to client.
    ToClient,
}

/// Result of one link in one direction in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// [`BenchLink::id`].
    pub link: u32,
    /// Direction.
    pub way: Direction,
    /// Received payload bytes, counted by the receiver.
    pub bytes: u64,
    /// Goodput in bit/s over the window.
    pub goodput_bps: u64,
    /// Bytes sent by the sender's interface in the window, headers included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_sent_bytes: Option<u64>,
    /// Bytes received by the receiver's interface in the window, headers included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_received_bytes: Option<u64>,
    /// Statistics of the sender's kernel (TCP_INFO), summed over the link's connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpUse>,
    /// Bottleneck of this link.
    pub limiter: Limiter,
}

/// Counters of the sender's kernel in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpUse {
    /// Bytes sent, retransmissions included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Retransmitted bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Time with data to send; mean over several connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_us: Option<u64>,
    /// Part of `busy_us` limited by the receiver's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` limited by the send buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sndbuf_limited_us: Option<u64>,
    /// Mean congestion window over the samples, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd_bytes: Option<u64>,
    /// Mean smoothed RTT over the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_avg_us: Option<u64>,
    /// Maximum smoothed RTT of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max_us: Option<u64>,
    /// Sender's socket buffer at the end of the window, as returned by `getsockopt`; minimum over
    /// several connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// Receiver's socket buffer, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
}

/// Bottleneck of one link or of all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The cable is at capacity, the best case.
    Cable,
    /// The sending program had no data to send.
    Sender,
    /// The receiving program reads too slowly.
    Receiver,
    /// The receiver's socket buffer is too small.
    ReceiveBuffer,
    /// The sender's socket buffer is too small.
    SendBuffer,
    /// A processor core or a control group's quota, at either end.
    Cpu,
    /// Packet loss.
    Loss,
    /// A bottleneck shared by links: a bus, a switch.
    Shared,
    /// The round trip: the window that the systems allow is below bandwidth × delay.
    Window,
    /// None of these.
    Unknown,
}

/// Processor time of one machine in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// User space, whole machine.
    pub user_us: u64,
    /// Kernel without interrupts.
    pub system_us: u64,
    /// Hard and soft interrupts.
    pub softirq_us: u64,
    /// This process, user and system.
    pub process_us: u64,
    /// Utilization of the busiest core, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_core_pct: Option<f64>,
    /// Time during which a control group's quota throttled the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<u64>,
}

/// One sample of a run, on the receiver's clock. In [`Phase::Both`] the samples of one receiver
/// follow those of the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Direction.
    pub way: Direction,
    /// Start in microseconds since the run began, warm-up included.
    pub t_us: u64,
    /// Length in microseconds.
    pub dt_us: u64,
    /// Received bytes per link, in the order of the run's flows of this direction.
    pub bytes: Vec<u64>,
    /// Retransmitted bytes of the sender, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retransmitted_bytes: Vec<u64>,
    /// Smoothed RTT at the end of the sample, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_us: Vec<u64>,
}

/// Swept quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepKind {
    /// Message sizes, as in NetPIPE.
    Message,
    /// Socket buffer sizes.
    Buffer,
    /// Connections per link.
    Streams,
    /// Buffer sizes × connections.
    Grid,
    /// Packet sizes.
    Mtu,
}

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Swept quantity.
    pub kind: SweepKind,
    /// Swept link; absent for all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// Points, ordered by size.
    pub points: Vec<SweepPoint>,
    /// Start of the plateau: the smallest size that reaches 98 % of the best rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<u64>,
    /// Bandwidth × delay under load in bytes, for a sweep of buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bdp_bytes: Option<u64>,
    /// Half the round trip of messages up to 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// Size that reaches half of the maximum rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_size_bytes: Option<u64>,
    /// Mean rate of the best tenth of the points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_decile_bps: Option<u64>,
    /// Conclusion, in one sentence.
    pub advice: String,
    /// Reason for its end.
    pub stopped: String,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Bytes or connections; absent for the system's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Connections, the second dimension of a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Rate over the repeats.
    pub rate: Spread,
    /// Time of one message: half a round trip up to 64 KiB, delivery above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<f64>,
    /// Processor time of both ends per gigabit, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gbit: Option<f64>,
    /// Buffer size granted by the kernel for a requested `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got_bytes: Option<u64>,
    /// True if below 90 % of its neighbours, confirmed by a second measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropout: bool,
    /// True if computed instead of measured, for lack of a privilege.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub computed: bool,
}

/// Repeats of one rate, in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median_bps: u64,
    /// Minimum.
    pub min_bps: u64,
    /// Maximum.
    pub max_bps: u64,
    /// Number of repeats.
    pub n: u32,
    /// True if the repeats agree: see `nicstripe_proto::bench::repeat`.
    pub stable: bool,
}

/// Stages of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Direction of the copy.
    #[serde(default = "to_daemon")]
    pub way: Direction,
    /// Bytes moved by each stage.
    pub bytes: u64,
    /// Reading the source without the page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Spread>,
    /// Memory to memory over all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Spread>,
    /// Writing the target, final sync included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Spread>,
    /// A copy until it is durable; it is then discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Spread>,
    /// Slowest stage: `read`, `network` or `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowest: Option<String>,
    /// File system names.
    pub file_systems: Ends<Option<String>>,
}

fn to_daemon() -> Direction {
    Direction::ToDaemon
}

/// Summary of a benchmark.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Results per link, in the order of `links`.
    pub links: Vec<LinkSummary>,
    /// All links, client to daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Spread>,
    /// All links, daemon to client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Spread>,
    /// Sum of both directions at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<Spread>,
    /// Mean of the best tenth of the intervals of `together`, each capped at theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_decile_bps: Option<u64>,
    /// Sum of the links' theory; absent if one is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory_bps: Option<u64>,
    /// `together` ÷ theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// `together` ÷ sum of the links alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<f64>,
    /// Jain's index of the links' fractions of their own theory (of their rate alone if that is
    /// unknown).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// RFC 6349: percentage of sent bytes that are not retransmissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_efficiency_pct: Option<f64>,
    /// RFC 6349: actual time ÷ theoretical time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_time_ratio: Option<f64>,
    /// RFC 6349: increase of the round trip under load, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_delay_pct: Option<f64>,
    /// Processor time of each machine per gigabit in `together`, in seconds.
    pub cpu_s_per_gbit: Ends<Option<f64>>,
    /// MHz of processor per Mbit/s, a traditional rule of thumb.
    pub cpu_mhz_per_mbps: Ends<Option<f64>>,
    /// Overall bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limiter: Option<Limiter>,
    /// Summary in one sentence that names the links and the machine.
    pub sentence: String,
}

/// Summary of one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// [`BenchLink::id`].
    pub link: u32,
    /// Rate alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Spread>,
    /// Its part of `together`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Spread>,
    /// `together` ÷ theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// Retransmitted bytes in `together`, over all repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Mean round trip under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_loaded_us: Option<u64>,
    /// Bottleneck in `together`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limiter: Option<Limiter>,
}

/// Comparison with an earlier report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Id of the earlier report.
    pub id: String,
    /// `together` of the earlier report.
    pub baseline: Spread,
    /// Change of the median in percent; negative means slower.
    pub change_pct: f64,
    /// Noise in percent.
    pub noise_pct: f64,
    /// Result of the comparison.
    pub verdict: Verdict,
    /// Reason why the reports are not comparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The difference is within the noise.
    Same,
    /// Faster beyond the noise.
    Better,
    /// Slower beyond the noise.
    Regression,
    /// Links, packet sizes, directions or document versions differ.
    NotComparable,
}
