//! Body of a request as a stream, with all that must be true of it at its end.

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap,
    body::{Body, Bytes},
    header::CONTENT_LENGTH,
};
use md5::{Digest as _, Md5};
use tokio::time::timeout;

use super::{
    checksum::{self, Announced, Hasher},
    chunked::Chunked,
    error::{Code, S3Error},
    signature,
};

pub(crate) trait RequestBody: Body<Data = Bytes, Error: std::error::Error> + Unpin {}

impl<B: Body<Data = Bytes, Error: std::error::Error> + Unpin> RequestBody for B {}

/// Body of a request. What it returned is believed once it has ended without an error.
pub(crate) struct Payload<'b, B> {
    body: &'b mut B,
    /// Bytes that arrived and were not decoded yet.
    input: Bytes,
    chunked: Option<Chunked>,
    /// Bytes of the object that are announced, and how many of them are missing.
    len: u64,
    left: u64,
    /// SHA-256 that is signed, in hexadecimal digits.
    signed: Option<(String, Context)>,
    content_md5: Option<[u8; 16]>,
    md5: Option<Md5>,
    checksum: Option<(Announced, Hasher)>,
}

/// Length and digests of a complete body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// MD5, if it was asked for or announced.
    pub(crate) md5: Option<[u8; 16]>,
    /// Name and value of the header of the checksum that was announced.
    pub(crate) checksum: Option<(&'static str, String)>,
}

impl<'b, B: RequestBody> Payload<'b, B> {
    /// Returns the body of a request with these headers.
    pub(crate) fn new(
        headers: &HeaderMap,
        signed: signature::Body,
        body: &'b mut B,
    ) -> Result<Self, S3Error> {
        let length = |name: &str| -> Result<Option<u64>, S3Error> {
            let invalid = || Code::INVALID_ARGUMENT.because(format!("{name} is not a number"));
            let Some(value) = headers.get(name) else {
                return Ok(None);
            };
            let text = value.to_str().map_err(|_| invalid())?;
            Ok(Some(text.parse().map_err(|_| invalid())?))
        };
        let missing = || Code::MISSING_CONTENT_LENGTH.because("the length of the body is missing");
        let (len, chunked, signed) = match signed {
            signature::Body::Chunks { chain, has_trailer } => {
                let len = length("x-amz-decoded-content-length")?.ok_or_else(missing)?;
                (len, Some(Chunked::new(chain, has_trailer)), None)
            }
            signature::Body::Digest(hash) => {
                let len = length(CONTENT_LENGTH.as_str())?;
                let is_empty = body.is_end_stream();
                let len = len.or(is_empty.then_some(0)).ok_or_else(missing)?;
                (len, None, Some((hash, Context::new(&SHA256))))
            }
            signature::Body::Unsigned => {
                let len = length(CONTENT_LENGTH.as_str())?;
                let is_empty = body.is_end_stream();
                (
                    len.or(is_empty.then_some(0)).ok_or_else(missing)?,
                    None,
                    None,
                )
            }
        };
        let content_md5 = content_md5(headers)?;
        let checksum = checksum::announced(headers)?;
        Ok(Self {
            body,
            input: Bytes::new(),
            chunked,
            len,
            left: len,
            signed,
            content_md5,
            md5: content_md5.map(|_| Md5::new()),
            checksum: checksum.map(|announced| {
                let hasher = Hasher::new(announced.algorithm);
                (announced, hasher)
            }),
        })
    }

    /// Returns the number of bytes that are announced.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the MD5 that is announced, which is verified at the end.
    pub(crate) fn content_md5(&self) -> Option<[u8; 16]> {
        self.content_md5
    }

    /// Asks for the MD5 of the body.
    pub(crate) fn with_md5(mut self) -> Self {
        self.md5.get_or_insert_default();
        self
    }

    /// Returns the next bytes; `None` behind the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if let Some(bytes) = self.decoded()? {
                self.take(&bytes)?;
                return Ok(Some(bytes));
            }
            let frame = self.body.frame();
            let late = |_| Code::REQUEST_TIMEOUT.because("no byte of the body came in time");
            let Some(frame) = timeout(IDLE, frame).await.map_err(late)? else {
                return Ok(None);
            };
            let frame =
                frame.map_err(|error| Code::INCOMPLETE_BODY.because(nicstripe::chain(&error)))?;
            if let Ok(data) = frame.into_data() {
                self.input = data;
            }
        }
    }

    fn decoded(&mut self) -> Result<Option<Bytes>, S3Error> {
        match &mut self.chunked {
            Some(chunked) => chunked.next(&mut self.input),
            None if self.input.is_empty() => Ok(None),
            None => Ok(Some(std::mem::take(&mut self.input))),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), S3Error> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left =
            left.ok_or_else(|| Code::INVALID_REQUEST.because("the body is longer than announced"))?;
        if let Some((_, context)) = &mut self.signed {
            context.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some((_, hasher)) = &mut self.checksum {
            hasher.update(bytes);
        }
        Ok(())
    }

    /// Verifies the whole body, which must have been read.
    pub(crate) fn end(self) -> Result<Ended, S3Error> {
        if self.left > 0 {
            return Err(Code::INCOMPLETE_BODY.because("the body ended early"));
        }
        let trailer = self.chunked.map(Chunked::end).transpose()?;
        let announced = self.checksum.as_ref().map(|(one, _)| one);
        let announced = announced.filter(|one| one.value.is_none());
        let announced = announced.map(|one| one.algorithm.header());
        let mut names = trailer.iter().flatten().map(|(name, _)| name.as_str());
        if names.any(|name| Some(name) != announced) {
            let why = "the trailer has a line that x-amz-trailer does not announce";
            return Err(Code::INVALID_REQUEST.because(why));
        }
        if let Some((hash, context)) = self.signed
            && hash != hex::encode(context.finish())
        {
            let why = "the body has not the SHA-256 that was signed";
            return Err(Code::CONTENT_SHA256_MISMATCH.because(why));
        }
        let md5 = self.md5.map(|md5| <[u8; 16]>::from(md5.finalize()));
        if self.content_md5.is_some() && self.content_md5 != md5 {
            return Err(Code::BAD_DIGEST.because("the body has not the MD5 of Content-MD5"));
        }
        let checksum = match self.checksum {
            Some((announced, hasher)) => Some(verified(announced, hasher, trailer)?),
            None => None,
        };
        Ok(Ended { md5, checksum })
    }

    /// Reads the whole body, of `most` bytes at most, and verifies it.
    pub(crate) async fn whole(mut self, most: u64) -> Result<(Vec<u8>, Ended), S3Error> {
        if self.len > most {
            let why = format!("the body has more than {most} bytes");
            return Err(Code::ENTITY_TOO_LARGE.because(why));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.len).unwrap_or_default());
        while let Some(more) = self.next().await? {
            bytes.extend_from_slice(&more);
        }
        Ok((bytes, self.end()?))
    }
}

fn verified(
    announced: Announced,
    hasher: Hasher,
    trailer: Option<Vec<(String, String)>>,
) -> Result<(&'static str, String), S3Error> {
    let name = announced.algorithm.header();
    let expected = announced.value.or_else(|| {
        let found = trailer
            .into_iter()
            .flatten()
            .find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    });
    let missing = || Code::INVALID_REQUEST.because(format!("the trailer lacks {name}"));
    let (expected, found) = (expected.ok_or_else(missing)?, hasher.finish());
    match expected == found {
        true => Ok((name, found)),
        false => Err(Code::BAD_DIGEST.because(format!("the body has not the checksum of {name}"))),
    }
}

fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    let parsed = |value: &hyper::header::HeaderValue| {
        STANDARD.decode(value.as_bytes()).ok()?.try_into().ok()
    };
    let invalid = || Code::INVALID_DIGEST.because("Content-MD5 is no MD5 in base 64");
    headers
        .get("content-md5")
        .map(|value| parsed(value).ok_or_else(invalid))
        .transpose()
}

/// Maximum time between two pieces of a body.
const IDLE: Duration = Duration::from_secs(60);
