//! Forwards from this machine (`-L`).

use nicstripe::{Client, LocalListener, LocalStream, trust::DialTarget};
use tokio::task::JoinSet;

use super::{ACCEPT_PAUSE, spec::Spec};
use crate::{failure::Failure, output::terminal::Terminal};

/// Listener here, and the service at the peer that its connections are carried to.
#[derive(Debug)]
pub(super) struct FromHere {
    listener: LocalListener,
    to: DialTarget,
}

impl FromHere {
    /// Listens at the place of a forward.
    pub(super) fn open(spec: &Spec) -> Result<Self, Failure> {
        let listener = LocalListener::bind(&spec.from);
        let listener = listener.map_err(|source| Failure::Listen {
            address: spec.from.to_string(),
            source,
        })?;
        let to = spec.to.clone();
        Ok(Self { listener, to })
    }

    /// Returns what is forwarded where, for the user.
    pub(super) fn shown(&self, peer: &impl std::fmt::Display) -> String {
        format!("{} to {} at {peer}", self.listener.target(), self.to)
    }

    /// Accepts connections and forwards each in a task. Dropping the future ends them all.
    pub(super) async fn serve(self, client: Client, terminal: Terminal) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok(local) => {
                    let (client, to) = (client.clone(), self.to.clone());
                    connections.spawn(carry(local, client, to, terminal.clone()));
                }
                // Most likely too many files are open; some will be closed.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn carry(local: LocalStream, client: Client, to: DialTarget, terminal: Terminal) {
    match client.dial(to.as_str()).await {
        Ok(tunnel) => {
            if let Err(error) = tunnel.join(local).await {
                tracing::debug!(%error, "connection reset");
            }
        }
        Err(error) => {
            terminal.warning(&nicstripe::chain(&error));
            // The client sees a reset instead of a service that closed at once.
            local.reset();
        }
    }
}
