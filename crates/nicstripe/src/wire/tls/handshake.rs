//! TLS handshake: feeds rustls's unbuffered connection record by record, then extracts the keys.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CommonState, ConnectionTrafficSecrets, Error};

use super::config::{ClientTls, Family, ServerTls};
use super::error::TlsError;
use super::exporter::ExporterSecret;
use super::record::{Opener, Sealer, SendBuffer, record_len};
use crate::trust::PublicKey;

pub(super) struct Handshake {
    connection: Connection,
    family: Family,
    exporter: Arc<ExporterSecret>,
    /// Number of bytes at the front of the caller's buffer that rustls has already processed and
    /// still needs.
    seen: usize,
    /// True once this end has sent a byte. A server that has sent nothing stays silent on errors.
    spoke: bool,
}

pub(super) struct Established {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) schedule: KeySchedule,
    pub(super) peer: PublicKey,
    pub(super) binding: [u8; 32],
}

/// Result of processing received bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Number of consumed bytes at the front of the buffer. The caller passes the remainder again,
    /// followed by more.
    pub(crate) discard: usize,
    /// True once the handshake is complete.
    pub(crate) open: bool,
    /// True once the peer has sent `close_notify`.
    pub(crate) peer_closed: bool,
}

impl Handshake {
    /// Starts a handshake as the connecting end, and writes the first message to `out`.
    pub(super) fn client(tls: &ClientTls, out: &mut SendBuffer) -> Result<Self, TlsError> {
        let exporter = ExporterSecret::new();
        let mut config = tls.0.clone();
        config.key_log = exporter.clone();
        // Never sent: the peer is identified by its key.
        let name =
            ServerName::try_from("nicstripe").map_err(|_| TlsError::Unusable("no server name"))?;
        let connection = UnbufferedClientConnection::new(Arc::new(config), name)
            .map_err(TlsError::from_handshake)?;
        let mut handshake = Self::new(Connection::Client(Box::new(connection)), tls.1, exporter);
        handshake.receive(&mut [], out)?;
        Ok(handshake)
    }

    pub(super) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        let exporter = ExporterSecret::new();
        let mut config = tls.0.clone();
        config.key_log = exporter.clone();
        let connection =
            UnbufferedServerConnection::new(Arc::new(config)).map_err(TlsError::from_handshake)?;
        Ok(Self::new(
            Connection::Server(Box::new(connection)),
            tls.1,
            exporter,
        ))
    }

    fn new(connection: Connection, family: Family, exporter: Arc<ExporterSecret>) -> Self {
        Self {
            connection,
            family,
            exporter,
            seen: 0,
            spoke: false,
        }
    }

    /// Returns true if this is a server that has presented its key, so that the peer may close
    /// because of it.
    pub(super) fn has_shown_key(&self) -> bool {
        self.spoke && matches!(self.connection, Connection::Server(_))
    }

    /// Processes the received bytes, at most up to the record that completes the handshake, and
    /// writes answers to `out`.
    ///
    /// After an error `out` may hold an alert for the peer.
    pub(super) fn receive(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
    ) -> Result<Received, TlsError> {
        let mut start = 0;
        loop {
            let (discard, turn) = self
                .connection
                .turn(&mut received[start..start + self.seen], out);
            self.spoke |= !out.is_empty();
            let turn = turn.map_err(|error| self.fail(error, out))?;
            let discard = discard.min(self.seen);
            start += discard;
            self.seen -= discard;
            let open = match turn {
                Turn::Again => continue,
                Turn::Complete => true,
                Turn::NeedsMore => {
                    match record_len(&received[start + self.seen..]).map_err(TlsError::NotTls)? {
                        Some(len) if received.len() - start - self.seen >= len => {
                            self.seen += len;
                            continue;
                        }
                        _ => false,
                    }
                }
            };
            return Ok(Received {
                discard: start,
                open,
                ..Received::default()
            });
        }
    }

    /// Extracts the keys, the peer's key and the exporter secret of a complete handshake.
    pub(super) fn finish(self) -> Result<Established, TlsError> {
        let state = self.connection.state();
        let is_ours = |name: &[u8]| self.family.has(name);
        if !state.alpn_protocol().is_some_and(is_ours) {
            return Err(TlsError::OtherProtocol);
        }
        let peer = state
            .peer_certificates()
            .and_then(|keys| PublicKey::from_spki(keys.first()?))
            .ok_or(TlsError::NoKey)?;
        let suite = state
            .negotiated_cipher_suite()
            .and_then(|suite| suite.tls13())
            .ok_or(TlsError::Unusable("no cipher suite"))?;
        let binding = self
            .exporter
            .export(suite, BINDING_LABEL)
            .ok_or(TlsError::Unusable("no exporter secret"))?;
        let ((sent, sealing), (opened, opening), schedule) = self
            .connection
            .into_secrets()
            .map_err(TlsError::Handshake)?;
        // Fresh keys count from 0, as `record` expects: rustls never saw bytes after the handshake.
        if self.seen != 0 || sent != 0 || opened != 0 {
            return Err(TlsError::Unexpected("a record inside the handshake"));
        }
        Ok(Established {
            sealer: sealer(sealing)?,
            opener: opener(opening)?,
            schedule,
            peer,
            binding,
        })
    }

    /// Writes rustls's alert to `out` and converts its error. A server that has sent nothing writes
    /// no alert, so that scanners get no answer.
    fn fail(&mut self, error: Error, out: &mut SendBuffer) -> TlsError {
        let is_server = matches!(self.connection, Connection::Server(_));
        // A scanner gets no answer. Only a peer that names our protocol, in another version, gets
        // an alert.
        if is_server && !self.spoke && error != Error::NoApplicationProtocol {
            return TlsError::from_handshake(error);
        }
        // Only while alerts are pending: afterwards rustls expects the bytes it has seen, and
        // panics without them.
        while self.connection.state().wants_write() {
            let (_, turn) = self.connection.turn(&mut [], out);
            if !matches!(turn, Ok(Turn::Again)) {
                break;
            }
        }
        match TlsError::from_handshake(error) {
            // The server has not seen our key yet nor proved its own: an attacker on the path can
            // send this alert.
            TlsError::KeyRefused(alert) if !is_server => TlsError::Alert(alert),
            TlsError::NoList if !is_server => {
                TlsError::Alert(rustls::AlertDescription::AccessDenied)
            }
            error => error,
        }
    }
}

/// rustls connection: of the client or of the server, which have different types.
enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// Record counter and key for sending, those for receiving, and the schedule that derives later
/// keys.
type Secrets = (
    (u64, ConnectionTrafficSecrets),
    (u64, ConnectionTrafficSecrets),
    KeySchedule,
);

impl Connection {
    fn turn(&mut self, received: &mut [u8], out: &mut SendBuffer) -> (usize, Result<Turn, Error>) {
        match self {
            Self::Client(connection) => turn(connection.process_tls_records(received), out),
            Self::Server(connection) => turn(connection.process_tls_records(received), out),
        }
    }

    fn state(&self) -> &CommonState {
        match self {
            Self::Client(connection) => connection,
            Self::Server(connection) => connection,
        }
    }

    fn into_secrets(self) -> Result<Secrets, Error> {
        let (secrets, schedule) = match self {
            Self::Client(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, KeySchedule::Client(kernel))
            }
            Self::Server(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, KeySchedule::Server(kernel))
            }
        };
        Ok((secrets.tx, secrets.rx, schedule))
    }
}

/// Next action of the handshake after one step of rustls.
enum Turn {
    Again,
    NeedsMore,
    Complete,
}

fn turn<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut SendBuffer,
) -> (usize, Result<Turn, Error>) {
    let turn = status.state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(message) => encode(message, out).map(|()| Turn::Again),
        ConnectionState::TransmitTlsData(sent) => {
            // Bytes in `out` count as sent, since their order is fixed.
            sent.done();
            Ok(Turn::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Turn::NeedsMore),
        ConnectionState::WriteTraffic(_) => Ok(Turn::Complete),
        _ => Err(Error::General("record out of place".to_owned())),
    });
    (status.discard, turn)
}

fn encode<Data>(mut message: EncodeTlsData<'_, Data>, out: &mut SendBuffer) -> Result<(), Error> {
    let needed = match message.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => needed.required_size,
        // Nothing to send, or already encoded.
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
    };
    let written = message
        .encode(out.spare(needed))
        .map_err(|error| Error::General(error.to_string()))?;
    out.commit(written);
    Ok(())
}

/// Key schedule of an open connection, which derives the keys after a key update.
pub(super) enum KeySchedule {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl KeySchedule {
    pub(super) fn next_sealer(&mut self) -> Result<Sealer, TlsError> {
        let (_, secrets) = match self {
            Self::Client(kernel) => kernel.update_tx_secret(),
            Self::Server(kernel) => kernel.update_tx_secret(),
        }
        .map_err(|_| TlsError::Unusable("no next sending key"))?;
        sealer(secrets)
    }

    pub(super) fn next_opener(&mut self) -> Result<Opener, TlsError> {
        let (_, secrets) = match self {
            Self::Client(kernel) => kernel.update_rx_secret(),
            Self::Server(kernel) => kernel.update_rx_secret(),
        }
        .map_err(|_| TlsError::Unusable("no next receiving key"))?;
        opener(secrets)
    }
}

fn sealer(secrets: ConnectionTrafficSecrets) -> Result<Sealer, TlsError> {
    Sealer::new(secrets).map_err(|_| TlsError::Unusable(BAD_KEY))
}

fn opener(secrets: ConnectionTrafficSecrets) -> Result<Opener, TlsError> {
    Opener::new(secrets).map_err(|_| TlsError::Unusable(BAD_KEY))
}

const BAD_KEY: &str = "the cipher refuses its key";

/// Exporter label of [`TlsStream::binding`](super::TlsStream::binding) (RFC 5705, section 4: private labels begin with
/// `EXPERIMENTAL`).
pub(super) const BINDING_LABEL: &[u8] = b"EXPERIMENTAL nicstripe/1 binding";
