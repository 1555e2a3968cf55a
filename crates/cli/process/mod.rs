//! This process: its runtimes and its signals.

pub(crate) mod runtime;
pub(crate) mod signals;
