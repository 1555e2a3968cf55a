//! Tests of the store against a daemon in the test process: object_store's own suite, and what it
//! does not cover.

#![allow(clippy::unwrap_used)]

mod harness;
mod ours;
mod suite;
