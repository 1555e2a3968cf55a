//! The links of a bench: groups of paths between one pair of interfaces.

use std::time::Duration;

use nicstripe_proto::{
    PathId,
    message::{BenchFacts, BenchInterface},
};

use super::{
    figures::LoadedLink,
    report::{BenchLink, Ends, HostFacts, InterfaceFacts, RoundTrips, TheoryInputs},
};
use crate::session::{BenchPath, all_verified};

/// The links of a session, with the paths of each.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    pub(super) links: Vec<BenchLink>,
    paths: Vec<Vec<PathId>>,
}

impl Links {
    /// Groups paths into links.
    pub(super) fn new(paths: &[BenchPath], here: &BenchFacts, there: &BenchFacts) -> Self {
        let mut groups: Vec<Vec<&BenchPath>> = Vec::new();
        for path in paths {
            let is_its = |group: &&mut Vec<&BenchPath>| {
                group.first().is_some_and(|first| first.link.interface == path.link.interface && first.link.remote == path.link.remote)
            };
            match groups.iter_mut().find(is_its) {
                Some(group) => group.push(path),
                None => groups.push(vec![path]),
            }
        }
        let links = groups.iter().enumerate().filter_map(|(index, group)| link_of(index as u32 + 1, group, here, there)).collect();
        Self { links, paths: groups.iter().map(|group| group.iter().map(|path| path.id).collect()).collect() }
    }

    /// Ids of all links.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.links.iter().map(|link| link.id).collect()
    }

    /// Connections of the link that has most.
    pub(super) fn streams(&self) -> u32 {
        self.paths.iter().map(|paths| paths.len() as u32).max().unwrap_or(1)
    }

    /// One path of a link.
    pub(super) fn path(&self, id: u32) -> Option<PathId> {
        self.paths.get(id.checked_sub(1)? as usize)?.first().copied()
    }

    /// The paths of some links, one after the other, and which of them are whose.
    pub(super) fn loaded(&self, ids: &[u32]) -> (Vec<u16>, Vec<LoadedLink>) {
        let (mut all, mut loaded) = (Vec::new(), Vec::new());
        for id in ids {
            let Some(paths) = id.checked_sub(1).and_then(|index| self.paths.get(index as usize)) else { continue };
            let theory_bps = self.links.iter().find(|link| link.id == *id).and_then(|link| link.theory_bps);
            loaded.push(LoadedLink { id: *id, paths: (all.len()..all.len() + paths.len()).collect(), theory_bps });
            all.extend(paths.iter().map(|path| path.0));
        }
        (all, loaded)
    }
}

fn link_of(id: u32, group: &[&BenchPath], here: &BenchFacts, there: &BenchFacts) -> Option<BenchLink> {
    let first = group.first()?;
    let peer = first.link.peer_interface.clone().unwrap_or_default();
    let ends = Ends { client: interface(here, &first.link.interface), daemon: interface(there, &peer) };
    let theory = theory(first, &ends, here, there);
    Some(BenchLink {
        id,
        addresses: Ends {
            client: first.local.map_or_else(String::new, |address| address.to_string()),
            daemon: first.link.remote.to_string(),
        },
        theory_bps: theory.map(|inputs| goodput(&inputs)),
        theory,
        rtt_idle: None,
        verified: group.iter().map(|path| path.verified).reduce(all_verified).flatten(),
        ends,
    })
}

fn interface(facts: &BenchFacts, name: &str) -> InterfaceFacts {
    let found = facts.interfaces.iter().find(|interface| interface.name == name);
    let BenchInterface { driver, duplex, offloads, mtu, line_bps, .. } = found.cloned().unwrap_or_default();
    InterfaceFacts { name: name.to_owned(), mtu, line_bps, driver, duplex, offloads }
}

/// What a link's theory is computed from: what is known of the slower direction, and of the packets that get through.
fn theory(path: &BenchPath, ends: &Ends<InterfaceFacts>, here: &BenchFacts, there: &BenchFacts) -> Option<TheoryInputs> {
    let capacity = path.capacity.through(path.path_mtu);
    let known = capacity.outgoing.into_iter().chain(capacity.incoming).min()?;
    let mtu = [ends.client.mtu, ends.daemon.mtu, path.path_mtu].into_iter().flatten().min().unwrap_or(1500);
    let ip = if path.link.remote.is_ipv6() { 6 } else { 4 };
    let with = TheoryInputs { line_bps: 0, mtu, ip, timestamps: true, vlan_tags: 0 };
    // The plan of a link has its goodput with timestamps; the rate of the line follows from it, a shaper's included.
    let line_bps = (known.0 as f64 * f64::from(mtu + 38) / payload(&with).max(1) as f64).round() as u64;
    let timestamps = here.timestamps != Some(false) && there.timestamps != Some(false);
    Some(TheoryInputs { line_bps, timestamps, ..with })
}

/// Bytes of a packet that are goodput.
fn payload(inputs: &TheoryInputs) -> u64 {
    let ip = if inputs.ip == 6 { 40 } else { 20 };
    u64::from(inputs.mtu).saturating_sub(ip + if inputs.timestamps { 32 } else { 20 })
}

/// RFC 6349, section 4.1.
pub(super) fn goodput(inputs: &TheoryInputs) -> u64 {
    let on_wire = u64::from(inputs.mtu) + 38 + 4 * u64::from(inputs.vlan_tags);
    (u128::from(inputs.line_bps) * u128::from(payload(inputs)) / u128::from(on_wire)) as u64
}

/// What a report says of a machine.
pub(super) fn host(facts: &BenchFacts) -> HostFacts {
    HostFacts {
        name: facts.name.clone(),
        os: facts.os.clone(),
        kernel: facts.kernel.clone(),
        cpu: facts.cpu.clone(),
        cores: facts.cores,
        cpu_mhz: facts.cpu_mhz,
        congestion: facts.congestion.clone(),
        receive_buffer_max_bytes: facts.receive_buffer_max,
        send_buffer_max_bytes: facts.send_buffer_max,
        cpu_quota_millicores: facts.cpu_quota_millicores,
    }
}

/// Sums up round trips; nothing of none.
pub(super) fn round_trips(times: &[Duration]) -> Option<RoundTrips> {
    let mut micros: Vec<f64> = times.iter().map(|time| time.as_nanos() as f64 / 1e3).collect();
    micros.sort_unstable_by(f64::total_cmp);
    let (min_us, max_us) = (*micros.first()?, *micros.last()?);
    let count = micros.len();
    let avg_us = micros.iter().sum::<f64>() / count as f64;
    let variance = micros.iter().map(|time| (time - avg_us).powi(2)).sum::<f64>() / count as f64;
    let part = |part: f64| micros.get(((count as f64 * part).ceil() as usize).clamp(1, count) - 1).copied().unwrap_or(max_us);
    Some(RoundTrips { count: count as u64, min_us, avg_us, max_us, std_us: variance.sqrt(), p50_us: part(0.5), p99_us: part(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_what_the_table_says() {
        let of = |mtu, ip, timestamps, vlan_tags| goodput(&TheoryInputs { line_bps: 1_000_000_000, mtu, ip, timestamps, vlan_tags });
        assert_eq!([of(1500, 4, true, 0), of(1500, 4, false, 0), of(1500, 4, true, 1)], [941_482_444, 949_284_785, 939_040_207]);
        assert_eq!([of(9000, 4, true, 0), of(1500, 6, true, 0)], [990_042_044, 928_478_543]);
    }

    #[test]
    fn round_trips_are_summed_up() {
        let times: Vec<Duration> = [40, 10, 20, 30].map(Duration::from_micros).to_vec();
        let sum = round_trips(&times).unwrap();
        assert_eq!((sum.count, sum.min_us, sum.avg_us, sum.max_us, sum.p50_us, sum.p99_us), (4, 10.0, 25.0, 40.0, 20.0, 40.0));
        assert!((sum.std_us - 11.18).abs() < 0.01);
        assert_eq!(round_trips(&[]), None);
    }
}
