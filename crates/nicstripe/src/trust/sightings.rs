//! File of the time and the address at which each peer was last seen.

use std::{
    collections::HashSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    file::{FileError, lock_folder_of, read_guarded, replace_private},
    key::PublicKey,
};

/// File of the time and the address at which each peer last proved its key, most recent first. Both
/// ends write it: a client when it connects, a daemon when a peer connects and when its session ends.
///
/// The file is for people and grants nothing. It is written at most once a minute for each peer, and
/// write errors are ignored.
///
/// ```no_run
/// use nicstripe::trust::{Home, Sightings};
/// for seen in Sightings::at(Home::from_env()?.sightings_file()).read()? {
///     println!("{} was at {}", seen.key.fingerprint(), seen.address);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sightings {
    path: PathBuf,
}

/// Time and address at which a peer last proved its key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// Public key of the peer.
    pub key: PublicKey,
    /// Time of the connection, or of the end of the session, in whole seconds.
    pub time: SystemTime,
    /// The peer's address, an IPv4 address as such.
    pub address: IpAddr,
    /// Local interface of the connection; `None` if unknown.
    pub interface: Option<String>,
}

impl Sightings {
    /// Uses the file at `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the last sighting of each peer, most recent first. Skips invalid lines; a missing file
    /// has none.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or other users may write it.
    pub fn read(&self) -> Result<Vec<Sighting>, FileError> {
        match read(&self.path) {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            read => read,
        }
    }

    /// Records sightings, except those of peers that were recorded within [`PAUSE`]. Blocks.
    pub(crate) fn note(&self, seen: &[Sighting]) -> Result<(), FileError> {
        let known = self.read().unwrap_or_default();
        let is_new = |seen: &&Sighting| !known.iter().any(|known| known.covers(seen));
        if seen.iter().filter(is_new).count() == 0 {
            return Ok(());
        }
        let _lock = lock_folder_of(&self.path)?;
        let known = self.read().unwrap_or_default();
        let mut written = HashSet::new();
        let text: String = seen
            .iter()
            .rev()
            .chain(&known)
            .filter(|line| written.insert(line.key))
            .take(MOST_PEERS)
            .map(Sighting::to_line)
            .collect();
        replace_private(&self.path, text.as_bytes())
    }
}

impl Sighting {
    pub(crate) fn now(key: PublicKey, address: IpAddr, interface: &str) -> Self {
        Self {
            key,
            time: SystemTime::now(),
            address: address.to_canonical(),
            interface: Some(interface.to_owned()).filter(|name| !name.is_empty()),
        }
    }

    /// Returns true if a later sighting of the same peer need not be recorded yet. A time in the
    /// future, from a clock that was wrong, is replaced.
    fn covers(&self, later: &Self) -> bool {
        let since = later.time.duration_since(self.time);
        // The file has whole seconds, rounded down.
        self.key == later.key && since.is_ok_and(|since| since < PAUSE)
    }

    /// Parses `KIND KEY SECONDS ADDRESS [INTERFACE]`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let key = format!("{} {}", words.next()?, words.next()?);
        let seconds = Duration::from_secs(words.next()?.parse().ok()?);
        Some(Self {
            key: key.parse().ok()?,
            time: UNIX_EPOCH.checked_add(seconds)?,
            address: words.next()?.parse().ok()?,
            interface: words.next().map(str::to_owned),
        })
    }

    fn to_line(&self) -> String {
        let seconds = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let interface = self.interface.as_deref();
        let interface = interface.map_or_else(String::new, |name| format!(" {name}"));
        let (key, address) = (self.key, self.address);
        format!("{key} {} {address}{interface}\n", seconds.as_secs())
    }
}

fn read(path: &Path) -> Result<Vec<Sighting>, FileError> {
    let bytes = read_guarded(path, MAX_FILE)?;
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(Sighting::parse)
        .take(MOST_PEERS)
        .collect())
}

/// Minimum time between two writes for the same peer.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of peers in the file. Peers that were not seen for longest are dropped.
const MOST_PEERS: usize = 1024;

/// Maximum size of the file in bytes. [`MOST_PEERS`] lines of at most 135 bytes are smaller.
const MAX_FILE: usize = 192 * 1024;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::trust::private_folder;

    fn sighting(key: u16, seconds: u64) -> Sighting {
        let mut bytes = [7; 32];
        bytes[..2].copy_from_slice(&key.to_be_bytes());
        Sighting {
            key: PublicKey::from_bytes(bytes).unwrap(),
            time: UNIX_EPOCH + Duration::from_secs(seconds),
            address: "10.0.1.2".parse().unwrap(),
            interface: Some("eth1".to_owned()),
        }
    }

    #[test]
    fn the_last_sighting_of_each_peer_is_kept_and_written_once_a_minute() {
        let folder = private_folder();
        let sightings = Sightings::at(folder.path().join("state/sightings"));
        assert_eq!(sightings.read().unwrap(), []);
        sightings
            .note(&[sighting(1, 1000), sighting(2, 1001)])
            .unwrap();
        sightings.note(&[sighting(1, 1059)]).unwrap();
        assert_eq!(
            sightings.read().unwrap(),
            [sighting(2, 1001), sighting(1, 1000)]
        );
        sightings.note(&[sighting(1, 1060)]).unwrap();
        assert_eq!(
            sightings.read().unwrap(),
            [sighting(1, 1060), sighting(2, 1001)]
        );
        // The clock was set back.
        sightings.note(&[sighting(1, 900)]).unwrap();
        assert_eq!(sightings.read().unwrap()[0], sighting(1, 900));
        let mode = fs::metadata(&sightings.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn the_file_is_bounded_and_keeps_who_was_seen_last() {
        let folder = private_folder();
        let sightings = Sightings::at(folder.path().join("sightings"));
        let all: Vec<Sighting> = (0..1500)
            .map(|key| Sighting {
                address: "fe80:1111:2222:3333:4444:5555:6666:7777".parse().unwrap(),
                interface: Some("longestnameever".into()),
                ..sighting(key, 1 << 32)
            })
            .collect();
        sightings.note(&all).unwrap();
        let kept = sightings.read().unwrap();
        assert_eq!((kept.len(), &kept[0]), (MOST_PEERS, &all[1499]));
        let size = fs::metadata(&sightings.path).unwrap().len();
        assert!(size < MAX_FILE as u64, "{size}");
    }

    #[test]
    fn invalid_lines_are_skipped_and_a_file_of_others_is_an_error() {
        let folder = private_folder();
        let sightings = Sightings::at(folder.path().join("sightings"));
        let without = Sighting {
            interface: None,
            ..sighting(1, 5)
        };
        let key = without.key;
        let text = format!(
            "{}garbage\n{key} x 10.0.0.1\n{key} 5\n\u{fffd}\n",
            without.to_line()
        );
        fs::write(&sightings.path, text).unwrap();
        let set_mode =
            |mode| fs::set_permissions(&sightings.path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o600);
        assert_eq!(sightings.read().unwrap(), [without]);
        set_mode(0o666);
        assert!(sightings.read().is_err());
    }
}
