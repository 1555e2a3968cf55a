//! Encryption of every connection: TLS 1.3 between two pinned keys, and nothing else.
//!
//! rustls with aws-lc runs the handshake and derives all keys ([`handshake`]). [`record`] seals and
//! opens later records in the buffer of the system call, which in receiving is the one where their
//! bytes belong ([`room`]), because every byte of a transfer passes through it. [`pump::Tls`] is the
//! protocol without I/O; [`TlsStream`] connects it to a socket.
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
mod room;
mod stream;

pub(crate) use config::{ClientTls, KeyFilter, ListCheck, ServerTls};
pub(crate) use error::TlsError;
pub(crate) use room::{Plaintext, Room};
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
