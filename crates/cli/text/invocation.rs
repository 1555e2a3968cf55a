//! Command line as typed, so that hints can repeat it with a change.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use nicstripe::escaped;

/// Command line of a process, with the program name as its first word.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) words: Vec<OsString>,
}

/// Hides what a command line has of secrets for a web server: the values of `--header`, and login and query
/// of URLs. What is printed of it is read by others, and stays in logs.
fn without_secrets(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_value = false;
    words
        .map(|word| {
            let is_hidden = std::mem::replace(&mut is_value, word == "--header");
            match word.to_str() {
                Some(text) if is_hidden && !text.starts_with('@') => HIDDEN.into(),
                Some(text) if text.starts_with("--header=") && !text.starts_with("--header=@") => {
                    format!("--header={HIDDEN}").into()
                }
                _ => url_without_secrets(&word),
            }
        })
        .collect()
}

/// Returns a URL of a web server without login and query, and any other word as it is.
pub(crate) fn url_without_secrets(word: &OsStr) -> OsString {
    let hidden = || {
        let text = word.to_str()?;
        let (scheme, rest) = text.split_once("://")?;
        let is_web = ["http", "https"]
            .iter()
            .any(|web| scheme.eq_ignore_ascii_case(web));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit('@').next()?;
        let (path, query) = match path.find(['?', '#']) {
            Some(at) => (&path[..at], "?…"),
            None => (path, ""),
        };
        is_web.then(|| format!("{scheme}://{host}{path}{query}").into())
    };
    hidden().unwrap_or_else(|| word.to_owned())
}

const HIDDEN: &str = "…";

impl Invocation {
    pub(crate) fn of_this_process() -> Self {
        Self {
            words: without_secrets(env::args_os()),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(words: &[&str]) -> Self {
        Self {
            words: words.iter().map(OsString::from).collect(),
        }
    }

    pub(crate) fn is_of(&self, subcommand: &str) -> bool {
        self.words.get(1).is_some_and(|word| word == subcommand)
    }

    /// Returns the command line, quoted for a shell.
    pub(crate) fn typed(&self) -> String {
        join(&self.words)
    }

    /// Returns the command line without `--no-resume`, so that the rerun resumes the copy.
    pub(crate) fn resuming(&self) -> String {
        self.without("--no-resume").unwrap_or_else(|| self.typed())
    }

    /// Returns the command line with a flag inserted after the subcommand, unless it is there.
    pub(crate) fn with_flag(&self, flag: &str) -> String {
        let mut words = self.words.clone();
        if !words.iter().any(|word| word == flag) {
            words.insert(2.min(words.len()), flag.into());
        }
        join(&words)
    }

    /// Returns the command line without an option that takes no separate value: `-P`, also within a
    /// group of letters, or `--info=...`. `None` if the option is absent.
    pub(crate) fn without(&self, option: &str) -> Option<String> {
        let at = self.position(option)?;
        let mut words = self.words.clone();
        match option.strip_prefix('-').filter(|letter| letter.len() == 1) {
            Some(letter) if words[at] != option => {
                words[at] = words[at].to_str()?.replacen(letter, "", 1).into();
            }
            _ => drop(words.remove(at)),
        }
        Some(join(&words))
    }

    /// Returns the command line with a short option and its value replaced by `instead`; `None` if
    /// it is absent.
    ///
    /// The letter may be the last of a group, as in `-rP 22`.
    pub(crate) fn without_letter(
        &self,
        letter: char,
        value: &OsStr,
        instead: &[String],
    ) -> Option<String> {
        let letters = |word: &OsString| {
            word.to_str()
                .filter(|word| word.starts_with('-') && !word.starts_with("--"))
                .map(str::to_owned)
        };
        let ends = |word: &OsString| letters(word).is_some_and(|word| word.ends_with(letter));
        let at = self
            .words
            .windows(2)
            .position(|pair| ends(&pair[0]) && pair[1] == value)?;
        let others = letters(&self.words[at])
            .map(|word| word.trim_end_matches(letter).to_owned())
            .filter(|word| word.len() > 1);
        let words = others
            .into_iter()
            .chain(instead.iter().cloned())
            .map(OsString::from);
        let all = self.words[..at]
            .iter()
            .cloned()
            .chain(words)
            .chain(self.words[at + 2..].iter().cloned());
        Some(join(&all.collect::<Vec<_>>()))
    }

    /// Returns the `cp` command line with a flag added, the source replaced by `directory`, and the
    /// target replaced by the current directory.
    pub(crate) fn listing(&self, flag: &str, source: &OsStr, directory: &OsStr) -> String {
        let mut words = self.replaced(source, directory);
        if let Some(target) = words.last_mut() {
            *target = ".".into();
        }
        Self { words }.with_flag(flag)
    }

    /// Returns the command line with each word that equals `word` replaced by `instead`.
    pub(crate) fn with(&self, word: &OsStr, instead: &OsStr) -> String {
        join(&self.replaced(word, instead))
    }

    fn replaced(&self, word: &OsStr, instead: &OsStr) -> Vec<OsString> {
        let words = self.words.iter();
        words
            .map(|known| {
                if known == word {
                    instead
                } else {
                    known.as_os_str()
                }
            })
            .map(OsStr::to_owned)
            .collect()
    }

    /// Returns the command line without a long option that has this value; `None` if it is absent.
    pub(crate) fn without_value(&self, option: &str, value: &str) -> Option<String> {
        let glued = format!("{option}={value}");
        let is_pair = |at: usize| {
            self.words[at] == option && self.words.get(at + 1).is_some_and(|word| word == value)
        };
        let at = (0..self.words.len()).find(|at| self.words[*at] == *glued || is_pair(*at))?;
        let mut words = self.words.clone();
        words.drain(at..if words[at] == *glued { at + 1 } else { at + 2 });
        Some(join(&words))
    }

    /// Returns the `cp` command line with the source replaced by standard input. Standard input has
    /// no file name, so the source's name is appended to a target directory.
    pub(crate) fn reading_standard_input(&self, source: &Path) -> String {
        let mut words: Vec<OsString> = self.words.clone();
        words
            .iter_mut()
            .filter(|word| *word == source)
            .for_each(|word| *word = "-".into());
        if let (Some(target), Some(name)) = (words.last_mut(), source.file_name())
            && matches!(target.as_bytes().last(), Some(b':' | b'/'))
        {
            target.push(name);
        }
        format!("{} < {}", join(&words), quoted(source))
    }

    /// Returns true if this option was given, alone, with a value, or within a group of letters.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.position(option).is_some()
    }

    fn position(&self, option: &str) -> Option<usize> {
        let is_it = |word: &OsString| word.to_str().is_some_and(|word| has_option(word, option));
        self.words.iter().position(is_it)
    }

    pub(crate) fn is_recursive(&self) -> bool {
        ["-r", "-a", "--recursive", "--archive"]
            .iter()
            .any(|option| self.has(option))
    }

    /// Returns the program name as typed, quoted for a shell.
    pub(crate) fn program(&self) -> String {
        self.words
            .first()
            .map_or_else(|| "nicstripe".to_owned(), quoted)
    }
}

/// Returns true if a word of the command line is this option, assigns it a value, or is a group of
/// letters that contains it.
fn has_option(word: &str, option: &str) -> bool {
    let letters = word
        .strip_prefix('-')
        .filter(|letters| !letters.starts_with('-'));
    match (option.strip_prefix("--"), letters) {
        (Some(_), _) => {
            word == option
                || word
                    .strip_prefix(option)
                    .is_some_and(|rest| rest.starts_with('='))
        }
        (None, Some(letters)) => option
            .strip_prefix('-')
            .is_some_and(|letter| letters.contains(letter)),
        (None, None) => false,
    }
}

/// Quotes a word if a POSIX shell would interpret any of its characters.
///
/// Bytes that must not reach a terminal (control characters, direction marks, invalid UTF-8) are
/// written as `$'a\x0a'`, which bash, zsh and ksh read. To other shells that is a strange name, but
/// still one word: a quote is `\x27` there, because `\'` would end it.
pub(crate) fn quoted(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(byte);
    match str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Ok(text) if is_harmless(text) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => format!(
            "$'{}'",
            bytes.iter().map(|byte| escape(*byte)).collect::<String>()
        ),
    }
}

/// Returns true if `nicstripe::escaped` leaves the text unchanged, apart from backslashes, which it
/// doubles.
pub(super) fn is_harmless(text: &str) -> bool {
    let text = text.replace('\\', "/");
    escaped(text.as_bytes()) == text
}

fn escape(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\x{byte:02x}"),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

fn join(words: &[OsString]) -> String {
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_for_a_web_server_is_repeated() {
        let words = [
            "cp",
            "--header",
            "X-Token: s1",
            "--header=X: s2",
            "--header",
            "@file",
            "https://me:s3@h:8/a@b?s=s4#s5",
            "HTTP://s6@h",
            "s@h:x?y",
        ];
        let shown = without_secrets(words.iter().map(OsString::from));
        assert_eq!(
            shown,
            [
                "cp",
                "--header",
                "…",
                "--header=…",
                "--header",
                "@file",
                "https://h:8/a@b?…",
                "HTTP://h",
                "s@h:x?y"
            ]
        );
    }

    #[test]
    fn words_come_out_of_a_shell_as_they_went_in() {
        for (word, text) in [
            ("a.bin", "a.bin"),
            ("host:dir/", "host:dir/"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("[fe80::1%eth1]:x", "'[fe80::1%eth1]:x'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
            ("größe", "'größe'"),
            (r"a\b", r"'a\b'"),
            ("a\nb'\u{1b}[2J", r"$'a\x0ab\x27\x1b[2J'"),
            ("\u{202e}x", r"$'\xe2\x80\xaex'"),
        ] {
            assert_eq!(quoted(word), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        assert_eq!(quoted(OsStr::from_bytes(b"a\xff\\b")), r"$'a\xff\x5cb'");
    }

    #[test]
    fn an_option_is_left_out_alone_or_among_letters() {
        for (words, option, expected) in [
            (
                &["cp", "-aPv", "a", "nas:"][..],
                "-P",
                Some("cp -av a nas:"),
            ),
            (&["cp", "a", "-P", "nas:"], "-P", Some("cp a nas:")),
            (
                &["cp", "--info=all", "a", "nas:"],
                "--info",
                Some("cp a nas:"),
            ),
            (&["cp", "--information", "--Port", "nas:"], "--info", None),
            (&["cp", "--Port", "nas:P"], "-P", None),
        ] {
            assert_eq!(
                Invocation::of(words).without(option).as_deref(),
                expected,
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_flag_goes_behind_the_subcommand() {
        let invocation = Invocation::of(&["nicstripe", "cp", "a b", "nas:"]);
        assert_eq!(invocation.typed(), "nicstripe cp 'a b' nas:");
        assert_eq!(invocation.with_flag("-f"), "nicstripe cp -f 'a b' nas:");
    }
}
