//! Signatures by the keys of TLS.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use rustls::SignatureScheme;

use super::Identity;

/// Signs a text. Returns `None` if the key cannot sign, which does not occur with Ed25519.
pub(crate) fn sign(identity: &Identity, text: &[u8]) -> Option<[u8; 64]> {
    let signer = identity
        .certified_key()
        .key
        .choose_scheme(&[SignatureScheme::ED25519])?;
    signer.sign(text).ok()?.try_into().ok()
}

/// Returns true if `signature` is a valid signature of `text` by `key`. Takes about 0.1 ms.
pub(crate) fn is_by(key: &[u8; 32], text: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, key)
        .verify(text, signature)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_key_and_text_only() {
        let (ours, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let signature = sign(&ours, b"text").unwrap();
        assert!(is_by(ours.public_key().as_bytes(), b"text", &signature));
        assert!(!is_by(ours.public_key().as_bytes(), b"texts", &signature));
        assert!(!is_by(other.public_key().as_bytes(), b"text", &signature));
        assert!(!is_by(ours.public_key().as_bytes(), b"text", &[0; 64]));
        assert!(
            !is_by(&[0xff; 32], b"text", &signature),
            "a key that is not on the curve verifies nothing"
        );
    }
}
