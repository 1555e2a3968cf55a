//! The command as it was typed, to be typed again.

use std::{
    env,
    ffi::{OsStr, OsString},
};

/// The words that the process was started with.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    words: Vec<OsString>,
}

impl Invocation {
    /// Returns this process's own words.
    pub(crate) fn of_this_process() -> Self {
        Self { words: env::args_os().collect() }
    }

    /// Takes these words.
    #[cfg(test)]
    pub(crate) fn of(words: &[&str]) -> Self {
        Self { words: words.iter().map(OsString::from).collect() }
    }

    /// Returns the words as a shell takes them.
    pub(crate) fn typed(&self) -> String {
        join(&self.words)
    }

    /// Returns the same command with a flag after the subcommand.
    pub(crate) fn with_flag(&self, flag: &str) -> String {
        let mut words = self.words.clone();
        words.insert(2.min(words.len()), flag.into());
        join(&words)
    }

    /// Returns the name of the program as it was called.
    pub(crate) fn program(&self) -> String {
        self.words.first().map_or_else(|| "nicstripe".to_owned(), quoted)
    }
}

/// Quotes a word where a POSIX shell would take it for something else; bytes that are no UTF-8 are lost.
pub(crate) fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn join(words: &[OsString]) -> String {
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(quoted(word), text);
        }
    }

    #[test]
    fn a_flag_goes_behind_the_subcommand() {
        let invocation = Invocation::of(&["nicstripe", "cp", "a b", "nas:"]);
        assert_eq!(invocation.typed(), "nicstripe cp 'a b' nas:");
        assert_eq!(invocation.with_flag("-f"), "nicstripe cp -f 'a b' nas:");
    }
}
