//! Remedies for the findings of a bench, with the commands to apply and to undo them.

use nicstripe::bench::{BenchLink, InterfaceFacts, Limiter};

use super::reading::Reading;
use crate::text::invocation::quoted;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remedy {
    /// Problem found by the bench.
    pub(crate) found: String,
    /// Advice on the problem.
    pub(crate) help: String,
    /// Commands for the user to type. The bench runs none of them.
    pub(crate) commands: Vec<String>,
    /// Commands that undo `commands`.
    pub(crate) undo: Vec<String>,
}

impl Remedy {
    fn new(found: String, help: impl Into<String>, commands: Vec<String>) -> Self {
        Self {
            found,
            help: help.into(),
            commands,
            undo: Vec::new(),
        }
    }
}

/// Returns remedies, the worst problem first: misrouted packets, bottlenecks of links, unstable
/// results.
pub(crate) fn remedies(reading: Reading<'_>) -> Vec<Remedy> {
    let (links, limiter) = (&reading.report.links, reading.report.summary.limiter);
    let misrouted = reading.misrouted().map(|link| of_misrouted(reading, link));
    let duplex = links.iter().filter_map(|link| of_duplex(reading, link));
    let whole = match limiter {
        Some(Limiter::Shared) => Some(of_shared(reading)),
        Some(Limiter::Cpu) => Some(of_cpu(reading)),
        _ => None,
    };
    let limited = links
        .iter()
        .filter_map(|link| of_limiter(reading, link, reading.summary_of(link)?.limiter?));
    misrouted
        .chain(duplex)
        .chain(whole)
        .chain(limited)
        .chain(of_unstable(&reading.unstable()))
        .collect()
}

fn of_misrouted(reading: Reading<'_>, link: &BenchLink) -> Remedy {
    let found = format!(
        "Packets of {} arrived at another interface.",
        reading.name(link)
    );
    let help = "Its numbers are those of another cable. Show the routes that would help, and permit nicstripe to install them.";
    Remedy::new(found, help, vec!["nicstripe links HOST".into()])
}

fn of_duplex(reading: Reading<'_>, link: &BenchLink) -> Option<Remedy> {
    let [ours, theirs] = reading.machines();
    let ends = [(&link.ends.client, ours), (&link.ends.daemon, theirs)];
    let (end, machine) = ends
        .into_iter()
        .find(|(end, _)| end.duplex.as_deref() == Some("half"))?;
    let found = format!("{} runs at half duplex on {machine}.", reading.name(link));
    let help = "Both ends must autonegotiate: replace the cable, and undo fixed modes of ports or switches.";
    let command = format!("ethtool {}", quoted(&end.name));
    Some(Remedy::new(found, help, vec![command]))
}

fn of_shared(reading: Reading<'_>) -> Remedy {
    let links = reading.report.links.iter().filter(|link| {
        let summary = reading.summary_of(link);
        summary.is_some_and(|of| of.limiter == Some(Limiter::Shared))
    });
    let names: Vec<String> = links.map(|link| reading.name(link)).collect();
    let found = format!(
        "{} share a bottleneck: each is fast alone, but not together.",
        names.join(" and ")
    );
    let help =
        "Check for a shared USB hub, PCIe slot or switch at either end, and separate the cards.";
    Remedy::new(found, help, vec!["lspci -tv".into(), "lsusb -t".into()])
}

fn of_cpu(reading: Reading<'_>) -> Remedy {
    let [ours, theirs] = reading.machines();
    let found =
        format!("A processor core of {ours} or {theirs} is saturated, or a cgroup limits it.");
    let help = "The section on processor time shows which end needs more. Larger packets (MTU 9000 at both ends) and offloads save most.";
    let ends = reading.report.links.iter().map(|link| &link.ends.client);
    let lacking: Vec<(String, Vec<&str>)> = ends.filter_map(lacking).collect();
    let switched = |to: &str| {
        let command = |(interface, names): &(String, Vec<&str>)| {
            let names: Vec<String> = names.iter().map(|name| format!("{name} {to}")).collect();
            format!("ethtool -K {interface} {}", names.join(" "))
        };
        lacking.iter().map(command).collect()
    };
    Remedy {
        undo: switched("off"),
        ..Remedy::new(found, help, switched("on"))
    }
}

/// Returns the name of an interface, quoted for a shell, and those of its offloads TSO, GSO and GRO
/// that are off. `None` if all are on, or unknown.
fn lacking(interface: &InterfaceFacts) -> Option<(String, Vec<&'static str>)> {
    let on = interface.offloads.as_ref()?;
    let off: Vec<&str> = ["tso", "gso", "gro"]
        .into_iter()
        .filter(|name| !on.iter().any(|on| on == name))
        .collect();
    (!off.is_empty()).then(|| (quoted(&interface.name), off))
}

fn of_limiter(reading: Reading<'_>, link: &BenchLink, limiter: Limiter) -> Option<Remedy> {
    const BUFFERS: &str = "Drop -w, or raise the kernel's limit.";
    const LOAD: &str = "Check for other load there, and for a CPU quota.";
    let (cause, help, commands) = match limiter {
        // Reported once for all links, or no problem.
        Limiter::Cable | Limiter::Shared | Limiter::Cpu => return None,
        Limiter::Window => return Some(of_window(reading, link)),
        Limiter::Loss => {
            let interface = quoted(&link.ends.client.name);
            let counters = format!("ethtool -S {interface} | grep -iE 'err|drop|crc|miss'");
            let help = "Replace the cable, then the port; check which error counters grow.";
            ("lost packets", help, vec![counters])
        }
        Limiter::ReceiveBuffer => {
            let limits = "sysctl net.ipv4.tcp_rmem net.core.rmem_max";
            ("the receiver's socket buffer", BUFFERS, vec![limits.into()])
        }
        Limiter::SendBuffer => {
            let limits = "sysctl net.ipv4.tcp_wmem net.core.wmem_max";
            ("the sender's socket buffer", BUFFERS, vec![limits.into()])
        }
        Limiter::Sender => ("the sending program", LOAD, Vec::new()),
        Limiter::Receiver => ("the receiving program", LOAD, Vec::new()),
        Limiter::Unknown => {
            let help = "Attach this page to a bug report.";
            ("an unknown cause", help, Vec::new())
        }
    };
    let found = format!("{} is limited by {cause}.", reading.name(link));
    Some(Remedy::new(found, help, commands))
}

fn of_window(reading: Reading<'_>, link: &BenchLink) -> Remedy {
    let [ours, theirs] = reading.machines();
    let found = format!(
        "{} is limited by the window: less in flight than rate × round trip.",
        reading.name(link)
    );
    let help = format!(
        "Allow larger windows on {ours} and {theirs}: the round trip is long for this rate."
    );
    let commands = vec![
        "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem".into(),
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432' net.ipv4.tcp_wmem='4096 16384 33554432'".into(),
    ];
    Remedy {
        undo: vec!["sysctl -w net.ipv4.tcp_rmem='…' net.ipv4.tcp_wmem='…', with the values that the first command printed".into()],
        ..Remedy::new(found, help, commands)
    }
}

fn of_unstable(what: &[String]) -> Option<Remedy> {
    let help = format!(
        "{}. Check for other load on links and processors, and measure again without it.",
        what.join("; ")
    );
    (!what.is_empty()).then(|| Remedy::new("The repeats disagree:".into(), help, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn what_is_good_needs_nothing_and_what_changes_something_says_how_to_undo_it() {
        assert_eq!(remedies(Reading::of(&samples::good())), []);
        let all = [
            Limiter::Sender,
            Limiter::Receiver,
            Limiter::ReceiveBuffer,
            Limiter::SendBuffer,
            Limiter::Loss,
            Limiter::Window,
        ];
        for limiter in all.into_iter().chain([Limiter::Unknown]) {
            let mut report = samples::good();
            report.summary.links[1].limiter = Some(limiter);
            let found = remedies(Reading::of(&report));
            assert!(
                found.len() == 1 && found[0].found.contains("eth2"),
                "{limiter:?}: {found:?}"
            );
            let changes = found[0]
                .commands
                .iter()
                .any(|command| command.contains(" -w ") || command.contains(" -K "));
            assert_eq!(changes, !found[0].undo.is_empty(), "{limiter:?}: {found:?}");
        }
    }

    #[test]
    fn offloads_that_are_off_are_named_where_a_processor_limits() {
        let mut report = samples::jumbo();
        report.links[2].ends.client.offloads = Some(vec!["tso".into(), "gso".into()]);
        let found = remedies(Reading::of(&report));
        assert_eq!(found[0].commands, ["ethtool -K enp4s0f0 gro on"]);
        assert_eq!(found[0].undo, ["ethtool -K enp4s0f0 gro off"]);
    }

    #[test]
    fn a_name_that_a_shell_would_take_for_more_is_quoted() {
        let mut report = samples::mixed();
        report.links[1].ends.client.name = "x; reboot".into();
        let found = remedies(Reading::of(&report));
        assert!(found[0].commands[0].contains("'x; reboot'"), "{found:?}");
    }
}
