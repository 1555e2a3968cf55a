//! The subcommands, one file or folder each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod demo;
pub(crate) mod dial;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod forward;
pub(crate) mod key;
pub(crate) mod links;
pub(crate) mod ls;
pub(crate) mod man;
mod one_client;
pub(crate) mod pair;
mod receipt;
pub(crate) mod receive;
pub(crate) mod routes;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod ssh_server;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod verify;
#[cfg(feature = "web")]
mod web;
