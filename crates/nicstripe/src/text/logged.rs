//! Sanitization of untrusted text in log records.

use std::fmt;

use nicstripe_proto::name::printable;

use super::causes::chain;

/// Maximum length of one value in a log record, in bytes. A longer value is truncated and ends with
/// `…`.
pub(crate) const MOST_LOGGED: usize = 256;

/// Sanitized value for a log record: one line of at most [`MOST_LOGGED`] bytes, without control
/// characters and bidirectional formatting characters.
///
/// Every text from a peer, a file or the system is logged through this type.
pub(crate) struct Logged(String);

/// Formats a value for a log record: escapes and truncates it.
pub(crate) fn logged(value: impl fmt::Display) -> Logged {
    let mut short = Short(String::new());
    // Fails on truncation, which stops the formatting.
    let is_cut = fmt::write(&mut short, format_args!("{value}")).is_err();
    let mut text = printable(short.0.as_bytes());
    if is_cut || text.len() > MOST_LOGGED {
        text.truncate(boundary(&text, MOST_LOGGED - '…'.len_utf8()));
        text.push('…');
    }
    Logged(text)
}

/// Like [`logged`], with the source chain of the error.
pub(crate) fn logged_error(error: &dyn std::error::Error) -> Logged {
    logged(chain(error))
}

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the last character boundary of a text at or before `at`.
pub(crate) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// [`fmt::Write`] buffer that keeps the first [`MOST_LOGGED`] bytes and then stops the formatting,
/// so that a long value costs no memory.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MOST_LOGGED - self.0.len();
        self.0.push_str(&more[..boundary(more, room)]);
        if more.len() <= room {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_is_one_short_line() {
        let evil = "a\nb\rc\u{1b}[31md\u{7f}\u{85}\u{202e}\u{2066}\u{0}e\\n";
        assert_eq!(
            logged(evil).to_string(),
            "a\\nb\\rc\\u{1b}[31md\\u{7f}\\u{85}\\u{202e}\\u{2066}\\u{0}e\\n"
        );
    }

    #[test]
    fn what_is_long_is_cut_between_characters() {
        for text in [
            "x".repeat(10_000),
            "ä".repeat(10_000),
            "\n".repeat(10_000),
            "\u{1f600}".repeat(64) + "!",
        ] {
            let logged = logged(&text).to_string();
            assert!(
                logged.len() <= MOST_LOGGED
                    && logged.len() > MOST_LOGGED - 16
                    && logged.ends_with('…'),
                "{} {logged}",
                logged.len()
            );
        }
        let whole = "x".repeat(MOST_LOGGED);
        assert_eq!(logged(&whole).to_string(), whole);
    }

    #[test]
    fn line_separators_of_unicode_do_not_begin_a_line() {
        assert!(
            !logged("a\u{2028}b\u{2029}c")
                .to_string()
                .contains(['\u{2028}', '\u{2029}'])
        );
    }
}
