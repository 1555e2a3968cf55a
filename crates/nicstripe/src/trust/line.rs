//! Options of a line of the peers file by their names, and the errors of such a line.

use super::key::KeyError;

pub(super) const ROOT: &str = "root";
pub(super) const READ_ONLY: &str = "read-only";
pub(super) const APPEND_ONLY: &str = "append-only";
pub(super) const RATE: &str = "rate";
pub(super) const NO_BENCH: &str = "no-bench";
pub(super) const NO_FACTS: &str = "no-facts";
pub(super) const SPECIAL_MODES: &str = "special-modes";
pub(super) const DIAL: &str = "dial";
pub(super) const LISTEN: &str = "listen";
pub(super) const EXEC: &str = "exec";

/// Maximum length of a peer name in bytes: fits the longest host name (picked by eye).
pub(super) const MAX_NAME: usize = 255;

/// Error in one line of the peers file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The line has no valid public key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The line has an unknown option.
    #[error(
        "unknown option \"{text}\": expected {ROOT}=DIR, {READ_ONLY}, {APPEND_ONLY}, {RATE}=RATE, {NO_BENCH}, {NO_FACTS}, {SPECIAL_MODES}, {DIAL}=HOST:PORT, {LISTEN}=[ADDRESS:]PORT or {EXEC}=COMMAND, separated by commas"
    )]
    Option {
        /// Option as written, shortened and escaped.
        text: String,
    },
    /// The line has the same option twice.
    #[error("option \"{option}\" is given twice")]
    Twice {
        /// Name of the option.
        option: String,
    },
    /// The line has both `read-only` and `append-only`.
    #[error("{READ_ONLY} and {APPEND_ONLY} exclude each other")]
    Contradiction,
    /// The value of `root` is not an absolute path.
    #[error("root \"{text}\" is not allowed: expected an absolute path")]
    Root {
        /// Value of `root`, shortened and escaped.
        text: String,
    },
    /// The value of `rate` is not a number of bits per second.
    #[error(
        "rate \"{text}\" is not allowed: expected digits and an optional K, M, G or T, in bits per second, at least 1"
    )]
    Rate {
        /// Value of `rate`, shortened and escaped.
        text: String,
    },
    /// The value of `dial` is not a host and port, and no socket file.
    #[error(
        "dial \"{text}\" is not allowed: expected HOST:PORT, with an IPv6 address in brackets, or unix:/PATH of at most 107 bytes"
    )]
    Dial {
        /// Value of `dial`, shortened and escaped.
        text: String,
    },
    /// The value of `listen` is not an address and port, and no socket file.
    #[error(
        "listen \"{text}\" is not allowed: expected [ADDRESS:]PORT, with an IPv6 address in brackets, or unix:/PATH of at most 107 bytes"
    )]
    Listen {
        /// Value of `listen`, shortened and escaped.
        text: String,
    },
    /// The value of `exec` is not a command.
    #[error(
        "exec \"{text}\" is not allowed: expected a program and its arguments, with * only as the last argument"
    )]
    Exec {
        /// Value of `exec`, shortened and escaped.
        text: String,
    },
    /// A quote is not closed, or does not end its value.
    #[error(
        "unbalanced quote in \"{text}\": expected \"…\" around a whole value, with \\\" and \\\\ inside"
    )]
    Quote {
        /// Line from the quote on, shortened and escaped.
        text: String,
    },
    /// The name is not one printable word, is too long, or begins with `#`.
    #[error(
        "name \"{text}\" is not allowed: expected one word of at most {MAX_NAME} bytes, not beginning with #"
    )]
    Name {
        /// Name as written, shortened and escaped.
        text: String,
    },
}
