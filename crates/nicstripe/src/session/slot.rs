//! The connections of one path: what was planned, what is connected, what the kernel said of those that are over.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{TcpInfo, change_congestion, tcp_info};
use nicstripe_proto::{BitRate, DataHeader, Frame, PathId, message::StreamReport, path::Path};
use socket2::SockRef;
use tokio::{sync::mpsc, task::AbortHandle};

use super::{
    congestion::{Advice, Congestion},
    input::Arriving,
};
use crate::{
    daemon::InterfaceBytes,
    event::{LinkName, LinkState},
    file::ChunkBuffer,
    report::KernelView,
    stream::{Greeted, LoadCounters, Outgoing},
};

/// Where a path leads, as the client planned it or as the daemon learnt it.
#[derive(Debug, Clone)]
pub(crate) struct PathPlan {
    /// Our interface.
    pub(crate) interface: String,
    /// Our address, if it is to be bound.
    pub(crate) local: Option<IpAddr>,
    /// The peer's address and port.
    pub(crate) remote: SocketAddr,
    /// The peer's interface at which it must arrive, where that is known.
    pub(crate) peer_interface: Option<String>,
    /// Most that it can carry from us and to us, if known.
    pub(crate) capacity: Capacities,
    /// The user's limit for this link.
    pub(crate) cap: Option<BitRate>,
    /// Whether the user named it: then it is an error that it does not connect.
    pub(crate) named: bool,
    /// Whether it is only there to meet the peer, and goes when another path is up.
    pub(crate) contact_only: bool,
    /// Whether it must not carry data until then, as the user named others or left it out.
    pub(crate) no_data: bool,
}

impl PathPlan {
    pub(crate) fn link(&self) -> LinkName {
        LinkName {
            interface: self.interface.clone(),
            peer_interface: self.peer_interface.clone(),
            local: self.local,
            remote: self.remote.ip(),
        }
    }
}

/// Most goodput that a link can have in each direction, where known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) outgoing: Option<BitRate>,
    pub(crate) incoming: Option<BitRate>,
}

/// The same, with packets of the interfaces' size and with those of an Ethernet without jumbo frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capacities {
    pub(crate) full: Capacity,
    pub(crate) narrow: Capacity,
    /// What they were computed from.
    pub(crate) rates: LinkRates,
}

/// Rates before any header is taken off, where known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkRates {
    /// Of the slower end's line.
    pub(crate) line: Option<BitRate>,
    /// Of a shaper in front of our line, and of one in front of theirs; see `Theory::goodput_of_shaper` for how it counts.
    pub(crate) shapers: [Option<BitRate>; 2],
}

impl Capacities {
    /// What counts where packets above `path_mtu` do not get through, if that is known of it.
    pub(crate) fn through(&self, path_mtu: Option<u32>) -> Capacity {
        if path_mtu.is_some() { self.narrow } else { self.full }
    }
}

/// A connection that is authenticated and said hello.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) greeted: Greeted,
    /// A second handle to the socket, for TCP_INFO.
    pub(crate) probe: Option<OwnedFd>,
    /// The local address it has.
    pub(crate) local: Option<IpAddr>,
    /// Whether it arrived where it was aimed at; `None` where nobody could tell.
    pub(crate) verified: Option<bool>,
    /// Largest packet that gets through, where that is less than the interface's MTU.
    pub(crate) path_mtu: Option<u32>,
    /// Kept until the session has the connection.
    pub(crate) arriving: Option<Arriving>,
}

/// One path's connections.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) plan: PathPlan,
    pub(super) state: LinkState,
    pub(super) verified: Option<bool>,
    pub(super) path_mtu: Option<u32>,
    /// Number of the connection; what an older one still says is ignored.
    pub(super) generation: u64,
    pub(super) retired: bool,
    /// What its connections have carried of benches.
    pub(super) load_counters: Arc<LoadCounters>,
    /// Payload since it was reported last.
    pub(super) moved: InterfaceBytes,
    /// Whether a connection is being made.
    pub(super) connecting: bool,
    open: Option<Open>,
    /// What the kernel said of the connections that are over.
    past: KernelView,
}

#[derive(Debug)]
struct Open {
    outgoing: mpsc::Sender<Outgoing>,
    task: AbortHandle,
    probe: Option<OwnedFd>,
    congestion: Congestion,
    /// The congestion control that it had at first, where it has another.
    before: Option<String>,
}

/// The congestion control that goes by rate and round trip (Linux 4.9).
const BBR: &str = "bbr";

/// Frames that may wait for a stream's task. Data is limited to 16 chunks by its flow, and control frames are few: a full queue means that
/// the task has hung.
const OUTGOING_QUEUE: usize = 256;

impl Slot {
    pub(super) fn new(plan: PathPlan) -> Self {
        Self {
            plan,
            state: LinkState::Connecting,
            verified: None,
            path_mtu: None,
            generation: 0,
            retired: false,
            load_counters: Arc::default(),
            moved: InterfaceBytes::default(),
            connecting: false,
            open: None,
            past: KernelView::default(),
        }
    }

    /// Returns the two ends of a new connection's queue.
    pub(super) fn queue() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
        mpsc::channel(OUTGOING_QUEUE)
    }

    /// A connection is up.
    pub(super) fn open(&mut self, outgoing: mpsc::Sender<Outgoing>, task: AbortHandle, probe: Option<OwnedFd>) {
        self.open = Some(Open { outgoing, task, probe, congestion: Congestion::new(), before: None });
    }

    /// The connection is over, or to be ended.
    pub(super) fn close(&mut self) {
        self.past = self.kernel();
        if let Some(open) = self.open.take() {
            open.task.abort();
        }
    }

    /// Lets go of the connection, which sends what it has queued and then ends by itself.
    pub(super) fn release(&mut self) {
        self.past = self.kernel();
        self.open = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether another frame can be handed to the connection.
    pub(super) fn has_room(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.outgoing.capacity() > 0)
    }

    pub(super) fn send_frame(&self, frame: Frame) -> bool {
        self.send(Outgoing::Frame(frame))
    }

    pub(super) fn send_chunk(&mut self, header: DataHeader, buffer: Arc<ChunkBuffer>) -> bool {
        self.moved.sent += u64::from(header.len);
        self.send(Outgoing::Chunk { header, buffer })
    }

    /// Hands over what is of a bench.
    pub(super) fn send_bench(&self, outgoing: Outgoing) -> bool {
        self.send(outgoing)
    }

    /// What the kernel says of the connection.
    pub(super) fn tcp(&self) -> Option<TcpInfo> {
        tcp_info(self.open.as_ref()?.probe.as_ref()?).ok()
    }

    /// Asks for socket buffers of so many bytes, and returns what the kernel gave: to send, and to receive.
    pub(super) fn set_buffers(&self, bytes: u64) -> Option<(u64, u64)> {
        let socket = SockRef::from(self.open.as_ref()?.probe.as_ref()?);
        let wanted = usize::try_from(bytes).ok()?;
        // What the kernel gave counts, not what it said.
        let _ = (socket.set_send_buffer_size(wanted), socket.set_recv_buffer_size(wanted));
        self.buffers()
    }

    /// The socket's buffers as the kernel tells them, which is twice of what was asked for: to send, and to receive.
    pub(super) fn buffers(&self) -> Option<(u64, u64)> {
        let socket = SockRef::from(self.open.as_ref()?.probe.as_ref()?);
        Some((socket.send_buffer_size().ok()? as u64, socket.recv_buffer_size().ok()? as u64))
    }

    fn send(&self, outgoing: Outgoing) -> bool {
        self.open.as_ref().is_some_and(|open| open.outgoing.try_send(outgoing).is_ok())
    }

    /// Sees to it that losses do not slow the connection more than they must; to be called several times a second.
    pub(super) fn tend(&mut self, now: Instant) {
        let Some(open) = self.open.as_mut().filter(|open| !open.congestion.is_settled()) else { return };
        let Some((probe, info)) = open.probe.as_ref().and_then(|probe| Some((probe, tcp_info(probe).ok()?))) else { return };
        let (name, advice) = match open.congestion.on_info(&info, now) {
            Some(Advice::Try) => (BBR, "tried"),
            Some(Advice::Return) => (open.before.as_deref().unwrap_or_default(), "taken back"),
            None => return,
        };
        match change_congestion(probe, name) {
            Ok(before) => {
                tracing::debug!(interface = %self.plan.interface, name, "packets get lost: another congestion control is {advice}");
                open.before = Some(before);
            }
            Err(error) => {
                tracing::debug!(interface = %self.plan.interface, name, %error, "no other congestion control");
                open.congestion.on_refused();
            }
        }
    }

    /// What the kernel says of all connections that this path has had.
    fn kernel(&self) -> KernelView {
        let info = self.open.as_ref().and_then(|open| tcp_info(open.probe.as_ref()?).ok());
        info.map_or(self.past, |info| add(&self.past, &info))
    }

    /// The same, and how long the path waited for credit.
    pub(super) fn view(&self, path: Option<&Path>) -> KernelView {
        KernelView { starved: path.map(Path::starved), ..self.kernel() }
    }

    /// The same, for the peer.
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
    let sum = |past: Option<Duration>, now: Option<Duration>| now.map(|now| past.unwrap_or_default() + now).or(past);
    KernelView {
        retransmitted_bytes: info.bytes_retrans.map(|bytes| past.retransmitted_bytes.unwrap_or(0) + bytes).or(past.retransmitted_bytes),
        rtt: Some(info.rtt),
        busy: sum(past.busy, info.busy),
        rwnd_limited: sum(past.rwnd_limited, info.rwnd_limited),
        sndbuf_limited: sum(past.sndbuf_limited, info.sndbuf_limited),
        starved: past.starved,
    }
}

/// Takes what the peer's kernel said.
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
