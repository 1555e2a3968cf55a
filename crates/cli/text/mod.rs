//! Values and text: quantities, tables, names of links, command lines. Uses no other module of this
//! crate.

pub(crate) mod answers;
pub(crate) mod date;
pub(crate) mod granting;
pub(crate) mod invocation;
pub(crate) mod link_text;
pub(crate) mod quantity;
pub(crate) mod spelling;
pub(crate) mod table;

use std::{ffi::OsStr, fmt::Display};

/// Returns a path, a name or a text of the system or a peer, escaped for a terminal.
pub(crate) fn shown(text: impl AsRef<OsStr>) -> String {
    nicstripe::escaped(text.as_ref().as_encoded_bytes())
}

/// Returns the name of the first condition that is true, such as the first option that was given.
pub(crate) fn first_true(
    conditions: impl IntoIterator<Item = (bool, &'static str)>,
) -> Option<&'static str> {
    let mut conditions = conditions.into_iter();
    conditions.find_map(|(is_true, name)| is_true.then_some(name))
}

/// Formats a number of things: `1 link`, `2 links`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Returns a value as text, or a question mark if it is unknown.
pub(crate) fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}
