//! Requests for names below the daemon's root: listing, changes, and reading or writing whole
//! files.

use std::ops::Range;

use nicstripe_proto::{
    ChunkSize, ETag, FailCode, Name, ObjectAttributes, SourceIdentity,
    message::{AnswerKind, AskKind, Feature, GetRange},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    handle::Client,
    reader::{FIRST_PART, ObjectReader, OpenOptions, get_range},
    reconnects::Reconnects,
    request::{ObjectDownload, Once, download_of},
    transfer::Transfer,
    writer::ObjectWriter,
};
pub use crate::storage::{Kind, Stat};
use crate::{
    file::options::{CopyOptions, RenameOptions},
    links::establish::LinkedSession,
    report::{Report, error::Error},
    session::{
        Command, Unanswered,
        kind::{
            Upload,
            object::{self, Begun, FEED_CHUNKS, Read},
        },
    },
};

/// Content of a file or of a range of it, with the metadata of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// Size, modification time and entity tag of the whole file when its content was read.
    pub stat: Stat,
    /// Bytes of the file or the range.
    pub bytes: Vec<u8>,
}

/// Metadata of a name, with the attributes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Kind, size, modification time and entity tag.
    pub stat: Stat,
    /// Attributes that a file was written with; empty if it has none.
    pub attributes: ObjectAttributes,
}

impl Client {
    /// Returns the metadata of a name as [`stat`](Self::stat), with the attributes of a file.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let head = client.head(&nicstripe::Name::parse(b"index.html")?).await?;
    /// println!("{} bytes, {:?}", head.stat.size, head.attributes.get("content-type"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`stat`](Self::stat).
    pub async fn head(&self, name: &Name) -> Result<Head, Error> {
        match self.ask(AskKind::Stat { name: name.clone() }).await? {
            AnswerKind::Stat { stat, attributes } => Ok(Head {
                stat: Stat::of_wire(stat),
                attributes: attributes.unwrap_or_default(),
            }),
            _ => Err(self.nonsense()),
        }
    }

    /// Returns the kind, size and modification time of a name. A symbolic link is [`Kind::Other`],
    /// whatever its target.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let name = nicstripe::Name::parse(b"backup/config")?;
    /// match client.stat(&name).await {
    ///     Ok(stat) => println!("{} bytes", stat.size),
    ///     Err(error) if error.is_not_found() => println!("not there"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The name does not exist ([`Error::is_not_found`]) or cannot be examined, or the daemon
    /// cannot be reached.
    pub async fn stat(&self, name: &Name) -> Result<Stat, Error> {
        self.head(name).await.map(|head| head.stat)
    }

    /// Removes a file or an empty directory. The removal is durable when the call returns.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// client.remove(&nicstripe::Name::parse(b"backup/old")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The name does not exist ([`Error::is_not_found`]); a directory is not empty
    /// ([`FailCode::Exists`](crate::FailCode::Exists)); the peer may not remove
    /// ([`FailCode::NotPermitted`](crate::FailCode::NotPermitted)). After [`Error::Ended`], or if the
    /// call is dropped, the file may or may not have been removed: a repeated call that finds no such
    /// name means that it was.
    pub async fn remove(&self, name: &Name) -> Result<(), Error> {
        self.change(
            AskKind::Remove {
                name: name.clone(),
                only_if: None,
                kind: None,
            },
            None,
        )
        .await
    }

    /// Removes a file if it has this entity tag, from [`Stat`], [`Report`](crate::Report) or a reader.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{FailCode, Name};
    ///
    /// let name = Name::parse(b"queue/1")?;
    /// if let Some(tag) = client.stat(&name).await?.etag {
    ///     match client.remove_if(&name, tag).await {
    ///         Err(error) if error.fail_code() == Some(FailCode::Precondition) => {
    ///             println!("it changed meanwhile, and stays");
    ///         }
    ///         removed => removed?,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove); the file has another tag
    /// ([`FailCode::Precondition`](crate::FailCode::Precondition)); the daemon knows no tags
    /// ([`Error::Unsupported`]).
    pub async fn remove_if(&self, name: &Name, tag: ETag) -> Result<(), Error> {
        let only_if = Some(tag);
        let name = name.clone();
        self.change(
            AskKind::Remove {
                name,
                only_if,
                kind: None,
            },
            only_if,
        )
        .await
    }

    /// Renames a file or directory atomically.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// # use nicstripe::{Name, RenameOptions};
    /// let (new, index) = (Name::parse(b"index.new")?, Name::parse(b"index")?);
    /// client.rename(&new, &index, RenameOptions::replacing()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Client::remove`]; without `replace`, the new name exists
    /// ([`FailCode::Exists`](crate::FailCode::Exists)). After [`Error::Ended`], or if the call is
    /// dropped, it may or may not have been carried out: if a repeated call does not find the old name
    /// and the new one exists, it was.
    pub async fn rename(
        &self,
        from: &Name,
        to: &Name,
        options: RenameOptions,
    ) -> Result<(), Error> {
        let RenameOptions {
            replace, only_if, ..
        } = options;
        self.make_parents(to, options).await?;
        let ask = AskKind::Rename {
            from: from.clone(),
            to: to.clone(),
            replace,
            only_if,
        };
        self.change(ask, only_if).await
    }

    pub(super) async fn make_parents(
        &self,
        to: &Name,
        options: RenameOptions,
    ) -> Result<(), Error> {
        match to.parent().filter(|_| options.parents) {
            Some(dir) => self.make_dir(&dir).await,
            None => Ok(()),
        }
    }

    /// Creates a directory and its missing parents. Succeeds if the directory exists.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// client.make_dir(&nicstripe::Name::parse(b"backup/data/00")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A file has one of the names ([`FailCode::NotADirectory`](crate::FailCode::NotADirectory)), or the peer may only read. If the call
    /// is dropped, the directory may have been created all the same.
    pub async fn make_dir(&self, name: &Name) -> Result<(), Error> {
        self.change(AskKind::MakeDir { name: name.clone() }, None)
            .await
    }

    /// Opens a file for sequential or random reads. Transfers nothing before the first read.
    ///
    /// A reader that reads on from its first 1 MiB counts towards
    /// [`MOST_TRANSFERS`](crate::MOST_TRANSFERS) until the end of the file, even if the program reads
    /// slowly. If a program waits for another transfer while that many are not read on, the wait ends
    /// with [`Error::Crowded`].
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::io::{AsyncReadExt, AsyncSeekExt};
    ///
    /// let mut object = client.open(&nicstripe::Name::parse(b"disk.img")?).await?;
    /// object.seek(std::io::SeekFrom::End(-512)).await?;
    /// let mut last = [0; 512];
    /// object.read_exact(&mut last).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Client::stat`]; the name is not a file
    /// ([`FailCode::NotAFile`](crate::FailCode::NotAFile)).
    pub async fn open(&self, name: &Name) -> Result<ObjectReader, Error> {
        let stat = self.stat_of_file(name).await?;
        Ok(ObjectReader::new(self.clone(), name.clone(), stat))
    }

    pub(super) async fn stat_of_file(&self, name: &Name) -> Result<Stat, Error> {
        let stat = self.stat(name).await?;
        if stat.kind == Kind::File {
            return Ok(stat);
        }
        let text = format!("cannot read \"{name}\": it is not a regular file");
        Err(Error::peer(self.host(), FailCode::NotAFile, text))
    }

    /// Opens a range of a file, and fetches it at once: the data arrive with the answer. The reader
    /// ends where the range does; otherwise it is that of [`open`](Self::open). Several readers with
    /// the same [`OpenOptions::only_if`] read parts of the same content.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, OpenOptions};
    /// use tokio::io::AsyncReadExt;
    ///
    /// let name = Name::parse(b"table.parquet")?;
    /// let options = OpenOptions { range: Some(4..1 << 20), ..OpenOptions::default() };
    /// let mut part = client.open_with(&name, options).await?;
    /// println!("of {} bytes, tag {:?}", part.stat().size, part.stat().etag);
    /// let mut bytes = Vec::new();
    /// part.read_to_end(&mut bytes).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read); the file has another tag
    /// ([`FailCode::Precondition`](crate::FailCode::Precondition)); with a tag, the daemon knows none
    /// ([`Error::Unsupported`]).
    pub async fn open_with(
        &self,
        name: &Name,
        options: OpenOptions,
    ) -> Result<ObjectReader, Error> {
        ObjectReader::open(self.clone(), name.clone(), options).await
    }

    /// Reads a file, or a range of it, into memory. `Ok` means that the bytes are verified to be those
    /// the daemon read. A range may begin anywhere in the file or at its end, and is truncated to the
    /// file.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let name = nicstripe::Name::parse(b"backup/config")?;
    /// let whole = client.read(&name, None).await?;
    /// let first = client.read(&name, Some(0..16)).await?;
    /// assert_eq!(whole[..first.len()], first[..]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The file does not exist ([`Error::is_not_found`]); the range begins past its end, or ends
    /// before it begins ([`FailCode::Range`](crate::FailCode::Range)); the file cannot be read, or
    /// changed while it was read; the daemon cannot be reached.
    pub async fn read(&self, name: &Name, range: Option<Range<u64>>) -> Result<Vec<u8>, Error> {
        let range = range.map(|range| get_range(name, range)).transpose()?;
        let mut bytes = Vec::new();
        let take = |part: Part<'_>| match part {
            Part::Left(left) => bytes.reserve(left.min(MOST_RESERVED) as usize),
            Part::Bytes(more) => bytes.extend_from_slice(more),
        };
        self.take_all(name, range, take).await?;
        Ok(bytes)
    }

    /// Reads a file or a range of it into memory, with the metadata of the file at that time, in one
    /// round trip; otherwise as [`read`](Self::read).
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{Name, OpenOptions};
    ///
    /// let name = Name::parse(b"index")?;
    /// let head = client.read_with(&name, OpenOptions { range: Some(0..64), ..Default::default() });
    /// let head = head.await?;
    /// // The rest of the same content, or an error.
    /// let rest = OpenOptions { range: Some(64..head.stat.size), only_if: head.stat.etag };
    /// let rest = client.read_with(&name, rest).await?;
    /// assert_eq!(head.stat.etag, rest.stat.etag);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`open_with`](Self::open_with).
    pub async fn read_with(&self, name: &Name, options: OpenOptions) -> Result<Content, Error> {
        let mut reader = self.open_with(name, options).await?;
        let mut bytes = Vec::with_capacity(reader.left().min(MOST_RESERVED) as usize);
        while let Some(chunk) = reader.next_chunk().await? {
            bytes.extend_from_slice(chunk.as_ref());
        }
        Ok(Content {
            stat: *reader.stat(),
            bytes,
        })
    }

    /// Reads a range of a file into memory of the caller, from `offset` on. Returns the number of
    /// bytes, which is less than the length of `into` at the end of the file. `Ok` means that they are
    /// verified to be those the daemon read; after an error the content of `into` is arbitrary.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let mut block = vec![0; 4 << 20];
    /// let len = client.read_into(&nicstripe::Name::parse(b"disk.img")?, 512, &mut block).await?;
    /// println!("{} bytes", block[..len].len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub async fn read_into(
        &self,
        name: &Name,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        let len = into.len() as u64;
        let mut at = 0;
        let take = |part: Part<'_>| {
            if let Part::Bytes(more) = part {
                into[at..at + more.len()].copy_from_slice(more);
                at += more.len();
            }
        };
        self.take_all(name, Some(GetRange { offset, len }), take)
            .await?;
        Ok(at)
    }

    /// Passes a file, or a range of it, to `take` part by part, never more than was requested.
    async fn take_all(
        &self,
        name: &Name,
        range: Option<GetRange>,
        mut take: impl FnMut(Part<'_>),
    ) -> Result<(), Error> {
        let (transfer, mut chunks) = self.fetch(name.clone(), range);
        let most = range.map_or(u64::MAX, |range| range.len);
        let (mut taken, mut first) = (0, None);
        while let Some(read) = chunks.recv().await {
            match read {
                Read::Begun(Begun { found, .. }) => {
                    let first = *first.get_or_insert(found);
                    // After a lost session, of what is left.
                    let size = first.size.saturating_sub(taken);
                    if found != (SourceIdentity { size, ..first }) {
                        return Err(self.changed(name, "while it was read"));
                    }
                    take(Part::Left(size.min(most)));
                }
                Read::Chunk(buffer) => {
                    taken += buffer.bytes().len() as u64;
                    if taken > most {
                        let text = format!("sent more of \"{name}\" than requested");
                        return Err(Error::peer(self.host(), FailCode::Protocol, text));
                    }
                    take(Part::Bytes(buffer.bytes()));
                }
            }
        }
        transfer.finish().await.map(drop)
    }

    /// Creates a file of unknown length. The daemon gives the complete file its name, atomically,
    /// when the writer is [finished](ObjectWriter::finish); a writer dropped earlier leaves
    /// nothing. Counts towards [`MOST_TRANSFERS`](crate::MOST_TRANSFERS) until then.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let options = CopyOptions { parents: true, ..CopyOptions::default() };
    /// let mut object = client.create(&Name::parse(b"logs/today")?, options);
    /// object.write_all(b"a line\n").await?;
    /// let report = object.finish().await?;
    /// println!("{} bytes are durable", report.size);
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(&self, name: &Name, options: CopyOptions) -> ObjectWriter {
        self.create_with(name, options, &ObjectAttributes::new())
    }

    /// Creates a file of unknown length with attributes, which [`head`](Self::head) returns; otherwise as
    /// [`create`](Self::create). It has them when it gets its name. A daemon that does not keep them fails
    /// the transfer.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name, ObjectAttributes};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let mut attributes = ObjectAttributes::new();
    /// attributes.set("content-type", "text/html")?;
    /// let name = Name::parse(b"index.html")?;
    /// let mut object = client.create_with(&name, CopyOptions::default(), &attributes);
    /// object.write_all(b"<p>hello").await?;
    /// object.finish().await?;
    /// assert_eq!(client.head(&name).await?.attributes, attributes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_with(
        &self,
        name: &Name,
        options: CopyOptions,
        attributes: &ObjectAttributes,
    ) -> ObjectWriter {
        // Two buffers: one being filled, one being sent.
        let (chunks, from) = mpsc::channel(FEED_CHUNKS);
        let attributes = Some(attributes).filter(|attributes| !attributes.is_empty());
        let upload = Upload {
            name: name.clone(),
            into: None,
            options: options.on_wire(),
            attributes: attributes.cloned(),
        };
        let needed = match attributes {
            Some(_) => Some(Feature::Objects),
            // A daemon that does not know slices would make a file of each.
            None if options.slice.is_some() => Some(Feature::Shares),
            None => options.only_if.map(|_| Feature::Tags),
        };
        let source = Once::object(object::source(from, upload)).needing(needed);
        let transfer = self.start(source);
        ObjectWriter::new(transfer, chunks, self.inner.buffers.clone())
    }

    /// Writes a file from memory. `Ok` means that the file is durable under its name.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// # use nicstripe::{CopyOptions, Name};
    /// let options = CopyOptions { replace: true, ..CopyOptions::default() };
    /// client.write(&Name::parse(b"config")?, "version = 2", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Client::put`]: the name exists ([`FailCode::Exists`](crate::FailCode::Exists), also if
    /// the session was lost after this very call had created it), the peer may not write, the disk is
    /// full. If the call is dropped, the file is whole under its name or absent.
    pub async fn write(
        &self,
        name: &Name,
        bytes: impl AsRef<[u8]>,
        options: CopyOptions,
    ) -> Result<Report, Error> {
        self.write_with(name, bytes, options, &ObjectAttributes::new())
            .await
    }

    /// Writes a file with attributes from memory; otherwise as [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write); the daemon, its storage or its file system keeps no attributes.
    pub async fn write_with(
        &self,
        name: &Name,
        bytes: impl AsRef<[u8]>,
        options: CopyOptions,
        attributes: &ObjectAttributes,
    ) -> Result<Report, Error> {
        let events = self.inner.settings.session.events.as_ref();
        let mut reconnects = Reconnects::new(&self.inner);
        loop {
            let mut writer = self.create_with(name, options, attributes);
            writer.take(bytes.as_ref()).await;
            match writer.finish().await {
                Ok(report) => return Ok(report),
                // The bytes are still here.
                Err(Error::Pipe(error)) => reconnects.again(*error, 0, events).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts to fetch a file or a range of it. Returns the transfer, and a channel that receives
    /// the chunks in order.
    pub(super) fn fetch(
        &self,
        name: Name,
        range: Option<GetRange>,
    ) -> (Transfer, mpsc::Receiver<Read>) {
        // A short range fits in, so that its transfer ends even if the program does not read.
        let most = range.map_or(u64::MAX, |range| range.len);
        let chunks = match most <= FIRST_PART {
            true => FIRST_PART.div_ceil(ChunkSize::DEFAULT.bytes()) as usize + 1,
            false => FEED_CHUNKS,
        };
        let (to, chunks) = mpsc::channel(chunks);
        let limit_bps = self.inner.limit_bps();
        let download = download_of(name, limit_bps, CopyOptions::default(), range);
        let transfer = self.start(ObjectDownload::new(download, to));
        (transfer, chunks)
    }

    /// Requests a change, which may depend on a tag.
    async fn change(&self, ask: AskKind, only_if: Option<ETag>) -> Result<(), Error> {
        let feature = match only_if {
            Some(_) => Feature::Tags,
            None => Feature::Names,
        };
        match self.ask_for(feature, ask).await? {
            AnswerKind::Done => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    /// Sends a name request and waits for the answer. The daemon may still carry out the request if
    /// the call is dropped.
    async fn ask(&self, ask: AskKind) -> Result<AnswerKind, Error> {
        self.ask_for(Feature::Names, ask).await
    }

    /// Sends a request of this feature and waits for the answer.
    pub(super) async fn ask_for(
        &self,
        feature: Feature,
        ask: AskKind,
    ) -> Result<AnswerKind, Error> {
        let events = self.inner.settings.session.events.as_ref();
        let mut reconnects = Reconnects::new(&self.inner);
        loop {
            match self.try_to_ask(feature, ask.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered { error, is_sent }) if is_sent && !is_repeatable(&ask) => {
                    return Err(error);
                }
                Err(Unanswered { error, .. }) => reconnects.again(error, 0, events).await?,
            }
        }
    }

    /// Returns the session with the daemon, which must support a feature.
    pub(super) async fn session_with(&self, feature: Feature) -> Result<LinkedSession, Error> {
        let events = self.inner.settings.session.events.as_ref();
        let session = self.inner.session_of(None, events).await?;
        session.peer.require(feature, self.host())?;
        Ok(session)
    }

    async fn try_to_ask(&self, feature: Feature, ask: AskKind) -> Result<AnswerKind, Unanswered> {
        let session = self.session_with(feature).await;
        let session = session.map_err(Unanswered::unsent)?;
        self.ask_on(&session, ask).await
    }

    /// Sends a request in a session and waits for the answer.
    pub(super) async fn ask_on(
        &self,
        session: &LinkedSession,
        ask: AskKind,
    ) -> Result<AnswerKind, Unanswered> {
        let ended = || Error::ended(self.host(), "without an answer");
        let (reply, answer) = oneshot::channel();
        match session.handle.command(Command::Ask { ask, reply }).await {
            true => answer.await.unwrap_or_else(|_| Err(ended().into())),
            false => Err(Unanswered::unsent(ended())),
        }
    }

    pub(super) fn changed(&self, name: &Name, since: &str) -> Error {
        let text = format!("cannot read \"{name}\": it changed {since}");
        Error::peer(self.host(), FailCode::SourceChanged, text)
    }

    /// Returns the error for an answer of the wrong kind. Does not occur in practice, because the
    /// session rejects such answers.
    pub(super) fn nonsense(&self) -> Error {
        Error::ended(self.host(), "unexpected kind of answer")
    }
}

/// Returns true if a request may be resent although the daemon may have carried it out.
fn is_repeatable(ask: &AskKind) -> bool {
    match ask {
        AskKind::List { .. }
        | AskKind::Walk { .. }
        | AskKind::Stat { .. }
        | AskKind::MakeDir { .. } => true,
        // These have parts, which are those of one session.
        AskKind::Copy { .. }
        | AskKind::Concat { .. }
        | AskKind::Hash { .. }
        | AskKind::FetchKey
        | AskKind::Admit { .. }
        | AskKind::Fetch(_)
        | AskKind::RemoveMany { .. } => false,
        // Parts of facts belong together, and are those of one session.
        AskKind::Remove { .. } | AskKind::Rename { .. } | AskKind::Facts { .. } => false,
    }
}

/// Part of a file that is read into memory.
enum Part<'a> {
    /// Number of bytes that will follow, as the daemon announces it.
    Left(u64),
    Bytes(&'a [u8]),
}

/// Maximum bytes that a read into memory allocates in advance; the buffer grows as data arrives.
const MOST_RESERVED: u64 = 64 << 20;
