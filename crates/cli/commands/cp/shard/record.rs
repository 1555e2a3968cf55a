//! Record of the shares of a copy, next to its target: their number, the listing of the source, the shares
//! in progress and those done. The last share removes it.

use std::{io, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use nicstripe::{Client, Name, NameError, Share};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{
    super::slices::beside,
    pieces::is_of_pieces,
    store::{Hold, Store},
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    text::invocation::Invocation,
};

/// Values that all processes must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    pub(super) shares: u32,
    /// BLAKE3 of the listing of the source; `None` if the daemon lists it.
    pub(super) listing: Option<String>,
}

#[derive(Debug)]
pub(super) struct Record(Store);

/// Share that this process copies. Dropped, it is left to another process.
pub(in crate::commands::cp) struct Held {
    record: Record,
    hold: Hold,
}

impl Record {
    /// Returns the record of a copy to a directory of a daemon (`None`: its root) of sources with these
    /// names.
    pub(super) fn at_daemon(
        client: &Client,
        target: Option<&Name>,
        sources: &[&[u8]],
    ) -> Result<Self, NameError> {
        let own = dir_name(target.map_or(&[], Name::file_name), sources);
        Ok(Self(Store::AtDaemon {
            client: client.clone(),
            dir: beside(target, &own)?,
        }))
    }

    pub(super) fn here(target: &Path, sources: &[&[u8]]) -> Self {
        let leaf = target.file_name().unwrap_or_default();
        let parent = match target.file_name() {
            Some(_) => target.parent().unwrap_or(Path::new("")),
            None => target,
        };
        let own = dir_name(leaf.as_bytes(), sources);
        Self(Store::Here {
            dir: parent.join(std::ffi::OsStr::from_bytes(&own)),
        })
    }

    /// Takes a share. All processes must agree; `restart` begins a new record if this one does not.
    pub(super) async fn hold(
        self,
        share: Share,
        agreed: &Agreed,
        restart: bool,
    ) -> Result<Held, Failure> {
        let text = serde_json::to_vec(agreed)
            .map_err(io::Error::from)
            .map_err(Failure::Output)?;
        let mut tries = 0;
        while !self.0.write_new(AGREED, &text).await? {
            let there = match self.read().await? {
                Some(there) => there,
                // It is being written, or was removed meanwhile.
                None if tries < MOST_TRIES => {
                    tries += 1;
                    sleep(PAUSE).await;
                    continue;
                }
                None => return Err(self.invalid()),
            };
            if there == *agreed {
                break;
            }
            if !restart {
                return Err(self.disagreement(&there, agreed));
            }
            self.remove(there.shares).await?;
        }
        match self.0.hold(&share.number().to_string()).await? {
            Some(hold) => Ok(Held { record: self, hold }),
            None => {
                let text = format!(
                    "another process copies share {share} now, as recorded in {}",
                    self.0
                );
                Err(Fault::new(Exit::Temporary, text).into())
            }
        }
    }

    fn disagreement(&self, there: &Agreed, here: &Agreed) -> Failure {
        match there.shares == here.shares {
            false => refused(format!(
                "this copy has {} shares, but {} are recorded in {}",
                here.shares, there.shares, self.0
            )),
            true => refused(format!(
                "the source is not the one of the other shares: its names or sizes differ from those recorded in {}",
                self.0
            )),
        }
    }

    /// Reads what is agreed; `None` if there is no record.
    async fn read(&self) -> Result<Option<Agreed>, Failure> {
        let Some(text) = self.0.read(AGREED, MOST_AGREED).await? else {
            return Ok(None);
        };
        let agreed = serde_json::from_slice(&text).ok();
        let agreed = agreed.filter(|agreed: &Agreed| agreed.shares <= Share::MOST);
        agreed.map(Some).ok_or_else(|| self.invalid())
    }

    fn invalid(&self) -> Failure {
        refused(format!("the record {} is not one of this version", self.0))
    }

    async fn remove(&self, shares: u32) -> Result<(), Failure> {
        for (sub, _) in self.0.list().await? {
            if is_of_pieces(&sub) {
                self.0.sub(&sub)?.clear().await?;
            }
        }
        let numbers = (1..=shares).map(|number| number.to_string());
        let files: Vec<String> = numbers.chain([AGREED.to_owned()]).collect();
        self.0.remove(&files).await?;
        self.0.remove_dir().await
    }
}

impl Held {
    /// Returns where the processes agree about pieces of large files.
    pub(super) fn store(&self) -> &Store {
        &self.record.0
    }

    /// Marks the share as done. Returns the record if all are, which is then removed.
    ///
    /// # Errors
    ///
    /// All shares are done, but some of the large files are not complete.
    pub(super) async fn done(self) -> Result<Option<Complete>, Failure> {
        let Self { record, hold } = self;
        let agreed = record.read().await?;
        hold.mark().await?;
        let Some(Agreed { shares, .. }) = agreed else {
            return Ok(None);
        };
        let found = record.0.list().await?;
        let is_done = |(file, size): &&(String, u64)| file.parse::<u32>().is_ok() && *size > 0;
        if found.iter().filter(is_done).count() < shares as usize {
            return Ok(None);
        }
        match found.iter().filter(|(sub, _)| is_of_pieces(sub)).count() {
            0 => Ok(Some(Complete { record, shares })),
            files => Err(refused(format!(
                "all shares are done, but {files} large files are not complete, as recorded in {}",
                record.0
            ))),
        }
    }
}

/// Record with all shares done.
pub(super) struct Complete {
    record: Record,
    shares: u32,
}

impl Complete {
    pub(super) async fn remove(self) -> Result<(), Failure> {
        self.record.remove(self.shares).await
    }
}

/// Returns the name of the directory of a record: that of the target, and a hash of the names of the sources,
/// so that copies of different things to one directory do not meet.
fn dir_name(target: &[u8], sources: &[&[u8]]) -> Vec<u8> {
    let mut names = sources.to_vec();
    names.sort_unstable();
    let hash = blake3::hash(&names.join(&b'/'));
    let hash = &hash.to_hex()[..8];
    // A long name of a target leaves no room for more.
    let target = target
        .get(..target.len().min(LONGEST_TARGET))
        .unwrap_or_default();
    [b".", target, b".", hash.as_bytes(), ENDING.as_bytes()].concat()
}

/// Attempts to read a record that another process writes or removes, and the time between two.
const MOST_TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// End of the name of a record, which [`filters`](crate::commands::cp::filters) excludes from trees.
const ENDING: &str = ".nicstripe-shares";

/// Name of the file with what all processes agree on. The other files have the numbers of shares.
const AGREED: &str = "agreed";

/// Maximum size of that file in bytes.
const MOST_AGREED: u64 = 4096;

/// Longest part of the target's name in that of the record: 255 less what is added to it.
const LONGEST_TARGET: usize = 200;

/// Returns the error of a record with which this process cannot continue.
fn refused(text: String) -> Failure {
    let again = Invocation::of_this_process().with_flag("--no-resume");
    let hint = format!("if no other share is being copied, begin anew: {again}");
    Fault::new(Exit::Refused, text).with_hint(hint).into()
}
