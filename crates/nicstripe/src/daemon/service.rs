//! Service of the daemon for one session, within the rights of the peer: sources and sinks of its
//! transfers, and its requests about names (list, stat, remove, rename, mkdir).

use std::{
    collections::HashMap,
    ffi::OsStr,
    future::ready,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use nicstripe_bench::{Desk, Ticket};
use nicstripe_proto::{
    FailCode, Name, Offer, Request, TransferId,
    journal::Timestamp,
    message::{
        AnswerKind, AskKind, BenchAsk, BenchRefusal, BenchRefused, DiskDone, DiskOrder, Expected,
        Get, GetTree, Hello, MOST_ANSWER, ObjectEntry, ObjectKind, ObjectStat, Put, PutOptions,
        PutTree,
    },
};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Stat, renameat, unlinkat};
use tokio::sync::Semaphore;

use super::{
    exec::{MOST_COMMANDS, Output},
    listings::{Listings, MOST_NAMES},
    rights::Rights,
    shared::Shared,
    tunnels::Multiplexer,
};
use crate::{
    file::{
        self, Barred, FileError, IoPool, Lease, OF_SOURCE, OF_TARGET, Quota, ReadOptions, Root,
        rename_to_free, stages, stat_entry, sync_names,
    },
    links::peer_routes::PeerRoutes,
    report::metrics::Meters,
    session::{
        Pending, Serve, SessionHandle,
        kind::{
            Opened,
            entry::{open_source, open_target},
            file::{FileSink, FileSource},
            tree::{TreeSink, TreeSource, TreeThread},
        },
    },
    storage::{Served, Storage, TargetOpened},
    trust::{Access, DialTarget, ExecRule, ListenTarget, PublicKey},
};

#[derive(Debug)]
pub(crate) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) key: PublicKey,
    /// Stands for the peer in the journals of unfinished copies: its key, unless that is new each
    /// time.
    pub(super) resume_key: PublicKey,
    pub(super) served: Served,
    pub(super) access: Access,
    pub(super) routes: Arc<PeerRoutes>,
    /// True if the peer may not run benchmarks.
    pub(super) no_bench: bool,
    /// True if the peer may not know facts about this machine.
    pub(super) no_facts: bool,
    /// JSON text of the facts of which the peer has requested the first part.
    pub(super) told_facts: Mutex<Vec<u8>>,
    /// True if the peer may set set-user-ID and set-group-ID bits and root-only attributes.
    pub(super) special_modes: bool,
    /// Name of the peer, for the log.
    pub(super) peer: String,
    /// Targets to which the peer may open tunnels.
    pub(super) dial: Vec<DialTarget>,
    /// Where the peer may listen.
    pub(super) listen: Vec<ListenTarget>,
    pub(super) tunnels: Mutex<Multiplexer>,
    /// Commands that the peer may run.
    pub(super) exec: Vec<ExecRule>,
    /// Permits for running commands.
    pub(super) commands: Arc<Semaphore>,
    /// Outputs of the commands being requested, by their numbers. The event that requests a command
    /// is followed by those of its outputs, each of which takes its own.
    pub(super) outputs: Mutex<HashMap<TransferId, Output>>,
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
        served: Served,
    ) -> Self {
        let options = rights.options();
        let interfaces = hello.interfaces.iter().flatten();
        let access = shared.access.max(options.access);
        Self {
            shared: shared.clone(),
            key: rights.key(),
            resume_key: shared.resume_as.unwrap_or(rights.key()),
            served: served.within(access),
            access,
            routes: Arc::new(PeerRoutes::new(
                rights.key(),
                shared.routes.as_deref(),
                shared.route_limits.clone(),
                interfaces.flat_map(|interface| &interface.addresses),
            )),
            no_bench: options.no_bench,
            no_facts: options.no_facts,
            told_facts: Mutex::default(),
            special_modes: options.special_modes,
            peer: rights.name(),
            dial: options.dial.clone(),
            listen: options.listen.clone(),
            tunnels: Mutex::default(),
            exec: options.exec.clone(),
            commands: Arc::new(Semaphore::new(MOST_COMMANDS)),
            outputs: Mutex::default(),
            trees: Arc::new(Semaphore::new(MOST_TREES)),
            listings: Mutex::default(),
        }
    }

    /// Returns a path of the served directory, which is valid as long as this service; `None` if
    /// there is none.
    pub(super) fn root_directory(&self) -> Option<PathBuf> {
        let root = self
            .served
            .root("run a command in", &"this directory")
            .ok()?;
        Some(root.descriptor_path())
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

    /// Returns the peer's quota of memory.
    fn memory(&self) -> Quota {
        self.shared.memory.of(*self.key.as_bytes())
    }

    /// Leases the descriptors of a file to receive, and the memory of its map of holes.
    async fn lease_target(
        &self,
        offer: &Offer,
        session: &SessionHandle,
    ) -> Result<Vec<Lease>, FileError> {
        let mut leases = vec![self.lease_files(OF_TARGET, session).await?];
        if offer.data.is_some() {
            let memory = self.memory();
            leases.push(leased(memory.lease(OF_HOLES), session, "sparse file").await?);
        }
        Ok(leases)
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
        if let Some(inbox) = &self.shared.inbox {
            inbox.check(&name, put)?;
        }
        if put.options.parents {
            self.make_parents(&name)?;
        }
        let append_only = self.access == Access::AppendOnly;
        let PutOptions {
            replace,
            force,
            delta,
            in_place,
            trial,
            ..
        } = put.options;
        let replaces = replace || force || delta || in_place;
        let options = PutOptions {
            replace: replace && !append_only,
            force: force && !append_only,
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
            .open_target(&name, &put.offer, options, self.resume_key)
            .map_err(|error| match error.code {
                FailCode::Exists if append_only && replaces => only_appends("replace", &name),
                _ => error,
            })
    }

    /// Returns an error if the peer may do nothing but create files.
    fn check_readable(
        &self,
        operation: &'static str,
        name: &dyn std::fmt::Display,
    ) -> Result<(), FileError> {
        match &self.shared.inbox {
            None => Ok(()),
            Some(inbox) => Err(inbox.refused(operation, name)),
        }
    }

    /// Returns an error if the peer may not write. `name` is the target, for the message.
    pub(super) fn check_writable(&self, name: &dyn std::fmt::Display) -> Result<(), FileError> {
        if self.access != Access::ReadOnly {
            return Ok(());
        }
        Err(FileError::not_permitted(
            "receive",
            name,
            "this peer may only read",
        ))
    }
}

impl Service {
    async fn open_source(
        self: Arc<Self>,
        get: Get,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        let lease = self.lease_files(OF_SOURCE, &session).await?;
        let opened = match get.entry {
            Some(entry) => open_source(tree.as_ref(), entry.id).await?,
            None => self.open_named(get).await?,
        };
        let mut file = opened.keep(lease);
        let holes = file.hole_memory();
        if holes > FREE_HOLES {
            let memory = self.memory();
            file = file.keep(leased(memory.lease(holes), &session, "sparse file").await?);
        }
        Ok((Box::new(FileSource::new(file, None)), Vec::new()))
    }

    async fn open_named(self: &Arc<Self>, get: Get) -> Result<file::Source, FileError> {
        let options = ReadOptions {
            allow_changing: get.allow_changing,
            compress: get.compress,
            range: get.range,
        };
        self.check_readable("open", &get.name)?;
        let service = self.clone();
        let open = move || service.served.open_source(&get.name, options);
        let opened = self.pool().call(open).await;
        opened.unwrap_or_else(|| Err(io_threads_gone("a file")))
    }

    async fn open_sink(
        self: Arc<Self>,
        put: Put,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        if put.entry.is_none() {
            self.check_writable(&put.name)?;
        }
        let leases = self.lease_target(&put.offer, &session).await?;
        let attempt = || {
            let (service, tree, put) = (self.clone(), tree.clone(), put.clone());
            async move {
                let Some(entry) = put.entry else {
                    let open = {
                        let service = service.clone();
                        move || service.open_target_now(&put)
                    };
                    let opened = service.pool().call(open).await;
                    return opened.unwrap_or_else(|| Err(io_threads_gone("the target")));
                };
                let opened = open_target(tree.as_ref(), entry.id, put.offer, put.options);
                let (target, have) = opened.await?;
                Ok((target.into(), have))
            }
        };
        let (target, have) = self.once_free(&session, attempt).await?;
        Ok((FileSink::boxed(target.keep(leases)), have))
    }

    async fn send_tree(&self, get: GetTree, session: SessionHandle) -> Result<Opened, FileError> {
        self.check_readable("send trees of", &"this directory")?;
        let run = self.prepare_sender(get, &session).await?;
        Ok((Box::new(TreeSource::new(run, None)), Vec::new()))
    }

    async fn receive_tree(
        &self,
        put: PutTree,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        self.earlier_sessions_ended(&session).await;
        let run = self.prepare_receiver(put, &session).await?;
        Ok((Box::new(TreeSink::new(run, None)), Vec::new()))
    }
}

impl Serve for Service {
    fn open(
        self: Arc<Self>,
        request: Request,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Pending<Opened> {
        match request {
            Request::Get(get) => Box::pin(self.open_source(get, tree, session)),
            Request::Put(put) => Box::pin(self.open_sink(put, tree, session)),
            Request::GetTree(get) => Box::pin(async move { self.send_tree(get, session).await }),
            Request::PutTree(put) => Box::pin(async move { self.receive_tree(put, session).await }),
            Request::TunnelsUp(_) => Box::pin(ready(self.receive_tunnels(session))),
            Request::TunnelsDown(_) => Box::pin(ready(self.send_tunnels())),
            Request::Exec(exec) => Box::pin(self.start_command(exec, session)),
            Request::ExecOutput(number) => Box::pin(self.send_output(number)),
        }
    }

    fn answer(&self, ask: &AskKind) -> AnswerKind {
        let done = |()| AnswerKind::Done;
        let answered = match (ask, &self.shared.inbox) {
            (
                AskKind::List { .. }
                | AskKind::Stat { .. }
                | AskKind::Remove { .. }
                | AskKind::Rename { .. }
                | AskKind::MakeDir { .. },
                Some(inbox),
            ) => Err(inbox.refused("look at or change", &"this directory")),
            (AskKind::List { dir, after, most }, _) => self
                .list(dir.as_ref(), after.as_deref(), *most as usize)
                .map(|(entries, more)| AnswerKind::Entries { entries, more }),
            (AskKind::Stat { name }, _) => self.stat(name).map(|stat| AnswerKind::Stat { stat }),
            (AskKind::Remove { name }, _) => self.remove(name).map(done),
            (AskKind::Rename { from, to, replace }, _) => self.rename(from, to, *replace).map(done),
            (AskKind::MakeDir { name }, _) => self.make_dir(name).map(done),
            (AskKind::Facts { offset }, _) => self
                .facts(*offset)
                .map(|(part, more)| AnswerKind::Facts { part, more }),
        };
        answered.unwrap_or_else(|error| AnswerKind::Failed {
            code: error.code,
            text: error.one_line(),
        })
    }

    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle) {
        self.routes.expect(connections, session);
    }

    fn meters(&self) -> &Arc<Meters> {
        &self.shared.meters
    }

    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused> {
        let why = match () {
            () if self.no_bench => Some(BenchRefusal::NotPermitted),
            () if self.shared.ending.is_cancelled() => Some(BenchRefusal::ShuttingDown),
            () => None,
        };
        if let Some(why) = why {
            let retry_after_ms = None;
            return Err(BenchRefused {
                why,
                retry_after_ms,
            });
        }
        let (shared, key) = (self.shared.clone(), *self.key.as_bytes());
        let queue = &self.shared.bench_queue;
        queue.ask(key, ask, session, move || Desk {
            limits: shared.bench_limits.read().clone(),
            copies: shared.meters.jobs().running(),
        })
    }

    fn work_for_bench(&self, order: &DiskOrder, stop: &AtomicBool) -> Result<DiskDone, FileError> {
        if !order.read {
            self.check_writable(&"a bench")?;
        }
        let root = self.served.root("measure", &"the disk")?;
        stages::serve(root, *self.key.as_bytes(), order, stop)
    }
}

/// Requests about names below the peer's root. The calls block and run on the I/O threads.
impl Service {
    /// Returns at most `most` entries of a directory (`None`: the root) in byte order of their
    /// names, starting after the name `after`; and true if more follow.
    fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<(Vec<ObjectEntry>, bool), FileError> {
        let shown = || dir.map_or_else(|| ".".to_owned(), ToString::to_string);
        let error = |cause: io::Error| FileError::new("list", shown(), cause);
        let root = match &self.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                return stored_page(stored.to_find("list", dir)?, dir, after, most);
            }
        };
        let opened = root.open_directory(dir).map_err(error)?;
        let mut listing = self.listings.lock().take(dir, after);
        let mut page = Page {
            entries: Vec::new(),
            weight: 0,
            most,
        };
        loop {
            while let Some(name) = listing.names.pop_front() {
                let Some(stat) = looked_up(&opened, OsStr::from_bytes(&name)).map_err(error)?
                else {
                    continue;
                };
                if let Err(ObjectEntry { name, .. }) = page.push(ObjectEntry { name, stat }) {
                    listing.names.push_front(name);
                    listing.last_sent = page.entries.last().map(|last| last.name.clone());
                    // Read again for the next page if the peer's share of memory is used up.
                    if let Some(lease) = self.memory().try_lease(listing.memory()) {
                        self.listings.lock().keep(listing, lease);
                    }
                    return Ok((page.entries, true));
                }
            }
            if listing.is_complete {
                return Ok((page.entries, false));
            }
            listing.fill(&opened, MOST_NAMES).map_err(error)?;
        }
    }

    /// Returns the kind, size and modification time of a name. Does not follow a symlink at the
    /// last component.
    fn stat(&self, name: &Name) -> Result<ObjectStat, FileError> {
        match &self.served {
            Served::Files(root) => find(root, name, "look at").map(|(.., stat)| stat),
            Served::Other(stored) => stored
                .to_find("look at", Some(name))?
                .stat(name)
                .map(ObjectStat::from),
        }
    }

    /// Removes a file or an empty directory, durably.
    fn remove(&self, name: &Name) -> Result<(), FileError> {
        self.check_writable(name)?;
        let root = match &self.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                let storage = stored.to_find("remove", Some(name))?;
                self.check_removable(name, &storage.stat(name)?.into())?;
                return storage.remove(name);
            }
        };
        let (parent, leaf, stat) = find(root, name, "remove")?;
        self.check_removable(name, &stat)?;
        let may = root.logins().check_moved(&parent, leaf);
        may.map_err(|cause| failed("remove", name, cause))?;
        let flags = if stat.kind == ObjectKind::Dir {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        let removed = unlinkat(&parent, leaf, flags).map_err(io::Error::from);
        removed.map_err(|cause| failed("remove", name, cause))?;
        synced(&parent, name)
    }

    /// Renames a file or directory, durably.
    fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError> {
        self.check_writable(from)?;
        let may_rename = || {
            if self.access == Access::AppendOnly {
                Err(only_appends("rename", from))
            } else {
                Ok(())
            }
        };
        let root = match &self.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                stored.to_find("rename", Some(from))?.stat(from)?;
                may_rename()?;
                return stored.to_name("rename to", to)?.rename(from, to, replace);
            }
        };
        let (old, old_name, _) = find(root, from, "rename")?;
        may_rename()?;
        let may = root.logins().check_moved(&old, old_name);
        may.map_err(|cause| failed("rename", from, cause))?;
        let (new, new_name) = root
            .open_parent_for_new(to)
            .map_err(|cause| failed("open the directory of", to, cause))?;
        let may = root.logins().check_moved(&new, new_name);
        may.map_err(|cause| failed("rename to", to, cause))?;
        let renamed = match replace {
            true => renameat(&old, old_name, &new, new_name).map_err(io::Error::from),
            false => rename_to_free(&old, old_name, &new, new_name),
        };
        renamed.map_err(|cause| failed("rename to", to, cause))?;
        synced(&new, to)?;
        synced(&old, from)
    }

    /// Creates a directory and its missing parents, durably. Succeeds if it exists.
    fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        self.check_writable(name)?;
        match &self.served {
            Served::Files(root) => root
                .make_directory(name)
                .map_err(|cause| failed("make directory", name, cause)),
            Served::Other(stored) => stored.to_name("make directory", name)?.make_dir(name),
        }
    }

    fn make_parents(&self, name: &Name) -> Result<(), FileError> {
        let mut components: Vec<&[u8]> = name.components().collect();
        components.pop();
        match Name::new(components) {
            Ok(parent) => self.make_dir(&parent),
            // The name has no parent below the root.
            Err(_) => Ok(()),
        }
    }

    /// Checks that a peer may remove this file. An append-only peer may only remove a restic lock.
    /// Its [`Root`] follows no symlinks, so the parent directory really is `locks`.
    fn check_removable(&self, name: &Name, stat: &ObjectStat) -> Result<(), FileError> {
        if self.access == Access::AppendOnly && !(stat.kind == ObjectKind::File && is_lock(name)) {
            return Err(only_appends("remove", name));
        }
        Ok(())
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
            features: None,
            program: None,
            limit_bps: None,
        };
        let served = self.shared.roots.find(None, &peers);
        let served = served.expect("its folder exists");
        Arc::new(Service::new(&self.shared, &rights, &hello, served))
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

/// Opens the parent directory of a name. Returns it with the last component and the metadata of the
/// name. `operation` describes the call in errors.
fn find<'a>(
    root: &Root,
    name: &'a Name,
    operation: &'static str,
) -> Result<(OwnedFd, &'a OsStr, ObjectStat), FileError> {
    let found = root.open_parent_of(name).and_then(|(parent, leaf)| {
        let stat = looked_up(&parent, leaf)?;
        Ok((parent, leaf, stat.ok_or(io::ErrorKind::NotFound)?))
    });
    found.map_err(|cause| failed(operation, name, cause))
}

/// Returns up to `most` entries of a [`Storage`]'s directory that fit into one message, and true if
/// more follow.
fn stored_page(
    storage: &dyn Storage,
    dir: Option<&Name>,
    after: Option<&[u8]>,
    most: usize,
) -> Result<(Vec<ObjectEntry>, bool), FileError> {
    let (listed, more) = storage.list(dir, after, most)?;
    // A client continues after the last entry, so an empty page must end the listing.
    let more = more && !listed.is_empty();
    let mut page = Page {
        entries: Vec::new(),
        weight: 0,
        most,
    };
    for (name, stat) in listed {
        if page
            .push(ObjectEntry {
                name,
                stat: stat.into(),
            })
            .is_err()
        {
            return Ok((page.entries, true));
        }
    }
    Ok((page.entries, more))
}

/// Entries of one answer to a list request, limited in number and message size.
struct Page {
    entries: Vec<ObjectEntry>,
    weight: usize,
    most: usize,
}

impl Page {
    /// Adds an entry, or returns it as an error if the page is full.
    fn push(&mut self, entry: ObjectEntry) -> Result<(), ObjectEntry> {
        let weight = self.weight + entry.weight();
        if self.entries.len() >= self.most || weight > MOST_ANSWER {
            return Err(entry);
        }
        self.weight = weight;
        self.entries.push(entry);
        Ok(())
    }
}

/// Returns the metadata of a name in a directory, or `None` if it does not exist.
fn looked_up(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<ObjectStat>> {
    Ok(stat_entry(dir, name)?.as_ref().map(described))
}

fn described(stat: &Stat) -> ObjectStat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ObjectKind::File,
        FileType::Directory => ObjectKind::Dir,
        _ => ObjectKind::Other,
    };
    let mtime = Timestamp {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    };
    ObjectStat {
        kind,
        size: stat.st_size as u64,
        mtime,
    }
}

/// Returns true if the name is that of a restic lock: 64 hex digits in a directory `locks`.
///
/// restic cannot work without removing its own locks. Its rest-server permits that in append-only
/// mode, too.
fn is_lock(name: &Name) -> bool {
    let mut components = name.components().rev();
    let is_id = |id: &[u8]| id.len() == 64 && id.iter().all(u8::is_ascii_hexdigit);
    components.next().is_some_and(is_id) && components.next() == Some(b"locks")
}

fn only_appends(operation: &'static str, name: &Name) -> FileError {
    FileError::not_permitted(operation, name, "this peer may only add files")
}

fn failed(operation: &'static str, name: &Name, cause: io::Error) -> FileError {
    let code = match cause.kind() {
        // A parent is a file, so the name cannot exist.
        io::ErrorKind::NotADirectory => Some(FailCode::NotFound),
        io::ErrorKind::DirectoryNotEmpty => Some(FailCode::Exists),
        io::ErrorKind::PermissionDenied if !Barred::is_why(&cause) => Some(FailCode::Refused),
        _ => None,
    };
    let error = FileError::new(operation, name, cause);
    match code {
        Some(code) => error.with_code(code),
        None => error,
    }
}

fn synced(dir: &OwnedFd, name: &Name) -> Result<(), FileError> {
    sync_names(dir).map_err(|cause| FileError::new("sync the directory of", name, cause))
}

/// Memory for the map of holes of a received file in bytes: 65,536 extents of 16 bytes, in the list
/// of the protocol, in that of the target, and as chunks.
const OF_HOLES: usize = 4 << 20;

/// Memory of the map of holes of a sent file that is not charged to the peer, in bytes.
const FREE_HOLES: usize = 16 << 10;

/// Maximum number of concurrent tree transfers per session; `cp` uses one.
pub(super) const MOST_TREES: usize = 4;

/// Maximum time that a new session waits for an earlier one to release a file. A silent path is
/// detected after 1.5 s.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to open a file that an earlier session still has open.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_files_of_64_digits_in_a_directory_of_locks() {
        let id = "0aF".repeat(22)[..64].to_owned();
        let lock = |text: String| is_lock(&Name::parse(text.as_bytes()).unwrap());
        assert!(lock(format!("locks/{id}")) && lock(format!("a/b/locks/{id}")));
        for other in [
            id.clone(),
            format!("data/{id}"),
            format!("locks/x/{id}"),
            format!("locks/{id}0"),
            format!("locks/{}", &id[1..]),
        ] {
            assert!(!lock(other.clone()), "{other}");
        }
        assert!(!lock(format!("locks/{}g", &id[1..])) && !lock("locks".into()));
    }
}
