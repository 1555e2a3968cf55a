//! Result of a fetch.

use nicstripe::Report;

use crate::proof::Proof;

/// File that is complete and durable, or was written to a stream.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// Sizes, times, and what each link did.
    pub report: Report,
    /// Proof that it is the right file.
    pub proof: Proof,
    /// URLs that sent other bytes than the digest is of, without their secrets. The file has none of
    /// them.
    pub liars: Vec<String>,
}

impl Fetched {
    pub(crate) fn new(report: Report, proof: Proof) -> Self {
        Self {
            report,
            proof,
            liars: Vec::new(),
        }
    }
}
