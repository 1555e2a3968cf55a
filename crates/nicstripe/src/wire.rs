//! Connections: one task each, which decodes received frames and encodes frames to send, and the
//! TLS below it.

pub(crate) mod clock;
pub(crate) mod stream;
pub(crate) mod tls;
