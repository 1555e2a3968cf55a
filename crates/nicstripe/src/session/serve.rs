//! Service of a daemon for the peer of a session.

use std::{fmt, pin::Pin, sync::Arc};

#[cfg(feature = "bench")]
use nicstripe_proto::message::{BenchAsk, BenchRefused, DiskDone, DiskOrder};
use nicstripe_proto::{
    Offer, Subtree,
    message::{AnswerKind, AskKind, BenchRefusal, Expected, Get, GetTree, Put, PutTree},
};

use super::{
    endpoint::{SinkOpened, Source},
    input::SessionHandle,
};
use crate::{
    file::{self, FileError},
    report::metrics::Meters,
    tunnel::Dialer,
};

/// Future of an operation that the peer's quota or an earlier session may delay.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = Result<T, FileError>> + Send>>;

/// Closure that tries to open the target of a standalone file, and may be called repeatedly.
pub(crate) type TargetAttempt =
    Box<dyn FnMut() -> Pending<(file::Target, Vec<Subtree>)> + Send + Sync>;

/// Service for the peer of one session, within the peer's rights and quotas. The end of the session
/// cancels pending operations.
pub(crate) trait Serve: fmt::Debug + Send + Sync {
    /// Opens a file that the peer fetches.
    fn open_source(self: Arc<Self>, get: Get, session: SessionHandle) -> Pending<Box<dyn Source>>;
    /// Opens a standalone file of a tree that the peer fetches. `open` is the future that opens it.
    fn open_entry_source(
        self: Arc<Self>,
        open: Pending<file::Source>,
        session: SessionHandle,
    ) -> Pending<Box<dyn Source>>;
    /// Opens a file that the peer sends. Waits while an earlier session of the same peer has it
    /// open.
    fn open_sink(self: Arc<Self>, put: Put, session: SessionHandle) -> Pending<SinkOpened>;
    /// Opens a standalone file of a tree that the peer sends. `attempt` tries to open it. Waits
    /// like [`open_sink`](Self::open_sink).
    fn open_entry_sink(
        self: Arc<Self>,
        offer: Offer,
        attempt: TargetAttempt,
        session: SessionHandle,
    ) -> Pending<SinkOpened>;
    /// Prepares to send the trees that the peer requests.
    fn send_tree(self: Arc<Self>, get: GetTree, session: SessionHandle)
    -> Pending<Box<dyn Source>>;
    /// Prepares to receive a tree, once earlier sessions of the peer have ended.
    fn receive_tree(self: Arc<Self>, put: PutTree, session: SessionHandle) -> Pending<SinkOpened>;
    /// Executes a name request, such as list or remove. Blocks the thread.
    fn answer(&self, ask: &AskKind) -> AnswerKind;
    /// Returns the dialer for the peer's tunnels. `peer` is its name, for the log.
    fn dialer(&self, peer: String) -> Dialer;
    /// Prepares host routes for connections that the peer announces.
    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle);
    fn meters(&self) -> &Arc<Meters>;
    /// Returns the reason why the peer may not run a benchmark now; `None` if it may.
    fn bench_refusal(&self) -> Option<BenchRefusal>;
    /// Queues the peer for a benchmark. Returns its ticket in the queue, or the reason for a
    /// rejection. The queue sends later answers through `session`.
    #[cfg(feature = "bench")]
    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<nicstripe_bench::Ticket<SessionHandle>, BenchRefused>;
    /// Runs a disk test for a benchmark: reads files like a sender, or writes like a receiver and
    /// then discards the data. Blocks the thread until done or until `stop` is set.
    #[cfg(feature = "bench")]
    fn work_for_bench(
        &self,
        order: &DiskOrder,
        stop: &std::sync::atomic::AtomicBool,
    ) -> Result<DiskDone, FileError>;
}
