//! Files that are put together at a daemon from ranges, under a name of their own until all are there.

use std::{
    fs::Metadata,
    io::{self, SeekFrom},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::SystemTime,
};

use nicstripe::{
    Client, CopyOptions, Error, Kind, LargeFile, Name, NameError, RenameOptions, Slice, Stat,
};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, BufReader, copy_buf};

/// Returns true if the daemon has a directory of this name.
pub(super) async fn is_dir(client: &Client, name: &Name) -> bool {
    let found = client.stat(name).await;
    found.is_ok_and(|found| found.kind == Kind::Dir)
}

/// Distinction of a file from an earlier version: its size and time stand for its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    /// Permission bits, which are not compared.
    pub(super) mode: u32,
}

impl Version {
    pub(super) fn of(found: &Metadata) -> io::Result<Self> {
        Ok(Self {
            size: found.len(),
            modified: found.modified()?,
            mode: found.mode() & 0o777,
        })
    }

    /// Returns true if a file is still this version.
    pub(super) fn is_of(&self, found: &Metadata) -> bool {
        let modified = found.modified().ok();
        (found.len(), modified) == (self.size, Some(self.modified))
    }

    /// Returns true if a copy of this version can have this size and time: a file system keeps times
    /// whole, or in units of 100 ns, of a second or of two.
    pub(super) fn is_kept_as(&self, size: u64, modified: SystemTime) -> bool {
        let (sent, found) = (nanoseconds(self.modified), nanoseconds(modified));
        let units = [1, 100, 1_000_000_000, 2_000_000_000];
        let is_time = |unit: &i128| sent.div_euclid(*unit) * unit == found;
        self.size == size && units.iter().any(is_time)
    }

    /// Returns 16 digits that no other version of a file, and no other name, has.
    pub(super) fn word(&self, name: &Name) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(name.to_string().as_bytes());
        hasher.update(&self.size.to_le_bytes());
        hasher.update(&nanoseconds(self.modified).to_le_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

impl From<&LargeFile> for Version {
    fn from(file: &LargeFile) -> Self {
        Self {
            size: file.size(),
            modified: file.modified(),
            mode: file.mode() & 0o777,
        }
    }
}

/// Why a range is not at the daemon.
#[derive(Debug)]
pub(super) enum SliceError {
    /// The source is not what it was.
    Changed,
    Source(io::Error),
    Target(Error),
}

/// Sends a range of a file here to the file `part` of `size` bytes, durably. The source must be as
/// `is_same` wants before and after.
pub(super) async fn put(
    client: &Client,
    (from, range): (&Path, Range<u64>),
    (part, size): (&Name, u64),
    is_same: impl Fn(&Metadata) -> bool,
) -> Result<(), SliceError> {
    let mut file = tokio::fs::File::open(from)
        .await
        .map_err(SliceError::Source)?;
    check(&file, &is_same).await?;
    let mut writer = client.create(part, options_of(range.start, size));
    let at = SeekFrom::Start(range.start);
    file.seek(at).await.map_err(SliceError::Source)?;
    file.set_max_buf_size(BLOCK);
    let len = range.end - range.start;
    let mut bytes = BufReader::with_capacity(BLOCK, (&mut file).take(len));
    // If the transfer has ended, its result has the reason.
    let copied = copy_buf(&mut bytes, &mut writer).await;
    check(&file, &is_same).await?;
    if copied.is_ok_and(|copied| copied != len) {
        return Err(SliceError::Changed);
    }
    writer.finish().await.map_err(SliceError::Target)?;
    Ok(())
}

async fn check(
    file: &tokio::fs::File,
    is_same: impl Fn(&Metadata) -> bool,
) -> Result<(), SliceError> {
    let found = file.metadata().await.map_err(SliceError::Source)?;
    match is_same(&found) {
        true => Ok(()),
        false => Err(SliceError::Changed),
    }
}

/// Returns how a range from `offset` of a file of `size` bytes is stored.
pub(super) fn options_of(offset: u64, size: u64) -> CopyOptions {
    CopyOptions {
        slice: Some(Slice {
            offset,
            size,
            ..Slice::default()
        }),
        parents: true,
        ..CopyOptions::default()
    }
}

/// Returns what has a name at the daemon; `None` if nothing has.
pub(super) async fn found(client: &Client, name: &Name) -> Result<Option<Stat>, Error> {
    match client.stat(name).await {
        Err(error) if error.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the name `own` next to another one; `None` stands for the root.
pub(super) fn beside(name: Option<&Name>, own: &[u8]) -> Result<Name, NameError> {
    let mut components: Vec<&[u8]> = name.into_iter().flat_map(Name::components).collect();
    components.pop();
    components.push(own);
    Name::new(components)
}

pub(super) async fn name(
    client: &Client,
    whole: &Name,
    to: &Name,
    replace: bool,
) -> Result<(), Error> {
    let options = RenameOptions {
        replace,
        parents: true,
        only_if: None,
    };
    client.rename(whole, to, options).await
}

/// Gives a file of all ranges its time and mode, durably.
pub(super) async fn end(
    client: &Client,
    part: &Name,
    version: Version,
    preserve: bool,
) -> Result<(), Error> {
    let options = CopyOptions {
        slice: Some(Slice {
            offset: version.size,
            size: version.size,
            modified: Some(version.modified),
            mode: Some(version.mode),
        }),
        preserve,
        ..CopyOptions::default()
    };
    client.create(part, options).finish().await.map(drop)
}

/// Returns a time in nanoseconds since 1970.
fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// Bytes that are read or written at a time.
pub(super) const BLOCK: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_the_same_if_the_file_system_keeps_it_less_exactly() {
        let at =
            |seconds, nanoseconds| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        let sent = Version {
            size: 1,
            modified: at(1001, 123_456_789),
            mode: 0,
        };
        for (found, expected) in [
            (sent.modified, true),
            (at(1001, 123_456_700), true),
            (at(1001, 0), true),
            (at(1000, 0), true),
            (at(1001, 123_456_788), false),
            (at(1002, 0), false),
        ] {
            assert_eq!(sent.is_kept_as(1, found), expected, "{found:?}");
            assert!(!sent.is_kept_as(2, found));
        }
    }
}
