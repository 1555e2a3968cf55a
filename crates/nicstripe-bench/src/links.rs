//! Links of a benchmark: each groups the paths between one pair of interfaces.

use nicstripe_link::facts::Facts;
use nicstripe_proto::{BitRate, PathId, path::all_verified, theory::Theory};

use crate::{
    client::BenchPath,
    figures::LoadedLink,
    report::{BenchLink, Ends, InterfaceFacts, TheoryInputs},
};

/// Links of a benchmark's session, with the paths of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    pub(crate) links: Vec<BenchLink>,
    paths: Vec<Vec<PathId>>,
}

impl Links {
    /// Groups paths with the same pair of interfaces into links.
    pub(crate) fn new(paths: &[BenchPath], client: &Facts, daemon: &Facts) -> Self {
        let mut groups: Vec<Vec<&BenchPath>> = Vec::new();
        for path in paths {
            let is_its = |group: &&mut Vec<&BenchPath>| {
                group.first().is_some_and(|first| {
                    first.interface == path.interface && first.remote == path.remote
                })
            };
            match groups.iter_mut().find(is_its) {
                Some(group) => group.push(path),
                None => groups.push(vec![path]),
            }
        }
        let links = groups
            .iter()
            .enumerate()
            .filter_map(|(index, group)| link_of(index as u32 + 1, group, client, daemon))
            .collect();
        Self {
            links,
            paths: groups
                .iter()
                .map(|group| group.iter().map(|path| path.id).collect())
                .collect(),
        }
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.links.iter().map(|link| link.id).collect()
    }

    /// Returns the largest number of connections on any link.
    pub(crate) fn streams(&self) -> u32 {
        self.paths
            .iter()
            .map(|paths| paths.len() as u32)
            .max()
            .unwrap_or(1)
    }

    pub(crate) fn path(&self, id: u32) -> Option<PathId> {
        self.paths_of(id).first().copied()
    }

    fn paths_of(&self, id: u32) -> &[PathId] {
        let index = id as usize;
        index
            .checked_sub(1)
            .and_then(|index| self.paths.get(index))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the paths of the given links, concatenated, and for each link the indices of its
    /// paths.
    pub(crate) fn loaded(&self, ids: &[u32]) -> (Vec<u16>, Vec<LoadedLink>) {
        let (mut all, mut loaded) = (Vec::new(), Vec::new());
        for id in ids {
            let paths = self.paths_of(*id);
            if paths.is_empty() {
                continue;
            }
            loaded.push(LoadedLink {
                id: *id,
                paths: (all.len()..all.len() + paths.len()).collect(),
            });
            all.extend(paths.iter().map(|path| path.0));
        }
        (all, loaded)
    }
}

fn link_of(id: u32, group: &[&BenchPath], client: &Facts, daemon: &Facts) -> Option<BenchLink> {
    let first = group.first()?;
    let peer = first.peer_interface.clone().unwrap_or_default();
    let ends = Ends {
        client: interface(client, &first.interface),
        daemon: interface(daemon, &peer),
    };
    let theory = theory(first, &ends, client, daemon);
    Some(BenchLink {
        id,
        addresses: Ends {
            client: first
                .local
                .map_or_else(String::new, |address| address.to_string()),
            daemon: first.remote.to_string(),
        },
        theory_bps: theory.map(|inputs| Theory::from(inputs).goodput().0),
        theory,
        rtt_idle: None,
        verified: group
            .iter()
            .map(|path| path.verified)
            .reduce(all_verified)
            .flatten(),
        ends,
    })
}

/// Returns what the report has of an interface.
fn interface(facts: &Facts, name: &str) -> InterfaceFacts {
    let found = facts.interface(name).cloned().unwrap_or_default();
    InterfaceFacts {
        name: name.to_owned(),
        mtu: found.mtu,
        line_bps: found.line_bps,
        driver: found.driver,
        duplex: found.duplex,
        offloads: found.offloads,
        ..InterfaceFacts::default()
    }
}

/// Returns the inputs of a link's theoretical goodput: the slower direction's rate and the path
/// MTU.
fn theory(
    path: &BenchPath,
    ends: &Ends<InterfaceFacts>,
    client: &Facts,
    daemon: &Facts,
) -> Option<TheoryInputs> {
    let inputs = TheoryInputs {
        line_bps: 0,
        mtu: [ends.client.mtu, ends.daemon.mtu, path.path_mtu]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(1500),
        ip: if path.remote.is_ipv6() { 6 } else { 4 },
        timestamps: client.host.timestamps != Some(false) && daemon.host.timestamps != Some(false),
        vlan_tags: 0,
    };
    let line_of_shaper = |rate: BitRate| {
        Theory {
            line: rate,
            ..inputs.into()
        }
        .line_of_shaper()
    };
    let shapers = path.shapers.into_iter().flatten();
    let slowest = path
        .line
        .into_iter()
        .chain(shapers.map(line_of_shaper))
        .min()?;
    Some(TheoryInputs {
        line_bps: slowest.0,
        ..inputs
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: BitRate = BitRate::from_gbit(1);

    /// Returns a link between interfaces with this MTU and these line and shaper rates, for tests.
    fn link(mtu: u32, line: Option<BitRate>, shapers: [Option<BitRate>; 2]) -> BenchLink {
        let path = BenchPath {
            id: PathId(0),
            interface: "eth0".into(),
            peer_interface: Some("eth1".into()),
            local: None,
            remote: std::net::IpAddr::from([10, 0, 0, 2]),
            line,
            shapers,
            path_mtu: None,
            verified: None,
        };
        let facts = |name: &str| Facts {
            interfaces: vec![InterfaceFacts {
                name: name.into(),
                mtu: Some(mtu),
                ..InterfaceFacts::default()
            }],
            ..Facts::default()
        };
        link_of(1, &[&path], &facts("eth0"), &facts("eth1")).unwrap()
    }

    #[test]
    fn goodput_is_what_the_table_says() {
        let of = |mtu, ip, timestamps, vlan_tags| {
            Theory::from(TheoryInputs {
                line_bps: 1_000_000_000,
                mtu,
                ip,
                timestamps,
                vlan_tags,
            })
            .goodput()
            .0
        };
        assert_eq!(
            [
                of(1500, 4, true, 0),
                of(1500, 4, false, 0),
                of(1500, 4, true, 1)
            ],
            [941_482_444, 949_284_785, 939_040_207]
        );
        assert_eq!(
            [of(9000, 4, true, 0), of(1500, 6, true, 0)],
            [990_042_044, 928_478_543]
        );
    }

    #[test]
    fn a_shaper_that_lets_out_what_a_gigabit_line_takes_is_that_line() {
        for (mtu, shaper, theory) in [
            (1500, 984_396_000, 941_482_444),
            (9000, 997_344_000, 990_042_044),
        ] {
            let shapers = [None, Some(BitRate(shaper))];
            let shaped = link(mtu, None, shapers);
            assert!(
                shaped.theory.unwrap().line_bps.abs_diff(GIGABIT.0) < 1000,
                "{shaped:?}"
            );
            assert!(
                shaped.theory_bps.unwrap().abs_diff(theory) < 1000,
                "{shaped:?}"
            );
        }
    }

    #[test]
    fn the_slowest_of_the_lines_and_the_shapers_is_what_a_link_has() {
        let half = Some(BitRate::from_mbit(500));
        let plain = link(1500, Some(GIGABIT), [None, None]);
        assert_eq!(
            (plain.theory.unwrap().line_bps, plain.theory_bps),
            (GIGABIT.0, Some(941_482_444))
        );
        let slowed = link(1500, Some(GIGABIT), [half, Some(BitRate::from_gbit(10))]);
        assert_eq!(slowed.theory.unwrap().line_bps, 507_926_024);
        assert_eq!(
            link(1500, half, [Some(GIGABIT), None])
                .theory
                .unwrap()
                .line_bps,
            500_000_000
        );
        assert_eq!(link(1500, None, [None; 2]).theory_bps, None);
    }
}
