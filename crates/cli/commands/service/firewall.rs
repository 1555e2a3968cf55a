//! Firewall of this machine, and the command that opens the daemon's port.

use std::process::{Command, Stdio};

use nicstripe::DEFAULT_PORT;
use nicstripe_doctor::is_plain;

/// Returns the command that opens the daemon's port on those of these interfaces that have a plain
/// name; `None` if no known firewall runs.
pub(super) fn opening(interfaces: &[String]) -> Option<String> {
    let names = interfaces.iter().map(String::as_str);
    let interfaces: Vec<&str> = names.filter(|name| is_plain(name)).collect();
    if says("ufw", &["status"], "Status: active") {
        let rules = interfaces
            .iter()
            .map(|name| format!("ufw allow in on {name} to any port {DEFAULT_PORT}"));
        return Some(rules.collect::<Vec<_>>().join("; "));
    }
    if says("firewall-cmd", &["--state"], "running") {
        return Some(format!(
            "firewall-cmd --permanent --add-port={DEFAULT_PORT}/tcp --add-port={DEFAULT_PORT}/udp; firewall-cmd --reload"
        ));
    }
    let is_filtered = says("nft", &["list", "chains"], "hook input");
    is_filtered.then(|| {
        let names = interfaces.join(", ");
        format!("nft add rule inet filter input iifname '{{ {names} }}' meta l4proto '{{ tcp, udp }}' th dport {DEFAULT_PORT} accept")
    })
}

/// Returns true if a program exists and its output contains `text`.
fn says(program: &str, arguments: &[&str], text: &str) -> bool {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(text))
}
