//! Locations of configuration and state files.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::mounts::Mounts;

/// Folders of one installation: configuration (identity, peers, settings) and state (journals,
/// records of routes).
///
/// Only holds paths: creates and reads no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
    /// Settings file; `config.toml` in `config` if `None`.
    config_file: Option<PathBuf>,
}

impl Home {
    /// Creates a `Home` with one folder for configuration and state.
    ///
    /// ```
    /// let home = nicstripe::trust::Home::at("/etc/backup-tool");
    /// assert_eq!(home.peers_file(), std::path::Path::new("/etc/backup-tool/peers"));
    /// ```
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let config = folder.into();
        Self {
            state: config.clone(),
            config,
            config_file: None,
        }
    }

    /// Creates a `Home` with separate folders for configuration and state.
    ///
    /// ```
    /// let home = nicstripe::trust::Home::new("/etc/backup-tool", "/var/lib/backup-tool");
    /// assert_eq!(home.state(), std::path::Path::new("/var/lib/backup-tool"));
    /// ```
    pub fn new(config: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self {
            config: config.into(),
            state: state.into(),
            config_file: None,
        }
    }

    /// Sets the path of the daemon's settings file, if it is not `config.toml` in the configuration
    /// folder.
    ///
    /// ```
    /// let home = nicstripe::trust::Home::at("/etc/backup-tool");
    /// let home = home.with_config_file("/srv/serve.toml");
    /// assert_eq!(home.config_file(), std::path::Path::new("/srv/serve.toml"));
    /// ```
    pub fn with_config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config_file = Some(path.into());
        self
    }

    /// Finds the user's folders from the environment of the process; see [`Home::from_vars`].
    ///
    /// ```no_run
    /// let home = nicstripe::trust::Home::from_env()?;
    /// println!("{}", home.config().display());
    /// # Ok::<(), nicstripe::trust::HomeError>(())
    /// ```
    pub fn from_env() -> Result<Self, HomeError> {
        Self::from_vars(|name| env::var_os(name))
    }

    /// Finds the user's folders from the variables that `lookup` returns.
    ///
    /// `NICSTRIPE_HOME` sets both folders. Without it they are `nicstripe` in `XDG_CONFIG_HOME` and
    /// `XDG_STATE_HOME`, which default to `.config` and `.local/state` in `HOME`. An empty variable
    /// counts as unset. A relative `XDG_*` is ignored, as its specification requires. A relative
    /// `NICSTRIPE_HOME` or `HOME` is an error, because the folder would change with the working
    /// directory.
    ///
    /// ```
    /// let home = nicstripe::trust::Home::from_vars(|name| {
    ///     (name == "NICSTRIPE_HOME").then(|| "/etc/backup-tool".into())
    /// })?;
    /// assert_eq!(home.config(), std::path::Path::new("/etc/backup-tool"));
    /// # Ok::<(), nicstripe::trust::HomeError>(())
    /// ```
    pub fn from_vars(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, HomeError> {
        let path = |name: &str| {
            lookup(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let absolute = |variable: &'static str, path: PathBuf| match path.is_absolute() {
            true => Ok(path),
            false => Err(HomeError::Relative { variable, path }),
        };
        if let Some(folder) = path(HOME_VARIABLE) {
            return Ok(Self::at(absolute(HOME_VARIABLE, folder)?));
        }
        let folder = |variable: &str, default: &str| match path(variable)
            .filter(|path| path.is_absolute())
        {
            Some(base) => Ok(base.join(NAME)),
            None => {
                let home = path("HOME").ok_or(HomeError::Unknown)?;
                Ok(absolute("HOME", home)?.join(default).join(NAME))
            }
        };
        Ok(Self {
            config: folder("XDG_CONFIG_HOME", ".config")?,
            state: folder("XDG_STATE_HOME", ".local/state")?,
            config_file: None,
        })
    }

    /// Returns the folders of a system-wide daemon, `/etc/nicstripe` and `/var/lib/nicstripe`, if
    /// the first exists.
    ///
    /// Intended for root processes without `NICSTRIPE_HOME`, which the caller must check.
    ///
    /// ```no_run
    /// let home =
    ///     nicstripe::trust::Home::system().map_or_else(nicstripe::trust::Home::from_env, Ok)?;
    /// # Ok::<(), nicstripe::trust::HomeError>(())
    /// ```
    pub fn system() -> Option<Self> {
        let config = Path::new("/etc").join(NAME);
        config
            .is_dir()
            .then(|| Self::new(config, Path::new("/var/lib").join(NAME)))
    }

    /// Returns the configuration or state path of this installation that a directory contains, if
    /// any.
    ///
    /// A daemon must not serve such a directory: clients could read the private key, or add trusted
    /// keys. Compares device and inode along each path, both as written and with symbolic links
    /// resolved, and follows bind mounts by the table of mounts.
    ///
    /// # Errors
    ///
    /// The directory is missing, or a path or `/proc/self/mountinfo` cannot be read.
    ///
    /// ```
    /// let home = nicstripe::trust::Home::at("/etc/backup-tool");
    /// assert_eq!(home.found_in("/etc")?, Some("/etc/backup-tool".into()));
    /// assert_eq!(home.found_in("/usr")?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn found_in(&self, directory: impl AsRef<Path>) -> io::Result<Option<PathBuf>> {
        let directory = directory.as_ref();
        let metadata = fs::metadata(directory)?;
        let real = fs::canonicalize(directory)?;
        self.found_in_opened((metadata.dev(), metadata.ino()), &real)
    }

    /// Like [`Home::found_in`], for a directory's device and inode, and its path without symbolic
    /// links.
    pub(crate) fn found_in_opened(
        &self,
        inode: (u64, u64),
        real: &Path,
    ) -> io::Result<Option<PathBuf>> {
        if !real.is_absolute() {
            // The kernel writes "(unreachable)" before the path.
            let why = format!("{} is in no directory of this process", real.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mounts = Mounts::read()?;
        for path in [
            self.config.clone(),
            self.state.clone(),
            self.identity_file(),
            self.peers_file(),
            self.config.join(CONFIG_FILE),
            self.config_file(),
        ] {
            if leads_through(&std::path::absolute(&path)?, inode, real, &mounts)? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Returns the path of the configuration folder.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns the path of the state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the path of the file with this machine's key pair; for
    /// [`Identity`](super::Identity).
    ///
    /// ```
    /// let home = nicstripe::trust::Home::at("/etc/backup-tool");
    /// assert_eq!(home.identity_file(), std::path::Path::new("/etc/backup-tool/identity"));
    /// ```
    pub fn identity_file(&self) -> PathBuf {
        self.config.join("identity")
    }

    /// Returns the path of the file with the peers' last addresses; for
    /// [`AddressBook`](super::AddressBook).
    pub fn addresses_file(&self) -> PathBuf {
        self.state.join("addresses")
    }

    /// Returns the path of the file with the time and address at which each peer was last seen; for
    /// [`Sightings`](super::Sightings).
    pub fn sightings_file(&self) -> PathBuf {
        self.state.join("sightings")
    }

    /// Returns the path of the daemon's settings file, which need not exist.
    pub fn config_file(&self) -> PathBuf {
        let default = || self.config.join(CONFIG_FILE);
        self.config_file.clone().unwrap_or_else(default)
    }

    /// Returns the path of the file with the trusted keys; for [`Peers`](super::Peers).
    pub fn peers_file(&self) -> PathBuf {
        self.config.join("peers")
    }
}

/// Returns true if a directory, given by device and inode and by its path without symbolic links, is
/// an ancestor of a path, as written or with its symbolic links resolved, or shows one by a mount.
/// Skips missing ancestors.
fn leads_through(
    path: &Path,
    directory: (u64, u64),
    real_directory: &Path,
    mounts: &Mounts,
) -> io::Result<bool> {
    let is_missing = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    let mut next = None;
    for ancestor in path.ancestors() {
        // No entry of a directory that `..` leaves again decides where the path leads.
        let is_left = next == Some(Component::ParentDir);
        next = ancestor.components().next_back();
        if is_left {
            continue;
        }
        let real = match fs::canonicalize(ancestor) {
            Ok(real) => real,
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(error),
        };
        if mounts.shows(real_directory, &real) {
            return Ok(true);
        }
        for ancestor in real.ancestors() {
            let metadata = fs::metadata(ancestor)?;
            if (metadata.dev(), metadata.ino()) == directory {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Error in determining the folders of an installation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Neither `NICSTRIPE_HOME` nor `HOME` is set.
    #[error("no configuration directory: neither {HOME_VARIABLE} nor HOME is set")]
    Unknown,
    /// An environment variable holds a relative path.
    #[error("{variable} is {path:?}: expected an absolute path")]
    Relative {
        /// Name of the environment variable.
        variable: &'static str,
        /// Value of the environment variable.
        path: PathBuf,
    },
}

const CONFIG_FILE: &str = "config.toml";
const HOME_VARIABLE: &str = "NICSTRIPE_HOME";
const NAME: &str = "nicstripe";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn home(variables: &[(&str, &str)]) -> Result<Home, HomeError> {
        Home::from_vars(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn one_variable_moves_everything() {
        let found = home(&[
            ("NICSTRIPE_HOME", "/n"),
            ("HOME", "/home/me"),
            ("XDG_CONFIG_HOME", "/c"),
        ]);
        assert_eq!(found, Ok(Home::at("/n")));
        assert_eq!(Home::at("/n").identity_file(), Path::new("/n/identity"));
        assert_eq!(Home::at("/n").peers_file(), Path::new("/n/peers"));
    }

    #[test]
    fn otherwise_the_xdg_folders_count_and_relative_or_empty_ones_do_not() {
        let usual = Ok(Home::new(
            "/home/me/.config/nicstripe",
            "/home/me/.local/state/nicstripe",
        ));
        assert_eq!(home(&[("HOME", "/home/me")]), usual);
        assert_eq!(
            home(&[
                ("HOME", "/home/me"),
                ("XDG_CONFIG_HOME", "c"),
                ("XDG_STATE_HOME", ""),
                ("NICSTRIPE_HOME", "")
            ]),
            usual
        );
        assert_eq!(
            home(&[("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")]),
            Ok(Home::new("/c/nicstripe", "/s/nicstripe"))
        );
    }

    #[test]
    fn a_directory_that_leads_to_the_installation_is_found_whatever_its_name() {
        let (outer, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outer = outer.path();
        fs::create_dir_all(outer.join("me/.config")).unwrap();
        fs::create_dir_all(outer.join("me/shared")).unwrap();
        let home = Home::new(
            outer.join("me/.config/nicstripe"),
            elsewhere.path().join("state"),
        );
        let found = |home: &Home, directory: &Path| home.found_in(directory).unwrap().is_some();
        std::os::unix::fs::symlink(outer.join("me"), outer.join("alias")).unwrap();
        for directory in ["", "me", "alias", "me/.config", "me/shared/.."] {
            assert!(
                found(&home, &outer.join(directory)),
                "{directory}, where the folder does not exist yet"
            );
        }
        assert!(found(&home, elsewhere.path()) && !found(&home, &outer.join("me/shared")));
        // A folder reached through a symbolic link counts as well.
        std::os::unix::fs::symlink(elsewhere.path(), outer.join("me/link")).unwrap();
        let linked = Home::at(outer.join("me/link/nicstripe"));
        assert!(found(&linked, elsewhere.path()) && found(&linked, &outer.join("me")));
        assert!(home.found_in(outer.join("missing")).is_err());
    }

    #[test]
    fn a_settings_file_elsewhere_is_found_as_well_and_the_usual_one_still() {
        let (keys, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(served.path().join("sub")).unwrap();
        let file = served.path().join("sub/c.toml");
        let home = Home::at(keys.path()).with_config_file(&file);
        assert_eq!(home.config_file(), file);
        let found = |home: &Home, directory: &Path| home.found_in(directory).unwrap();
        assert_eq!(found(&home, served.path()), Some(file));
        assert_eq!(found(&home, keys.path()), Some(keys.path().to_owned()));
        // A path that leaves the directory by `..` does not depend on what is in it.
        let beside = served.path().join("sub/../c.toml");
        let home = Home::at(keys.path()).with_config_file(&beside);
        assert_eq!(found(&home, &served.path().join("sub")), None);
        assert_eq!(found(&home, served.path()), Some(beside));
    }

    #[test]
    fn without_an_absolute_home_there_is_none() {
        assert_eq!(home(&[]), Err(HomeError::Unknown));
        assert_eq!(
            home(&[("HOME", "me")]),
            Err(HomeError::Relative {
                variable: "HOME",
                path: "me".into()
            })
        );
        let error = home(&[("NICSTRIPE_HOME", "n"), ("HOME", "/home/me")])
            .map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("NICSTRIPE_HOME is \"n\": expected an absolute path".to_owned())
        );
    }
}
