//! Inputs of a sweep from earlier results of the benchmark: rates, RTTs and packet sizes.

use std::time::Duration;

use nicstripe_proto::{
    BitRate,
    theory::{IpVersion, Theory},
};

use super::Runner;
use crate::{
    bdp::bdp,
    client::Client,
    report::{BenchLink, Direction, Ends, Flow, Phase},
    statistics::median,
};

impl<C: Client> Runner<C> {
    /// Returns the kind of load that measures a sweep point: reverse if the benchmark measures only
    /// reverse.
    pub(super) fn point_phase(&self) -> Phase {
        let phases = &self.plan.phases;
        if phases.contains(&Phase::Reverse) && !phases.contains(&Phase::Together) {
            Phase::Reverse
        } else {
            Phase::Together
        }
    }

    /// Returns the payload of a full-size packet of a link in bytes, if the link's MTU is known.
    pub(super) fn segment(&self, link: u32) -> Option<u64> {
        let link = self.report.links.iter().find(|known| known.id == link)?;
        Some(theory(link)?.segment_bytes()).filter(|bytes| *bytes > 0)
    }

    /// Returns the rate of a link without other load, client to daemon.
    pub(super) fn rate_alone(&self, link: u32) -> Option<BitRate> {
        let flows = self.flows_alone(link, Direction::ToDaemon);
        middle(flows.iter().map(|flow| flow.goodput_bps as f64))
            .map(|bps| BitRate(bps.round() as u64))
    }

    /// Returns the largest bandwidth × delay product of all links, in bytes. Uses the theoretical
    /// or measured rate, and the RTT under load or, if not measured, without load.
    pub(super) fn bdp(&self) -> Option<u64> {
        let way = if self.point_phase() == Phase::Reverse {
            Direction::ToClient
        } else {
            Direction::ToDaemon
        };
        self.report
            .links
            .iter()
            .filter_map(|link| self.bdp_of(link, way))
            .max()
    }

    fn bdp_of(&self, link: &BenchLink, way: Direction) -> Option<u64> {
        let flows = self.flows_alone(link.id, way);
        let measured = || {
            middle(flows.iter().map(|flow| flow.goodput_bps as f64)).map(|bps| bps.round() as u64)
        };
        let rate = link.theory_bps.or_else(measured)?;
        let loaded = middle(
            flows
                .iter()
                .filter_map(|flow| Some(flow.tcp?.rtt_avg_us? as f64)),
        );
        let micros = loaded.or_else(|| Some(link.rtt_idle?.avg_us))?;
        Some(bdp(
            BitRate(rate),
            Duration::from_nanos((micros * 1e3) as u64),
        ))
    }

    /// Returns the flows of a link without other load; falls back to those of the loads over all
    /// links.
    fn flows_alone(&self, link: u32, way: Direction) -> Vec<&Flow> {
        let of = |phases: [Phase; 2]| -> Vec<&Flow> {
            let runs = self
                .report
                .runs
                .iter()
                .filter(|run| phases.contains(&run.phase));
            runs.flat_map(|run| &run.flows)
                .filter(|flow| flow.link == link && flow.way == way)
                .collect()
        };
        let alone = of([Phase::Solo; 2]);
        if alone.is_empty() {
            of([Phase::Together, Phase::Reverse])
        } else {
            alone
        }
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

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(&values.collect::<Vec<_>>())
}

/// Largest socket buffer of a grid sweep in bytes if bandwidth × delay is small or unknown.
const LEAST_LARGEST: u64 = 4 << 20;
/// Assumed MTU in bytes of interfaces that report none.
const USUAL_MTU: u32 = 1500;
