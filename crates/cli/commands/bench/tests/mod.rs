//! Reports that the tests of these modules share.

pub(crate) mod samples;
