//! Public keys and their text form.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::text::logged::boundary;

/// Ed25519 public key that identifies a machine.
///
/// Its text form is `nicstripe-ed25519` and the base64 of the 32 bytes, separated by one space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the shell command that adds this key as `name` to the peers file of another machine.
    ///
    /// ```
    /// let key = nicstripe::trust::PublicKey::from_bytes([7; 32])?;
    /// let command = "nicstripe trust add \
    ///     'nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=' --name nas";
    /// assert_eq!(key.trust_command("nas"), command);
    /// # Ok::<(), nicstripe::trust::KeyError>(())
    /// ```
    pub fn trust_command(&self, name: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
        let name = if name.is_empty() || name.starts_with('-') || !name.chars().all(is_plain) {
            "NAME"
        } else {
            name
        };
        format!("nicstripe trust add '{self}' --name {name}")
    }

    /// First word of a key's text form.
    pub const KIND: &'static str = "nicstripe-ed25519";

    /// Creates a key from its 32-byte encoding (RFC 8032). Bytes that are not a point of the curve
    /// fail at the first signature check.
    ///
    /// # Errors
    ///
    /// [`KeyError::Weak`] for the points of small order, for which signatures exist that no one has
    /// a private key for, and for encodings that are not canonical: one key would have two texts.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        match has_small_order(&bytes) || !is_canonical(&bytes) {
            true => Err(KeyError::Weak),
            false => Ok(Self(bytes)),
        }
    }

    /// Returns the 32-byte encoding of the key (RFC 8032).
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns a short form of the key for display: the first 12 characters of the key's base64 in
    /// groups of four, such as `q83v-ASNF-Z4kB`.
    ///
    /// 72 bits suffice to tell a user's machines apart and to compare keys over the telephone.
    /// Files and comparisons use the whole key. `+` and `/` are replaced by `_` and `.`, so that
    /// each group is one word.
    ///
    /// ```
    /// assert_eq!(
    ///     nicstripe::trust::PublicKey::from_bytes([7; 32])?.fingerprint(),
    ///     "BwcH-BwcH-BwcH"
    /// );
    /// # Ok::<(), nicstripe::trust::KeyError>(())
    /// ```
    pub fn fingerprint(&self) -> String {
        let text = STANDARD
            .encode(&self.0[..9])
            .replace('+', "_")
            .replace('/', ".");
        format!("{}-{}-{}", &text[..4], &text[4..8], &text[8..])
    }

    /// Returns the SubjectPublicKeyInfo of RFC 8410, the TLS form of raw public keys (RFC 7250).
    pub(crate) fn to_spki(self) -> [u8; SPKI_LEN] {
        let mut spki = [0; SPKI_LEN];
        spki[..SPKI_PREFIX.len()].copy_from_slice(&SPKI_PREFIX);
        spki[SPKI_PREFIX.len()..].copy_from_slice(&self.0);
        spki
    }

    /// Parses the output of [`PublicKey::to_spki`]; returns `None` for other key types, other
    /// encodings and weak keys.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        let bytes = spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?;
        Self::from_bytes(bytes).ok()
    }

    /// Parses the second word of a key's text form, the base64 of the 32 bytes.
    pub(super) fn from_base64(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::Base64 {
            text: shorten(text),
        };
        let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
        Self::from_bytes(bytes.try_into().map_err(|_| wrong())?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Self::KIND, STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let line: PublicLine = text.parse()?;
        match line.comment {
            None => Ok(line.key),
            Some(comment) => Err(KeyError::Trailing {
                text: shorten(&comment),
            }),
        }
    }
}

/// Public key with a comment: the line that `nicstripe key` prints and `nicstripe trust add`
/// accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicLine {
    /// Public key of a machine.
    pub key: PublicKey,
    /// Comment after the key, usually `user@host`: one or several words, no control characters, at
    /// most 255 bytes. It is not authenticated.
    pub comment: Option<String>,
}

impl PublicLine {
    /// Combines a key and a comment. Replaces control characters and bidirectional overrides by
    /// `_`, and truncates to 255 bytes.
    ///
    /// ```
    /// use nicstripe::trust::{PublicKey, PublicLine};
    /// let line = PublicLine::new(PublicKey::from_bytes([7; 32])?, "laptop");
    /// assert_eq!(
    ///     line.to_string(),
    ///     "nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= laptop"
    /// );
    /// # Ok::<(), nicstripe::trust::KeyError>(())
    /// ```
    pub fn new(key: PublicKey, comment: &str) -> Self {
        let clean: String = comment
            .trim()
            .chars()
            .map(|c| if is_hidden(c) { '_' } else { c })
            .collect();
        let comment = clean[..boundary(&clean, MAX_COMMENT)].trim_end();
        Self {
            key,
            comment: (!comment.is_empty()).then(|| comment.to_owned()),
        }
    }

    /// Combines a key and the comment `user@host`, built from the user's name, if known, and this
    /// machine's host name.
    ///
    /// ```
    /// use nicstripe::trust::{PublicKey, PublicLine};
    /// let line = PublicLine::with_host_name(PublicKey::from_bytes([7; 32])?, Some("me"));
    /// println!("{line}");
    /// # Ok::<(), nicstripe::trust::KeyError>(())
    /// ```
    #[cfg(unix)]
    pub fn with_host_name(key: PublicKey, user: Option<&str>) -> Self {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        match user {
            Some(user) if !user.is_empty() => Self::new(key, &format!("{user}@{host}")),
            _ => Self::new(key, &host),
        }
    }
}

impl fmt::Display for PublicLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        let mut comment = self.comment.iter();
        comment.try_for_each(|comment| write!(f, " {comment}"))
    }
}

impl FromStr for PublicLine {
    type Err = KeyError;

    fn from_str(line: &str) -> Result<Self, KeyError> {
        let line = line.trim();
        let (kind, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        if kind != PublicKey::KIND {
            return Err(KeyError::Kind {
                text: shorten(kind),
            });
        }
        let rest = rest.trim_start();
        let (key, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        let key = PublicKey::from_base64(key)?;
        let comment = comment.trim();
        if comment.len() > MAX_COMMENT || comment.chars().any(is_hidden) {
            return Err(KeyError::Comment {
                text: shorten(comment),
            });
        }
        Ok(Self {
            key,
            comment: (!comment.is_empty()).then(|| comment.to_owned()),
        })
    }
}

/// Reason why a text is not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The first word is not `nicstripe-ed25519`, the only supported key type.
    #[error(
        "a public key begins with \"{}\", not with \"{text}\"",
        PublicKey::KIND
    )]
    Kind {
        /// First word of the text, shortened and escaped.
        text: String,
    },
    /// The second word is not the base64 of 32 bytes.
    #[error("\"{text}\" is not a key: expected 44 characters, the base64 of 32 bytes")]
    Base64 {
        /// Second word of the text, shortened and escaped.
        text: String,
    },
    /// The key is a point of small order, or its encoding is not canonical.
    #[error("the key is weak: expected one that `nicstripe key` has made")]
    Weak,
    /// Unexpected text follows the key.
    #[error("unexpected \"{text}\" after the key")]
    Trailing {
        /// Text after the key, shortened and escaped.
        text: String,
    },
    /// The comment is too long or not printable.
    #[error(
        "comment \"{text}\" is not allowed: expected at most {MAX_COMMENT} bytes without control characters"
    )]
    Comment {
        /// Invalid comment, shortened and escaped.
        text: String,
    },
}

/// Returns true if the key is a point of order 1, 2, 4 or 8, with either sign.
fn has_small_order(key: &[u8; 32]) -> bool {
    let mut y = *key;
    y[31] &= !SIGN;
    SMALL_ORDER.contains(&y)
}

/// Returns true if y is less than the prime 2^255 - 19 (RFC 8032, section 5.1.3).
fn is_canonical(key: &[u8; 32]) -> bool {
    let is_above = key[0] >= 0xed && key[1..31].iter().all(|byte| *byte == 0xff);
    !(is_above && key[31] | SIGN == 0xff)
}

/// Bit of the last byte with the sign of x.
const SIGN: u8 = 0x80;

/// y of the points of order 4, 1, 2, 8 and 8, little-endian. Their multiples by 8 are the neutral
/// point.
const SMALL_ORDER: [[u8; 32]; 5] = [
    [0; 32],
    [
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0x7f,
    ],
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
];

/// Returns true if a terminal does not show `c` as itself: control characters and bidirectional
/// controls (Unicode TR 9).
pub(super) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Returns text for an error message: escaped and shortened to at most 48 characters.
pub(super) fn shorten(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_SHOWN)
        .flat_map(|c| c.escape_debug())
        .collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

const MAX_SHOWN: usize = 48;
/// Maximum length of a comment in bytes. Fits the longest host name with a user name before it
/// (picked by eye).
const MAX_COMMENT: usize = 255;
const SPKI_LEN: usize = 44;
/// DER of an Ed25519 SubjectPublicKeyInfo before the key: SEQUENCE { SEQUENCE { OID 1.3.101.112 },
/// BIT STRING of 32 bytes } (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LINE: &str = "nicstripe-ed25519 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn key() -> PublicKey {
        PublicKey::from_bytes(std::array::from_fn(|i| i as u8)).unwrap()
    }

    #[test]
    fn a_key_prints_as_one_line_and_reads_back() {
        assert_eq!(key().to_string(), LINE);
        assert_eq!(LINE.parse(), Ok(key()));
        assert_eq!(key().fingerprint(), "AAEC-AwQF-BgcI");
    }

    #[test]
    fn a_line_keeps_its_comment() {
        let line: PublicLine = format!("  {LINE}\t me@box  two words \n").parse().unwrap();
        assert_eq!(line.key, key());
        assert_eq!(line.comment.as_deref(), Some("me@box  two words"));
        assert_eq!(line.to_string(), format!("{LINE} me@box  two words"));
        assert_eq!(LINE.parse::<PublicLine>().unwrap().comment, None);
    }

    #[test]
    fn other_texts_are_refused_with_what_was_expected() {
        let said = |text: &str| text.parse::<PublicKey>().unwrap_err().to_string();
        assert_eq!(
            said("ssh-ed25519 AAAA"),
            "a public key begins with \"nicstripe-ed25519\", not with \"ssh-ed25519\""
        );
        assert!(said("nicstripe-ed25519 AAAA").contains("\"AAAA\" is not a key"));
        assert!(said("nicstripe-ed25519").contains("\"\" is not a key"));
        assert!(said(&format!("{LINE} more")).contains("unexpected \"more\" after the key"));
        // Nonzero unused bits would give one key several spellings.
        assert!(said(&LINE.replace("h8=", "h9=")).contains("is not a key"));
        assert!(said("\u{1b}[31m\u{202e}").contains("\\u{1b}[31m\\u{202e}"));
        assert!(format!("{LINE} a\u{7}b").parse::<PublicLine>().is_err());
    }

    #[test]
    fn points_of_small_order_and_encodings_that_are_not_canonical_are_refused() {
        let p = |above: u8, sign: u8| {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (0xed + above, 0x7f | sign);
            bytes
        };
        // p to 2^255 - 1: y of 0 to 18 written again.
        let others = (0..19).flat_map(|above| [p(above, 0), p(above, SIGN)]);
        let signed = SMALL_ORDER.iter().flat_map(|bytes| {
            let mut signed = *bytes;
            signed[31] |= SIGN;
            [*bytes, signed]
        });
        for bytes in others.chain(signed) {
            assert_eq!(PublicKey::from_bytes(bytes), Err(KeyError::Weak));
            let text = format!("{} {}", PublicKey::KIND, STANDARD.encode(bytes));
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Weak));
            let spki = [&SPKI_PREFIX[..], &bytes].concat();
            assert_eq!(PublicKey::from_spki(&spki), None);
        }
        let mut largest = p(0, 0);
        largest[0] = 0xeb;
        assert!(PublicKey::from_bytes(largest).is_ok());
    }

    #[test]
    fn a_comment_is_made_harmless() {
        assert_eq!(
            PublicLine::new(key(), "a\nb\u{202e}").comment.as_deref(),
            Some("a_b_")
        );
        assert_eq!(PublicLine::new(key(), "  ").comment, None);
        let long = PublicLine::new(key(), &"ä".repeat(200));
        assert_eq!(long.comment.as_ref().map(String::len), Some(254));
        assert_eq!(long.to_string().parse(), Ok(long));
    }

    #[test]
    fn the_tls_form_has_44_bytes_and_reads_back() {
        let spki = key().to_spki();
        assert_eq!(spki.len(), 44);
        assert_eq!(PublicKey::from_spki(&spki), Some(key()));
        assert_eq!(PublicKey::from_spki(&spki[..43]), None);
        assert_eq!(PublicKey::from_spki(&[&spki[..], &[0]].concat()), None);
        let mut other = spki;
        other[8] ^= 1;
        assert_eq!(PublicKey::from_spki(&other), None);
    }
}
