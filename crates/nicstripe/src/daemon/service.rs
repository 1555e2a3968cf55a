//! Service of the daemon for one session, within the rights of the peer.

#[cfg(feature = "bench")]
use std::sync::atomic::AtomicBool;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(feature = "bench")]
use nicstripe_bench::{Desk, Ticket};
#[cfg(feature = "bench")]
use nicstripe_proto::message::{BenchAsk, BenchRefused, DiskDone, DiskOrder};
use nicstripe_proto::{
    FailCode,
    message::{
        AnswerKind, AskKind, BenchRefusal, Expected, Get, GetTree, Hello, Put, PutOptions, PutTree,
    },
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{listings::Listings, rights::Rights, shared::Shared};
#[cfg(feature = "bench")]
use crate::file::stages;
use crate::{
    file::{self, FileError, IoPool, Lease, OF_SOURCE, OF_TARGET, Quota, ReadOptions, Root},
    links::peer_routes::PeerRoutes,
    report::metrics::Meters,
    session::{
        Pending, Serve, SessionHandle, TargetAttempt,
        endpoint::{
            Sink, SinkOpened, Source,
            file::{FileSink, FileSource},
            tree::{TreeSink, TreeSource},
        },
    },
    storage::{Served, Target, TargetOpened},
    trust::{self, DialTarget, PublicKey},
    tunnel::Dialer,
};

#[derive(Debug)]
pub(crate) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) key: PublicKey,
    pub(super) served: Served,
    pub(super) access: trust::Access,
    pub(super) routes: Arc<PeerRoutes>,
    /// True if the peer may not run benchmarks.
    pub(super) no_bench: bool,
    /// True if the peer may set set-user-ID and set-group-ID bits and root-only attributes.
    pub(super) special_modes: bool,
    /// Targets to which the peer may open tunnels.
    pub(super) dial: Vec<DialTarget>,
    /// Permits for running tree transfers.
    pub(super) trees: Arc<Semaphore>,
    /// Cache of the session's partly listed directories.
    pub(super) listings: Mutex<Listings>,
}

impl Service {
    pub(super) fn new(
        shared: &Arc<Shared>,
        rights: &Rights,
        hello: &Hello,
    ) -> Result<Self, FileError> {
        let options = rights.options();
        let served = match &options.root {
            // With a [`Storage`] of the program, no peer gets a directory of the machine.
            Some(root) => shared
                .served
                .root("serve", &root.display())
                .and_then(|_| Root::open(root)?.outside_of(shared.home.as_ref(), root))
                .map(Arc::new)
                .map(Served::Files)?,
            None => shared.served.clone(),
        };
        let interfaces = hello.interfaces.iter().flatten();
        let access = shared.access.max(options.access);
        Ok(Self {
            shared: shared.clone(),
            key: rights.key(),
            served: served.within(access),
            access,
            routes: Arc::new(PeerRoutes::new(
                rights.key(),
                shared.routes.as_deref(),
                shared.route_limits.clone(),
                interfaces.flat_map(|interface| &interface.addresses),
            )),
            no_bench: options.no_bench,
            special_modes: options.special_modes,
            dial: options.dial.clone(),
            trees: Arc::new(Semaphore::new(MOST_TREES)),
            listings: Mutex::default(),
        })
    }

    /// Returns the thread pool for file work, as a handle that counts its jobs towards this peer's
    /// share.
    pub(super) fn pool(&self) -> IoPool {
        self.shared.pool.of(*self.key.as_bytes())
    }

    /// Returns the peer's quota of file descriptors.
    pub(super) fn files(&self) -> Quota {
        self.shared.files.of(*self.key.as_bytes())
    }

    /// Waits up to one minute until the peer's quota has `count` file descriptors, and leases them.
    /// Fails if the session ends before.
    async fn lease_files(&self, count: usize, session: &SessionHandle) -> Result<Lease, FileError> {
        leased(self.files().lease(count), session, "file").await
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
            self.shared.evict_idle_for(session, &self.key).await;
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
    /// end. A session interrupted within a tree transfer may still rename files.
    pub(super) async fn earlier_sessions_ended(&self, session: &SessionHandle) {
        let earlier = self.shared.evict_idle_for(session, &self.key).await;
        let ended = async {
            for session in earlier {
                session.ended.cancelled().await;
            }
        };
        let _ = tokio::time::timeout(BUSY_TIMEOUT, ended).await;
    }

    pub(super) fn open_target_now(&self, put: &Put) -> Result<TargetOpened, FileError> {
        let name = match &put.into {
            Some(own) if self.served.is_directory(&put.name) => {
                put.name.join(own.file_name()).map_err(|error| {
                    FileError::new("receive", &put.name, io::Error::other(error))
                        .with_code(FailCode::Refused)
                })?
            }
            _ => put.name.clone(),
        };
        if put.options.parents {
            self.make_parents(&name)?;
        }
        let append_only = self.access == trust::Access::AppendOnly;
        let PutOptions {
            replace,
            delta,
            in_place,
            trial,
            ..
        } = put.options;
        let replaces = replace || delta || in_place;
        let options = PutOptions {
            replace: replace && !append_only,
            delta: delta && !append_only,
            in_place: in_place && !append_only,
            ..put.options
        };
        // A dry run changes nothing, so any name is permitted.
        let options = if trial {
            PutOptions {
                replace: true,
                restart: true,
                trial,
                ..PutOptions::default()
            }
        } else {
            options
        };
        self.served
            .open_target(&name, &put.offer, options, self.key)
            .map_err(|error| match error.code {
                FailCode::Exists if append_only && replaces => error.with_code(FailCode::Refused),
                _ => error,
            })
    }

    /// Returns an error if the peer may not write. `name` is the target, for the message.
    pub(super) fn check_writable(&self, name: &dyn std::fmt::Display) -> Result<(), FileError> {
        if self.access != trust::Access::ReadOnly {
            return Ok(());
        }
        let why = "this peer may only read";
        Err(FileError::new(
            "receive",
            name,
            io::Error::new(io::ErrorKind::PermissionDenied, why),
        )
        .with_code(FailCode::Refused))
    }
}

impl Serve for Service {
    fn open_source(self: Arc<Self>, get: Get, session: SessionHandle) -> Pending<Box<dyn Source>> {
        let options = ReadOptions {
            allow_changing: get.allow_changing,
            compress: get.compress,
            range: get.range,
        };
        let (service, pool) = (self.clone(), self.pool());
        let open = async move {
            let opened = pool.call(move || service.served.open_source(&get.name, options));
            opened
                .await
                .unwrap_or_else(|| Err(io_threads_gone("a file")))
        };
        self.open_entry_source(Box::pin(open), session)
    }

    fn open_entry_source(
        self: Arc<Self>,
        open: Pending<file::Source>,
        session: SessionHandle,
    ) -> Pending<Box<dyn Source>> {
        Box::pin(async move {
            let lease = self.lease_files(OF_SOURCE, &session).await?;
            let file = open.await?.keep(lease);
            Ok(Box::new(FileSource::requested(file)) as Box<dyn Source>)
        })
    }

    fn open_sink(self: Arc<Self>, put: Put, session: SessionHandle) -> Pending<SinkOpened> {
        Box::pin(async move {
            self.check_writable(&put.name)?;
            let lease = self.lease_files(OF_TARGET, &session).await?;
            let pool = self.pool();
            let attempt = || {
                let (service, put) = (self.clone(), put.clone());
                let opened = pool.call(move || service.open_target_now(&put));
                async move {
                    opened
                        .await
                        .unwrap_or_else(|| Err(io_threads_gone("the target")))
                }
            };
            let (target, have) = self.once_free(&session, attempt).await?;
            Ok((FileSink::boxed(target.keep(lease)), have))
        })
    }

    fn open_entry_sink(
        self: Arc<Self>,
        mut attempt: TargetAttempt,
        session: SessionHandle,
    ) -> Pending<SinkOpened> {
        Box::pin(async move {
            let lease = self.lease_files(OF_TARGET, &session).await?;
            let (target, have) = self.once_free(&session, &mut attempt).await?;
            Ok((FileSink::boxed(Target::from(target).keep(lease)), have))
        })
    }

    fn send_tree(
        self: Arc<Self>,
        get: GetTree,
        session: SessionHandle,
    ) -> Pending<Box<dyn Source>> {
        Box::pin(async move {
            let run = self.prepare_sender(get, &session).await?;
            Ok(Box::new(TreeSource::requested(run)) as Box<dyn Source>)
        })
    }

    fn receive_tree(self: Arc<Self>, put: PutTree, session: SessionHandle) -> Pending<SinkOpened> {
        Box::pin(async move {
            self.earlier_sessions_ended(&session).await;
            let run = self.prepare_receiver(put, &session).await?;
            let sink: Box<dyn Sink> = Box::new(TreeSink::announced(run));
            Ok((sink, Vec::new()))
        })
    }

    fn answer(&self, ask: &AskKind) -> AnswerKind {
        let done = |()| AnswerKind::Done;
        let answered = match ask {
            AskKind::List { dir, after, most } => self
                .list(dir.as_ref(), after.as_deref(), *most as usize)
                .map(|(entries, more)| AnswerKind::Entries { entries, more }),
            AskKind::Stat { name } => self.stat(name).map(|stat| AnswerKind::Stat { stat }),
            AskKind::Remove { name } => self.remove(name).map(done),
            AskKind::Rename { from, to, replace } => self.rename(from, to, *replace).map(done),
            AskKind::MakeDir { name } => self.make_dir(name).map(done),
        };
        answered.unwrap_or_else(|error| AnswerKind::Failed {
            code: error.code,
            text: error.one_line(),
        })
    }

    fn dialer(&self, peer: String) -> Dialer {
        Dialer::new(peer, self.dial.clone(), self.files())
    }

    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle) {
        self.routes.expect(connections, session);
    }

    fn meters(&self) -> &Arc<Meters> {
        &self.shared.meters
    }

    fn bench_refusal(&self) -> Option<BenchRefusal> {
        if self.no_bench {
            return Some(BenchRefusal::NotPermitted);
        }
        let is_ending = self.shared.ending.is_cancelled();
        is_ending.then_some(BenchRefusal::ShuttingDown)
    }

    #[cfg(feature = "bench")]
    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused> {
        if let Some(why) = self.bench_refusal() {
            return Err(BenchRefused {
                why,
                retry_after_ms: None,
            });
        }
        let (shared, key) = (self.shared.clone(), *self.key.as_bytes());
        let queue = &self.shared.benches.queue;
        queue.ask(key, ask, session, move || Desk {
            limits: shared.benches.limits(),
            copies: shared.meters.jobs().running(),
        })
    }

    #[cfg(feature = "bench")]
    fn work_for_bench(&self, order: &DiskOrder, stop: &AtomicBool) -> Result<DiskDone, FileError> {
        if !order.read {
            self.check_writable(&"a bench")?;
        }
        let root = self.served.root("measure", &"the disk")?;
        stages::serve(root, *self.key.as_bytes(), order, stop)
    }
}

fn io_threads_gone(what: &str) -> FileError {
    FileError::new("open", what, io::Error::other("the I/O threads have ended"))
}

#[cfg(test)]
impl super::Daemon {
    /// Returns the service of a session of the peer with `key`, which opens files in `pool`.
    pub(crate) fn service_of(mut self, key: &PublicKey, pool: IoPool) -> Arc<Service> {
        Arc::get_mut(&mut self.shared)
            .expect("only this daemon uses it yet")
            .pool = pool;
        let peers = self.shared.trusted.peers().expect("a fixed list");
        let rights = Rights::of(&peers, key).expect("the peer is trusted");
        let hello = Hello {
            version: nicstripe_proto::message::VERSION,
            session: nicstripe_proto::SessionId([0; 16]),
            new: true,
            path: 0,
            interface: None,
            interfaces: None,
            cap_bps: None,
            padding: None,
        };
        Arc::new(Service::new(&self.shared, &rights, &hello).expect("its folder exists"))
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

/// Maximum number of concurrent tree transfers per session; `cp` uses one.
pub(super) const MOST_TREES: usize = 4;

/// Maximum time that a new session waits for an earlier one to release a file. A silent path is
/// detected after 1.5 s.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to open a file that an earlier session still has open.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
