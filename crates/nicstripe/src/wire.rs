//! Connections of sessions, and the TLS below them. One task per connection decodes received frames
//! and encodes frames to send.

pub(crate) mod clock;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod stream;
pub(crate) mod tasks;
pub(crate) mod tls;
