//! Encryption of every connection: TLS 1.3 between two pinned keys, and nothing else.
//!
//! rustls with aws-lc runs the handshake and derives all keys ([`handshake`]). [`record`] seals later
//! records in the buffer of the system call, and opens them there or where their bytes belong
//! ([`Plaintext`]), because every byte of a transfer passes through it. [`pump::Tls`] is the protocol
//! without I/O; [`TlsStream`] connects it to a socket.
//!
//! [`config`] lists the required parameters. A server sends nothing to a client that does not name
//! the ALPN protocol of nicstripe.

mod cipher;
mod config;
mod error;
mod exporter;
mod handshake;
mod pump;
mod record;
mod stream;

pub(crate) use config::{ClientTls, KeyFilter, ServerTls};
pub(crate) use error::TlsError;
pub(crate) use pump::Plaintext;
#[cfg(test)]
pub(crate) use stream::Socket;
pub(crate) use stream::{Progress, TlsStream};
#[cfg(any(test, fuzzing))]
pub(crate) use {
    pump::Tls,
    record::{MAX_RECORD, Opener, RECORD_OVERHEAD, RecordError, Sealer, SendBuffer, record_len},
};

#[cfg(test)]
mod tests;
