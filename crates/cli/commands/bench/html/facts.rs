//! Rows of the tables of both machines and their interfaces.

use nicstripe::{
    BitRate,
    bench::{BenchLink, Ends, HostFacts, InterfaceFacts},
};

use crate::{
    commands::bench::{reading::Reading, unit::size},
    text::{known, shown},
};

/// Returns the properties of both machines side by side, with the header first. Unknown properties
/// have no row.
pub(super) fn hosts(reading: Reading<'_>) -> Vec<Vec<String>> {
    let Ends { client, daemon } = &reading.report.hosts;
    let versions = &reading.report.versions;
    let row = |name: &str, ours: Option<String>, theirs: Option<String>| {
        vec![
            name.to_owned(),
            known(ours.map(shown)),
            known(theirs.map(shown)),
        ]
    };
    let [ours, theirs] = reading.machines();
    let (our, their) = (versions.client.clone(), versions.daemon.clone());
    let mut rows = vec![
        vec![String::new(), ours, theirs],
        row("nicstripe", Some(our), Some(their)),
    ];
    for (name, value) in FACTS {
        let (ours, theirs) = (value(client), value(daemon));
        let is_known = ours.is_some() || theirs.is_some();
        rows.extend(is_known.then(|| row(name, ours, theirs)));
    }
    rows
}

/// Returns the properties of the interfaces, one row per interface of a link, with the header
/// first.
pub(super) fn interfaces(reading: Reading<'_>) -> Vec<Vec<String>> {
    let [ours, theirs] = reading.machines();
    let heads = ["link", "interface", "line, MTU", "driver"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for link in &reading.report.links {
        let (ends, addresses) = (&link.ends, &link.addresses);
        rows.push(interface(link, &ends.client, &ours, &addresses.client));
        rows.push(interface(link, &ends.daemon, &theirs, &addresses.daemon));
    }
    rows
}

fn interface(link: &BenchLink, end: &InterfaceFacts, machine: &str, address: &str) -> Vec<String> {
    let rate = end.line_bps.map(|bps| BitRate(bps).to_string());
    let line = [
        Some(rate.unwrap_or_else(|| "line rate unknown".to_owned())),
        end.duplex.as_ref().map(|duplex| format!("{duplex} duplex")),
        end.mtu.map(|mtu| format!("MTU {mtu}")),
    ];
    let line: Vec<String> = line.into_iter().flatten().collect();
    let offloads = end.offloads.as_ref().map(|names| names.join(" "));
    let driver: Vec<String> = end.driver.iter().cloned().chain(offloads).collect();
    let name = format!("{} at {machine}, {address}", end.name);
    let cells = [
        link.id.to_string(),
        name,
        line.join(", "),
        driver.join(": "),
    ];
    cells.iter().map(shown).collect()
}

type Fact = fn(&HostFacts) -> Option<String>;

const FACTS: &[(&str, Fact)] = &[
    ("system", |host| host.os.clone()),
    ("kernel", |host| host.kernel.clone()),
    ("processor", |host| host.cpu.clone()),
    ("cores", |host| host.cores.map(|cores| cores.to_string())),
    ("frequency", |host| {
        host.cpu_mhz.map(|mhz| format!("{mhz} MHz"))
    }),
    ("quota", |host| {
        host.cpu_quota_millicores
            .map(|quota| format!("{:.2} cores", quota as f64 / 1e3))
    }),
    ("congestion control", |host| host.congestion.clone()),
    ("max. receive buffer", |host| {
        host.receive_buffer_max_bytes.map(size)
    }),
    ("max. send buffer", |host| {
        host.send_buffer_max_bytes.map(size)
    }),
];
