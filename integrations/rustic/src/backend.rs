//! Implementation of rustic_core's backend traits over a session.

use std::sync::Arc;

use bytes::Bytes;
use nicstripe::{ClientBuilder, CopyOptions, Entry, Error, FailCode, Kind, Name, blocking::Client};
use rustic_core::{FileType, Id, ReadBackend, RepositoryBackends, RusticResult, WriteBackend};

use crate::{
    failure::{Action, Failure},
    layout::{Layout, id, is_pack_folder},
    patience::repeated,
    side_by_side::each,
};

/// Repository at a daemon, as a backend of rustic_core. Cheap to clone; clones share one session.
///
/// While the daemon is unreachable or restarting, calls wait for the client's
/// [`patience`](ClientBuilder::patience).
///
/// May be used by several threads at a time. Dropping the last clone aborts the session without
/// losing written data; [`close`](Self::close) shuts it down cleanly.
#[derive(Debug, Clone)]
pub struct Backend {
    client: Client,
    layout: Layout,
    /// Name of the daemon in the peers file, or its key if it has no name.
    peer: String,
}

impl Backend {
    /// Connects to a daemon, with the repository in its directory `base`; `None` is the daemon's
    /// root. Creates and reads nothing.
    ///
    /// ```no_run
    /// use nicstripe::{Client, Name};
    /// use nicstripe_rustic::Backend;
    ///
    /// let backend =
    ///     Backend::connect(Client::builder(), "nas", Some(Name::parse(b"backup/laptop")?))?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`]; an unreachable daemon is not retried. Also an error if `base`
    /// is so long that names in it are [too long](nicstripe::NameError).
    pub fn connect(builder: ClientBuilder, host: &str, base: Option<Name>) -> Result<Self, Error> {
        Self::new(Client::connect(builder, host)?, base)
    }

    /// Creates a backend on an existing session. Use it for several repositories at one daemon, or
    /// if the program has other work for the session.
    ///
    /// ```no_run
    /// use nicstripe::{Client, Name, blocking};
    /// use nicstripe_rustic::Backend;
    ///
    /// let client = blocking::Client::connect(Client::builder(), "nas")?;
    /// let laptop = Backend::new(client.clone(), Some(Name::parse(b"backup/laptop")?))?;
    /// let phone = Backend::new(client, Some(Name::parse(b"backup/phone")?))?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The daemon cannot be reached, or `base` is too long.
    pub fn new(client: Client, base: Option<Name>) -> Result<Self, Error> {
        let layout = Layout::new(base)?;
        let nicstripe::ConnectedPeer { key, name, .. } = client.peer()?;
        Ok(Self {
            client,
            layout,
            peer: name.unwrap_or_else(|| key.to_string()),
        })
    }

    /// Returns the client, through which the backend uses the session.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Shuts the session down cleanly. Running calls of other clones fail.
    pub fn close(self) {
        self.client.close();
    }

    /// Runs a call, again after a temporary failure, so that it may be executed twice.
    /// Converts a final failure to an error of rustic_core.
    fn attempt<T>(
        &self,
        action: Action,
        name: &Name,
        call: impl FnMut() -> Result<T, Failure>,
    ) -> RusticResult<T> {
        let what = format!("{} {name}", action.verb());
        repeated(&what, call)
            .map_err(|failure| failure.told(action, &name.to_string(), &self.location()))
    }

    /// Converts an invalid name into an error of `action`.
    fn named(
        &self,
        action: Action,
        name: Result<Name, nicstripe::NameError>,
    ) -> RusticResult<Name> {
        name.map_err(|error| {
            Failure::from(error).told(action, &self.layout.base(), &self.location())
        })
    }

    fn file(&self, action: Action, tpe: FileType, id: &Id) -> RusticResult<Name> {
        self.named(action, self.layout.file(tpe, id))
    }

    /// Returns the entries of a directory; none if it does not exist.
    fn entries(&self, directory: &Name) -> RusticResult<Vec<Entry>> {
        self.attempt(Action::List, directory, || {
            match self.client.list(Some(directory)) {
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                listed => Ok(listed?),
            }
        })
    }

    fn list_config(&self) -> RusticResult<Vec<(Id, u32)>> {
        let name = self.file(Action::List, FileType::Config, &Id::default())?;
        let stat = self.attempt(Action::List, &name, || match self.client.stat(&name) {
            Err(error) if error.is_not_found() => Ok(None),
            stat => Ok(Some(stat?)),
        })?;
        let size = stat
            .filter(|stat| stat.kind == Kind::File)
            .and_then(|stat| u32::try_from(stat.size).ok());
        Ok(size.map(|size| (Id::default(), size)).into_iter().collect())
    }

    /// Lists all packs. Lists their 256 directories concurrently, because each costs a round trip.
    fn list_packs(&self) -> RusticResult<Vec<(Id, u32)>> {
        let data = self.named(Action::List, self.layout.directory(FileType::Pack))?;
        let folders = self
            .entries(&data)?
            .into_iter()
            .filter(|entry| entry.stat.kind == Kind::Dir);
        let folders = folders.filter_map(|entry| {
            str::from_utf8(entry.name.file_name())
                .ok()
                .map(str::to_owned)
        });
        let lists = each(
            folders.filter(|folder| is_pack_folder(folder)).collect(),
            |folder| self.list_pack_folder(&folder),
        )?;
        Ok(lists.into_iter().flatten().collect())
    }

    fn list_pack_folder(&self, folder: &str) -> RusticResult<Vec<(Id, u32)>> {
        let name = self.named(Action::List, self.layout.pack_folder(folder))?;
        let packs = files(FileType::Pack, self.entries(&name)?);
        // A pack in the wrong directory counts as missing.
        Ok(packs
            .filter(|(id, _)| id.to_hex().starts_with(folder))
            .collect())
    }

    /// Writes a file that is named by the hash of its content. An existing file of equal size
    /// counts as success.
    fn write_once(&self, name: &Name, bytes: &Bytes) -> Result<(), Failure> {
        match self.client.write(
            name,
            bytes,
            CopyOptions {
                parents: true,
                ..CopyOptions::default()
            },
        ) {
            // An earlier attempt whose answer was lost, or another machine, wrote the same file.
            // Every file with a name is complete.
            Err(error) if error.fail_code() == Some(FailCode::Exists) => {
                let (found, expected) = (self.client.stat(name)?.size, bytes.len() as u64);
                if found == expected {
                    Ok(())
                } else {
                    Err(Failure::Len { found, expected })
                }
            }
            written => Ok(written.map(drop)?),
        }
    }

    /// Writes the configuration file, and replaces the old one.
    fn write_over(&self, name: &Name, bytes: &Bytes) -> Result<(), Failure> {
        match self.client.write(
            name,
            bytes,
            CopyOptions {
                parents: true,
                replace: true,
                ..CopyOptions::default()
            },
        ) {
            // If replacing is forbidden, the file may come from an earlier attempt whose answer was
            // lost.
            Err(error) if error.fail_code() == Some(FailCode::NotPermitted) => {
                match self.client.read(name, Some(0..bytes.len() as u64 + 1)) {
                    Ok(found) if found == **bytes => Ok(()),
                    _ => Err(error.into()),
                }
            }
            written => Ok(written.map(drop)?),
        }
    }
}

impl ReadBackend for Backend {
    /// Returns `nicstripe:PEER:PATH`, where PEER is the daemon's name in the peers file, or its
    /// key.
    fn location(&self) -> String {
        format!("nicstripe:{}:{}", self.peer, self.layout.base())
    }

    /// Lists the files of a type. Skips files that do not belong to a repository, and those above
    /// the maximum size.
    fn list_with_size(&self, tpe: FileType) -> RusticResult<Vec<(Id, u32)>> {
        match tpe {
            FileType::Config => self.list_config(),
            FileType::Pack => self.list_packs(),
            _ => {
                let directory = self.named(Action::List, self.layout.directory(tpe))?;
                Ok(files(tpe, self.entries(&directory)?).collect())
            }
        }
    }

    fn read_full(&self, tpe: FileType, id: &Id) -> RusticResult<Bytes> {
        let name = self.file(Action::Read, tpe, id)?;
        self.attempt(Action::Read, &name, || {
            // Reads at most one byte above the maximum, so that no daemon can exhaust the memory.
            let bytes = self.client.read(&name, Some(0..MOST + 1))?;
            if bytes.len() as u64 > MOST {
                Err(Failure::TooLong)
            } else {
                Ok(bytes.into())
            }
        })
    }

    fn read_partial(
        &self,
        tpe: FileType,
        id: &Id,
        _cacheable: bool,
        offset: u32,
        length: u32,
    ) -> RusticResult<Bytes> {
        let name = self.file(Action::Read, tpe, id)?;
        let (offset, expected) = (u64::from(offset), u64::from(length));
        self.attempt(Action::Read, &name, || {
            let bytes = self.client.read(&name, Some(offset..offset + expected))?;
            let found = bytes.len() as u64;
            // The file ends within the range.
            if found == expected {
                Ok(bytes.into())
            } else {
                Err(Failure::Len {
                    found: offset + found,
                    expected: offset + expected,
                })
            }
        })
    }

    /// Returns the path of a file relative to the daemon's root.
    fn warmup_path(&self, tpe: FileType, id: &Id) -> String {
        self.layout
            .file(tpe, id)
            .map(|name| name.to_string())
            .unwrap_or_default()
    }
}

impl WriteBackend for Backend {
    /// Creates the directories of an empty repository. Existing directories are no error.
    fn create(&self) -> RusticResult<()> {
        let directories = self.layout.directories();
        let directories = directories.map_err(|error| {
            Failure::from(error).told(Action::MakeDirectory, &self.layout.base(), &self.location())
        })?;
        each(directories, |name| {
            self.attempt(Action::MakeDirectory, &name, || {
                Ok(self.client.make_dir(&name)?)
            })
        })?;
        Ok(())
    }

    fn write_bytes(
        &self,
        tpe: FileType,
        id: &Id,
        _cacheable: bool,
        buf: Bytes,
    ) -> RusticResult<()> {
        let name = self.file(Action::Write, tpe, id)?;
        self.attempt(Action::Write, &name, || match tpe {
            FileType::Config => self.write_over(&name, &buf),
            _ => self.write_once(&name, &buf),
        })
    }

    /// Removes a file. A missing file is an error, as in rustic's own backends, unless an earlier
    /// attempt of this call may have removed it.
    fn remove(&self, tpe: FileType, id: &Id, _cacheable: bool) -> RusticResult<()> {
        let name = self.file(Action::Remove, tpe, id)?;
        let mut was_asked = false;
        self.attempt(Action::Remove, &name, || match self.client.remove(&name) {
            Err(error) if error.is_not_found() && was_asked => Ok(()),
            removed => {
                // The daemon may have removed the file before the answer was lost.
                was_asked |= matches!(removed, Err(Error::Ended { .. } | Error::Abandoned { .. }));
                Ok(removed?)
            }
        })
    }
}

/// Creates a repository that uses only this backend. [`RepositoryBackends::new`] can add a second
/// one for files that are read often.
impl From<Backend> for RepositoryBackends {
    fn from(backend: Backend) -> Self {
        Self::new(Arc::new(backend), None)
    }
}

/// Returns ID and size of those entries that are files of a repository.
fn files(tpe: FileType, entries: Vec<Entry>) -> impl Iterator<Item = (Id, u32)> {
    let files = entries
        .into_iter()
        .filter(|entry| entry.stat.kind == Kind::File);
    files.filter_map(move |entry| {
        let id = id(entry.name.file_name())?;
        let size = u32::try_from(entry.stat.size).inspect_err(|_| {
            log::warn!(
                "skipping {} of the {tpe} files: {} bytes exceed the limit",
                entry.name,
                entry.stat.size
            );
        });
        Some((id, size.ok()?))
    })
}

/// Maximum size of a repository file in bytes, since sizes in rustic_core have 32 bits.
const MOST: u64 = u32::MAX as u64;
