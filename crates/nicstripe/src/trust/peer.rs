//! Line of the peers file: a trusted machine and its rights.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use nicstripe_proto::BitRate;

use super::dial::DialTarget;
use super::exec_rule::ExecRule;
use super::key::{KeyError, PublicKey, is_hidden, shorten};
use super::line::{
    APPEND_ONLY, DIAL, EXEC, LISTEN, LineError, MAX_NAME, NO_BENCH, NO_FACTS, RATE, READ_ONLY,
    ROOT, SPECIAL_MODES,
};
use super::listen::ListenTarget;

/// Trusted machine and its rights: one line of the peers file.
///
/// The line has options, key and name, separated by blanks. Options and name are optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Public key that identifies the peer.
    pub key: PublicKey,
    /// Local name of the peer; unique in the peers file.
    pub name: Option<PeerName>,
    /// Rights of the peer on this machine.
    pub options: PeerOptions,
}

/// Rights of a peer on this machine.
///
/// Deliberately without a default. A line without options means [`PeerOptions::unrestricted`],
/// which only a line of the peers file grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerOptions {
    /// `root=DIR`: folder served as `/`, an absolute path; defaults to the daemon's root.
    pub root: Option<PathBuf>,
    /// `read-only` or `append-only`: write access; full without either option.
    pub access: Access,
    /// `rate=RATE`: rate limit over all links and both directions together. A number with an
    /// optional K, M, G or T: decimal bits per second, at least 1.
    pub rate: Option<BitRate>,
    /// `no-bench`: denies [bench](crate::Client::bench).
    pub no_bench: bool,
    /// `no-facts`: denies [facts](crate::Client::facts) about this machine.
    pub no_facts: bool,
    /// `special-modes`: allows the peer to set set-user-ID and set-group-ID bits on files it
    /// writes. If the daemon runs as root, also file capabilities and other root-only attributes.
    pub special_modes: bool,
    /// `dial=HOST:PORT` or `dial=unix:/PATH`, repeatable: targets that the peer may connect to by
    /// [tunnels](crate::Client::dial) from this machine; none by default.
    pub dial: Vec<DialTarget>,
    /// `listen=[ADDRESS:]PORT` or `listen=unix:/PATH`, repeatable: where the peer may
    /// [listen](crate::Client::listen) on this machine; nowhere by default.
    pub listen: Vec<ListenTarget>,
    /// `exec=COMMAND`, repeatable: commands that the peer may [run](crate::Client::exec) on this
    /// machine; none by default.
    pub exec: Vec<ExecRule>,
}

/// Write access of a peer to the daemon's files.
///
/// Ordered from the most rights to the fewest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The peer may read, create, replace and remove files.
    Full,
    /// The peer may read and create files, but neither change nor remove existing ones.
    AppendOnly,
    /// The peer may only read files.
    ReadOnly,
}

impl Access {
    /// Returns the identifier of the access in machine-readable output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::AppendOnly => "append_only",
            Self::ReadOnly => "read_only",
        }
    }
}

/// Local name of a peer: one word of at most 255 bytes without control characters, not beginning
/// with `#`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerName(String);

impl PeerName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if `HOST:PATH` can have the name as HOST: letters, digits, `-`, `.` and `_`, not
    /// beginning with `-`; or an address, with such a zone.
    pub fn is_host(&self) -> bool {
        let is_plain = |text: &str| {
            text.chars()
                .all(|c| c.is_alphanumeric() || "-._".contains(c))
        };
        match self.0.split_once('%') {
            Some((address, zone)) => address.parse::<IpAddr>().is_ok() && is_plain(zone),
            None => {
                self.0.parse::<IpAddr>().is_ok() || (is_plain(&self.0) && !self.0.starts_with('-'))
            }
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PeerName {
    type Err = LineError;

    fn from_str(word: &str) -> Result<Self, LineError> {
        let bad = |c: char| c.is_whitespace() || is_hidden(c);
        if word.is_empty()
            || word.len() > MAX_NAME
            || word.starts_with('#')
            || word.chars().any(bad)
        {
            return Err(LineError::Name {
                text: shorten(word),
            });
        }
        Ok(Self(word.to_owned()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.options.to_string();
        if !options.is_empty() {
            write!(f, "{options} ")?;
        }
        write!(f, "{}", self.key)?;
        self.name.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

impl FromStr for Peer {
    type Err = LineError;

    fn from_str(line: &str) -> Result<Self, LineError> {
        let (first, rest) = split_word(line)?;
        let (options, kind, rest) = match first == PublicKey::KIND {
            true => (PeerOptions::unrestricted(), first, rest),
            false => {
                let options = first.parse()?;
                let (kind, rest) = split_word(rest)?;
                (options, kind, rest)
            }
        };
        if kind != PublicKey::KIND {
            return Err(KeyError::Kind {
                text: shorten(kind),
            }
            .into());
        }
        let (key, rest) = split_word(rest)?;
        let key = PublicKey::from_base64(key)?;
        let name = match rest.trim() {
            "" => None,
            word => Some(word.parse()?),
        };
        Ok(Self { key, name, options })
    }
}

impl fmt::Display for PeerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = self
            .root
            .as_ref()
            .map(|root| format!("{ROOT}={}", quote(&root.to_string_lossy())));
        let access = match self.access {
            Access::Full => None,
            Access::AppendOnly => Some(APPEND_ONLY.to_owned()),
            Access::ReadOnly => Some(READ_ONLY.to_owned()),
        };
        let rate = self
            .rate
            .map(|rate| format!("{RATE}={}", rate.bits_per_second()));
        let no_bench = self.no_bench.then(|| NO_BENCH.to_owned());
        let no_facts = self.no_facts.then(|| NO_FACTS.to_owned());
        let special_modes = self.special_modes.then(|| SPECIAL_MODES.to_owned());
        let dial = self.dial.iter().map(ToString::to_string);
        let dial = dial.map(|target| format!("{DIAL}={}", quote(&target)));
        let listen = self.listen.iter().map(ToString::to_string);
        let listen = listen.map(|target| format!("{LISTEN}={}", quote(&target)));
        let exec = self.exec.iter().map(ToString::to_string);
        let exec = exec.map(|rule| format!("{EXEC}={}", quote(&rule)));
        let words: Vec<String> = [root, access, rate, no_bench, no_facts, special_modes]
            .into_iter()
            .flatten()
            .chain(dial)
            .chain(listen)
            .chain(exec)
            .collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for PeerOptions {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let mut options = Self::unrestricted();
        let mut seen: Vec<&str> = Vec::new();
        for word in split_options(text) {
            let (name, value) = word
                .split_once('=')
                .map_or((word, None), |(name, value)| (name, Some(value)));
            if ![DIAL, LISTEN, EXEC].contains(&name) && seen.contains(&name) {
                return Err(LineError::Twice {
                    option: shorten(name),
                });
            }
            seen.push(name);
            options.set(name, value, word)?;
        }
        Ok(options)
    }
}

impl PeerOptions {
    /// Returns the rights of a line without options: full access to the daemon's root, except
    /// [`special_modes`](Self::special_modes), [`dial`](Self::dial), [`listen`](Self::listen) and
    /// [`exec`](Self::exec).
    ///
    /// ```
    /// use nicstripe::trust::{Access, PeerOptions};
    /// let reader = PeerOptions { access: Access::ReadOnly, ..PeerOptions::unrestricted() };
    /// assert_eq!(reader.to_string(), "read-only");
    /// ```
    pub fn unrestricted() -> Self {
        Self {
            root: None,
            access: Access::Full,
            rate: None,
            no_bench: false,
            no_facts: false,
            special_modes: false,
            dial: Vec::new(),
            listen: Vec::new(),
            exec: Vec::new(),
        }
    }

    /// Returns the rights to read the daemon's files, and to nothing else: neither benches nor facts.
    ///
    /// ```
    /// # use nicstripe::trust::{Access, PeerOptions};
    /// let tunnel = PeerOptions { dial: vec!["localhost:22".parse()?], ..PeerOptions::reading() };
    /// # Ok::<(), nicstripe::trust::LineError>(())
    /// ```
    pub fn reading() -> Self {
        Self {
            access: Access::ReadOnly,
            no_bench: true,
            no_facts: true,
            ..Self::unrestricted()
        }
    }

    /// Returns the names of the options in which `others` permit more than these rights:
    /// restrictions that `others` lack or relax, and grants that they add.
    ///
    /// A directory replaced by another one is a lost restriction; a new one is not.
    ///
    /// ```
    /// use nicstripe::trust::PeerOptions;
    /// let had: PeerOptions = "append-only,root=/srv/in".parse()?;
    /// assert_eq!(had.loosened_by(&"root=/srv/in,exec=id".parse()?), ["append-only", "exec"]);
    /// assert!(had.loosened_by(&"read-only,root=/srv/in".parse()?).is_empty());
    /// # Ok::<(), nicstripe::trust::LineError>(())
    /// ```
    pub fn loosened_by(&self, others: &Self) -> Vec<&'static str> {
        let Self {
            root,
            access,
            rate,
            no_bench,
            no_facts,
            special_modes,
            dial,
            listen,
            exec,
        } = self;
        let has_more_access = *access > others.access;
        let is_faster = rate.is_some_and(|rate| others.rate.is_none_or(|others| others > rate));
        let is_run = |rule: &ExecRule| exec.iter().any(|own| own.covers(rule));
        [
            (root.is_some() && *root != others.root, ROOT),
            (has_more_access && *access == Access::ReadOnly, READ_ONLY),
            (
                has_more_access && *access == Access::AppendOnly,
                APPEND_ONLY,
            ),
            (is_faster, RATE),
            (*no_bench && !others.no_bench, NO_BENCH),
            (*no_facts && !others.no_facts, NO_FACTS),
            (!special_modes && others.special_modes, SPECIAL_MODES),
            (
                !others.dial.iter().all(|target| dial.contains(target)),
                DIAL,
            ),
            (
                !others.listen.iter().all(|target| listen.contains(target)),
                LISTEN,
            ),
            (!others.exec.iter().all(is_run), EXEC),
        ]
        .into_iter()
        .filter_map(|(is_looser, option)| is_looser.then_some(option))
        .collect()
    }

    /// Returns true if these rights include all of `others`. Rights with different roots never
    /// include each other.
    pub(crate) fn include(&self, others: &Self) -> bool {
        self.root == others.root && self.loosened_by(others).is_empty()
    }

    fn set(&mut self, name: &str, value: Option<&str>, word: &str) -> Result<(), LineError> {
        match (name, value) {
            (ROOT, Some(value)) => self.root = Some(parse_root(value)?),
            (RATE, Some(value)) => self.rate = Some(parse_rate(&unquote(value)?)?),
            (READ_ONLY, None) => self.restrict(Access::ReadOnly)?,
            (APPEND_ONLY, None) => self.restrict(Access::AppendOnly)?,
            (NO_BENCH, None) => self.no_bench = true,
            (NO_FACTS, None) => self.no_facts = true,
            (SPECIAL_MODES, None) => self.special_modes = true,
            (DIAL, Some(value)) => allow(&mut self.dial, unquote(value)?.parse()?, DIAL)?,
            (LISTEN, Some(value)) => allow(&mut self.listen, unquote(value)?.parse()?, LISTEN)?,
            (EXEC, Some(value)) => allow(&mut self.exec, unquote(value)?.parse()?, EXEC)?,
            _ => {
                return Err(LineError::Option {
                    text: shorten(word),
                });
            }
        }
        Ok(())
    }

    fn restrict(&mut self, access: Access) -> Result<(), LineError> {
        if self.access != Access::Full {
            return Err(LineError::Contradiction);
        }
        self.access = access;
        Ok(())
    }
}

/// Adds a right of an option that a line may have several times.
fn allow<T: PartialEq + fmt::Display>(
    rights: &mut Vec<T>,
    right: T,
    option: &str,
) -> Result<(), LineError> {
    if rights.contains(&right) {
        let option = shorten(&format!("{option}={right}"));
        return Err(LineError::Twice { option });
    }
    rights.push(right);
    Ok(())
}

/// Splits a line into its first word and the remainder. Blanks in quotes belong to the word.
fn split_word(line: &str) -> Result<(&str, &str), LineError> {
    let line = line.trim_start();
    let end = find_outside_quotes(line, char::is_whitespace).ok_or_else(|| LineError::Quote {
        text: shorten(line),
    })?;
    Ok(line.split_at(end))
}

/// Splits options at commas outside quotes. The quotes must be balanced.
fn split_options(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = find_outside_quotes(text, |c| c == ',').unwrap_or(text.len());
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

/// Returns the position of the first matching character outside quotes, or the length of the text;
/// `None` if a quote is not closed.
fn find_outside_quotes(text: &str, matches: impl Fn(char) -> bool) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if !quoted && matches(c) => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(text.len())
}

fn quote(value: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, ',' | '"' | '\\');
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn unquote(value: &str) -> Result<String, LineError> {
    let wrong = || LineError::Quote {
        text: shorten(value),
    };
    let Some(inside) = value.strip_prefix('"') else {
        return if value.contains('"') {
            Err(wrong())
        } else {
            Ok(value.to_owned())
        };
    };
    let mut plain = String::new();
    let mut rest = inside.chars();
    loop {
        match rest.next().ok_or_else(wrong)? {
            '"' if rest.as_str().is_empty() => return Ok(plain),
            '"' => return Err(wrong()),
            '\\' => plain.push(
                rest.next()
                    .filter(|c| matches!(c, '"' | '\\'))
                    .ok_or_else(wrong)?,
            ),
            c => plain.push(c),
        }
    }
}

fn parse_root(value: &str) -> Result<PathBuf, LineError> {
    let text = unquote(value)?;
    let root = PathBuf::from(&text);
    // With such a character the file could not be read again.
    match root.is_absolute() && !text.chars().any(is_hidden) {
        true => Ok(root),
        false => Err(LineError::Root {
            text: shorten(&text),
        }),
    }
}

fn parse_rate(text: &str) -> Result<BitRate, LineError> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1_000_000_000),
        Some(b'T' | b't') => (&text[..text.len() - 1], 1_000_000_000_000),
        _ => (text, 1),
    };
    let number = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse::<u64>().ok())
        .flatten();
    let rate = number
        .and_then(|number| number.checked_mul(unit))
        .filter(|rate| *rate > 0);
    rate.map(BitRate).ok_or_else(|| LineError::Rate {
        text: shorten(text),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KEY: &str = "nicstripe-ed25519 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn peer(line: &str) -> Result<Peer, LineError> {
        line.parse()
    }

    #[test]
    fn rights_include_those_that_are_no_more_in_any_respect() {
        let include = |line: &str, others: &str| options(line).include(&options(others));
        let table = [
            ("", "read-only,rate=1M,no-bench", true),
            ("read-only", "", false),
            ("append-only", "read-only", true),
            ("append-only", "", false),
            ("root=/a", "root=/a", true),
            ("root=/a", "", false),
            ("", "root=/a", false),
            ("root=/a", "root=/b", false),
            ("rate=1M", "", false),
            ("rate=1M", "rate=2M", false),
            ("rate=2M", "rate=1M", true),
            ("no-bench", "", false),
            ("no-bench", "no-bench", true),
            ("no-facts", "", false),
            ("no-facts", "no-facts", true),
            ("dial=a:1", "dial=a:1,dial=b:2", false),
            ("dial=a:1,dial=b:2", "dial=b:2", true),
            ("", "listen=80", false),
            ("listen=80", "listen=localhost:80", true),
            ("listen=0", "listen=80", false),
            ("", "exec=a", false),
            ("exec=a", "exec=a,exec=b", false),
            ("exec=a,exec=b", "exec=b", true),
            ("exec=a", "exec=*", false),
            ("exec=*", "exec=a", true),
        ];
        for (line, others, expected) in table {
            assert_eq!(
                include(line, others),
                expected,
                "{line:?} includes {others:?}"
            );
        }
    }

    #[test]
    fn a_lost_restriction_and_a_new_grant_loosen_rights() {
        let loosened = |had: &str, has: &str| options(had).loosened_by(&options(has)).join(",");
        for (had, has, expected) in [
            ("", "", ""),
            ("", "read-only,root=/a,rate=1,no-bench,no-facts", ""),
            ("read-only", "append-only", "read-only"),
            ("append-only", "read-only", ""),
            (
                "append-only,root=/a,exec=\"borg serve *\"",
                "exec=id",
                "root,append-only,exec",
            ),
            ("root=/a", "root=/a/b", "root"),
            ("rate=1M,no-bench,no-facts", "", "rate,no-bench,no-facts"),
            ("rate=1M", "rate=2M", "rate"),
            ("rate=2M", "rate=1M", ""),
            (
                "dial=a:1,listen=1",
                "dial=b:1,listen=2,special-modes",
                "special-modes,dial,listen",
            ),
            ("exec=\"borg serve *\"", "exec=\"borg serve -p\"", ""),
            ("exec=\"borg serve -p\"", "exec=\"borg serve *\"", "exec"),
            ("exec=*", "exec=id", ""),
        ] {
            assert_eq!(loosened(had, has), expected, "{had:?} becomes {has:?}");
        }
    }

    fn options(text: &str) -> PeerOptions {
        if text.is_empty() {
            return PeerOptions::unrestricted();
        }
        peer(&format!("{text} {KEY}")).unwrap().options
    }

    #[test]
    fn a_line_is_options_key_and_name() {
        let read = peer(&format!(
            "  root=/srv/backup,append-only,rate=500M\t{KEY}  nas "
        ))
        .unwrap();
        assert_eq!(read.options.root.as_deref(), Some("/srv/backup".as_ref()));
        assert_eq!(read.options.access, Access::AppendOnly);
        assert_eq!(read.options.rate, Some(BitRate::from_mbit(500)));
        assert_eq!(read.name.as_ref().map(PeerName::as_str), Some("nas"));
        assert_eq!(
            read.to_string(),
            format!("root=/srv/backup,append-only,rate=500000000 {KEY} nas")
        );
        assert_eq!(peer(KEY).unwrap().to_string(), KEY);
    }

    #[test]
    fn quoted_values_may_hold_blanks_commas_quotes_and_backslashes() {
        let read = options(r#"read-only,root="/a b,c\"d\\e""#);
        assert_eq!(read.root.as_deref(), Some(r#"/a b,c"d\e"#.as_ref()));
        assert_eq!(options(&read.to_string()), read);
        let files =
            r#"dial="unix:/run/a b",dial=unix:/run/c,listen="unix:/d,e",listen=127.0.0.1:80"#;
        assert_eq!(options(files).to_string(), files);
        assert_eq!(options(r#"rate="2G""#).rate, Some(BitRate::from_gbit(2)));
        assert!(!PeerOptions::unrestricted().special_modes);
        assert!(options("special-modes,append-only").special_modes);
        assert_eq!(
            options("special-modes,append-only").to_string(),
            "append-only,special-modes"
        );
    }

    #[test]
    fn every_other_line_is_refused_with_the_word_and_what_is_allowed() {
        for (line, said) in [
            (
                "read-olny KEY",
                "unknown option \"read-olny\": expected root=DIR, read-only, append-only, rate=RATE, no-bench, no-facts, special-modes, dial=HOST:PORT, listen=[ADDRESS:]PORT or exec=COMMAND",
            ),
            ("read-only, KEY", "unknown option \"\""),
            ("read-only=yes KEY", "unknown option \"read-only=yes\""),
            ("root KEY", "unknown option \"root\""),
            (
                "read-only,read-only KEY",
                "option \"read-only\" is given twice",
            ),
            ("rate=1,rate=2 KEY", "option \"rate\" is given twice"),
            (
                "read-only,append-only KEY",
                "read-only and append-only exclude each other",
            ),
            (
                "root=srv KEY",
                "root \"srv\" is not allowed: expected an absolute path",
            ),
            ("root= KEY", "root \"\" is not allowed"),
            (
                "root=/a\u{202e}b KEY",
                "root \"/a\\u{202e}b\" is not allowed",
            ),
            (
                "rate=0 KEY",
                "rate \"0\" is not allowed: expected digits and an optional K, M, G or T",
            ),
            ("rate=+1 KEY", "rate \"+1\" is not allowed"),
            ("rate=99999999T KEY", "rate \"99999999T\" is not allowed"),
            ("rate=M KEY", "rate \"M\" is not allowed"),
            ("root=\"/a KEY", "unbalanced quote"),
            ("root=/\"a\" KEY", "unbalanced quote"),
            ("root=\"/a\"b KEY", "unbalanced quote"),
            ("root=\"/\\a\" KEY", "unbalanced quote"),
            (
                "listen=80,listen=127.0.0.1:80 KEY",
                "option \"listen=127.0.0.1:80\" is given twice",
            ),
            (
                "listen=nas:80 KEY",
                "listen \"nas:80\" is not allowed: expected [ADDRESS:]PORT",
            ),
            ("dial=unix:x KEY", "dial \"unix:x\" is not allowed"),
            ("KEY two words", "name \"two words\" is not allowed"),
            ("KEY #remark", "name \"#remark\" is not allowed"),
            ("KEY \u{202e}", "name \"\\u{202e}\" is not allowed"),
            (
                "read-only",
                "a public key begins with \"nicstripe-ed25519\", not with \"\"",
            ),
            ("read-only ssh-ed25519 AAAA", "not with \"ssh-ed25519\""),
            ("nicstripe-ed25519 AAAA", "\"AAAA\" is not a key"),
        ] {
            let error = peer(&line.replace("KEY", KEY)).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
