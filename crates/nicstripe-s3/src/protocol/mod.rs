//! Protocol of S3 on top of HTTP. Independent of the daemon, except for its error codes.

pub(crate) mod checksum;
pub(crate) mod chunked;
pub(crate) mod condition;
pub(crate) mod date;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod payload;
pub(crate) mod query;
pub(crate) mod range;
pub(crate) mod signature;
pub(crate) mod xml;
