//! This machine: processor time, file systems, leases on files, the limit on threads, signals, and
//! standard streams.

pub(crate) mod cpu;
pub(crate) mod descriptors;
pub(crate) mod file_system;
pub(crate) mod lease;
pub(crate) mod signals;
pub(crate) mod streams;
pub(crate) mod threads;
