//! Tests of daemons with an in-memory storage instead of a directory.

mod failing;

use std::{
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use crate::{
    bench::disks,
    harness::{
        PLAIN, REPLACE, Served, code, content, digest, done, finished, interrupt_at, name,
        source_of, within,
    },
};
use nicstripe::{
    BitRate, Client, CopyOptions, DaemonBuilder, Error, FailCode, Report, TreeOptions, TreeSource,
    storage::{MemoryStorage, Storage},
};
use tempfile::TempDir;

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
    done(client.put(source, Some(name(target)), options)).await
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

#[tokio::test(flavor = "multi_thread")]
async fn mode_and_time_are_kept_where_that_was_asked_for() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let (here, source) = source_of(b"x");
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o751)).unwrap();
    let modified = std::fs::metadata(&source).unwrap().modified().unwrap();
    let preserve = CopyOptions {
        preserve: true,
        ..PLAIN
    };
    put(&client, &source, "target", preserve).await.unwrap();
    assert_eq!(storage.stat(&name("target")).unwrap().modified, modified);
    let back = here.path().join("back");
    finished(client.get(name("target"), &back, preserve)).await;
    let found = std::fs::metadata(&back).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o751);
    assert_eq!(found.modified().unwrap(), modified);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_takes_no_memory_for_its_holes() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = served.client(2).await;
    let (_here, source) = source_of(b"");
    let file = std::fs::File::options().write(true).open(&source).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&content(1 << 20), 32 << 20).unwrap();
    put(&client, &source, "sparse", PLAIN).await.unwrap();
    assert!(storage.contents(&name("sparse")).unwrap() == std::fs::read(&source).unwrap());
    assert!(storage.used() <= 2 << 20, "{storage:?}");
}

#[test]
fn a_file_goes_on_where_it_was_when_its_session_was_killed() {
    let serving = tokio::runtime::Runtime::new().unwrap();
    let storage = MemoryStorage::new();
    let served = serving.block_on(served_from(storage.clone()));
    let bytes = content(128 << 20);
    let (_here, source) = source_of(&bytes);

    // Dropping the runtime ends its tasks without a message to the daemon, as if the process were
    // killed.
    let killed = tokio::runtime::Runtime::new().unwrap();
    killed.block_on(async {
        let client = served.client_at(2, BitRate(800_000_000)).await;
        let mut transfer = client.put(&source, Some(name("target")), PLAIN);
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
        let client = served.client(2).await;
        let report = put(&client, &source, "target", PLAIN).await.unwrap();
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
    let client = served.client_at(1, BitRate(400_000_000)).await;
    let transfer = client.put_pipe(std::io::repeat(7), name("target"), PLAIN);
    assert!(
        !interrupt_at(transfer, 4 << 20).await,
        "an interrupted pipe is not resumed"
    );
    within(client.close()).await;
    emptied(&storage).await;
    assert_eq!(storage.contents(&name("target")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_into_memory_is_refused_as_on_a_full_disk() {
    let storage = MemoryStorage::with_limit(1 << 20);
    let served = served_from(storage).await;
    let client = served.client(1).await;
    let (_here, source) = source_of(content(2 << 20));
    let large = put(&client, &source, "target", PLAIN).await;
    let endless = std::io::Read::take(std::io::repeat(7), 2 << 20);
    let piped = done(client.put_pipe(endless, name("target"), PLAIN)).await;
    assert_eq!([code(large), code(piped)], [Some(FailCode::NoSpace); 2]);
    let (_here, source) = source_of(content(1 << 20));
    put(&client, &source, "target", PLAIN).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_refused_without_a_directory() {
    let served = served_from(MemoryStorage::new()).await;
    let client = served.client(1).await;
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
    let (_here, source) = source_of(content(3 << 20));
    let mut plan = disks::plan(&source, false);
    plan.repeats = 1..=1;
    let (report, notes) = disks::bench(&served, plan).await;
    let found = report.disk.unwrap();
    let measured = [found.read, found.network, found.write, found.all].map(|rate| rate.is_some());
    assert_eq!(measured, [true, true, false, false], "{found:#?}");
    let why = "storage has no directories";
    assert!(
        notes.len() == 2 && notes.iter().all(|note| note.contains(why)),
        "{notes:?}"
    );
    emptied(&storage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_a_directory_of_its_own_gets_none_where_files_are_kept_elsewhere() {
    let options = |_: &TempDir| "root=/tmp".to_owned();
    let built = |builder: DaemonBuilder| builder.storage(MemoryStorage::new());
    let served = Served::start_granting(options, built).await;
    let error = within(served.connect(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_file_from_memory_goes_on_where_it_was() {
    let storage = MemoryStorage::new();
    let bytes = content(64 << 20);
    storage.insert(&name("source"), &bytes).unwrap();
    let served = served_from(storage.clone()).await;
    let client = served.client_at(2, BitRate(800_000_000)).await;
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    assert!(interrupt_at(client.get(name("source"), &back, PLAIN), 16 << 20).await);
    let report = get_once_free(&client, "source", &back, PLAIN)
        .await
        .unwrap();
    assert!(report.resumed_bytes > 0, "{report:?}");
    assert!(std::fs::read(&back).unwrap() == bytes);

    // Other bytes of the same length and under the same name are another file.
    assert!(interrupt_at(client.get(name("source"), &back, REPLACE), 16 << 20).await);
    let other = vec![7; bytes.len()];
    storage.insert(&name("source"), &other).unwrap();
    let report = get_once_free(&client, "source", &back, REPLACE)
        .await
        .unwrap();
    let found = (report.resumed_bytes, report.digest);
    assert_eq!(found, (0, Some(digest(&other))));
}
