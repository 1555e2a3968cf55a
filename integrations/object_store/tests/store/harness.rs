//! Daemon in the test process, and a store over a client of it.

use std::net::TcpListener;

use nicstripe::{
    CancellationToken, Client, Daemon, DaemonBuilder,
    storage::MemoryStorage,
    trust::{Identity, PeerOptions, Peers, PublicLine},
};
use nicstripe_object_store::NicstripeStore;
use tempfile::TempDir;

/// Daemon that serves an empty root, until it is dropped.
pub(crate) struct Served {
    pub(crate) store: NicstripeStore,
    #[cfg(feature = "v0_13")]
    pub(crate) older: nicstripe_object_store::v0_13::NicstripeStore,
    pub(crate) root: TempDir,
    shutdown: CancellationToken,
}

impl Served {
    /// Serves a directory of the file system.
    pub(crate) async fn files() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        Self::start(root, |builder| builder.root(path)).await
    }

    pub(crate) async fn memory() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self::start(root, |builder| builder.storage(MemoryStorage::new())).await
    }

    async fn start(root: TempDir, built: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Self {
        let (client, daemon) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut peers = trusting(&client);
        let options = PeerOptions::unrestricted();
        peers.set_options(&client.public_key(), options).unwrap();
        let builder = Daemon::builder()
            .identity(daemon.clone())
            .peers(peers)
            .listeners(vec![listener]);
        let shutdown = CancellationToken::new();
        let running = built(builder).bind().await.unwrap().run(shutdown.clone());
        tokio::spawn(async move { running.await.unwrap() });
        let client = Client::builder()
            .identity(client)
            .peers(trusting(&daemon))
            .port(port)
            .links(vec![
                "127.0.0.2=127.0.0.1".parse().unwrap(),
                "127.0.0.3=127.0.0.1".parse().unwrap(),
            ])
            .connect("127.0.0.1")
            .await
            .unwrap();
        Self {
            #[cfg(feature = "v0_13")]
            older: nicstripe_object_store::v0_13::NicstripeStore::new(client.clone()),
            store: NicstripeStore::new(client),
            root,
            shutdown,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn trusting(identity: &Identity) -> Peers {
    let mut peers = Peers::default();
    peers
        .add(
            &PublicLine::new(identity.public_key(), "peer"),
            Some("peer"),
        )
        .unwrap();
    peers
}
