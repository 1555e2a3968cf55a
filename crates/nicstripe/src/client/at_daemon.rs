//! Work on files that stay at the daemon: copies, reads, and the removal of many.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    FailCode, Name, ObjectAttributes,
    message::{AnswerKind, AskKind, Feature, MOST_REMOVED, MOST_REMOVED_BYTES, ObjectKind},
};

use super::{handle::Client, reconnects::Reconnects};
use crate::{file::options::RenameOptions, report::error::Error, storage::Stat};

/// Name that [`Client::remove_many`] could not remove.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotRemoved {
    /// Name as it was given.
    pub name: Name,
    /// Reason; [`Error::is_not_found`] if there was no such name.
    pub error: Error,
}

/// File that is made of others.
struct Whole<'a> {
    parts: &'a [Name],
    to: &'a Name,
    options: RenameOptions,
    attributes: Option<&'a ObjectAttributes>,
}

impl Client {
    /// Copies a file at the daemon. No data crosses the links; a file system that can share blocks
    /// copies none. The copy gets its name, atomically, when it is complete and durable: its
    /// permission bits are those of the file, its modification time is now. Returns its metadata.
    ///
    /// At most 8 copies of a client run at once; further ones wait. A call that is dropped leaves
    /// nothing.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{Name, RenameOptions};
    ///
    /// let (disk, snapshot) = (Name::parse(b"disk.img")?, Name::parse(b"snapshots/1/disk.img")?);
    /// let options = RenameOptions { parents: true, ..RenameOptions::default() };
    /// println!("{:?}", client.copy(&disk, &snapshot, options).await?.etag);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `from` does not exist ([`Error::is_not_found`]), is no file
    /// ([`FailCode::NotAFile`](crate::FailCode::NotAFile)), changes meanwhile
    /// ([`FailCode::SourceChanged`](crate::FailCode::SourceChanged)) or has another tag
    /// ([`FailCode::Precondition`](crate::FailCode::Precondition)); `to` exists and `replace` is not
    /// set ([`FailCode::Exists`](crate::FailCode::Exists), also if the session was lost after this
    /// very call had made the copy); the peer may not write; the disk is full; the daemon does not
    /// support copies ([`Error::Unsupported`]).
    pub async fn copy(
        &self,
        from: &Name,
        to: &Name,
        options: RenameOptions,
    ) -> Result<Stat, Error> {
        self.make_parents(to, options).await?;
        let moved = AtomicU64::new(0);
        self.in_parts(Some(to), &moved, || {
            self.copy_once(from, to, options, &moved)
        })
        .await
    }

    /// Makes a copy in one session, part by part. `moved` is how far any attempt came.
    async fn copy_once(
        &self,
        from: &Name,
        to: &Name,
        options: RenameOptions,
        moved: &AtomicU64,
    ) -> Result<Stat, Error> {
        let session = self.session_with(Feature::Objects).await?;
        let mut offset = 0;
        loop {
            let part = AskKind::Copy {
                from: from.clone(),
                to: to.clone(),
                replace: options.replace,
                only_if: options.only_if,
                offset,
            };
            match self.ask_on(&session, part).await? {
                AnswerKind::Copied {
                    copy: Some(stat), ..
                } => return Ok(Stat::of_wire(stat)),
                AnswerKind::Copied { upto, .. } => {
                    moved.fetch_max(upto, Ordering::Relaxed);
                    offset = upto;
                }
                _ => return Err(self.nonsense()),
            }
        }
    }

    /// Makes one file of others at the daemon, in their order. No data crosses the links; a file system
    /// that can share blocks copies those that are aligned. The file gets its name, atomically, when it
    /// is complete and durable. Returns its metadata. The parts remain: see
    /// [`remove_many`](Self::remove_many).
    ///
    /// So an upload may be in parts: each is written by its own call, at the same time as the others, from
    /// this process or another one, and is durable once that returns; [`list`](Self::list) shows which are
    /// there.
    ///
    /// `only_if` is the tag of the file that is replaced, which implies `replace`.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{Name, RenameOptions};
    ///
    /// let parts = [Name::parse(b"upload/1")?, Name::parse(b"upload/2")?, Name::parse(b"upload")?];
    /// let disk = Name::parse(b"disk.img")?;
    /// client.concat(&parts[..2], &disk, RenameOptions::default()).await?;
    /// client.remove_many(&parts).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`copy`](Self::copy), where `from` is each of the parts.
    pub async fn concat(
        &self,
        parts: &[Name],
        to: &Name,
        options: RenameOptions,
    ) -> Result<Stat, Error> {
        self.concat_with(parts, to, options, &ObjectAttributes::new())
            .await
    }

    /// Makes one file of others with attributes, which [`head`](Self::head) returns; otherwise as
    /// [`concat`](Self::concat). Those of the parts do not count.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, ObjectAttributes, RenameOptions};
    ///
    /// let parts = [Name::parse(b"upload/1")?, Name::parse(b"upload/2")?];
    /// let mut attributes = ObjectAttributes::new();
    /// attributes.set("content-type", "video/mp4")?;
    /// let film = Name::parse(b"film.mp4")?;
    /// client.concat_with(&parts, &film, RenameOptions::default(), &attributes).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`concat`](Self::concat); the daemon, its storage or its file system keeps no attributes.
    pub async fn concat_with(
        &self,
        parts: &[Name],
        to: &Name,
        options: RenameOptions,
        attributes: &ObjectAttributes,
    ) -> Result<Stat, Error> {
        self.make_parents(to, options).await?;
        let moved = AtomicU64::new(0);
        let whole = Whole {
            parts,
            to,
            options,
            attributes: Some(attributes).filter(|attributes| !attributes.is_empty()),
        };
        self.in_parts(Some(to), &moved, || self.concat_once(&whole, &moved))
            .await
    }

    /// Makes one file of others in one session, part by part. `moved` is how far any attempt came.
    async fn concat_once(&self, whole: &Whole<'_>, moved: &AtomicU64) -> Result<Stat, Error> {
        let session = self.session_with(Feature::Objects).await?;
        let mut offset = None;
        for part in whole.parts.iter().map(Some).chain([None]) {
            let mut from = 0;
            loop {
                let ask = AskKind::Concat {
                    part: part.cloned(),
                    from,
                    to: whole.to.clone(),
                    replace: whole.options.replace,
                    only_if: whole.options.only_if,
                    offset,
                    attributes: whole.attributes.filter(|_| offset.is_none()).cloned(),
                };
                let AnswerKind::Copied { upto, copy } = self.ask_on(&session, ask).await? else {
                    return Err(self.nonsense());
                };
                let appended = upto.saturating_sub(offset.unwrap_or(0));
                moved.fetch_max(upto, Ordering::Relaxed);
                (from, offset) = (from.saturating_add(appended), Some(upto));
                match (copy, part) {
                    (Some(stat), None) => return Ok(Stat::of_wire(stat)),
                    (Some(_), Some(_)) => break,
                    (None, _) => {}
                }
            }
        }
        Err(self.nonsense())
    }

    /// Repeats work at the daemon when its session is lost, as long as the client has patience. `moved`
    /// is the number of bytes that any attempt came to. Files of one name `to` are made one after the
    /// other.
    pub(super) async fn in_parts<T, F: Future<Output = Result<T, Error>>>(
        &self,
        to: Option<&Name>,
        moved: &AtomicU64,
        once: impl Fn() -> F,
    ) -> Result<T, Error> {
        let _turn = self.inner.making.turn(to).await;
        let events = self.inner.settings.session.events.as_ref();
        let mut reconnects = Reconnects::new(&self.inner);
        let begun = Instant::now();
        loop {
            match once().await {
                // Work of a session that was lost may hold the name until the daemon notices.
                Err(error)
                    if error.fail_code() == Some(FailCode::Busy)
                        && begun.elapsed() < BUSY_TIMEOUT =>
                {
                    let pause = async { tokio::time::sleep(BUSY_PAUSE).await };
                    self.inner.runtime.run(pause).await?;
                }
                Err(error) => {
                    let moved = moved.load(Ordering::Relaxed);
                    reconnects.again(error, moved, events).await?;
                }
                done => return done,
            }
        }
    }

    /// Reads a file at the daemon, and returns its metadata with the BLAKE3 hash of what was read. No
    /// data crosses the links. If the daemon keeps the hash of the file since it received it, both must
    /// be equal: so this detects what has damaged a file that no one has changed.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{Error, Name};
    ///
    /// match client.verify(&Name::parse(b"disk.img")?).await {
    ///     Err(damaged @ Error::Damaged { .. }) => eprintln!("{damaged}"),
    ///     verified => println!("{:?}", verified?.digest),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The content has not the kept hash ([`Error::Damaged`]); the file does not exist
    /// ([`Error::is_not_found`]), cannot be read, or changes meanwhile
    /// ([`FailCode::SourceChanged`](crate::FailCode::SourceChanged)); the daemon does not support it
    /// ([`Error::Unsupported`]).
    pub async fn verify(&self, name: &Name) -> Result<Stat, Error> {
        let moved = AtomicU64::new(0);
        let once = || self.hash_once(name, None, &moved);
        let (file, _) = self.in_parts(None, &moved, once).await?;
        Ok(Stat {
            digest: Some(file.digest),
            ..Stat::of_wire(file.stat)
        })
    }

    /// Removes files, symbolic links and empty directories in this order, durably. Returns those that
    /// remain; the others are gone when the call returns. Takes one round trip for each 128 names, and
    /// one sync a directory.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::Name;
    ///
    /// let old = [Name::parse(b"log/1")?, Name::parse(b"log/2")?, Name::parse(b"log")?];
    /// for left in client.remove_many(&old).await? {
    ///     eprintln!("{}: {}", left.name, left.error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The daemon cannot be reached, or does not support it ([`Error::Unsupported`]): any of the names
    /// may or may not have been removed.
    pub async fn remove_many(&self, names: &[Name]) -> Result<Vec<NotRemoved>, Error> {
        self.remove_many_of(None, names).await
    }

    /// Removes many names as [`remove_many`](Self::remove_many) does, if they are files. Directories
    /// and other objects remain ([`FailCode::NotAFile`](crate::FailCode::NotAFile)).
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let left = client.remove_files(&[nicstripe::Name::parse(b"maybe-a-directory")?]).await?;
    /// println!("{} remain", left.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`remove_many`](Self::remove_many).
    pub async fn remove_files(&self, names: &[Name]) -> Result<Vec<NotRemoved>, Error> {
        self.remove_many_of(Some(ObjectKind::File), names).await
    }

    /// Removes many names as [`remove_many`](Self::remove_many) does, if they are directories. Those that
    /// are not empty remain ([`FailCode::Exists`](crate::FailCode::Exists)), and so do files
    /// ([`FailCode::NotADirectory`](crate::FailCode::NotADirectory)).
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let left = client.remove_dirs(&[nicstripe::Name::parse(b"perhaps-empty")?]).await?;
    /// println!("{} remain", left.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`remove_many`](Self::remove_many).
    pub async fn remove_dirs(&self, names: &[Name]) -> Result<Vec<NotRemoved>, Error> {
        self.remove_many_of(Some(ObjectKind::Dir), names).await
    }

    async fn remove_many_of(
        &self,
        kind: Option<ObjectKind>,
        names: &[Name],
    ) -> Result<Vec<NotRemoved>, Error> {
        let mut left = Vec::new();
        let mut rest = names;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_of(rest));
            rest = after;
            let names = batch.to_vec();
            let ask = AskKind::RemoveMany { names, kind };
            let AnswerKind::Removed { failed } = self.ask_for(Feature::Objects, ask).await? else {
                return Err(self.nonsense());
            };
            // The session has checked the indices.
            left.extend(failed.into_iter().filter_map(|one| {
                let name = batch.get(one.index as usize)?.clone();
                let error = Error::peer(self.host(), one.code, one.text);
                Some(NotRemoved { name, error })
            }));
        }
        Ok(left)
    }
}

/// Returns how many names fit into one request, at least one.
fn batch_of(names: &[Name]) -> usize {
    let mut bytes = 0;
    let fits = |name: &&Name| {
        bytes += name
            .components()
            .map(|component| component.len() + 3)
            .sum::<usize>()
            + 3;
        bytes <= MOST_REMOVED_BYTES
    };
    names
        .iter()
        .take(MOST_REMOVED)
        .take_while(fits)
        .count()
        .max(1)
}

/// Maximum time for which a copy waits for another transfer to the same name, and how often it looks.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_to_remove_has_names_and_fits_into_a_message() {
        let short = vec![Name::parse(b"a").unwrap(); 1000];
        assert_eq!(batch_of(&short), MOST_REMOVED);
        assert_eq!(batch_of(&short[..5]), 5);
        let deep = Name::new(vec![vec![b'a'; 30]; 100]).unwrap();
        let long = vec![deep; 1000];
        let batch = batch_of(&long);
        assert!((5..20).contains(&batch), "{batch}");
        let ask = AskKind::RemoveMany {
            names: long[..batch].to_vec(),
            kind: Some(ObjectKind::Other),
        };
        let ask = nicstripe_proto::message::Ask { id: u32::MAX, ask };
        let written = minicbor::to_vec(nicstripe_proto::Message::Ask(ask)).unwrap();
        assert!(written.len() < 60 * 1024, "{}", written.len());
    }
}
