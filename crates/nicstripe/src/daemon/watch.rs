//! Watcher of interface changes: updates the listeners and the discovery responder, and informs
//! sessions and their peers.

use std::{io, sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, Interface, interfaces};
use nicstripe_proto::message::PeerInterface;

use super::{greeting::accept_connection, shared::Shared};
use crate::{
    links::{
        discovery::Responder,
        listeners::{Listeners, OnAccepted},
        plan::described,
    },
    session::{Command, Input, SessionHandle},
    text::logged::logged_error,
};

pub(super) struct Watch {
    shared: Arc<Shared>,
    listeners: Listeners,
    on_accepted: OnAccepted,
    /// Responder to discovery requests; `None` without listening sockets, or with sockets of the
    /// embedding program.
    responder: Option<Responder>,
    interfaces: Vec<Interface>,
    /// Interfaces that were last sent to the peers.
    announced: Vec<PeerInterface>,
}

impl Watch {
    pub(super) fn new(
        shared: Arc<Shared>,
        listeners: Listeners,
        responder: Option<Responder>,
    ) -> Self {
        let admitting = shared.clone();
        Self {
            shared,
            listeners,
            on_accepted: Arc::new(move |accepted, interface| {
                accept_connection(&admitting, accepted, interface);
            }),
            responder,
            interfaces: Vec::new(),
            announced: Vec::new(),
        }
    }

    /// Follows interface changes forever. Retries every [`WATCH_PAUSE`] if the kernel cannot report
    /// changes.
    pub(super) async fn run(&mut self) {
        // Open sockets serve even if watching fails.
        self.listeners.accept(&self.on_accepted);
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(%error, "cannot monitor interface changes");
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    }

    /// Closes the sockets of the listeners and of the responder, and returns once they are closed.
    pub(super) async fn close(self) {
        self.listeners.close().await;
        if let Some(responder) = self.responder {
            responder.close().await;
        }
    }

    async fn follow(&mut self) -> io::Result<()> {
        // Subscribes before listing, so that no change is missed.
        let changes = Changes::open();
        self.look().await;
        let mut changes = changes?;
        loop {
            let change = changes.next().await?;
            if let Change::Carrier { index, up } = change
                && let Some(interface) = self
                    .interfaces
                    .iter()
                    .find(|interface| interface.index == index)
            {
                on_carrier(&self.shared, index.0, &interface.name.to_string(), up).await;
            }
            self.look().await;
        }
    }

    /// Lists the interfaces, and updates listeners, discovery and peers accordingly.
    async fn look(&mut self) {
        match interfaces() {
            Ok(found) => self.interfaces = found,
            // Retried at the next change.
            Err(error) => {
                tracing::warn!(error = %logged_error(&error), "cannot list interfaces");
                return;
            }
        }
        self.listeners.follow(&self.interfaces);
        self.listeners.accept(&self.on_accepted);
        if let Some(responder) = &mut self.responder {
            responder.update(&self.interfaces);
        }
        let now = described(&self.interfaces, &[]);
        if now != self.announced {
            self.announced = now;
            for session in sessions(&self.shared) {
                session
                    .command(Command::SendInterfaces(self.announced.clone()))
                    .await;
            }
        }
    }
}

async fn on_carrier(shared: &Shared, index: u32, interface: &str, up: bool) {
    let sessions: Vec<_> = shared
        .sessions
        .lock()
        .values()
        .map(|entry| (entry.handle.clone(), entry.routes.clone()))
        .collect();
    for (session, routes) in sessions {
        let _ = session
            .inputs
            .send(Input::Carrier {
                interface: interface.to_owned(),
                up,
            })
            .await;
        if up {
            routes.interface_up(index).await;
        }
    }
}

fn sessions(shared: &Shared) -> Vec<SessionHandle> {
    shared
        .sessions
        .lock()
        .values()
        .map(|entry| entry.handle.clone())
        .collect()
}

/// Pause after an error before subscribing to changes and listing interfaces again.
const WATCH_PAUSE: Duration = Duration::from_secs(10);
