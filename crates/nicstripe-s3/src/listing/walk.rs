//! Keys of a directory and of all below it, which the daemon lists in order.

use std::collections::VecDeque;

use nicstripe::{Entries, Kind, Name, Stat};

use super::items::{Item, MOST_SCANNED, Place};
use crate::{
    names::UPLOADS,
    protocol::error::{Code, S3Error},
    store::Store,
};

pub(super) struct Walk {
    place: Place,
    entries: Option<Entries>,
    /// This walk behind the directory of parts.
    behind: Option<Entries>,
    ready: VecDeque<Item>,
    /// Directory that is empty unless the next entry is in it.
    dir: Option<(String, Stat)>,
    scanned: u64,
    /// Key of the last entry.
    last: String,
}

impl Walk {
    pub(super) async fn begin(store: &Store, dir: Name, place: Place) -> Result<Self, S3Error> {
        let walk = || store.client.walk(Some(dir.clone()));
        let start = place.after.as_str().max(&place.leaf);
        let entries = match valid(start).or_else(|| valid(&place.after)) {
            Some(start) => walk().after(&start),
            None => walk(),
        };
        let behind = Name::new([UPLOADS.as_bytes(), &[u8::MAX; 255]]);
        let behind = behind.map_err(|error| Code::INTERNAL_ERROR.because(error.to_string()))?;
        let mut ready = VecDeque::new();
        // The walk begins behind the file that has the prefix as its key.
        if place.leaf > place.after
            && let Ok(full) = dir.join(place.leaf.as_bytes())
        {
            match store.object(&full).await {
                Ok(_) => ready.push_back(Item::Key(format!("{}{}", place.above, place.leaf))),
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            entries: Some(entries),
            behind: Some(walk().after(&behind)),
            place,
            ready,
            dir: None,
            scanned: 0,
            last: String::new(),
        })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Item>, S3Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(entries) = &mut self.entries else {
                return Ok(self.dir.take().map(|(key, stat)| Item::Folder(key, stat)));
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
            let name = entry.name.to_bytes();
            if self.place.is_hidden(&name) {
                self.entries = self.behind.take().or_else(|| self.entries.take());
                continue;
            }
            // No other text is a key.
            let Ok(name) = String::from_utf8(name) else {
                continue;
            };
            if !name.starts_with(&self.place.leaf) && name > self.place.leaf {
                self.entries = None;
                continue;
            }
            self.scanned += 1;
            let key = format!("{}{name}", self.place.above);
            self.leave_dir(&key);
            if self.scanned > MOST_SCANNED {
                self.entries = None;
                let last = std::mem::take(&mut self.last);
                self.ready.push_back(Item::Unfinished(last));
                continue;
            }
            self.take(key, entry.stat);
        }
    }

    /// Lists the directory before a key if it is empty.
    fn leave_dir(&mut self, key: &str) {
        if let Some((dir, stat)) = self.dir.take()
            && !key.starts_with(&dir)
        {
            self.ready.push_back(Item::Folder(dir, stat));
        }
    }

    fn take(&mut self, mut key: String, stat: Stat) {
        if stat.kind == Kind::Dir {
            key.push('/');
        }
        self.last.clone_from(&key);
        match stat.kind {
            Kind::File => self.ready.push_back(Item::Key(key)),
            Kind::Dir => self.dir = Some((key, stat)),
            _ => {}
        }
    }
}

/// Returns the longest name that a key begins with; `None` if there is none.
fn valid(key: &str) -> Option<Name> {
    let components: Vec<&str> = key.split('/').collect();
    (1..=components.len())
        .rev()
        .find_map(|count| Name::new(components[..count].iter().map(|one| one.as_bytes())).ok())
}
