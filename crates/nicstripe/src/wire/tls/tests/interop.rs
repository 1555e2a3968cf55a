//! Tests of interoperability with rustls's own record layer at the other end.

use std::io::{Read as _, Write as _};

use rustls::{ClientConnection, Connection, ServerConnection};

use super::{super::handshake::BINDING_LABEL, *};

/// Connection with one end of this crate and one of rustls.
struct Mixed {
    ours: Tls,
    theirs: Connection,
    to_theirs: SendBuffer,
    to_ours: SendBuffer,
}

impl Mixed {
    fn with_their_server() -> Self {
        let cast = Cast::new();
        let mut to_theirs = SendBuffer::with_capacity(64);
        let ours = Tls::client(&cast.client_tls(), &mut to_theirs).unwrap();
        let theirs = ServerConnection::new(Arc::new(cast.server_tls().0)).unwrap();
        Self::open(ours, theirs.into(), to_theirs)
    }

    fn with_their_client() -> Self {
        let cast = Cast::new();
        let ours = Tls::server(&cast.server_tls()).unwrap();
        let theirs = ClientConnection::new(
            Arc::new(cast.client_tls().0),
            "nicstripe".try_into().unwrap(),
        )
        .unwrap();
        Self::open(ours, theirs.into(), SendBuffer::with_capacity(64))
    }

    fn open(ours: Tls, theirs: Connection, to_theirs: SendBuffer) -> Self {
        let mut mixed = Self {
            ours,
            theirs,
            to_theirs,
            to_ours: SendBuffer::with_capacity(64),
        };
        for _ in 0..3 {
            mixed.theirs_reads();
            mixed.ours_reads();
        }
        assert!(!mixed.theirs.is_handshaking() && mixed.ours.peer_key().is_some());
        mixed
    }

    fn ours_reads(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.theirs.wants_write() {
            self.theirs.write_tls(&mut bytes).unwrap();
        }
        self.to_ours.spare(bytes.len()).copy_from_slice(&bytes);
        self.to_ours.commit(bytes.len());
        read(&mut self.ours, &mut self.to_ours, &mut self.to_theirs).unwrap()
    }

    fn theirs_reads(&mut self) -> Vec<u8> {
        let mut plaintext = Vec::new();
        let mut bytes = self.to_theirs.pending();
        while !bytes.is_empty() {
            self.theirs.read_tls(&mut bytes).unwrap();
            let state = self.theirs.process_new_packets().unwrap();
            let start = plaintext.len();
            plaintext.resize(start + state.plaintext_bytes_to_read(), 0);
            self.theirs
                .reader()
                .read_exact(&mut plaintext[start..])
                .unwrap();
        }
        self.to_theirs.clear();
        plaintext
    }

    fn exchange(&mut self, data: &[u8]) {
        self.ours.send(&[data], &mut self.to_theirs).unwrap();
        assert_eq!(self.theirs_reads(), data);
        self.theirs.set_buffer_limit(None);
        self.theirs.writer().write_all(data).unwrap();
        assert_eq!(self.ours_reads(), data);
    }
}

#[test]
fn rustls_reads_what_we_write_and_we_what_it_writes() {
    for mut mixed in [Mixed::with_their_server(), Mixed::with_their_client()] {
        mixed.exchange(&noise(300_000));
        mixed.exchange(b"x");
    }
}

#[test]
fn rustls_follows_our_key_renewals_and_we_follow_its() {
    for mut mixed in [Mixed::with_their_server(), Mixed::with_their_client()] {
        mixed.ours.renew_after(2);
        for _ in 0..4 {
            mixed.exchange(&noise(100_000));
            // rustls requests an update in return.
            mixed.theirs.refresh_traffic_keys().unwrap();
        }
        mixed.exchange(&noise(1000));
    }
}

#[test]
fn our_exporter_is_that_of_rustls() {
    for mixed in [Mixed::with_their_server(), Mixed::with_their_client()] {
        let theirs = mixed
            .theirs
            .export_keying_material([0; 32], BINDING_LABEL, None)
            .unwrap();
        assert_eq!(mixed.ours.binding(), Some(theirs));
    }
}

#[test]
fn rustls_understands_our_close_and_we_its() {
    for mut mixed in [Mixed::with_their_server(), Mixed::with_their_client()] {
        mixed.ours.close(&mut mixed.to_theirs).unwrap();
        let mut bytes = mixed.to_theirs.pending();
        mixed.theirs.read_tls(&mut bytes).unwrap();
        let state = mixed.theirs.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        mixed.theirs.send_close_notify();
        let mut bytes = Vec::new();
        mixed.theirs.write_tls(&mut bytes).unwrap();
        let received = mixed
            .ours
            .receive::<TlsError>(&mut bytes, &mut mixed.to_theirs, &mut |_: &[u8]| Ok(()))
            .unwrap();
        assert!(received.peer_closed);
    }
}
