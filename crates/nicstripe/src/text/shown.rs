//! Names that a peer chose, escaped and truncated for display.

use nicstripe_proto::{Name, message::PeerInterface, name::escaped};

/// Escapes the names of a peer's interface and its members for display. The peer chooses the names
/// and may put terminal escape sequences into them.
pub(crate) fn shown_interface(interface: PeerInterface) -> PeerInterface {
    let members = interface
        .members
        .map(|members| members.into_iter().map(shown_name).collect());
    PeerInterface {
        name: shown_name(interface.name),
        members,
        card: interface.card.map(shown_name),
        ..interface
    }
}

/// Escapes an interface name and truncates it to [`MOST_NAME`] characters.
pub(crate) fn shown_name(name: String) -> String {
    let shown = escaped(name.as_bytes());
    shown.chars().take(MOST_NAME).collect()
}

/// Maximum length of a displayed interface name, in characters. Linux allows 15, other systems
/// more.
const MOST_NAME: usize = 64;

/// Returns a path beneath a root for display; the root itself (`None`) is `.`.
pub(crate) fn shown_path(name: Option<&Name>) -> String {
    name.map_or_else(|| ".".to_owned(), Name::to_string)
}
