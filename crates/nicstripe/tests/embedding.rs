//! Tests of daemons embedded in a program that passes an open directory or listening sockets.

use std::{
    fs::File,
    net::TcpListener,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::harness::{PLAIN, Served, content, done, finished, name, within};
use nicstripe::{
    BenchPlan, CancellationToken, Client, Daemon, DaemonBuilder, Error, FailCode,
    discovery::{Search, SearchOptions},
    storage::MemoryStorage,
    trust::{Identity, Peers},
};

async fn served_by(built: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Served {
    Served::start_built(tempfile::tempdir().unwrap(), built).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_handed_over_open_is_served_whatever_becomes_of_its_name() {
    let place = tempfile::tempdir().unwrap();
    let (before, after) = (place.path().join("before"), place.path().join("after"));
    std::fs::create_dir(&before).unwrap();
    let handle = File::open(&before).unwrap();
    let served = served_by(|builder| builder.root_handle(handle.into())).await;
    std::fs::rename(&before, &after).unwrap();
    std::fs::create_dir(&before).unwrap();

    let client = served.client(2).await;
    let source = place.path().join("source");
    std::fs::write(&source, content(600_000)).unwrap();
    finished(client.put(&source, Some(name("target")), PLAIN)).await;
    assert!(std::fs::read(after.join("target")).unwrap() == content(600_000));
    assert_eq!(std::fs::read_dir(&before).unwrap().count(), 0);
    // A symbolic link does not lead out of the directory either.
    std::os::unix::fs::symlink("../source", after.join("out")).unwrap();
    let error = done(client.get(name("out"), place.path().join("stolen"), PLAIN))
        .await
        .unwrap_err();
    assert!(
        error.fail_code().is_some() && !place.path().join("stolen").exists(),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_handed_over_must_be_a_directory() {
    let file = tempfile::tempfile().unwrap();
    let error = Daemon::builder()
        .root_handle(file.into())
        .bind()
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotADirectory), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_are_handed_over_are_the_only_ones() {
    let listener = TcpListener::bind("127.0.3.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    // The daemon ignores both settings.
    let builder = Daemon::builder()
        .listeners(vec![listener, everywhere])
        .interfaces(vec!["nonsense".into()])
        .announce(true);
    let bound = builder
        .identity(Identity::generate().unwrap())
        .bind()
        .await
        .unwrap();
    let listens: Vec<_> = bound
        .addresses()
        .iter()
        .map(|listens| (listens.interface.as_str(), listens.address))
        .collect();
    assert_eq!(
        (listens[0], listens[1].0, listens.len()),
        (("lo", address), "", 2)
    );
}

#[tokio::test]
async fn no_sockets_at_all_are_an_error() {
    assert!(matches!(
        Daemon::builder().listeners(Vec::new()).bind().await,
        Err(Error::System { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_serves_on_sockets_that_are_handed_over_and_ends_with_its_shutdown() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let storage = MemoryStorage::new();
    let served =
        served_by(|builder| builder.listeners(vec![listener]).storage(storage.clone())).await;
    let client = served.client(2).await;
    let bytes = std::io::Cursor::new(content(3 << 20));
    let report = finished(client.put_pipe(bytes, name("target"), PLAIN)).await;
    // Which link carries how many of so few chunks is a matter of luck.
    assert_eq!(report.links.len(), 2);
    assert!(
        report.links.iter().all(|link| link.verified == Some(true)),
        "{report:?}"
    );
    assert!(storage.contents(&name("target")).unwrap() == content(3 << 20));
}

#[test]
fn outside_a_runtime_there_is_an_error_and_no_panic() {
    let mut context = Context::from_waker(Waker::noop());
    let connecting = pin!(Client::builder().connect("127.0.0.1"));
    let binding = pin!(Daemon::builder().bind());
    assert!(matches!(
        connecting.poll(&mut context),
        Poll::Ready(Err(Error::NoRuntime))
    ));
    assert!(matches!(
        binding.poll(&mut context),
        Poll::Ready(Err(Error::NoRuntime))
    ));
    let identity = Identity::generate().unwrap();
    let searching = Search::start(&identity, &Peers::default(), SearchOptions::default());
    assert!(matches!(searching, Err(Error::NoRuntime)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_without_a_runtime_starts_transfers_and_benchmarks() {
    let served = served_by(|builder| builder).await;
    let client = served.client(1).await;
    let (transfer, bench) = std::thread::spawn(move || {
        let bytes = std::io::Cursor::new(content(1000));
        let transfer = client.put_pipe(bytes, name("target"), PLAIN);
        (transfer, client.bench(BenchPlan::default()))
    })
    .join()
    .unwrap();
    assert_eq!(done(transfer).await.unwrap().size, 1000);
    bench.stop();
    let _ = within(bench.finish()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_daemon_that_has_ended_are_free() {
    let mut port = 0;
    for _ in 0..20 {
        let root = tempfile::tempdir().unwrap();
        let bound = Daemon::builder()
            .identity(Identity::generate().unwrap())
            .root(root.path().to_owned())
            .port(port)
            .listen(vec!["127.0.0.9:0".parse().unwrap()]);
        let bound = bound.bind().await.unwrap();
        port = bound.addresses()[0].address.port();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(bound.run(shutdown.clone()));
        // The accepting tasks have the sockets once they run, which nothing reports.
        tokio::time::sleep(Duration::from_millis(20)).await;
        shutdown.cancel();
        within(running).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_and_their_clients_in_one_process_know_nothing_of_each_other() {
    let storages = [MemoryStorage::new(), MemoryStorage::new()];
    let first = served_by(|builder| builder.storage(storages[0].clone())).await;
    let second = served_by(|builder| builder.storage(storages[1].clone())).await;
    let clients = [first.client(1).await, second.client(1).await];
    for (number, client) in clients.iter().enumerate() {
        let bytes = std::io::Cursor::new(vec![number as u8; 1000]);
        finished(client.put_pipe(bytes, name("same"), PLAIN)).await;
    }
    for (number, storage) in storages.iter().enumerate() {
        assert_eq!(
            storage.contents(&name("same")).unwrap(),
            vec![number as u8; 1000]
        );
    }
    let strangers = Client::builder()
        .identity(first.client.clone())
        .peers(first.trusted.clone())
        .port(second.port);
    assert!(within(strangers.connect("127.0.0.1")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_not_touched_unless_that_was_asked_for() {
    // Returns all routes of nicstripe in the kernel's table.
    let state = tempfile::tempdir().unwrap();
    let tables = || {
        nicstripe::routes::list(state.path())
            .unwrap()
            .into_iter()
            .map(|(route, _)| route)
            .collect::<Vec<_>>()
    };
    let before = tables();
    let served = served_by(|builder| builder.storage(MemoryStorage::new())).await;
    let client = served.client(2).await;
    let transfer = client.put_pipe(
        std::io::Cursor::new(content(1 << 20)),
        name("target"),
        PLAIN,
    );
    let report = done(transfer).await.unwrap();
    assert_eq!(report.routes_installed, 0);
    assert_eq!(tables(), before);
}
