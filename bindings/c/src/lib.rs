//! C interface of nicstripe, over its blocking facade.
//!
//! `include/nicstripe.h` is made of this source and is its documentation: items have the names of
//! the header, and their comments are written for its readers. Each function runs in
//! [`error::call`], which catches panics and fills the error. Pointers from C become references and
//! slices in [`raw`], the only module with unsafe code.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(missing_docs)]
#![allow(non_camel_case_types, reason = "items have the names of the header")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod entries;
pub mod error;
pub mod exec;
pub mod handle;
pub mod links;
pub mod metadata;
pub mod object;
pub mod options;
pub mod raw;
pub mod reader;
pub mod transfer;
pub mod writer;

/// C passes handles to any thread, so that each must allow it.
const _: () = {
    const fn for_threads<T: Send + Sync>() {}
    for_threads::<client::nicstripe_client>();
    for_threads::<entries::nicstripe_entries>();
    for_threads::<links::nicstripe_link_list>();
    for_threads::<reader::nicstripe_reader>();
    for_threads::<transfer::nicstripe_transfer>();
    for_threads::<writer::nicstripe_writer>();
};
