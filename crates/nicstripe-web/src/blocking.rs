//! Work on threads that may wait for a disk.

use tokio::task::spawn_blocking;

use crate::error::WebError;

/// Runs a task that may block. A panic in it is an error of the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, WebError> + Send + 'static,
) -> Result<T, WebError> {
    spawn_blocking(task).await.unwrap_or_else(|error| {
        let error = std::io::Error::other(error.to_string());
        Err(nicstripe::FileError::new("write", "the file", error).into())
    })
}
