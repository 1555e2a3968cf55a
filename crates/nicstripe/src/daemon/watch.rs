//! What happens to the interfaces: listeners follow, sessions and their peers are told.

use std::{sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, interfaces};

use super::{Shared, listeners::Listeners};
use crate::{
    plan::described,
    session::{Command, Input, SessionHandle},
};

/// Follows the interfaces. Returns never: while the kernel tells no changes, the daemon goes on with what it has.
pub(super) async fn watch(shared: Arc<Shared>, mut listeners: Listeners) {
    loop {
        if let Err(error) = follow(&shared, &mut listeners).await {
            tracing::warn!(%error, "changes of interfaces are not seen");
        }
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

async fn follow(shared: &Arc<Shared>, listeners: &mut Listeners) -> std::io::Result<()> {
    let mut changes = Changes::open()?;
    let mut here = interfaces().map_err(std::io::Error::other)?;
    let mut told = described(&here, &[]);
    // What has changed since the listeners were opened, before changes were listened to.
    listeners.follow(&here);
    listeners.accept(shared);
    loop {
        let change = changes.next().await?;
        if let Change::Carrier { index, up } = change
            && let Some(interface) = here.iter().find(|interface| interface.index == index)
        {
            on_carrier(shared, index.0, &interface.name.to_string(), up).await;
        }
        match interfaces() {
            Ok(now) => here = now,
            // The next change brings the next look.
            Err(error) => {
                tracing::warn!(error = %crate::chain(&error), "interfaces cannot be listed");
                continue;
            }
        }
        listeners.follow(&here);
        listeners.accept(shared);
        let now = described(&here, &[]);
        if now != told {
            told = now;
            for session in sessions(shared) {
                session.command(Command::TellInterfaces(told.clone())).await;
            }
        }
    }
}

async fn on_carrier(shared: &Shared, index: u32, interface: &str, up: bool) {
    let services: Vec<_> = shared.sessions().values().map(|entry| (entry.handle.clone(), entry.service.clone())).collect();
    for (session, service) in services {
        let _ = session.inputs.send(Input::Carrier { interface: interface.to_owned(), up }).await;
        if up {
            service.interface_up(index).await;
        }
    }
}

fn sessions(shared: &Shared) -> Vec<SessionHandle> {
    shared.sessions().values().map(|entry| entry.handle.clone()).collect()
}

/// Pause until changes are listened to again after an error.
const WATCH_PAUSE: Duration = Duration::from_secs(10);
