//! Commands that a peer may run.

use std::{fmt, str::FromStr};

use nicstripe_proto::name::escaped;

use super::{
    key::{is_hidden, shorten},
    line::LineError,
};

/// Command that a peer may run, with exactly these arguments: `exec="zfs recv -s tank/b"`. A last
/// argument `*` stands for any further arguments: `exec="borg serve *"`. `exec=*` permits every
/// command. A `*` in quotes or behind a backslash stands for itself: `exec="ls '*'"`.
///
/// The text is split into words once, like a shell does, with quotes and backslashes but without
/// variables, patterns or substitutions. No shell runs the command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExecRule {
    words: Vec<String>,
    /// True if any further arguments may follow.
    is_open: bool,
}

impl ExecRule {
    /// Returns the rule that permits every command, for peers that may run commands anyway, such as
    /// those who come through ssh.
    pub fn any() -> Self {
        Self {
            words: Vec::new(),
            is_open: true,
        }
    }

    /// Returns true if the rule permits this command, given as program and arguments.
    ///
    /// ```
    /// use nicstripe::trust::ExecRule;
    /// let rule: ExecRule = "borg serve *".parse()?;
    /// assert!(rule.permits(&["borg", "serve", "--append-only"]));
    /// assert!(!rule.permits(&["borg", "delete"]) && !rule.permits(&["/tmp/borg", "serve"]));
    /// # Ok::<(), nicstripe::trust::LineError>(())
    /// ```
    pub fn permits(&self, words: &[impl AsRef<[u8]>]) -> bool {
        let is_long_enough = match self.is_open {
            true => words.len() >= self.words.len(),
            false => words.len() == self.words.len(),
        };
        let mut pairs = self.words.iter().zip(words);
        is_long_enough && pairs.all(|(own, word)| own.as_bytes() == word.as_ref())
    }

    /// Returns true if this rule permits every command that `other` permits.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match self.is_open {
            true => other.words.starts_with(&self.words),
            false => self == other,
        }
    }

    /// Returns a command as text from which [`ExecRule`] makes the same words, unless they are not
    /// UTF-8. Escaped for display.
    pub fn shown(words: &[impl AsRef<[u8]>]) -> String {
        join(words.iter().map(|word| escaped(word.as_ref())))
    }
}

fn join(words: impl IntoIterator<Item: AsRef<str>>) -> String {
    let quoted = words.into_iter().map(|word| quoted(word.as_ref()));
    quoted.collect::<Vec<_>>().join(" ")
}

/// Quotes a word if a shell, or the parser of a rule, would interpret any of its characters.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl fmt::Display for ExecRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.words))?;
        if self.is_open {
            f.write_str(if self.words.is_empty() { "*" } else { " *" })?;
        }
        Ok(())
    }
}

impl FromStr for ExecRule {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let wrong = || LineError::Exec {
            text: shorten(text),
        };
        let mut words = shell_words::split(text).map_err(|_| wrong())?;
        let typed = as_typed(text);
        let is_open = typed.last().is_some_and(|last| last == ANY);
        let bare = typed.iter().filter(|word| *word == ANY).count();
        if typed.len() != words.len() || bare > usize::from(is_open) {
            return Err(wrong());
        }
        if is_open {
            words.pop();
        }
        // A line of the peers file may hold a tab, and no other control character.
        let is_bad = |word: &String| word.contains(|c| is_hidden(c) && c != '\t');
        let has_program = match words.first() {
            Some(program) => !program.is_empty(),
            None => is_open,
        };
        if !has_program || words.iter().any(is_bad) {
            return Err(wrong());
        }
        Ok(Self { words, is_open })
    }
}

/// Splits a text where `shell_words` does, but keeps quotes and backslashes, which tell a `*` that
/// stands for itself. A comment is no word there either: the numbers of words differ then.
fn as_typed(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quote, mut is_escaped) = (None, false);
    for c in text.chars() {
        if quote.is_none() && !is_escaped && matches!(c, ' ' | '\t' | '\n') {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            continue;
        }
        word.push(c);
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Word of a rule that stands for any further arguments.
const ANY: &str = "*";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_rule_permits_its_command_and_no_other() {
        let rule = |text: &str| text.parse::<ExecRule>().unwrap();
        let exact = rule(r#"zfs recv -s "tank/my data""#);
        assert!(exact.permits(&["zfs", "recv", "-s", "tank/my data"]));
        for other in [
            &["zfs"][..],
            &["zfs", "recv", "-s"],
            &["zfs", "recv", "-s", "tank/my data", ""],
            &["zfs", "recv", "-s", "tank/my data\n"],
            &["zfs", "recv", "-s tank/my data"],
            &["./zfs", "recv", "-s", "tank/my data"],
            &["/sbin/zfs", "recv", "-s", "tank/my data"],
            &["zfs", "recv", "-F", "tank/my data"],
            &["ZFS", "recv", "-s", "tank/my data"],
            &["zfs\0", "recv", "-s", "tank/my data"],
            &["zfs\r", "recv", "-s", "tank/my data"],
            &[" zfs", "recv", "-s", "tank/my data"],
            &["zf\u{455}", "recv", "-s", "tank/my data"],
            &["\u{feff}zfs", "recv", "-s", "tank/my data"],
            &["zfs", "recv", "-s", "tank/my data\u{301}"],
            &["zfs", "-s", "recv", "tank/my data"],
            &["", "zfs", "recv", "-s", "tank/my data"],
            &["zfs", "--", "recv", "-s", "tank/my data"],
            &[],
        ] {
            assert!(!exact.permits(other), "{other:?}");
        }
        let open = rule("borg serve *");
        assert!(open.permits(&["borg", "serve"]) && open.permits(&["borg", "serve", "-p", ""]));
        for other in [
            &["borg"][..],
            &["borg", "list", "serve"],
            &["borg", "", "serve"],
            &["borg", "--", "serve"],
            &["borg", "serve\n"],
            &["borg serve"],
            &["BORG", "serve"],
            &["serve", "borg"],
        ] {
            assert!(!open.permits(other), "{other:?}");
        }
        assert!(ExecRule::any().permits(&["id"]) && rule("*") == ExecRule::any());
        for literal in ["ls '*'", r"ls \*", "ls \"*\"", "ls ''*", r"ls '*' "] {
            assert!(rule(literal).permits(&["ls", "*"]), "{literal}");
            assert!(!rule(literal).permits(&["ls", "/etc"]), "{literal}");
            assert!(!rule(literal).permits(&["ls"]), "{literal}");
        }
        assert!(!rule(r"ls a\ *").permits(&["ls", "a", "x"]));
        assert!(rule("ls '*' *").permits(&["ls", "*", "x"]));
        assert!(!rule("'*'").permits(&["id"]));
    }

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for text in ["dd of=/dev/sdX bs=1M", "date +%s", "ls a@b:c,d", "ls '~x'"] {
            assert_eq!(text.parse::<ExecRule>().unwrap().to_string(), text);
            let words: Vec<_> = shell_words::split(text).unwrap();
            assert_eq!(ExecRule::shown(&words), text);
        }
    }

    #[test]
    fn a_rule_is_read_as_it_is_shown() {
        for text in [
            "true",
            "borg serve *",
            r"sh -c 'echo \* $HOME'",
            "ls '*'",
            "'*' *",
            r"printf 'it'\''s' '~' ''",
        ] {
            let rule: ExecRule = text.parse().unwrap();
            assert_eq!(
                rule.to_string().parse::<ExecRule>().unwrap(),
                rule,
                "{text}"
            );
        }
        for wrong in [
            "",
            "* x",
            "a # b",
            "a #",
            "a * b",
            "\"",
            "'a",
            "'' b",
            "'a\nb'",
            "a \u{202e}",
        ] {
            assert!(wrong.parse::<ExecRule>().is_err(), "{wrong}");
        }
    }
}
