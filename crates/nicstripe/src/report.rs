//! Report of a finished transfer, with its bottleneck.

pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod link_text;
pub(crate) mod metrics;
#[cfg(feature = "serde")]
mod serialized;
pub(crate) mod survey;

use std::{fmt, time::Duration};

use nicstripe_proto::{BitRate, Digest, ETag};

use self::{
    event::{LinkName, LinkState},
    survey::{LinkSurvey, UnusedInterface},
};
use crate::tree::TreeReport;

/// Report of a successful transfer: sizes, times, rates and the links used.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Size of the file, or of all files of a tree, in bytes.
    pub size: u64,
    /// BLAKE3 hash of the file, equal at both ends; `None` for a tree.
    pub digest: Option<Digest>,
    /// Entity tag of the written file under its name, at the daemon or here; `None` for a tree, a pipe
    /// or a device, and from a daemon that sends none.
    pub etag: Option<ETag>,
    /// Number of entries of a tree by result; `None` for a single file.
    pub tree: Option<TreeReport>,
    /// Payload bytes sent: less than `size` if chunks were holes, unchanged or compressed.
    pub wire_bytes: u64,
    /// Time from the call until the file was durable.
    pub elapsed: Duration,
    /// Time from the first byte of the file until the file was durable.
    pub moving: Duration,
    /// Bytes that an earlier attempt had made durable at the receiver.
    pub resumed_bytes: u64,
    /// Bytes of chunks that were retransmitted, or received twice in a download; without TCP's
    /// retransmissions.
    pub resent_bytes: u64,
    /// Number of times a connected link was lost.
    pub failovers: u32,
    /// Number of host routes installed for this session.
    pub routes_installed: u32,
    /// Theoretical goodput of all links together; `None` unless it is known for each link.
    pub expected: Option<BitRate>,
    /// Bottleneck that limited the goodput.
    pub limited_by: Limit,
    /// Bytes, rates and TCP statistics per link.
    pub links: Vec<LinkReport>,
    /// Interfaces that were planned as links but could not be used.
    pub failed: Vec<UnusedInterface>,
    /// Interfaces of both machines that could have a cable, and were no link at the end. Empty if
    /// the caller chose the links.
    pub unused: Vec<UnusedInterface>,
    /// Links between the machines at the end; `None` for single objects, and if the session has ended.
    pub survey: Option<LinkSurvey>,
}

impl Report {
    /// Adds the report of a further file, or of a further part of one. What belongs to one file is lost: its
    /// digest and its tag.
    ///
    /// ```
    /// let mut all = nicstripe::Report::default();
    /// for _ in 0..2 {
    ///     let mut part = nicstripe::Report::default();
    ///     part.size = 5;
    ///     all.add(part);
    /// }
    /// assert_eq!(all.size, 10);
    /// ```
    pub fn add(&mut self, part: Self) {
        if self.links.is_empty() && self.size == 0 {
            *self = part;
            return;
        }
        self.size += part.size;
        self.wire_bytes += part.wire_bytes;
        self.resumed_bytes += part.resumed_bytes;
        self.resent_bytes += part.resent_bytes;
        self.failovers += part.failovers;
        self.elapsed += part.elapsed;
        self.moving += part.moving;
        (self.digest, self.etag) = (None, None);
        for link in part.links {
            match self.links.iter_mut().find(|other| other.link == link.link) {
                Some(other) => {
                    other.bytes += link.bytes;
                    other.wire_bytes += link.wire_bytes;
                    other.failures += link.failures;
                    other.state = link.state;
                }
                None => self.links.push(link),
            }
        }
        for link in &mut self.links {
            link.goodput = BitRate::from_bytes_over(link.bytes, self.elapsed);
        }
    }

    /// Returns the goodput of this attempt: bits of the file without resumed data, per second of
    /// `elapsed`.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img", None, nicstripe::CopyOptions::default());
    /// println!("{}", transfer.finish().await?.goodput());
    /// # Ok(())
    /// # }
    /// ```
    pub fn goodput(&self) -> BitRate {
        BitRate::from_bytes_over(self.size.saturating_sub(self.resumed_bytes), self.elapsed)
    }

    /// Returns the ratio of the measured to the expected goodput, 1.0 for full links. `None` if the
    /// expected goodput is unknown or no bytes were moved.
    ///
    /// Bytes that did not cross the wire (holes, unchanged chunks, compression savings) do not
    /// count, because the ratio describes the links.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img", None, nicstripe::CopyOptions::default());
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

/// Result of one link in a transfer. A value of `None` is unknown.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LinkReport {
    /// Link that carried the bytes.
    pub link: LinkName,
    /// Bytes of the file delivered by this link. A chunk that was sent twice counts only for its
    /// first arrival.
    pub bytes: u64,
    /// Minimum payload bytes with which this link delivered `bytes`; less than `bytes` if chunks
    /// were compressed.
    pub wire_bytes: u64,
    /// Goodput of the link over the whole transfer: `bytes` per second of [`Report::elapsed`].
    pub goodput: BitRate,
    /// Theoretical goodput of the link at its path MTU.
    pub theory: Option<BitRate>,
    /// State of the link at the end of the transfer.
    pub state: LinkState,
    /// True if each connection arrived at the peer's interface it was aimed at, and the local
    /// interface carried at least the `wire_bytes` of its links. `None` if either is unknown.
    pub verified: Option<bool>,
    /// Bytes that the local interface carried in the direction of the data during the transfer,
    /// headers included (kernel counter).
    pub interface_bytes: Option<u64>,
    /// Path MTU of the link in bytes; `None` if it equals the interface's MTU.
    pub path_mtu: Option<u32>,
    /// Number of times that a connection of the link was lost.
    pub failures: u32,
    /// Number of connections lost because data was corrupt despite a valid TCP checksum, which
    /// points to a bad cable, card or switch.
    pub damaged: u32,
    /// TCP statistics from the sender's kernel.
    pub kernel: KernelView,
}

impl LinkReport {
    /// Returns the result of a link that has carried nothing and connects for the first time.
    pub fn new(link: LinkName) -> Self {
        Self {
            link,
            bytes: 0,
            wire_bytes: 0,
            goodput: BitRate::ZERO,
            theory: None,
            state: LinkState::Connecting,
            verified: None,
            interface_bytes: None,
            path_mtu: None,
            failures: 0,
            damaged: 0,
            kernel: KernelView::default(),
        }
    }
}

/// TCP statistics of the sender's kernel for all connections of a link (TCP_INFO, tcp(7)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelView {
    /// Bytes retransmitted by TCP.
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time of the latest connection, including queueing delay.
    pub rtt: Option<Duration>,
    /// Time during which TCP had data to send.
    pub busy: Option<Duration>,
    /// Part of `busy` in which the peer's receive window limited TCP.
    pub rwnd_limited: Option<Duration>,
    /// Part of `busy` in which the send buffer limited TCP.
    pub sndbuf_limited: Option<Duration>,
    /// Time in which the link had no credit to send, because the receiver had not granted more
    /// (measured by nicstripe, not by the kernel).
    pub starved: Option<Duration>,
}

/// Bottleneck that limited the goodput of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The capacity of the links: they carry their theoretical goodput, or were never idle.
    Cables,
    /// The rate limit that the user set.
    Bandwidth,
    /// Reading the source file or pipe.
    Source,
    /// The receiver: writing the target, or its CPU.
    Receiver,
    /// The size of the sender's TCP send buffers.
    SendBuffer,
    /// Packet loss or corruption: more than 0.1 % of the bytes were retransmitted.
    Loss,
    /// Lost connections: a link was down for part of the transfer.
    LinkDown,
    /// Opening, creating and closing the many small files of a tree.
    Files,
    /// Start-up and round trips: the transfer took less than 200 ms.
    Latency,
    /// No bottleneck could be identified.
    #[default]
    Unknown,
}

impl Limit {
    /// Returns the word for the bottleneck in JSON output.
    pub fn word(self) -> &'static str {
        self.texts().0
    }

    /// Returns the word for the bottleneck, and its description.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Cables => ("cables", "the cables"),
            Self::Bandwidth => ("bandwidth", "the configured limit"),
            Self::Source => ("source", "reading the source"),
            Self::Receiver => ("receiver", "the receiver (its disk or processor)"),
            Self::SendBuffer => ("send_buffer", "the send buffer"),
            Self::Loss => ("loss", "packet loss"),
            Self::LinkDown => ("link_down", "a link that was down"),
            Self::Files => ("files", "opening and closing files"),
            Self::Latency => ("latency", "start and end (the file is small)"),
            Self::Unknown => ("unknown", "something unknown"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

/// Determines the bottleneck of a transfer. Thresholds follow the literature on TCP's chronographs
/// (`docs/MANUAL.md`, limits).
///
/// The first match counts:
///
/// 1. a transfer too short to judge;
/// 2. at least 90 % of the user's rate limit;
/// 3. a lost connection;
/// 4. the links, at 97 % of their theoretical goodput (a tree: 95 %, because its files start and
///    end);
/// 5. retransmissions above 0.1 % of the bytes;
/// 6. the receiver, if the sender had no credit for 20 % of the time;
/// 7. many small files in a tree;
/// 8. the source, if the sender's connections were idle for more than 20 % of the time (a tree:
///    unknown, because it may have waited for the end of a file);
/// 9. the receiver, if its receive window limited TCP for 20 % of the busy time;
/// 10. the send buffer, if it limited TCP for 20 % of the busy time;
/// 11. the links, if the rate of one is unknown.
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

/// Returns true if the copied entries have less than [`SMALL_FILE`] bytes on average. Directories,
/// symlinks and nodes count as entries without data.
fn is_of_small_files(tree: &TreeReport) -> bool {
    let copied = tree.files + tree.directories + tree.symlinks + tree.nodes;
    copied > 0 && tree.bytes / copied < SMALL_FILE
}

/// Average entry size below which a tree consists of small files, in bytes: 2 ms at 1 Gbit/s, about
/// the time of an fsync on many disks.
const SMALL_FILE: u64 = 256 * 1024;

/// Minimum duration of a transfer for which a bottleneck is determined. Start-up and the last
/// acknowledgement dominate shorter ones.
const SMALL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tree: Option<TreeReport>, bytes: u64) -> Report {
        Report {
            size: bytes,
            digest: None,
            etag: None,
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
            unused: Vec::new(),
            survey: None,
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

    /// Returns a link that transferred for one second and had data to send for a tenth of it.
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
