//! Checksums that requests carry.

use std::borrow::Cow;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use crc_fast::CrcAlgorithm;
use hyper::HeaderMap;

use super::error::{Code, S3Error};

/// Algorithm of a checksum, by the name of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    const ALL: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    /// Returns the name of the header or the trailer.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }
}

/// Checksum that a request announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) algorithm: Algorithm,
    /// Value in base 64; `None` if it comes in the trailer.
    pub(crate) value: Option<String>,
}

/// Returns the checksum that the headers of a request announce. At most one is permitted.
pub(crate) fn announced(headers: &HeaderMap) -> Result<Option<Announced>, S3Error> {
    // A value that is not UTF-8 is no checksum, and the name of none.
    let text = |name: &str| Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()));
    let trailer = text("x-amz-trailer");
    let trailer = trailer.as_deref().map(str::trim);
    let mut found = Vec::new();
    for algorithm in Algorithm::ALL {
        let value = text(algorithm.header()).map(Cow::into_owned);
        let follows = trailer.is_some_and(|name| name.eq_ignore_ascii_case(algorithm.header()));
        if value.is_some() || follows {
            found.push(Announced { algorithm, value });
        }
    }
    let is_known = |name: &str| {
        name == "x-amz-checksum-type"
            || name == "x-amz-checksum-algorithm"
            || name == "x-amz-checksum-mode"
            || Algorithm::ALL.iter().any(|one| one.header() == name)
    };
    let unknown = headers
        .keys()
        .find(|name| name.as_str().starts_with("x-amz-checksum-") && !is_known(name.as_str()));
    if let Some(name) = unknown {
        return Err(S3Error::unsupported(format_args!("the checksum {name}")));
    }
    if trailer.is_some() && !found.iter().any(|one| one.value.is_none()) {
        let why = "x-amz-trailer names no checksum that is supported";
        return Err(Code::INVALID_REQUEST.because(why));
    }
    if found.len() > 1 {
        return Err(Code::INVALID_REQUEST.because("expected one checksum at most"));
    }
    Ok(found.pop())
}

/// Computes a checksum.
#[derive(Clone)]
pub(crate) enum Hasher {
    Crc32(Box<crc_fast::Digest>),
    Crc64(Box<crc_fast::Digest>),
    Digest(digest::Context),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let crc = |algorithm| Box::new(crc_fast::Digest::new(algorithm));
        match algorithm {
            Algorithm::Crc32 => Self::Crc32(crc(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Crc32c => Self::Crc32(crc(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Crc64Nvme => Self::Crc64(crc(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Sha1 => Self::Digest(digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => Self::Digest(digest::Context::new(&SHA256)),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(crc) | Self::Crc64(crc) => crc.update(bytes),
            Self::Digest(context) => context.update(bytes),
        }
    }

    /// Returns the checksum in base 64.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Crc32(crc) => STANDARD.encode((crc.finalize() as u32).to_be_bytes()),
            Self::Crc64(crc) => STANDARD.encode(crc.finalize().to_be_bytes()),
            Self::Digest(context) => STANDARD.encode(context.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn checksums_are_those_of_s3() {
        for (algorithm, expected) in [
            (Algorithm::Crc32, "y/Q5Jg=="),
            (Algorithm::Crc32c, "4waSgw=="),
            (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
            (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (
                Algorithm::Sha256,
                "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
            ),
        ] {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"1234");
            hasher.update(b"56789");
            assert_eq!(hasher.finish(), expected, "{algorithm:?}");
        }
    }

    #[test]
    fn one_checksum_is_announced_at_most() {
        assert_eq!(announced(&headers(&[])), Ok(None));
        let one = headers(&[("x-amz-checksum-crc32", "AAAAAA==")]);
        assert_eq!(
            announced(&one).unwrap().unwrap().value.as_deref(),
            Some("AAAAAA==")
        );
        let later = headers(&[("x-amz-trailer", "x-amz-checksum-SHA256")]);
        let later = announced(&later).unwrap().unwrap();
        assert_eq!((later.algorithm, later.value), (Algorithm::Sha256, None));
        let strange = headers(&[("x-amz-checksum-crc32", "\u{e4}")]);
        assert!(announced(&strange).unwrap().is_some());
        for wrong in [
            headers(&[("x-amz-trailer", "\u{e4}")]),
            headers(&[("x-amz-trailer", "x-amz-checksum-md9")]),
            headers(&[("x-amz-checksum-md9", "x")]),
            headers(&[("x-amz-checksum-crc32", "a"), ("x-amz-checksum-sha1", "b")]),
        ] {
            assert!(announced(&wrong).is_err(), "{wrong:?}");
        }
    }
}
