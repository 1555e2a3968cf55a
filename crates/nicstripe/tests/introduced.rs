//! Tests of sessions that a trusted channel introduces, with one-time keys.

use std::time::Duration;

use nicstripe::{
    CancellationToken, Client, Daemon, Error,
    bootstrap::{Call, Called, Introduction, Serving, Wishes},
    storage::MemoryStorage,
    trust::{PeerOptions, PublicKey},
};

use crate::harness::{PLAIN, name, within};

/// Serves one call on a port of the loopback interface, 0 for any. Returns what the client learns,
/// and the end of the daemon.
async fn serve(port: u16) -> (Introduction, impl AsyncFnOnce(), MemoryStorage) {
    let call = Call::new(Wishes::default()).unwrap();
    let called = Called::parse(&call.line()).unwrap();
    let (builder, key) = called.daemon(PeerOptions::unrestricted()).unwrap();
    let storage = MemoryStorage::new();
    let builder = builder
        .storage(storage.clone())
        .listen(vec![([127, 0, 0, 1], port).into()]);
    let daemon: Daemon = within(builder.bind()).await.unwrap();
    let met = call.answered(&reply(&called, key, &daemon)).unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(daemon.run(shutdown.clone()));
    let end = async move || {
        shutdown.cancel();
        within(running).await.unwrap().unwrap();
    };
    // Its interfaces are those of this machine, and only one is listened on.
    let port = met.port();
    (met.forwarded(port), end, storage)
}

fn reply(called: &Called, key: PublicKey, daemon: &Daemon) -> String {
    let serving = Serving {
        key,
        port: daemon.addresses()[0].address.port(),
        home: "/".as_ref(),
        homes: &[],
    };
    called.reply(&serving).unwrap()
}

async fn connect(met: &Introduction) -> Result<Client, Error> {
    let builder = Client::builder().introduced(met);
    within(builder.patience(Duration::from_secs(1)).connect("nas")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_copy_that_has_ended_are_worth_nothing() {
    let (met, end, storage) = serve(0).await;
    let client = connect(&met).await.unwrap();
    let (file, options) = (name("a"), PLAIN);
    within(client.write(&file, "bytes", options)).await.unwrap();
    within(client.close()).await;
    assert_eq!(storage.contents(&file).unwrap(), b"bytes");
    end().await;
    assert!(connect(&met).await.is_err(), "nothing listens");

    // The next copy to the same machine and port has other keys at both ends.
    let (next, end, storage) = serve(met.port()).await;
    assert_eq!(next.port(), met.port());
    let error = connect(&met).await.unwrap_err();
    assert!(matches!(error, Error::UntrustedPeer { .. }), "{error}");
    let client = connect(&next).await.unwrap();
    within(client.write(&file, "next", options)).await.unwrap();
    within(client.close()).await;
    assert_eq!(storage.contents(&file).unwrap(), b"next");
    end().await;
}
