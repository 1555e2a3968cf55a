//! Random bytes from the operating system.

/// Returns `N` cryptographically secure random bytes from the operating system.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // aws-lc aborts the process instead of returning an error if the system has no random numbers.
    // Its signature still has one.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        tracing::error!("the system has no random numbers");
    }
    bytes
}
