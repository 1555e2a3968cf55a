//! Errors of the client as those of object_store.

use nicstripe::{Error, FailCode};

use super::object_store::{self, path::Path};

/// Name of this store in errors.
pub(crate) const STORE: &str = "nicstripe";

/// Converts the error of a call for the object at `path`.
pub(crate) fn told(error: Error, path: &Path) -> object_store::Error {
    let (path, source) = (path.to_string(), Box::new(error));
    match source.fail_code() {
        // A name in what is no directory, and a directory, are no objects.
        Some(FailCode::NotFound | FailCode::NotAFile | FailCode::NotADirectory) => {
            object_store::Error::NotFound { path, source }
        }
        Some(FailCode::Exists) => object_store::Error::AlreadyExists { path, source },
        Some(FailCode::Precondition) => object_store::Error::Precondition { path, source },
        Some(FailCode::NotPermitted) => object_store::Error::PermissionDenied { path, source },
        _ if matches!(*source, Error::Unsupported { .. }) => {
            object_store::Error::NotSupported { source }
        }
        _ => generic(source),
    }
}

/// Returns the error for a cause that object_store has no category for.
pub(crate) fn generic(
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> object_store::Error {
    object_store::Error::Generic {
        store: STORE,
        source: source.into(),
    }
}

/// Returns the error for what this store does not have.
pub(crate) fn not_implemented(operation: &str) -> object_store::Error {
    object_store::Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: STORE.to_owned(),
    }
}
