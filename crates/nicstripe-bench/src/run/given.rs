//! Inputs of a sweep from earlier results of the benchmark: rates, RTTs and packet sizes.

use std::time::Duration;

use nicstripe_proto::{
    BitRate,
    theory::{IpVersion, Theory},
};

use super::Runner;
use crate::{
    client::Client,
    evidence::{Measured, median_rate, round_trips},
    report::{BenchLink, Direction, Ends, Phase},
    statistics::median,
};

impl<C: Client> Runner<C> {
    /// Returns the direction in which a sweep point is measured: to the client if the benchmark
    /// measures only reverse.
    pub(super) fn point_way(&self) -> Direction {
        let phases = &self.plan.phases;
        if phases.contains(&Phase::Reverse) && !phases.contains(&Phase::Together) {
            Direction::ToClient
        } else {
            Direction::ToDaemon
        }
    }

    /// Returns the payload of a full-size packet of a link in bytes, if the link's MTU is known.
    pub(super) fn segment(&self, link: u32) -> Option<u64> {
        let link = self.report.links.iter().find(|known| known.id == link)?;
        Some(theory(link)?.segment_bytes()).filter(|bytes| *bytes > 0)
    }

    /// Returns the rate of a link without other load, client to daemon.
    pub(super) fn rate_alone(&self, link: u32) -> Option<BitRate> {
        median_rate(&Measured::of(&self.report).least_loaded(link, Direction::ToDaemon))
    }

    /// Returns the largest bandwidth × delay product of all links, in bytes. Uses the theoretical
    /// or measured rate, and the RTT under load or, if not measured, without load.
    pub(super) fn bdp(&self) -> Option<u64> {
        let links = self.report.links.iter();
        links.filter_map(|link| self.bdp_of(link)).max()
    }

    fn bdp_of(&self, link: &BenchLink) -> Option<u64> {
        let parts = Measured::of(&self.report).least_loaded(link.id, self.point_way());
        let theory = link.theory_bps.map(BitRate);
        let rate = theory.or_else(|| median_rate(&parts))?;
        let micros = median(&round_trips(&parts)).or_else(|| Some(link.rtt_idle?.avg_us))?;
        Some(rate.bytes_in(Duration::from_nanos((micros * 1e3) as u64)))
    }

    /// Returns the largest useful socket buffer of a grid sweep in bytes: limited by both systems
    /// and by eight times bandwidth × delay.
    pub(super) fn largest_buffer(&self) -> u64 {
        let Ends { client, daemon } = &self.report.hosts;
        let maxima = [client, daemon]
            .map(|host| [host.receive_buffer_max_bytes, host.send_buffer_max_bytes]);
        let allowed = maxima
            .into_iter()
            .flatten()
            .flatten()
            .min()
            .unwrap_or(u64::MAX);
        allowed.min(
            self.bdp()
                .unwrap_or_default()
                .saturating_mul(8)
                .max(LEAST_LARGEST),
        )
    }

    /// Returns the theoretical rate parameters of the link with the smallest MTU.
    pub(super) fn narrowest(&self) -> Theory {
        let all = self.report.links.iter().filter_map(theory);
        all.min_by_key(|theory| theory.mtu)
            .unwrap_or(Theory::usual(BitRate::from_gbit(1), USUAL_MTU))
    }
}

/// Returns the theoretical rate parameters of a link from its MTU, even with an unknown line rate;
/// `None` if the MTU is unknown.
fn theory(link: &BenchLink) -> Option<Theory> {
    let ends = [link.ends.client.mtu, link.ends.daemon.mtu]
        .into_iter()
        .flatten()
        .min();
    let mtu = link
        .theory
        .map(|inputs| inputs.mtu)
        .into_iter()
        .chain(ends)
        .min()?;
    let ip = if link.addresses.daemon.contains(':') {
        IpVersion::V6
    } else {
        IpVersion::V4
    };
    let usual = Theory {
        ip,
        ..Theory::usual(BitRate::from_gbit(1), mtu)
    };
    Some(link.theory.map_or(usual, |inputs| Theory {
        timestamps: inputs.timestamps,
        vlan_tags: inputs.vlan_tags,
        ..usual
    }))
}

/// Largest socket buffer of a grid sweep in bytes if bandwidth × delay is small or unknown.
const LEAST_LARGEST: u64 = 4 << 20;
/// Assumed MTU in bytes of interfaces that report none.
const USUAL_MTU: u32 = 1500;
