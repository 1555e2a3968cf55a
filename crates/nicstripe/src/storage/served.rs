//! Files that a daemon serves: a directory of the file system, or a [`Storage`].

use std::{io, sync::Arc};

use nicstripe_proto::{Name, ObjectAttributes, Offer, message::PutOptions};

use super::{
    backend::{Kind, Storage},
    target::{Target, TargetOpened},
};
use crate::{
    file::{
        self, Attributes, Barred, FileError, ReadOptions, Root, Sidecar, Source, TargetRequest,
        check_given, check_sought,
    },
    text::shown_path,
    trust::{Access, PublicKey},
};

#[derive(Debug, Clone)]
pub(crate) enum Served {
    /// Directory of the file system, accessed without [`Storage`].
    Files(Arc<Root>),
    /// [`Storage`] that the embedding program supplied.
    Other(Stored),
}

/// [`Storage`] of the embedding program, accessible only with checked names.
#[derive(Debug, Clone)]
pub(crate) struct Stored(Arc<dyn Storage>);

impl Stored {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self(storage)
    }

    /// Checks that a name to look up is not hidden (`None`: the root), and returns the storage.
    pub(crate) fn to_find(
        &self,
        operation: &'static str,
        name: Option<&Name>,
    ) -> Result<&dyn Storage, FileError> {
        name.map_or(Ok(()), check_sought)
            .map_err(|cause| FileError::new(operation, shown_path(name), cause))?;
        Ok(&*self.0)
    }

    /// Checks that a name to create or change is not hidden, and returns the storage.
    pub(crate) fn to_name(
        &self,
        operation: &'static str,
        name: &Name,
    ) -> Result<&dyn Storage, FileError> {
        check_given(name).map_err(|cause| FileError::new(operation, name, cause))?;
        Ok(&*self.0)
    }
}

impl Served {
    /// Restricts the storage to a peer's rights. Path lookup follows no symlinks for an
    /// append-only peer, which may create symlinks that lead out of the root.
    pub(crate) fn within(self, access: Access) -> Self {
        match self {
            Self::Files(root) if access == Access::AppendOnly => {
                Self::Files(Arc::new(root.without_links()))
            }
            served => served,
        }
    }

    /// Returns the served directory, for operations that need one. `what` and `name` describe the
    /// operation in errors.
    ///
    /// # Errors
    ///
    /// [`FailCode::Refused`] if the daemon serves a [`Storage`] instead of a directory.
    pub(crate) fn root(
        &self,
        what: &'static str,
        name: &dyn std::fmt::Display,
    ) -> Result<&Arc<Root>, FileError> {
        match self {
            Self::Files(root) => Ok(root),
            Self::Other(_) => Err(no_directory(what, name)),
        }
    }

    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        match self {
            Self::Files(root) => root.is_directory(name),
            Self::Other(stored) => stored
                .to_find("look at", Some(name))
                .and_then(|storage| storage.stat(name))
                .is_ok_and(|found| found.kind == Kind::Dir),
        }
    }

    pub(crate) fn open_source(
        &self,
        name: &Name,
        options: ReadOptions,
    ) -> Result<Source, FileError> {
        match self {
            Self::Files(root) => Source::open_beneath(root, name, options),
            Self::Other(stored) => Source::of_stored(
                stored.to_find("open", Some(name))?.open(name)?,
                name.to_string(),
                options,
            ),
        }
    }

    /// Opens the target of a file to receive. Returns it with the subtrees that are already
    /// durable.
    pub(crate) fn open_target(
        &self,
        name: &Name,
        offer: &Offer,
        options: PutOptions,
        attributes: Option<&ObjectAttributes>,
        peer: PublicKey,
    ) -> Result<TargetOpened, FileError> {
        match self {
            Self::Files(root) => {
                let error = |cause: io::Error| {
                    let operation = if Barred::is_why(&cause) {
                        "receive"
                    } else {
                        "open the directory of"
                    };
                    FileError::new(operation, name, cause)
                };
                let (dir, name) = root.open_parent_for_new(name).map_err(error)?;
                let request = TargetRequest {
                    dir,
                    name: name.to_owned(),
                    offer: offer.clone(),
                    options,
                    peer_key: *peer.as_bytes(),
                    // A dry run must not open a device, as in trees.
                    attributes: options.trial.then(Attributes::default),
                    sidecar: Sidecar::Kept(attributes.cloned()),
                };
                file::Target::open(request).map(|(target, have)| (target.into(), have))
            }
            Self::Other(_) if options.trial => Err(no_directory("try to receive", name)),
            Self::Other(stored) => Target::begin(
                stored.to_name("receive", name)?,
                name,
                offer,
                options,
                attributes,
                peer,
            ),
        }
    }
}

fn no_directory(what: &'static str, name: &dyn std::fmt::Display) -> FileError {
    FileError::refused(what, name, "this daemon's storage has no directories")
}
