//! Connections of one path: the current one, and TCP statistics of earlier ones.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{TcpInfo, change_congestion, limit_unsent, tcp_info};
use nicstripe_proto::{
    BitRate, DataHeader, PathId,
    message::StreamReport,
    path::{Arrival, Path},
};
use tokio::{sync::mpsc, task::AbortHandle};

use super::congestion::{Advice, Congestion};
use crate::{
    file::ChunkBuffer,
    report::{KernelView, metrics::InterfaceBytes},
    wire::{
        stream::{Greeted, LoadCounters, Outgoing},
        tasks::TaskToken,
    },
};

/// Guard that counts a new connection until its session has received it. The peer may already use
/// this connection and have closed all others.
pub(crate) type Arriving = TaskToken;

/// New connection of a path, after the TLS handshake and the exchange of hello and welcome.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) greeted: Greeted,
    /// Second file descriptor of the socket, to read TCP_INFO.
    pub(crate) probe: Option<OwnedFd>,
    /// Where it arrived, and what is known of its packets.
    pub(crate) arrival: Arrival,
    /// Guard that counts the connection as new until the session has received it.
    pub(crate) arriving: Option<Arriving>,
}

impl Established {
    /// Wraps a TCP connection that arrived at an unknown interface, and whose path MTU is the
    /// interface's.
    pub(crate) fn new(greeted: Greeted) -> Self {
        let tcp = greeted.tls().tcp();
        Self {
            probe: tcp.as_fd().try_clone_to_owned().ok(),
            arrival: Arrival {
                local: tcp.local_addr().ok().map(|address| address.ip()),
                ..Arrival::default()
            },
            arriving: None,
            greeted,
        }
    }
}

/// Connections of one path; at most one is open. The path itself is the protocol's.
#[derive(Debug, Default)]
pub(super) struct PathConnection {
    /// Sequence number of the current connection. Events of earlier connections are ignored.
    pub(super) generation: u64,
    /// Generation of the last connection on which the peer violated the protocol.
    misbehaved: Option<u64>,
    /// Counters of benchmark load in bytes, over all connections of the path.
    pub(super) load_counters: Arc<LoadCounters>,
    /// Payload bytes since the last report to the metrics.
    pub(super) moved: InterfaceBytes,
    pub(super) connecting: bool,
    open: Option<Open>,
    /// TCP statistics of closed connections, summed.
    past: KernelView,
}

#[derive(Debug)]
struct Open {
    outgoing: mpsc::Sender<Outgoing>,
    task: AbortHandle,
    probe: Option<OwnedFd>,
    congestion: Congestion,
    /// Congestion control used before the last change; `None` if it never changed.
    before: Option<String>,
    /// Limit of the socket's unsent data in bytes.
    unsent: u32,
}

/// Name of the congestion control that is based on rate and round-trip time (Linux 4.9).
const BBR: &str = "bbr";

/// Capacity of the queue to a connection's task, in frames. Flow control limits data to 16 chunks
/// and control frames are few, so a full queue means that the task is stuck.
const OUTGOING_QUEUE: usize = 256;

/// Least and greatest limit of a socket's unsent data in bytes. Each new connection has the least
/// one.
const UNSENT: (u32, u32) = (128 << 10, 2 << 20);

/// Returns the limit of unsent data on a path of this rate: the power of two below 10 ms, for less
/// than one wake-up per chunk at 1 Gbit/s, and because on full processors a thread that was woken
/// runs some milliseconds later.
fn unsent_limit(rate: Option<BitRate>) -> u32 {
    let bytes = rate.map_or(0, |rate| rate.0 / 8 / 100);
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    bytes
        .checked_ilog2()
        .map_or(0, |log2| 1 << log2)
        .clamp(UNSENT.0, UNSENT.1)
}

impl PathConnection {
    pub(super) fn queue() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
        mpsc::channel(OUTGOING_QUEUE)
    }

    pub(super) fn open(
        &mut self,
        outgoing: mpsc::Sender<Outgoing>,
        task: AbortHandle,
        probe: Option<OwnedFd>,
    ) {
        self.open = Some(Open {
            outgoing,
            task,
            probe,
            congestion: Congestion::new(),
            before: None,
            unsent: UNSENT.0,
        });
    }

    /// Aborts the current connection without flushing it.
    pub(super) fn close(&mut self) {
        self.past = self.kernel();
        if let Some(open) = self.open.take() {
            open.task.abort();
        }
    }

    /// Releases the connection, which flushes its queue and then ends.
    pub(super) fn release(&mut self) {
        self.past = self.kernel();
        self.open = None;
    }

    /// Records that the peer violated the protocol. Returns true if it is the first violation on
    /// this connection. Frames that were queued before it was closed may cause further ones.
    pub(super) fn misbehaved(&mut self) -> bool {
        self.misbehaved.replace(self.generation) != Some(self.generation)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns true if the path is connected and its queue has capacity for another frame.
    pub(super) fn has_room(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.outgoing.capacity() > 0)
    }

    pub(super) fn send_chunk(&mut self, header: DataHeader, buffer: Arc<ChunkBuffer>) -> bool {
        self.moved.sent += u64::from(header.len);
        self.send(Outgoing::Chunk { header, buffer })
    }

    /// Returns a second file descriptor of the current connection's socket.
    pub(super) fn probe(&self) -> Option<&OwnedFd> {
        self.open.as_ref()?.probe.as_ref()
    }

    /// Returns the kernel's TCP_INFO of the current connection.
    pub(super) fn tcp(&self) -> Option<TcpInfo> {
        tcp_info(self.probe()?).ok()
    }

    pub(super) fn send(&self, outgoing: Outgoing) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.outgoing.try_send(outgoing).is_ok())
    }

    /// Switches the congestion control if random loss requires it. Call every
    /// [`WINDOW`](super::congestion::WINDOW).
    pub(super) fn update_congestion(&mut self, interface: &str, now: Instant) {
        let Some(open) = self
            .open
            .as_mut()
            .filter(|open| !open.congestion.is_settled())
        else {
            return;
        };
        let Some((probe, info)) = open
            .probe
            .as_ref()
            .and_then(|probe| Some((probe, tcp_info(probe).ok()?)))
        else {
            return;
        };
        let (name, advice) = match open.congestion.on_info(&info, now) {
            Some(Advice::Try) => (BBR, "tried"),
            Some(Advice::Return) => (open.before.as_deref().unwrap_or_default(), "taken back"),
            None => return,
        };
        match change_congestion(probe, name) {
            Ok(before) => {
                tracing::debug!(interface, name, "packet loss: congestion control {advice}");
                open.before = Some(before);
            }
            Err(error) => {
                tracing::debug!(interface, name, %error, "cannot change congestion control");
                open.congestion.on_refused();
            }
        }
    }

    /// Adapts the limit of the socket's unsent data to the measured rate of the path, so that a fast
    /// link wakes its connection less often and a slow one has little committed to it.
    pub(super) fn update_unsent(&mut self, rate: Option<BitRate>) {
        let Some(open) = &mut self.open else { return };
        let limit = unsent_limit(rate);
        if let Some(probe) = open.probe.as_ref().filter(|_| limit != open.unsent) {
            // Without the option everything works as before.
            let _ = limit_unsent(probe, limit);
            open.unsent = limit;
        }
    }

    /// Returns the TCP statistics of all connections of this path, summed.
    fn kernel(&self) -> KernelView {
        self.tcp().map_or(self.past, |info| add(&self.past, &info))
    }

    /// Returns the TCP statistics of this path, including the time in which data waited for credit.
    pub(super) fn view(&self, path: Option<&Path>) -> KernelView {
        KernelView {
            starved: path.map(|path| path.starved),
            ..self.kernel()
        }
    }

    /// Returns the statistics of [`view`](Self::view) in the form sent to the peer.
    pub(super) fn stream_report(&self, id: PathId, path: Option<&Path>) -> StreamReport {
        let view = self.view(path);
        let micros = |time: Duration| time.as_micros() as u64;
        StreamReport {
            path: id.0,
            retransmitted_bytes: view.retransmitted_bytes,
            rtt_us: view.rtt.map(micros),
            busy_us: view.busy.map(micros),
            rwnd_limited_us: view.rwnd_limited.map(micros),
            sndbuf_limited_us: view.sndbuf_limited.map(micros),
            starved_us: view.starved.map(micros),
        }
    }
}

fn add(past: &KernelView, info: &TcpInfo) -> KernelView {
    let sum = |past: Option<Duration>, now: Option<Duration>| {
        now.map(|now| past.unwrap_or_default() + now).or(past)
    };
    KernelView {
        retransmitted_bytes: info
            .bytes_retrans
            .map(|bytes| past.retransmitted_bytes.unwrap_or(0) + bytes)
            .or(past.retransmitted_bytes),
        rtt: Some(info.rtt),
        busy: sum(past.busy, info.busy),
        rwnd_limited: sum(past.rwnd_limited, info.rwnd_limited),
        sndbuf_limited: sum(past.sndbuf_limited, info.sndbuf_limited),
        starved: past.starved,
    }
}

/// Converts statistics received from the peer.
pub(super) fn view_of(report: &StreamReport) -> KernelView {
    KernelView {
        retransmitted_bytes: report.retransmitted_bytes,
        rtt: report.rtt_us.map(Duration::from_micros),
        busy: report.busy_us.map(Duration::from_micros),
        rwnd_limited: report.rwnd_limited_us.map(Duration::from_micros),
        sndbuf_limited: report.sndbuf_limited_us.map(Duration::from_micros),
        starved: report.starved_us.map(Duration::from_micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_path_may_have_more_unsent_data() {
        for (mbit, kib) in [(10, 128), (100, 128), (400, 256), (941, 1024), (9410, 2048)] {
            let limit = unsent_limit(Some(BitRate(mbit * 1_000_000)));
            assert_eq!(limit, kib << 10, "{mbit} Mbit/s");
        }
        assert_eq!(unsent_limit(None), UNSENT.0);
        assert_eq!(unsent_limit(Some(BitRate(u64::MAX))), UNSENT.1);
    }
}
