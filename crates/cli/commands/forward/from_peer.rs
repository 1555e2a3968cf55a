//! Forwards from the peer (`-R`).

use std::{fmt, time::Duration};

use nicstripe::{Client, Error, Listener, LocalStream, Tunnel, trust::DialTarget};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::spec::Spec;
use crate::output::terminal::Terminal;

/// Listener at the peer, and the service here that its connections are carried to.
#[derive(Debug)]
pub(super) struct FromPeer {
    listener: Listener,
    spec: Spec,
}

impl FromPeer {
    /// Asks the peer to listen at the place of a forward.
    pub(super) async fn open(spec: &Spec, client: &Client) -> Result<Self, Error> {
        let listener = client.listen(&spec.from.to_string()).await?;
        let spec = spec.clone();
        Ok(Self { listener, spec })
    }

    /// Returns what is forwarded where, for the user.
    pub(super) fn shown(&self, peer: &impl fmt::Display) -> String {
        let Spec { from, to } = &self.spec;
        let from = from.clone().with_port(self.listener.port());
        format!("{from} at {peer} to {to}")
    }

    /// Forwards each connection in a task, and listens again when the listener has ended. Dropping
    /// the future ends them all.
    pub(super) async fn serve(
        mut self,
        client: Client,
        peer: impl fmt::Display,
        terminal: Terminal,
    ) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok(tunnel) => {
                    connections.spawn(carry(tunnel, self.spec.to.clone(), terminal.clone()));
                }
                Err(error) => {
                    terminal.warning(&nicstripe::chain(&error));
                    self = self.open_again(&client, &terminal).await;
                    terminal.say(format_args!("forwarding {} again", self.shown(&peer)));
                }
            }
        }
    }

    /// Repeats the request until the peer listens. Prints each reason once in a row.
    async fn open_again(self, client: &Client, terminal: &Terminal) -> Self {
        let Self { listener, spec } = self;
        // The port may be in use until then.
        drop(listener);
        let mut last = String::new();
        loop {
            sleep(RETRY_PAUSE).await;
            match Self::open(&spec, client).await {
                Ok(opened) => return opened,
                Err(error) => {
                    let why = nicstripe::chain(&error);
                    if why != last {
                        terminal.warning(&why);
                    }
                    last = why;
                }
            }
        }
    }
}

async fn carry(tunnel: Tunnel, to: DialTarget, terminal: Terminal) {
    let connecting = timeout(CONNECT_TIMEOUT, LocalStream::connect(&to));
    let connected = connecting
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    match connected {
        Ok(local) => {
            if let Err(error) = tunnel.join(local).await {
                tracing::debug!(%error, "connection reset");
            }
        }
        // Dropping the tunnel resets the connection at the peer.
        Err(error) => terminal.warning(&format!("cannot connect to {to}: {error}")),
    }
}

/// Pause before the peer is asked to listen again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Timeout of connecting to a service here, as long as that of a daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
