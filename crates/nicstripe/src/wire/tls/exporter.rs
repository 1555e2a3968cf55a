//! Keying material exporter: a secret of one connection that both ends know (RFC 8446, section
//! 7.5).
//!
//! rustls offers the exporter only on its buffered connections. On the unbuffered ones the secret
//! it starts from is accessible through the key log.

use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, KeyType, Prk};
use parking_lot::Mutex;
use rustls::{CipherSuite, KeyLog};

/// Capture of the exporter secret of one connection, and of no other secret.
#[derive(Default)]
pub(super) struct ExporterSecret(Mutex<Vec<u8>>);

impl ExporterSecret {
    /// Creates an empty capture, to be set as the key log of one connection's configuration.
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Derives 32 bytes for `label`, equal at both ends and unique to the connection. Erases the
    /// captured secret.
    pub(super) fn export(&self, suite: CipherSuite, label: &[u8]) -> Result<[u8; 32], Unspecified> {
        let (hkdf, hash) = match suite {
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (hkdf::HKDF_SHA384, &digest::SHA384),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 | CipherSuite::TLS13_AES_128_GCM_SHA256 => {
                (hkdf::HKDF_SHA256, &digest::SHA256)
            }
            _ => return Err(Unspecified),
        };
        let nothing = digest::digest(hash, b"");
        let mut master = self.0.lock();
        let mut secret = expand(hkdf, &master, label, nothing.as_ref(), hash.output_len());
        erase(&mut master);
        let exported = expand(
            hkdf,
            secret.as_deref().map_err(|_| Unspecified)?,
            b"exporter",
            nothing.as_ref(),
            32,
        );
        if let Ok(secret) = &mut secret {
            erase(secret);
        }
        exported?.try_into().map_err(|_| Unspecified)
    }
}

impl KeyLog for ExporterSecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            *self.0.lock() = secret.to_vec();
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

impl Drop for ExporterSecret {
    fn drop(&mut self) {
        erase(self.0.get_mut());
    }
}

/// Computes HKDF-Expand-Label (RFC 8446, section 7.1).
fn expand(
    hkdf: hkdf::Algorithm,
    secret: &[u8],
    label: &[u8],
    context: &[u8],
    len: usize,
) -> Result<Vec<u8>, Unspecified> {
    let short = |len: usize| u8::try_from(len).map_err(|_| Unspecified);
    // An empty secret means that the key log was never called.
    if secret.is_empty() {
        return Err(Unspecified);
    }
    let (lengths, context_len) = (
        [0, short(len)?, short(PREFIX.len() + label.len())?],
        [short(context.len())?],
    );
    let info = [&lengths[..], PREFIX, label, &context_len, context];
    let mut out = vec![0; len];
    Prk::new_less_safe(hkdf, secret)
        .expand(&info, Length(len))?
        .fill(&mut out)?;
    Ok(out)
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn erase(secret: &mut Vec<u8>) {
    secret.fill(0);
    // Without a reader the compiler may remove the stores.
    std::hint::black_box(&mut *secret);
    secret.clear();
}

const PREFIX: &[u8] = b"tls13 ";
