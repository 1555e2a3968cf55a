//! Turns of files that the daemon makes of others.

use std::{collections::BTreeMap, sync::Arc};

use nicstripe_proto::Name;
use parking_lot::Mutex;
use tokio::sync::{self, OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Copies at the daemon that a client may make now.
#[derive(Debug)]
pub(super) struct Making {
    places: Semaphore,
    /// Names that files are made under. The daemon identifies the work of one session by the name and the length
    /// of the new file only, and would mix two.
    names: Mutex<BTreeMap<Name, Arc<sync::Mutex<()>>>>,
}

/// Right to make a file of others until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _name: Option<OwnedMutexGuard<()>>,
    _place: Option<SemaphorePermit<'a>>,
}

impl Making {
    /// Waits until no other call makes a file of this name, and for a place.
    pub(super) async fn turn(&self, name: Option<&Name>) -> Turn<'_> {
        let name = match name {
            Some(name) => Some(self.of_name(name).lock_owned().await),
            None => None,
        };
        Turn {
            _name: name,
            // The semaphore is never closed.
            _place: self.places.acquire().await.ok(),
        }
    }

    fn of_name(&self, name: &Name) -> Arc<sync::Mutex<()>> {
        let mut names = self.names.lock();
        names.retain(|_, turn| Arc::strong_count(turn) > 1);
        names.entry(name.clone()).or_default().clone()
    }
}

impl Default for Making {
    fn default() -> Self {
        Self {
            places: Semaphore::new(MOST_COPIES),
            names: Mutex::default(),
        }
    }
}

/// Maximum number of copies of a client at a time; each occupies a thread of the daemon.
const MOST_COPIES: usize = 8;
