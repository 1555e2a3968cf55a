//! Keys and prefixes of one directory, for lists with the delimiter `/`.
//!
//! The daemon lists the entries in the order of their names. The order of keys differs in the directories:
//! their key has a `/` at its end, so `a-b` comes before `a/`. A directory therefore waits for the first
//! name that is greater than its key.

use std::collections::{BTreeMap, VecDeque};

use nicstripe::{Entries, Kind, Name};

use super::{
    items::{Item, MOST_SCANNED, Place},
    walk::Walk,
};
use crate::{
    protocol::error::{Code, S3Error},
    store::Store,
};

pub(super) struct Flat {
    place: Place,
    entries: Option<Entries>,
    ready: VecDeque<Item>,
    /// Directories that wait, by their key.
    waiting: BTreeMap<String, Item>,
    scanned: u64,
    /// Key of the last entry.
    last: String,
}

impl Flat {
    pub(super) async fn begin(store: &Store, dir: Name, place: Place) -> Result<Self, S3Error> {
        let mut entries = store.client.entries(Some(dir.clone()));
        let component = place.after.split('/').next().unwrap_or_default();
        let start = component.max(&place.leaf);
        let cut = &start.as_bytes()[..start.len().min(LONGEST)];
        if let Ok(start) = Name::new([cut]) {
            entries = entries.after(&start);
        }
        let mut flat = Self {
            entries: Some(entries),
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            scanned: 0,
            last: String::new(),
            place,
        };
        for name in flat.not_listed() {
            flat.look(store, &dir, &name).await?;
        }
        flat.leave_out(store, &dir).await?;
        // Nothing is before them.
        let (files, dirs) = std::mem::take(&mut flat.waiting)
            .into_iter()
            .partition(|(_, item)| matches!(item, Item::Key(_)));
        flat.waiting = dirs;
        let files: BTreeMap<String, Item> = files;
        for (key, file) in files {
            flat.release(&key);
            flat.ready.push_back(file);
        }
        Ok(flat)
    }

    /// Returns the names that the entries begin behind, although their keys may be greater than that
    /// behind which the list begins.
    fn not_listed(&self) -> Vec<String> {
        let component = self.place.after.split('/').next().unwrap_or_default();
        let leaf = &self.place.leaf;
        // Directories whose name begins another one, as `a` begins `a-b`.
        let mut names: Vec<String> = component
            .char_indices()
            .take_while(|(at, _)| *at <= LONGEST)
            .filter(|(at, c)| *at > 0 && *c < '/')
            .map(|(at, _)| component[..at].to_owned())
            .collect();
        names.extend([component.to_owned(), leaf.clone()]);
        names.retain(|name| !name.is_empty() && name.starts_with(leaf.as_str()));
        names.sort();
        names.dedup();
        names
    }

    /// Leaves out the directory within which the list begins, if none of its keys is behind that.
    async fn leave_out(&mut self, store: &Store, dir: &Name) -> Result<(), S3Error> {
        let Some((component, after)) = self.place.after.split_once('/') else {
            return Ok(());
        };
        let above = format!("{}{component}/", self.place.above);
        let Ok(dir) = dir.join(component.as_bytes()) else {
            return Ok(());
        };
        if !self.waiting.contains_key(&above) {
            return Ok(());
        }
        let place = Place {
            leaf: String::new(),
            after: after.to_owned(),
            above: above.clone(),
        };
        let behind = format!("{above}{after}");
        let mut walk = Walk::begin(store, dir, place).await?;
        loop {
            match walk.next().await? {
                None => break,
                Some(Item::Unfinished(_)) => return Ok(()),
                Some(item) if item.key() > behind.as_str() => return Ok(()),
                Some(_) => {}
            }
        }
        self.waiting.remove(&above);
        Ok(())
    }

    async fn look(&mut self, store: &Store, dir: &Name, name: &str) -> Result<(), S3Error> {
        let Ok(full) = dir.join(name.as_bytes()) else {
            return Ok(());
        };
        match store.client.stat(&full).await.map_err(S3Error::of_read) {
            Ok(stat) => self.take(name, stat.kind),
            Err(error) if error.code == Code::NO_SUCH_KEY => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets an entry wait.
    fn take(&mut self, name: &str, kind: Kind) {
        let above = &self.place.above;
        match kind {
            _ if self.place.is_hidden(name.as_bytes()) => {}
            Kind::File => {
                let key = format!("{above}{name}");
                self.waiting.insert(key.clone(), Item::Key(key));
            }
            Kind::Dir => {
                let key = format!("{above}{name}/");
                self.waiting.insert(key.clone(), Item::Prefix(key));
            }
            _ => {}
        }
    }

    /// Releases what is before a key, and what has it.
    fn release(&mut self, key: &str) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().as_str() <= key
        {
            self.ready.push_back(first.remove());
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Item>, S3Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(entries) = &mut self.entries else {
                return Ok(self.waiting.pop_first().map(|(_, item)| item));
            };
            let entry = match entries.next().await.map_err(S3Error::of_read) {
                // The directory is gone meanwhile.
                Err(error) if error.code == Code::NO_SUCH_KEY => None,
                entry => entry?,
            };
            let Some(entry) = entry else {
                self.entries = None;
                continue;
            };
            // No other text is a key.
            let Ok(name) = str::from_utf8(entry.name.file_name()) else {
                continue;
            };
            let leaf = self.place.leaf.as_str();
            if !name.starts_with(leaf) {
                // The entries begin with the first one if the prefix is no name, as `.`.
                if name > leaf {
                    self.entries = None;
                }
                continue;
            }
            self.scanned += 1;
            let key = format!("{}{name}", self.place.above);
            if self.scanned > MOST_SCANNED {
                self.entries = None;
                self.waiting.clear();
                let last = std::mem::take(&mut self.last);
                return Ok(Some(Item::Unfinished(last)));
            }
            self.take(name, entry.stat.kind);
            self.release(&key);
            self.last = key;
        }
    }
}

/// Maximum length of a name in a directory.
const LONGEST: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_longer_than_one_can_be() {
        let flat = Flat {
            place: Place {
                above: String::new(),
                leaf: String::new(),
                after: "-".repeat(10_000),
            },
            entries: None,
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            scanned: 0,
            last: String::new(),
        };
        let lengths = flat.not_listed().iter().map(String::len).sum::<usize>();
        assert!(lengths < 50_000, "{lengths}");
    }
}
