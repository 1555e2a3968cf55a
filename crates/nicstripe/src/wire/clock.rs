//! Clock of sessions and connections. In tests it is tokio's, which can be stopped.

use std::time::Instant;

#[cfg(not(test))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the current time of the runtime's clock.
#[cfg(test)]
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
