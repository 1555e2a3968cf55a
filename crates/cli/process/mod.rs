//! This process: its runtimes, its signals and its standard streams.

pub(crate) mod presence;
pub(crate) mod runtime;
pub(crate) mod signals;
pub(crate) mod streams;
