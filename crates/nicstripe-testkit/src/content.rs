//! Content of test files, and names in test directories.

use std::path::Path;

/// Returns `len` pseudo-random bytes without repetition, identical at each call.
pub fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(b"content")
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Returns the BLAKE3 digest of `bytes` in hexadecimal digits, as `b3sum` prints it.
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Returns the sorted names in a directory.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns true if the two byte strings are equal. Tests use this function because `assert_eq`
/// would print megabytes of differing bytes.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b
}
