//! Tests of crashes at random moments and at chosen system calls, and of failing calls. No final
//! name ever has wrong or partial content. A rerun succeeds and leaves no temporary files.
//!
//! Tracing system calls needs x86-64 and ptrace(2); the tests that trace are ignored elsewhere. The
//! tests make few crashes of each kind; `cargo bench --bench crashes` makes any number.

#[cfg(target_arch = "x86_64")]
pub mod calls;
pub mod case;
mod copies;
pub mod field;
pub mod kills;
pub mod random;
#[cfg(target_arch = "x86_64")]
pub mod tracer;
