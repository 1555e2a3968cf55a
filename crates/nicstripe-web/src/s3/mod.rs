//! Objects of S3 stores, over every link.
//!
//! | module | what it does |
//! | --- | --- |
//! | `place` | `s3://bucket/key` as typed |
//! | `account` | endpoint, region, credentials, signatures |
//! | `store` | one request: signed, over the first link that answers, with a bounded answer |
//! | `xml` | what stores say and hear in XML |
//! | `list` | listings, page by page |
//! | `source` | a local file: its parts, and its hashes |
//! | `unfinished` | upload that a later run continues |
//! | `sending` | parts on their way over all links |
//! | `upload` | an upload, from its first request to the object |
//!
//! An object is fetched as a file of a web server is, with signed requests. object_store has no checksum of
//! the whole object, no profile of `~/.aws` and no way to continue an upload, so requests are signed by
//! reqsign here.

pub(crate) mod account;
mod list;
mod place;
mod sending;
mod source;
mod store;
mod unfinished;
mod upload;
mod xml;

pub use self::{
    account::{Account, AccountOptions},
    list::{Listed, Listing},
    place::{S3Place, S3PlaceError},
    store::Store,
    upload::{Sent, Upload, UploadOptions},
};
