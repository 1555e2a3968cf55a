//! Encryption of every connection: TLS 1.3 between two pinned keys, and nothing else.
//!
//! rustls with aws-lc does the handshake and derives all keys ([`handshake`]); [`record`] seals and opens the records after it, in the
//! buffers that the kernel reads and writes, since that is where every byte of a transfer passes. [`pump::Tls`] is the whole without any I/O;
//! [`TlsStream`] joins it to a TCP connection of tokio.
//!
//! What is insisted on is listed in [`config`], and an outsider learns nothing: a server that is not addressed in its protocol says nothing.

mod buffer;
mod config;
mod error;
mod exporter;
mod handshake;
mod pump;
mod record;
mod stream;

pub(crate) use config::{ClientTls, KeyFilter, ServerTls};
pub(crate) use error::TlsError;
pub(crate) use stream::TlsStream;
#[cfg(any(test, fuzzing))]
pub(crate) use {
    buffer::SendBuffer,
    pump::Tls,
    record::{MAX_RECORD, Opener, RECORD_OVERHEAD, RecordError, Sealer, record_len},
};

/// The one protocol spoken inside TLS, as its application layer calls it (RFC 7301).
pub(crate) const ALPN: &[u8] = b"nicstripe/1";
/// How every version's [`ALPN`] begins.
const ALPN_FAMILY: &[u8] = b"nicstripe/";
/// Label of [`TlsStream::binding`] for the exporter (RFC 5705, section 4: private labels begin with `EXPERIMENTAL`).
const BINDING_LABEL: &[u8] = b"EXPERIMENTAL nicstripe/1 binding";

#[cfg(test)]
mod tests;
