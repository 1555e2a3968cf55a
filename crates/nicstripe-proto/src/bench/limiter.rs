//! What holds a link, or all of them, back.

use std::time::Duration;

use crate::{
    bench::{repeat::GOOD_SCALING, theory},
    units::BitRate,
};

/// What holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// A processor core, or the quota of a control group.
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

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The one that sends.
    Sender,
    /// The one that receives.
    Receiver,
}

/// What the processors of one machine did in a window. Parts are from 0 to 1, of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processor {
    /// How busy the busiest core was.
    pub worst_core: Option<f64>,
    /// How many cores our own process kept busy.
    pub process_cores: Option<f64>,
    /// How long the quota of a control group held the process back; of several threads the sum.
    pub throttled: Option<f64>,
    /// How many cores that quota is.
    pub quota_cores: Option<f64>,
}

impl Processor {
    /// Whether a quota holds the process back.
    fn is_at_quota(&self) -> bool {
        let uses_it_up = self.process_cores.zip(self.quota_cores).is_some_and(|(used, quota)| used >= FULL_CORE * quota);
        self.throttled.is_some_and(|throttled| throttled >= THROTTLED_FROM) || uses_it_up
    }

    /// Whether a core has no time left.
    fn has_full_core(&self) -> bool {
        self.worst_core.is_some_and(|busy| busy >= FULL_CORE)
    }

    /// Whether that is our own doing: what else runs on the machine does not make our program slow if the scheduler is fair.
    fn is_full_of_us(&self) -> bool {
        self.has_full_core() && self.process_cores.is_some_and(|cores| cores >= OWN_CORE)
    }
}

/// A socket's buffer as the kernel tells it (`getsockopt`): twice what was asked for on Linux, which keeps half for its own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes.
    pub bytes: u64,
    /// Whether it was asked for; else the kernel sizes it, and has done so up to now.
    pub is_fixed: bool,
}

/// What is known of a link in a window. What is not known is `None` and proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// What it carried.
    pub goodput: BitRate,
    /// The most that it can carry.
    pub theory: Option<BitRate>,
    /// What it carries alone, where others were loaded as well.
    pub alone: Option<BitRate>,
    /// Time with something to send, as a part of the window.
    pub busy: Option<f64>,
    /// Part of the busy time in which the receiver's window held the sender back.
    pub rwnd_limited: Option<f64>,
    /// Part of the busy time in which the send buffer did.
    pub sndbuf_limited: Option<f64>,
    /// Bytes sent again as a part of those sent.
    pub loss: Option<f64>,
    /// The same when it was loaded alone.
    pub loss_alone: Option<f64>,
    /// The shortest round trip without load.
    pub round_trip: Option<Duration>,
    /// The mean round trip under load.
    pub loaded_round_trip: Option<Duration>,
    /// The sending machine.
    pub sender: Processor,
    /// The receiving machine.
    pub receiver: Processor,
    /// The sender's buffer.
    pub send_buffer: Option<Buffer>,
    /// The receiver's buffer.
    pub receive_buffer: Option<Buffer>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What holds back.
    pub limiter: Limiter,
    /// At which end, of [`Limiter::Cpu`].
    pub at: Option<End>,
    /// Whether a quota does it, of [`Limiter::Cpu`].
    pub by_quota: bool,
}

impl Finding {
    /// Returns a finding that has no end.
    pub const fn of(limiter: Limiter) -> Finding {
        Finding { limiter, at: None, by_quota: false }
    }

    const fn cpu(at: End, by_quota: bool) -> Finding {
        Finding { limiter: Limiter::Cpu, at: Some(at), by_quota }
    }
}

/// Returns what holds a link back.
///
/// In this order, of which the first that applies is taken. The thresholds are those of web100's and NDT's diagnosis, of `TCP_INFO`'s times
/// (busy, rwnd-limited, sndbuf-limited: since Linux 4.10), and of measurements in namespaces (a slow reader: 54 % rwnd-limited; a buffer of
/// 16 KiB: 100 %; a sender that sleeps: 2 % busy).
///
/// 1. At 97 % of theory: loss, if 0.08 % of the bytes are sent again, else the cable. First, as nothing else matters then: a core may be
///    busy and a window closed for a while at full rate. Loss is told all the same, as one packet in a thousand costs TCP only 1 % on a cable
///    and shows a bad one; loss that comes only with the load of other links is not the cable's.
/// 2. A quota that throttles: a process that stands still looks like a program that is slow, at either end.
/// 3. A send buffer that the kernel sizes and that is less than it begins with, or one that was asked for and is full, where it is not the
///    receiver's window that holds back (5): the window or the send buffer. Its time in `TCP_INFO` stays 0 where the kernel always has
///    something unsent (`tcp_cwnd_validate`), and a sender that waits for room may look idle.
/// 4. Busy for less than 80 % of the time: the sender, or its processor where that is full of us.
/// 5. Held back by the receiver's window for 20 % of it: the window or the receive buffer if that is small, else the receiver, or its
///    processor.
/// 6. Held back by the send buffer for 20 %: the window or the send buffer.
/// 7. A core that is busy for 90 %: the processor.
/// 8. Loss as above.
/// 9. Less than 95 % of what the link carries alone: something shared. Without theory, 97 % of it are the cable.
/// 10. A buffer below bandwidth × delay: the window. One that is full, as it holds no more than what is carried in a round trip under load:
///     that buffer. Else it is unknown.
pub fn of_link(evidence: &Evidence) -> Finding {
    let reaches = |rate: Option<BitRate>| rate.is_some_and(|rate| evidence.goodput.0 as f64 >= FULL_RATE * rate.0 as f64);
    if reaches(evidence.theory) {
        return Finding::of(if evidence.is_lossy() { Limiter::Loss } else { Limiter::Cable });
    }
    evidence
        .quota()
        .or_else(|| evidence.limited_send_buffer())
        .or_else(|| evidence.program())
        .or_else(|| evidence.full_core())
        .or_else(|| evidence.is_lossy().then(|| Finding::of(Limiter::Loss)))
        .or_else(|| evidence.is_less_than_alone().then(|| Finding::of(Limiter::Shared)))
        .or_else(|| (evidence.theory.is_none() && reaches(evidence.alone)).then(|| Finding::of(Limiter::Cable)))
        .or_else(|| evidence.is_windowed().then(|| Finding::of(Limiter::Window)))
        .or_else(|| evidence.full_buffer())
        .unwrap_or(Finding::of(Limiter::Unknown))
}

impl Evidence {
    fn processors(&self) -> [(End, Processor); 2] {
        [(End::Sender, self.sender), (End::Receiver, self.receiver)]
    }

    fn quota(&self) -> Option<Finding> {
        let at = self.processors().into_iter().find(|(_, processor)| processor.is_at_quota());
        at.map(|(end, _)| Finding::cpu(end, true))
    }

    fn limited_send_buffer(&self) -> Option<Finding> {
        let is_limited = |buffer: &Buffer| if buffer.is_fixed { self.is_full(*buffer) } else { buffer.bytes < FIRST_SEND_BUFFER_BYTES };
        // What the kernel does count comes first.
        let buffer = self.send_buffer.filter(|_| !is_held(self.rwnd_limited)).filter(is_limited)?;
        Some(Finding::of(if self.is_short_for_round_trip(buffer) { Limiter::Window } else { Limiter::SendBuffer }))
    }

    fn full_buffer(&self) -> Option<Finding> {
        let is_full = |buffer: Option<Buffer>| buffer.is_some_and(|buffer| self.is_full(buffer));
        let found = is_full(self.send_buffer).then_some(Limiter::SendBuffer);
        found.or_else(|| is_full(self.receive_buffer).then_some(Limiter::ReceiveBuffer)).map(Finding::of)
    }

    /// Whether the half of a buffer that is a window is no more than what is under way: one that the kernel sizes is more, as it leaves
    /// room to grow (`tcp_sndbuf_expand`, `tcp_rcv_space_adjust`: twice of it).
    fn is_full(&self, buffer: Buffer) -> bool {
        self.loaded_round_trip.is_some_and(|round_trip| buffer.bytes / 2 <= theory::bdp(self.goodput, round_trip))
    }

    /// Steps 4 to 6: what TCP says of its programs and buffers.
    fn program(&self) -> Option<Finding> {
        let slow = |end, processor: Processor, limiter| match processor.is_full_of_us() {
            true => Finding::cpu(end, false),
            false => Finding::of(limiter),
        };
        if self.busy.is_some_and(|busy| busy < BUSY_FROM) {
            return Some(slow(End::Sender, self.sender, Limiter::Sender));
        }
        if is_held(self.rwnd_limited) {
            let of_buffer = self.receive_buffer.and_then(|buffer| self.of_buffer(buffer, Limiter::ReceiveBuffer));
            return Some(of_buffer.unwrap_or_else(|| slow(End::Receiver, self.receiver, Limiter::Receiver)));
        }
        if is_held(self.sndbuf_limited) {
            let of_buffer = self.send_buffer.and_then(|buffer| self.of_buffer(buffer, Limiter::SendBuffer));
            return Some(of_buffer.unwrap_or(Finding::of(Limiter::SendBuffer)));
        }
        None
    }

    /// Whether a buffer that holds the sender back is too small, and for what.
    fn of_buffer(&self, buffer: Buffer, limiter: Limiter) -> Option<Finding> {
        if self.is_short_for_round_trip(buffer) {
            return Some(Finding::of(Limiter::Window));
        }
        let enough = match (buffer.is_fixed, self.expected().zip(self.round_trip)) {
            (true, Some((rate, round_trip))) => theory::buffer_to_ask_for(rate, round_trip),
            (true, None) => theory::SUFFICIENT_BUFFER_BYTES,
            (false, _) => FIRST_BUFFER_BYTES,
        };
        (buffer.bytes < enough).then(|| Finding::of(limiter))
    }

    /// Whether the half of a buffer that is a window is less than bandwidth × delay, on a link where it is the delay that makes it so.
    fn is_short_for_round_trip(&self, buffer: Buffer) -> bool {
        let is_short = |(rate, round_trip)| round_trip >= LONG_ROUND_TRIP && buffer.bytes / 2 < theory::bdp(rate, round_trip);
        self.expected().zip(self.round_trip).is_some_and(is_short)
    }

    fn is_windowed(&self) -> bool {
        self.receive_buffer.into_iter().chain(self.send_buffer).any(|buffer| self.is_short_for_round_trip(buffer))
    }

    fn full_core(&self) -> Option<Finding> {
        let full = self.processors().into_iter().filter(|(_, processor)| processor.has_full_core());
        let worst = full.max_by(|(_, a), (_, b)| a.worst_core.unwrap_or_default().total_cmp(&b.worst_core.unwrap_or_default()));
        worst.map(|(end, _)| Finding::cpu(end, false))
    }

    fn is_lossy(&self) -> bool {
        let is_much = |loss: f64| loss >= LOSS_FROM;
        self.loss.is_some_and(is_much) && self.loss_alone.is_none_or(is_much)
    }

    fn is_less_than_alone(&self) -> bool {
        self.alone.is_some_and(|alone| (self.goodput.0 as f64) < GOOD_SCALING * alone.0 as f64)
    }

    fn expected(&self) -> Option<BitRate> {
        self.theory.or(self.alone)
    }
}

/// What was found of one link, to be joined with what was found of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkFinding<'a> {
    /// What people call it.
    pub name: &'a str,
    /// What holds it back.
    pub finding: Finding,
    /// What it carried.
    pub goodput: BitRate,
    /// What it should: theory, or what it carries alone where that is not known.
    pub expected: Option<BitRate>,
    /// Bytes sent again as a part of those sent.
    pub loss: Option<f64>,
}

impl LinkFinding<'_> {
    fn missing(&self) -> u64 {
        self.expected.map_or(0, |expected| expected.0.saturating_sub(self.goodput.0))
    }
}

/// What holds all links back.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// What.
    pub finding: Finding,
    /// The links that it holds back, by their places.
    pub links: Vec<usize>,
    /// Which of them share something with each other, of [`Limiter::Shared`]: one group, unless pairs were measured that say more.
    pub groups: Vec<Vec<usize>>,
}

/// Returns what holds all links of a load back; `None` without links.
///
/// What costs most of what could be expected, summed over the links that have the same limiter. A link that is not full is told however
/// little it matters to the total, but for one of which nothing is known where the total is 97 % of what is expected.
pub fn of_all(links: &[LinkFinding<'_>]) -> Option<Whole> {
    let all = || (0..links.len()).collect::<Vec<usize>>();
    let of = |limiter: Limiter| all().into_iter().filter(|place| links[*place].finding.limiter == limiter).collect::<Vec<usize>>();
    let missing = |limiter: &Limiter| of(*limiter).iter().map(|place| links[*place].missing()).fold(0, u64::saturating_add);
    let is_full = {
        let expected: Option<Vec<BitRate>> = links.iter().map(|link| link.expected).collect();
        let expected: Option<BitRate> = expected.map(|rates| rates.into_iter().sum());
        let goodput: BitRate = links.iter().map(|link| link.goodput).sum();
        expected.is_some_and(|expected| goodput.0 as f64 >= FULL_RATE * expected.0 as f64)
    };
    let mut causes: Vec<Limiter> = links.iter().map(|link| link.finding.limiter).collect();
    causes.retain(|limiter| *limiter != Limiter::Cable && !(is_full && *limiter == Limiter::Unknown));
    causes.sort_unstable();
    causes.dedup();
    // The first of those that cost the same.
    let limiter = causes.into_iter().rev().max_by_key(missing);
    let Some(limiter) = limiter else {
        return (!links.is_empty()).then(|| Whole { finding: Finding::of(Limiter::Cable), links: all(), groups: Vec::new() });
    };
    let held = of(limiter);
    let finding = held.iter().map(|place| links[*place].finding).max_by_key(|finding| finding.by_quota)?;
    // What one link shares, it shares with another.
    let held = if limiter == Limiter::Shared && held.len() == 1 { all() } else { held };
    let groups = if limiter == Limiter::Shared { vec![held.clone()] } else { Vec::new() };
    Some(Whole { finding, links: held, groups })
}

/// Names of the two ends, for people.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The machine that sends.
    pub sender: &'a str,
    /// The machine that receives.
    pub receiver: &'a str,
}

/// Returns what holds all links back in words, which go on a sentence: `limited by …`.
pub fn sentence(whole: &Whole, links: &[LinkFinding<'_>], names: Names<'_>) -> String {
    let held: Vec<&LinkFinding<'_>> = whole.links.iter().filter_map(|place| links.get(*place)).collect();
    let list = listed(&held.iter().map(|link| link.name).collect::<Vec<&str>>());
    let Names { sender, receiver } = names;
    let host = if whole.finding.at == Some(End::Sender) { sender } else { receiver };
    match whole.finding.limiter {
        Limiter::Cable => cables(&held),
        Limiter::Sender => format!("limited by the program on {sender}, which has too little to send over {list}"),
        Limiter::Receiver => format!("limited by the program on {receiver}, which does not take fast enough what {list} could bring"),
        Limiter::ReceiveBuffer => format!("limited by the receive buffer on {receiver}, which is too small for {list}"),
        Limiter::SendBuffer => format!("limited by the send buffer on {sender}, which is too small for {list}"),
        Limiter::Cpu if whole.finding.by_quota => format!("limited by the processor quota of a control group on {host}"),
        Limiter::Cpu => format!("limited by the processor of {host}, one core of which has no time left"),
        Limiter::Loss => format!("limited by lost packets on {list}{}: try another cable or port", resent(&held)),
        Limiter::Shared => shared(&whole.groups, links),
        Limiter::Window => format!("limited by the round trip of {list}: bandwidth × delay is more than the socket buffers allow"),
        Limiter::Unknown => format!("limited by something unknown on {list}"),
    }
}

fn cables(held: &[&LinkFinding<'_>]) -> String {
    if held.len() == 1 {
        return "limited by the cable, which carries all it can".into();
    }
    let best = held.iter().filter_map(|link| link.expected).max().unwrap_or_default();
    let slow = held.iter().filter(|link| link.expected.is_some_and(|rate| rate.0 < best.0 / 2));
    let slow: Vec<String> = slow.map(|link| format!("{} ({} at most)", link.name, link.expected.unwrap_or_default())).collect();
    let is = if slow.len() == 1 { "is a slow line" } else { "are slow lines" };
    let slow = if slow.is_empty() { String::new() } else { format!("; {} {is}", listed(&slow)) };
    format!("limited by the cables, which carry all they can{slow}")
}

fn shared(groups: &[Vec<usize>], links: &[LinkFinding<'_>]) -> String {
    let names = |group: &Vec<usize>| group.iter().filter_map(|place| links.get(*place)).map(|link| link.name).collect::<Vec<&str>>();
    let things: Vec<String> = groups.iter().map(|group| format!("something that {} share", listed(&names(group)))).collect();
    format!("limited by {}, as they carry more alone: a bus, a card or a switch", listed(&things))
}

fn resent(held: &[&LinkFinding<'_>]) -> String {
    let worst = held.iter().filter_map(|link| link.loss).fold(0.0, f64::max);
    if worst > 0.0 { format!(" ({:.2} % of the bytes were sent again)", worst * 100.0) } else { String::new() }
}

/// Returns `a`, `a and b` or `a, b and c`.
pub fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn is_held(part: Option<f64>) -> bool {
    part.is_some_and(|part| part >= HELD_BACK_FROM)
}

/// From here on a link carries what it can: a shaped link repeats to 1 %, and acknowledgements of the other direction take up to 3 %.
pub const FULL_RATE: f64 = 0.97;

/// Part of the time with something to send below which the program is slow.
const BUSY_FROM: f64 = 0.8;
/// Part of the busy time from which on a window or a buffer holds back.
const HELD_BACK_FROM: f64 = 0.2;
/// From here on a core has no time left.
const FULL_CORE: f64 = 0.9;
/// Cores that our process keeps busy from which on a full core is its doing: the kernel does a part of the work.
const OWN_CORE: f64 = 0.7;
/// Part of the window that a quota may hold the process back, as it does for a moment when a load begins.
const THROTTLED_FROM: f64 = 0.05;
/// Bytes sent again, as a part of those sent: 0.1 %, less what chance takes off a bad cable that loses so many (3 σ of 240,000 packets).
const LOSS_FROM: f64 = 0.0008;
/// What Linux begins with (`tcp_rmem`, 128 KiB): a buffer that it sizes and that is less has been limited.
const FIRST_BUFFER_BYTES: u64 = 128 * 1024;
/// What a connection's send buffer is at least when it is made: room for twice the first 10 segments (`tcp_sndbuf_expand`), each with what
/// the kernel keeps beside it, 2304 bytes. One that the kernel sizes and that is less has been limited (`tcp_wmem`).
const FIRST_SEND_BUFFER_BYTES: u64 = 20 * 2304;
/// Below it no window that a system comes with is too small: a gigabit needs 125 KB.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
