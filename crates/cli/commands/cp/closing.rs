//! Closing lines of a copy: its result, its rate, and the bottleneck.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use nicstripe::{Limit, LinkReport, LinkState, Report, TreeReport};

use super::{arguments::Cp, copy_kind::CopyKind, plan::Plan, tree_summary};
use crate::{
    connect::location::shown_place,
    text::{
        quantity::{Size, Speed},
        shown,
    },
};

/// Source and target of a copy, as printed in the closing lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ends {
    from: String,
    to: String,
    /// The peer, as typed.
    peer: String,
    /// Reference that the content was compared with.
    proof: String,
    /// True if the target is a file, so that received data is on a disk; false for standard output.
    is_durable: bool,
}

impl Ends {
    /// Formats source and target as typed. Appends the source's own name to a target directory;
    /// `is_directory` is true if the target was one before the copy.
    pub(crate) fn of(cp: &Cp, plan: &Plan, is_directory: bool) -> Self {
        let kind = &plan.kind;
        let target = shown_place(cp.target());
        let from = match cp.sources() {
            [_] if matches!(kind, CopyKind::PutPipe { .. }) => "standard input".to_owned(),
            [source] => shown_place(source),
            sources => format!("{} sources", sources.len()),
        };
        let slash = match target.as_bytes() {
            [.., b':' | b'/'] => Some(""),
            _ if is_directory => Some("/"),
            _ => None,
        };
        let to = match (kind.own_name(), slash) {
            _ if matches!(kind, CopyKind::GetPipe { to: None, .. }) => "standard output".to_owned(),
            (Some(name), Some(slash)) => format!("{target}{slash}{name}"),
            _ => target,
        };
        Self {
            from,
            to,
            peer: plan.place.to_string(),
            proof: "verified".to_owned(),
            is_durable: !matches!(kind, CopyKind::GetPipe { .. }),
        }
    }

    /// Returns the ends of a copy from elsewhere than one daemon.
    pub(super) fn of_elsewhere(from: String, to: String, proof: String, is_durable: bool) -> Self {
        Self {
            peer: from.clone(),
            from,
            to,
            proof,
            is_durable,
        }
    }

    /// Returns what the content was compared with.
    pub(super) fn proof(&self) -> &str {
        &self.proof
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }
}

/// Returns the closing lines of a copy: the outcome, and remarks on the links if any.
pub(crate) fn lines(report: &Report, ends: &Ends) -> Vec<String> {
    [Some(outcome(report, ends)), links(report)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the first closing line, such as `disk.img → nas:disk.img  300.0 MiB in 1.4 s (230.0 MB/s
/// over eth1, eth2), verified and on disk`.
fn outcome(report: &Report, ends: &Ends) -> String {
    let time = took(report);
    let moved = moved(report);
    if let (0, 0, Some(tree)) = (moved, report.resumed_bytes, &report.tree) {
        return without_bytes(report, tree);
    }
    let head = format!("{} → {}  ", ends.from, ends.to);
    if moved == 0 && report.resumed_bytes > 0 {
        return format!(
            "{head}{} already present, {} in {time}",
            Size(report.size),
            ends.proof
        );
    }
    let over = match carriers(report) {
        names if names.is_empty() => String::new(),
        names => format!(" over {}", names.join(", ")),
    };
    let files =
        tree_summary::files_per_second(report).map_or_else(String::new, |rate| format!("{rate}, "));
    let kind = match moved >= TOLD_RATE {
        true => format!(" ({files}{}{over})", Speed(report.goodput())),
        false => over,
    };
    let disk = if ends.is_durable { " and on disk" } else { "" };
    let state = format!("{}{disk}", ends.proof);
    let mut line = format!("{head}{} in {time}{kind}, {state}", Size(report.size));
    if report.resumed_bytes > 0 {
        let _ = write!(
            line,
            "; {} of {} already present",
            Size(report.resumed_bytes),
            Size(report.size)
        );
    }
    // Holes, unchanged chunks or compression saved at least one per cent.
    if report.wire_bytes < moved - moved / 100 {
        let _ = write!(
            line,
            "; {} sent for {}",
            Size(report.wire_bytes),
            Size(moved)
        );
    }
    line
}

/// Returns the duration of a copy as `2.3 s` or `12 ms`.
fn took(report: &Report) -> String {
    match report.elapsed.as_millis() {
        millis @ ..100 => format!("{millis} ms"),
        _ => format!("{:.1} s", report.elapsed.as_secs_f64()),
    }
}

/// Returns the closing line of a tree copy that transferred no bytes: nothing, or only empty files,
/// was copied.
fn without_bytes(report: &Report, tree: &TreeReport) -> String {
    let time = took(report);
    match tree_summary::files_per_second(report) {
        Some(rate) => format!("{rate}, all empty"),
        None if tree.files > 0 => format!("all files are empty, in {time}"),
        None if tree.failed > 0 => format!("no files sent, in {time}"),
        None => format!("nothing to send, in {time}"),
    }
}

/// Returns the second closing line, such as `99.9 % of 235.4 MB/s, limited by the cables; not used:
/// eth3 (connected too late)`. `None` if there is nothing to report.
fn links(report: &Report) -> Option<String> {
    let is_brief = is_brief(report);
    let mut speed = Vec::new();
    if let (Some(part), Some(expected), false) = (report.efficiency(), report.expected, is_brief) {
        speed.push(format!("{:.1} % of {}", part * 100.0, Speed(expected)));
    }
    match report.limited_by {
        Limit::Unknown | Limit::Latency => {}
        Limit::Bandwidth => speed.push("as fast as the configured limit".to_owned()),
        limit if !is_brief || matches!(limit, Limit::LinkDown | Limit::Files) => {
            speed.push(format!("limited by {limit}"));
        }
        _ => {}
    }
    let unused = unused(report, is_brief);
    let mut said = Vec::new();
    if !speed.is_empty() {
        said.push(speed.join(", "));
    }
    if !unused.is_empty() {
        said.push(format!("not used: {}", unused.join(", ")));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// Returns the names of the interfaces that carried data, without duplicates.
fn carriers(report: &Report) -> Vec<String> {
    let mut seen = BTreeSet::new();
    carrying(report)
        .filter(|name| seen.insert(*name))
        .map(shown)
        .collect()
}

fn carrying(report: &Report) -> impl Iterator<Item = &String> {
    let links = report.links.iter().filter(|link| link.bytes > 0);
    links.map(|link| &link.link.interface)
}

/// Returns the names of the interfaces that carried no data, each with the reason. Omits those that
/// a warning names already.
fn unused(report: &Report, is_brief: bool) -> Vec<String> {
    let ours = report.failed.iter().filter(|failed| !failed.is_peers);
    let warned = ours.map(|failed| &failed.interface);
    let mut seen: BTreeSet<&String> = carrying(report).chain(warned).collect();
    // A link that yielded to another of its interface says nothing about the interface.
    let (left_out, others): (Vec<_>, Vec<_>) = report
        .links
        .iter()
        .partition(|link| matches!(link.state, LinkState::LeftOut(_)));
    let idle: Vec<_> = others
        .into_iter()
        .chain(left_out)
        .filter(|link| seen.insert(&link.link.interface))
        .collect();
    let text = |link: &LinkReport| {
        let is_limited = report.limited_by == Limit::Bandwidth;
        let why = why_idle(link, is_brief, is_limited)?;
        Some(format!("{} ({why})", shown(&link.link.interface)))
    };
    // Whether another card would have been used is open in a brief copy, but not if it cannot be.
    let unused = report
        .unused
        .iter()
        .filter(|unused| !is_brief || unused.is_idle);
    let unused = unused
        .filter(|unused| unused.is_peers || seen.insert(&unused.interface))
        .map(|unused| {
            let side = if unused.is_peers { "peer's " } else { "" };
            format!(
                "{side}{} ({})",
                shown(&unused.interface),
                shown(&unused.why)
            )
        });
    idle.into_iter().filter_map(text).chain(unused).collect()
}

/// Returns the reason why a link carried no data. `None` if the copy ended before the link could be
/// used.
fn why_idle(link: &LinkReport, is_brief: bool, is_limited: bool) -> Option<String> {
    match &link.state {
        LinkState::Down(why) => Some(shown(why)),
        _ if is_brief => None,
        LinkState::LeftOut(why) => Some(shown(why)),
        LinkState::Up if is_limited => Some("not needed for the configured limit".to_owned()),
        LinkState::Connecting => Some("never connected".to_owned()),
        _ => Some("connected too late".to_owned()),
    }
}

fn moved(report: &Report) -> u64 {
    report.size.saturating_sub(report.resumed_bytes)
}

/// Returns true if connection setup and teardown dominate the time of the copy, so that its rate
/// says little about the links.
pub(super) fn is_brief(report: &Report) -> bool {
    report.limited_by == Limit::Latency || report.moving < BRIEF || moved(report) < SMALL
}

/// Minimum bytes of a copy whose rate is printed.
const TOLD_RATE: u64 = 1 << 20;

/// Minimum duration, and minimum bytes, of a copy whose rate is compared with the capacity of the
/// links.
const BRIEF: Duration = Duration::from_secs(1);
const SMALL: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use nicstripe::{BitRate, UnusedInterface};
    use nicstripe_testkit::with;

    use super::*;
    use crate::commands::cp::{arguments::tests::parse, summary::tests::report};

    fn closing(report: &Report) -> Vec<String> {
        lines(
            report,
            &Ends {
                from: "disk.img".into(),
                to: "nas:disk.img".into(),
                peer: "nas".into(),
                proof: "verified".to_owned(),
                is_durable: true,
            },
        )
    }

    #[test]
    fn the_ends_are_those_that_were_typed_with_the_name_in_a_directory() {
        let ends = |words: &str| {
            let cp = parse(words).unwrap();
            let plan = Plan::of(&cp).unwrap();
            let is_directory = std::path::Path::new(cp.target()).is_dir();
            let Ends { from, to, .. } = Ends::of(&cp, &plan, is_directory);
            format!("{from} → {to}")
        };
        for (words, expected) in [
            ("dir/a.img nas:", "dir/a.img → nas:a.img"),
            ("a.img nas:b/", "a.img → nas:b/a.img"),
            ("a.img nas:b", "a.img → nas:b"),
            ("nas:b/a.img /", "nas:b/a.img → /a.img"),
            ("nas:b/a.img /dev", "nas:b/a.img → /dev/a.img"),
            ("nas:b/f1* new", "nas:b/f1* → new"),
            ("a b nas:", "2 sources → nas:"),
            ("- nas:x", "standard input → nas:x"),
            ("nas:x -", "nas:x → standard output"),
        ] {
            assert_eq!(ends(words), expected);
        }
    }

    #[test]
    fn the_outcome_and_what_limited_it_are_told() {
        assert_eq!(
            closing(&report()),
            [
                "disk.img → nas:disk.img  512.0 MiB in 2.3 s (235.1 MB/s over eth1, eth2), verified and on disk",
                "99.9 % of 235.4 MB/s, limited by the cables"
            ]
        );
        let unknown = with!(report(), expected: None, limited_by: Limit::Unknown);
        assert_eq!(closing(&unknown).len(), 1, "{:?}", closing(&unknown));
        let pipe = Ends {
            from: "nas:a".into(),
            to: "standard output".into(),
            peer: "nas".into(),
            proof: "verified".to_owned(),
            is_durable: false,
        };
        assert!(lines(&report(), &pipe)[0].ends_with(", verified"));
    }

    #[test]
    fn of_small_and_short_copies_no_percentage_is_told() {
        let small = with!(report(), size: 6, wire_bytes: 6, elapsed: Duration::from_millis(90), limited_by: Limit::Latency);
        assert_eq!(
            closing(&small),
            ["disk.img → nas:disk.img  6 B in 90 ms over eth1, eth2, verified and on disk"]
        );
        let short = with!(report(), moving: Duration::from_millis(900), limited_by: Limit::Source);
        assert_eq!(closing(&short).len(), 1, "{:?}", closing(&short));
        let capped = with!(short, limited_by: Limit::Bandwidth);
        assert_eq!(closing(&capped)[1], "as fast as the configured limit");
    }

    #[test]
    fn each_cable_is_named_once_and_those_that_carried_nothing_say_why() {
        let mut report = report();
        report.links.push(report.links[0].clone());
        for (name, state) in [
            ("eth3", LinkState::Down("no carrier".into())),
            (
                "eth4",
                LinkState::LeftOut("replaced by another link".into()),
            ),
            ("eth4", LinkState::Up),
            ("eth5", LinkState::LeftOut("slower than the others".into())),
            ("eth6", LinkState::Down("refused".into())),
        ] {
            let mut idle = report.links[0].clone();
            (idle.bytes, idle.link.interface, idle.state) = (0, name.into(), state);
            report.links.push(idle);
        }
        let failed = with!(UnusedInterface::new("eth6".into(), "a warning says it".into()), is_peers: false, failed: true, is_card: true, is_idle: false);
        report.failed.push(failed);
        for (is_peers, why, is_idle) in [(false, "no answer", false), (true, "no carrier", true)] {
            report.unused.push(with!(UnusedInterface::new("eth7".into(), why.into()), is_peers: is_peers, failed: false, is_card: true, is_idle: is_idle));
        }
        let said = closing(&report);
        assert!(said[0].contains(" over eth1, eth2)"), "{said:?}");
        assert!(said[1].ends_with("; not used: eth3 (no carrier), eth4 (connected too late), eth5 (slower than the others), eth7 (no answer), peer's eth7 (no carrier)"), "{said:?}");
        report.moving = Duration::from_millis(100);
        assert_eq!(
            closing(&report)[1],
            "not used: eth3 (no carrier), peer's eth7 (no carrier)"
        );
    }

    #[test]
    fn what_was_there_already_and_what_was_saved_is_told() {
        let half = with!(report(), resumed_bytes: 268_435_456);
        assert!(
            closing(&half)[0].ends_with("; 256.0 MiB of 512.0 MiB already present"),
            "{:?}",
            closing(&half)
        );
        let whole = with!(report(), resumed_bytes: 536_870_912);
        assert_eq!(
            closing(&whole)[0],
            "disk.img → nas:disk.img  512.0 MiB already present, verified in 2.3 s"
        );
        let saved = with!(report(), wire_bytes: 1 << 20);
        assert!(
            closing(&saved)[0].ends_with(", verified and on disk; 1.0 MiB sent for 512.0 MiB"),
            "{:?}",
            closing(&saved)
        );
        let holes = with!(report(), wire_bytes: 0);
        assert!(closing(&holes)[0].ends_with("; 0 B sent for 512.0 MiB"));
    }

    #[test]
    fn a_tree_of_small_files_has_files_a_second_and_one_that_is_the_same_has_no_rate() {
        let tree = |files| Some(with!(TreeReport::default(), files: files, bytes: 536_870_912));
        let many = with!(report(), tree: tree(2284));
        assert!(
            closing(&many)[0].contains(" (1,000 files/s, 235.1 MB/s over eth1, eth2)"),
            "{:?}",
            closing(&many)
        );
        let same = with!(report(), size: 0, tree: Some(with!(TreeReport::default(), unchanged: 5)));
        assert_eq!(closing(&same)[0], "nothing to send, in 2.3 s");
    }

    #[test]
    fn empty_files_that_were_copied_are_not_nothing() {
        let empty = |files| with!(report(), size: 0, tree: Some(with!(TreeReport::default(), files: files)), limited_by: Limit::Files, expected: Some(BitRate(1)));
        assert_eq!(
            closing(&empty(2284)),
            [
                "1,000 files/s, all empty",
                "limited by opening and closing files"
            ]
        );
        assert_eq!(closing(&empty(3))[0], "all files are empty, in 2.3 s");
        let failed = with!(empty(0), tree: Some(with!(TreeReport::default(), failed: 2)));
        assert_eq!(closing(&failed)[0], "no files sent, in 2.3 s");
    }
}
