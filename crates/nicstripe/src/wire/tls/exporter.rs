//! Keying material exporter: a secret of one connection that both ends know (RFC 8446, section
//! 7.5).
//!
//! rustls offers the exporter only on its buffered connections. On the unbuffered ones the secret
//! it starts from is accessible through the key log.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::tls13::{OkmBlock, expand};
use rustls::{KeyLog, Tls13CipherSuite};

/// Capture of the exporter secret of one connection, and of no other secret. Erased when dropped.
#[derive(Default)]
pub(super) struct ExporterSecret(Mutex<Option<OkmBlock>>);

impl ExporterSecret {
    /// Creates an empty capture, to be set as the key log of one connection's configuration.
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Derives 32 bytes for `label`, equal at both ends and unique to the connection. Erases the
    /// captured secret. Returns `None` if none was captured.
    pub(super) fn export(&self, suite: &Tls13CipherSuite, label: &[u8]) -> Option<[u8; 32]> {
        let hkdf = suite.hkdf_provider;
        let hash = suite.common.hash_provider.hash(b"");
        let nothing = hash.as_ref();
        let mut master = self.0.lock();
        let expander = hkdf.expander_for_okm(master.as_ref()?);
        // Erases the secret in place. `take` would leave a copy behind.
        *master = None;
        let derived = info(nothing.len(), label, nothing);
        let secret = expander.expand_block(&[derived.as_slice()]);
        let expander = hkdf.expander_for_okm(&secret);
        let exported = info(32, b"exporter", nothing);
        Some(expand::<_, 32>(&*expander, &[exported.as_slice()]))
    }
}

impl KeyLog for ExporterSecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            *self.0.lock() = Some(OkmBlock::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

impl std::fmt::Debug for ExporterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExporterSecret")
    }
}

/// Returns the info of HKDF-Expand-Label for an output of `len` bytes (RFC 8446, section 7.1). No
/// length may exceed 255.
fn info(len: usize, label: &[u8], context: &[u8]) -> Vec<u8> {
    let lens = [0, len as u8, (PREFIX.len() + label.len()) as u8];
    [&lens[..], PREFIX, label, &[context.len() as u8], context].concat()
}

const PREFIX: &[u8] = b"tls13 ";
