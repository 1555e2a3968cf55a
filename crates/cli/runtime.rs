//! The async runtime that the library's work runs on.

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Makes a runtime with a thread a core.
pub(crate) fn threaded() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)
}

/// Makes a runtime on the calling thread alone.
///
/// For `demo`: its children are killed when the thread that started them ends, and the main thread ends last.
pub(crate) fn local() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)
}
