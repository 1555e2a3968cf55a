//! Trusted keys of a daemon, fixed or read from the peers file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use nicstripe_proto::SourceIdentity;
use parking_lot::Mutex;

use super::{grants::Grants, rights::Rights};
use crate::{
    file::identity_of,
    trust::{Peers, PeersError, PublicKey},
};

/// Trusted keys: those of a list, and those that peers of the list have admitted.
#[derive(Debug, Clone)]
pub(super) struct Trusted {
    list: List,
    pub(super) grants: Arc<Grants>,
}

/// Source of the trusted keys: a fixed list or a file.
#[derive(Debug, Clone)]
enum List {
    Fixed(Arc<Peers>),
    File(Arc<PeersFile>),
}

impl Trusted {
    pub(super) fn fixed(peers: Peers) -> Self {
        Self {
            list: List::Fixed(Arc::new(peers)),
            grants: Arc::default(),
        }
    }

    pub(super) fn file(path: PathBuf) -> Self {
        Self {
            list: List::File(Arc::new(PeersFile::new(path))),
            grants: Arc::default(),
        }
    }

    /// Returns the list as last read, or `None` if the file could not be read. No new connection is
    /// trusted then.
    pub(super) fn peers(&self) -> Option<Arc<Peers>> {
        match &self.list {
            List::Fixed(peers) => Some(peers.clone()),
            List::File(file) => file.current.lock().clone(),
        }
    }

    /// Returns the rights of a key under the list `peers`: those of its line, otherwise of its grant; `None`
    /// for a key that has neither.
    pub(super) fn rights(&self, peers: &Peers, key: &PublicKey) -> Option<Rights> {
        let admitted = || Some(Rights::admitted(*key, self.grants.of(key)?));
        Rights::of(peers, key).or_else(admitted)
    }

    /// Returns true if a key has any rights.
    pub(super) fn knows(&self, key: &PublicKey) -> bool {
        let peers = self.peers();
        peers.is_some_and(|peers| self.rights(&peers, key).is_some())
    }

    /// Returns the key whose share of the daemon's resources a connection with `key` uses.
    pub(super) fn owner(&self, key: PublicKey) -> PublicKey {
        self.grants.of(&key).map_or(key, |grant| grant.by)
    }

    /// Reads the file again if it has changed. Not on the runtime's threads, because its file system
    /// may not answer; at most one thread waits for it.
    pub(super) async fn refresh(&self) {
        if let List::File(file) = &self.list {
            let turn = file.turn.clone().lock_owned().await;
            let file = file.clone();
            let refreshed = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                file.refresh();
            });
            // The task cannot be cancelled before it runs, except at the end of the runtime.
            let _ = refreshed.await;
        }
    }

    /// Like [`refresh`](Self::refresh). Blocks.
    pub(super) fn refresh_now(&self) {
        if let List::File(file) = &self.list {
            file.refresh();
        }
    }
}

/// Peers file and its content, which is read again when the file changes.
///
/// A failed read is not cached: the next check reads again.
#[derive(Debug)]
pub(super) struct PeersFile {
    path: PathBuf,
    /// Held while a thread reads the file.
    turn: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<LastRead>,
    /// Result of the last read. Never locked during a read.
    current: Mutex<Option<Arc<Peers>>>,
}

#[derive(Debug, Default)]
struct LastRead {
    content: Option<(SourceIdentity, Arc<Peers>)>,
    /// Last logged error of a read, and the time of its log record.
    failure: Option<(String, Instant)>,
}

impl PeersFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            turn: Arc::default(),
            last: Mutex::default(),
            current: Mutex::default(),
        }
    }

    fn refresh(&self) {
        let peers = self.read();
        *self.current.lock() = peers;
    }

    fn read(&self) -> Option<Arc<Peers>> {
        self.read_by(|path| Peers::load(path))
    }

    fn read_by(&self, load: impl FnOnce(&Path) -> Result<Peers, PeersError>) -> Option<Arc<Peers>> {
        let mut last = self.last.lock();
        // Taken before reading the file: a change in between then causes another read.
        let found = rustix::fs::stat(&self.path).ok();
        let found = found.as_ref().map(identity_of);
        if let (Some((known, peers)), Some(found)) = (&last.content, found)
            && *known == found
        {
            return Some(peers.clone());
        }
        last.content = None;
        match load(&self.path) {
            Ok(peers) => {
                let peers = Arc::new(peers);
                last.content = found
                    .filter(|found| is_settled(found, SystemTime::now()))
                    .map(|found| (found, peers.clone()));
                if last.failure.take().is_some() {
                    tracing::info!(file = %crate::text::logged::logged(self.path.display()), "list of peers readable again");
                }
                Some(peers)
            }
            Err(error) => {
                last.on_failure(crate::text::chain(&error), Instant::now());
                None
            }
        }
    }
}

impl LastRead {
    /// Logs a read error if it is new, and at most once a minute if it persists.
    fn on_failure(&mut self, text: String, now: Instant) {
        let is_logged = |(logged_text, at): &(String, Instant)| {
            *logged_text == text && now.duration_since(*at) < FAILURE_PAUSE
        };
        if !self.failure.as_ref().is_some_and(is_logged) {
            tracing::error!(error = %crate::text::logged::logged(&text), "rejecting new connections until the list of peers can be read");
            self.failure = Some((text, now));
        }
    }
}

/// Returns true if a file of this identity changed so long ago that any later change gets a
/// different change time. The kernel updates that at each write, rename and change of mode, and no
/// program can set it.
fn is_settled(identity: &SourceIdentity, now: SystemTime) -> bool {
    let changed = identity.ctime.to_system_time();
    changed
        .and_then(|changed| now.duration_since(changed).ok())
        .is_some_and(|age| age > GRANULARITY)
}

/// Coarsest granularity of change times in common file systems (FAT, 2 s), with a margin.
const GRANULARITY: Duration = Duration::from_secs(3);

/// Interval between log records about the same read error.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file::timestamp_of,
        trust::{PublicKey, PublicLine, private_folder},
    };

    const KEY: [u8; 32] = [7; 32];

    fn file() -> (tempfile::TempDir, PeersFile) {
        let folder = private_folder();
        let path = folder.path().join("peers");
        let line = PublicLine::new(PublicKey::from_bytes(KEY).unwrap(), "nas");
        Peers::edit(&path, |peers| peers.add(&line, None)).unwrap();
        (folder, PeersFile::new(path))
    }

    fn trusts(peers: Option<Arc<Peers>>) -> bool {
        peers.is_some_and(|peers| peers.find(&PublicKey::from_bytes(KEY).unwrap()).is_some())
    }

    fn fails(path: &Path) -> Result<Peers, PeersError> {
        Peers::load(path.join("is no directory"))
    }

    #[test]
    fn a_failed_read_trusts_nobody_and_is_tried_again_at_the_next_look() {
        let (_folder, file) = file();
        assert!(file.read_by(fails).is_none());
        assert!(trusts(file.read()), "although the file has not changed");
    }

    #[test]
    fn a_change_of_the_same_size_is_seen_at_once() {
        let (_folder, file) = file();
        assert!(trusts(file.read()));
        let text = std::fs::read_to_string(&file.path).unwrap();
        std::fs::write(&file.path, format!("#{}", &text[1..])).unwrap();
        assert!(!trusts(file.read()));
        std::fs::remove_file(&file.path).unwrap();
        assert_eq!(
            file.read().map(|peers| peers.iter().count()),
            Some(0),
            "no file is an empty list"
        );
    }

    #[test]
    fn a_file_that_changed_a_moment_ago_is_read_at_each_look() {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let ctime = timestamp_of(changed);
        let identity = SourceIdentity {
            ctime,
            ..SourceIdentity::default()
        };
        let settled = |seconds| is_settled(&identity, changed + Duration::from_secs(seconds));
        assert_eq!([0, 1, 3, 4].map(settled), [false, false, false, true]);
        assert!(
            !is_settled(&identity, changed - Duration::from_secs(9)),
            "a clock that was set back"
        );
    }

    #[test]
    fn the_log_tells_each_failure_once_a_minute() {
        let (mut last, start) = (LastRead::default(), Instant::now());
        last.on_failure("a".into(), start);
        let logged_text = last.failure.clone();
        last.on_failure("a".into(), start + FAILURE_PAUSE / 2);
        assert_eq!(last.failure, logged_text);
        last.on_failure("a".into(), start + FAILURE_PAUSE);
        assert_ne!(last.failure, logged_text);
    }
}
