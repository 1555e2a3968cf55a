//! Tests of TLS between two ends in memory.
#![allow(clippy::unwrap_used)]

mod handshake;
mod interop;
mod records;
mod room;
mod stream;

use std::sync::Arc;

use super::pump::Tls;
use super::record::SendBuffer;
use super::*;
use crate::trust::{Identity, PublicKey};

/// Identities of a client and a server that trust each other.
struct Cast {
    client: Identity,
    server: Identity,
}

impl Cast {
    fn new() -> Self {
        Self {
            client: Identity::generate().unwrap(),
            server: Identity::generate().unwrap(),
        }
    }

    fn client_tls(&self) -> ClientTls {
        ClientTls::new(&self.client, only(self.server.public_key()))
    }

    fn server_tls(&self) -> ServerTls {
        ServerTls::new(&self.server, only(self.client.public_key()))
    }
}

fn only(accepted: PublicKey) -> KeyFilter {
    Arc::new(move |key| *key == accepted)
}

/// Both ends of a connection and the bytes in flight between them.
struct Pair {
    client: Tls,
    server: Tls,
    to_server: SendBuffer,
    to_client: SendBuffer,
}

impl Pair {
    fn new(client: &ClientTls, server: &ServerTls) -> Self {
        let mut to_server = SendBuffer::with_capacity(64);
        let client = Tls::client(client, &mut to_server).unwrap();
        Self {
            client,
            server: Tls::server(server).unwrap(),
            to_server,
            to_client: SendBuffer::with_capacity(64),
        }
    }

    /// Creates both ends with a complete handshake.
    fn open() -> Self {
        let cast = Cast::new();
        let mut pair = Self::new(&cast.client_tls(), &cast.server_tls());
        pair.server_reads().unwrap();
        pair.client_reads().unwrap();
        pair.server_reads().unwrap();
        assert!(pair.to_server.is_empty() && pair.to_client.is_empty());
        pair
    }

    fn server_reads(&mut self) -> Result<Vec<u8>, TlsError> {
        read(&mut self.server, &mut self.to_server, &mut self.to_client)
    }

    fn client_reads(&mut self) -> Result<Vec<u8>, TlsError> {
        read(&mut self.client, &mut self.to_client, &mut self.to_server)
    }

    /// Replaces the bytes in flight to the server, and lets the server read them.
    fn server_reads_instead(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.to_server = filled(bytes);
        self.server_reads()
    }

    fn client_reads_instead(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.to_client = filled(bytes);
        self.client_reads()
    }
}

fn filled(bytes: &[u8]) -> SendBuffer {
    let mut buffer = SendBuffer::with_capacity(bytes.len());
    buffer.spare(bytes.len()).copy_from_slice(bytes);
    buffer.commit(bytes.len());
    buffer
}

/// Passes all incoming bytes to `tls`, and returns the decrypted plaintext.
fn read(
    tls: &mut Tls,
    incoming: &mut SendBuffer,
    out: &mut SendBuffer,
) -> Result<Vec<u8>, TlsError> {
    let mut bytes = incoming.pending().to_vec();
    let mut plaintext = Vec::new();
    let mut start = 0;
    loop {
        let received = tls.receive::<TlsError>(&mut bytes[start..], out, &mut |part: &[u8]| {
            plaintext.extend_from_slice(part);
            Ok(())
        });
        let discard = match received {
            Ok(received) => received.discard,
            Err(error) => {
                incoming.clear();
                return Err(error);
            }
        };
        start += discard;
        incoming.advance(discard);
        if discard == 0 || incoming.is_empty() {
            return Ok(plaintext);
        }
    }
}

/// Returns `len` pseudorandom bytes without short repetitions.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        // Knuth's MMIX constants.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
