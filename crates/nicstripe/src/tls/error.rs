//! Why a connection ends.

use std::io;

use rustls::{AlertDescription, CertificateError};

use super::config::{BadKey, UntrustedKey};
use super::record::RecordError;
use crate::trust::PublicKey;

/// Why a connection ends, split by who must act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TlsError {
    /// The peer showed a key that we do not accept. That it owns the key is not proved, only that it names it.
    #[error("peer's key is not trusted: {0}")]
    UntrustedKey(PublicKey),
    /// The peer, which has proved its own key if it is the server, does not accept ours. Nothing else is told with this alert.
    #[error("peer refused our key (alert {})", name(*.0))]
    KeyRefused(AlertDescription),
    /// The peer hung up before it said what it makes of our key. No verdict: a busy peer, or anybody on the way, ends connections so.
    #[error("peer closed the connection before it said whether it trusts our key")]
    ClosedAtKey(#[source] Option<io::Error>),
    /// The peer showed no key, or one of another kind.
    #[error("peer showed no Ed25519 raw public key")]
    NoKey,
    /// The first bytes are another protocol's, or nothing.
    #[error("peer does not speak TLS")]
    NotTls(#[source] RecordError),
    /// TLS, but not our protocol in it.
    #[error("peer speaks TLS, but not {:?}", str::from_utf8(super::ALPN).unwrap_or_default())]
    OtherProtocol,
    /// Something that is not TLS 1.3 as we use it.
    #[error("peer does not speak TLS 1.3 with our parameters")]
    Handshake(#[source] rustls::Error),
    /// The peer gave up.
    #[error("peer ended the connection with alert {}", name(*.0))]
    Alert(AlertDescription),
    /// The peer's bytes are no records of this connection: a broken peer, or somebody between us.
    #[error("peer's record cannot be accepted")]
    Record(#[from] RecordError),
    /// A record was authentic but not allowed there.
    #[error("peer sent an unexpected record: {0}")]
    Unexpected(&'static str),
    /// The connection ended without the peer's `close_notify`: bytes may be missing.
    #[error("connection was cut: the peer did not say that it would end")]
    Truncated,
    /// The handshake took too long.
    #[error("handshake did not finish before its deadline")]
    TimedOut,
    /// The system's random numbers or the cipher failed, or the connection has failed before and is used again.
    #[error("connection is unusable: {0}")]
    Unusable(&'static str),
    /// The system said no.
    #[error("cannot {action} the connection")]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl TlsError {
    /// Sorts what rustls says about a handshake.
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
            rustls::Error::NoCertificatesPresented => return Self::NoKey,
            rustls::Error::NoApplicationProtocol => return Self::OtherProtocol,
            rustls::Error::AlertReceived(alert) => return Self::from_alert(*alert),
            _ => {}
        }
        Self::Handshake(error)
    }

    /// Sorts an alert that came before the peer's first word.
    pub(super) fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateUnknown => Self::KeyRefused(alert),
            AlertDescription::NoApplicationProtocol => Self::OtherProtocol,
            _ => Self::Alert(alert),
        }
    }

    /// Whether bytes were changed on the way: at this end, or at the other, which says so with an alert. Who does it on purpose is told no
    /// more than bad memory in a switch.
    pub(crate) fn tells_of_damage(&self) -> bool {
        use AlertDescription::{BadRecordMac, RecordOverflow};
        matches!(self, Self::Record(_) | Self::Alert(BadRecordMac | RecordOverflow))
    }

    /// Tells that this end hung up on us while reading or writing, so that a last word of the peer's may still be there to read.
    pub(super) fn is_hang_up(error: &io::Error) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | NotConnected)
    }
}

fn name(alert: AlertDescription) -> String {
    // Words as RFC 8446 has them, from the one name that it has in Rust.
    let name = format!("{alert:?}");
    let parts = name.chars().enumerate().flat_map(|(at, c)| {
        let gap = (at > 0 && c.is_ascii_uppercase()).then_some('_');
        gap.into_iter().chain([c.to_ascii_lowercase()])
    });
    parts.collect()
}
