//! S3 gateway in front of a daemon: programs that speak S3 reach the daemon's files, and their bytes go
//! over every cable that leads there.
//!
//! A bucket is a directory directly below the base, an object a file below its bucket. The gateway takes
//! one key pair and requests in path style (`/bucket/key`), signed with version 4.
//!
//! | module | what it does |
//! | --- | --- |
//! | `protocol` | what S3 puts on top of HTTP: signatures, chunks, checksums, XML, conditions, errors |
//! | `names` | buckets and keys become names at the daemon |
//! | `store` | the daemon's files, and the memory for requests |
//! | `stored` | an object's attributes and entity tag |
//! | `put`, `copy`, `objects`, `remove`, `multipart` | operations on objects |
//! | `listing` | keys in their order, page by page |
//! | `buckets`, `route` | operations on buckets; which operation a request asks for |
//! | `gateway`, `reply` | a request becomes a response |
//!
//! Memory is bounded: requests share [`MOST_BUFFERED`] bytes, and objects that are read as many. Others wait.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod buckets;
mod copy;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gateway;
mod listing;
mod multipart;
mod names;
mod objects;
mod protocol;
mod put;
mod remove;
mod reply;
mod route;
mod store;
mod stored;
#[cfg(test)]
mod tests;

pub use self::{
    gateway::{Allowed, Gateway},
    protocol::keys::{Keys, KeysError},
    reply::{Reply, ReplyBody},
    store::MOST_BUFFERED,
};
