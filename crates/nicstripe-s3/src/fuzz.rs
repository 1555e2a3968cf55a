//! Entry points of the fuzz targets: bodies in chunks, and what else a request has.
//!
//! `fuzz/fuzz_targets` calls these functions, and the tests below run them on every file of
//! `fuzz/corpus`.

use std::{
    cell::RefCell,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hyper::{
    HeaderMap, Request,
    body::{Body, Bytes, Frame},
    header::{HeaderName, HeaderValue},
};
use nicstripe::Name;
use tokio::runtime::{Builder, Runtime};

use crate::{
    listing::group_of,
    multipart::listed,
    names::Bucket,
    protocol::{
        condition::{self, Conditions},
        date,
        error::Code,
        keys::Keys,
        payload::Payload,
        query::{Query, decoded, encoded, encoded_path},
        range,
        signature::{self, Chain},
        xml::{self, Element, Xml},
    },
    remove,
};

/// Decodes a body in chunks. The first bytes are the kind of the body, the announced length, the length of
/// its pieces, and the position and the bits of a change. The rest is the body, or an object that is sent in
/// signed chunks and changed on its way.
///
/// Asserts that no more bytes come than are announced, that the result does not depend on the pieces, and
/// that a signed body is the object or refused.
pub fn s3_chunks(data: &[u8]) {
    let Some((header, rest)) = data.split_first_chunk::<5>() else {
        return;
    };
    let [kind, len, step, at, bits] = *header;
    let (is_signed, has_trailer) = (kind & 1 == 1, kind & 2 == 2);
    let (body, len) = match is_signed {
        true => {
            let step = usize::from(step) + 1;
            let mut body = signed(rest, step, has_trailer);
            if let Some(byte) = body.get_mut(usize::from(at)) {
                *byte ^= bits;
            }
            (body, rest.len())
        }
        false => (rest.to_vec(), usize::from(len)),
    };
    let read = |step| {
        let signed = signature::Body::Chunks {
            chain: is_signed.then(|| Box::new(Chain::of_tests())),
            has_trailer,
        };
        read(&body, len, signed, kind & 4 == 4, step)
    };
    let whole = read(body.len().max(1));
    assert_eq!(whole, read(1));
    assert_eq!(whole, read(usize::from(step) + 1));
    if is_signed {
        assert!(whole.1.is_some() || whole.0 == rest, "another object");
        assert!(bits != 0 || whole.1.is_none() || kind & 4 == 4);
    }
}

/// Returns the bytes of a body that come in pieces, and the error at its end.
fn read(
    body: &[u8],
    len: usize,
    signed: signature::Body,
    has_checksum: bool,
    step: usize,
) -> (Vec<u8>, Option<Code>) {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-decoded-content-length", len.into());
    if has_checksum {
        let name = HeaderValue::from_static("x-amz-checksum-crc32");
        headers.insert("x-amz-trailer", name);
    }
    let mut pieces = Pieces(
        body.chunks(step)
            .rev()
            .map(Bytes::copy_from_slice)
            .collect(),
    );
    let Ok(mut payload) = Payload::new(&headers, signed, &mut pieces) else {
        unreachable!("the headers are valid");
    };
    let mut object = Vec::new();
    let error = RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            loop {
                match payload.next().await {
                    Ok(Some(bytes)) => object.extend_from_slice(&bytes),
                    Ok(None) => return payload.end().err(),
                    Err(error) => return Some(error),
                }
            }
        })
    });
    assert!(object.len() <= len && (error.is_some() || object.len() == len));
    // A piece that ends behind an error is refused whole.
    let object = if error.is_some() { Vec::new() } else { object };
    (object, error.map(|error| error.code))
}

/// Returns an object in signed chunks.
fn signed(object: &[u8], step: usize, has_trailer: bool) -> Vec<u8> {
    let mut chain = Chain::of_tests();
    let mut body = Vec::new();
    for chunk in object.chunks(step).chain([&[][..]]) {
        let signature = chain.sign_chunk(chunk);
        body.extend(format!("{:x};chunk-signature={signature}\r\n", chunk.len()).bytes());
        body.extend_from_slice(chunk);
        if !chunk.is_empty() {
            body.extend(b"\r\n");
        }
    }
    if has_trailer {
        let signature = chain.sign_trailer("");
        body.extend(format!("x-amz-trailer-signature:{signature}\r\n").bytes());
    }
    body.extend(b"\r\n");
    body
}

/// Body of a request in pieces, the first one last.
struct Pieces(Vec<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(|piece| Ok(Frame::data(piece))))
    }
}

thread_local! {
    /// Clock of the limits that a body has.
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_time().build().expect("a runtime without threads"),
    );
}

/// Parses a part of a request. The first byte selects it: a query, a range, headers with conditions, a time,
/// a document, a bucket and a key, or a signature.
///
/// Asserts that what is accepted is parsed to the same when it is written again, that no key leaves its
/// bucket, and that no signature is valid.
pub fn s3_requests(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    match kind % 7 {
        0 => query(&text),
        1 => ranges(&text),
        2 => conditions(bytes),
        3 => times(&text),
        4 => documents(bytes),
        5 => names(&text),
        _ => signatures(bytes),
    }
}

fn query(text: &str) {
    let Ok(query) = Query::parse(Some(text)) else {
        return;
    };
    let shown = query.canonical_without("");
    let again = Query::parse(Some(&shown)).expect("it is encoded");
    // Pairs without a name are excluded: nothing asks for them.
    if !query.has("") {
        assert_eq!(again.canonical_without(""), shown);
    }
    let _ = query.number("a");
}

/// Reads the size of an object, a space and a header.
fn ranges(text: &str) {
    let (size, header) = text.split_once(' ').unwrap_or((text, ""));
    let size = size.parse().unwrap_or_default();
    let exact = range::exact(header, size);
    if let Ok(Some(range)) = range::requested(Some(header), size) {
        assert!(range.start < range.end && range.end <= size);
        let shown = format!("bytes={}-{}", range.start, range.end - 1);
        assert_eq!(range::exact(&shown, size), Some(range.clone()));
        assert_eq!(
            range::requested(Some(&shown), size),
            Ok(Some(range.clone()))
        );
        assert!(exact.is_none_or(|exact| exact == range));
    } else {
        assert_eq!(exact, None);
    }
}

/// Reads headers, one a line.
fn headers(bytes: &[u8]) -> HeaderMap {
    let lines = bytes.split(|byte| *byte == b'\n').take(64);
    let pairs = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?))
    });
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, value);
    }
    headers
}

fn conditions(bytes: &[u8]) {
    let headers = headers(bytes);
    let (etag, modified) = ("abc", UNIX_EPOCH + Duration::from_secs(784_111_777));
    for prefix in ["", "x-amz-copy-source-"] {
        let conditions = Conditions::of(&headers, prefix);
        let is_met = conditions.require(etag, modified).is_ok();
        assert!(!conditions.is_none() || is_met);
        let _ = (conditions.only_new(), conditions.only_if());
        // No condition is dropped.
        assert_eq!(
            conditions.only_if(),
            headers.contains_key(format!("{prefix}if-match"))
        );
    }
    let _ = condition::is_in_range(&headers, etag, modified);
    let _ = crate::stored::requested(&headers);
    let _ = crate::protocol::checksum::announced(&headers);
}

fn times(text: &str) {
    if let Some(time) = date::parse_basic(text) {
        let iso = date::iso(time);
        let basic = format!("{}Z", &iso.replace(['-', ':'], "")[..15]);
        // Times of the year 9999 are not written.
        assert!(date::parse_basic(&basic) == Some(time) || text.starts_with("9999"));
        let _ = date::http(time);
    }
}

fn documents(bytes: &[u8]) {
    for root in ["CompleteMultipartUpload", "Delete"] {
        let Ok(read) = xml::read(bytes, root) else {
            continue;
        };
        let mut document = Xml::plain(root);
        contents(&mut document, &read);
        let shown = document.end();
        assert_eq!(xml::read(shown.as_bytes(), root), Ok(read), "{shown}");
    }
    if let Ok(parts) = listed(bytes) {
        let mut document = Xml::plain("CompleteMultipartUpload");
        for (number, etag) in &parts {
            document
                .open("Part")
                .shown("PartNumber", number)
                .text("ETag", &format!("\"{etag}\""))
                .close("Part");
        }
        let shown = document.end();
        assert_eq!(listed(shown.as_bytes()), Ok(parts), "{shown}");
    }
    let bucket = bucket();
    let mut errors = Xml::plain("DeleteResult");
    if let Ok((targets, _)) = remove::wanted(&bucket, bytes, &mut errors) {
        for target in &targets {
            key(&bucket, &target.key);
        }
        assert!(xml::read(errors.end().as_bytes(), "DeleteResult").is_ok());
    }
}

fn contents(document: &mut Xml, element: &Element) {
    document.escaped(&element.text);
    for within in &element.within {
        document.open(&within.name);
        contents(document, within);
        document.close(&within.name);
    }
}

fn bucket() -> Bucket {
    let base = Name::parse(b"lake").expect("a valid name");
    Bucket::new(Some(&base), "raw").expect("a valid name")
}

/// Reads a bucket and a key as a path, and texts of a list.
fn names(text: &str) {
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    if let Ok(bucket) = Bucket::new(None, first) {
        assert_eq!(bucket.dir.components().len(), 1);
        assert_eq!(bucket.dir.to_bytes(), first.as_bytes());
    }
    key(&bucket(), rest);
    if let Ok(decoded) = decoded(rest) {
        key(&bucket(), &decoded);
    }
    let (prefix, delimiter) = (rest.get(..1).unwrap_or_default(), first);
    if let Some(after) = rest.strip_prefix(prefix) {
        let whole = format!("{prefix}{after}");
        let _ = group_of(&whole, prefix, delimiter);
    }
}

/// Asserts that the file of a key is in its bucket and has the path of the key.
fn key(bucket: &Bucket, key: &str) {
    for encoded in [encoded(key.as_bytes()), encoded_path(key.as_bytes())] {
        assert_eq!(decoded(&encoded).as_deref(), Ok(key));
    }
    let Ok(target) = bucket.target(key) else {
        return;
    };
    let slash = if target.is_folder { "/" } else { "" };
    let mut path = target.name.to_bytes();
    path.extend(slash.bytes());
    assert_eq!(path, format!("lake/raw/{key}").into_bytes());
    let components: Vec<&[u8]> = target.name.components().collect();
    let is_way = |one: &&[u8]| one.is_empty() || [&b"."[..], b".."].contains(one);
    assert!(components.len() > 2 && !components.iter().any(is_way));
    assert!(
        target
            .parents()
            .iter()
            .all(|dir| dir.components().len() > 2)
    );
}

/// Reads a path with a query, and headers in the lines behind it.
fn signatures(bytes: &[u8]) {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let Ok(request) = Request::builder().uri(line).body(()) else {
        return;
    };
    let (mut head, ()) = request.into_parts();
    head.headers = headers(&bytes[line.len()..]);
    let keys = Keys::new("A", "not known to anybody").expect("valid keys");
    let now: SystemTime = date::parse_basic("20130524T000000Z").expect("a valid time");
    if let Ok(query) = Query::parse(head.uri.query()) {
        assert!(signature::check(&keys, &head, &query, now).is_err());
    }
}

#[cfg(test)]
mod tests {
    use nicstripe_testkit::replay;

    use super::*;

    #[test]
    fn the_targets_accept_every_file_of_their_corpora() {
        replay(&[("s3_chunks", s3_chunks), ("s3_requests", s3_requests)]);
    }
}
