//! Test data.

/// Returns bytes without repetition, equal for equal lengths.
pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(b"content")
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Returns the digest that `b3sum` prints.
pub(crate) fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Compares without printing megabytes on a difference.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b
}
