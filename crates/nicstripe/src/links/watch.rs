//! Changes of this machine's interfaces, as facts for a client's session.

use std::{collections::BTreeSet, sync::Arc};

use nicstripe_link::{Change, Changes, Interface};
use nicstripe_proto::message::CloseCode;
use tokio::sync::oneshot;

use super::{local, plan::described, route_keeper::RouteKeeper};
use crate::session::{Command, Input, SessionHandle};

/// Task that reports interface changes to a session, and closes it when its owner is gone.
pub(crate) struct Watch {
    pub(crate) session: SessionHandle,
    pub(crate) known: Vec<Interface>,
    /// Names of interfaces that the user excluded.
    pub(crate) excluded: Vec<String>,
    pub(crate) routes: Option<Arc<RouteKeeper>>,
}

impl Watch {
    /// Runs until the session ends, or until the sender of `owner` is dropped.
    pub(crate) async fn run(mut self, mut owner: oneshot::Receiver<()>) {
        let mut changes = open_changes();
        // Changes before the subscription.
        self.look().await;
        loop {
            tokio::select! {
                () = self.session.ended.cancelled() => return,
                _ = &mut owner => break,
                change = next_change(&mut changes) => self.on_change(change).await,
            }
        }
        self.session.command(Command::Close(CloseCode::Done)).await;
    }

    async fn on_change(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Change::Carrier { index, up } = change {
            let mut known = self.known.iter();
            if let Some(interface) = known.find(|interface| interface.index == index) {
                let interface = interface.name.to_string();
                self.tell(Input::Carrier { interface, up }).await;
            }
            if up && let Some(routes) = &self.routes {
                routes.reinstall(index.0).await;
            }
        }
        self.look().await;
    }

    /// Tells the session of the interfaces that there are now.
    async fn look(&mut self) {
        let Ok(found) = local::listed() else { return };
        self.known = found;
        let interfaces = described(&self.known, &self.excluded);
        let names: BTreeSet<String> = self
            .known
            .iter()
            .map(|interface| interface.name.to_string())
            .collect();
        self.tell(Input::Interfaces { interfaces, names }).await;
    }

    async fn tell(&self, fact: Input) {
        let _ = self.session.inputs.send(fact).await;
    }
}

fn open_changes() -> Option<Changes> {
    Changes::open()
        .inspect_err(|error| tracing::warn!(%error, "cannot monitor interface changes"))
        .ok()
}

/// Returns the next interface change, or `None` if the kernel stops reporting them because of an
/// error. Later calls wait forever, as they do if `changes` is `None`.
async fn next_change(changes: &mut Option<Changes>) -> Option<Change> {
    match changes {
        Some(open) => match open.next().await {
            Ok(change) => Some(change),
            Err(error) => {
                tracing::warn!(%error, "interface changes are no longer monitored");
                *changes = None;
                None
            }
        },
        None => std::future::pending().await,
    }
}
