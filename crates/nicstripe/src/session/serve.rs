//! Service of a daemon for the peer of a session.

use std::{fmt, pin::Pin, sync::Arc};

use nicstripe_proto::{
    Request,
    message::{AnswerKind, AskKind, Expected},
};

use super::{
    bench::ServeBench,
    handle::SessionHandle,
    kind::{Opened, tree::TreeThread},
};
use crate::{file::FileError, report::metrics::Meters};

/// Future of an operation that the peer's quota or an earlier session may delay.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = Result<T, FileError>> + Send>>;

pub(crate) type Answering = Pin<Box<dyn Future<Output = AnswerKind> + Send>>;

/// Service for the peer of one session, within the peer's rights and quotas. The end of the session
/// cancels pending operations.
pub(crate) trait Serve: ServeBench + fmt::Debug + Send + Sync {
    /// Opens this machine's end of a transfer that the peer requests. Waits while an earlier session
    /// of the same peer has the file open. `tree` is the thread of the tree to which a standalone
    /// file belongs.
    fn open(
        self: Arc<Self>,
        request: Request,
        tree: Option<TreeThread>,
        session: SessionHandle,
    ) -> Pending<Opened>;
    /// Executes a name request, such as list or remove. Blocks the thread.
    fn answer(&self, ask: &AskKind) -> AnswerKind;
    /// Starts a request that waits for another machine; `None` for all others. The end of the session
    /// cancels it.
    fn answer_later(self: Arc<Self>, _ask: &AskKind) -> Option<Answering> {
        None
    }
    /// Prepares host routes for connections that the peer announces.
    fn expect(self: Arc<Self>, connections: Vec<Expected>, session: SessionHandle);
    fn meters(&self) -> &Arc<Meters>;
}
