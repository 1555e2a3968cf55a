//! Texts about links, shared by all commands.

use nicstripe::{LinkName, LinkState};

use super::shown;

/// Returns the interfaces of a link as `eth1 → enp2`, or the local interface alone if the peer's
/// name is unknown.
pub(crate) fn ends(link: &LinkName) -> String {
    let ours = shown(&link.interface);
    match &link.peer_interface {
        Some(peer) => format!("{ours} → {}", shown(peer)),
        None => ours,
    }
}

/// Returns the reason why a link carries nothing; `None` if it connects or is connected.
pub(crate) fn trouble(state: &LinkState) -> Option<String> {
    match state {
        LinkState::Suspect => Some("no answer".to_owned()),
        LinkState::Down(why) => Some(format!("down: {}", shown(why))),
        LinkState::LeftOut(why) => Some(format!("not used: {}", shown(why))),
        _ => None,
    }
}

pub(crate) fn counted(links: usize) -> String {
    super::counted(links, "link")
}

/// Returns a warning that packets larger than `through` bytes are dropped on the path, with the
/// remedy.
pub(crate) fn narrow(through: u32) -> String {
    let cure = match through {
        1500.. => "enable jumbo frames on the switch",
        _ => "let the tunnel or DSL router on the way report it (ICMP: packet too big)",
    };
    format!(
        "packets above {through} bytes are dropped on the path, and not used: {cure}, or set the MTU of both ends to {through}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cp::tests::link;
    use nicstripe_testkit::with;

    #[test]
    fn a_link_is_named_by_both_ends_and_what_the_peer_says_is_escaped() {
        assert_eq!(ends(&link("eth1")), "eth1");
        let named = |peer: &str| with!(link("eth1"), peer_interface: Some(peer.into()));
        assert_eq!(ends(&named("enp2")), "eth1 → enp2");
        assert_ne!(ends(&named("\u{1b}[2J")), "eth1 → \u{1b}[2J");
    }
}
