//! What a daemon serves: a directory of the file system, which has ways of its own, or whatever else is a [`Storage`].

use std::{io, os::unix::ffi::OsStrExt, sync::Arc};

use nicstripe_proto::{FailCode, Name, Offer, message::PutOptions};

use super::{Kind, Storage, Target, TargetOpened};
use crate::{
    file::{self, Attributes, FileError, ReadOptions, Root, Source, TargetRequest},
    trust::PublicKey,
};

/// What a daemon serves.
#[derive(Debug, Clone)]
pub(crate) enum Served {
    /// A directory, without another layer before its files.
    Files(Arc<Root>),
    /// Anything else.
    Other(Arc<dyn Storage>),
}

impl Served {
    /// The directory, for what takes one; `what` is tried with `name`.
    ///
    /// # Errors
    ///
    /// [`FailCode::Refused`] where there is none.
    pub(crate) fn root(&self, what: &'static str, name: &dyn std::fmt::Display) -> Result<&Arc<Root>, FileError> {
        match self {
            Self::Files(root) => Ok(root),
            Self::Other(_) => Err(no_directory(what, name)),
        }
    }

    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        match self {
            Self::Files(root) => root.is_directory(name),
            Self::Other(storage) => storage.stat(name).is_ok_and(|found| found.kind == Kind::Dir),
        }
    }

    /// Opens a file to be sent.
    pub(crate) fn open_source(&self, name: &Name, options: ReadOptions) -> Result<Source, FileError> {
        match self {
            Self::Files(root) => Source::open_beneath(root, name, options),
            Self::Other(storage) => Source::of_stored(storage.open(name)?, name.to_string(), options),
        }
    }

    /// Opens a file to be received, and says what of it is durable already.
    pub(crate) fn open_target(&self, name: &Name, offer: &Offer, options: PutOptions, peer: PublicKey) -> Result<TargetOpened, FileError> {
        match self {
            Self::Files(root) => {
                let dir = root.open_parent(name).map_err(|error| FileError::new("open the directory of", name, error))?;
                let request = TargetRequest {
                    dir,
                    name: std::ffi::OsStr::from_bytes(name.file_name()),
                    offer,
                    options,
                    peer_key: *peer.as_bytes(),
                    journal_id: crate::random_bytes(),
                    // As in a tree, a device is no place for a trial.
                    attributes: options.trial.then(Attributes::default),
                };
                file::Target::open(request).map(|(target, have)| (target.into(), have))
            }
            Self::Other(_) if options.trial => Err(no_directory("try to receive", name)),
            Self::Other(storage) => Target::begin(&**storage, name, offer, options, peer),
        }
    }
}

fn no_directory(what: &'static str, name: &dyn std::fmt::Display) -> FileError {
    let why = io::Error::new(io::ErrorKind::Unsupported, "this daemon keeps single files, and has no directory of a file system");
    FileError::new(what, name, why).with_code(FailCode::Refused)
}
