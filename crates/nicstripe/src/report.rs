//! What a finished transfer says of itself.

use std::{fmt, time::Duration};

use nicstripe_proto::{BitRate, Digest};

use crate::{
    client::{LinkRemedy, UnusedInterface},
    event::{LinkName, LinkState},
    tree::TreeReport,
};

/// The outcome of a transfer.
#[derive(Debug, Clone)]
pub struct Report {
    /// Bytes of the file.
    pub size: u64,
    /// BLAKE3 of the file, the same at both ends; a tree has none.
    pub digest: Option<Digest>,
    /// What became of a tree.
    pub tree: Option<TreeReport>,
    /// Bytes of payload that were put on the wire: less than `size` where chunks were holes, the same as before, or compressed.
    pub wire_bytes: u64,
    /// From the call until the file was durable.
    pub elapsed: Duration,
    /// From the first byte of the file until it was durable.
    pub moving: Duration,
    /// Bytes that were durable at the receiver before.
    pub resumed_bytes: u64,
    /// Bytes of the file that were sent more than once.
    pub resent_bytes: u64,
    /// Times that a connected link was lost.
    pub failovers: u32,
    /// Host routes that were installed.
    pub routes_installed: u32,
    /// Most that the links can carry together, where every one's rate is known.
    pub expected: Option<BitRate>,
    /// What held it back.
    pub limited_by: Limit,
    /// Each link.
    pub links: Vec<LinkReport>,
    /// Interfaces that were to be links and do not work as such.
    pub failed: Vec<UnusedInterface>,
    /// What an administrator could do about them.
    pub remedies: Vec<LinkRemedy>,
}

impl Report {
    /// Bits of the file that were moved in this run, per second of `elapsed`.
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

    /// Goodput over what was expected, as a fraction; unknown where the expectation is, or where nothing was moved.
    ///
    /// What did not go over the wire (holes, chunks that were there, what compression saved) does not count: this is about the links.
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
        let moved = self.wire_bytes.min(self.size.saturating_sub(self.resumed_bytes));
        let expected = self.expected.filter(|rate| rate.0 > 0 && moved > 0)?;
        Some(BitRate::from_bytes_over(moved, self.elapsed).0 as f64 / expected.0 as f64)
    }
}

/// The outcome of one link. What is absent is unknown.
#[derive(Debug, Clone)]
pub struct LinkReport {
    /// Which.
    pub link: LinkName,
    /// Bytes of the file that it delivered first.
    pub bytes: u64,
    /// Least that those were on the wire: less than `bytes` where chunks were compressed.
    pub wire_bytes: u64,
    /// `bytes` per second of [`Report::elapsed`].
    pub goodput: BitRate,
    /// Most that it can carry, with packets of the size that gets through.
    pub theory: Option<BitRate>,
    /// Its state at the end.
    pub state: LinkState,
    /// Whether each connection arrived at the peer's interface that it was aimed at, and our interface carried at least the `wire_bytes`
    /// of all links on it; `None` where one of these could not be told.
    pub verified: Option<bool>,
    /// Bytes that our interface carried in the direction of the data while the transfer ran, by the kernel's count and with all headers.
    pub interface_bytes: Option<u64>,
    /// Largest packet that gets through, in bytes, where that is less than the interface's MTU.
    pub path_mtu: Option<u32>,
    /// Times that it was lost.
    pub failures: u32,
    /// How many of these were because what it carried was damaged, though TCP had taken it for right: a bad cable, card or switch.
    pub damaged: u32,
    /// What the sender's kernel says.
    pub kernel: KernelView,
}

/// What the sender's kernel says of a link's connections (TCP_INFO, tcp(7)), summed over them.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelView {
    /// Bytes sent more than once.
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time of the last connection, queues included.
    pub rtt: Option<Duration>,
    /// Time with something to send.
    pub busy: Option<Duration>,
    /// Part of it held back by the receiver's window.
    pub rwnd_limited: Option<Duration>,
    /// Part of it held back by the send buffer.
    pub sndbuf_limited: Option<Duration>,
    /// Time in which the receiver gave no credit although there was something to send (our own account, not the kernel's).
    pub starved: Option<Duration>,
}

/// What held a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The cables carried all they can.
    Cables,
    /// The limit that the user has set.
    Bandwidth,
    /// Reading the source.
    Source,
    /// Writing the target, or the receiver's processor.
    Receiver,
    /// The sender's socket buffers.
    SendBuffer,
    /// Damaged or lost packets.
    Loss,
    /// A link was down for part of the time.
    LinkDown,
    /// Opening, making and closing many small files.
    Files,
    /// The file is too small for anything else to show.
    Latency,
    /// None of these.
    Unknown,
}

impl Limit {
    /// The word for it in machine-readable output.
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
            Self::Bandwidth => "the limit that was set",
            Self::Source => "reading the source",
            Self::Receiver => "the receiver (its disk or processor)",
            Self::SendBuffer => "the send buffer",
            Self::Loss => "packets lost on the way",
            Self::LinkDown => "a link that was down",
            Self::Files => "opening and closing files",
            Self::Latency => "start and end (the file is small)",
            Self::Unknown => "something unknown",
        })
    }
}

/// Decides what held a transfer back; thresholds as the literature on TCP's own chronographs uses them (`docs/MANUAL.md`, limits).
///
/// In this order: a transfer too short to tell; the user's own limit where nine tenths of it were reached; a lost link; the cables where 97 % of theory was reached; loss above 0.1 % of the bytes;
/// a receiver that gave no credit for a fifth of the time; a sender whose connections were idle more than a fifth of the time had nothing to
/// send; a receiver's window that held it back a fifth of the busy time; the same for the send buffer. Where the links' rates are unknown
/// and none of these holds, the cables.
///
/// Of a tree the cables count from 95 %, as its files begin and end. What is small on average is limited by that where the receiver does not
/// hold it back. Nobody knows whether a tree's connections wait for the source or for the end of a file: reading is never what is told.
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
    if report.efficiency().is_some_and(|efficiency| efficiency >= full) {
        return Limit::Cables;
    }
    let sum = |part: fn(&KernelView) -> Option<Duration>| -> Option<f64> {
        report.links.iter().map(|link| part(&link.kernel).map(|time| time.as_secs_f64())).sum()
    };
    let sent: u64 = report.links.iter().map(|link| link.bytes).sum();
    let lost: u64 = report.links.iter().filter_map(|link| link.kernel.retransmitted_bytes).sum();
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
    let Some(busy) = sum(|kernel| kernel.busy) else { return Limit::Unknown };
    if busy < 0.8 * all_links {
        return if report.tree.is_some() { Limit::Unknown } else { Limit::Source };
    }
    if sum(|kernel| kernel.rwnd_limited).is_some_and(|time| time >= 0.2 * busy) {
        return Limit::Receiver;
    }
    if sum(|kernel| kernel.sndbuf_limited).is_some_and(|time| time >= 0.2 * busy) {
        return Limit::SendBuffer;
    }
    // Links whose rate nobody knows were kept busy all the time by both ends: that is all they carry.
    if report.expected.is_none() { Limit::Cables } else { Limit::Unknown }
}

/// Whether what was copied is small on average, names without bytes included.
fn is_of_small_files(tree: &TreeReport) -> bool {
    let copied = tree.files + tree.directories + tree.symlinks + tree.nodes;
    copied > 0 && tree.bytes / copied < SMALL_FILE
}

/// A file of this size takes 2 ms at 1 Gbit/s; making one durable takes as long on many disks.
const SMALL_FILE: u64 = 256 * 1024;

/// Shorter than this, start-up and the last acknowledgement are a visible part of it.
const SMALL: Duration = Duration::from_millis(200);

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
        limit(&report(Some(TreeReport { files, bytes, ..TreeReport::default() }), bytes), None)
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
        let large = TreeReport { files: 10, bytes: 10 << 20, ..TreeReport::default() };
        assert_eq!(limit(&report(Some(large), 10 << 20), None), Limit::Unknown);
        let same = TreeReport { unchanged: 1000, ..TreeReport::default() };
        assert_eq!(limit(&report(Some(same), 0), None), Limit::Unknown);
    }

    /// A link that had something to send for a tenth of the second.
    fn idle_link() -> LinkReport {
        LinkReport {
            link: LinkName { interface: "eth1".into(), peer_interface: None, local: None, remote: [10, 0, 0, 1].into() },
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
            kernel: KernelView { busy: Some(Duration::from_millis(100)), ..KernelView::default() },
        }
    }
}
