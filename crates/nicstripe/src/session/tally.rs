//! Statistics of a client's transfer: progress while it runs, and totals for the report.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, DataHeader, PathId, Session, TransferStats,
    message::StreamReport,
    path::{Path, PathStatus, all_verified},
};

use super::{
    last_progress::{LastProgress, Mark},
    path_connection::{PathConnection, view_of},
};
use crate::{
    report::{
        KernelView, LinkReport,
        event::{FileCounts, LinkName, LinkProgress, LinkState, Progress},
        link_text::{replaced, state_of},
    },
    tree::channel::WalkProgress,
};

/// Averaging period of the rates in [`Progress`].
const RATE_SPAN: Duration = Duration::from_secs(1);

/// Statistics of one transfer, for its progress and its report.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Time at which both ends had opened the file, so that data could be sent.
    pub(crate) moving_since: Option<Instant>,
    pub(crate) failovers: u32,
    /// Payload bytes sent or received, after compression.
    pub(crate) wire_bytes: u64,
    /// Effect of compression per path, including chunks that did not arrive.
    packed: BTreeMap<PathId, Packed>,
    size: Option<u64>,
    resumed: u64,
    peer_streams: BTreeMap<u16, KernelView>,
    history: VecDeque<Sample>,
    /// Totals of ended transfers: this one and the standalone files of its tree.
    pub(crate) stats: TransferStats,
    /// Latest progress of the directory walk; `None` for a transfer that is no tree.
    pub(super) walked: Option<WalkProgress>,
    pub(crate) links: Vec<LinkReport>,
    pub(super) last_progress: LastProgress,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    total: u64,
    by_path: BTreeMap<PathId, u64>,
}

impl Tally {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            moving_since: None,
            failovers: 0,
            wire_bytes: 0,
            packed: BTreeMap::new(),
            size: None,
            resumed: 0,
            peer_streams: BTreeMap::new(),
            history: VecDeque::from([Sample {
                at: now,
                total: 0,
                by_path: BTreeMap::new(),
            }]),
            stats: TransferStats::default(),
            walked: None,
            links: Vec::new(),
            last_progress: LastProgress::new(now),
        }
    }

    /// Records that data can now be sent. `size` is the file size in bytes, `None` for a pipe or
    /// tree; `resumed` is the number of bytes already durable at the receiver.
    pub(super) fn on_started(&mut self, now: Instant, size: Option<u64>, resumed: u64) {
        self.moving_since = Some(now);
        (self.size, self.resumed) = (size, resumed);
    }

    /// Returns the counters that rise with each progress, the found and finished files of a tree
    /// first. `running` holds the statistics of those of its transfers that have not ended.
    pub(super) fn mark(&self, running: &[TransferStats]) -> Mark {
        let mut stats = self.stats.clone();
        running.iter().for_each(|other| stats.add(other));
        let walked = self.walked.unwrap_or_default();
        [
            walked.files,
            walked.files_done,
            walked.bytes,
            walked.skipped_bytes,
            stats.delivered_bytes,
            stats.resumed_bytes + stats.unsent_bytes,
            self.wire_bytes,
            running.len() as u64,
            u64::from(self.moving_since.is_some()) + u64::from(walked.complete),
        ]
    }

    /// Counts the payload of a chunk sent or received on a path.
    pub(super) fn on_wire(&mut self, path: PathId, header: &DataHeader) {
        self.wire_bytes += u64::from(header.len);
        self.packed.entry(path).or_default().add(header);
    }

    /// Stores the TCP statistics that the sender reported. They describe the paths better than the
    /// receiver's.
    pub(super) fn on_peer_streams(&mut self, streams: &[StreamReport]) {
        self.peer_streams
            .extend(streams.iter().map(|report| (report.path, view_of(report))));
    }

    /// Returns the progress of a transfer; `None` before its start.
    ///
    /// `running` holds the statistics of those of its transfers that have not ended.
    pub(super) fn progress(
        &mut self,
        now: Instant,
        running: &[TransferStats],
        session: &Session,
        connections: &BTreeMap<PathId, PathConnection>,
    ) -> Option<Progress> {
        self.moving_since?;
        let mut stats = self.stats.clone();
        running.iter().for_each(|other| stats.add(other));
        // Standalone files of a tree resume one by one, so their resumed bytes add up over time.
        let (resumed, unsent) = (self.resumed.max(stats.resumed_bytes), stats.unsent_bytes);
        let sample = Sample {
            at: now,
            total: stats.delivered_bytes,
            by_path: stats.by_path,
        };
        while self.history.len() > 1
            && self
                .history
                .get(1)
                .is_some_and(|next| now.duration_since(next.at) >= RATE_SPAN)
        {
            self.history.pop_front();
        }
        let rate_since =
            |bytes: u64, at: Instant| BitRate::from_bytes_over(bytes, now.duration_since(at));
        let first = self.history.front()?;
        let mut links: Vec<LinkProgress> = Vec::new();
        let is_shown =
            |(id, path): &(PathId, &Path)| !path.is_retired() && connections.contains_key(id);
        for (id, path) in session.paths().filter(is_shown) {
            let bytes = sample.by_path.get(&id).copied().unwrap_or(0);
            let rate = rate_since(
                bytes - first.by_path.get(&id).copied().unwrap_or(0).min(bytes),
                first.at,
            );
            let link = LinkName::from(path.plan());
            match links
                .iter_mut()
                .find(|other| is_one_link(&other.link, &link))
            {
                Some(other) => {
                    other.bytes += bytes;
                    other.rate = BitRate(other.rate.0 + rate.0);
                }
                None => links.push(LinkProgress {
                    link,
                    bytes,
                    rate,
                    state: state_of(path.plan(), &path.status()),
                }),
            }
        }
        // Batches hold more than file bytes, and their content is in place a moment later.
        let size = self.walked.map_or(self.size.unwrap_or(0), |walked| {
            walked.bytes.saturating_sub(walked.skipped_bytes)
        });
        let bytes = resumed + unsent + sample.total;
        let progress = Progress {
            bytes: if self.walked.is_some() {
                bytes.min(size)
            } else {
                bytes
            },
            size,
            open: self
                .walked
                .map_or(self.size.is_none(), |walked| !walked.complete),
            files: self.walked.map(|walked| FileCounts {
                done: walked.files_done,
                found: walked.files,
            }),
            resumed,
            rate: rate_since(sample.total.saturating_sub(first.total), first.at),
            links,
        };
        self.history.push_back(sample);
        Some(progress)
    }

    pub(super) fn closed(
        mut self,
        connections: &BTreeMap<PathId, PathConnection>,
        session: &Session,
    ) -> Self {
        // The bytes of a retired path count for the link that replaced it between the same
        // interfaces.
        let (retired, others): (Vec<_>, Vec<_>) =
            session.paths().partition(|(_, path)| path.is_retired());
        for (id, path) in others.into_iter().chain(retired) {
            let Some(connection) = connections.get(&id) else {
                continue;
            };
            let bytes = self.stats.by_path.get(&id).copied().unwrap_or(0);
            if path.is_retired() && bytes == 0 {
                continue;
            }
            let kernel = self
                .peer_streams
                .get(&id.0)
                .copied()
                .unwrap_or_else(|| connection.view(Some(path)));
            let packed = self.packed.get(&id).copied().unwrap_or_default();
            self.add_link(path, (bytes, packed.least(bytes)), kernel);
        }
        self
    }

    fn add_link(&mut self, path: &Path, (bytes, wire_bytes): (u64, u64), kernel: KernelView) {
        let (failures, damaged) = (path.failures, path.damages);
        let (plan, status) = (path.plan(), path.status());
        let link = LinkName::from(plan);
        let receiving = !self.peer_streams.is_empty();
        let theory = plan.capacity.through(path.path_mtu());
        let theory = if receiving {
            theory.incoming
        } else {
            theory.outgoing
        };
        let is_same_pair = |other: &LinkName| {
            path.is_retired()
                && link.peer_interface.is_some()
                && (&other.interface, &other.peer_interface)
                    == (&link.interface, &link.peer_interface)
        };
        match self
            .links
            .iter_mut()
            .find(|other| is_one_link(&other.link, &link) || is_same_pair(&other.link))
        {
            Some(other) => {
                other.bytes += bytes;
                other.wire_bytes += wire_bytes;
                other.failures += failures;
                other.damaged += damaged;
                other.kernel = sum(&other.kernel, &kernel);
                other.theory = other.theory.min(theory);
                other.path_mtu = [other.path_mtu, path.path_mtu()]
                    .into_iter()
                    .flatten()
                    .min();
                // A first contact that another interface answered says nothing about the link that
                // replaced it.
                if !path.is_retired() {
                    other.verified = all_verified(other.verified, path.verified());
                }
                if status == PathStatus::Up {
                    other.state = LinkState::Up;
                }
            }
            None => self.links.push(LinkReport {
                link,
                bytes,
                wire_bytes,
                goodput: BitRate(0),
                theory,
                state: match status {
                    // The reason why it would have carried nothing.
                    PathStatus::LeftOut(_) if bytes > 0 => replaced(),
                    status => state_of(plan, &status),
                },
                verified: path.verified(),
                interface_bytes: None,
                path_mtu: path.path_mtu(),
                failures,
                damaged,
                kernel,
            }),
        }
    }
}

/// Effect of compression on the chunks of a path.
#[derive(Debug, Clone, Copy)]
struct Packed {
    saved: u64,
    /// Smallest share of a chunk that was sent.
    share: f64,
}

impl Default for Packed {
    fn default() -> Self {
        Self {
            saved: 0,
            share: 1.0,
        }
    }
}

impl Packed {
    fn add(&mut self, header: &DataHeader) {
        let (whole, sent) = (header.chunk_len(), header.len);
        self.saved += u64::from(whole.saturating_sub(sent));
        if whole > 0 {
            self.share = self.share.min(f64::from(sent) / f64::from(whole));
        }
    }

    /// Returns the least payload with which `bytes` were delivered. Chunks that were sent twice may
    /// have saved more than `bytes`.
    fn least(self, bytes: u64) -> u64 {
        let by_share = (bytes as f64 * self.share) as u64;
        bytes.saturating_sub(self.saved).max(by_share.min(bytes))
    }
}

/// Returns true if two paths are connections of the same link.
fn is_one_link(a: &LinkName, b: &LinkName) -> bool {
    a.interface == b.interface && a.remote == b.remote
}

fn sum(a: &KernelView, b: &KernelView) -> KernelView {
    fn add<T: std::ops::Add<Output = T>>(a: Option<T>, b: Option<T>) -> Option<T> {
        Some(a? + b?)
    }
    KernelView {
        retransmitted_bytes: add(a.retransmitted_bytes, b.retransmitted_bytes),
        rtt: a.rtt.max(b.rtt),
        busy: a.busy.max(b.busy),
        rwnd_limited: add(a.rwnd_limited, b.rwnd_limited),
        sndbuf_limited: add(a.sndbuf_limited, b.sndbuf_limited),
        starved: a.starved.max(b.starved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicstripe_proto::{
        Role, SessionConfig,
        path::{Arrival, Cause, PathPlan},
    };

    fn add(
        tally: &mut Tally,
        (interface, peer): (&str, Option<&str>),
        remote: [u8; 4],
        retired: Option<Cause>,
        arrived: Option<&str>,
        bytes: u64,
    ) {
        let (id, now) = (PathId(0), Instant::now());
        let mut session = Session::new(Role::Client, SessionConfig::default(), now);
        let plan = PathPlan {
            peer_interface: peer.map(str::to_owned),
            ..PathPlan::new(interface.into(), (remote, 7747).into())
        };
        let arrival = Arrival {
            interface: arrived.map(str::to_owned),
            ..Arrival::default()
        };
        session.handle_arrived(id, plan, &arrival, now);
        if let Some(cause) = retired {
            session.retire_path(id, cause, now);
        }
        let path = session.path(id).unwrap();
        tally.add_link(path, (bytes, bytes), KernelView::default());
    }

    #[test]
    fn a_first_contact_that_carried_everything_is_not_said_to_be_only_that() {
        let mut tally = Tally::new(Instant::now());
        for (remote, bytes) in [(1, 100), (2, 0)] {
            let retired = Some(Cause::ContactOnly);
            add(
                &mut tally,
                ("eth1", None),
                [10, 0, 0, remote],
                retired,
                None,
                bytes,
            );
        }
        let left_out = LinkState::LeftOut("used for the first contact only".into());
        let states = [replaced(), left_out];
        assert!(tally.links.iter().map(|link| &link.state).eq(&states));
    }

    #[test]
    fn chunks_that_were_sent_twice_leave_a_payload_of_what_arrived() {
        let mut packed = Packed::default();
        assert_eq!(packed.least(100), 100);
        let header = |raw_len, len| DataHeader {
            transfer: nicstripe_proto::TransferId(1),
            chunk: nicstripe_proto::ChunkId(0),
            value: nicstripe_proto::ChainingValue([0; 32]),
            len,
            raw_len,
            last: false,
        };
        (0..3).for_each(|_| packed.add(&header(1000, 20)));
        assert_eq!(packed.least(1000), 20);
        assert_eq!(packed.least(4000), 4000 - 3 * 980);
    }

    #[test]
    fn a_path_that_was_given_up_counts_for_the_link_that_took_its_place() {
        let mut tally = Tally::new(Instant::now());
        let gone = || Some(Cause::Replaced);
        for (ends, remote, retired, arrived, bytes) in [
            (
                ("eth1", Some("eth3")),
                [10, 0, 0, 1],
                None,
                Some("eth3"),
                100,
            ),
            (("eth2", Some("eth4")), [10, 0, 0, 2], None, None, 200),
            // Another address on the same cable.
            (("eth1", Some("eth3")), [169, 254, 0, 1], gone(), None, 30),
            // Other or unknown cables.
            (("eth1", Some("eth4")), [169, 254, 0, 2], gone(), None, 5),
            (("eth2", None), [169, 254, 0, 3], gone(), None, 7),
            // A first contact that another interface answered.
            (
                ("eth1", Some("eth3")),
                [169, 254, 0, 4],
                gone(),
                Some("eth4"),
                9,
            ),
        ] {
            add(&mut tally, ends, remote, retired, arrived, bytes);
        }
        let links: Vec<(&str, u64)> = tally
            .links
            .iter()
            .map(|link| (link.link.interface.as_str(), link.bytes))
            .collect();
        assert_eq!(
            links,
            [("eth1", 139), ("eth2", 200), ("eth1", 5), ("eth2", 7)]
        );
        assert_eq!(tally.links[0].verified, Some(true));
    }
}
