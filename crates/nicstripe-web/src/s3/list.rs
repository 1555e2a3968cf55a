//! Listings of a bucket, page by page, and removal of keys.

use std::time::SystemTime;

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest as _, Md5};
use reqwest::Method;
use tokio_util::bytes::Bytes;

use super::{
    place::S3Place,
    store::{Call, Store},
    xml::{DeleteBody, DeleteObject, DeletedBody, ListBody, parsed},
};
use crate::error::WebError;

/// Object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Whole key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time at which the store wrote it.
    pub modified: Option<SystemTime>,
}

/// Objects, and folders if asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// Objects in the order of their keys.
    pub objects: Vec<Listed>,
    /// Beginnings of keys up to the next slash, in order; empty for a listing of all keys.
    pub folders: Vec<String>,
}

impl Store {
    /// Lists the objects whose keys begin with the key of `place`: all of them, or with `folders` only
    /// those without another slash, and the folders next to them.
    ///
    /// # Errors
    ///
    /// The store refuses or is not reached, its answers are none, or the listing has no end.
    pub async fn list(&self, place: &S3Place, folders: bool) -> Result<Listing, WebError> {
        let bucket = S3Place::root(place.bucket());
        let mut listing = Listing::default();
        let mut token: Option<String> = None;
        loop {
            let mut call = Call::new(Method::GET, &bucket).query("list-type", "2");
            if let Some(token) = &token {
                call = call.query("continuation-token", token.clone());
            }
            if folders {
                call = call.query("delimiter", "/");
            }
            if !place.key().is_empty() {
                call = call.query("prefix", place.key());
            }
            // As signatures need it, parameters are in the order of their names.
            call.query.sort();
            let reply = self.call(&call).await?;
            let nonsense = || place.nonsense();
            let page: ListBody = parsed(&reply.body).ok_or_else(nonsense)?;
            let is_ours = |key: &str| key.starts_with(place.key());
            let last = listing.objects.last().map(|object| object.key.clone());
            for content in page.contents {
                if !is_ours(&content.key) {
                    return Err(nonsense());
                }
                listing.objects.push(Listed {
                    modified: time(&content.modified),
                    key: content.key,
                    size: content.size,
                });
            }
            for folder in page.folders {
                if !is_ours(&folder.prefix) {
                    return Err(nonsense());
                }
                listing.folders.push(folder.prefix);
            }
            let is_stuck = listing.objects.last().map(|object| &object.key) == last.as_ref()
                && page.next == token;
            if listing.objects.len() + listing.folders.len() > MOST_KEYS
                || (page.is_truncated && is_stuck)
            {
                return Err(nonsense());
            }
            token = match (page.is_truncated, page.next) {
                (true, Some(next)) => Some(next),
                (true, None) => return Err(nonsense()),
                (false, _) => return Ok(listing),
            };
        }
    }

    /// Removes objects. Returns those that the store did not remove, each with its word for the reason.
    ///
    /// # Errors
    ///
    /// The store refuses or is not reached.
    pub async fn remove(
        &self,
        place: &S3Place,
        keys: &[String],
    ) -> Result<Vec<(String, String)>, WebError> {
        let bucket = S3Place::root(place.bucket());
        let mut left = Vec::new();
        for keys in keys.chunks(MOST_REMOVED) {
            let objects = keys.iter().map(|key| DeleteObject { key }).collect();
            let nonsense = || place.nonsense();
            let body = quick_xml::se::to_string(&DeleteBody {
                quiet: true,
                objects,
            });
            let body = Bytes::from(body.map_err(|_| nonsense())?);
            let sha = digest::digest(&digest::SHA256, &body);
            let call = Call::new(Method::POST, &bucket)
                .query("delete", "")
                .header("content-md5", &STANDARD.encode(Md5::digest(&body)))
                .header("x-amz-checksum-sha256", &STANDARD.encode(sha))
                .body(body);
            let reply = self.call(&call).await?;
            let deleted: DeletedBody = parsed(&reply.body).ok_or_else(nonsense)?;
            left.extend(
                deleted
                    .errors
                    .into_iter()
                    .map(|error| (error.key, error.code)),
            );
        }
        Ok(left)
    }
}

/// Reads a time of a listing: `2026-01-02T03:04:05.000Z`.
fn time(text: &str) -> Option<SystemTime> {
    text.parse::<jiff::Timestamp>().ok().map(SystemTime::from)
}

/// Keys that are removed by one request.
const MOST_REMOVED: usize = 1000;

/// Keys of the longest listing. Each takes some 200 bytes of memory.
const MOST_KEYS: usize = 10_000_000;
