//! Properties of a cable: line rate, MTU, delay, its connection to the hosts, and the values
//! derived from them.

use std::time::Duration;

use crate::{
    error::LabError,
    host::Host,
    rate::{BitRate, ETHERNET_HEADER, Shaping},
};

/// Maximum number of links in a lab. Link `i` uses the subnet 10.77.`i + 1`.0/24, so the third
/// octet limits the number.
pub const MAX_LINKS: usize = 254;

/// Maximum number of links in a lab of [one subnet](crate::LabBuilder::one_subnet): host A's
/// address range ends where B's begins.
pub const MAX_LINKS_IN_ONE_SUBNET: usize = 10;

/// Configuration of one cable: its line rate in each direction (full duplex), its MTU, and its
/// connection to the hosts.
///
/// The line rate is the nominal rate of a switch: bits on the wire, including all Ethernet
/// overhead. On a real cable a frame takes 38 bytes more than its packet (preamble 8, header 14,
/// check sequence 4, gap 12; IEEE 802.3). tbf counts only the packet and 14 bytes of header. Its
/// rate is therefore line rate × (MTU + 14) ÷ (MTU + 38), and full frames move exactly as on the
/// cable. Smaller ones are undercounted: a bare acknowledgement as 66 of 90 bytes.
///
/// | field | default | bounds |
/// | --- | --- | --- |
/// | line rate | given by the constructor | 8 kbit/s and up, or unshaped: as fast as the CPU |
/// | MTU | 1500 bytes | 1280 (minimum of IPv6, RFC 8200) to 65535 (maximum of veth) bytes |
/// | MTU of the middle | that of the hosts | same bounds; no effect if above the hosts' |
/// | IPv4 addresses | one on each host | or none: [`bare`](Self::bare) |
/// | hosts | both | or one: [`only_on`](Self::only_on) |
/// | delay, each way | none | up to one second |
/// | place of the shaper | the sending host | or the middle: [`shaped_in_the_middle`](Self::shaped_in_the_middle) |
/// | initial state | plugged in | or not: [`unplugged`](Self::unplugged) |
///
/// [`LabBuilder::build`](crate::LabBuilder::build) checks the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    line_rate: Option<BitRate>,
    mtu: u32,
    middle_mtu: Option<u32>,
    only_on: Option<Host>,
    /// True if the hosts have no IPv4 address on this cable.
    pub(crate) is_bare: bool,
    /// True if the cable is unplugged when the lab is built.
    pub(crate) starts_unplugged: bool,
    /// True if the middle shapes the frames, false if the sending host does.
    pub(crate) is_shaped_in_the_middle: bool,
    delay: Duration,
}

impl LinkSpec {
    /// Returns a cable of this line rate (unshaped for `None`) with an MTU of 1500 bytes.
    pub fn new(line_rate: impl Into<Option<BitRate>>) -> Self {
        Self {
            line_rate: line_rate.into(),
            mtu: ETHERNET_MTU,
            middle_mtu: None,
            only_on: None,
            is_bare: false,
            starts_unplugged: false,
            is_shaped_in_the_middle: false,
            delay: Duration::ZERO,
        }
    }

    /// Returns a cable of 1 Gbit/s, which carries 941.5 Mbit/s of goodput.
    pub fn gigabit() -> Self {
        Self::new(BitRate::gbit(1))
    }

    /// Returns a cable with a line rate of `megabits` Mbit/s.
    pub fn mbit(megabits: u64) -> Self {
        Self::new(BitRate::mbit(megabits))
    }

    /// Returns a cable without a line rate, limited only by the CPU.
    pub fn unshaped() -> Self {
        Self::new(None)
    }

    /// Sets the MTU of the hosts' interfaces, in bytes.
    pub fn with_mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Sets the MTU of the middle of the cable, in bytes: the length of the largest packet that it
    /// passes, like that of a switch without jumbo frame support.
    ///
    /// Larger packets are lost silently in both directions: the middle has no IP, and sending them
    /// causes no error. On such a cable the hosts send each packet as a separate frame, because
    /// superpackets would pass. This costs CPU. No counter of either host includes the packets lost
    /// in the middle.
    pub fn with_middle_mtu(self, middle_mtu: u32) -> Self {
        Self {
            middle_mtu: Some(middle_mtu),
            ..self
        }
    }

    /// Leaves the interfaces unconfigured: up, with only the link-local IPv6 address that the
    /// kernel assigns ([`Lab::link_local`](crate::Lab::link_local)).
    pub fn bare(self) -> Self {
        Self {
            is_bare: true,
            ..self
        }
    }

    /// Leaves the cable unplugged until [`Lab::heal`](crate::Lab::heal). Both hosts have the
    /// interface, up and with its IPv4 address, but no carrier, and thus no link-local IPv6 address
    /// yet.
    pub fn unplugged(self) -> Self {
        Self {
            starts_unplugged: true,
            ..self
        }
    }

    /// Gives only this host an interface on the cable. The cable's other end is not connected, or
    /// is in the switch of a lab of [one subnet](crate::LabBuilder::one_subnet). The interface has
    /// carrier.
    pub fn only_on(self, host: Host) -> Self {
        Self {
            only_on: Some(host),
            ..self
        }
    }

    /// Shapes the frames in the middle of the cable, so that the hosts see no shaper. The sender
    /// then learns the rate only by the delay of its packets: the queue is longer than the window
    /// of the hosts' connections, so nothing is lost.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) the receiving interface's port shapes.
    pub fn shaped_in_the_middle(self) -> Self {
        Self {
            is_shaped_in_the_middle: true,
            ..self
        }
    }

    /// Sets the delay of each frame in each direction; the round-trip time is twice as long.
    ///
    /// Threads of this process hold the frames: two per cable, which copy each superpacket of up to
    /// 64 KiB twice. On a busy machine frames are late by the threads' scheduling delay. A
    /// direction holds at most twice the bytes in flight at line rate, plus 4 MiB, and drops
    /// further frames.
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sets the line rate; `None` removes the limit.
    pub fn with_rate(self, line_rate: impl Into<Option<BitRate>>) -> Self {
        Self {
            line_rate: line_rate.into(),
            ..self
        }
    }

    /// Returns the line rate in each direction; `None` if unshaped.
    pub fn line_rate(self) -> Option<BitRate> {
        self.line_rate
    }

    /// Returns the MTU of the hosts' interfaces in bytes: the length of the largest IP packet that
    /// they send.
    pub fn mtu(self) -> u32 {
        self.mtu
    }

    /// Returns the length of the largest IP packet that the cable passes, in bytes: at most
    /// [`mtu`](Self::mtu).
    pub(crate) fn middle_mtu(self) -> u32 {
        self.middle_mtu
            .map_or(self.mtu, |middle| middle.min(self.mtu))
    }

    /// Returns the delay of each frame in each direction.
    pub fn delay(self) -> Duration {
        self.delay
    }

    /// Returns true if a host has an interface on this cable.
    pub fn is_on(self, host: Host) -> bool {
        self.only_on.is_none_or(|only| only == host)
    }

    /// Returns the hosts that have an interface on this cable.
    pub(crate) fn hosts(self) -> impl Iterator<Item = Host> {
        Host::ALL.into_iter().filter(move |&host| self.is_on(host))
    }

    /// Returns the maximum TCP payload rate over IPv4 with timestamps, in one direction; `None` if
    /// unshaped.
    ///
    /// Line rate × (MTU − 52) ÷ (MTU + 38): IPv4 header 20, TCP header 20, timestamps 12 (RFC
    /// 7323). 941.5 Mbit/s for 1 Gbit/s at MTU 1500. IPv6 carries 20 bytes less per packet.
    pub fn goodput(self) -> Option<BitRate> {
        self.line_rate
            .map(|rate| rate.scaled(self.mtu.saturating_sub(52), self.mtu.saturating_add(38)))
    }

    /// Checks the bounds in the doc of [`LinkSpec`]; `link` is the link's index, for the error
    /// message.
    pub(crate) fn check(self, link: usize) -> Result<(), LabError> {
        let mtus = [self.mtu, self.middle_mtu.unwrap_or(self.mtu)];
        if let Some(&mtu) = mtus.iter().find(|mtu| !(MIN_MTU..=MAX_MTU).contains(*mtu)) {
            return Err(LabError::Invalid(format!(
                "link {link}: mtu of {mtu} bytes is outside {MIN_MTU} to {MAX_MTU}"
            )));
        }
        if self.delay > MAX_DELAY {
            let [delay, limit] = [self.delay, MAX_DELAY].map(|time| time.as_millis());
            return Err(LabError::Invalid(format!(
                "link {link}: delay of {delay} ms exceeds the limit of {limit}"
            )));
        }
        match self.line_rate {
            Some(rate) if rate < MIN_RATE => Err(LabError::Invalid(format!(
                "link {link}: line rate of {rate} is below the least, {MIN_RATE}"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns true if the middle's MTU is below the hosts', so that it may drop their packets.
    pub(crate) fn has_narrow_middle(self) -> bool {
        self.middle_mtu() < self.mtu
    }

    /// Returns the MTU in bytes of the middle's ports, with which they pass exactly the packets up
    /// to [`middle_mtu`](Self::middle_mtu).
    ///
    /// It is lower by the length of a VLAN tag, because the kernel passes frames that exceed a
    /// port's MTU by that length (`__is_skb_forwardable`, `include/linux/netdevice.h`).
    pub(crate) fn port_mtu(self) -> u32 {
        if self.has_narrow_middle() {
            self.middle_mtu() - VLAN_TAG
        } else {
            self.mtu
        }
    }

    /// Returns the egress queue of a host's interface.
    pub(crate) fn queue(self) -> Queue {
        match self.shaping().filter(|_| !self.is_shaped_in_the_middle) {
            Some(shaping) => Queue::Shaped(shaping),
            // Without a queue, veth would report the middle port's drop to the sender.
            None if self.has_narrow_middle() => Queue::Plain,
            None => Queue::None,
        }
    }

    /// Returns the tbf parameters of the middle's ports; `None` if they do not shape.
    pub(crate) fn middle_shaping(self) -> Option<Shaping> {
        let shaping = self.shaping().filter(|_| self.is_shaped_in_the_middle)?;
        Some(Shaping {
            queue_bytes: shaping.queue_bytes.max(MIDDLE_QUEUE),
            ..shaping
        })
    }

    /// Returns the tbf parameters of this cable; `None` if unshaped.
    pub(crate) fn shaping(self) -> Option<Shaping> {
        let rate = self
            .line_rate?
            .scaled(self.mtu + ETHERNET_HEADER, self.mtu + ETHERNET_OVERHEAD);
        Some(rate.shaping_of_frames(self.mtu))
    }

    /// Returns the maximum number of bytes that a relay holds in one direction of this cable. This
    /// is twice the bytes in flight at line rate, plus 4 MiB for the jitter of the relay's threads,
    /// and at most [`MAX_ROOM`].
    pub(crate) fn room(self) -> usize {
        let rate = self
            .line_rate
            .map_or(UNSHAPED_BYTES_PER_SECOND, |rate| rate.bits_per_second() / 8);
        let on_the_way = (rate as f64 * self.delay.as_secs_f64()) as usize;
        on_the_way
            .saturating_mul(2)
            .saturating_add(4 << 20)
            .min(MAX_ROOM)
    }

    pub(crate) fn is_delayed(self) -> bool {
        !self.delay.is_zero()
    }
}

/// Egress queue of a host's interface on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Queue that tbf empties at the line rate.
    Shaped(Shaping),
    /// FIFO queue that does not limit the rate.
    Plain,
    /// No queue: the sending thread itself puts frames on the cable.
    None,
}

const ETHERNET_MTU: u32 = 1500;
const MIN_MTU: u32 = 1280;
const MAX_MTU: u32 = 65535;

/// Minimum line rate. Below it one frame takes more than a second, and measurements are useless
/// (picked by eye).
pub(crate) const MIN_RATE: BitRate = BitRate::from_bits_per_second(8_000);

/// Maximum delay in one direction: five times around the earth by fibre.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Assumed rate of an unshaped cable, for the bytes in flight: 10 Gbit/s.
const UNSHAPED_BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Maximum number of bytes that a relay holds in one direction of a cable.
const MAX_ROOM: usize = 256 << 20;

/// Minimum queue of a middle port that shapes, in bytes: more than eight connections have in flight
/// with the hosts' `tcp_wmem`.
const MIDDLE_QUEUE: u32 = 64 << 20;

/// Length of a VLAN tag in bytes, by which a frame may exceed a port's MTU; smaller than any valid
/// MTU.
const VLAN_TAG: u32 = 4;

/// Overhead of a frame on the wire in bytes: preamble 8, header 14, check sequence 4, gap 12.
const ETHERNET_OVERHEAD: u32 = 38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_link_carries_1448_of_1538_bytes() {
        assert_eq!(
            LinkSpec::gigabit().goodput(),
            Some(BitRate::from_bits_per_second(941_482_445))
        );
        let jumbo = LinkSpec::gigabit().with_mtu(9000);
        assert_eq!(
            jumbo.goodput(),
            Some(BitRate::from_bits_per_second(990_042_045))
        );
        assert_eq!(LinkSpec::unshaped().goodput(), None);
    }

    #[test]
    fn tbf_gets_the_line_rate_without_what_it_does_not_count() {
        let shaping = LinkSpec::gigabit().shaping().unwrap();
        // 10^9 × 1514 ÷ 1538 = 984,395,319 bit/s.
        assert_eq!(shaping.bytes_per_second, 123_049_414);
        assert_eq!(shaping.queue_bytes, 1_514_000);
        assert!(LinkSpec::unshaped().shaping().is_none());
    }

    #[test]
    fn a_gigabit_burst_holds_four_superpackets() {
        let burst = LinkSpec::gigabit().shaping().unwrap().burst_bytes;
        assert!((256_000..=270_000).contains(&burst), "{burst}");
    }

    #[test]
    fn an_idle_slow_link_sends_ten_frames_at_once_and_no_more() {
        assert_eq!(LinkSpec::mbit(10).shaping().unwrap().burst_bytes, 15_140);
    }

    #[test]
    fn the_queue_of_a_fast_link_holds_two_bursts() {
        let shaping = LinkSpec::new(BitRate::gbit(100)).shaping().unwrap();
        assert_eq!(shaping.queue_bytes, 2 * shaping.burst_bytes);
    }

    #[test]
    fn the_fastest_rate_there_is_does_not_overflow() {
        let spec = LinkSpec::new(BitRate::from_bits_per_second(u64::MAX)).with_mtu(MAX_MTU);
        assert!(
            spec.shaping()
                .is_some_and(|shaping| shaping.bytes_per_second > 1 << 60)
        );
        assert!(spec.goodput() < spec.line_rate());
    }

    #[test]
    fn rates_and_mtus_out_of_bounds_are_refused_by_name() {
        let error = LinkSpec::gigabit().with_mtu(576).check(3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 3: mtu of 576 bytes is outside 1280 to 65535"
        );
        let error = LinkSpec::mbit(0).check(0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 0: line rate of 0 bit/s is below the least, 8 kbit/s"
        );
        let error = LinkSpec::gigabit()
            .with_middle_mtu(65536)
            .check(1)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 1: mtu of 65536 bytes is outside 1280 to 65535"
        );
        LinkSpec::unshaped().with_mtu(65535).check(0).unwrap();
    }

    #[test]
    fn a_cable_is_shaped_at_its_hosts_or_in_its_middle() {
        let at_hosts = LinkSpec::gigabit();
        assert_eq!(at_hosts.middle_shaping(), None);
        let between = at_hosts.shaped_in_the_middle();
        assert_eq!(between.queue(), Queue::None);
        let shaping = between.middle_shaping().unwrap();
        assert_eq!(shaping.bytes_per_second, 123_049_414);
        assert_eq!(shaping.queue_bytes, MIDDLE_QUEUE);
    }

    #[test]
    fn a_middle_is_narrow_when_it_passes_less_than_the_hosts_send() {
        let narrow = LinkSpec::unshaped().with_mtu(9000).with_middle_mtu(1500);
        assert_eq!(
            (narrow.middle_mtu(), narrow.port_mtu(), narrow.queue()),
            (1500, 1496, Queue::Plain)
        );
        for wide in [
            LinkSpec::unshaped(),
            LinkSpec::unshaped().with_middle_mtu(1500),
            LinkSpec::unshaped().with_middle_mtu(9000),
        ] {
            assert_eq!(
                (wide.middle_mtu(), wide.port_mtu(), wide.queue()),
                (1500, 1500, Queue::None)
            );
        }
    }

    #[test]
    fn a_cable_with_a_delay_has_room_for_twice_what_is_on_the_way() {
        let spec = LinkSpec::gigabit().with_delay(Duration::from_millis(5));
        // 5 ms of 125 MB/s, twice.
        assert_eq!(spec.room(), 1_250_000 + (4 << 20));
        let error = spec
            .with_delay(Duration::from_secs(2))
            .check(1)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 1: delay of 2000 ms exceeds the limit of 1000"
        );
        assert_eq!(
            LinkSpec::unshaped()
                .with_delay(Duration::from_secs(1))
                .room(),
            MAX_ROOM
        );
    }

    #[test]
    fn a_cable_is_on_both_hosts_or_on_one() {
        let hosts = |spec: LinkSpec| spec.hosts().collect::<Vec<_>>();
        assert_eq!(hosts(LinkSpec::gigabit()), Host::ALL);
        assert_eq!(hosts(LinkSpec::gigabit().only_on(Host::B)), [Host::B]);
    }

    #[test]
    fn rates_print_in_their_unit() {
        let printed = [941_482_445, 2_500_000_000, 999, 0]
            .map(|bits| BitRate::from_bits_per_second(bits).to_string());
        assert_eq!(
            printed,
            ["941.482 Mbit/s", "2.5 Gbit/s", "999 bit/s", "0 bit/s"]
        );
    }
}
