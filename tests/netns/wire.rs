//! Peer that sends arbitrary protocol messages, with TLS by plain rustls and with frames built by
//! the test.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use nicstripe::trust::PublicKey;
use nicstripe_proto::{
    Decoder, Frame, Message, Piece, SessionId,
    message::{Hello, PeerInterface, VERSION, Welcome},
};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self as provider, cipher_suite, kx_group, sign::any_eddsa_type},
    },
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    sign::CertifiedKey,
};

pub(crate) struct Key {
    pub(crate) public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Key {
    pub(crate) fn generate() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = pair.public_key().as_ref();
        let der = pair.to_pkcs8().unwrap();
        let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(der.as_ref())).unwrap();
        let spki = CertificateDer::from([&SPKI_PREFIX, public].concat());
        Self {
            public: PublicKey::from_bytes(public.try_into().unwrap()).unwrap(),
            certified: Arc::new(CertifiedKey::new(vec![spki], signer)),
        }
    }
}

/// DER prefix of an Ed25519 public key in its SubjectPublicKeyInfo (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Connection to a daemon, over which the test has created a session.
pub(crate) struct Wire {
    tls: StreamOwned<ClientConnection, TcpStream>,
    seq: u64,
    decoder: Decoder,
    /// Received bytes that do not yet form a complete frame.
    unread: Vec<u8>,
}

impl Wire {
    /// Connects to a daemon from the calling thread's host. Creates a session in which the peer
    /// claims to have `interfaces`. Accepts any server key.
    pub(crate) fn session(
        daemon: SocketAddr,
        key: &Key,
        session: [u8; 16],
        interfaces: Vec<PeerInterface>,
    ) -> Self {
        let tcp = TcpStream::connect_timeout(&daemon, TIMEOUT).unwrap();
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        let connection =
            ClientConnection::new(Arc::new(config(key)), "nicstripe".try_into().unwrap()).unwrap();
        let mut wire = Self {
            tls: StreamOwned::new(connection, tcp),
            seq: 0,
            decoder: Decoder::new(),
            unread: Vec::new(),
        };
        let hello = Hello {
            version: VERSION,
            session: SessionId(session),
            new: true,
            path: 0,
            interface: None,
            interfaces: Some(interfaces),
            cap_bps: None,
            padding: None,
            features: None,
            program: None,
            limit_bps: None,
        };
        wire.send(&Frame::Hello(minicbor::to_vec(hello).unwrap()));
        let Frame::Welcome(body) = wire.frame() else {
            panic!("no welcome")
        };
        minicbor::decode::<Welcome>(&body).unwrap();
        wire
    }

    /// Sends a control message with the next sequence number.
    pub(crate) fn say(&mut self, message: &Message) {
        self.seq += 1;
        self.send(&Frame::Control {
            seq: self.seq - 1,
            body: minicbor::to_vec(message).unwrap(),
        });
    }

    fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.tls.write_all(&bytes).unwrap();
        self.tls.flush().unwrap();
    }

    /// Reads and discards messages until `is_it` returns true for one of them.
    pub(crate) fn wait_for(&mut self, is_it: impl Fn(&Message) -> bool) {
        loop {
            if let Frame::Control { body, .. } = self.frame()
                && is_it(&minicbor::decode(&body).unwrap())
            {
                return;
            }
        }
    }

    fn frame(&mut self) -> Frame {
        let mut buffer = [0; 4096];
        loop {
            let unread = std::mem::take(&mut self.unread);
            let mut rest = &unread[..];
            let piece = self.decoder.next(&mut rest).unwrap();
            self.unread = rest.to_vec();
            if let Some(Piece::Frame(frame)) = piece {
                return frame;
            }
            let read = self.tls.read(&mut buffer).unwrap();
            assert!(read > 0, "the daemon closed the connection");
            self.unread.extend_from_slice(&buffer[..read]);
        }
    }
}

fn config(key: &Key) -> ClientConfig {
    let crypto = CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_256_GCM_SHA384],
        kx_groups: vec![kx_group::X25519MLKEM768],
        ..provider::default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(crypto))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
            key.certified.clone(),
        )));
    config.alpn_protocols = vec![b"nicstripe/1".to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}

/// TLS certificate verifier that accepts every server.
#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::HandshakeNotComplete)
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);
