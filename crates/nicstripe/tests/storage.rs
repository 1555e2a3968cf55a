//! Tests of daemons with an in-memory storage instead of a directory.

mod failing;
mod objects;

use std::{
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use crate::harness::{Served, content, digest, interrupt_at, name, within};
use nicstripe::{
    BenchEvent, BenchPlan, BitRate, CancellationToken, Client, CopyOptions, Daemon, DaemonBuilder,
    Error, FailCode, Name, Report, TreeOptions, TreeSource,
    bench::DiskPlan,
    storage::{MemoryStorage, Storage},
    trust::{Identity, PeerOptions, Peers, PublicLine},
};

async fn served_from(storage: impl Storage) -> Served {
    Served::start_built(tempfile::tempdir().unwrap(), |builder| {
        builder.storage(storage)
    })
    .await
}

async fn put(
    client: &Client,
    source: &Path,
    target: &str,
    options: CopyOptions,
) -> Result<Report, Error> {
    within(client.put(source, Some(name(target)), options).finish()).await
}

/// Fetches a file once the last writes of an interrupted transfer have ended, which hold its target.
async fn get_once_free(
    client: &Client,
    source: &str,
    target: &Path,
    options: CopyOptions,
) -> Result<Report, Error> {
    within(async {
        loop {
            match client.get(name(source), target, options).finish().await {
                Err(Error::File(error)) if error.code == FailCode::Busy => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                done => return done,
            }
        }
    })
    .await
}

/// Waits up to a minute until a storage is empty. The daemon deletes unfinished objects only after
/// the client has disconnected.
async fn emptied(storage: &MemoryStorage) {
    let gone = async {
        while storage.unfinished() > 0 || storage.used() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(gone).await;
}

fn file(dir: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join("source");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_awkward_size_go_into_memory_and_come_back() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(3)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    const CHUNK: usize = 256 * 1024;
    for size in [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        7 * CHUNK,
        40 * CHUNK + 4097,
    ] {
        let bytes = content(size);
        let remote = format!("file-{size}");
        let report = put(
            &client,
            &file(here.path(), &bytes),
            &remote,
            CopyOptions {
                verify: true,
                ..CopyOptions::default()
            },
        )
        .await
        .unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)), "{size} bytes");
        assert!(
            storage.contents(&name(&remote)).unwrap() == bytes,
            "{size} bytes"
        );

        let back = here.path().join("back");
        let again = CopyOptions {
            replace: true,
            ..CopyOptions::default()
        };
        let report = within(client.get(name(&remote), &back, again).finish())
            .await
            .unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)), "{size} bytes");
        assert!(std::fs::read(&back).unwrap() == bytes, "{size} bytes");
    }
    assert_eq!(storage.unfinished(), 0);
    assert_eq!(
        std::fs::read_dir(served.root.path()).unwrap().count(),
        0,
        "no directory is written"
    );
    within(client.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_go_into_memory_and_come_back() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(2)).await.unwrap();
    for size in [0, 1, 300_000, 5 << 20] {
        let bytes = content(size);
        let target = name(&format!("pipe-{size}"));
        let reader = std::io::Cursor::new(bytes.clone());
        let report = within(
            client
                .put_pipe(reader, target.clone(), CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)), "{size} bytes");
        assert!(storage.contents(&target).unwrap() == bytes, "{size} bytes");

        let back = tempfile::NamedTempFile::new().unwrap();
        within(
            client
                .get_pipe(target, back.reopen().unwrap(), CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap();
        assert!(std::fs::read(back.path()).unwrap() == bytes, "{size} bytes");
    }
    assert_eq!(storage.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_replaced_only_where_that_was_asked_for() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    storage.insert(&name("target"), b"old").unwrap();
    let source = file(here.path(), b"new");

    let error = put(&client, &source, "target", CopyOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Exists), "{error}");
    assert_eq!(storage.contents(&name("target")).unwrap(), b"old");
    for options in [
        CopyOptions {
            replace: true,
            ..CopyOptions::default()
        },
        CopyOptions {
            delta: true,
            ..CopyOptions::default()
        },
    ] {
        storage.insert(&name("target"), b"old").unwrap();
        put(&client, &source, "target", options).await.unwrap();
        assert_eq!(storage.contents(&name("target")).unwrap(), b"new");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_memory_takes_a_file_under_its_own_name() {
    let storage = MemoryStorage::new();
    storage.make_dir(&name("a/b")).unwrap();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), b"x");
    put(&client, &source, "a/b", CopyOptions::default())
        .await
        .unwrap();
    assert_eq!(storage.contents(&name("a/b/source")).unwrap(), b"x");
    let error = put(&client, &source, "missing/target", CopyOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
    let error = within(
        client
            .get(name("a"), here.path(), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotAFile), "{error}");
    let error = within(
        client
            .get(name("missing"), here.path(), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_and_time_are_kept_where_that_was_asked_for() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), b"x");
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o751)).unwrap();
    let modified = std::fs::metadata(&source).unwrap().modified().unwrap();

    let preserve = CopyOptions {
        preserve: true,
        ..CopyOptions::default()
    };
    put(&client, &source, "target", preserve).await.unwrap();
    assert_eq!(storage.stat(&name("target")).unwrap().modified, modified);
    let back = here.path().join("back");
    within(client.get(name("target"), &back, preserve).finish())
        .await
        .unwrap();
    let found = std::fs::metadata(&back).unwrap();
    assert_eq!(
        (
            found.permissions().mode() & 0o777,
            found.modified().unwrap()
        ),
        (0o751, modified)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_takes_no_memory_for_its_holes() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = std::fs::File::create(here.path().join("sparse")).unwrap();
    source.set_len(64 << 20).unwrap();
    source.write_all_at(&content(1 << 20), 32 << 20).unwrap();
    drop(source);

    put(
        &client,
        &here.path().join("sparse"),
        "sparse",
        CopyOptions::default(),
    )
    .await
    .unwrap();
    assert!(
        storage.contents(&name("sparse")).unwrap()
            == std::fs::read(here.path().join("sparse")).unwrap()
    );
    assert!(storage.used() <= 2 << 20, "{storage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_file_has_no_name_and_goes_on_where_it_was() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let here = tempfile::tempdir().unwrap();
    let bytes = content(128 << 20);
    let source = file(here.path(), &bytes);

    let client = within(served.connect_at(2, Some(BitRate(800_000_000))))
        .await
        .unwrap();
    assert!(
        interrupt_at(
            client.put(&source, Some(name("target")), CopyOptions::default()),
            24 << 20
        )
        .await
    );
    assert_eq!(
        (storage.contents(&name("target")), storage.unfinished()),
        (None, 1)
    );
    assert_eq!(storage.list(None, None, 10).unwrap().entries, []);

    let report = put(&client, &source, "target", CopyOptions::default())
        .await
        .unwrap();
    assert!(report.resumed_bytes >= 16 << 20, "{report:?}");
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert!(storage.contents(&name("target")).unwrap() == bytes);
    assert_eq!(
        (storage.unfinished(), storage.used()),
        (0, bytes.len() as u64)
    );
}

#[test]
fn a_file_goes_on_where_it_was_when_its_session_was_killed() {
    let serving = tokio::runtime::Runtime::new().unwrap();
    let storage = MemoryStorage::new();
    let served = serving.block_on(served_from(storage.clone()));
    let here = tempfile::tempdir().unwrap();
    let bytes = content(128 << 20);
    let source = file(here.path(), &bytes);

    // Dropping the runtime ends its tasks without a message to the daemon, as if the process were
    // killed.
    let killed = tokio::runtime::Runtime::new().unwrap();
    killed.block_on(async {
        let client = within(served.connect_at(2, Some(BitRate(800_000_000))))
            .await
            .unwrap();
        let mut transfer = client.put(&source, Some(name("target")), CopyOptions::default());
        while let Some(event) = within(transfer.next_event()).await {
            if matches!(event, nicstripe::Event::Progress(progress) if progress.bytes >= 24 << 20) {
                break;
            }
        }
        std::mem::forget(transfer);
    });
    killed.shutdown_timeout(Duration::from_secs(5));
    assert_eq!(
        (storage.contents(&name("target")), storage.unfinished()),
        (None, 1)
    );

    serving.block_on(async {
        let client = within(served.connect(2)).await.unwrap();
        let report = put(&client, &source, "target", CopyOptions::default())
            .await
            .unwrap();
        assert!(report.resumed_bytes > 0, "{report:?}");
        assert_eq!(report.digest, Some(digest(&bytes)));
    });
    assert!(storage.contents(&name("target")).unwrap() == bytes);
    assert_eq!(storage.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_pipe_leaves_nothing() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect_at(1, Some(BitRate(400_000_000))))
        .await
        .unwrap();
    let transfer = client.put_pipe(std::io::repeat(7), name("target"), CopyOptions::default());
    assert!(
        !interrupt_at(transfer, 4 << 20).await,
        "an interrupted pipe is not resumed"
    );
    within(client.close()).await;
    emptied(&storage).await;
    assert_eq!(storage.contents(&name("target")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_source_is_sent_anew_and_never_stitched() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let here = tempfile::tempdir().unwrap();
    let mut bytes = content(64 << 20);
    let source = file(here.path(), &bytes);
    let client = within(served.connect_at(1, Some(BitRate(800_000_000))))
        .await
        .unwrap();
    assert!(
        interrupt_at(
            client.put(&source, Some(name("target")), CopyOptions::default()),
            8 << 20
        )
        .await
    );
    bytes[0] ^= 1;
    file(here.path(), &bytes);
    let report = put(&client, &source, "target", CopyOptions::default())
        .await
        .unwrap();
    assert_eq!(
        (report.resumed_bytes, report.digest),
        (0, Some(digest(&bytes)))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_into_memory_is_refused_as_on_a_full_disk() {
    let storage = MemoryStorage::with_limit(1 << 20);
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), &content(2 << 20));
    let error = put(&client, &source, "target", CopyOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NoSpace), "{error}");
    let piped = client.put_pipe(
        std::io::Read::take(std::io::repeat(7), 2 << 20),
        name("target"),
        CopyOptions::default(),
    );
    let error = within(piped.finish()).await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NoSpace), "{error}");
    put(
        &client,
        &file(here.path(), &content(1 << 20)),
        "target",
        CopyOptions::default(),
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_refused_without_a_directory() {
    let served = served_from(MemoryStorage::new()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("x"), "x").unwrap();
    let trees = [
        client.put_tree(vec![here.path().to_owned()], None, TreeOptions::default()),
        client.get_tree(
            vec![TreeSource::content_of(None)],
            here.path(),
            TreeOptions::default(),
        ),
    ];
    for tree in trees {
        let error = within(tree.finish()).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Refused), "{error}");
        assert!(
            error.to_string().contains("storage has no directories"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_of_the_disk_says_that_there_is_none_and_measures_the_rest() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let disk = DiskPlan {
        file: file(here.path(), &content(3 << 20)),
        name: Some(name("target")),
        reverse: false,
        bytes: 1 << 30,
    };
    let load = Duration::from_millis(300);
    let plan = BenchPlan {
        phases: Vec::new(),
        disk: Some(disk),
        repeats: 1..=1,
        load,
        settle: false,
        ..BenchPlan::default()
    };
    let mut bench = client.bench(plan);
    let mut notes = Vec::new();
    while let Some(event) = within(bench.next_event()).await {
        if let BenchEvent::Note(note) = event {
            notes.push(note);
        }
    }
    let found = within(bench.finish()).await.unwrap().disk.unwrap();
    assert!(
        found.read.is_some()
            && found.network.is_some()
            && found.write.is_none()
            && found.all.is_none(),
        "{found:#?}"
    );
    assert!(
        notes
            .iter()
            .all(|note| note.contains("storage has no directories"))
            && notes.len() == 2,
        "{notes:?}"
    );
    emptied(&storage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_a_directory_of_its_own_gets_none_where_files_are_kept_elsewhere() {
    let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let mut peers = Peers::default();
    peers
        .add(
            &PublicLine::new(theirs.public_key(), "client"),
            Some("client"),
        )
        .unwrap();
    peers
        .set_options(
            &theirs.public_key(),
            PeerOptions {
                root: Some("/tmp".into()),
                ..PeerOptions::unrestricted()
            },
        )
        .unwrap();
    let builder = Daemon::builder()
        .storage(MemoryStorage::new())
        .interfaces(vec!["lo".into()])
        .port(0);
    let bound = builder
        .identity(ours.clone())
        .peers(peers)
        .bind()
        .await
        .unwrap();
    let (port, shutdown) = (
        bound.addresses()[0].address.port(),
        CancellationToken::new(),
    );
    let _end = shutdown.clone().drop_guard();
    tokio::spawn(bound.run(shutdown));

    let mut peers = Peers::default();
    peers
        .add(
            &PublicLine::new(ours.public_key(), "daemon"),
            Some("daemon"),
        )
        .unwrap();
    let error = within(
        Client::builder()
            .identity(theirs)
            .peers(peers)
            .port(port)
            .connect("127.0.0.1"),
    )
    .await
    .unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_file_from_memory_goes_on_where_it_was() {
    let storage = MemoryStorage::new();
    let bytes = content(64 << 20);
    storage.insert(&name("source"), &bytes).unwrap();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect_at(2, Some(BitRate(800_000_000))))
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    assert!(
        interrupt_at(
            client.get(name("source"), &back, CopyOptions::default()),
            16 << 20
        )
        .await
    );
    let report = get_once_free(&client, "source", &back, CopyOptions::default())
        .await
        .unwrap();
    assert!(report.resumed_bytes > 0, "{report:?}");
    assert!(std::fs::read(&back).unwrap() == bytes);

    // Other bytes of the same length and under the same name are another file.
    let again = CopyOptions {
        replace: true,
        ..CopyOptions::default()
    };
    assert!(interrupt_at(client.get(name("source"), &back, again), 16 << 20).await);
    storage
        .insert(&name("source"), vec![7; bytes.len()])
        .unwrap();
    let report = get_once_free(&client, "source", &back, again)
        .await
        .unwrap();
    assert_eq!(
        (report.resumed_bytes, report.digest),
        (0, Some(digest(&vec![7; bytes.len()])))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_lets_peers_only_read_or_append_does_so_whatever_it_keeps_files_in() {
    let storage = MemoryStorage::new();
    storage.insert(&name("target"), b"old").unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), b"new");
    let replace = CopyOptions {
        replace: true,
        ..CopyOptions::default()
    };
    for may_append in [true, false] {
        let built = |builder: DaemonBuilder| {
            builder
                .storage(storage.clone())
                .append_only(may_append)
                .read_only(!may_append)
        };
        let served = Served::start_built(tempfile::tempdir().unwrap(), built).await;
        let client = within(served.connect(1)).await.unwrap();
        let error = put(&client, &source, "target", replace).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::NotPermitted), "{error}");
        assert_eq!(
            put(&client, &source, "new", CopyOptions::default())
                .await
                .is_ok(),
            may_append
        );
        assert_eq!(storage.contents(&name("target")).unwrap(), b"old");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_files_at_once_go_into_memory() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let names: Vec<Name> = (0..64)
        .map(|number| name(&format!("file-{number}")))
        .collect();
    let source = file(here.path(), &content(600_000));
    let transfers: Vec<_> = names
        .iter()
        .map(|name| client.put(&source, Some(name.clone()), CopyOptions::default()))
        .collect();
    for transfer in transfers {
        within(transfer.finish()).await.unwrap();
    }
    assert!(
        names
            .iter()
            .all(|name| storage.contents(name).unwrap() == content(600_000))
    );
    let listed = storage.list(None, None, 1000).unwrap();
    let (listed, more) = (listed.entries, listed.more);
    assert_eq!((listed.len(), more), (64, false));
}
