//! Errors that end a TLS connection.

use std::io;

use rustls::{AlertDescription, CertificateError};

use super::config::{BadKey, UntrustedKey};
use super::record::RecordError;
use crate::trust::PublicKey;

/// Reason why a TLS connection ended, split by who must act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TlsError {
    /// The peer presented a key that is not trusted here. The peer has not proved that it owns the
    /// key.
    #[error("peer's key is not trusted: {0}")]
    UntrustedKey(PublicKey),
    /// The peer does not trust the local key; a server has proved its own key before. This alert
    /// has no other meaning.
    #[error("peer rejected our key (alert {})", name(*.0))]
    KeyRefused(AlertDescription),
    /// The list of trusted keys cannot be read, at this end or, by its alert after its key was
    /// proved, at the peer.
    #[error("the list of peers cannot be read")]
    NoList,
    /// The peer closed the connection before it accepted or rejected the local key. A busy peer, or
    /// an attacker on the path, can cause this.
    #[error("peer closed the connection before accepting our key")]
    ClosedAtKey(#[source] Option<io::Error>),
    /// The peer presented no key, or a key of another type.
    #[error("peer sent no Ed25519 raw public key")]
    NoKey,
    /// The first bytes received are not TLS.
    #[error("peer does not speak TLS")]
    NotTls(#[source] RecordError),
    /// The peer speaks TLS, but not the required ALPN protocol.
    #[error("peer speaks TLS, but not {:?}", str::from_utf8(super::config::ALPN).unwrap_or_default())]
    OtherProtocol,
    /// The peer does not speak TLS 1.3 with the required parameters.
    #[error("peer does not speak TLS 1.3 with our parameters")]
    Handshake(#[source] rustls::Error),
    /// The peer ended the connection with this alert.
    #[error("peer ended the connection with alert {}", name(*.0))]
    Alert(AlertDescription),
    /// The bytes received are not valid records of this connection: the peer is broken, or a third
    /// party on the path altered them.
    #[error("invalid record from the peer")]
    Record(#[from] RecordError),
    /// An authentic record arrived in a state that does not allow it.
    #[error("peer sent an unexpected record: {0}")]
    Unexpected(&'static str),
    /// The connection ended without the peer's `close_notify`: bytes may be missing.
    #[error("connection cut without close_notify")]
    Truncated,
    /// The handshake did not finish before its deadline.
    #[error("handshake timed out")]
    TimedOut,
    /// The random number generator or the cipher failed, or the connection is used after an earlier
    /// failure.
    #[error("connection is unusable: {0}")]
    Unusable(&'static str),
    /// A system call on the connection failed.
    #[error("cannot {action} the connection")]
    Io {
        /// Failed operation, as a verb.
        action: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl TlsError {
    /// Converts an error of rustls that occurred during a handshake.
    pub(super) fn from_handshake(error: rustls::Error) -> Self {
        match &error {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                if let Some(UntrustedKey(key)) = other.0.downcast_ref() {
                    return Self::UntrustedKey(*key);
                }
                if other.0.is::<BadKey>() {
                    return Self::NoKey;
                }
            }
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                return Self::NoList;
            }
            rustls::Error::NoCertificatesPresented => return Self::NoKey,
            rustls::Error::NoApplicationProtocol => return Self::OtherProtocol,
            rustls::Error::AlertReceived(alert) => return Self::from_alert(*alert),
            _ => {}
        }
        Self::Handshake(error)
    }

    /// Converts an alert that arrived before the first data of the peer.
    pub(super) fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateUnknown => Self::KeyRefused(alert),
            AlertDescription::AccessDenied => Self::NoList,
            AlertDescription::NoApplicationProtocol => Self::OtherProtocol,
            _ => Self::Alert(alert),
        }
    }

    /// Returns true if bytes were altered in transit, as seen by this end or reported by the peer's
    /// alert. Deliberate changes look like hardware faults, such as bad memory in a
    /// switch.
    pub(crate) fn tells_of_damage(&self) -> bool {
        use AlertDescription::{BadRecordMac, RecordOverflow};
        matches!(
            self,
            Self::Record(_) | Self::Alert(BadRecordMac | RecordOverflow)
        )
    }

    /// Returns true if the peer's process or kernel closed the connection.
    pub(crate) fn is_close(&self) -> bool {
        match self {
            Self::Truncated => true,
            Self::Io { source, .. } => Self::is_hang_up(source),
            _ => false,
        }
    }

    /// Returns true if a system call failed because the peer closed the connection. The last bytes
    /// of the peer may still be readable.
    pub(super) fn is_hang_up(error: &io::Error) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        matches!(
            error.kind(),
            ConnectionReset | BrokenPipe | ConnectionAborted | NotConnected
        )
    }
}

fn name(alert: AlertDescription) -> String {
    // Converts Rust's name of the alert into the spelling of RFC 8446.
    let name = format!("{alert:?}");
    let parts = name.chars().enumerate().flat_map(|(at, c)| {
        let gap = (at > 0 && c.is_ascii_uppercase()).then_some('_');
        gap.into_iter().chain([c.to_ascii_lowercase()])
    });
    parts.collect()
}
