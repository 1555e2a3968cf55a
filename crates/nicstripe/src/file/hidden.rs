//! Hidden names of part files and journals. Peers can neither create nor open files with such
//! names.

use std::{
    ffi::{OsStr, OsString},
    io,
};

use nicstripe_proto::Name;
use rustix::io::Errno;

use super::error::Barred;

/// Returns the hidden name `.NAME.<8 hex digits>.nicstripe-KIND` of a part file or journal.
/// Replaces `NAME` by its hash if the result would be too long.
pub(crate) fn hidden_name(name: &OsStr, tag: &[u8], kind: &str) -> OsString {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut hidden = OsString::from(".");
    if name.len() > nicstripe_proto::name::MAX_COMPONENT - ROOM_FOR_SUFFIX {
        hidden.push(hex(&blake3::hash(name.as_encoded_bytes()).as_bytes()[..16]));
    } else {
        hidden.push(name);
    }
    hidden.push(format!(
        ".{}.nicstripe-{kind}",
        hex(&blake3::hash(tag).as_bytes()[..4])
    ));
    hidden
}

/// Returns true if a name is one that [`hidden_name`] creates.
pub(crate) fn is_hidden_name(name: &[u8]) -> bool {
    name.starts_with(b".")
        && (name.ends_with(b".nicstripe-part") || name.ends_with(b".nicstripe-journal"))
}

/// Checks a name that a peer looks up. Hidden files and directories do not exist for peers.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if a component of the name is hidden.
pub(crate) fn check_sought(name: &Name) -> io::Result<()> {
    if name.components().any(is_hidden_name) {
        Err(Errno::NOENT.into())
    } else {
        Ok(())
    }
}

/// Checks the name of a file or directory that a peer wants to create.
///
/// # Errors
///
/// [`Barred::Hidden`] if a component of the name is hidden.
pub(crate) fn check_given(name: &Name) -> io::Result<()> {
    if name.components().any(is_hidden_name) {
        Err(Barred::Hidden.into())
    } else {
        Ok(())
    }
}

/// Maximum number of bytes that a hidden name adds to the name: two dots, 8 digits and
/// `.nicstripe-journal` are 28.
const ROOM_FOR_SUFFIX: usize = 32;
