//! File of trusted peers.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::file::{self, FileError};
use super::key::{PublicKey, PublicLine, is_hidden, shorten};
use super::line::LineError;
use super::peer::{Peer, PeerName, PeerOptions};

/// Contents of the peers file: one trusted peer per line, such as `read-only,root=/srv
/// nicstripe-ed25519 AAEC… nas`.
///
/// Rewriting keeps blank lines, lines that begin with `#`, and unchanged lines as they are. One
/// invalid line makes the whole file invalid: a misspelled restriction must not be dropped.
///
/// To read, call [`Peers::load`] again whenever the file may have changed. To change, call
/// [`Peers::edit`], which prevents lost updates.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    lines: Vec<Line>,
}

/// Text of a line, and the peer it names unless it is blank or a comment.
#[derive(Debug, Clone)]
struct Line {
    text: String,
    peer: Option<Peer>,
}

/// Effect of [`Peers::add`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Added {
    /// The key was not in the file and was added.
    New,
    /// The key existed under another name, and was renamed.
    Renamed {
        /// Previous name of the key, if it had one.
        from: Option<PeerName>,
    },
    /// The key existed with the same name, and nothing changed.
    Unchanged,
}

impl Peers {
    /// Reads the peers file. A missing file counts as empty.
    ///
    /// ```no_run
    /// let peers = nicstripe::trust::Peers::load("/etc/backup-tool/peers")?;
    /// println!("{} are trusted", peers.iter().count());
    /// # Ok::<(), nicstripe::trust::PeersError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a regular file, is writable by others, or has an invalid
    /// line.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, PeersError> {
        let path = path.as_ref();
        let bytes = match file::read_guarded(path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        Self::parse(path, &bytes)
    }

    /// Loads the peers file, calls `change`, and writes the file if `change` succeeded and changed
    /// a peer.
    ///
    /// A lock on the file's folder, which is created if missing, serializes edits. Either the old
    /// or the new file is complete at any time, also after a crash; its mode is 0600. The file
    /// stays unchanged if `change` fails. A symbolic link stays, and its target is replaced.
    ///
    /// ```no_run
    /// use nicstripe::trust::{Peers, PublicLine};
    /// let line: PublicLine =
    ///     "nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= laptop".parse()?;
    /// Peers::edit("/etc/backup-tool/peers", |peers| peers.add(&line, None))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn edit<T>(
        path: impl AsRef<Path>,
        change: impl FnOnce(&mut Self) -> Result<T, PeersError>,
    ) -> Result<T, PeersError> {
        let path = path.as_ref();
        let _lock = file::lock_folder_of(path)?;
        let mut peers = Self::load(path)?;
        let before = peers.to_text();
        let result = change(&mut peers)?;
        let after = peers.to_text();
        if after != before {
            file::replace_private(path, after.as_bytes())?;
        }
        Ok(result)
    }

    /// Returns the peers in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.lines.iter().filter_map(|line| line.peer.as_ref())
    }

    /// Returns the peer with this key.
    pub fn find(&self, key: &PublicKey) -> Option<&Peer> {
        self.iter().find(|peer| peer.key == *key)
    }

    /// Returns the peer with this name. As for names of hosts, the case of ASCII letters does not
    /// count, unless there are peers whose names differ in nothing else.
    pub fn by_name(&self, name: &str) -> Option<&Peer> {
        let is_it = |is_same: fn(&str, &str) -> bool| {
            let own = move |peer: &&Peer| {
                peer.name
                    .as_ref()
                    .is_some_and(|own| is_same(own.as_str(), name))
            };
            self.iter().find(own)
        };
        is_it(|own, name| own == name).or_else(|| is_it(str::eq_ignore_ascii_case))
    }

    /// Trusts a key with all rights; [`Peers::set_options`] restricts them.
    ///
    /// Uses the given name. Otherwise, if the key has no name yet, uses the host of the line's
    /// comment (`user@host`), with `-2`, `-3` and so on if another key has that name. An existing
    /// key keeps its options.
    ///
    /// ```
    /// use nicstripe::trust::{Peers, PublicKey, PublicLine};
    /// let key = PublicKey::from_bytes([7; 32])?;
    /// let mut peers = Peers::default();
    /// peers.add(&PublicLine::new(key, "laptop"), None)?;
    /// assert!(peers.find(&key).is_some() && peers.by_name("laptop").is_some());
    /// peers.remove("laptop")?;
    /// assert!(peers.find(&key).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The name is invalid, or another key has it.
    pub fn add(&mut self, line: &PublicLine, name: Option<&str>) -> Result<Added, PeersError> {
        let given = name
            .map(str::parse)
            .transpose()
            .map_err(PeersError::Value)?;
        let index = self.index_of(&line.key);
        let known = index.and_then(|index| self.lines[index].peer.clone());
        let fallback = || match &known {
            Some(peer) if peer.name.is_some() => peer.name.clone(),
            _ => self.free_name(line),
        };
        let name: Option<PeerName> = given.or_else(fallback);
        self.check_free(name.as_ref(), &line.key)?;

        let peer = Peer {
            key: line.key,
            name,
            options: known
                .as_ref()
                .map_or_else(PeerOptions::unrestricted, |peer| peer.options.clone()),
        };
        match (index, known) {
            (Some(_), Some(old)) if old == peer => Ok(Added::Unchanged),
            (Some(index), Some(old)) => {
                self.lines[index] = Line::of(peer);
                Ok(Added::Renamed { from: old.name })
            }
            _ => {
                self.lines.push(Line::of(peer));
                Ok(Added::New)
            }
        }
    }

    /// Replaces the rights of a peer.
    ///
    /// ```
    /// use nicstripe::trust::{Access, PeerOptions, Peers, PublicKey, PublicLine};
    /// let key = PublicKey::from_bytes([7; 32])?;
    /// let mut peers = Peers::default();
    /// peers.add(&PublicLine::new(key, "laptop"), None)?;
    /// peers.set_options(
    ///     &key,
    ///     PeerOptions { access: Access::AppendOnly, ..PeerOptions::unrestricted() },
    /// )?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The key is not in the file, or the root is not an absolute path that can be written as text.
    pub fn set_options(&mut self, key: &PublicKey, options: PeerOptions) -> Result<(), PeersError> {
        let unknown = || PeersError::Unknown {
            text: key.to_string(),
        };
        // Options not created from text may not survive a round trip, and would then corrupt the
        // file.
        let text = options.to_string();
        let read: PeerOptions = if text.is_empty() {
            PeerOptions::unrestricted()
        } else {
            text.parse().map_err(PeersError::Value)?
        };
        if read != options {
            return Err(PeersError::Value(LineError::Root {
                text: shorten(&text),
            }));
        }
        let line = self
            .index_of(key)
            .map(|index| &mut self.lines[index])
            .ok_or_else(unknown)?;
        let mut peer = line.peer.clone().ok_or_else(unknown)?;
        if peer.options != options {
            peer.options = options;
            *line = Line::of(peer);
        }
        Ok(())
    }

    /// Removes a peer from the file, and returns it.
    ///
    /// `which` is a name, a whole key with or without its first word, or an unambiguous
    /// [fingerprint](PublicKey::fingerprint).
    ///
    /// # Errors
    ///
    /// No peer, or more than one, matches `which`.
    pub fn remove(&mut self, which: &str) -> Result<Peer, PeersError> {
        let which = which.trim();
        let unknown = || PeersError::Unknown {
            text: shorten(which),
        };
        let key = self.resolve(which).ok_or_else(unknown)?;
        let index = self.index_of(&key).ok_or_else(unknown)?;
        self.lines.remove(index).peer.ok_or_else(unknown)
    }

    fn resolve(&self, which: &str) -> Option<PublicKey> {
        if let Some(peer) = self.by_name(which) {
            return Some(peer.key);
        }
        if let Some(key) = which
            .parse()
            .ok()
            .or_else(|| PublicKey::from_base64(which).ok())
        {
            return Some(key);
        }
        let mut alike = self.iter().filter(|peer| peer.key.fingerprint() == which);
        let first = alike.next()?.key;
        alike.next().is_none().then_some(first)
    }

    fn index_of(&self, key: &PublicKey) -> Option<usize> {
        self.lines
            .iter()
            .position(|line| line.peer.as_ref().is_some_and(|peer| peer.key == *key))
    }

    /// Returns a name for the key of a line that no other key has, after the host in the line's
    /// comment. `None` if that is no name to be typed as HOST, or one that the other machine could
    /// choose to stand for this machine or a third: `localhost` or an address.
    fn free_name(&self, line: &PublicLine) -> Option<PeerName> {
        let host = line.comment.as_ref()?.rsplit('@').next()?;
        let address = host.split('%').next().unwrap_or_default();
        let is_here =
            |label: Option<&str>| label.is_some_and(|one| one.eq_ignore_ascii_case("localhost"));
        if address.parse::<IpAddr>().is_ok()
            || is_here(host.split('.').next())
            || is_here(host.rsplit('.').next())
        {
            return None;
        }
        let numbered = (2..=self.lines.len() + 2).map(|number| format!("{host}-{number}"));
        std::iter::once(host.to_owned())
            .chain(numbered)
            .filter_map(|name| name.parse().ok())
            .filter(PeerName::is_host)
            .find(|name| self.check_free(Some(name), &line.key).is_ok())
    }

    fn check_free(&self, name: Option<&PeerName>, key: &PublicKey) -> Result<(), PeersError> {
        match name.and_then(|name| self.by_name(name.as_str())) {
            Some(other) if other.key != *key => {
                let name = name.map(ToString::to_string).unwrap_or_default();
                Err(PeersError::NameTaken {
                    name,
                    fingerprint: other.key.fingerprint(),
                })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, PeersError> {
        let mut peers = Self::default();
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if text.is_empty() {
            return Ok(peers);
        }
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = peers.parse_line(line).map_err(|problem| PeersError::Line {
                path: path.to_owned(),
                line: index + 1,
                problem,
            })?;
            peers.lines.push(line);
        }
        Ok(peers)
    }

    fn parse_line(&self, bytes: &[u8]) -> Result<Line, LineProblem> {
        let text = str::from_utf8(bytes)
            .map_err(|_| LineProblem::NotText)?
            .to_owned();
        let content = text.trim();
        if content.is_empty() || content.starts_with('#') {
            return Ok(Line { text, peer: None });
        }
        // A control character could hide part of a line from a reader.
        if content.chars().any(|c| is_hidden(c) && c != '\t') {
            return Err(LineProblem::Hidden);
        }
        let peer: Peer = content.parse()?;
        if self.find(&peer.key).is_some() {
            return Err(LineProblem::KeyTwice {
                fingerprint: peer.key.fingerprint(),
            });
        }
        match &peer.name {
            Some(name) if self.iter().any(|other| other.name.as_ref() == Some(name)) => {
                Err(LineProblem::NameTwice {
                    name: name.to_string(),
                })
            }
            _ => Ok(Line {
                text,
                peer: Some(peer),
            }),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        self.lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect()
    }
}

impl Line {
    fn of(peer: Peer) -> Self {
        Self {
            text: peer.to_string(),
            peer: Some(peer),
        }
    }
}

/// Failure to read or change the peers file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// The file cannot be read or written, or other users could change it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line of the file is invalid. No peer is trusted until the line is corrected.
    #[error("{path:?}, line {line}: {problem}")]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Error found in that line.
        problem: LineProblem,
    },
    /// A name or option given by the caller is invalid.
    #[error(transparent)]
    Value(LineError),
    /// The name belongs to another key.
    #[error("name \"{name}\" belongs to another key, {fingerprint}: expected a unique name")]
    NameTaken {
        /// Name that the caller passed.
        name: String,
        /// Fingerprint of the key that has the name.
        fingerprint: String,
    },
    /// The text names no peer of the file.
    #[error("no peer \"{text}\": expected a name, key or fingerprint from the peers file")]
    Unknown {
        /// Name, key or fingerprint that the caller passed.
        text: String,
    },
}

/// Error in a line of the peers file, including conflicts with other lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// The options, key or name of the line are invalid.
    #[error(transparent)]
    Words(#[from] LineError),
    /// The line is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// The line holds control characters or bidirectional overrides.
    #[error("control characters are not allowed")]
    Hidden,
    /// An earlier line has this key, perhaps with other rights.
    #[error("key {fingerprint} is a duplicate: expected one line per key")]
    KeyTwice {
        /// Fingerprint of the key that two lines have.
        fingerprint: String,
    },
    /// An earlier line has this name.
    #[error("name \"{name}\" is a duplicate: expected a unique name for each key")]
    NameTwice {
        /// Name that two lines have.
        name: String,
    },
}

/// Maximum size of the peers file in bytes, enough for several thousand peers.
const MAX_FILE: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
