//! Diagnosis of the limiting factor of one link, or of all links together.

use std::time::Duration;

use nicstripe_proto::BitRate;

use crate::{repeat::GOOD_SCALING, report::Limiter};

/// Role of a machine in a flow of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Machine that sends the data.
    Sender,
    /// Machine that receives the data.
    Receiver,
}

/// CPU load of one machine during a measurement window. Shares of time are from 0 to 1; `None`
/// means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Processor {
    /// Share of time in which the busiest core was not idle.
    pub(crate) worst_core: Option<f64>,
    /// Average number of cores that the bench process kept busy.
    pub(crate) process_cores: Option<f64>,
    /// Share of time in which the CPU quota of a cgroup throttled the process, summed over its
    /// threads.
    pub(crate) throttled: Option<f64>,
    /// CPU quota of the cgroup in cores.
    pub(crate) quota_cores: Option<f64>,
}

impl Processor {
    fn is_at_quota(&self) -> bool {
        let uses_it_up = self
            .process_cores
            .zip(self.quota_cores)
            .is_some_and(|(used, quota)| used >= FULL_CORE * quota);
        self.throttled
            .is_some_and(|throttled| throttled >= THROTTLED_FROM)
            || uses_it_up
    }

    /// Returns true if the busiest core was busy for at least 90 % of the time.
    fn has_full_core(&self) -> bool {
        self.worst_core.is_some_and(|busy| busy >= FULL_CORE)
    }

    /// Returns true if a core is full and the bench process itself uses at least 0.7 cores. Other
    /// processes do not slow it if the scheduler is fair.
    fn is_full_of_us(&self) -> bool {
        self.has_full_core() && self.process_cores.is_some_and(|cores| cores >= OWN_CORE)
    }
}

/// Socket buffer as reported by `getsockopt`. Linux doubles the requested size and uses half of it
/// for bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Size in bytes, including the half for bookkeeping.
    pub(crate) bytes: u64,
    /// True if the size was requested, false if the kernel chose it.
    pub(crate) is_fixed: bool,
}

/// Measurements of a link in one window, from which [`of_link`] finds the limiting factor. `None`
/// means unknown, and supports no conclusion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Evidence {
    /// Measured goodput of the link.
    pub(crate) goodput: BitRate,
    /// Theoretical maximum of the goodput.
    pub(crate) theory: Option<BitRate>,
    /// Goodput when only this link was loaded; `None` if unknown, or if no other link is loaded in
    /// this window.
    pub(crate) alone: Option<BitRate>,
    /// Share of the window in which the sender had data to send, from 0 to 1 (`tcpi_busy_time`).
    pub(crate) busy: Option<f64>,
    /// Share of the busy time in which the receiver's window limited the sender, from 0 to 1
    /// (`tcpi_rwnd_limited`).
    pub(crate) rwnd_limited: Option<f64>,
    /// Share of the busy time in which the send buffer limited the sender, from 0 to 1
    /// (`tcpi_sndbuf_limited`).
    pub(crate) sndbuf_limited: Option<f64>,
    /// Retransmitted bytes as a share of the sent bytes, from 0 to 1.
    pub(crate) loss: Option<f64>,
    /// Retransmitted share, from 0 to 1, when no other link was loaded.
    pub(crate) loss_alone: Option<f64>,
    /// Minimum RTT without load.
    pub(crate) round_trip: Option<Duration>,
    /// Mean RTT under load.
    pub(crate) loaded_round_trip: Option<Duration>,
    /// CPU load of the sending machine.
    pub(crate) sender: Processor,
    /// CPU load of the receiving machine.
    pub(crate) receiver: Processor,
    /// Send buffer of the sender's socket.
    pub(crate) send_buffer: Option<Buffer>,
    /// Receive buffer of the receiver's socket.
    pub(crate) receive_buffer: Option<Buffer>,
}

/// Diagnosis of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Factor that limits the link.
    pub(crate) limiter: Limiter,
    /// Machine with the busy CPU; only for [`Limiter::Cpu`].
    pub(crate) at: Option<End>,
    /// True if a CPU quota is the cause; only for [`Limiter::Cpu`].
    pub(crate) by_quota: bool,
}

impl Finding {
    /// Creates a finding that names no machine.
    pub(crate) const fn of(limiter: Limiter) -> Finding {
        Finding {
            limiter,
            at: None,
            by_quota: false,
        }
    }

    const fn cpu(at: End, by_quota: bool) -> Finding {
        Finding {
            limiter: Limiter::Cpu,
            at: Some(at),
            by_quota,
        }
    }
}

/// Returns the limiting factor of a link: the first of these that applies.
///
/// Thresholds are those of web100 and NDT, applied to `TCP_INFO` (busy, rwnd-limited,
/// sndbuf-limited: since Linux 4.10), and from measurements in namespaces: a slow reader is 54 %
/// rwnd-limited, a buffer of 16 KiB 100 %; a sender that sleeps is 2 % busy.
///
/// 1. At 97 % of theory: loss if 0.08 % of the bytes are retransmitted, otherwise the cable. Comes
///    first, since at full rate a core may be busy and a window closed for a while. Loss is
///    reported anyway: one packet in a thousand costs TCP only 1 %, but shows a bad cable. Loss
///    that occurs only under load on other links is not the cable's.
/// 2. A CPU quota that throttles: a stopped process looks like a slow program, at either end.
/// 3. A send buffer below the kernel's initial size, or a requested one that is full: the window or
///    the send buffer, unless the receiver's window is the limit (5). Its time in `TCP_INFO` stays
///    0 while the kernel always has unsent data (`tcp_cwnd_validate`), and a sender that waits for
///    buffer space may look idle.
/// 4. Busy for less than 80 % of the time: the sender, or its CPU if the bench fills a core.
/// 5. Limited by the receiver's window for 20 % of the busy time: the window or the receive buffer
///    if that is small. Otherwise the receiver or its CPU.
/// 6. Limited by the send buffer for 20 % of the busy time: the window or the send buffer.
/// 7. A core that is busy for 90 %: the CPU.
/// 8. Loss as above.
/// 9. Below 95 % of the rate alone: a shared resource. Without theory, 97 % of that rate count as
///    the cable.
/// 10. A buffer below the bandwidth-delay product: the window. A buffer that holds no more than one
///     loaded RTT carries: that buffer. Otherwise unknown.
pub(crate) fn of_link(evidence: &Evidence) -> Finding {
    let reaches = |rate: Option<BitRate>| {
        rate.is_some_and(|rate| evidence.goodput.0 as f64 >= FULL_RATE * rate.0 as f64)
    };
    if reaches(evidence.theory) {
        return Finding::of(if evidence.is_lossy() {
            Limiter::Loss
        } else {
            Limiter::Cable
        });
    }
    evidence
        .quota()
        .or_else(|| evidence.limited_send_buffer())
        .or_else(|| evidence.program())
        .or_else(|| evidence.full_core())
        .or_else(|| evidence.is_lossy().then(|| Finding::of(Limiter::Loss)))
        .or_else(|| {
            evidence
                .is_less_than_alone()
                .then(|| Finding::of(Limiter::Shared))
        })
        .or_else(|| {
            (evidence.theory.is_none() && reaches(evidence.alone))
                .then(|| Finding::of(Limiter::Cable))
        })
        .or_else(|| evidence.is_windowed().then(|| Finding::of(Limiter::Window)))
        .or_else(|| evidence.full_buffer())
        .unwrap_or(Finding::of(Limiter::Unknown))
}

impl Evidence {
    fn processors(&self) -> [(End, Processor); 2] {
        [(End::Sender, self.sender), (End::Receiver, self.receiver)]
    }

    fn quota(&self) -> Option<Finding> {
        let at = self
            .processors()
            .into_iter()
            .find(|(_, processor)| processor.is_at_quota());
        at.map(|(end, _)| Finding::cpu(end, true))
    }

    fn limited_send_buffer(&self) -> Option<Finding> {
        let is_limited = |buffer: &Buffer| {
            if buffer.is_fixed {
                self.is_full(*buffer)
            } else {
                buffer.bytes < FIRST_SEND_BUFFER_BYTES
            }
        };
        // The kernel's own measurement takes precedence.
        let buffer = self
            .send_buffer
            .filter(|_| !is_held(self.rwnd_limited))
            .filter(is_limited)?;
        Some(Finding::of(if self.is_short_for_round_trip(buffer) {
            Limiter::Window
        } else {
            Limiter::SendBuffer
        }))
    }

    fn full_buffer(&self) -> Option<Finding> {
        let is_full = |buffer: Option<Buffer>| buffer.is_some_and(|buffer| self.is_full(buffer));
        let found = is_full(self.send_buffer).then_some(Limiter::SendBuffer);
        found
            .or_else(|| is_full(self.receive_buffer).then_some(Limiter::ReceiveBuffer))
            .map(Finding::of)
    }

    /// Returns true if the usable half of a buffer is no more than the data in flight at the
    /// measured goodput and loaded RTT. A buffer sized by the kernel has room to grow to twice the
    /// data in flight (`tcp_sndbuf_expand`, `tcp_rcv_space_adjust`).
    fn is_full(&self, buffer: Buffer) -> bool {
        self.loaded_round_trip
            .is_some_and(|round_trip| buffer.bytes / 2 <= self.goodput.bytes_in(round_trip))
    }

    /// Applies steps 4 to 6 of [`of_link`]: programs and buffers, by the times in `TCP_INFO`.
    fn program(&self) -> Option<Finding> {
        let slow = |end, processor: Processor, limiter| match processor.is_full_of_us() {
            true => Finding::cpu(end, false),
            false => Finding::of(limiter),
        };
        if self.busy.is_some_and(|busy| busy < BUSY_FROM) {
            return Some(slow(End::Sender, self.sender, Limiter::Sender));
        }
        if is_held(self.rwnd_limited) {
            let of_buffer = self
                .receive_buffer
                .and_then(|buffer| self.of_buffer(buffer, Limiter::ReceiveBuffer));
            return Some(
                of_buffer.unwrap_or_else(|| slow(End::Receiver, self.receiver, Limiter::Receiver)),
            );
        }
        if is_held(self.sndbuf_limited) {
            let of_buffer = self
                .send_buffer
                .and_then(|buffer| self.of_buffer(buffer, Limiter::SendBuffer));
            return Some(of_buffer.unwrap_or(Finding::of(Limiter::SendBuffer)));
        }
        None
    }

    /// Returns [`Limiter::Window`] or `limiter` if a buffer that limits the sender is too small;
    /// `None` if it is large enough.
    fn of_buffer(&self, buffer: Buffer, limiter: Limiter) -> Option<Finding> {
        if self.is_short_for_round_trip(buffer) {
            return Some(Finding::of(Limiter::Window));
        }
        let enough = match (buffer.is_fixed, self.expected().zip(self.round_trip)) {
            (true, Some((rate, round_trip))) => buffer_to_ask_for(rate, round_trip),
            (true, None) => SUFFICIENT_BUFFER_BYTES,
            (false, _) => FIRST_BUFFER_BYTES,
        };
        (buffer.bytes < enough).then(|| Finding::of(limiter))
    }

    /// Returns true if the RTT is at least 1 ms and the usable half of a buffer is below the
    /// bandwidth-delay product.
    fn is_short_for_round_trip(&self, buffer: Buffer) -> bool {
        let is_short = |(rate, round_trip): (BitRate, Duration)| {
            round_trip >= LONG_ROUND_TRIP && buffer.bytes / 2 < rate.bytes_in(round_trip)
        };
        self.expected().zip(self.round_trip).is_some_and(is_short)
    }

    fn is_windowed(&self) -> bool {
        self.receive_buffer
            .into_iter()
            .chain(self.send_buffer)
            .any(|buffer| self.is_short_for_round_trip(buffer))
    }

    fn full_core(&self) -> Option<Finding> {
        let full = self
            .processors()
            .into_iter()
            .filter(|(_, processor)| processor.has_full_core());
        let worst = full.max_by(|(_, a), (_, b)| {
            a.worst_core
                .unwrap_or_default()
                .total_cmp(&b.worst_core.unwrap_or_default())
        });
        worst.map(|(end, _)| Finding::cpu(end, false))
    }

    fn is_lossy(&self) -> bool {
        let is_much = |loss: f64| loss >= LOSS_FROM;
        self.loss.is_some_and(is_much) && self.loss_alone.is_none_or(is_much)
    }

    fn is_less_than_alone(&self) -> bool {
        self.alone
            .is_some_and(|alone| (self.goodput.0 as f64) < GOOD_SCALING * alone.0 as f64)
    }

    fn expected(&self) -> Option<BitRate> {
        self.theory.or(self.alone)
    }
}

/// Diagnosis and rates of one link, as input of [`of_all`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkFinding {
    /// Display name of the link.
    pub(crate) name: String,
    /// Diagnosis of the link by [`of_link`].
    pub(crate) finding: Finding,
    /// Measured goodput of the link.
    pub(crate) goodput: BitRate,
    /// Expected goodput: the theoretical one, or if it is unknown, that of this link loaded alone.
    pub(crate) expected: Option<BitRate>,
    /// Retransmitted bytes as a share of the sent bytes, from 0 to 1.
    pub(crate) loss: Option<f64>,
}

impl LinkFinding {
    fn missing(&self) -> u64 {
        self.expected
            .map_or(0, |expected| expected.0.saturating_sub(self.goodput.0))
    }
}

/// Diagnosis of all links together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole<'a> {
    /// Factor that limits the links.
    pub(crate) finding: Finding,
    /// Limited links.
    pub(crate) links: Vec<&'a LinkFinding>,
}

/// Returns the limiting factor of all links under load; `None` without links.
///
/// Chooses the factor with the largest shortfall of goodput, summed over its links, however small.
/// [`Limiter::Unknown`] is ignored while the total is at 97 % of the expected goodput.
pub(crate) fn of_all(links: &[LinkFinding]) -> Option<Whole<'_>> {
    let of = |limiter: Limiter| {
        let held = links.iter();
        held.filter(move |link| link.finding.limiter == limiter)
    };
    let missing = |limiter: &Limiter| {
        of(*limiter)
            .map(LinkFinding::missing)
            .fold(0, u64::saturating_add)
    };
    let is_full = {
        let expected: Option<Vec<BitRate>> = links.iter().map(|link| link.expected).collect();
        let expected: Option<BitRate> = expected.map(|rates| rates.into_iter().sum());
        let goodput: BitRate = links.iter().map(|link| link.goodput).sum();
        expected.is_some_and(|expected| goodput.0 as f64 >= FULL_RATE * expected.0 as f64)
    };
    let mut causes: Vec<Limiter> = links.iter().map(|link| link.finding.limiter).collect();
    causes
        .retain(|limiter| *limiter != Limiter::Cable && !(is_full && *limiter == Limiter::Unknown));
    causes.sort_unstable();
    causes.dedup();
    // The first of those with an equal shortfall.
    let limiter = causes.into_iter().rev().max_by_key(missing);
    let Some(limiter) = limiter else {
        return (!links.is_empty()).then(|| Whole {
            finding: Finding::of(Limiter::Cable),
            links: links.iter().collect(),
        });
    };
    let finding = of(limiter)
        .map(|link| link.finding)
        .max_by_key(|finding| finding.by_quota)?;
    // A single link must share the resource with another one.
    let is_all = limiter == Limiter::Shared && of(limiter).count() == 1;
    Some(Whole {
        finding,
        links: match is_all {
            true => links.iter().collect(),
            false => of(limiter).collect(),
        },
    })
}

/// Display names of the two machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// Name of the sending machine.
    pub(crate) sender: &'a str,
    /// Name of the receiving machine.
    pub(crate) receiver: &'a str,
}

/// Describes the limiting factor of all links in words that follow a subject: `limited by …`.
/// `groups` names links that share a resource, if pairs of links were measured.
pub(crate) fn sentence(whole: &Whole<'_>, groups: &[Vec<&str>], names: Names<'_>) -> String {
    let held: Vec<&str> = whole.links.iter().map(|link| &*link.name).collect();
    let list = listed(&held);
    let Names { sender, receiver } = names;
    let host = if whole.finding.at == Some(End::Sender) {
        sender
    } else {
        receiver
    };
    match whole.finding.limiter {
        Limiter::Cable => cables(&whole.links),
        Limiter::Sender => {
            format!("limited by the program on {sender}: too little data for {list}")
        }
        Limiter::Receiver => {
            format!("limited by the program on {receiver}: reads slower than {list} can deliver")
        }
        Limiter::ReceiveBuffer => {
            format!("limited by the receive buffer on {receiver}: too small for {list}")
        }
        Limiter::SendBuffer => {
            format!("limited by the send buffer on {sender}: too small for {list}")
        }
        Limiter::Cpu if whole.finding.by_quota => {
            format!("limited by the CPU quota of a cgroup on {host}")
        }
        Limiter::Cpu => format!("limited by the processor of {host}: one core is saturated"),
        Limiter::Loss => format!(
            "limited by lost packets on {list}{}: try another cable or port",
            resent(&whole.links)
        ),
        Limiter::Shared if groups.is_empty() => shared(&[held]),
        Limiter::Shared => shared(groups),
        Limiter::Window => format!(
            "limited by the round trip of {list}: bandwidth × delay exceeds the socket buffers"
        ),
        Limiter::Unknown => format!("limited by an unknown cause on {list}"),
    }
}

fn cables(held: &[&LinkFinding]) -> String {
    if held.len() == 1 {
        return "limited by the cable, at its full rate".into();
    }
    let best = held
        .iter()
        .filter_map(|link| link.expected)
        .max()
        .unwrap_or_default();
    let slow = held
        .iter()
        .filter(|link| link.expected.is_some_and(|rate| rate.0 < best.0 / 2));
    let slow: Vec<String> = slow
        .map(|link| {
            format!(
                "{} carries {}",
                link.name,
                link.expected.unwrap_or_default()
            )
        })
        .collect();
    let slow = match slow.is_empty() {
        true => String::new(),
        false => format!("; {} at most", listed(&slow)),
    };
    format!("limited by the cables, at their full rate{slow}")
}

fn shared(groups: &[Vec<&str>]) -> String {
    let things: Vec<String> = groups
        .iter()
        .map(|group| format!("a resource shared by {}", listed(group)))
        .collect();
    format!(
        "limited by {}, such as a bus, card or switch: each alone is faster",
        listed(&things)
    )
}

fn resent(held: &[&LinkFinding]) -> String {
    let worst = held.iter().filter_map(|link| link.loss).fold(0.0, f64::max);
    if worst > 0.0 {
        format!(" ({:.2} % of the bytes were retransmitted)", worst * 100.0)
    } else {
        String::new()
    }
}

/// Joins names as `a`, `a and b` or `a, b and c`.
pub fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the socket buffer in bytes to request so that it does not limit a link: four times the
/// bandwidth-delay product, at least 256 KiB.
///
/// `round_trip` is the RTT under load. One factor of two is for the bookkeeping of Linux, the other
/// for variation. The minimum is the plateau of a cable without delay (measured: 64 KiB give 874
/// and 256 KiB 941 of 941.5 Mbit/s).
fn buffer_to_ask_for(rate: BitRate, round_trip: Duration) -> u64 {
    rate.bytes_in(round_trip)
        .saturating_mul(4)
        .max(SUFFICIENT_BUFFER_BYTES)
}

fn is_held(part: Option<f64>) -> bool {
    part.is_some_and(|part| part >= HELD_BACK_FROM)
}

/// Minimum share of the expected goodput at which a link counts as full: repeats on a shaped link
/// agree within 1 %, and acknowledgements of the other direction take up to 3 %.
pub(crate) const FULL_RATE: f64 = 0.97;

/// Socket buffer in bytes below which even a cable without delay loses goodput (measured: 64 KiB
/// give 874 and 256 KiB 941 of 941.5 Mbit/s).
pub const SUFFICIENT_BUFFER_BYTES: u64 = 256 * 1024;

/// Minimum share of time with data to send; below it, the sending program is the limit.
pub const BUSY_FROM: f64 = 0.8;
/// Minimum share of the busy time at which the receiver's window or the send buffer counts as the
/// limit.
pub const HELD_BACK_FROM: f64 = 0.2;
/// Minimum busy share of time at which a core counts as full.
pub const FULL_CORE: f64 = 0.9;
/// Minimum number of cores used by the bench process for it to explain a full core. Less than 1,
/// because the kernel does a part of the work.
pub const OWN_CORE: f64 = 0.7;
/// Minimum share of throttled time at which a quota counts as the limit. A quota throttles briefly
/// when a load begins.
pub const THROTTLED_FROM: f64 = 0.05;
/// Minimum share of retransmitted bytes at which a link counts as lossy: 0.1 %, less random
/// deviation (3 σ of 240,000 packets).
pub const LOSS_FROM: f64 = 0.0008;
/// Initial receive buffer of Linux in bytes (`tcp_rmem`, 128 KiB). A smaller buffer sized by the
/// kernel indicates a restriction.
const FIRST_BUFFER_BYTES: u64 = 128 * 1024;
/// Minimum initial send buffer of Linux in bytes: twice the first 10 segments (`tcp_sndbuf_expand`)
/// at 2304 bytes each, with kernel overhead. A smaller buffer sized by the kernel indicates a
/// restriction (`tcp_wmem`).
const FIRST_SEND_BUFFER_BYTES: u64 = 20 * 2304;
/// Minimum RTT at which a default window may be too small. At 1 ms, a gigabit link needs only 125
/// KB.
pub const LONG_ROUND_TRIP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
