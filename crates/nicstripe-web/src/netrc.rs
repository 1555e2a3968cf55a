//! Logins in a netrc file, as ftp, curl and wget read it.

use std::iter::Peekable;

use crate::url::Login;

/// Returns the login for a host: that of the first machine of this name, or that of `default`.
pub(crate) fn login(text: &str, host: &str) -> Option<Login> {
    let words = words(text);
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        let is_meant = match word {
            "machine" => words.next()?.eq_ignore_ascii_case(host),
            "default" => true,
            _ => continue,
        };
        let login = entry(&mut words);
        if is_meant {
            return login;
        }
    }
    None
}

/// Reads the words of an entry behind its name, up to the next entry.
fn entry<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Option<Login> {
    let (mut user, mut password) = (None, None);
    while let Some(word) = words.next_if(|word| !matches!(*word, "machine" | "default")) {
        match word {
            "login" => user = words.next(),
            "password" => password = words.next(),
            "account" | "macdef" => drop(words.next()),
            _ => {}
        }
    }
    Some(Login {
        user: user?.to_owned(),
        password: password.map(str::to_owned),
    })
}

/// Splits the text at white space. Quotes keep it, a backslash keeps the next character, and a word that
/// begins with `#` begins a comment.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        let mut characters = line.chars().peekable();
        while let Some(first) = characters.next() {
            if first.is_whitespace() {
                continue;
            }
            if first == '#' {
                break;
            }
            let is_quoted = first == '"';
            let mut word = String::new();
            let mut next = if is_quoted {
                characters.next()
            } else {
                Some(first)
            };
            while let Some(character) = next {
                match character {
                    '"' if is_quoted => break,
                    '\\' => word.extend(characters.next()),
                    character if character.is_whitespace() && !is_quoted => break,
                    character => word.push(character),
                }
                next = characters.next();
            }
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, host: &str) -> Option<(String, Option<String>)> {
        login(text, host).map(|login| (login.user, login.password))
    }

    #[test]
    fn the_login_of_the_host_is_found_in_every_layout() {
        let text = "# mine\nmachine nas.lan login me password \"a b\\\"c\"\n\
                    machine mirror\n  password p#1\n  account x login login\n\
                    default login anonymous password me@\n";
        let pair = |user: &str, password: &str| Some((user.to_owned(), Some(password.to_owned())));
        assert_eq!(found(text, "NAS.lan"), pair("me", "a b\"c"));
        assert_eq!(found(text, "mirror"), pair("login", "p#1"));
        assert_eq!(found(text, "other"), pair("anonymous", "me@"));
    }

    #[test]
    fn a_host_without_an_entry_has_no_login() {
        for text in [
            "",
            "machine",
            "machine host",
            "machine host password x",
            "machine host login",
            "login me password x",
            "machine other login me password x",
        ] {
            assert_eq!(found(text, "host"), None, "{text}");
        }
    }
}
