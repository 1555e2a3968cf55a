//! Clock of sessions and connections. It is tokio's, so that tests can run them in virtual time.

use std::time::Instant;

/// Returns the current time of the runtime's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Sleeps until `at`; never returns if it is `None`.
pub(crate) async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
