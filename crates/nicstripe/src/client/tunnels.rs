//! Tunnels: connections to services at the daemon.

use std::sync::Arc;

use nicstripe_proto::message::Trunk as Asked;

use super::{CLOSE_TIMEOUT, Client, Inner, LiveSession};
use crate::{
    error::Error,
    session::Command,
    tunnel::{Trunk, Tunnel},
};

impl Client {
    /// Connects to a TCP service at the daemon: `target` is `HOST:PORT` as it stands in this machine's line there (`dial=`), and is resolved and
    /// connected to by the daemon, within 10 s.
    ///
    /// All tunnels of a client share its session, at most 4096 at once; what they carry goes over all cables and takes turns with
    /// transfers. They end when the client is [closed](Client::close): what was written by then arrives. Has to be called within a tokio
    /// runtime. Cancel safe: a call that is dropped leaves no connection.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where the daemon does not allow or does not reach the target; as for [`ClientBuilder::connect`](super::ClientBuilder)
    /// where the daemon itself cannot be reached.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let tunnel = client.dial("localhost:22").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dial(&self, target: &str) -> Result<Tunnel, Error> {
        let session = self.inner.session(None).await?;
        let trunk = session.trunk(&self.inner).await?;
        tokio::select! {
            opened = trunk.open(&self.inner.host, target) => opened,
            () = session.handle.ended.cancelled() => {
                Err(Error::Ended { host: self.inner.host.clone(), why: "before it answered".into() })
            }
        }
    }
}

impl LiveSession {
    /// Returns the trunk, made where there is none or it has ended.
    async fn trunk(&self, inner: &Inner) -> Result<Arc<Trunk>, Error> {
        let mut slot = self.trunk.lock().await;
        if let Some(trunk) = slot.as_ref().filter(|trunk| !trunk.has_ended()) {
            return Ok(trunk.clone());
        }
        let trunk = Trunk::of_client();
        let mut numbers = inner.numbers.lock().await;
        let asked = Asked { up: numbers.next(), down: numbers.next() };
        if !self.handle.command(Command::OpenTrunk { asked, trunk: trunk.clone() }).await {
            return Err(Error::Ended { host: inner.host.clone(), why: "before the connection began".into() });
        }
        *slot = Some(trunk.clone());
        Ok(trunk)
    }

    /// Waits, for a while, until what was written to tunnels has arrived.
    pub(super) async fn flush_tunnels(&self) {
        let trunk = self.trunk.lock().await.clone();
        if let Some(trunk) = trunk {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, trunk.flush()).await;
        }
    }
}
