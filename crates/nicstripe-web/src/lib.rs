//! Fetches a file from a web server over every interface from which the server answers: nothing of
//! nicstripe is installed at the other end.
//!
//! | module | what it does |
//! | --- | --- |
//! | `url` | a URL as typed becomes a [`WebUrl`], which never prints its secrets |
//! | `links`, `metered` | the interfaces that may lead to a server, and an HTTP client bound to each |
//! | `answer` | an answer becomes facts: which bytes it has, and the version of the file |
//! | `ask` | requests, and the way through redirections |
//! | `moving`, `climb` | what moves over links, in either direction: who carries what, and how far it is |
//! | `state`, `stream` | a link's requests: bytes arrive, are hashed and written |
//! | `whole` | one request, for servers without ranges |
//! | `parts` | a fetch in parts, from the first request to the name of the file |
//! | `target` | where bytes go: into a file at any offset, or into a stream in order |
//! | `contact` | first answers over all links, and which version they agree on |
//! | `fetch`, `options`, `fetched` | a whole fetch: contact, then parts or one request |
//! | `proof`, `sums` | the digest that the whole file must have, and its source |
//! | `survey` | links without a copy: which answer, and what they carry |
//! | `s3` | objects of S3 stores: listings, uploads in parts, signatures |
//! | `netrc`, `cookies`, `header` | what a user adds to requests |
//!
//! A file is fetched by ranged GETs (RFC 9110, section 14). Each carries the version that the first
//! answer named (`If-Range`), and each answer is compared with it, so that bytes of two versions are
//! never mixed. A server without ranges, or without a version, is asked once, over one link.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod ask;
mod blocking;
mod climb;
mod clock;
mod contact;
mod cookies;
mod error;
mod fetch;
mod fetched;
mod header;
mod links;
mod metered;
mod moving;
mod netrc;
mod options;
mod parts;
mod proof;
mod s3;
mod state;
mod store_error;
mod stream;
mod sums;
mod survey;
mod target;
mod url;
mod whole;

pub use self::{
    cookies::{Cookies, CookiesError},
    error::{LinkError, WebError},
    fetch::Fetch,
    fetched::Fetched,
    header::{Header, HeaderError},
    options::FetchOptions,
    proof::{Algorithm, Expected, ParseExpectedError, Proof},
    s3::{
        Account, AccountOptions, Listed, Listing, S3Place, S3PlaceError, Sent, Store, Upload,
        UploadOptions,
    },
    store_error::StoreError,
    survey::{MeasuredLink, Survey, SurveyedLink, measure},
    url::{WebUrl, WebUrlError},
};
