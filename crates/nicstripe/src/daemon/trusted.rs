//! Whose keys may connect.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::trust::Peers;

/// The keys that may connect.
#[derive(Debug, Clone)]
pub(super) enum Trusted {
    Fixed(Arc<Peers>),
    File(Arc<PeersFile>),
}

/// A peers file, and what it said when it was read last.
#[derive(Debug)]
pub(super) struct PeersFile {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<Peers>)>>,
}

/// Modification time and size: the file is replaced as a whole, so one of them changes.
type Stamp = Option<(std::time::SystemTime, u64)>;

impl Trusted {
    pub(super) fn peers(&self) -> Arc<Peers> {
        match self {
            Self::Fixed(peers) => peers.clone(),
            Self::File(file) => file.peers(),
        }
    }
}

impl PeersFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::new(None) }
    }

    fn peers(&self) -> Arc<Peers> {
        let stamp = stamp(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((known, peers)) if *known == stamp => peers.clone(),
            _ => {
                let peers = Arc::new(Peers::load(&self.path).unwrap_or_else(|error| {
                    tracing::error!(error = %crate::logged::logged_error(&error), "no peer is trusted until this is mended");
                    Peers::default()
                }));
                *read = Some((stamp, peers.clone()));
                peers
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
