//! Crashes at random moments and at chosen system calls, and calls that fail: nothing wrong or partial ever has a final name, and a rerun
//! ends right and leaves nothing behind.
//!
//! System calls are watched on x86-64 alone, where ptrace(2) is allowed: elsewhere those tests are ignored. Here are few of each; `cargo
//! bench --bench crashes` has as many as one wants.

#[cfg(target_arch = "x86_64")]
pub(crate) mod calls;
pub(crate) mod case;
pub(crate) mod field;
pub(crate) mod kills;
pub(crate) mod random;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tracer;
