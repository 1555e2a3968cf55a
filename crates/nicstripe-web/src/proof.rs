//! Proof that a file is the right one: a digest that somebody promised.

use std::{fmt, str::FromStr};

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest as _, Md5};
use nicstripe::Digest;
use reqwest::header::{HeaderMap, HeaderName};
use thiserror::Error;

use crate::answer::text;

/// Algorithm of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// BLAKE3, as `b3sum` prints it.
    Blake3,
    /// MD5 (RFC 1321), which shows accidents and not forgery. Only servers promise it.
    Md5,
    /// CRC-64/NVME, the checksum of whole objects in S3 stores. Shows accidents and not forgery.
    Crc64,
}

impl Algorithm {
    /// Algorithms, the strongest that headers have first.
    const ALL: [Self; 4] = [Self::Sha256, Self::Sha512, Self::Blake3, Self::Md5];

    /// Returns the name of the algorithm.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Blake3 => "blake3",
            Self::Md5 => "md5",
            Self::Crc64 => "crc64nvme",
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Sha256 | Self::Blake3 => 32,
            Self::Sha512 => 64,
            Self::Md5 => 16,
            Self::Crc64 => 8,
        }
    }

    /// Returns the name in `Repr-Digest` and `Content-Digest` (RFC 9530, section 5); `None` if it has
    /// none.
    const fn in_header(self) -> Option<&'static str> {
        match self {
            Self::Sha256 => Some("sha-256"),
            Self::Sha512 => Some("sha-512"),
            Self::Md5 => Some("md5"),
            Self::Blake3 | Self::Crc64 => None,
        }
    }
}

/// Digest that the whole file must have, `sha256:` and its hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub(crate) algorithm: Algorithm,
    pub(crate) value: Vec<u8>,
}

/// Why a text is no [`Expected`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseExpectedError {
    /// The text has no colon, or names another algorithm.
    #[error("expected sha256:, sha512: or blake3: and the digest in hexadecimal digits")]
    Algorithm,
    /// The digest has another length, or other characters.
    #[error("expected {digits} hexadecimal digits after {name}:")]
    Digits {
        /// Name of the algorithm.
        name: &'static str,
        /// Number of digits that it has.
        digits: usize,
    },
}

impl FromStr for Expected {
    type Err = ParseExpectedError;

    fn from_str(text: &str) -> Result<Self, ParseExpectedError> {
        let (name, digits) = text.split_once(':').ok_or(ParseExpectedError::Algorithm)?;
        let is_named = |algorithm: &Algorithm| {
            *algorithm != Algorithm::Md5 && algorithm.name().eq_ignore_ascii_case(name)
        };
        let algorithm = Algorithm::ALL
            .into_iter()
            .find(is_named)
            .ok_or(ParseExpectedError::Algorithm)?;
        let value = hex::decode(digits)
            .ok()
            .filter(|value| value.len() == algorithm.len());
        let value = value.ok_or(ParseExpectedError::Digits {
            name: algorithm.name(),
            digits: 2 * algorithm.len(),
        })?;
        Ok(Self { algorithm, value })
    }
}

impl Expected {
    /// Returns the digest of the whole file that any answer promises in `Repr-Digest` (RFC 9530).
    pub(crate) fn of_file(headers: &HeaderMap) -> Option<Self> {
        Self::of_field(text(headers, HeaderName::from_static("repr-digest"))?)
    }

    /// Returns the digest of the whole file that an answer with all of it promises: in `Repr-Digest`,
    /// `Content-Digest` (RFC 9530) or `Content-MD5` (RFC 2616). The last two are of the bytes of the
    /// answer.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let stored = || Self::of_store(headers);
        let content = || Self::of_field(text(headers, HeaderName::from_static("content-digest"))?);
        let md5 = || {
            let value = STANDARD.decode(text(headers, HeaderName::from_static("content-md5"))?);
            Self::of_value(Algorithm::Md5, value.ok()?)
        };
        Self::of_file(headers)
            .or_else(stored)
            .or_else(content)
            .or_else(md5)
    }

    /// Returns the digest that an S3 store keeps of a whole object: the BLAKE3 that nicstripe gave it, or
    /// its own checksum.
    fn of_store(headers: &HeaderMap) -> Option<Self> {
        let field = |name: &'static str| text(headers, HeaderName::from_static(name));
        if let Some(value) =
            field("x-amz-meta-nicstripe-blake3").and_then(|digits| hex::decode(digits).ok())
        {
            return Self::of_value(Algorithm::Blake3, value);
        }
        let is_of_all = field("x-amz-checksum-type").is_none_or(|kind| kind == "FULL_OBJECT");
        let decoded = |name| STANDARD.decode(field(name)?).ok();
        let of = |name, algorithm| Self::of_value(algorithm, decoded(name)?);
        is_of_all
            .then(|| {
                let sha = || of("x-amz-checksum-sha256", Algorithm::Sha256);
                of("x-amz-checksum-crc64nvme", Algorithm::Crc64).or_else(sha)
            })
            .flatten()
    }

    fn of_field(fields: &str) -> Option<Self> {
        let field = |algorithm: Algorithm| {
            let name = algorithm.in_header()?;
            let mut members = fields
                .split(',')
                .filter_map(|member| member.trim().split_once('='));
            let (_, value) =
                members.find(|(member, _)| member.trim().eq_ignore_ascii_case(name))?;
            let value = value.trim().strip_prefix(':')?.strip_suffix(':')?;
            Self::of_value(algorithm, STANDARD.decode(value).ok()?)
        };
        Algorithm::ALL.into_iter().find_map(field)
    }

    fn of_value(algorithm: Algorithm, value: Vec<u8>) -> Option<Self> {
        (value.len() == algorithm.len()).then_some(Self { algorithm, value })
    }

    /// Returns the SHA-256 of hexadecimal digits.
    pub(crate) fn of_sha256(digits: &str) -> Option<Self> {
        Self::of_value(Algorithm::Sha256, hex::decode(digits).ok()?)
    }

    pub(crate) fn hex(&self) -> String {
        hex::encode(&self.value)
    }
}

/// Proof that a file is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proof {
    /// The digest that the caller expected.
    Expected(Algorithm),
    /// The SHA-256 in a file of checksums.
    Sums {
        /// Name of that file, such as `SHA256SUMS`, escaped.
        file: String,
    },
    /// A digest that the server promised.
    Promised(Algorithm),
    /// All parts are of one version, which has this size in bytes.
    Version,
    /// The number of bytes alone.
    Length,
    /// Nothing: the server named neither length nor version, and may have ended early.
    None,
    /// The file was here before, with the size and the time of the server's.
    Present,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(algorithm) => write!(f, "verified by {}", algorithm.name()),
            Self::Sums { file } => write!(f, "verified by sha256 of {file}"),
            Self::Promised(algorithm) => write!(f, "verified by the server's {}", algorithm.name()),
            Self::Version => f.write_str("checked by version and length only"),
            Self::Present => f.write_str("checked by size and time"),
            Self::None => f.write_str("not checked, its length is unknown,"),
            Self::Length => f.write_str("checked by length only"),
        }
    }
}

/// Hash of a whole file, fed in order.
pub(crate) enum Hashing {
    Sha(digest::Context),
    Blake3(Box<blake3::Hasher>),
    Md5(Md5),
    Crc64(Box<crc_fast::Digest>),
}

impl Hashing {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha(digest::Context::new(&digest::SHA256)),
            Algorithm::Sha512 => Self::Sha(digest::Context::new(&digest::SHA512)),
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::Crc64 => Self::Crc64(Box::new(crc_fast::Digest::new(
                crc_fast::CrcAlgorithm::Crc64Nvme,
            ))),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha(context) => context.update(bytes),
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Crc64(crc) => crc.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
            Self::Crc64(crc) => crc.finalize().to_be_bytes().to_vec(),
        }
    }
}

impl std::io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Digest of BLAKE3's tree over chunks, which every fetch computes.
impl From<Digest> for Expected {
    fn from(digest: Digest) -> Self {
        Self {
            algorithm: Algorithm::Blake3,
            value: digest.0.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn a_digest_is_taken_as_the_tools_print_it() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let expected: Expected = format!("SHA256:{}", empty.to_uppercase()).parse().unwrap();
        assert_eq!(expected.value, Hashing::new(Algorithm::Sha256).finish());
        assert_eq!(expected.hex(), empty);
        for text in [
            "",
            "sha256",
            "md5:00",
            "sha256:",
            "sha256:00",
            &format!("sha256:{empty}0"),
            &format!("sha256:{}", empty.replace('e', "g")),
        ] {
            assert!(text.parse::<Expected>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_servers_digest_of_the_whole_is_taken_and_nothing_else() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("repr-digest", HeaderValue::from_str(text).unwrap());
            Expected::of_file(&headers)
        };
        let value = STANDARD.encode([7; 32]);
        let found = of(&format!("md5=:AA==:, sha-256=:{value}:")).unwrap();
        assert_eq!(found.algorithm, Algorithm::Sha256);
        assert_eq!(found.value, vec![7; 32]);
        for text in [
            "",
            "sha-256",
            "sha-256=7",
            "sha-256=:AA==:",
            "sha-256=:%:",
            &format!("sha-256={value}"),
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_digest_of_an_answer_is_that_of_the_file_only_if_it_has_all_of_it() {
        let md5 = STANDARD.encode([5; 16]);
        let sha = format!("sha-256=:{}:", STANDARD.encode([6; 32]));
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        headers.insert("content-md5", value(&md5));
        assert_eq!(Expected::of_file(&headers), None);
        let found = Expected::of_headers(&headers).unwrap();
        assert_eq!(found.algorithm, Algorithm::Md5);
        assert_eq!(found.value, vec![5; 16]);
        headers.insert("content-digest", value(&sha));
        let found = Expected::of_headers(&headers).unwrap();
        assert_eq!(found.algorithm, Algorithm::Sha256);
        assert_eq!(Expected::of_file(&headers), None);
    }
}
