//! Names that the peers of a daemon may create, and nothing else.

use std::{collections::HashSet, fmt::Display};

use nicstripe_proto::{Name, message::PutTree};

use crate::{file::FileError, tree::receiver::Promised};

/// Names in the served directory of the files and trees that peers may create. They may create them
/// only once, and neither read nor list, rename or remove anything.
#[derive(Debug)]
pub(crate) struct Inbox(HashSet<Vec<u8>>);

impl Inbox {
    pub(super) fn new(names: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Returns an error unless the name, or the directory that it lies in, is one of these.
    pub(super) fn check(&self, name: &Name) -> Result<(), FileError> {
        match name.components().next() {
            Some(first) if self.0.contains(first) => Ok(()),
            _ => Err(self.refused("receive", name)),
        }
    }

    /// Returns the entries that a tree must have at its top, all of them and no others.
    pub(super) fn of_tree(&self, put: &PutTree) -> Result<Promised, FileError> {
        match &put.target {
            None => Ok(Promised::named(self.0.iter().cloned())),
            Some(target) => Err(self.refused("receive a tree in", target)),
        }
    }

    /// Returns the error for anything but creating an admitted name.
    pub(super) fn refused(&self, operation: &'static str, name: &dyn Display) -> FileError {
        let why = match self.0.is_empty() {
            true => "no files are served to this peer",
            false => "this peer may only create the files that it has offered",
        };
        FileError::refused(operation, name, why)
    }
}
