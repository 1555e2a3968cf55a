//! HTML tables of both machines and their interfaces.

use nicstripe::BitRate;
use nicstripe::bench::{BenchLink, HostFacts, InterfaceFacts};

use super::svg::escape;
use crate::{
    commands::bench::{reading::Reading, unit::size},
    text::shown,
};

/// Renders the properties of both machines side by side. Unknown properties have no row.
pub(super) fn hosts(reading: Reading<'_>) -> String {
    let hosts = &reading.report.hosts;
    let versions = &reading.report.versions;
    let mut rows = vec![[
        Some("nicstripe".to_owned()),
        Some(versions.client.clone()),
        Some(versions.daemon.clone()),
    ]];
    for (name, value) in FACTS {
        rows.push([
            Some((*name).to_owned()),
            value(&hosts.client),
            value(&hosts.daemon),
        ]);
    }
    rows.retain(|[_, ours, theirs]| ours.is_some() || theirs.is_some());
    let [ours, theirs] = reading.machines();
    table(["", &ours, &theirs], rows)
}

/// Renders the properties of the interfaces, one row per interface of a link.
pub(super) fn interfaces(reading: Reading<'_>) -> String {
    let [ours, theirs] = reading.machines();
    let mut html = String::from(
        "<table class=\"facts\"><tr><th>link</th><th>interface</th><th>line, MTU</th><th>driver</th></tr>",
    );
    for link in &reading.report.links {
        let (ends, addresses) = (&link.ends, &link.addresses);
        html += &interface(link, &ends.client, &ours, &addresses.client);
        html += &interface(link, &ends.daemon, &theirs, &addresses.daemon);
    }
    html.push_str("</table>");
    html
}

fn interface(link: &BenchLink, end: &InterfaceFacts, machine: &str, address: &str) -> String {
    let rate = end.line_bps.map_or_else(
        || "line rate unknown".to_owned(),
        |bps| BitRate(bps).to_string(),
    );
    let line = [
        Some(rate),
        end.duplex.as_ref().map(|duplex| format!("{duplex} duplex")),
        end.mtu.map(|mtu| format!("MTU {mtu}")),
    ];
    let line: Vec<String> = line.into_iter().flatten().collect();
    let offloads = end.offloads.as_ref().map(|names| names.join(" "));
    let driver: Vec<&str> = end
        .driver
        .as_deref()
        .into_iter()
        .chain(offloads.as_deref())
        .collect();
    let name = format!("{} at {machine}, {address}", end.name);
    let cells = [
        link.id.to_string(),
        name,
        line.join(", "),
        driver.join(": "),
    ];
    let cells: Vec<String> = cells
        .iter()
        .map(|cell| format!("<td>{}</td>", escape(&shown(cell))))
        .collect();
    format!("<tr>{}</tr>", cells.concat())
}

fn table(heads: [&str; 3], rows: Vec<[Option<String>; 3]>) -> String {
    let mut html = format!(
        "<table class=\"facts\"><tr>{}</tr>",
        heads
            .map(|head| format!("<th>{}</th>", escape(head)))
            .concat()
    );
    for row in rows {
        let cells = row.map(|cell| {
            format!(
                "<td>{}</td>",
                cell.map_or_else(|| "?".into(), |cell| escape(&shown(cell)))
            )
        });
        html.push_str(&format!("<tr>{}</tr>", cells.concat()));
    }
    html.push_str("</table>");
    html
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
