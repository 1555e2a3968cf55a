//! Implementation of `Serve`, the interface of a session to the daemon.

#[cfg(feature = "bench")]
use std::sync::atomic::AtomicBool;
use std::{io, sync::Arc};

#[cfg(feature = "bench")]
use nicstripe_bench::{Desk, Ticket};
use nicstripe_proto::message::{
    AnswerKind, AskKind, BenchRefusal, Expected, Get, GetTree, Put, PutTree,
};
#[cfg(feature = "bench")]
use nicstripe_proto::message::{BenchAsk, BenchRefused, DiskDone, DiskOrder};

use super::service::Service;
#[cfg(feature = "bench")]
use crate::file::stages;
use crate::{
    file::{self, FileError, OF_SOURCE, OF_TARGET, ReadOptions},
    report::metrics::Meters,
    session::{
        Pending, Serve, SessionHandle, TargetAttempt,
        endpoint::{
            Sink, SinkOpened, Source,
            file::{FileSink, FileSource},
            tree::{TreeSink, TreeSource},
        },
    },
    storage::Target,
    tunnel::Dialer,
};

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
