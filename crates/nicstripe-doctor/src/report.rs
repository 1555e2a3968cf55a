//! A case from nothing but the report of a bench.

use nicstripe_bench::BenchReport;
use nicstripe_link::facts::{Facts, HostFacts, InterfaceFacts};

use crate::case::{Case, LinkFacts, LinkState};

impl Case {
    /// Returns what a report says of the machines, the links and the loads. Most facts are unknown.
    pub fn of_report(report: &BenchReport) -> Self {
        let ends = |side: fn(&nicstripe_bench::BenchLink) -> &InterfaceFacts| {
            let mut interfaces: Vec<InterfaceFacts> = Vec::new();
            for interface in report.links.iter().map(side) {
                if !interfaces.iter().any(|one| one.name == interface.name) {
                    interfaces.push(card(interface));
                }
            }
            interfaces
        };
        let facts = |host: &HostFacts, interfaces| Facts {
            host: host.clone(),
            interfaces,
            ..Facts::default()
        };
        let links = report.links.iter().map(|link| LinkFacts {
            here: link.ends.client.name.clone(),
            there: Some(link.ends.daemon.name.clone()).filter(|name| !name.is_empty()),
            local: link.addresses.client.parse().ok(),
            remote: link.addresses.daemon.parse().ok(),
            state: match link.verified {
                Some(true) => LinkState::Verified,
                Some(false) => LinkState::Misdirected,
                None => LinkState::Up,
            },
            ..LinkFacts::default()
        });
        Self {
            here: facts(&report.hosts.client, ends(|link| &link.ends.client)).into(),
            there: Some(facts(&report.hosts.daemon, ends(|link| &link.ends.daemon)).into()),
            links: links.collect(),
            bench: Some(report.clone()),
        }
    }
}

/// Returns the facts of an interface, with its kind by its driver: a report does not have it.
fn card(interface: &InterfaceFacts) -> InterfaceFacts {
    let driver = interface.driver.as_deref();
    let kind = match driver {
        Some("veth" | "bridge" | "tun") => driver,
        Some("bonding") => Some("bond"),
        Some(_) => Some("ethernet"),
        None => None,
    };
    InterfaceFacts {
        kind: kind.map(str::to_owned),
        ..interface.clone()
    }
}
