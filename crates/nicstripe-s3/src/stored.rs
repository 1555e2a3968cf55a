//! Objects as the daemon keeps them: their attributes, and the entity tag that clients see.

use std::collections::BTreeMap;

use hyper::{
    HeaderMap,
    header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED},
};
use md5::{Digest as _, Md5};
use nicstripe::{ETag, Head, ObjectAttributes, Stat};

use crate::protocol::{
    date,
    error::{Code, S3Error},
    query::Query,
};

#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) stat: Stat,
    pub(crate) attributes: ObjectAttributes,
}

impl From<Head> for Object {
    fn from(head: Head) -> Self {
        Self {
            stat: head.stat,
            attributes: head.attributes,
        }
    }
}

impl Object {
    /// Returns the tag that clients see, without quotes.
    pub(crate) fn etag(&self) -> String {
        match self.known_etag() {
            Some(etag) => etag.to_owned(),
            None => opaque(self.stat.etag, &self.stat),
        }
    }

    /// Returns the tag that the gateway kept, if the object has still the size that it had then. Another
    /// program may have written into the file since.
    pub(crate) fn known_etag(&self) -> Option<&str> {
        let (etag, size) = self.attributes.get(KEPT_ETAG)?.split_once(' ')?;
        let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (size.parse() == Ok(self.stat.size) && etag.bytes().all(is_tag)).then_some(etag)
    }

    /// Adds the headers of the object.
    pub(crate) fn describe(&self, headers: &mut HeaderMap, query: &Query) {
        for (name, value) in self.attributes.iter().filter(|(name, _)| is_kept(name)) {
            add(headers, name, value);
        }
        for name in HEADERS {
            if let Some(value) = query.get(&format!("response-{name}")) {
                add(headers, name, value);
            }
        }
        let any = HeaderValue::from_static("binary/octet-stream");
        headers.entry(CONTENT_TYPE).or_insert(any);
        add(headers, ETAG.as_str(), &quoted(&self.etag()));
        add(
            headers,
            LAST_MODIFIED.as_str(),
            &date::http(self.stat.modified),
        );
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
}

/// Adds a header, unless the value cannot be one.
pub(crate) fn add(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::try_from(name);
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
        headers.insert(name, value);
    }
}

pub(crate) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Returns the tag of an object whose MD5 is not known. No client takes it for an MD5, because of its
/// hyphen.
pub(crate) fn opaque(etag: Option<ETag>, stat: &Stat) -> String {
    let text = match etag {
        Some(etag) => etag.to_string(),
        None => format!("{} {}", stat.size, date::iso(stat.modified)),
    };
    format!("{}-0", hex::encode(Md5::digest(text)))
}

/// Keeps the tag of an object of this size.
pub(crate) fn keep_etag(
    attributes: &mut ObjectAttributes,
    etag: &str,
    size: u64,
) -> Result<(), S3Error> {
    let kept = attributes.set(KEPT_ETAG, format!("{etag} {size}"));
    kept.map(drop).map_err(too_large)
}

/// Returns the attributes that the headers of a request give to an object.
///
/// # Errors
///
/// They are too long, or ask for what the gateway does not have: nothing is dropped.
pub(crate) fn requested(headers: &HeaderMap) -> Result<ObjectAttributes, S3Error> {
    refuse_others(headers)?;
    let mut kept = BTreeMap::<&str, String>::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_kept(name.as_str())) {
        let text = str::from_utf8(value.as_bytes());
        let text = text.map_err(|_| invalid(name, "is not UTF-8"))?.trim();
        // Of the transfer, not of the object.
        let text = match name.as_str() {
            "content-encoding" => without_chunks(text),
            _ => text.to_owned(),
        };
        if !text.is_empty() {
            let values = kept.entry(name.as_str()).or_default();
            if !values.is_empty() {
                values.push(',');
            }
            values.push_str(&text);
        }
    }
    let mut attributes = ObjectAttributes::new();
    for (name, value) in kept {
        attributes.set(name, value).map_err(too_large)?;
    }
    Ok(attributes)
}

fn without_chunks(encoding: &str) -> String {
    let parts = encoding.split(',').map(str::trim);
    let parts: Vec<_> = parts.filter(|part| *part != "aws-chunked").collect();
    parts.join(",")
}

/// Refuses what would change the object and is not supported.
fn refuse_others(headers: &HeaderMap) -> Result<(), S3Error> {
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match name.as_str() {
            "x-amz-acl" if !["private", "bucket-owner-full-control"].contains(&&*value) => {
                return Err(
                    Code::ACL_NOT_SUPPORTED.because("objects have no access control lists here")
                );
            }
            "x-amz-storage-class" if value != "STANDARD" => {
                return Err(
                    Code::INVALID_STORAGE_CLASS.because("the only storage class is STANDARD")
                );
            }
            "x-amz-tagging" if value.is_empty() => {}
            "x-amz-tagging" | "x-amz-website-redirect-location" => {
                return Err(S3Error::unsupported(name));
            }
            grant if grant.starts_with("x-amz-grant-") => {
                return Err(
                    Code::ACL_NOT_SUPPORTED.because("objects have no access control lists here")
                );
            }
            other
                if other.starts_with("x-amz-server-side-encryption")
                    || other.starts_with("x-amz-object-lock-")
                    || other == "x-amz-write-offset-bytes" =>
            {
                return Err(S3Error::unsupported(name));
            }
            _ => {}
        }
    }
    Ok(())
}

fn invalid(name: &HeaderName, why: &str) -> S3Error {
    Code::INVALID_ARGUMENT.because(format!("the header {name} {why}"))
}

fn too_large(error: impl std::error::Error) -> S3Error {
    Code::METADATA_TOO_LARGE.because(error.to_string())
}

/// Returns true for a header that is an attribute of the object.
fn is_kept(name: &str) -> bool {
    HEADERS.contains(&name) || name.starts_with("x-amz-meta-")
}

const HEADERS: [&str; 6] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
];

/// Attribute of the tag that clients see and the size that the object has with it.
const KEPT_ETAG: &str = "s3-etag";

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use nicstripe::Kind;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn attributes_are_kept_and_what_is_not_kept_is_refused() {
        let attributes = requested(&headers(&[
            ("content-type", "text/plain"),
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-meta-mtime", "1"),
            ("x-amz-acl", "private"),
            ("content-length", "5"),
        ]))
        .unwrap();
        let kept: Vec<_> = attributes
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            kept,
            [
                ("content-encoding", "gzip"),
                ("content-type", "text/plain"),
                ("x-amz-meta-mtime", "1")
            ]
        );
        let long = "x".repeat(2048);
        for wrong in [
            ("x-amz-acl", "public-read"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-tagging", "a=\u{e4}"),
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-grant-read", "id=x"),
            ("x-amz-meta-a", long.as_str()),
        ] {
            assert!(requested(&headers(&[wrong])).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_tag_is_believed_while_the_size_is_the_same() {
        let mut attributes = ObjectAttributes::new();
        keep_etag(&mut attributes, "0cc175b9c0f1b6a831c399e269772661", 1).unwrap();
        let object = |size| Object {
            stat: Stat::new(Kind::File, size, UNIX_EPOCH),
            attributes: attributes.clone(),
        };
        assert_eq!(object(1).etag(), "0cc175b9c0f1b6a831c399e269772661");
        let other = object(2).etag();
        assert!(other.ends_with("-0") && other.len() == 34, "{other}");
    }
}
