//! Text of a peer in a form that can be shown.

use nicstripe_proto::{message::PeerInterface, name::escaped};

/// Returns an interface of the peer with a printable name. The peer chooses the name and may put
/// terminal escape sequences into it.
pub(crate) fn shown_interface(interface: PeerInterface) -> PeerInterface {
    let members = interface
        .members
        .map(|members| members.into_iter().map(shown_name).collect());
    PeerInterface {
        name: shown_name(interface.name),
        members,
        ..interface
    }
}

/// Like [`shown_interface`], for the name alone.
pub(crate) fn shown_name(name: String) -> String {
    let shown = escaped(name.as_bytes());
    shown.chars().take(MOST_NAME).collect()
}

/// Maximum length of a displayed interface name, in characters. Linux allows 15, other systems
/// more.
const MOST_NAME: usize = 64;
