//! Text from peers, files and the system, made safe to log and to show.

pub(crate) mod logged;

use nicstripe_proto::{message::PeerInterface, name::escaped};

/// Returns the messages of an error and its sources in one line, joined by `: `.
///
/// ```
/// let error = std::io::Error::other("no route to host");
/// assert_eq!(nicstripe::chain(&error), "no route to host");
/// ```
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Escapes the names of a peer's interface and its members for display. The peer chooses the names
/// and may put terminal escape sequences into them.
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

/// Escapes an interface name and truncates it to [`MOST_NAME`] characters.
pub(crate) fn shown_name(name: String) -> String {
    let shown = escaped(name.as_bytes());
    shown.chars().take(MOST_NAME).collect()
}

/// Maximum length of a displayed interface name, in characters. Linux allows 15, other systems
/// more.
const MOST_NAME: usize = 64;
