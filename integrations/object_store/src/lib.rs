//! A nicstripe daemon as a store of the crate [`object_store`]: objects are files below the daemon's
//! root, and their bytes go over every cable that leads there.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use nicstripe::Client;
//! use nicstripe_object_store::NicstripeStore;
//! use object_store::{ObjectStore, ObjectStoreExt, path::Path};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().connect("nas").await?;
//! let store: Arc<dyn ObjectStore> = Arc::new(NicstripeStore::new(client));
//! let table = Path::from("lake/orders/part-0.parquet");
//! let footer = store.get_range(&table, 0..64).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **Durability.** An object is on the daemon's disk, under its name, whole and verified, when a put,
//!   a copy or the completion of an upload returns. One that fails or is dropped leaves nothing.
//! - **Conditions.** `e_tag` is the daemon's [`ETag`](nicstripe::ETag). [`PutMode::Create`] and
//!   [`PutMode::Update`] are atomic at the daemon, as are [`copy_if_not_exists`] and
//!   [`rename_if_not_exists`]. A read that changes under its reader fails; it never mixes two contents.
//! - **Outages.** Lost cables cause no error. Calls wait for a daemon that is away, for the client's
//!   [`patience`](nicstripe::ClientBuilder::patience), except for what may have been carried out.
//! - **Order.** [`list`] returns objects in the order of their paths.
//!
//! A path that ends at a directory has no object. Empty directories are no objects, but prefixes. An
//! object cannot have the path of a directory, nor lie below the path of an object.
//!
//! # Versions of object_store
//!
//! [`NicstripeStore`] is a store of object_store 0.14. With the feature `v0_13`, `v0_13::NicstripeStore`
//! is one of 0.13, which DataFusion 55 and Delta Lake 1.1 use.
//!
//! # Uploads in parts
//!
//! [`put_multipart`] streams an object, and costs nothing more than a put. Its parts are written in the
//! order of the calls, by one process. [`MultipartStore`] is for uploads that several processes share or
//! take over: each part is durable when it is put, in a directory `.nicstripe-uploads` that is not listed,
//! and the completion copies the parts at the daemon, unless its file system can share their blocks.
//!
//! # Not supported
//!
//! Storage classes and versions of objects ([`Error::NotImplemented`]). Tags are ignored.
//!
//! [`PutMode::Create`]: object_store::PutMode::Create
//! [`PutMode::Update`]: object_store::PutMode::Update
//! [`copy_if_not_exists`]: object_store::ObjectStoreExt::copy_if_not_exists
//! [`rename_if_not_exists`]: object_store::ObjectStoreExt::rename_if_not_exists
//! [`list`]: object_store::ObjectStore::list
//! [`put_multipart`]: object_store::ObjectStoreExt::put_multipart
//! [`MultipartStore`]: object_store::multipart::MultipartStore
//! [`Error::NotImplemented`]: object_store::Error::NotImplemented

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(
    clippy::duplicate_mod,
    reason = "the same source for each version of object_store"
)]

#[cfg(feature = "v0_13")]
pub mod v0_13;
mod v0_14;

pub use self::v0_14::NicstripeStore;
