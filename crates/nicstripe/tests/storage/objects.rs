//! Tests of client operations on names and small files of a storage.

use nicstripe::{CopyOptions, FailCode, Kind, storage::MemoryStorage};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::{Served, content, name, served_from};
use crate::harness::within;

#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_storage_are_listed_looked_at_changed_and_removed() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(2)).await.unwrap();
    within(client.make_dir(&name("a/b"))).await.unwrap();
    within(client.write(&name("a/file"), b"12345", CopyOptions::default()))
        .await
        .unwrap();
    let with_parents = CopyOptions {
        parents: true,
        ..CopyOptions::default()
    };
    within(client.write(&name("new/er/file"), b"1", with_parents))
        .await
        .unwrap();
    assert_eq!(storage.contents(&name("new/er/file")).unwrap(), b"1");

    let listed = within(client.list(Some(&name("a")))).await.unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|entry| (entry.name.to_string(), entry.stat.kind))
        .collect();
    assert_eq!(
        seen,
        [("b".to_owned(), Kind::Dir), ("file".to_owned(), Kind::File)]
    );
    assert_eq!(within(client.stat(&name("a/file"))).await.unwrap().size, 5);
    let beneath_file = within(client.make_dir(&name("a/file/sub"))).await;
    let code = beneath_file.unwrap_err().fail_code();
    assert_eq!(code, Some(FailCode::NotADirectory));
    within(client.rename(
        &name("a/file"),
        &name("a/b/moved"),
        nicstripe::RenameOptions::default(),
    ))
    .await
    .unwrap();
    assert_eq!(
        within(client.read(&name("a/b/moved"), Some(1..3)))
            .await
            .unwrap(),
        b"23"
    );
    assert_eq!(
        within(client.remove(&name("a/b")))
            .await
            .unwrap_err()
            .fail_code(),
        Some(FailCode::Exists)
    );
    within(client.remove(&name("a/b/moved"))).await.unwrap();
    assert!(
        within(client.stat(&name("a/b/moved")))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_unfinished_copies_are_nobodys_in_a_storage_either() {
    let storage = MemoryStorage::new();
    let hidden = name(".x.01234567.nicstripe-journal");
    storage.insert(&hidden, b"kept").unwrap();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(1)).await.unwrap();
    assert!(
        within(client.read(&hidden, None))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        within(client.remove(&hidden))
            .await
            .unwrap_err()
            .is_not_found()
    );
    let replace = CopyOptions {
        replace: true,
        ..CopyOptions::default()
    };
    assert_eq!(
        within(client.write(&hidden, b"mine", replace))
            .await
            .unwrap_err()
            .fail_code(),
        Some(FailCode::Refused)
    );
    assert_eq!(storage.contents(&hidden).unwrap(), b"kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_ten_thousand_names_comes_page_by_page() {
    let storage = MemoryStorage::new();
    for number in 0..10_000 {
        storage
            .insert(
                &name(&format!("{}-{number}", "x".repeat(number % 200))),
                b"",
            )
            .unwrap();
    }
    let served = served_from(storage).await;
    let client = within(served.connect(1)).await.unwrap();
    let listed = within(client.list(None)).await.unwrap();
    assert!(
        listed.len() == 10_000
            && listed.is_sorted_by(|one, next| one.name.file_name() < next.name.file_name())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_work_on_a_storage() {
    let storage = MemoryStorage::new();
    let served = served_from(storage.clone()).await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(5_000_000);
    let mut writer = client.create(&name("target"), CopyOptions::default());
    within(writer.write_all(&bytes)).await.unwrap();
    assert_eq!(storage.contents(&name("target")), None);
    within(writer.finish()).await.unwrap();
    assert!(storage.contents(&name("target")).unwrap() == bytes);

    let mut reader = within(client.open(&name("target"))).await.unwrap();
    let mut found = vec![0; 100_000];
    within(reader.seek(std::io::SeekFrom::Start(4_000_001)))
        .await
        .unwrap();
    within(reader.read_exact(&mut found)).await.unwrap();
    assert!(found == bytes[4_000_001..4_100_001]);
}

#[tokio::test(flavor = "multi_thread")]
async fn append_only_and_read_only_hold_for_names_of_a_storage() {
    let storage = MemoryStorage::new();
    storage.insert(&name("file"), b"1").unwrap();
    let lock = format!("locks/{}", "0123456789abcdef".repeat(4));
    storage_with_lock(&storage, &lock);
    for may_append in [true, false] {
        let files = storage.clone();
        let built = |builder: nicstripe::DaemonBuilder| {
            builder
                .storage(files)
                .append_only(may_append)
                .read_only(!may_append)
        };
        let served = Served::start_built(tempfile::tempdir().unwrap(), built).await;
        let client = within(served.connect(1)).await.unwrap();
        let refused = |result: Result<(), nicstripe::Error>| {
            assert_eq!(
                result.unwrap_err().fail_code(),
                Some(FailCode::NotPermitted)
            );
        };
        refused(within(client.remove(&name("file"))).await);
        refused(
            within(client.rename(
                &name("file"),
                &name("other"),
                nicstripe::RenameOptions::default(),
            ))
            .await,
        );
        assert_eq!(
            within(client.make_dir(&name("dir"))).await.is_ok(),
            may_append
        );
        assert_eq!(
            within(client.remove(&name(&lock))).await.is_ok(),
            may_append
        );
    }
}

fn storage_with_lock(storage: &MemoryStorage, lock: &str) {
    use nicstripe::storage::Storage;
    storage.make_dir(&name("locks")).unwrap();
    storage.insert(&name(lock), b"").unwrap();
}
