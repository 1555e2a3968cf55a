//! What can be done about what was found, with the command and how to undo it where there is one.

use nicstripe::bench::{BenchLink, Limiter};

use super::reading::Reading;
use crate::invocation::quoted;

/// One thing to do or to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remedy {
    /// What was found.
    pub(crate) found: String,
    /// What helps.
    pub(crate) help: String,
    /// What to type; nothing of it was done.
    pub(crate) commands: Vec<String>,
    /// What puts it back.
    pub(crate) undo: Vec<String>,
}

impl Remedy {
    fn told(found: String, help: impl Into<String>) -> Self {
        Self { found, help: help.into(), commands: Vec::new(), undo: Vec::new() }
    }

    fn with(self, commands: Vec<String>) -> Self {
        Self { commands, ..self }
    }
}

/// Returns what was found, the worst first: packets that went astray, what holds each link back, what does not agree.
pub(crate) fn remedies(reading: Reading<'_>) -> Vec<Remedy> {
    let report = reading.report;
    let astray = report.links.iter().filter(|link| link.verified == Some(false)).map(|link| of_astray(reading, link));
    let shared = (report.summary.limiter == Some(Limiter::Shared)).then(|| of_shared(reading));
    let limited = report.links.iter().filter_map(|link| of_limiter(reading, link, reading.summary_of(link)?.limiter?));
    let whole = report.summary.limiter.filter(|limiter| *limiter == Limiter::Cpu).map(|_| of_cpu(reading));
    let duplex = report.links.iter().filter_map(|link| of_duplex(reading, link));
    let unstable = of_unstable(&reading.unstable());
    astray.chain(duplex).chain(shared).chain(whole).chain(limited).chain(unstable).collect()
}

fn of_astray(reading: Reading<'_>, link: &BenchLink) -> Remedy {
    let found = format!("Packets of {} arrived at another interface.", reading.name(link));
    let help = "Its numbers are of another cable. See which routes would help, and let nicstripe install them with the right to do so.";
    Remedy::told(found, help).with(vec!["nicstripe links HOST".into()])
}

fn of_duplex(reading: Reading<'_>, link: &BenchLink) -> Option<Remedy> {
    let [ours, theirs] = reading.machines();
    let ends = [(&link.ends.client, ours), (&link.ends.daemon, theirs)];
    let (end, machine) = ends.into_iter().find(|(end, _)| end.duplex.as_deref() == Some("half"))?;
    let found = format!("{} runs at half duplex on {machine}.", reading.name(link));
    let help = "Both ends have to negotiate: replace the cable, and put back what fixed the mode of a port or switch by hand.";
    Some(Remedy::told(found, help).with(vec![format!("ethtool {}", quoted(&end.name))]))
}

fn of_shared(reading: Reading<'_>) -> Remedy {
    let links = reading.report.links.iter().filter(|link| reading.summary_of(link).is_some_and(|of| of.limiter == Some(Limiter::Shared)));
    let names: Vec<String> = links.map(|link| reading.name(link)).collect();
    let found = format!("{} share something: each is fast alone, and together they are not.", names.join(" and "));
    let help = "See whether the cards sit on one USB hub, one PCIe slot or one switch, at either end, and put them on different ones.";
    Remedy::told(found, help).with(vec!["lspci -tv".into(), "lsusb -t".into()])
}

fn of_cpu(reading: Reading<'_>) -> Remedy {
    let [ours, theirs] = reading.machines();
    let found = format!("A processor of {ours} or {theirs} is busy, or a control group holds it back.");
    let help = "The part on processor time shows which end needs more. Larger packets (MTU 9000 at both ends) and offloads save most.";
    let interfaces = reading.report.links.iter().map(|link| &link.ends.client);
    let without = |interface: &&nicstripe::bench::InterfaceFacts| {
        interface.offloads.as_ref().is_some_and(|offloads| ["tso", "gso", "gro"].iter().any(|name| !offloads.iter().any(|on| on == name)))
    };
    let lacking: Vec<String> = interfaces.filter(without).map(|interface| quoted(&interface.name)).collect();
    Remedy {
        commands: lacking.iter().map(|name| format!("ethtool -K {name} tso on gso on gro on")).collect(),
        undo: lacking.iter().map(|name| format!("ethtool -K {name} tso off gso off gro off")).collect(),
        ..Remedy::told(found, help)
    }
}

fn of_limiter(reading: Reading<'_>, link: &BenchLink, limiter: Limiter) -> Option<Remedy> {
    let name = reading.name(link);
    let [ours, theirs] = reading.machines();
    let interface = quoted(&link.ends.client.name);
    let found = |what: &str| format!("{name} is limited by {what}.");
    Some(match limiter {
        // Told once for all links, or good.
        Limiter::Cable | Limiter::Shared | Limiter::Cpu => return None,
        Limiter::Loss => Remedy::told(found("lost packets"), "Replace the cable, then the port; see which counters of errors grow.")
            .with(vec![format!("ethtool -S {interface} | grep -iE 'err|drop|crc|miss'")]),
        Limiter::Window => {
            let help = format!("Let the kernels of {ours} and {theirs} have larger windows: the round trip is long for this rate.");
            Remedy::told(found("the window: less is in flight than rate × round trip"), help).with(vec![
                "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem".into(),
                "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432' net.ipv4.tcp_wmem='4096 16384 33554432'".into(),
            ])
        }
        Limiter::ReceiveBuffer => Remedy::told(found("the receiver's socket buffer"), "Ask for none (-w), or let the kernel have more.")
            .with(vec!["sysctl net.ipv4.tcp_rmem net.core.rmem_max".into()]),
        Limiter::SendBuffer => Remedy::told(found("the sender's socket buffer"), "Ask for none (-w), or let the kernel have more.")
            .with(vec!["sysctl net.ipv4.tcp_wmem net.core.wmem_max".into()]),
        Limiter::Sender => Remedy::told(found("the sending program"), "See what else runs there, and whether a quota holds it back."),
        Limiter::Receiver => Remedy::told(found("the receiving program"), "See what else runs there, and whether a quota holds it back."),
        Limiter::Unknown => Remedy::told(found("something that was not found"), "Attach this page to a report of it."),
    })
}

fn of_unstable(what: &[String]) -> Option<Remedy> {
    let help = format!("{}. See what else uses the links or the processors, and measure again when it does not.", what.join("; "));
    (!what.is_empty()).then(|| Remedy::told("The repeats do not agree:".into(), help))
}
