//! iperf3 over several cables, with one server and one client process per cable.

use std::time::{Duration, Instant};

use nicstripe_lab::{Host, Lab};
use nicstripe_testkit::bench::{Place, Process, Result};
use serde_json::Value;

use crate::burden::Burden;

/// Result of one iperf3 measurement over one or more cables.
#[derive(Debug)]
pub(crate) struct Load {
    /// Received rate of each cable in bits per second.
    pub(crate) rates: Vec<f64>,
    /// Number of TCP segments that all senders retransmitted.
    pub(crate) retransmits: u64,
    /// CPU time of all clients and servers.
    pub(crate) cpu: Duration,
    /// Bytes received on all cables in both directions, including headers.
    pub(crate) carried: u64,
}

impl Load {
    pub(crate) fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns CPU seconds per gigabit carried by the cables.
    pub(crate) fn cpu_per_gbit(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.carried as f64 * 8.0 / 1e9)
    }
}

/// Runs iperf3 on all `links` concurrently for `seconds`, after one second of warm-up. Host `from`
/// sends.
pub(crate) fn load(
    lab: &Lab,
    burden: &Burden,
    place: &Place,
    links: &[usize],
    from: Host,
    seconds: u32,
) -> Result<Load> {
    let logs = place.logs();
    let before = carried(lab)?;
    let mut servers = Vec::new();
    for link in links {
        let mut server = lab.command(Host::B, "iperf3");
        server.args([
            "-s",
            "-1",
            "-B",
            &lab.address(Host::B, *link).to_string(),
            "-p",
            &port(*link).to_string(),
        ]);
        let server = Process::spawn(server, &format!("iperf3-server-{link}"), &logs)?;
        server.await_listener(port(*link))?;
        servers.push(server);
    }
    let quota = burden.ration(&servers.iter().collect::<Vec<_>>())?;
    let mut clients = Vec::new();
    for link in links {
        let mut client = lab.command(Host::A, "iperf3");
        let [near, far] = Host::ALL.map(|host| lab.address(host, *link).to_string());
        client.args([
            "-c",
            &far,
            "-B",
            &format!("{near}%{}", lab.interface(*link)),
            "-p",
            &port(*link).to_string(),
        ]);
        client.args(["-t", &seconds.to_string(), "-O", "1", "-J"]);
        if from == Host::B {
            client.arg("-R");
        }
        clients.push(Process::spawn(
            client,
            &format!("iperf3-client-{link}"),
            &logs,
        )?);
    }
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds)) + GRACE;
    let ends = [clients.iter().collect::<Vec<_>>(), servers.iter().collect()];
    burden.while_stopped([&ends[0], &ends[1]], || {
        ends.iter()
            .flatten()
            .try_for_each(|process| process.await_end(deadline))
    })?;
    drop(quota);
    let cpu = ends
        .iter()
        .flatten()
        .map(|process| process.cpu())
        .sum::<Result<Duration>>()?;
    let mut load = Load {
        rates: Vec::new(),
        retransmits: 0,
        cpu,
        carried: carried(lab)? - before,
    };
    for mut client in clients {
        client.succeeded()?;
        let report: Value = serde_json::from_str(&client.output()?)?;
        let rate = report
            .pointer("/end/sum_received/bits_per_second")
            .and_then(Value::as_f64);
        load.rates
            .push(rate.ok_or_else(|| format!("iperf3 reports no rate: {report}"))?);
        load.retransmits += report
            .pointer("/end/sum_sent/retransmits")
            .and_then(Value::as_u64)
            .unwrap_or(0);
    }
    Ok(load)
}

/// Returns the bytes that both hosts have received on all cables since the lab was built.
pub(crate) fn carried(lab: &Lab) -> Result<u64> {
    Ok(lab
        .counters()?
        .iter()
        .map(|link| link.a.received_bytes + link.b.received_bytes)
        .sum())
}

fn port(link: usize) -> u16 {
    5201 + u16::try_from(link).unwrap_or(0)
}

/// Time for the start and exit of iperf3, in addition to the measured seconds.
const GRACE: Duration = Duration::from_secs(30);
