//! End of sessions whose rights were reduced.

use std::{collections::HashSet, sync::Arc, time::Duration};

use nicstripe_proto::{SessionId, message::CloseCode};
use tokio::time::MissedTickBehavior;

use super::shared::{Entry, Shared};
use crate::{session::Command, text::logged::logged, trust::Peers};

impl Shared {
    /// Reads the peers file and ends all sessions with more rights than it grants. Does nothing if
    /// the file cannot be read. Blocks.
    pub(super) fn end_sessions_without_rights(&self) {
        self.trusted.refresh_now();
        if let Some(peers) = self.trusted.peers() {
            self.end_sessions(&self.sessions_without_rights(&peers), &peers);
        }
    }

    fn sessions_without_rights(&self, peers: &Peers) -> HashSet<SessionId> {
        let sessions = self.sessions.lock();
        sessions
            .iter()
            .filter(|(_, entry)| entry.rights.loss(peers).is_some())
            .map(|(id, _)| *id)
            .collect()
    }

    fn end_sessions(&self, ids: &HashSet<SessionId>, peers: &Peers) {
        for (_, entry) in self
            .sessions
            .lock()
            .iter()
            .filter(|(id, _)| ids.contains(id))
        {
            if let Some(loss) = entry.rights.loss(peers) {
                revoke(entry, loss);
            }
        }
    }
}

/// Closes a session whose rights were reduced, for the reason `loss`. The peer may reconnect with its remaining rights.
pub(super) fn revoke(entry: &Entry, loss: &str) {
    let session = entry.handle.clone();
    if session.ended.is_cancelled() {
        return;
    }
    let (peer, key) = (logged(entry.rights.name()), entry.rights.key());
    tracing::warn!(%peer, %key, reason = loss, "ending a session");
    tokio::spawn(async move {
        session
            .command(Command::Close(CloseCode::RightsChanged))
            .await
    });
}

/// Polls the peers file and ends sessions whose rights were reduced. Never returns.
///
/// A session ends if two consecutive checks agree, since an editor may briefly empty or remove the
/// file.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut seen, mut doubted): (Option<Arc<Peers>>, HashSet<SessionId>) = Default::default();
    loop {
        looks.tick().await;
        shared.trusted.refresh().await;
        let Some(peers) = shared.trusted.peers() else {
            doubted.clear();
            continue;
        };
        let is_same = seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &peers));
        if shared.roots.take_forgotten() || !is_same {
            shared.roots.on_peers(&peers);
        }
        let has_ended = shared.trusted.grants.take_ended();
        if !is_same || has_ended || !doubted.is_empty() {
            let lost = shared.sessions_without_rights(&peers);
            shared.end_sessions(&lost.intersection(&doubted).copied().collect(), &peers);
            doubted = lost;
        }
        seen = Some(peers);
    }
}

/// Polling interval of the peers file. Each poll takes one system call.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
