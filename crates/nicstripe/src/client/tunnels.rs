//! Tunnels of a client: connections to services that the daemon can reach.

use std::sync::Arc;

use nicstripe_proto::message::{Feature, OpenTunnels as Asked};
use tokio::time::Instant;

use super::{
    handle::Client,
    sessions::{CLOSE_TIMEOUT, Inner},
};
use crate::{
    links::establish::LinkedSession,
    report::{
        error::Error,
        event::{Awaited, Event},
    },
    session::{
        Command, Input, NOTICE, Starter,
        kind::{
            Kind,
            tunnel::{TunnelSink, TunnelSource},
        },
    },
    tunnel::{Tunnel, TunnelMux},
};

impl Client {
    /// Connects to a service through the daemon. `target` is `HOST:PORT`, or `unix:/PATH` for a
    /// socket file, exactly as permitted by this machine's line in the daemon's peers file
    /// (`dial=`). The daemon resolves it and connects within 10 s.
    ///
    /// All tunnels of a client share its session, at most 4096 at once. Their data is striped over
    /// all cables, round-robin with transfers. They end when the client is [closed](Client::close),
    /// after the data already written has arrived. Cancel safe: a dropped call leaves no connection.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] if the daemon does not permit or cannot reach the target;
    /// [`Error::Unsupported`] if the daemon has no tunnels; [`Error::Stalled`] if it does not answer
    /// for the client's patience, at least 20 s; as for
    /// [`ClientBuilder::connect`](super::ClientBuilder) if the daemon cannot be reached.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let tunnel = client.dial("localhost:22").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dial(&self, target: &str) -> Result<Tunnel, Error> {
        let (client, target) = (self.clone(), target.to_owned());
        let dialled = async move {
            let inner = &client.inner;
            let session = inner.session().await?;
            session.peer.require(Feature::Tunnels, &inner.host)?;
            let mux = session.mux(inner).await?;
            let opening = mux.open(&inner.host, &target);
            client.answered(&session, opening).await
        };
        self.inner.runtime.run(dialled).await?
    }

    /// Waits for the answer to a request for a tunnel, as long as the client's patience, at least
    /// 20 s.
    pub(super) async fn answered<T>(
        &self,
        session: &LinkedSession,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let settings = &self.inner.settings.session;
        let begun = Instant::now();
        let stalled = async {
            tokio::time::sleep(NOTICE).await;
            if let Some(events) = &settings.events {
                let since = begun.elapsed();
                let awaited = Awaited::Tunnel;
                let _ = events.try_send(Event::Stalled { since, awaited });
            }
            // The daemon tries for 10 s to connect.
            let rest = settings.patience.max(2 * NOTICE) - NOTICE;
            tokio::time::sleep(rest).await;
        };
        tokio::select! {
            answered = request => answered,
            () = session.handle.ended.cancelled() => {
                Err(Error::ended(&self.inner.host, "before it answered"))
            }
            () = stalled => Err(Error::Stalled {
                host: self.inner.host.clone(),
                awaited: Awaited::Tunnel,
                waited: begun.elapsed(),
            }),
        }
    }
}

impl LinkedSession {
    /// Returns the session's tunnel multiplexer, or opens one if there is none or it has ended.
    pub(super) async fn mux(&self, inner: &Inner) -> Result<Arc<TunnelMux>, Error> {
        let mut slot = self.mux.lock().await;
        if let Some(mux) = slot.as_ref().filter(|mux| !mux.has_ended()) {
            return Ok(mux.clone());
        }
        let mux = TunnelMux::new(None);
        let Ok(room) = self.handle.inputs.reserve_many(2).await else {
            return Err(Error::ended(&inner.host, "before the connection began"));
        };
        let mut numbers = inner.numbers.lock();
        let request = Asked {
            up: numbers.next(),
            down: numbers.next(),
        };
        let sink = TunnelSink {
            mux: mux.clone(),
            peer: inner.host.clone(),
            is_offered: true,
        };
        let source = TunnelSource {
            mux: mux.clone(),
            request: Some(request),
        };
        let kinds: [(_, Box<dyn Kind>); 2] = [
            (request.down, Box::new(sink)),
            (request.up, Box::new(source)),
        ];
        for (room, (transfer, kind)) in room.zip(kinds) {
            room.send(Input::Command(Command::Start {
                transfer,
                kind,
                starter: Starter::Session,
            }));
        }
        drop(numbers);
        *slot = Some(mux.clone());
        Ok(mux)
    }

    /// Waits until the data written to tunnels has arrived, at most [`CLOSE_TIMEOUT`].
    pub(super) async fn flush_tunnels(&self) {
        let mux = self.mux.lock().await.clone();
        if let Some(mux) = mux {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, mux.flush()).await;
        }
    }
}
