//! Implementation of `Serve`, the interface of a session to the daemon.

use std::{io, sync::Arc};

#[cfg(not(feature = "bench"))]
use nicstripe_proto::message::BenchRefusal;
use nicstripe_proto::message::{AnswerKind, AskKind, Expected, Get, GetTree, Put, PutTree};
#[cfg(feature = "bench")]
use nicstripe_proto::message::{BenchAsk, BenchRefused, DiskDone, DiskOrder};

use super::service::Service;
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
            let opened = pool.call(move || service.served().open_source(&get.name, options));
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
        self.carry_out(ask)
    }

    fn dialer(&self, peer: String) -> Dialer {
        Dialer::new(peer, self.dial_targets().to_vec(), self.files())
    }

    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle) {
        Self::expect(&self, connections, session);
    }

    fn meters(&self) -> &Arc<Meters> {
        Self::meters(self)
    }

    #[cfg(not(feature = "bench"))]
    fn bench_refusal(&self) -> Option<BenchRefusal> {
        Self::bench_refusal(self)
    }

    #[cfg(feature = "bench")]
    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<nicstripe_bench::Ticket<SessionHandle>, BenchRefused> {
        Self::ask_bench(self, ask, session)
    }

    #[cfg(feature = "bench")]
    fn work_for_bench(
        &self,
        order: &DiskOrder,
        stop: &std::sync::atomic::AtomicBool,
    ) -> Result<DiskDone, FileError> {
        Self::work_for_bench(self, order, stop)
    }
}

fn io_threads_gone(what: &str) -> FileError {
    FileError::new("open", what, io::Error::other("the I/O threads have ended"))
}
