//! Items of a list: keys, and prefixes that several keys share.

use nicstripe::{Kind, Stat};

use super::{flat::Flat, walk::Walk};
use crate::{
    names::{Bucket, LONGEST_KEY, UPLOADS},
    protocol::error::{Code, S3Error},
    store::Store,
};

/// Keys that a list is of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) prefix: String,
    /// Text that ends what keys share; empty to list each key.
    pub(super) delimiter: String,
    /// Key or prefix behind which the list begins.
    pub(super) after: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Key(String),
    /// Key of an empty directory.
    Folder(String, Stat),
    Prefix(String),
    /// The list continues after this key, that of the last entry, in another request.
    Unfinished(String),
}

impl Item {
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Key(key) | Self::Folder(key, _) | Self::Prefix(key) | Self::Unfinished(key) => {
                key
            }
        }
    }
}

/// Place of a key in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group<'k> {
    Key,
    /// The key is one of those that begin with this prefix.
    Prefix(&'k str),
}

/// Returns the place of a key that begins with `prefix`.
pub(crate) fn group_of<'k>(key: &'k str, prefix: &str, delimiter: &str) -> Group<'k> {
    let rest = key.get(prefix.len()..).unwrap_or_default();
    match rest.find(delimiter) {
        Some(at) if !delimiter.is_empty() => {
            let end = prefix.len() + at + delimiter.len();
            Group::Prefix(key.get(..end).unwrap_or(key))
        }
        _ => Group::Key,
    }
}

/// Directory of a list: what all its keys begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Path of the directory with a `/` at its end; empty for the bucket.
    pub(super) above: String,
    /// Prefix of the remaining keys.
    pub(super) leaf: String,
    /// Rest of the key behind which the list begins.
    pub(super) after: String,
}

impl Place {
    /// Returns the directory of a list; `None` for one that has no keys.
    pub(super) fn of(wanted: &Wanted) -> Option<Self> {
        let end = wanted.prefix.rfind('/').map_or(0, |at| at + 1);
        let (above, leaf) = wanted.prefix.split_at(end);
        let after = match wanted.after.strip_prefix(above) {
            Some(after) => after,
            None if wanted.after.as_str() < above => "",
            None => return None,
        };
        Some(Self {
            above: above.to_owned(),
            leaf: leaf.to_owned(),
            after: after.to_owned(),
        })
    }

    /// Returns the path of the directory; `None` if it is none.
    pub(super) fn path(&self) -> Option<&str> {
        match self.above.strip_suffix('/') {
            Some("") => None,
            Some(path) => Some(path),
            None => Some(""),
        }
    }

    /// Returns true for the directory of parts, relative to this directory.
    pub(super) fn is_hidden(&self, name: &[u8]) -> bool {
        self.above.is_empty() && name.split(|byte| *byte == b'/').next() == Some(UPLOADS.as_bytes())
    }
}

/// Items of a list, in the order of their keys.
pub(super) struct Items<'w> {
    wanted: &'w Wanted,
    source: Source,
    /// Prefix of the last item, whose other keys are not listed.
    prefix: Option<String>,
    /// The directory of the list is empty so far.
    empty: Option<(String, Stat)>,
}

enum Source {
    Nothing,
    Flat(Flat),
    Walk(Walk),
}

impl<'w> Items<'w> {
    pub(super) async fn begin(
        store: &Store,
        bucket: &Bucket,
        wanted: &'w Wanted,
    ) -> Result<Self, S3Error> {
        let nothing = Self {
            wanted,
            source: Source::Nothing,
            prefix: None,
            empty: None,
        };
        let place = Place::of(wanted);
        let dir = place.as_ref().and_then(|place| bucket.below(place.path()?));
        let (Some(place), Some(dir)) = (place, dir) else {
            store.require_bucket(bucket).await?;
            return Ok(nothing);
        };
        let stat = store.client.stat(&dir).await.map_err(S3Error::of_read);
        let stat = match stat {
            Ok(stat) if stat.kind == Kind::Dir && !place.is_in_uploads() => stat,
            Ok(_) => {
                store.require_bucket(bucket).await?;
                return Ok(nothing);
            }
            Err(error) if error.code == Code::NO_SUCH_KEY => {
                store.require_bucket(bucket).await?;
                return Ok(nothing);
            }
            Err(error) => return Err(error),
        };
        let is_itself =
            !place.above.is_empty() && place.leaf.is_empty() && wanted.after < place.above;
        let empty = is_itself.then(|| (place.above.clone(), stat));
        let source = match wanted.delimiter.as_str() {
            "/" => Source::Flat(Flat::begin(store, dir, place).await?),
            _ => Source::Walk(Walk::begin(store, dir, place).await?),
        };
        Ok(Self {
            source,
            empty,
            ..nothing
        })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Item>, S3Error> {
        loop {
            let item = match &mut self.source {
                Source::Nothing => None,
                Source::Flat(flat) => flat.next().await?,
                Source::Walk(walk) => walk.next().await?,
            };
            let Some(item) = item else {
                return Ok(self.empty.take().map(|(key, stat)| Item::Folder(key, stat)));
            };
            self.empty = None;
            let key = item.key();
            let is_wanted = key.starts_with(&self.wanted.prefix) && key.len() <= LONGEST_KEY;
            if matches!(item, Item::Unfinished(_)) {
                return Ok(Some(item));
            }
            if !is_wanted
                || key <= self.wanted.after.as_str() && !is_within(&item, &self.wanted.after)
            {
                continue;
            }
            if matches!(item, Item::Prefix(_)) {
                return Ok(Some(item));
            }
            let Group::Prefix(prefix) = group_of(key, &self.wanted.prefix, &self.wanted.delimiter)
            else {
                return Ok(Some(item));
            };
            if self.prefix.as_deref() != Some(prefix) && prefix != self.wanted.after {
                let prefix = prefix.to_owned();
                self.prefix = Some(prefix.clone());
                return Ok(Some(Item::Prefix(prefix)));
            }
        }
    }
}

/// Returns true for a prefix with remaining keys: the list begins after one of them.
fn is_within(item: &Item, after: &str) -> bool {
    matches!(item, Item::Prefix(prefix) if after.len() > prefix.len() && after.starts_with(prefix.as_str()))
}

impl Place {
    fn is_in_uploads(&self) -> bool {
        self.above.split('/').next() == Some(UPLOADS)
    }
}

/// Number of entries that one request reads at most.
pub(super) const MOST_SCANNED: u64 = if cfg!(test) { 64 } else { 100_000 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_what_is_up_to_the_delimiter() {
        assert_eq!(group_of("a/b/c", "", "/"), Group::Prefix("a/"));
        assert_eq!(group_of("a/b/c", "a/", "/"), Group::Prefix("a/b/"));
        assert_eq!(group_of("a/b/c", "a/b/", "/"), Group::Key);
        assert_eq!(group_of("axxb", "a", "xx"), Group::Prefix("axx"));
        assert_eq!(group_of("a/b", "", ""), Group::Key);
        assert_eq!(group_of("a/", "", "/"), Group::Prefix("a/"));
    }
}
