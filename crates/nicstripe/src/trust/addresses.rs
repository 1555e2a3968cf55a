//! File of the addresses at which peers were last reached.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::{
    file::{FileError, lock_folder_of, read_guarded, replace_private},
    key::PublicKey,
};

/// File of the addresses at which peers have proved their keys, most recent first. A client tries
/// them together with discovery and the resolver.
///
/// An address is only a hint: the peer must prove its key again. An unreadable file counts as
/// empty, and write errors are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressBook {
    path: PathBuf,
}

impl AddressBook {
    /// Creates an address book over the file at `path`, which need not exist.
    ///
    /// ```
    /// use nicstripe::trust::{AddressBook, Home};
    /// let book = AddressBook::at(Home::at("/etc/backup-tool").addresses_file());
    /// let builder = nicstripe::Client::builder().address_book(book);
    /// ```
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the addresses at which a peer has proved its key, most recent first.
    pub(crate) fn of(&self, key: &PublicKey) -> Vec<SeenAt> {
        let lines = read(&self.path).unwrap_or_default();
        lines
            .into_iter()
            .find(|line| line.key == *key)
            .map_or_else(Vec::new, |line| line.addresses)
    }

    /// Records that a peer has proved its key at an address. Does not write the file if that is
    /// already the peer's most recent address.
    pub(crate) fn note(&self, key: &PublicKey, address: SeenAt) -> Result<(), FileError> {
        if self.of(key).first() == Some(&address) {
            return Ok(());
        }
        let _lock = lock_folder_of(&self.path)?;
        let lines = read(&self.path).unwrap_or_default().into_iter();
        let (of_key, mut lines): (Vec<Line>, Vec<Line>) = lines.partition(|line| line.key == *key);
        let mut addresses: Vec<SeenAt> = of_key
            .into_iter()
            .flat_map(|line| line.addresses)
            .filter(|known| *known != address)
            .collect();
        addresses.insert(0, address);
        addresses.truncate(MOST_ADDRESSES);
        let key = *key;
        lines.insert(0, Line { key, addresses });
        lines.truncate(MOST_PEERS);
        let text: String = lines.iter().map(Line::to_text).collect();
        replace_private(&self.path, text.as_bytes())
    }
}

/// Address at which a peer proved its key, with the local interface if it is link-local.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenAt {
    pub(crate) address: IpAddr,
    pub(crate) interface: Option<String>,
}

impl SeenAt {
    fn parse(text: &str) -> Option<Self> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address, Some(interface.to_owned())),
            None => (text, None),
        };
        Some(Self {
            address: address.parse().ok()?,
            interface,
        })
    }

    fn to_text(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{}%{interface}", self.address),
            None => self.address.to_string(),
        }
    }
}

/// Line of the addresses file: the key of one peer and its addresses.
struct Line {
    key: PublicKey,
    addresses: Vec<SeenAt>,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let key = format!("{} {}", words.next()?, words.next()?)
            .parse()
            .ok()?;
        Some(Self {
            key,
            addresses: words
                .filter_map(SeenAt::parse)
                .take(MOST_ADDRESSES)
                .collect(),
        })
    }

    fn to_text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SeenAt::to_text).collect();
        format!("{} {}\n", self.key, addresses.join(" "))
    }
}

/// Reads the lines of the addresses file, skipping invalid ones.
fn read(path: &Path) -> Result<Vec<Line>, FileError> {
    let bytes = read_guarded(path, MAX_FILE)?;
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(Line::parse)
        .take(MOST_PEERS)
        .collect())
}

/// Maximum number of peers in the addresses file. Peers that were not met for longest are dropped.
const MOST_PEERS: usize = 256;

/// Maximum number of addresses per peer in the addresses file.
const MOST_ADDRESSES: usize = 4;

/// Maximum size of the addresses file in bytes. [`MOST_PEERS`] lines with [`MOST_ADDRESSES`] each
/// are smaller.
const MAX_FILE: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::trust::file::private_folder;

    fn key(number: u16) -> PublicKey {
        let mut bytes = [7; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        PublicKey::from_bytes(bytes).unwrap()
    }

    fn seen(text: &str) -> SeenAt {
        SeenAt::parse(text).unwrap()
    }

    #[test]
    fn the_last_address_of_each_peer_is_first_and_few_are_kept() {
        let folder = private_folder();
        let book = AddressBook::at(folder.path().join("state/addresses"));
        assert!(book.of(&key(1)).is_empty());
        for last in 1..=6 {
            book.note(&key(1), seen(&format!("10.0.0.{last}"))).unwrap();
        }
        book.note(&key(2), seen("fe80::2%eth1")).unwrap();
        book.note(&key(1), seen("10.0.0.4")).unwrap();
        assert_eq!(
            book.of(&key(1)),
            ["10.0.0.4", "10.0.0.6", "10.0.0.5", "10.0.0.3"].map(seen)
        );
        assert_eq!(book.of(&key(2)), [seen("fe80::2%eth1")]);
        let mode = fs::metadata(&book.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn the_file_is_bounded_and_keeps_who_was_met_last() {
        let folder = private_folder();
        let book = AddressBook::at(folder.path().join("addresses"));
        let full: String = (0..MOST_PEERS)
            .map(|number| format!("{} 10.0.0.1\n", key(u16::try_from(number).unwrap())))
            .collect();
        fs::write(&book.path, &full).unwrap();
        fs::set_permissions(&book.path, fs::Permissions::from_mode(0o600)).unwrap();
        book.note(&key(1000), seen("10.0.0.2")).unwrap();
        assert_eq!(read(&book.path).unwrap().len(), MOST_PEERS);
        let known = [1000, 0, 255].map(|number| book.of(&key(number)).len());
        assert_eq!(known, [1, 1, 0]);
        let len = full.len();
        assert!(len + 3 * MOST_PEERS * 64 < MAX_FILE, "{len}");
    }

    #[test]
    fn what_others_could_write_or_nobody_can_read_counts_as_empty() {
        let folder = private_folder();
        let book = AddressBook::at(folder.path().join("addresses"));
        fs::write(
            &book.path,
            format!("garbage\n{} nowhere 10.0.0.1\n\u{fffd}\n", key(1)),
        )
        .unwrap();
        fs::set_permissions(&book.path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(book.of(&key(1)), [seen("10.0.0.1")]);
        fs::set_permissions(&book.path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(book.of(&key(1)).is_empty());
    }
}
