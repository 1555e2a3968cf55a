//! Support code that nicstripe's tests and benches share.
//!
//! Every wait has a deadline, after which the test fails with all output of the process. No child
//! outlives its handle. The environment of a process is empty except for the variables that a test
//! sets. Each [`Side`] has separate directories, so that tests can run in parallel.
//!
//! | for | item |
//! | --- | --- |
//! | two sides with files and keys, a daemon on one of them | [`Side`], [`Daemon`], [`Pair`] |
//! | a running or finished process | [`Process`], [`Outcome`] |
//! | content of files and trees | [`content`], [`tree`] |
//! | tests that need something the machine may lack | [`trial`](mod@trial), [`tests!`] |
//! | kills, and faults of system calls | [`crashes`] |
//! | power cuts of a simulated disk | [`powercuts`] |
//! | a disk that lacks what ext4 has | [`odd_disk`] |
//! | benches | [`mod@bench`] |
//! | a real sshd | [`Sshd`] |
//! | traffic, and routes of the kernel, inside a lab | [`traffic`], [`kernel_routes`] |
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::new_without_default,
    reason = "a value that starts processes has no default"
)]
#![forbid(unsafe_code)]

/// Returns a value with these fields set, of a type that a test may not write as a literal.
#[macro_export]
macro_rules! with {
    ($value:expr, $($field:ident: $to:expr),+ $(,)?) => {{
        let mut value = $value;
        $(value.$field = $to;)+
        value
    }};
}

mod content;
mod replay;
pub mod trial;

#[cfg(all(feature = "programs", target_os = "linux"))]
mod programs;

#[cfg(all(feature = "programs", target_os = "linux"))]
pub use self::programs::*;
pub use self::{
    content::{content, digest, is_same, names},
    replay::{corpus, replay},
};
