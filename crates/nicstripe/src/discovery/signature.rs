//! Signing and checking what discovery says, with the keys that TLS uses.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use nicstripe_proto::discovery::{Key, Signature};
use rustls::SignatureScheme;

use crate::trust::Identity;

/// Signs a text. `None` where the key cannot sign, which an Ed25519 key always can.
pub(super) fn sign(identity: &Identity, text: &[u8]) -> Option<Signature> {
    let signer = identity.certified_key().key.choose_scheme(&[SignatureScheme::ED25519])?;
    signer.sign(text).ok()?.try_into().ok()
}

/// Whether the owner of `key` made this signature of `text`. Takes some 0.1 ms.
pub(super) fn is_by(key: &Key, text: &[u8], signature: &Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(text, signature).is_ok()
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
        assert!(!is_by(&[0xff; 32], b"text", &signature), "what is no point of the curve signs nothing");
    }
}
