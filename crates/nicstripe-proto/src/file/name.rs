//! File names on the wire: lists of path components. Invalid names are rejected, never sanitized.

use std::{fmt, os::unix::ffi::OsStrExt as _, path::Path, str::FromStr};

use minicbor::{Decode, Decoder, Encode, bytes::ByteVec, decode};

/// Maximum number of components in a name. Deeper trees are assumed to be attacks.
pub const MAX_COMPONENTS: usize = 256;

/// Maximum length of a component in bytes (`NAME_MAX` of Linux file systems).
pub const MAX_COMPONENT: usize = 255;

/// Maximum total length of all components in bytes (`PATH_MAX` without the terminator).
pub const MAX_NAME: usize = 4095;

/// File name relative to the daemon's root, as components.
///
/// Has 1 to [`MAX_COMPONENTS`] components. None is empty, `.`, `..`, longer than [`MAX_COMPONENT`]
/// bytes, or contains a slash or NUL. Components need not be UTF-8. Names are ordered by the bytes of
/// their components, so that a directory comes right before what is in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Encode)]
#[cbor(transparent)]
pub struct Name(#[n(0)] Vec<ByteVec>);

impl Name {
    /// Returns a name with these components.
    ///
    /// # Errors
    ///
    /// Returns [`NameError`] if the components are not a valid name.
    pub fn new<I, C>(components: I) -> Result<Self, NameError>
    where
        I: IntoIterator<Item = C>,
        C: Into<Vec<u8>>,
    {
        let components: Vec<ByteVec> = components
            .into_iter()
            .map(|component| component.into().into())
            .collect();
        if components.is_empty() {
            return Err(NameError::Empty);
        }
        if components.len() > MAX_COMPONENTS {
            return Err(NameError::TooDeep(components.len()));
        }
        let total = components
            .iter()
            .map(|component| component.len() + 1)
            .sum::<usize>()
            - 1;
        if total > MAX_NAME {
            return Err(NameError::TooLong(total));
        }
        components
            .iter()
            .try_for_each(|component| check(component))?;
        Ok(Self(components))
    }

    /// Parses a relative path with `/` between components, as typed by a user.
    ///
    /// Accepts several consecutive slashes as one, like a shell.
    ///
    /// # Errors
    ///
    /// Returns [`NameError`] for a leading slash, `.`, `..`, or any other invalid name.
    pub fn parse(path: &[u8]) -> Result<Self, NameError> {
        if path.starts_with(b"/") {
            return Err(NameError::Absolute(escaped(path)));
        }
        Self::new(
            path.split(|byte| *byte == b'/')
                .filter(|component| !component.is_empty()),
        )
    }

    /// Returns the components, outermost component first.
    pub fn components(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator {
        self.0.iter().map(|component| component.as_slice())
    }

    /// Returns the last component of the name.
    pub fn file_name(&self) -> &[u8] {
        self.0.last().map_or(&[], |last| last.as_slice())
    }

    /// Returns this name with `component` appended.
    ///
    /// # Errors
    ///
    /// Returns [`NameError`] if the result is not a valid name.
    pub fn join(&self, component: &[u8]) -> Result<Self, NameError> {
        Self::new(self.components().chain([component]))
    }

    /// Returns the name of the directory that contains this name; `None` for one in the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parents) = self.0.split_last()?;
        (!parents.is_empty()).then(|| Self(parents.to_vec()))
    }

    /// Returns the rest of the name below the directory `dir`; `None` if it is not below it.
    pub fn strip_prefix(&self, dir: &Self) -> Option<Self> {
        let rest = self.0.strip_prefix(&dir.0[..])?;
        (!rest.is_empty()).then(|| Self(rest.to_vec()))
    }

    /// Returns the name as a relative path, with `/` between components. [`parse`](Self::parse)
    /// returns the same name for it, unlike for the text of its `Display`, which is escaped.
    pub fn to_bytes(&self) -> Vec<u8> {
        let components: Vec<&[u8]> = self.components().collect();
        components.join(&b'/')
    }
}

/// As [`Name::parse`].
impl FromStr for Name {
    type Err = NameError;

    fn from_str(path: &str) -> Result<Self, NameError> {
        Self::parse(path.as_bytes())
    }
}

/// As [`Name::parse`].
impl TryFrom<&str> for Name {
    type Error = NameError;

    fn try_from(path: &str) -> Result<Self, NameError> {
        path.parse()
    }
}

/// As [`Name::parse`].
impl TryFrom<&Path> for Name {
    type Error = NameError;

    fn try_from(path: &Path) -> Result<Self, NameError> {
        Self::parse(path.as_os_str().as_bytes())
    }
}

/// Formats the name with `/` between components. Escapes control characters and bytes that are not
/// UTF-8.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.to_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Reason why a name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name has no components.
    #[error("name is empty, expected at least one component")]
    Empty,
    /// The name begins with a slash.
    #[error("name \"{0}\" is absolute, expected one relative to the daemon's root")]
    Absolute(String),
    /// The name has more than [`MAX_COMPONENTS`] components. Contains their number.
    #[error("name of {0} components exceeds the limit of {MAX_COMPONENTS}")]
    TooDeep(usize),
    /// The name has more than [`MAX_NAME`] bytes in total, or more than [`MAX_COMPONENT`] bytes in
    /// one component. Contains the number of bytes.
    #[error("name of {0} bytes exceeds the limit of {MAX_NAME} ({MAX_COMPONENT} in a component)")]
    TooLong(usize),
    /// A component is empty, `.` or `..`, or contains a slash or NUL.
    #[error(
        "name component \"{0}\" is not allowed: it must not be empty, \".\" or \"..\", or contain \"/\" or NUL"
    )]
    Component(String),
}

fn check(component: &[u8]) -> Result<(), NameError> {
    if component.len() > MAX_COMPONENT {
        return Err(NameError::TooLong(component.len()));
    }
    let plain = !matches!(component, b"" | b"." | b"..")
        && !component.iter().any(|byte| matches!(byte, b'/' | 0));
    if plain {
        Ok(())
    } else {
        Err(NameError::Component(escaped(component)))
    }
}

/// Escapes text unambiguously for a terminal or log. Escapes control characters, bidirectional
/// formatting characters, line separators, backslashes, and bytes that are not UTF-8.
pub fn escaped(bytes: &[u8]) -> String {
    escape(bytes, true)
}

/// Escapes text like [`escaped`], but leaves backslashes unchanged. Use it for text that the peer
/// has already escaped.
pub fn printable(bytes: &[u8]) -> String {
    escape(bytes, false)
}

fn escape(bytes: &[u8], backslashes: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let directional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let separates = matches!(c, '\u{2028}' | '\u{2029}');
            if c.is_control() || directional || separates || (backslashes && c == '\\') {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

impl<'b, C> Decode<'b, C> for Name {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        let components = d
            .array_iter::<ByteVec>()?
            .take(MAX_COMPONENTS + 1)
            .collect::<Result<Vec<_>, _>>()?;
        Self::new(components).map_err(|error| decode::Error::custom(error).at(position))
    }
}

#[cfg(test)]
mod tests {
    use minicbor::{Encoder, decode as decode_bytes};

    use super::*;

    #[test]
    fn plain_names_are_kept_as_they_are() {
        let name = Name::parse(b"a//b c/\xff.bin").unwrap();
        assert_eq!(
            name.components().collect::<Vec<_>>(),
            [&b"a"[..], b"b c", b"\xff.bin"]
        );
        assert_eq!(name.to_string(), "a/b c/\\xff.bin");
        assert_eq!(name.file_name(), b"\xff.bin");
    }

    #[test]
    fn a_name_is_taken_apart_and_put_together() {
        let name: Name = "a/b/c".parse().unwrap();
        let dir = name.parent().unwrap();
        assert_eq!(dir, Name::try_from("a/b").unwrap());
        assert_eq!(dir.parent().unwrap().parent(), None);
        assert_eq!(dir.join(name.file_name()).unwrap(), name);
        let below = |dir: &str| name.strip_prefix(&dir.parse().unwrap());
        assert_eq!(below("a"), Some("b/c".parse().unwrap()));
        assert_eq!(
            [below("a/b/c"), below("b"), below("a/b/c/d")],
            [None, None, None]
        );
        let odd = Name::new([&b"a\\"[..], b"\xff"]).unwrap();
        assert_eq!(Name::parse(&odd.to_bytes()).unwrap(), odd);
        assert_ne!(Name::parse(odd.to_string().as_bytes()).unwrap(), odd);
        assert_eq!(Name::try_from(Path::new("a/b/c")).unwrap(), name);
        assert!(Name::try_from("/a").is_err() && "..".parse::<Name>().is_err());
        let mut sorted: Vec<Name> = ["a.b", "a/b", "a"].map(|name| name.parse().unwrap()).into();
        sorted.sort();
        assert_eq!(
            sorted.iter().map(Name::to_string).collect::<Vec<_>>(),
            ["a", "a/b", "a.b"]
        );
    }

    #[test]
    fn names_that_leave_the_root_are_rejected_not_cleaned() {
        let long = "x".repeat(256);
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/.",
            ".",
            "../a",
            "a/..",
            "a\0b",
            &long,
        ] {
            assert!(Name::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Name::new(["a/b"]).is_err());
        assert!(Name::new(vec!["a"; 257]).is_err());
        assert!(Name::new(vec!["x".repeat(250); 17]).is_err());
    }

    #[test]
    fn a_rejected_name_cannot_be_decoded() {
        for bad in [vec![&b".."[..]], vec![b"a", b""], vec![], vec![b"a/b"]] {
            let mut bytes = Vec::new();
            let mut e = Encoder::new(&mut bytes);
            e.array(bad.len() as u64).unwrap();
            for component in bad {
                e.bytes(component).unwrap();
            }
            let decoded: Result<Name, _> = decode_bytes(&bytes);
            assert!(decoded.is_err());
        }
    }

    #[test]
    fn escapes_reach_no_terminal() {
        assert_eq!(escaped(b"a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(escaped("\u{202e}".as_bytes()), "\\u{202e}");
        assert_eq!(printable(escaped(b"a\x1bb").as_bytes()), "a\\u{1b}b");
    }
}
