//! What rustic_core asks of a backend, over a session.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use nicstripe::{ClientBuilder, CopyOptions, Entry, Error, FailCode, Kind, Name, blocking::Client};
use rustic_core::{FileType, Id, ReadBackend, RepositoryBackends, RusticResult, WriteBackend};

use crate::{
    failure::{Action, Failure},
    layout::{Layout, id, is_pack_folder},
    patience::retried,
    side_by_side::each,
};

/// How long a daemon that is away is waited for: ten minutes, as long as a client waits for lost cables. Enough for a machine to boot.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A repository at a daemon. Cheap to clone; clones share one session.
///
/// May be used from any number of threads at once. Its session ends as after a kill when the last clone is dropped, which costs nothing
/// that was written; [`close`](Self::close) ends it in order.
#[derive(Debug, Clone)]
pub struct Backend {
    client: Client,
    layout: Layout,
    /// The daemon's name, or its key where it has none.
    peer: String,
    patience: Duration,
}

impl Backend {
    /// Connects to a daemon, and takes the directory `base` there for a repository; `None` is the daemon's root. Nothing is made or read.
    ///
    /// ```no_run
    /// use nicstripe::{Client, Name};
    /// use nicstripe_rustic::Backend;
    ///
    /// let backend = Backend::connect(Client::builder(), "nas", Some(Name::parse(b"backup/laptop")?))?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Client::connect`]; a daemon that is away is not waited for. `base` is so long that the names beneath it are
    /// [too long](nicstripe::NameError).
    pub fn connect(builder: ClientBuilder, host: &str, base: Option<Name>) -> Result<Self, Error> {
        Self::new(Client::connect(builder, host)?, base)
    }

    /// Does the same over a session that there is: for a program that has more to do at the daemon, or several repositories there.
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
        let (key, name) = client.peer()?;
        Ok(Self { client, layout, peer: name.unwrap_or_else(|| key.to_string()), patience: PATIENCE })
    }

    /// Says how long each call waits for a daemon that is away, has too much to do or is restarted, from its first failure on; [`PATIENCE`]
    /// unless told otherwise. With zero nothing is done twice.
    ///
    /// Lost cables are waited for by the client, for as long as [`ClientBuilder::patience`] says: what that has taken comes before.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The session's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends the session in order. To be called when all is done: what other clones have under way is interrupted.
    pub fn close(self) {
        self.client.close();
    }

    /// Makes a call that may be made twice, and words what became of it.
    fn attempt<T>(&self, action: Action, name: &Name, call: impl FnMut() -> Result<T, Failure>) -> RusticResult<T> {
        let what = format!("{} {name}", action.verb());
        retried(self.patience, &what, call).map_err(|failure| failure.told(action, &name.to_string(), &self.location()))
    }

    /// Words that there is no name for what something is to be done with.
    fn named(&self, action: Action, name: Result<Name, nicstripe::NameError>) -> RusticResult<Name> {
        name.map_err(|error| Failure::from(error).told(action, &self.layout.base(), &self.location()))
    }

    fn file(&self, action: Action, tpe: FileType, id: &Id) -> RusticResult<Name> {
        self.named(action, self.layout.file(tpe, id))
    }

    /// Returns what is in a directory; one that is missing is empty.
    fn entries(&self, directory: &Name) -> RusticResult<Vec<Entry>> {
        self.attempt(Action::List, directory, || match self.client.list(Some(directory)) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            listed => Ok(listed?),
        })
    }

    fn list_config(&self) -> RusticResult<Vec<(Id, u32)>> {
        let name = self.file(Action::List, FileType::Config, &Id::default())?;
        let stat = self.attempt(Action::List, &name, || match self.client.stat(&name) {
            Err(error) if error.is_not_found() => Ok(None),
            stat => Ok(Some(stat?)),
        })?;
        let size = stat.filter(|stat| stat.kind == Kind::File).and_then(|stat| u32::try_from(stat.size).ok());
        Ok(size.map(|size| (Id::default(), size)).into_iter().collect())
    }

    /// Lists the 256 directories of packs side by side: one after the other each would cost a round trip.
    fn list_packs(&self) -> RusticResult<Vec<(Id, u32)>> {
        let data = self.named(Action::List, self.layout.directory(FileType::Pack))?;
        let folders = self.entries(&data)?.into_iter().filter(|entry| entry.stat.kind == Kind::Dir);
        let folders = folders.filter_map(|entry| str::from_utf8(entry.name.file_name()).ok().map(str::to_owned));
        let lists = each(folders.filter(|folder| is_pack_folder(folder)).collect(), |folder| self.list_pack_folder(&folder))?;
        Ok(lists.into_iter().flatten().collect())
    }

    fn list_pack_folder(&self, folder: &str) -> RusticResult<Vec<(Id, u32)>> {
        let name = self.named(Action::List, self.layout.pack_folder(folder))?;
        let packs = files(FileType::Pack, self.entries(&name)?);
        // One that is not where it is looked for is not there.
        Ok(packs.filter(|(id, _)| id.to_hex().starts_with(folder)).collect())
    }

    /// Writes a file whose name is its content's hash.
    fn write_once(&self, name: &Name, bytes: &Bytes) -> Result<(), Failure> {
        match self.client.write(name, bytes, CopyOptions { parents: true, ..CopyOptions::default() }) {
            // An attempt whose answer was lost, or another machine with the same: whole, as every file that has a name.
            Err(error) if error.fail_code() == Some(FailCode::Exists) => {
                let (found, expected) = (self.client.stat(name)?.size, bytes.len() as u64);
                if found == expected { Ok(()) } else { Err(Failure::Len { found, expected }) }
            }
            written => Ok(written.map(drop)?),
        }
    }

    /// Writes the configuration, which is replaced when it is changed.
    fn write_over(&self, name: &Name, bytes: &Bytes) -> Result<(), Failure> {
        match self.client.write(name, bytes, CopyOptions { parents: true, replace: true, ..CopyOptions::default() }) {
            // Where nothing may be replaced, an attempt whose answer was lost finds what it has written itself.
            Err(error) if error.fail_code() == Some(FailCode::Refused) => match self.client.read(name, Some(0..bytes.len() as u64 + 1)) {
                Ok(found) if found == **bytes => Ok(()),
                _ => Err(error.into()),
            },
            written => Ok(written.map(drop)?),
        }
    }
}

impl ReadBackend for Backend {
    /// `nicstripe:PEER:PATH`, with the daemon's name in the list of peers, or its key.
    fn location(&self) -> String {
        format!("nicstripe:{}:{}", self.peer, self.layout.base())
    }

    /// What is no file of a repository is left out, and so is what is longer than one may be.
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
            // One byte more than there may be: no daemon fills the memory.
            let bytes = self.client.read(&name, Some(0..MOST + 1))?;
            if bytes.len() as u64 > MOST { Err(Failure::TooLong) } else { Ok(bytes.into()) }
        })
    }

    fn read_partial(&self, tpe: FileType, id: &Id, _cacheable: bool, offset: u32, length: u32) -> RusticResult<Bytes> {
        let name = self.file(Action::Read, tpe, id)?;
        let (offset, expected) = (u64::from(offset), u64::from(length));
        self.attempt(Action::Read, &name, || {
            let bytes = self.client.read(&name, Some(offset..offset + expected))?;
            let found = bytes.len() as u64;
            // The file ends within.
            if found == expected { Ok(bytes.into()) } else { Err(Failure::Len { found: offset + found, expected: offset + expected }) }
        })
    }

    /// The name beneath the daemon's root.
    fn warmup_path(&self, tpe: FileType, id: &Id) -> String {
        self.layout.file(tpe, id).map(|name| name.to_string()).unwrap_or_default()
    }
}

impl WriteBackend for Backend {
    /// Makes the directories of an empty repository; those that are there are fine.
    fn create(&self) -> RusticResult<()> {
        let directories = self.layout.directories();
        let directories =
            directories.map_err(|error| Failure::from(error).told(Action::MakeDirectory, &self.layout.base(), &self.location()))?;
        each(directories, |name| self.attempt(Action::MakeDirectory, &name, || Ok(self.client.make_dir(&name)?)))?;
        Ok(())
    }

    fn write_bytes(&self, tpe: FileType, id: &Id, _cacheable: bool, buf: Bytes) -> RusticResult<()> {
        let name = self.file(Action::Write, tpe, id)?;
        self.attempt(Action::Write, &name, || match tpe {
            FileType::Config => self.write_over(&name, &buf),
            _ => self.write_once(&name, &buf),
        })
    }

    /// That there is none of the name is an error, as with rustic's own backends, unless an attempt before may have removed it.
    fn remove(&self, tpe: FileType, id: &Id, _cacheable: bool) -> RusticResult<()> {
        let name = self.file(Action::Remove, tpe, id)?;
        let mut was_asked = false;
        self.attempt(Action::Remove, &name, || match self.client.remove(&name) {
            Err(error) if error.is_not_found() && was_asked => Ok(()),
            removed => {
                // It may have been done, and the answer lost.
                was_asked |= matches!(removed, Err(Error::Ended { .. } | Error::Abandoned { .. }));
                Ok(removed?)
            }
        })
    }
}

/// A repository that has nothing but this. For one that keeps a part elsewhere, to be read faster, there is [`RepositoryBackends::new`].
impl From<Backend> for RepositoryBackends {
    fn from(backend: Backend) -> Self {
        Self::new(Arc::new(backend), None)
    }
}

/// What of a listing is a file of a repository.
fn files(tpe: FileType, entries: Vec<Entry>) -> impl Iterator<Item = (Id, u32)> {
    let files = entries.into_iter().filter(|entry| entry.stat.kind == Kind::File);
    files.filter_map(move |entry| {
        let id = id(entry.name.file_name())?;
        let size = u32::try_from(entry.stat.size).inspect_err(|_| {
            log::warn!("{} of the {tpe} files has {} bytes, more than one may have, and is left out", entry.name, entry.stat.size);
        });
        Some((id, size.ok()?))
    })
}

/// Bytes that a file of a repository may have: rustic_core has sizes of 32 bits.
const MOST: u64 = u32::MAX as u64;
