//! Interface of a daemon to the storage of an embedding program.

use std::{fmt, io, sync::Arc, time::SystemTime};

use nicstripe_proto::{
    Digest, ETag, Name, ObjectAttributes, Subtree,
    message::{ObjectKind, ObjectStat},
};

use crate::{
    file::{FileError, FileIdentity, StoredFile, check_tag, timestamp_of},
    trust::PublicKey,
};

/// Storage backend of a daemon: files and directories below one root, each with a [`Name`].
///
/// The daemon reports errors to the peer with their [`FileError::code`]:
///
/// - [`NotFound`](nicstripe_proto::FailCode::NotFound) if the name does not exist
/// - [`Exists`](nicstripe_proto::FailCode::Exists) if it must not be replaced
/// - [`NotAFile`](nicstripe_proto::FailCode::NotAFile) if it is a directory where a file is needed,
///   [`NotADirectory`](nicstripe_proto::FailCode::NotADirectory) in the reverse case
/// - [`Occupied`](nicstripe_proto::FailCode::Occupied) if a directory has the name of a file to
///   write
///
/// The daemon checks a peer's rights before it calls the storage.
///
/// ```
/// use nicstripe::{Name, storage::{MemoryStorage, Storage}};
///
/// let storage = MemoryStorage::new();
/// storage.insert(&Name::parse(b"greeting")?, b"hello")?;
/// let file = storage.open(&Name::parse(b"greeting")?)?;
/// let mut bytes = [0; 5];
/// file.read_exact_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// The file does not exist, is a directory, or cannot be read.
    fn open(&self, name: &Name) -> Result<Box<dyn StoredFile>, FileError>;

    /// Starts or resumes the reception of a file. Returns the part, and all subtrees passed to
    /// [`StoredPart::sync`] in earlier attempts.
    ///
    /// Resumes only if [`PartRequest::origin`] is equal to that of the earlier attempt and
    /// [`PartRequest::restart`] is not set. Otherwise the storage deletes the earlier data.
    ///
    /// # Errors
    ///
    /// [`Busy`](nicstripe_proto::FailCode::Busy) if the same peer has a part of that name open; the
    /// daemon retries for a few seconds. Other errors: the name exists and must not be replaced, is
    /// a directory, its directory does not exist, or the storage is full.
    fn begin(
        &self,
        request: &PartRequest<'_>,
    ) -> Result<(Box<dyn StoredPart>, Vec<Subtree>), FileError>;

    /// Lists a directory (`None`: the root) in byte order of the names. Returns at most `most`
    /// entries whose names are greater than `after`, and true if more follow. Does not list parts.
    ///
    /// # Errors
    ///
    /// The directory does not exist.
    fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Listed, FileError>;

    /// Returns the kind, size and modification time of a name.
    ///
    /// # Errors
    ///
    /// The name does not exist.
    fn stat(&self, name: &Name) -> Result<Stat, FileError>;

    /// Removes a file or an empty directory, durably.
    ///
    /// # Errors
    ///
    /// The name does not exist, or is a directory that is not empty.
    fn remove(&self, name: &Name) -> Result<(), FileError>;

    /// Renames a file or directory, durably and atomically. Replaces an existing file `to` if
    /// `replace` is set.
    ///
    /// # Errors
    ///
    /// `from` does not exist; `to` exists, its directory does not, or it lies below `from`.
    fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError>;

    /// Creates a directory and its missing parents, durably. Succeeds if the directory exists.
    ///
    /// # Errors
    ///
    /// One of the names is a file.
    fn make_dir(&self, name: &Name) -> Result<(), FileError>;

    /// Returns true if the storage keeps [attributes](PartRequest::attributes), and returns them by
    /// [`StoredFile::attributes`]. The daemon refuses a file with attributes otherwise.
    fn keeps_attributes(&self) -> bool {
        false
    }

    /// Removes a file that has the entity tag `tag`, durably. No other change of the name may come
    /// between the check and the removal.
    ///
    /// # Errors
    ///
    /// [`Precondition`](nicstripe_proto::FailCode::Precondition) if the name does not exist or has
    /// another tag. A storage that does not implement this method refuses.
    fn remove_if(&self, name: &Name, tag: ETag) -> Result<(), FileError> {
        let _ = tag;
        Err(without_conditions("remove", name))
    }

    /// Renames a file that has the entity tag `tag`, as [`rename`](Self::rename) does otherwise.
    ///
    /// # Errors
    ///
    /// As for [`rename`](Self::rename) and [`remove_if`](Self::remove_if).
    fn rename_if(&self, from: &Name, to: &Name, replace: bool, tag: ETag) -> Result<(), FileError> {
        let _ = (to, replace, tag);
        Err(without_conditions("rename", from))
    }
}

fn without_conditions(operation: &'static str, name: &Name) -> FileError {
    let why = "this daemon's storage cannot make it depend on an entity tag";
    FileError::refused(operation, name, why)
}

/// One page of a directory listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Names relative to the directory, one component each, with their metadata.
    pub entries: Vec<(Vec<u8>, Stat)>,
    /// True if more entries follow.
    pub more: bool,
}

/// Metadata of a named object: kind, size, modification time and entity tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Kind of the object: file, directory or other.
    pub kind: Kind,
    /// Size of a file in bytes; meaningless for other kinds.
    pub size: u64,
    /// Modification time of the content.
    pub modified: SystemTime,
    /// Identity of a file's content; `None` for other kinds, and if the daemon does not tell it.
    pub etag: Option<ETag>,
    /// BLAKE3 hash of a file's content; `None` if the daemon does not know it. It knows that of a
    /// single file that it received itself, keeps it next to the file, and believes it while size,
    /// modification time and inode stay the same. [`Client::verify`](crate::Client::verify) reads the
    /// file.
    pub digest: Option<Digest>,
    /// True if the file has attributes, which [`Client::head`](crate::Client::head) returns. False in
    /// listings.
    pub has_attributes: bool,
}

impl Stat {
    /// Returns the metadata of an object of this kind, size in bytes and modification time, without
    /// an entity tag.
    pub const fn new(kind: Kind, size: u64, modified: SystemTime) -> Self {
        Self {
            kind,
            size,
            modified,
            etag: None,
            digest: None,
            has_attributes: false,
        }
    }

    /// Returns the metadata of a file with this identity, which must be the one of
    /// [`StoredFile::identity`].
    pub fn of_file(identity: &FileIdentity) -> Self {
        Self {
            etag: Some(identity.etag()),
            ..Self::new(Kind::File, identity.size, identity.modified)
        }
    }
}

impl Stat {
    pub(crate) fn on_wire(&self) -> ObjectStat {
        let kind = match self.kind {
            Kind::File => ObjectKind::File,
            Kind::Dir => ObjectKind::Dir,
            Kind::Other => ObjectKind::Other,
        };
        ObjectStat {
            kind,
            size: self.size,
            mtime: timestamp_of(self.modified),
            etag: self.etag,
            digest: self.digest,
            has_attributes: self.has_attributes,
        }
    }

    pub(crate) fn of_wire(stat: ObjectStat) -> Self {
        let kind = match stat.kind {
            ObjectKind::File => Kind::File,
            ObjectKind::Dir => Kind::Dir,
            ObjectKind::Other => Kind::Other,
        };
        // A time that cannot be represented becomes the epoch.
        let modified = stat.mtime.to_system_time();
        Self {
            kind,
            size: stat.size,
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            etag: stat.etag,
            digest: stat.digest,
            has_attributes: stat.has_attributes,
        }
    }
}

/// A pointer to a storage is a storage, so that a program can choose one when it runs.
macro_rules! storage_behind {
    ($pointer:ident) => {
        impl<S: Storage + ?Sized> Storage for $pointer<S> {
            fn open(&self, name: &Name) -> Result<Box<dyn StoredFile>, FileError> {
                (**self).open(name)
            }

            fn begin(
                &self,
                request: &PartRequest<'_>,
            ) -> Result<(Box<dyn StoredPart>, Vec<Subtree>), FileError> {
                (**self).begin(request)
            }

            fn list(
                &self,
                dir: Option<&Name>,
                after: Option<&[u8]>,
                most: usize,
            ) -> Result<Listed, FileError> {
                (**self).list(dir, after, most)
            }

            fn stat(&self, name: &Name) -> Result<Stat, FileError> {
                (**self).stat(name)
            }

            fn keeps_attributes(&self) -> bool {
                (**self).keeps_attributes()
            }

            fn remove(&self, name: &Name) -> Result<(), FileError> {
                (**self).remove(name)
            }

            fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError> {
                (**self).rename(from, to, replace)
            }

            fn make_dir(&self, name: &Name) -> Result<(), FileError> {
                (**self).make_dir(name)
            }

            fn remove_if(&self, name: &Name, tag: ETag) -> Result<(), FileError> {
                (**self).remove_if(name, tag)
            }

            fn rename_if(
                &self,
                from: &Name,
                to: &Name,
                replace: bool,
                tag: ETag,
            ) -> Result<(), FileError> {
                (**self).rename_if(from, to, replace, tag)
            }
        }
    };
}

storage_behind!(Arc);
storage_behind!(Box);

/// Kind of a named object: file, directory or other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Any other object, such as a socket or a symbolic link.
    Other,
}

/// Request of a daemon to receive a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct PartRequest<'a> {
    /// Name of the file once complete.
    pub name: &'a Name,
    /// Public key of the sender. Parts of different senders are independent.
    pub peer: PublicKey,
    /// Size of the file in bytes; `None` if unknown until the end. A part of unknown size is never
    /// resumed.
    pub size: Option<u64>,
    /// Hash of the source's identity and its division into chunks. A part can only be resumed by a
    /// request with an equal value.
    pub origin: [u8; 32],
    /// Whether an existing file of that name is replaced. [`StoredPart::commit`] must decide it again.
    pub replace: Replace,
    /// True to delete the data of an interrupted attempt.
    pub restart: bool,
    /// Permission bits of the file, for storages that have them.
    pub mode: u32,
    /// Modification time of the file; `None` for the time of the commit.
    pub modified: Option<SystemTime>,
    /// Attributes of the file; `None` for none, and always if the storage
    /// [keeps none](Storage::keeps_attributes).
    pub attributes: Option<&'a ObjectAttributes>,
}

/// Whether a received file replaces an existing one of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// An existing file stays, and the reception fails with
    /// [`Exists`](nicstripe_proto::FailCode::Exists).
    Never,
    /// An existing file is replaced.
    Always,
    /// An existing file with this entity tag is replaced. Any other one stays, and the reception
    /// fails with [`Precondition`](nicstripe_proto::FailCode::Precondition), also if no file exists.
    IfTag(ETag),
}

impl Replace {
    /// Decides on the file that has the name now; `None` if there is none. A storage calls it in
    /// [`Storage::begin`], and in [`StoredPart::commit`] under the lock that protects the name.
    ///
    /// # Errors
    ///
    /// The name cannot be given to the received file.
    pub fn check(self, name: &Name, found: Option<FileIdentity>) -> Result<(), FileError> {
        match (self, found) {
            (Self::IfTag(tag), found) => {
                let found = found.map(|found| found.etag());
                check_tag(found, tag, "replace", name)
            }
            (Self::Never, Some(_)) => {
                let why =
                    io::Error::new(io::ErrorKind::AlreadyExists, "a file of that name exists");
                Err(FileError::new("replace", name, why))
            }
            (Self::Never | Self::Always, _) => Ok(()),
        }
    }
}

/// File being received, not yet visible under its name.
///
/// A part may be dropped without [`commit`](Self::commit) or [`discard`](Self::discard). Data
/// covered by [`sync`](Self::sync) must then remain available to the next [`Storage::begin`] of the
/// same origin; other data need not.
pub trait StoredPart: fmt::Debug + Send + Sync {
    /// Writes bytes at `offset`. Called concurrently, for disjoint extents in any order. Unwritten
    /// bytes read as zeros.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::StorageFull`] if the storage is full; the daemon reports it to the peer as
    /// such.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` with written data from `offset`, for verification.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the part is too short.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes all data written before the call durable, then records the subtrees `durable` durably,
    /// for [`Storage::begin`] to return. Adds to the subtrees recorded before. Writes may run
    /// concurrently; other calls of `sync` and [`commit`](Self::commit) do not.
    ///
    /// # Errors
    ///
    /// After an error no data of the part is trusted: the daemon discards it without a retry.
    fn sync(&self, durable: &[Subtree]) -> io::Result<()>;

    /// Makes the complete file of `size` bytes durable under its name. Readers of the name must see
    /// either the previous content or the complete file. Returns the identity of the file, `None` if
    /// the storage does not know it.
    ///
    /// # Errors
    ///
    /// The name was taken meanwhile and must not be replaced, or the storage failed. The name must
    /// then be unchanged.
    fn commit(&self, size: u64) -> Result<Option<FileIdentity>, FileError>;

    /// Deletes the part and its data. Must ignore errors, since no caller could handle them.
    fn discard(&self);
}
