//! Attributes of an object, which the daemon keeps next to its content and does not interpret.

use std::collections::{BTreeMap, btree_map};

use minicbor::{Decode, Decoder, Encode, decode};

/// Attributes of an object, such as its content type: names with values. Both are text without control
/// characters, so that they may become headers of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode)]
#[cbor(transparent)]
pub struct ObjectAttributes(BTreeMap<String, String>);

/// Maximum length in bytes of an object's attributes, names and values together: that of S3's
/// user-defined metadata. An ext4 file system has room for it in one block.
pub const MOST_ATTRIBUTES: usize = 2048;

impl ObjectAttributes {
    /// Returns no attributes.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Sets an attribute. Returns its value before.
    ///
    /// # Errors
    ///
    /// The name is empty, one of both has control characters, or all together are longer than
    /// [`MOST_ATTRIBUTES`]; nothing changes.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Option<String>, AttributesError> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() || name.chars().chain(value.chars()).any(char::is_control) {
            return Err(AttributesError::Text);
        }
        let before = self
            .0
            .get(&name)
            .map_or(0, |value| name.len() + value.len());
        if self.len_in_bytes() - before + name.len() + value.len() > MOST_ATTRIBUTES {
            return Err(AttributesError::Long);
        }
        Ok(self.0.insert(name, value))
    }

    /// Returns the value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns names and values in the order of the names.
    pub fn iter(&self) -> btree_map::Iter<'_, String, String> {
        self.0.iter()
    }

    /// Returns true if there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn len_in_bytes(&self) -> usize {
        let lengths = self.0.iter().map(|(name, value)| name.len() + value.len());
        lengths.sum()
    }
}

impl<'a> IntoIterator for &'a ObjectAttributes {
    type Item = (&'a String, &'a String);
    type IntoIter = btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<C> Decode<'_, C> for ObjectAttributes {
    fn decode(decoder: &mut Decoder<'_>, _: &mut C) -> Result<Self, decode::Error> {
        let mut attributes = Self::new();
        for field in decoder.map_iter::<String, String>()? {
            let (name, value) = field?;
            attributes.set(name, value).map_err(decode::Error::custom)?;
        }
        Ok(attributes)
    }
}

/// Error for an attribute that an object cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributesError {
    /// The name is empty, or one of both has control characters.
    #[error(
        "the name of an attribute is not empty, and neither it nor the value has control characters"
    )]
    Text,
    /// The attributes are too long.
    #[error(
        "the attributes of an object have at most {MOST_ATTRIBUTES} bytes, names and values together"
    )]
    Long,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &[u8]) -> Result<ObjectAttributes, decode::Error> {
        Decoder::new(written).decode()
    }

    #[test]
    fn attributes_are_text_of_a_limited_length_also_of_a_peer() {
        let mut attributes = ObjectAttributes::new();
        assert_eq!(attributes.set("content-type", "text/plain"), Ok(None));
        let before = attributes.set("content-type", "text/html");
        assert_eq!(before, Ok(Some("text/plain".to_owned())));
        for (name, value) in [
            ("", "x"),
            ("a\nb", "x"),
            ("a", "x\r\ny: z"),
            ("a", "\u{85}"),
        ] {
            assert_eq!(attributes.set(name, value), Err(AttributesError::Text));
        }
        let room = MOST_ATTRIBUTES - "content-typetext/html".len() - 1;
        assert_eq!(
            attributes.set("a", "x".repeat(room + 1)),
            Err(AttributesError::Long)
        );
        assert_eq!(attributes.set("a", "x".repeat(room)), Ok(None));
        // An equal length again.
        assert!(attributes.set("a", "y".repeat(room)).is_ok());
        assert_eq!(attributes.get("a").map(str::len), Some(room));
        let written = minicbor::to_vec(&attributes).unwrap();
        assert_eq!(read(&written).unwrap(), attributes);

        for (name, value) in [("a", "x\ny"), ("", "x"), ("b", "z".repeat(2048).as_str())] {
            let hostile = BTreeMap::from([(name, value)]);
            let written = minicbor::to_vec(&hostile).unwrap();
            assert!(read(&written).is_err(), "{name:?}");
        }
    }
}
