//! Listings of directories at the daemon, entry by entry.

use std::collections::VecDeque;

use nicstripe_proto::{
    Name,
    message::{AnswerKind, AskKind, Feature, MOST_ENTRIES, ObjectEntry, walk_key},
};

use super::handle::Client;
use crate::{report::error::Error, storage::Stat};

/// Entry of a directory at the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Name of the entry within the directory that is listed: one component, or several of a
    /// [walk](Client::walk).
    pub name: Name,
    /// Kind, size, modification time and entity tag of the entry.
    pub stat: Stat,
}

impl Client {
    /// Returns the entries of a directory (`None`: the daemon's root), sorted by the bytes of their
    /// names. Omits incomplete files.
    ///
    /// Holds the whole list in memory, about 200 bytes per entry; [`entries`](Self::entries) holds
    /// one page. Entries that appear or vanish during the call may or may not be included.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// for entry in client.list(None).await? {
    ///     println!("{:>12} {}", entry.stat.size, entry.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The directory does not exist ([`Error::is_not_found`]) or cannot be read, or the daemon
    /// cannot be reached.
    pub async fn list(&self, dir: Option<&Name>) -> Result<Vec<Entry>, Error> {
        let mut entries = self.entries(dir.cloned());
        let mut all = Vec::new();
        while let Some(entry) = entries.next().await? {
            all.push(entry);
        }
        Ok(all)
    }

    /// Returns the entries of a directory one by one (`None`: the daemon's root). Requests a page
    /// of the listing when the previous one is consumed.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let mut entries = client.entries(Some(nicstripe::Name::parse(b"photos")?));
    /// while let Some(entry) = entries.next().await? {
    ///     println!("{}", entry.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries(&self, dir: Option<Name>) -> Entries {
        Entries {
            client: self.clone(),
            dir,
            is_deep: false,
            digests: false,
            page: VecDeque::new(),
            after: None,
            is_complete: false,
            left: MOST_NAMES,
        }
    }

    /// Returns the entries of a directory (`None`: the daemon's root) and of all directories below it,
    /// one by one, with names relative to it. Sorted by the bytes of the names with a `/` between
    /// components and behind directories: a directory comes before what is in it, and files have the
    /// order of their keys in an object store. Follows no symbolic links.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let mut entries = client.walk(None);
    /// let mut bytes = 0;
    /// while let Some(entry) = entries.next().await? {
    ///     bytes += if entry.stat.kind == nicstripe::Kind::File { entry.stat.size } else { 0 };
    /// }
    /// println!("{bytes} bytes in all files");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Its first entry is an error if the daemon does not support it ([`Error::Unsupported`]).
    pub fn walk(&self, dir: Option<Name>) -> Entries {
        Entries {
            is_deep: true,
            ..self.entries(dir)
        }
    }
}

/// Listing of a directory, entry by entry; see [`Client::entries`] and [`Client::walk`].
#[derive(Debug)]
pub struct Entries {
    client: Client,
    dir: Option<Name>,
    /// True for the directories below, too.
    is_deep: bool,
    digests: bool,
    page: VecDeque<Entry>,
    after: Option<Vec<u8>>,
    is_complete: bool,
    /// Number of names that may follow.
    left: u64,
}

impl Entries {
    /// Sets the number of names after which the listing fails, 16,777,216 by default. A daemon could
    /// name entries without an end.
    pub fn at_most(mut self, names: u64) -> Self {
        self.left = names;
        self
    }

    /// Asks for the BLAKE3 hash of each file, if the daemon knows it: [`Stat::digest`] is `None`
    /// for all entries otherwise.
    pub fn with_digests(mut self) -> Self {
        self.digests = true;
        self
    }

    /// Begins behind a name, which need not exist: with the first one that is greater, in the order of
    /// the entries.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let since = nicstripe::Name::parse(b"2026-11-01")?;
    /// let mut entries = client.entries(None).after(&since);
    /// println!("{:?}", entries.next().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, name: &Name) -> Self {
        self.after = Some(name.to_bytes());
        self
    }

    /// Returns the next entry, or `None` after the last. Cancel safe.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut entries = client.entries(None);
    /// while let Some(entry) = entries.next().await? {
    ///     println!("{:?} {}", entry.stat.kind, entry.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Client::list`]; a repeated call continues at the same place.
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        while self.page.is_empty() && !self.is_complete {
            let (entries, more) = self.next_page().await?;
            self.is_complete = !more;
            let count = entries.len() as u64;
            let left = self.left.checked_sub(count);
            self.left = left.ok_or_else(|| self.endless("has more names than are read"))?;
            if more && count == 0 {
                return Err(self.endless("has no names in a page, and more of them"));
            }
            if let Some(last) = entries.last() {
                self.after = Some(match self.is_deep {
                    true => walk_key(&last.name, last.stat.kind),
                    false => last.name.clone(),
                });
            }
            for entry in entries {
                self.page.push_back(Entry {
                    name: Name::new(entry.name.split(|byte| *byte == b'/'))?,
                    stat: Stat::of_wire(entry.stat),
                });
            }
        }
        Ok(self.page.pop_front())
    }

    async fn next_page(&self) -> Result<(Vec<ObjectEntry>, bool), Error> {
        let (dir, after) = (self.dir.clone(), self.after.clone());
        let (most, digests) = (MOST_ENTRIES, self.digests);
        let (feature, ask) = match self.is_deep {
            true => (
                Feature::Objects,
                AskKind::Walk {
                    dir,
                    after,
                    most,
                    digests,
                },
            ),
            false => (
                Feature::Names,
                AskKind::List {
                    dir,
                    after,
                    most,
                    digests,
                },
            ),
        };
        match self.client.ask_for(feature, ask).await? {
            AnswerKind::Entries { entries, more } | AnswerKind::Walked { entries, more } => {
                Ok((entries, more))
            }
            _ => Err(self.client.nonsense()),
        }
    }

    fn endless(&self, why: &str) -> Error {
        Error::ended(self.client.host(), format!("its listing {why}"))
    }
}

/// Names of a directory after which a listing fails: ten times as many as ext4 serves well.
const MOST_NAMES: u64 = 1 << 24;
