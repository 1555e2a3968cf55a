//! What people read about links, whichever command tells it.

use nicstripe::{LinkName, LinkRemedy, escaped};

/// Names both ends of a link, `eth1 → enp2`, or ours alone where the peer's has no name.
pub(crate) fn ends(link: &LinkName) -> String {
    let ours = escaped(link.interface.as_bytes());
    match &link.peer_interface {
        Some(peer) => format!("{ours} → {}", escaped(peer.as_bytes())),
        None => ours,
    }
}

/// Says how many links there are: `1 link`, `2 links`.
pub(crate) fn counted(links: usize) -> String {
    format!("{links} link{}", if links == 1 { "" } else { "s" })
}

/// Says that packets of more than this many bytes vanish, and what to do.
pub(crate) fn narrow(through: u32) -> String {
    format!(
        "packets above {through} bytes vanish on the way, and are not used: let the switch pass jumbo frames, or set the MTU of both ends to {through}"
    )
}

/// Returns what could be done about links that did not work, a line a machine.
pub(crate) fn remedies(remedies: &[LinkRemedy]) -> Vec<String> {
    let line = |remedy: &LinkRemedy| {
        let place = if remedy.is_peers { "on the peer" } else { "here" };
        let commands = |commands: &[String]| escaped(commands.join("; ").as_bytes());
        let problem = escaped(remedy.problem.as_bytes());
        format!("{place} ({problem}), as root: {}; to undo: {}", commands(&remedy.apply), commands(&remedy.undo))
    };
    remedies.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::view_tests::link;

    #[test]
    fn a_link_is_named_by_both_ends_and_what_the_peer_says_is_escaped() {
        assert_eq!(ends(&link("eth1")), "eth1");
        let named = |peer: &str| LinkName { peer_interface: Some(peer.into()), ..link("eth1") };
        assert_eq!(ends(&named("enp2")), "eth1 → enp2");
        assert_ne!(ends(&named("\u{1b}[2J")), "eth1 → \u{1b}[2J");
    }
}
