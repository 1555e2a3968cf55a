//! This machine: processor time, system, file systems, and the limit on threads.

pub(crate) mod cpu;
pub(crate) mod facts;
pub(crate) mod file_system;
pub(crate) mod threads;
