//! Tests of the library's public API: client and daemon in one process, with loopback addresses as
//! links.

#![allow(clippy::unwrap_used)]

mod at_daemon;
mod attributes;
mod bench;
mod blocking;
mod copy;
mod digests;
mod embedding;
mod exec;
mod fetches;
mod harness;
mod inbox;
mod introduced;
mod lost;
mod objects;
mod runtimes;
mod storage;
mod tags;
mod trees;
mod tunnels;
