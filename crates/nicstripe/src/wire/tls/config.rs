//! TLS parameters required by both ends.
//!
//! | | |
//! | --- | --- |
//! | version | TLS 1.3 only |
//! | cipher | AES-128-GCM; ChaCha20-Poly1305 if it is faster on either end's processor; AES-256-GCM with earlier versions |
//! | key exchange | X25519MLKEM768 only: a recording made today stays unreadable to a quantum computer, for 0.07 ms more a handshake |
//! | keys | Ed25519 raw public keys (RFC 7250), pinned, on both ends, always; any key for an invitation, which proves a code instead |
//! | application protocol | [`ALPN`], always; [`INVITATION_ALPN`] for an invitation |
//! | never | tickets, resumption, early data, compression, renegotiation, server names |

use std::{fmt, sync::Arc};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{self as provider, kx_group};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme, SupportedCipherSuite,
};

use super::cipher::{CHACHA20_FIRST, fastest_first};
use crate::trust::{Identity, PublicKey};

/// Function that returns true for the public keys to accept. Called once per handshake, on any
/// thread; must not block.
pub(crate) type KeyFilter = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// Returns true while the list of trusted keys is known.
pub(crate) type ListCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// TLS configuration of the connecting end. Cheap to clone; serves any number of connections.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls(pub(super) ClientConfig, pub(super) Family);

/// TLS configuration of the accepting end. Cheap to clone; serves any number of connections.
#[derive(Clone, Debug)]
pub(crate) struct ServerTls(pub(super) ServerConfig, pub(super) Family);

/// Family of ALPN names. No end accepts names of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Sessions between peers whose keys are trusted.
    Session,
    /// Invitations, between any keys.
    Invitation,
}

impl Family {
    /// Returns true if an ALPN name belongs to this family, in any version.
    pub(super) fn has(self, name: &[u8]) -> bool {
        name.starts_with(match self {
            Self::Session => b"nicstripe/",
            Self::Invitation => b"nicstripe-pair/",
        })
    }

    /// Returns the ALPN name of this version.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Session => ALPN,
            Self::Invitation => INVITATION_ALPN,
        }
    }
}

impl ClientTls {
    /// Creates a configuration that presents `identity`, and accepts servers whose key passes
    /// `accepts`.
    pub(crate) fn new(identity: &Identity, accepts: KeyFilter) -> Self {
        Self::with_suites(identity, accepts, Family::Session, fastest_first())
    }

    /// Like `new`, for joining an invitation. No daemon accepts such a connection.
    pub(crate) fn for_invitation(identity: &Identity, accepts: KeyFilter) -> Self {
        Self::with_suites(identity, accepts, Family::Invitation, fastest_first())
    }

    /// Like `new`, with these cipher suites in order of preference.
    pub(super) fn with_suites(
        identity: &Identity,
        accepts: KeyFilter,
        family: Family,
        suites: Suites,
    ) -> Self {
        let crypto = Arc::new(crypto_provider(suites));
        let verifier = Arc::new(PinnedKeys::new(accepts, &crypto));
        let mut config = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider made here has TLS 1.3 suites")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                identity.certified_key(),
            )));
        config.alpn_protocols = vec![family.name().to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.enable_early_data = false;
        // Needed by the record layer of this crate: see `record`.
        config.enable_secret_extraction = true;
        Self(config, family)
    }
}

#[cfg(test)]
impl ClientTls {
    /// Replaces the ALPN name, for tests of versions that do not exist.
    pub(crate) fn offering(mut self, protocol: &[u8]) -> Self {
        self.0.alpn_protocols = vec![protocol.to_vec()];
        self
    }
}

impl ServerTls {
    /// Creates a configuration that presents `identity`, and accepts clients whose key passes
    /// `accepts`.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn new(identity: &Identity, accepts: KeyFilter) -> Self {
        Self::with_suites(identity, accepts, Family::Session, fastest_first())
    }

    /// Like `new`, for the connections of an invitation: accepts any key, and no connection of a
    /// session.
    pub(crate) fn for_invitation(identity: &Identity) -> Self {
        Self::with_suites(
            identity,
            Arc::new(|_| true),
            Family::Invitation,
            fastest_first(),
        )
    }

    /// Like `new`, with these cipher suites in order of preference.
    pub(super) fn with_suites(
        identity: &Identity,
        accepts: KeyFilter,
        family: Family,
        suites: Suites,
    ) -> Self {
        Self::with_verifier(identity, accepts, None, family, suites)
    }

    /// Like `new`. `has_list` returns false while it is unknown which keys pass `accepts`: clients
    /// learn that this is why they are rejected.
    pub(crate) fn with_list(identity: &Identity, accepts: KeyFilter, has_list: ListCheck) -> Self {
        let has_list = Some(has_list);
        Self::with_verifier(
            identity,
            accepts,
            has_list,
            Family::Session,
            fastest_first(),
        )
    }

    fn with_verifier(
        identity: &Identity,
        accepts: KeyFilter,
        has_list: Option<ListCheck>,
        family: Family,
        suites: Suites,
    ) -> Self {
        let crypto = Arc::new(crypto_provider(suites));
        let mut verifier = PinnedKeys::new(accepts, &crypto);
        verifier.has_list = has_list;
        let verifier = Arc::new(verifier);
        let mut config = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider made here has TLS 1.3 suites")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(OwnKey(identity.certified_key(), family)));
        config.alpn_protocols = vec![family.name().to_vec()];
        if family == Family::Session {
            // Another version is refused in the greeting, where both ends learn which it is.
            let other = |version| format!("nicstripe/{version}").into_bytes();
            config.alpn_protocols.extend((0..=MOST_VERSIONS).map(other));
        }
        // Tickets would be harmful: a client that writes, closes and never reads them sends RST,
        // and our last reads fail.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        // The client's order decides, unless AES is expensive here.
        config.ignore_client_order = suites.first() == CHACHA20_FIRST.first();
        // Needed by the record layer of this crate: see `record`.
        config.enable_secret_extraction = true;
        Self(config, family)
    }
}

/// Cipher suites in order of preference.
type Suites = &'static [SupportedCipherSuite];

/// Returns the cipher suites and key exchanges of aws-lc to use, in order of preference.
fn crypto_provider(suites: Suites) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: suites.to_vec(),
        kx_groups: vec![kx_group::X25519MLKEM768],
        ..provider::default_provider()
    }
}

/// Verifier that accepts a raw public key if it passes the filter and signs the handshake.
struct PinnedKeys {
    accepts: KeyFilter,
    /// Returns false while the list of trusted keys cannot be read; `None` for a fixed list.
    has_list: Option<ListCheck>,
    crypto: Arc<CryptoProvider>,
}

impl PinnedKeys {
    fn new(accepts: KeyFilter, crypto: &Arc<CryptoProvider>) -> Self {
        Self {
            accepts,
            has_list: None,
            crypto: Arc::clone(crypto),
        }
    }

    fn check(&self, spki: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        let key = PublicKey::from_spki(spki)
            .filter(|_| more.is_empty())
            .ok_or_else(|| reject(BadKey))?;
        match (self.accepts)(&key) {
            true => Ok(()),
            false if self.has_list.as_ref().is_some_and(|has| !has()) => {
                // rustls answers with the alert `access_denied`.
                let why = CertificateError::ApplicationVerificationFailure;
                Err(Error::InvalidCertificate(why))
            }
            false => Err(reject(UntrustedKey(key))),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(
            message,
            &spki,
            signature,
            &self.crypto.signature_verification_algorithms,
        )
    }
}

impl fmt::Debug for PinnedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedKeys").finish_non_exhaustive()
    }
}

/// Methods that a verifier of either end needs: TLS 1.3 signatures by raw Ed25519 keys only.
macro_rules! raw_key_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(reject(BadKey))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, spki, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedKeys {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(spki, more)
            .map(|()| ServerCertVerified::assertion())
    }

    raw_key_signatures!();
}

impl ClientCertVerifier for PinnedKeys {
    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(spki, more)
            .map(|()| ClientCertVerified::assertion())
    }

    raw_key_signatures!();
}

/// Certificate resolver of a server: presents its key to clients that name an ALPN protocol of its
/// family, and nothing to scanners.
#[derive(Debug)]
struct OwnKey(Arc<CertifiedKey>, Family);

impl ResolvesServerCert for OwnKey {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let ours = hello.alpn()?.any(|name| self.1.has(name));
        ours.then(|| Arc::clone(&self.0))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// Untrusted key of the peer, as an error that passes through rustls and is converted to
/// `TlsError`.
#[derive(Debug, thiserror::Error)]
#[error("key is not trusted: {0}")]
pub(super) struct UntrustedKey(pub(super) PublicKey);

/// Error for a peer that presented something other than an Ed25519 raw public key.
#[derive(Debug, thiserror::Error)]
#[error("not an Ed25519 raw public key")]
pub(super) struct BadKey;

/// Wraps a rejection of the peer's key in the error that rustls answers with the alert
/// `certificate_unknown`.
fn reject(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

/// ALPN name of this version of the protocol (RFC 7301), the only one that a client of a session
/// offers.
pub(crate) const ALPN: &[u8] = b"nicstripe/1";
/// ALPN name of an invitation's connection.
pub(crate) const INVITATION_ALPN: &[u8] = b"nicstripe-pair/1";
/// Last version of the protocol whose name a server accepts.
const MOST_VERSIONS: u8 = 99;
