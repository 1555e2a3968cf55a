//! Connections: one task each, which decodes received frames and encodes frames to send, and the
//! TLS below it.

pub(crate) mod clock;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod stream;
pub(crate) mod tls;
