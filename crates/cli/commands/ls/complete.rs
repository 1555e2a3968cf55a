//! Names that complete `HOST:PATH`, for the completion scripts of shells.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    time::Duration,
};

use nicstripe::{ClientBuilder, Kind, RoutePolicy, trust::Peers};

use super::find;
use crate::{
    connect::{
        arguments::{LinkArgs, parse_port},
        location::{Location, Remote},
        place::Via,
        setup::{self, Connected, Needs},
    },
    failure::Failure,
    output::stdout,
    places,
    process::runtime,
};

/// Prints the paths at a daemon that continue the first of `words`, which is as typed, with quotes;
/// the others are those of the command line, for its port. Prints nothing on failure.
///
/// The host must be a trusted peer, so that ssh is never asked. The script of the shell quotes what
/// is printed.
pub(super) fn print(words: &[OsString], links: LinkArgs) {
    let listed = runtime::run(async {
        let listing = tokio::time::timeout(LIMIT, list(words, links));
        Ok(listing.await.ok().flatten().unwrap_or_default())
    });
    let text: String = listed
        .unwrap_or_default()
        .iter()
        .flat_map(|path| [path.as_str(), "\n"])
        .collect();
    // A shell reads it, or no one.
    let _ = stdout::bytes(text.as_bytes());
}

async fn list(words: &[OsString], mut links: LinkArgs) -> Option<Vec<String>> {
    let typed = Typed::of(words.first()?)?;
    let Remote { place, .. } = typed.directory()?;
    let peers = Peers::load(places::home().ok()?.peers_file()).ok()?;
    if place.via != Via::Either || peers.by_name(&place.host).is_none() {
        return None;
    }
    links.port = links.port.or_else(|| port_of(words));
    let adapt = |builder: ClientBuilder| builder.routes(RoutePolicy::Never);
    let connected = setup::connect(&place, &links, &Needs::default(), adapt, |_| {})
        .await
        .ok()?;
    let listed = matching(&connected, &typed).await.ok();
    connected.close().await;
    listed
}

async fn matching(connected: &Connected, typed: &Typed) -> Result<Vec<String>, Failure> {
    let dir = typed.argument();
    let inside = connected.inside(&dir)?;
    let remote = find::remote(inside.as_deref().unwrap_or(&dir))?.1;
    let mut entries = connected.client.entries(remote.path.name().cloned());
    let mut found = Vec::new();
    while found.len() < MOST
        && let Some(entry) = entries.next().await?
    {
        let slash = if entry.stat.kind == Kind::Dir {
            "/"
        } else {
            ""
        };
        let leaf = entry.name.file_name();
        found.extend(typed.completed(leaf).map(|path| path + slash));
    }
    Ok(found)
}

/// Word to complete, without its quotes.
#[derive(Debug, PartialEq, Eq)]
struct Typed {
    host: String,
    /// Path of the directory, with its slash; empty for where names begin.
    dir: String,
    /// Beginning of a name in the directory.
    start: String,
}

impl Typed {
    /// Parses a word; `None` if it has no host, or an open quote.
    fn of(word: &OsStr) -> Option<Self> {
        let mut words = shell_words::split(word.to_str()?).ok()?;
        let word = words.pop().filter(|_| words.is_empty())?;
        let (host, path) = word
            .split_once(':')
            .filter(|(host, _)| !host.contains('/'))?;
        let (dir, start) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        Some(Self {
            host: host.to_owned(),
            dir: dir.to_owned(),
            start: start.to_owned(),
        })
    }

    fn argument(&self) -> OsString {
        format!("{}:{}", self.host, self.dir).into()
    }

    fn directory(&self) -> Option<Remote> {
        match Location::parse(&self.argument()).ok()? {
            Location::Remote(remote) => Some(remote),
            Location::Local(_) | Location::Pipe => None,
        }
    }

    /// Returns the path of a name that continues the typed one. Skips names that a terminal cannot
    /// show, such as those with a newline, which would be two for the script.
    fn completed(&self, leaf: &[u8]) -> Option<String> {
        let leaf = str::from_utf8(leaf).ok()?;
        let is_hidden = leaf.starts_with('.') && !self.start.starts_with('.');
        let plain = leaf.replace('\\', "/");
        let is_harmless = nicstripe::escaped(plain.as_bytes()) == plain;
        (is_harmless && !is_hidden && leaf.starts_with(&self.start))
            .then(|| format!("{}{leaf}", self.dir))
    }
}

/// Returns the port in the words of a command line: after `-P` or `--port`.
fn port_of(words: &[OsString]) -> Option<u16> {
    let is_option = |word: &OsString| matches!(word.as_bytes(), b"-P" | b"--port");
    let after = words.iter().position(is_option)? + 1;
    parse_port(words.get(after)?.to_str()?).ok()
}

/// Time after which nothing is offered. A user waits for the prompt.
const LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of names that are offered.
const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(word: &str) -> Option<(String, String, String)> {
        let Typed { host, dir, start } = Typed::of(word.as_ref())?;
        Some((host, dir, start))
    }

    #[test]
    fn a_word_is_split_into_host_directory_and_the_beginning_of_a_name() {
        for (word, host, dir, start) in [
            ("nas:", "nas", "", ""),
            ("nas:pho", "nas", "", "pho"),
            ("nas:photos/", "nas", "photos/", ""),
            (r"nas:a\ b/c\'", "nas", "a b/", "c'"),
            ("'nas:a b'", "nas", "", "a b"),
            ("nas:/srv/x", "nas", "/srv/", "x"),
        ] {
            let expected = (host.to_owned(), dir.to_owned(), start.to_owned());
            assert_eq!(typed(word), Some(expected), "{word}");
        }
        for word in ["", "nas", "./a:b", "'nas:a", "nas:a b"] {
            assert_eq!(typed(word), None, "{word}");
        }
    }

    #[test]
    fn names_that_a_line_cannot_carry_are_not_offered() {
        let typed = Typed::of("nas:d/".as_ref()).unwrap();
        for (leaf, path) in [
            (&b"a b"[..], Some("d/a b")),
            (b"$(touch owned)", Some("d/$(touch owned)")),
            (br"a\b", Some(r"d/a\b")),
            (b".hidden", None),
            (b"a\nb", None),
            (b"a\x1b", None),
            (b"\xff", None),
        ] {
            assert_eq!(typed.completed(leaf).as_deref(), path, "{leaf:?}");
        }
        let hidden = Typed::of("nas:.h".as_ref()).unwrap();
        assert_eq!(hidden.completed(b".hidden").as_deref(), Some(".hidden"));
    }

    #[test]
    fn the_port_is_that_of_the_command_line() {
        let port = |words: &[&str]| port_of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            port(&["nas:", "nicstripe", "cp", "-P", "99", "nas:"]),
            Some(99)
        );
        assert_eq!(port(&["nas:", "nicstripe", "cp", "--port"]), None);
        assert_eq!(port(&["nas:"]), None);
    }
}
