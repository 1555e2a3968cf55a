//! Peer of one session: its rights to files and its shares of the daemon's resources.

use std::{
    fmt::Display,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{FailCode, Name, message::ObjectStat};

use super::{rights::Rights, shared::Shared};
use crate::{
    file::{Barred, FileError, IoPool, Lease, Quota, ReadOptions, Source},
    session::SessionHandle,
    storage::Served,
    trust::{Access, PublicKey},
};

/// State that all jobs of a session's service use.
#[derive(Debug)]
pub(super) struct ServedPeer {
    pub(super) shared: Arc<Shared>,
    pub(super) rights: Rights,
    /// Stands for the peer in the journals of unfinished copies: its key, unless that is new each
    /// time.
    pub(super) resume_key: PublicKey,
    pub(super) access: Access,
    pub(super) served: Served,
}

impl ServedPeer {
    pub(super) fn new(shared: &Arc<Shared>, rights: &Rights, served: Served) -> Self {
        let access = shared.access.max(rights.options().access);
        Self {
            shared: shared.clone(),
            rights: rights.clone(),
            resume_key: shared.resume_as.unwrap_or(rights.key()),
            access,
            served: served.within(access),
        }
    }

    /// Returns the key whose share of the daemon's resources the peer uses.
    pub(super) fn key(&self) -> [u8; 32] {
        *self.rights.owner().as_bytes()
    }

    /// Returns the thread pool for file work, as a handle that counts its jobs towards this peer's
    /// share.
    pub(super) fn pool(&self) -> IoPool {
        self.shared.pool.of(self.key())
    }

    pub(super) fn files(&self) -> Quota {
        self.shared.files.of(self.key())
    }

    pub(super) fn memory(&self) -> Quota {
        self.shared.memory.of(self.key())
    }

    /// Leases `count` file descriptors of the peer's quota for an operation, or fails at once.
    pub(super) fn try_lease_files(
        &self,
        count: usize,
        operation: &'static str,
        name: &Name,
    ) -> Result<Lease, FileError> {
        self.files().try_lease(count).ok_or_else(|| {
            let why = "limit of concurrent operations for this key reached";
            FileError::refused(operation, name, why).with_code(FailCode::Busy)
        })
    }

    /// Opens a regular file for an operation, as for a get. Returns it with its metadata.
    pub(super) fn open_object(
        &self,
        operation: &'static str,
        name: &Name,
    ) -> Result<(Source, ObjectStat), FileError> {
        let source = self.served.open_source(name, ReadOptions::default())?;
        match source.object() {
            Some(stat) => Ok((source, stat)),
            None => {
                let why = "it is not a regular file";
                Err(FileError::refused(operation, name, why).with_code(FailCode::NotAFile))
            }
        }
    }

    /// Waits up to one minute until the peer's quota has `count` file descriptors, and leases them.
    /// Fails if the session ends before.
    pub(super) async fn lease_files(
        &self,
        count: usize,
        session: &SessionHandle,
    ) -> Result<Lease, FileError> {
        leased(self.files().lease(count), session, "file").await
    }

    /// Returns a path of the served directory, which is valid as long as this value; `None` if
    /// there is none.
    pub(super) fn root_directory(&self) -> Option<PathBuf> {
        let root = self.served.root("run a command in", &"this directory");
        Some(root.ok()?.descriptor_path())
    }

    /// Repeats `attempt` for up to 5 s while an earlier session of the same peer has the file open.
    /// Stops when the session ends, since a new session of the peer may already have finished the
    /// file.
    pub(super) async fn once_free<T, F>(
        &self,
        session: &SessionHandle,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, FileError>
    where
        F: Future<Output = Result<T, FileError>>,
    {
        let started = Instant::now();
        loop {
            self.shared
                .evict_idle_for(session, &self.rights.key())
                .await;
            match attempt().await {
                Err(error) if error.code == FailCode::Busy && started.elapsed() < BUSY_TIMEOUT => {
                    tokio::select! {
                        () = tokio::time::sleep(BUSY_PAUSE) => {}
                        () = session.ended.cancelled() => return Err(error),
                    }
                }
                result => return result,
            }
        }
    }

    /// Evicts earlier sessions of this peer that have no connection, and waits up to 5 s for their
    /// end. Returns true if there were any. They may still rename files within a tree transfer, and
    /// listen for tunnels.
    pub(super) async fn end_earlier_sessions(&self, session: &SessionHandle) -> bool {
        let earlier = self
            .shared
            .evict_idle_for(session, &self.rights.key())
            .await;
        let ended = async {
            for session in &earlier {
                session.ended.cancelled().await;
            }
        };
        let _ = tokio::time::timeout(BUSY_TIMEOUT, ended).await;
        !earlier.is_empty()
    }

    /// Returns an error if the peer may do nothing but create files.
    pub(super) fn check_readable(
        &self,
        operation: &'static str,
        name: &dyn Display,
    ) -> Result<(), FileError> {
        let inbox = self.shared.inbox.as_ref();
        inbox.map_or(Ok(()), |inbox| Err(inbox.refused(operation, name)))
    }

    /// Returns an error if the peer may not write. `operation` and `name` are for the message.
    pub(super) fn check_writable(
        &self,
        operation: &'static str,
        name: &dyn Display,
    ) -> Result<(), FileError> {
        if self.access == Access::ReadOnly {
            let why = "this peer may only read";
            return Err(FileError::not_permitted(operation, name, why));
        }
        Ok(())
    }

    /// Creates a directory and its missing parents, durably. Succeeds if it exists.
    pub(super) fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        let operation = "make directory";
        self.check_writable(operation, name)?;
        match &self.served {
            Served::Files(root) => root.make_directory(name).map_err(|cause| {
                let is_beneath_file = cause.kind() == io::ErrorKind::NotADirectory;
                let error = failed(operation, name, cause);
                match is_beneath_file {
                    true => error.with_code(FailCode::NotADirectory),
                    false => error,
                }
            }),
            Served::Other(stored) => stored.to_name(operation, name)?.make_dir(name),
        }
    }
}

/// Waits until a quota grants a lease. Fails if the session ends before.
pub(super) async fn leased(
    lease: impl Future<Output = Option<Lease>>,
    session: &SessionHandle,
    what: &str,
) -> Result<Lease, FileError> {
    let lease = tokio::select! {
        lease = lease => lease,
        () = session.ended.cancelled() => None,
    };
    lease.ok_or_else(|| {
        let why = "limit of concurrent operations for this key reached for a minute";
        FileError::new("open", format!("another {what}"), io::Error::other(why))
            .with_code(FailCode::Busy)
    })
}

pub(super) fn only_appends(operation: &'static str, name: &Name) -> FileError {
    FileError::not_permitted(operation, name, "this peer may only add files")
}

pub(super) fn failed(operation: &'static str, name: &Name, cause: io::Error) -> FileError {
    let (kind, is_barred) = (cause.kind(), Barred::is_why(&cause));
    let error = FileError::new(operation, name, cause);
    match kind {
        // A parent is a file, so the name cannot exist.
        io::ErrorKind::NotADirectory => error.with_code(FailCode::NotFound),
        io::ErrorKind::DirectoryNotEmpty => error.with_code(FailCode::Exists),
        io::ErrorKind::PermissionDenied if !is_barred => error.with_code(FailCode::Refused),
        _ => error,
    }
}

/// Maximum time that a new session waits for an earlier one to end or to release a file. A silent
/// path is detected after 1.5 s.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to open a file that an earlier session still has open.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
