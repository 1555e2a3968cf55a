//! Report of a finished transfer.

use std::{fmt, time::Duration};

use nicstripe_proto::{BitRate, Digest};

use crate::{
    event::{LinkName, LinkState},
    tree::TreeReport,
};

/// Result of a transfer.
#[derive(Debug, Clone)]
pub struct Report {
    /// Bytes of the file.
    pub size: u64,
    /// BLAKE3 of the file, equal at both ends; `None` for a tree.
    pub digest: Option<Digest>,
    /// Result of a tree.
    pub tree: Option<TreeReport>,
    /// Payload bytes sent on the wire: less than `size` if chunks were holes, unchanged or
    /// compressed.
    pub wire_bytes: u64,
    /// Time from the call until the file was durable.
    pub elapsed: Duration,
    /// Time from the first byte of the file until it was durable.
    pub moving: Duration,
    /// Bytes that were durable at the receiver before.
    pub resumed_bytes: u64,
    /// Bytes of the file that were retransmitted.
    pub resent_bytes: u64,
    /// Number of times a connected link was lost.
    pub failovers: u32,
    /// Number of host routes installed.
    pub routes_installed: u32,
    /// Maximum rate of all links together; `None` unless the rate of each is known.
    pub expected: Option<BitRate>,
    /// Bottleneck of the transfer.
    pub limited_by: Limit,
    /// Results per link.
    pub links: Vec<LinkReport>,
    /// Interfaces that were meant to be links and do not work.
    pub failed: Vec<UnusedInterface>,
    /// Remedies for these interfaces, for an administrator.
    pub remedies: Vec<LinkRemedy>,
}

impl Report {
    /// Returns the bits of the file moved in this run, per second of `elapsed`.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img".as_ref(), None, nicstripe::CopyOptions::default());
    /// println!("{}", transfer.finish().await?.goodput());
    /// # Ok(())
    /// # }
    /// ```
    pub fn goodput(&self) -> BitRate {
        BitRate::from_bytes_over(self.size.saturating_sub(self.resumed_bytes), self.elapsed)
    }

    /// Returns goodput over the expected rate, as a fraction; `None` without an expectation, or if
    /// no bytes were moved.
    ///
    /// Bytes that did not cross the wire (holes, unchanged chunks, compression savings) do not
    /// count, because this is about the links.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img".as_ref(), None, nicstripe::CopyOptions::default());
    /// if let Some(efficiency) = transfer.finish().await?.efficiency() {
    ///     println!("{:.1} % of what the links can carry", efficiency * 100.0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn efficiency(&self) -> Option<f64> {
        let moved = self
            .wire_bytes
            .min(self.size.saturating_sub(self.resumed_bytes));
        let expected = self.expected.filter(|rate| rate.0 > 0 && moved > 0)?;
        Some(BitRate::from_bytes_over(moved, self.elapsed).0 as f64 / expected.0 as f64)
    }
}

/// Result of one link. `None` means unknown.
#[derive(Debug, Clone)]
pub struct LinkReport {
    /// The link.
    pub link: LinkName,
    /// Bytes of the file that arrived first over this link.
    pub bytes: u64,
    /// Lower bound of these bytes on the wire: less than `bytes` if chunks were compressed.
    pub wire_bytes: u64,
    /// `bytes` per second of [`Report::elapsed`].
    pub goodput: BitRate,
    /// Maximum goodput with the packet size that gets through.
    pub theory: Option<BitRate>,
    /// State at the end.
    pub state: LinkState,
    /// True if each connection arrived at the peer's interface it was aimed at, and the local
    /// interface carried at least the `wire_bytes` of its links. `None` if either is unknown.
    pub verified: Option<bool>,
    /// Bytes that the local interface carried in the direction of the data during the transfer,
    /// headers included (kernel counter).
    pub interface_bytes: Option<u64>,
    /// Largest packet that gets through, in bytes; `None` if that is the interface's MTU.
    pub path_mtu: Option<u32>,
    /// Number of times the link was lost.
    pub failures: u32,
    /// Losses due to corrupt data with a valid TCP checksum: a bad cable, card or switch.
    pub damaged: u32,
    /// Statistics of the sender's kernel.
    pub kernel: KernelView,
}

/// Statistics of the sender's kernel for a link's connections (TCP_INFO, tcp(7)), summed.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelView {
    /// Retransmitted bytes.
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time of the last connection, queueing included.
    pub rtt: Option<Duration>,
    /// Time with data to send.
    pub busy: Option<Duration>,
    /// Part of `busy` limited by the receiver's window.
    pub rwnd_limited: Option<Duration>,
    /// Part of `busy` limited by the send buffer.
    pub sndbuf_limited: Option<Duration>,
    /// Time with data to send but without credit from the receiver (measured by nicstripe, not the
    /// kernel).
    pub starved: Option<Duration>,
}

/// Bottleneck of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The capacity of the cables.
    Cables,
    /// The limit set by the user.
    Bandwidth,
    /// Reading the source.
    Source,
    /// Writing the target, or the receiver's CPU.
    Receiver,
    /// The sender's socket buffers.
    SendBuffer,
    /// Corrupt or lost packets.
    Loss,
    /// A link was down for part of the time.
    LinkDown,
    /// Opening, creating and closing many small files.
    Files,
    /// The transfer is too short for any other limit to show.
    Latency,
    /// None of these.
    Unknown,
}

impl Limit {
    /// Returns the name used in machine-readable output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cables => "cables",
            Self::Bandwidth => "bandwidth",
            Self::Source => "source",
            Self::Receiver => "receiver",
            Self::SendBuffer => "send_buffer",
            Self::Loss => "loss",
            Self::LinkDown => "link_down",
            Self::Files => "files",
            Self::Latency => "latency",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cables => "the cables",
            Self::Bandwidth => "the configured limit",
            Self::Source => "reading the source",
            Self::Receiver => "the receiver (its disk or processor)",
            Self::SendBuffer => "the send buffer",
            Self::Loss => "packet loss",
            Self::LinkDown => "a link that was down",
            Self::Files => "opening and closing files",
            Self::Latency => "start and end (the file is small)",
            Self::Unknown => "something unknown",
        })
    }
}

/// Determines the bottleneck of a transfer. Thresholds follow the literature on TCP's chronographs
/// (`docs/MANUAL.md`, limits).
///
/// The first match counts:
///
/// 1. a transfer too short to judge;
/// 2. at least 90 % of the user's limit;
/// 3. a lost link;
/// 4. the cables at 97 % of theory (a tree: 95 %, because its files start and end);
/// 5. retransmissions above 0.1 % of the bytes;
/// 6. a receiver without credit for 20 % of the time;
/// 7. a tree of small files on average;
/// 8. the source, if the sender's connections were idle for more than 20 % of the time (a tree:
///    unknown, because it may have waited for the end of a file);
/// 9. a receiver's window that limited 20 % of the busy time;
/// 10. a send buffer that did;
/// 11. the cables, if the rate of a link is unknown.
pub(crate) fn limit(report: &Report, bandwidth: Option<BitRate>) -> Limit {
    if report.moving < SMALL {
        return Limit::Latency;
    }
    if bandwidth.is_some_and(|limit| report.goodput().0 >= limit.0 / 10 * 9) {
        return Limit::Bandwidth;
    }
    if report.failovers > 0 {
        return Limit::LinkDown;
    }
    let full = if report.tree.is_some() { 0.95 } else { 0.97 };
    if report
        .efficiency()
        .is_some_and(|efficiency| efficiency >= full)
    {
        return Limit::Cables;
    }
    let sum = |part: fn(&KernelView) -> Option<Duration>| -> Option<f64> {
        report
            .links
            .iter()
            .map(|link| part(&link.kernel).map(|time| time.as_secs_f64()))
            .sum()
    };
    let sent: u64 = report.links.iter().map(|link| link.bytes).sum();
    let lost: u64 = report
        .links
        .iter()
        .filter_map(|link| link.kernel.retransmitted_bytes)
        .sum();
    if sent > 0 && lost as f64 / sent as f64 > 0.001 {
        return Limit::Loss;
    }
    let all_links = report.moving.as_secs_f64() * report.links.len() as f64;
    if sum(|kernel| kernel.starved).is_some_and(|time| time >= 0.2 * all_links) {
        return Limit::Receiver;
    }
    if report.tree.as_ref().is_some_and(is_of_small_files) {
        return Limit::Files;
    }
    let Some(busy) = sum(|kernel| kernel.busy) else {
        return Limit::Unknown;
    };
    if busy < 0.8 * all_links {
        return if report.tree.is_some() {
            Limit::Unknown
        } else {
            Limit::Source
        };
    }
    if sum(|kernel| kernel.rwnd_limited).is_some_and(|time| time >= 0.2 * busy) {
        return Limit::Receiver;
    }
    if sum(|kernel| kernel.sndbuf_limited).is_some_and(|time| time >= 0.2 * busy) {
        return Limit::SendBuffer;
    }
    // Both ends kept links of unknown rate busy all the time, so that this is their capacity.
    if report.expected.is_none() {
        Limit::Cables
    } else {
        Limit::Unknown
    }
}

/// Returns true if the copied entries are small on average, counting those without data.
fn is_of_small_files(tree: &TreeReport) -> bool {
    let copied = tree.files + tree.directories + tree.symlinks + tree.nodes;
    copied > 0 && tree.bytes / copied < SMALL_FILE
}

/// Size limit of a small file, in bytes: 2 ms at 1 Gbit/s, about the time of an fsync on many
/// disks.
const SMALL_FILE: u64 = 256 * 1024;

/// Minimum duration to judge: below it, start-up and the last acknowledgement dominate.
const SMALL: Duration = Duration::from_millis(200);

/// Misconfiguration that breaks cables in one subnet, with the commands that repair it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRemedy {
    /// True if the peer's machine is misconfigured.
    pub is_peers: bool,
    /// Description of the problem, one sentence.
    pub problem: String,
    /// Commands to run as root on that machine.
    pub apply: Vec<String>,
    /// Commands that restore the previous state.
    pub undo: Vec<String>,
}

/// Interface that no link uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedInterface {
    /// True if it is the peer's.
    pub is_peers: bool,
    /// Its name on that machine.
    pub interface: String,
    /// Short reason.
    pub why: String,
    /// True if it was planned as a link and failed.
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tree: Option<TreeReport>, bytes: u64) -> Report {
        Report {
            size: bytes,
            digest: None,
            tree,
            wire_bytes: bytes,
            elapsed: Duration::from_secs(1),
            moving: Duration::from_secs(1),
            resumed_bytes: 0,
            resent_bytes: 0,
            failovers: 0,
            routes_installed: 0,
            expected: Some(BitRate(1_000_000_000)),
            limited_by: Limit::Unknown,
            links: vec![idle_link()],
            failed: Vec::new(),
            remedies: Vec::new(),
        }
    }

    fn limit_of(files: u64, bytes: u64) -> Limit {
        limit(
            &report(
                Some(TreeReport {
                    files,
                    bytes,
                    ..TreeReport::default()
                }),
                bytes,
            ),
            None,
        )
    }

    #[test]
    fn many_small_files_are_limited_by_their_number_unless_the_cables_are_full() {
        assert_eq!(limit_of(100_000, 0), Limit::Files);
        assert_eq!(limit_of(1000, 10 << 20), Limit::Files);
        // 120 MB/s are 960 Mbit/s of 1000: 96 %.
        assert_eq!(limit_of(100_000, 120_000_000), Limit::Cables);
    }

    #[test]
    fn of_a_tree_reading_is_never_what_is_told() {
        assert_eq!(limit(&report(None, 10 << 20), None), Limit::Source);
        let large = TreeReport {
            files: 10,
            bytes: 10 << 20,
            ..TreeReport::default()
        };
        assert_eq!(limit(&report(Some(large), 10 << 20), None), Limit::Unknown);
        let same = TreeReport {
            unchanged: 1000,
            ..TreeReport::default()
        };
        assert_eq!(limit(&report(Some(same), 0), None), Limit::Unknown);
    }

    /// Returns a link with data to send for a tenth of the second.
    fn idle_link() -> LinkReport {
        LinkReport {
            link: LinkName {
                interface: "eth1".into(),
                peer_interface: None,
                local: None,
                remote: [10, 0, 0, 1].into(),
            },
            bytes: 10 << 20,
            wire_bytes: 10 << 20,
            goodput: BitRate(0),
            theory: Some(BitRate(1_000_000_000)),
            state: LinkState::Up,
            verified: None,
            interface_bytes: None,
            path_mtu: None,
            failures: 0,
            damaged: 0,
            kernel: KernelView {
                busy: Some(Duration::from_millis(100)),
                ..KernelView::default()
            },
        }
    }
}
