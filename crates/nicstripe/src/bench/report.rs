//! What a bench has found, as structs that are written to JSON and read back from it.
//!
//! Units are in the names; bytes, microseconds and bits a second are integers. What is not known is absent, never 0 or -1. A field is only
//! ever added within one version of [`SCHEMA`]; `docs/schema/nicstripe-bench-report-1.json` describes it, and a test validates what is
//! written against that.

use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "nicstripe-bench-report/1";

/// The outcome of one bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// 32 hexadecimal digits, random.
    pub id: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Seconds that it took.
    pub elapsed_s: f64,
    /// Whether all that was planned was measured. A bench that is interrupted has what it had until then.
    pub complete: bool,
    /// The program's version at both ends.
    pub versions: Ends<String>,
    /// What was to be measured.
    pub plan: PlanSummary,
    /// The two machines.
    pub hosts: Ends<HostFacts>,
    /// The links, in the order of their ids.
    pub links: Vec<BenchLink>,
    /// What was measured of whole loads, in the order of time.
    pub runs: Vec<Run>,
    /// Sweeps of one thing or two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// The stages of a copy from disk to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
    /// What it comes to.
    pub summary: Summary,
    /// How it compares with another report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Comparison>,
}

/// The same of both ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize + Known"))]
pub struct Ends<T> {
    /// The end that connects.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub client: T,
    /// The end that is connected to.
    #[serde(default, skip_serializing_if = "Known::is_unknown")]
    pub daemon: T,
}

/// What of one end may be unknown, and is left out of the document then.
pub trait Known {
    /// Whether it is.
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

/// What was to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Which phases.
    pub phases: Vec<Phase>,
    /// Longest time of one load, in milliseconds, warm-up not included.
    pub load_ms: u64,
    /// Time at the start of each load that does not count.
    pub warm_up_ms: u64,
    /// Time between two samples.
    pub interval_ms: u64,
    /// Fewest and most repeats of each load.
    pub repeats: [u32; 2],
    /// Connections a link.
    pub streams: u32,
    /// Payload bytes of one message.
    pub message_bytes: u64,
    /// Socket buffers that were asked for; absent: the kernel sizes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_buffer_bytes: Option<u64>,
}

/// One kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Round trips without load.
    Idle,
    /// One link alone, from client to daemon.
    Solo,
    /// All links, from client to daemon.
    Together,
    /// All links, from daemon to client.
    Reverse,
    /// All links, both ways at once.
    Both,
    /// A pair of links, to find out which share something.
    Pair,
}

/// One machine, as far as it can be seen from its process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Model of the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Logical processors that the process may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Nominal or present frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_mhz: Option<u32>,
    /// Default congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Largest socket buffers that may be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_max_bytes: Option<u64>,
    /// The same for sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_max_bytes: Option<u64>,
    /// Whether the processor quota of a control group is in force, in thousandths of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota_millicores: Option<u64>,
}

/// One link: a pair of interfaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchLink {
    /// Its number in this report, from 1.
    pub id: u32,
    /// The two interfaces.
    pub ends: Ends<InterfaceFacts>,
    /// Addresses of the connections.
    pub addresses: Ends<String>,
    /// Most goodput that it can have; absent where the rate of its line is not known at either end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory_bps: Option<u64>,
    /// What that was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory: Option<TheoryInputs>,
    /// Round trips without load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_idle: Option<RoundTrips>,
    /// Whether packets arrived at the interfaces that they were aimed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
}

/// One interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Its name on its machine.
    pub name: String,
    /// Its packets' size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Rate of the line as negotiated, or of a shaper in front of it where that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_bps: Option<u64>,
    /// Its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Half or full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<String>,
    /// Offloads that are on, by the kernel's names for them: `tso`, `gso`, `gro`, `tx-checksum`, `rx-checksum`, `sg`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloads: Option<Vec<String>>,
}

/// What a link's theory was computed from: `line × (mtu − ip − tcp) / (mtu + 38 + 4·vlan)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TheoryInputs {
    /// Rate of the slower line, in the slower direction.
    pub line_bps: u64,
    /// Size of the packets that get through.
    pub mtu: u32,
    /// 4 or 6.
    pub ip: u8,
    /// Whether TCP has timestamps, which take 12 bytes.
    pub timestamps: bool,
    /// VLAN tags.
    pub vlan_tags: u8,
}

/// Round trips in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_us: f64,
    /// The mean.
    pub avg_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Standard deviation.
    pub std_us: f64,
    /// Half were shorter.
    pub p50_us: f64,
    /// 99 in 100 were shorter.
    pub p99_us: f64,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which kind.
    pub phase: Phase,
    /// Number of its repeat, from 1.
    pub repeat: u32,
    /// When its window began, in microseconds since the bench began, on the client's clock.
    pub began_us: u64,
    /// Length of its window on the receiver's clock: all links past warm-up, until the first sender stopped.
    pub window_us: u64,
    /// Whether the rate had settled when it ended.
    pub stable: bool,
    /// What each link did in each direction.
    pub flows: Vec<Flow>,
    /// Σ of the flows' bytes in the window, in bits a second.
    pub total_bps: u64,
    /// Processor time of both ends in the window.
    pub cpu: Ends<Option<CpuUse>>,
    /// The samples.
    pub intervals: Vec<Interval>,
    /// Transfers that ran at the daemon at any time during it, for whomever: they took part of what the links carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_transfers: Option<u32>,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From client to daemon.
    ToDaemon,
    /// From daemon to client.
    ToClient,
}

/// What one link carried one way in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// [`BenchLink::id`].
    pub link: u32,
    /// Which way.
    pub way: Way,
    /// Payload bytes that arrived, as the receiver counted them.
    pub bytes: u64,
    /// The same in bits a second of the window.
    pub goodput_bps: u64,
    /// Bytes that the interfaces counted in the window, headers included: the sender's as sent, the receiver's as received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_sent_bytes: Option<u64>,
    /// See `interface_sent_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_received_bytes: Option<u64>,
    /// What the sender's kernel says (TCP_INFO), summed over the link's connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpUse>,
    /// What held this link back.
    pub limiter: Limiter,
}

/// What the sender's kernel counted in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpUse {
    /// Bytes sent, those sent again included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Time with something to send; of several connections, the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_us: Option<u64>,
    /// Part of it held back by the receiver's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rwnd_limited_us: Option<u64>,
    /// Part of it held back by the send buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sndbuf_limited_us: Option<u64>,
    /// Mean congestion window over the samples, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd_bytes: Option<u64>,
    /// Mean smoothed round trip over the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_avg_us: Option<u64>,
    /// Greatest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max_us: Option<u64>,
    /// The sender's socket buffer at the end of the window, as `getsockopt` tells it; of several connections, the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// The receiver's, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
}

/// What holds a link or all of them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The cable carries all it can: good.
    Cable,
    /// The sending program had nothing to send.
    Sender,
    /// The receiving program does not take it fast enough.
    Receiver,
    /// The receiver's socket buffer is small.
    ReceiveBuffer,
    /// The sender's socket buffer is small.
    SendBuffer,
    /// A processor core, or the quota of a control group, at either end.
    Cpu,
    /// Packets are lost.
    Loss,
    /// Something that links share: a bus, a switch.
    Shared,
    /// The round trip: the window that the systems allow is less than bandwidth × delay.
    Window,
    /// None of these.
    Unknown,
}

/// Processor time of one machine in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Of the whole machine, in user space.
    pub user_us: u64,
    /// In the kernel, interrupts not included.
    pub system_us: u64,
    /// In interrupts and what they leave for later.
    pub softirq_us: u64,
    /// Of our process, user and system.
    pub process_us: u64,
    /// How busy the busiest core was, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_core_pct: Option<f64>,
    /// Time that a control group's quota held the process back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<u64>,
}

/// One sample of a run, on the receiver's clock. In [`Phase::Both`] those of the two receivers stand one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Which way.
    pub way: Way,
    /// When it began, in microseconds since the run began, warm-up included.
    pub t_us: u64,
    /// How long it was.
    pub dt_us: u64,
    /// Bytes that arrived in it, one number a link, in the order of the run's flows of this way.
    pub bytes: Vec<u64>,
    /// Bytes that the sender sent again in it, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retransmitted_bytes: Vec<u64>,
    /// The smoothed round trip at its end, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_us: Vec<u64>,
}

/// What was swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepKind {
    /// Sizes of messages, as NetPIPE has them.
    Message,
    /// Sizes of socket buffers.
    Buffer,
    /// Connections a link.
    Streams,
    /// Sizes of buffers × connections.
    Grid,
    /// Sizes of packets.
    Mtu,
}

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// What was swept.
    pub kind: SweepKind,
    /// The link that it was done on; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// The points, in the order of their sizes.
    pub points: Vec<SweepPoint>,
    /// Where it stops to rise: the least size that reaches 98 % of the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<u64>,
    /// Bandwidth × delay under load, in bytes, for a sweep of buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bdp_bytes: Option<u64>,
    /// Half a round trip of messages up to 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// The size that reaches half of the greatest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_size_bytes: Option<u64>,
    /// Mean rate of the best tenth of the points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_decile_bps: Option<u64>,
    /// What follows from it, in a sentence.
    pub advice: String,
    /// Why it ended.
    pub stopped: String,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Bytes, or connections; absent: what the system does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The second thing, of a grid: connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Repeats of the rate.
    pub rate: Spread,
    /// Time of one message, of messages: half a round trip up to 64 KiB, delivery above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<f64>,
    /// Processor time of both ends for a gigabit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gbit: Option<f64>,
    /// What the kernel gave where it was asked for `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got_bytes: Option<u64>,
    /// Less than 90 % of its neighbours, and measured again before that was believed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropout: bool,
    /// Computed and not measured, for want of a right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub computed: bool,
}

/// Repeats of one rate, in bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median_bps: u64,
    /// The least.
    pub min_bps: u64,
    /// The greatest.
    pub max_bps: u64,
    /// How many.
    pub n: u32,
    /// Whether they agree: see `nicstripe_proto::bench::repeat`.
    pub stable: bool,
}

/// Stages of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// From whose disk to whose.
    #[serde(default = "to_daemon")]
    pub way: Way,
    /// Bytes moved by each stage.
    pub bytes: u64,
    /// Reading the source, past the page cache, into nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Spread>,
    /// Memory to memory over all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Spread>,
    /// Writing the target, the durable sync included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Spread>,
    /// A copy, up to where it is durable; nothing is kept of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Spread>,
    /// The narrowest: `read`, `network` or `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowest: Option<String>,
    /// File systems, by their names.
    pub file_systems: Ends<Option<String>>,
}

fn to_daemon() -> Way {
    Way::ToDaemon
}

/// What it comes to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Of each link, in the order of `links`.
    pub links: Vec<LinkSummary>,
    /// All links, client to daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Spread>,
    /// All links, daemon to client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Spread>,
    /// Both ways at once, the sum of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<Spread>,
    /// Mean of the best tenth of the intervals of `together`, each at most theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_decile_bps: Option<u64>,
    /// Σ of the links' theory; absent where one is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theory_bps: Option<u64>,
    /// `together` ÷ theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// `together` ÷ Σ alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<f64>,
    /// Jain's index of the links' shares of their own theory (or of what they do alone, where that is unknown).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// RFC 6349: bytes sent once ÷ bytes sent, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_efficiency_pct: Option<f64>,
    /// RFC 6349: time that it took ÷ time in theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_time_ratio: Option<f64>,
    /// RFC 6349: how much longer round trips are under load, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_delay_pct: Option<f64>,
    /// Processor time of each machine for a gigabit, in `together`.
    pub cpu_s_per_gbit: Ends<Option<f64>>,
    /// The old rule of thumb: MHz of processor for a Mbit/s.
    pub cpu_mhz_per_mbps: Ends<Option<f64>>,
    /// What holds all of it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limiter: Option<Limiter>,
    /// The same in one sentence, which names the links and the machine.
    pub sentence: String,
}

/// What it comes to for one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// [`BenchLink::id`].
    pub link: u32,
    /// Alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Spread>,
    /// Its part of `together`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Spread>,
    /// `together` ÷ theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// Bytes sent again in `together`, all repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Mean round trip under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_loaded_us: Option<u64>,
    /// What holds it back in `together`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limiter: Option<Limiter>,
}

/// How a report compares with an earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The other's id.
    pub id: String,
    /// The other's `together`.
    pub baseline: Spread,
    /// Change of the median, in percent; negative: slower.
    pub change_pct: f64,
    /// What may be chance, in percent.
    pub noise_pct: f64,
    /// What follows.
    pub verdict: Verdict,
    /// Why two reports cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a comparison has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The difference may be chance.
    Same,
    /// Faster by more than chance.
    Better,
    /// Slower by more than chance.
    Regression,
    /// Other links, packets, directions or versions of the document.
    NotComparable,
}
