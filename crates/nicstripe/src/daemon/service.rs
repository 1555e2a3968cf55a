//! Service of the daemon for one session: passes each request of the peer to the job that it
//! concerns.

use std::{future::ready, sync::Arc};

use nicstripe_proto::{
    Name, Request,
    message::{AnswerKind, AskKind, Expected, Fetch, Hello},
};

use super::{
    concats::ConcatRequest,
    exec::Commands,
    facts::ToldFacts,
    fetches::Fetches,
    grants::{OwnGrants, not_admitted},
    objects::{Objects, PageRequest},
    rights::Rights,
    served_peer::ServedPeer,
    shared::Shared,
    trees::Trees,
    tunnels::Tunnels,
};
#[cfg(test)]
use crate::file::IoPool;
use crate::{
    file::FileError,
    links::peer_routes::PeerRoutes,
    report::metrics::Meters,
    session::{
        Answering, Pending, Serve, SessionHandle,
        kind::{Opened, tree::TreeThread},
    },
    storage::Served,
    trust::PublicKey,
};

#[derive(Debug)]
pub(crate) struct Service {
    /// Opens single files and runs benchmarks, which need no state of their own.
    pub(super) peer: Arc<ServedPeer>,
    objects: Arc<Objects>,
    trees: Arc<Trees>,
    tunnels: Tunnels,
    commands: Arc<Commands>,
    facts: ToldFacts,
    fetches: Arc<Fetches>,
    admitted: OwnGrants,
    pub(super) routes: Arc<PeerRoutes>,
}

impl Service {
    pub(super) fn new(
        shared: &Arc<Shared>,
        rights: &Rights,
        hello: &Hello,
        served: Served,
    ) -> Self {
        let interfaces = hello.interfaces.iter().flatten();
        let peer = Arc::new(ServedPeer::new(shared, rights, served));
        let objects = Arc::new(Objects::new(&peer));
        Self {
            fetches: Arc::new(Fetches::new(&peer, &objects)),
            objects,
            trees: Arc::new(Trees::new(&peer)),
            tunnels: Tunnels::default(),
            commands: Arc::new(Commands::new(&peer)),
            facts: ToldFacts::default(),
            admitted: OwnGrants::default(),
            routes: Arc::new(PeerRoutes::new(
                rights.owner(),
                shared.routes.as_deref(),
                shared.route_limits.clone(),
                interfaces.flat_map(|interface| &interface.addresses),
            )),
            peer,
        }
    }
}

impl Service {
    /// Lets a key read files that the peer may read, until the session ends.
    fn admit(&self, key: [u8; 32], names: &[Name]) -> Result<(), FileError> {
        let peer = &self.peer;
        if peer.shared.fetcher.is_none() {
            let why = "this daemon takes no part in copies to several machines";
            return Err(FileError::refused("admit", "a key", why));
        }
        for name in names {
            peer.check_readable("admit to", name)?;
        }
        let refused = |why: String| FileError::refused("admit", "a key", why);
        let key = PublicKey::from_bytes(key).map_err(|error| refused(error.to_string()))?;
        let trusted = &peer.shared.trusted;
        let peers = trusted.peers();
        let peers = peers.ok_or_else(|| refused("the list of peers cannot be read".into()))?;
        if peers.find(&key).is_some() {
            return Err(refused("it has rights of its own".into()));
        }
        let (grants, rights) = (&trusted.grants, &peer.rights);
        self.admitted.admit(grants, key, rights, names)
    }
}

impl Serve for Service {
    fn open(
        self: Arc<Self>,
        request: Request,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Pending<Opened> {
        if let Some(Err(error)) = self.peer.rights.only().map(|only| only.check(&request)) {
            return Box::pin(ready(Err(error)));
        }
        match request {
            Request::Get(get) => Box::pin(self.peer.clone().open_source(get, tree, session)),
            Request::Put(put) => Box::pin(self.peer.clone().open_sink(put, tree, session)),
            Request::GetTree(get) => Box::pin(self.trees.clone().send(get, session)),
            Request::PutTree(put) => Box::pin(self.trees.clone().receive(put, session)),
            Request::TunnelsUp(_) => Box::pin(ready(self.tunnels.receive(&self.peer, session))),
            Request::TunnelsDown(_) => Box::pin(ready(self.tunnels.send())),
            Request::Exec(exec) => Box::pin(self.commands.clone().run(exec, session)),
            Request::ExecOutput(number) => Box::pin(self.commands.send_output(number)),
        }
    }

    fn answer(&self, ask: &AskKind) -> AnswerKind {
        if self.peer.rights.only().is_some() {
            return failed(not_admitted(&"more than single files"));
        }
        let (objects, done) = (&self.objects, |()| AnswerKind::Done);
        let answered = match ask {
            AskKind::List {
                dir,
                after,
                most,
                digests,
            } => objects
                .list(page(dir, after, *most, *digests, false))
                .map(|(entries, more)| AnswerKind::Entries { entries, more }),
            AskKind::Stat { name } => objects
                .head(name)
                .map(|(stat, attributes)| AnswerKind::Stat { stat, attributes }),
            AskKind::Remove {
                name,
                only_if,
                kind,
            } => objects.remove(name, *only_if, *kind).map(done),
            AskKind::Rename {
                from,
                to,
                replace,
                only_if,
            } => objects.rename(from, to, *replace, *only_if).map(done),
            AskKind::Copy {
                from,
                to,
                replace,
                only_if,
                offset,
            } => {
                let request = ConcatRequest {
                    from: Some(from),
                    to,
                    replace: *replace,
                    only_if: *only_if,
                    attributes: None,
                };
                let done = Some(*offset).filter(|offset| *offset > 0);
                objects.concat(request, done, Some((from, *offset)))
            }
            AskKind::Concat {
                part,
                from,
                to,
                replace,
                only_if,
                offset,
                attributes,
            } => {
                let request = ConcatRequest {
                    from: None,
                    to,
                    replace: *replace,
                    only_if: *only_if,
                    attributes: attributes.as_ref(),
                };
                let part = part.as_ref().map(|part| (part, *from));
                objects.concat(request, *offset, part)
            }
            AskKind::Hash {
                name,
                offset,
                words,
            } => objects.hash((name, *words), *offset),
            AskKind::Walk {
                dir,
                after,
                most,
                digests,
            } => objects
                .list(page(dir, after, *most, *digests, true))
                .map(|(entries, more)| AnswerKind::Walked { entries, more }),
            AskKind::RemoveMany { names, kind } => Ok(AnswerKind::Removed {
                failed: objects.remove_many(names, *kind),
            }),
            AskKind::MakeDir { name } => objects.make_dir(name).map(done),
            AskKind::Facts { offset } => self
                .facts
                .part(&self.peer, *offset)
                .map(|(part, more)| AnswerKind::Facts { part, more }),
            AskKind::FetchKey => self.fetches.key(),
            AskKind::Admit { key, names } => self.admit(*key, names).map(done),
            AskKind::Fetch(_) => Err(not_admitted(&"this")),
        };
        answered.unwrap_or_else(failed)
    }

    fn answer_later(self: Arc<Self>, ask: &AskKind) -> Option<Answering> {
        match ask {
            AskKind::Fetch(fetch) if self.peer.rights.only().is_none() => {
                let fetch = Fetch::clone(fetch);
                let answer = async move { self.fetches.fetch(fetch).await };
                Some(Box::pin(async { answer.await.unwrap_or_else(failed) }))
            }
            _ => None,
        }
    }

    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle) {
        self.routes.expect(connections, session);
    }

    fn meters(&self) -> &Arc<Meters> {
        &self.peer.shared.meters
    }
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

fn failed(error: FileError) -> AnswerKind {
    AnswerKind::Failed {
        code: error.code,
        text: error.one_line(),
    }
}

fn page<'a>(
    dir: &'a Option<Name>,
    after: &'a Option<Vec<u8>>,
    most: u32,
    digests: bool,
    is_deep: bool,
) -> PageRequest<'a> {
    PageRequest {
        dir: dir.as_ref(),
        after: after.as_deref(),
        most: most as usize,
        digests,
        is_deep,
    }
}
