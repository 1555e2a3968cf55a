//! Names that the peers of a daemon may create, and nothing else.

use std::{fmt::Display, io, sync::Arc};

use nicstripe_proto::{
    FailCode, Name,
    invitation::Item,
    message::{Put, PutTree},
};

use crate::{
    file::FileError,
    tree::receiver::{Agreed, Promised},
};

/// Items in the served directory that peers may create, within what the user has agreed to. They may
/// create them only once, and neither read nor list, rename or remove anything.
#[derive(Debug)]
pub(crate) struct Inbox(Arc<Agreed>);

impl Inbox {
    pub(super) fn new(items: impl IntoIterator<Item = Item>, keeps_links: bool) -> Self {
        Self(Arc::new(Agreed::new(items, keeps_links)))
    }

    /// Returns an error unless the file is one of the items.
    pub(super) fn check(&self, name: &Name, put: &Put) -> Result<(), FileError> {
        if self.0.is_empty() {
            return Err(self.refused("receive", name));
        }
        let (kind, size) = (put.offer.kind.unwrap_or_default(), put.offer.source.size);
        let admitted = self.0.admit_file(name, kind, size);
        admitted.map_err(|why| {
            FileError::new("receive", name, io::Error::from(why)).with_code(FailCode::Refused)
        })
    }

    /// Returns the entries that a tree must have at its top, all of them and no others.
    pub(super) fn of_tree(&self, put: &PutTree) -> Result<Promised, FileError> {
        match &put.target {
            None if !self.0.is_empty() => Ok(Promised::agreed(self.0.clone())),
            None => Err(self.refused("receive", &"a tree")),
            Some(target) => Err(self.refused("receive a tree in", target)),
        }
    }

    /// Returns the error for anything but creating an item.
    pub(super) fn refused(&self, operation: &'static str, name: &dyn Display) -> FileError {
        let why = match self.0.is_empty() {
            true => "no files are served to this peer",
            false => "this peer may only create the files that it has offered",
        };
        let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
        FileError::new(operation, name, source).with_code(FailCode::Refused)
    }
}
