//! Paths and queries of requests, and how S3 encodes text in them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::error::{Code, S3Error};

/// Query of a request: names with values, decoded, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, S3Error> {
        let pairs = query.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, S3Error> {
        let number = |text: &str| {
            let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_digits.then(|| text.parse().ok()).flatten();
            number.ok_or_else(|| Code::INVALID_ARGUMENT.because(format!("{name} is not a number")))
        };
        self.get(name).map(number).transpose()
    }

    /// Returns all pairs but one as signatures have them: encoded and sorted.
    pub(crate) fn canonical_without(&self, left_out: &str) -> String {
        let pairs = self.0.iter().filter(|(name, _)| name != left_out);
        let mut pairs: Vec<_> = pairs
            .map(|(name, value)| (encoded(name.as_bytes()), encoded(value.as_bytes())))
            .collect();
        pairs.sort();
        let pairs: Vec<_> = pairs
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("&")
    }
}

/// Decodes percent signs.
pub(crate) fn decoded(text: &str) -> Result<String, S3Error> {
    let bytes = percent_decode_str(text).decode_utf8();
    bytes
        .map(String::from)
        .map_err(|_| Code::INVALID_ARGUMENT.because("the path or the query is not UTF-8"))
}

/// Encodes everything but the unreserved characters.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED).to_string()
}

/// Encodes everything but the unreserved characters and `/`.
pub(crate) fn encoded_path(bytes: &[u8]) -> String {
    percent_encode(bytes, IN_PATHS).to_string()
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_put_in_order() {
        let query = Query::parse(Some("b=2&uploads&a=%2F+x&b=1&X-Amz-Signature=0")).unwrap();
        assert_eq!(query.get("a"), Some("/+x"));
        assert_eq!(query.get("uploads"), Some(""));
        assert!(!query.has("c"));
        assert_eq!(
            query.canonical_without("X-Amz-Signature"),
            "a=%2F%2Bx&b=1&b=2&uploads="
        );
        assert_eq!(query.number("b").unwrap(), Some(2));
        assert!(query.number("a").is_err());
        assert!(Query::parse(Some("a=%ff")).is_err());
    }
}
