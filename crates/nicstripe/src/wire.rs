//! Connections: one task each, which decodes received frames and encodes frames to send, and the
//! TLS below it.

pub(crate) mod stream;
pub(crate) mod tls;

/// Sleeps until `at`; never returns if it is `None`.
pub(crate) async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
