//! The links of the machines, one a line: `eth1 ── 1000 Mb/s full ── nas eth3`.

use nicstripe_doctor::{Case, LinkFacts, LinkState};
use nicstripe_link::facts::{Facts, InterfaceFacts};

use crate::text::{shown, table::left_aligned};

/// Returns the lines of the picture: the links to the peer, or the cards of this machine.
pub(super) fn lines(case: &Case) -> Vec<String> {
    let rows: Vec<_> = match case.links.is_empty() {
        false => case.links.iter().map(|link| row(case, link)).collect(),
        true => {
            let cards = case.here.facts.interfaces.iter();
            cards.filter(|one| is_shown(one)).map(card).collect()
        }
    };
    left_aligned(&rows)
}

fn row(case: &Case, link: &LinkFacts) -> [String; 3] {
    let here = case.here.facts.interface(&link.here);
    let there = case.there.as_ref().map(|machine| &machine.facts);
    let their = |facts: &'_ Facts| {
        link.there
            .as_deref()
            .and_then(|name| facts.interface(name).cloned())
    };
    let rate = here
        .and_then(rate)
        .or_else(|| there.and_then(their).as_ref().and_then(rate));
    let name = there
        .and_then(|facts| facts.host.name.as_deref())
        .unwrap_or("peer");
    let line = match link.state.works() {
        true => format!("── {} ──", rate.as_deref().unwrap_or("?")),
        false => "── ✗ ──".into(),
    };
    [
        format!("  {}", shown(&link.here)),
        line,
        format!(
            "{} {}  {}",
            shown(name),
            shown(link.there.as_deref().unwrap_or("?")),
            word(link)
        )
        .trim_end()
        .to_owned(),
    ]
}

fn word(link: &LinkFacts) -> String {
    match link.state {
        LinkState::Verified | LinkState::Untried => String::new(),
        LinkState::Up => "not verified".into(),
        LinkState::Misdirected => match &link.arrived {
            Some(arrived) => format!("arrives at {}", shown(arrived)),
            None => "arrives at another interface".into(),
        },
        LinkState::Silent => "no answer".into(),
        LinkState::Rejected => "rejected by a filter".into(),
        LinkState::Refused => "refused".into(),
        LinkState::Reset => "reset".into(),
        LinkState::FilteredHere => "rejected by a filter here".into(),
        LinkState::Unrouted => "needs a host route".into(),
        LinkState::Stranger => "another machine".into(),
    }
}

fn card(interface: &InterfaceFacts) -> [String; 3] {
    let what = match (interface.carrier, rate(interface)) {
        (Some(false), _) => "no carrier".into(),
        (_, Some(rate)) => rate,
        _ => "rate unknown".into(),
    };
    let bus = interface.bus.first().map_or("", |hop| &*hop.kind);
    let driver = interface.driver.as_deref().unwrap_or_default();
    [
        format!("  {}", shown(&interface.name)),
        format!("── {what}"),
        shown(format!("{driver} {bus}").trim()),
    ]
}

fn is_shown(interface: &InterfaceFacts) -> bool {
    matches!(interface.kind.as_deref(), Some("ethernet" | "bond"))
}

/// Returns the rate and duplex mode of an interface: `1000 Mb/s full`.
fn rate(interface: &InterfaceFacts) -> Option<String> {
    let mbps = interface.speed_mbps?;
    let duplex = interface.duplex.as_deref().unwrap_or_default();
    Some(shown(format!("{mbps} Mb/s {duplex}").trim()))
}
