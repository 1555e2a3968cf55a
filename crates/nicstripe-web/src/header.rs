//! Headers that a user adds to requests.

use std::str::FromStr;

use reqwest::header::{HeaderName, HeaderValue};
use thiserror::Error;

/// Header for the server of a URL, `Name: value`. Its value is printed nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

/// Why a text is no [`Header`]. Does not repeat the value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There is no colon, or no name before it.
    #[error("expected a header as NAME: VALUE")]
    Syntax,
    /// The value has control characters.
    #[error("value of the header {0} has control characters")]
    Value(String),
    /// The header belongs to the fetch itself.
    #[error("header {0} is set by nicstripe itself")]
    Own(String),
}

impl FromStr for Header {
    type Err = HeaderError;

    fn from_str(text: &str) -> Result<Self, HeaderError> {
        let (name, value) = text.split_once(':').ok_or(HeaderError::Syntax)?;
        let name: HeaderName = name.trim().parse().map_err(|_| HeaderError::Syntax)?;
        if OWN.contains(&name.as_str()) {
            return Err(HeaderError::Own(name.to_string()));
        }
        let value = HeaderValue::from_str(value.trim());
        let mut value = value.map_err(|_| HeaderError::Value(name.to_string()))?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

/// Headers that say which bytes are wanted, and how they come.
const OWN: [&str; 9] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-range",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value_that_is_not_shown() {
        let header: Header = "X-Token:  secret ".parse().unwrap();
        assert_eq!(header.name, "x-token");
        assert_eq!(header.value, "secret");
        assert!(!format!("{header:?}").contains("secret"));
    }

    #[test]
    fn what_would_change_the_request_itself_is_refused() {
        for text in [
            "",
            "x",
            ": v",
            "a b: v",
            "X: a\rb",
            "X: a\nRange: bytes=0-",
            "Range: bytes=0-",
            "host: other",
            "Transfer-Encoding: chunked",
        ] {
            let error = text.parse::<Header>().unwrap_err().to_string();
            assert!(!error.contains("bytes="), "{error}");
            assert!(!error.contains("a\r"), "{error}");
        }
    }
}
