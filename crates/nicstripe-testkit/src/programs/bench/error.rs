//! Errors of a bench.

/// Error that ends a bench, with a message for its user.
pub type Error = Box<dyn std::error::Error>;

/// Result of a fallible step of a bench.
pub type Result<T> = std::result::Result<T, Error>;
