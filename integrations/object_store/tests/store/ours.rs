//! What the suite does not cover: order, directories, aborted uploads, errors.

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{
    Error, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, PutPayload,
    multipart::MultipartStore as _, path::Path,
};

use nicstripe_object_store::NicstripeStore;

use crate::harness::Served;

async fn paths(served: &Served, prefix: Option<&str>, after: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let listed = match after {
        Some(after) => served
            .store
            .list_with_offset(prefix.as_ref(), &Path::from(after)),
        None => served.store.list(prefix.as_ref()),
    };
    let metas: Vec<_> = listed.try_collect().await.unwrap();
    metas.iter().map(|meta| meta.location.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_listed_in_the_order_of_their_paths_from_any_path_on() {
    for served in [Served::files().await, Served::memory().await] {
        let all = ["a-b", "a/b", "a/b-c", "a/b0/c", "a0", "z/y"];
        for path in all {
            served
                .store
                .put(&Path::from(path), "x".into())
                .await
                .unwrap();
        }
        assert_eq!(paths(&served, None, None).await, all);
        for offset in ["a", "a-b", "a/b", "a/c", "a0", "zz"] {
            let expected: Vec<_> = all.into_iter().filter(|path| *path > offset).collect();
            assert_eq!(
                paths(&served, None, Some(offset)).await,
                expected,
                "{offset}"
            );
            let below: Vec<_> = expected
                .into_iter()
                .filter(|path| path.starts_with("a/"))
                .collect();
            assert_eq!(
                paths(&served, Some("a"), Some(offset)).await,
                below,
                "{offset}"
            );
        }
        assert_eq!(paths(&served, Some("missing"), None).await, [""; 0]);
        assert_eq!(
            paths(&served, Some("a0"), None).await,
            [""; 0],
            "an object has none below"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_no_object() {
    for served in [Served::files().await, Served::memory().await] {
        served
            .store
            .put(&Path::from("a/b"), "x".into())
            .await
            .unwrap();
        let dir = Path::from("a");
        let errors = [
            served.store.get(&dir).await.map(drop),
            served.store.head(&dir).await.map(drop),
            served.store.get_range(&dir, 0..1).await.map(drop),
            served.store.delete(&dir).await,
            served.store.copy(&dir, &Path::from("c")).await,
            served.store.rename(&dir, &Path::from("c")).await,
        ];
        for error in errors {
            assert!(matches!(error, Err(Error::NotFound { .. })), "{error:?}");
        }
        assert!(served.store.put(&dir, "x".into()).await.is_err());
        assert!(
            served
                .store
                .put(&Path::from("a/b/c"), "x".into())
                .await
                .is_err()
        );
        assert_eq!(paths(&served, None, None).await, ["a/b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_deleted_and_each_has_its_result() {
    for served in [Served::files().await, Served::memory().await] {
        let mut locations = Vec::new();
        for number in 0..300 {
            let path = Path::from(format!("d/{number}"));
            served.store.put(&path, "x".into()).await.unwrap();
            locations.push(path);
        }
        locations.insert(150, Path::from("missing"));
        let given = futures_util::stream::iter(locations.clone().into_iter().map(Ok)).boxed();
        let results: Vec<_> = served.store.delete_stream(given).collect().await;
        assert_eq!(results.len(), locations.len());
        for (result, location) in results.iter().zip(&locations) {
            match result {
                Ok(removed) => assert_eq!(removed, location),
                Err(error) => {
                    assert!(matches!(error, Error::NotFound { .. }), "{error}");
                    assert_eq!(location.as_ref(), "missing");
                }
            }
        }
        assert_eq!(paths(&served, None, None).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_read_with_the_metadata_of_the_object() {
    let served = Served::files().await;
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let path = Path::from("object");
    served.store.put(&path, bytes.clone().into()).await.unwrap();
    let meta = served.store.head(&path).await.unwrap();
    for (range, expected) in [
        (GetRange::Bounded(5..2_000_005), 5..2_000_005),
        (
            GetRange::Bounded(2_999_999..9_000_000),
            2_999_999..3_000_000,
        ),
        (GetRange::Offset(1_000_000), 1_000_000..3_000_000),
        (GetRange::Suffix(7), 2_999_993..3_000_000),
        (GetRange::Suffix(9_000_000), 0..3_000_000),
    ] {
        let options = GetOptions::new().with_range(Some(range.clone()));
        let got = served.store.get_opts(&path, options).await.unwrap();
        assert_eq!(
            (&got.meta, &got.range),
            (&meta, &(expected.start as u64..expected.end as u64))
        );
        assert!(got.bytes().await.unwrap() == bytes[expected], "{range:?}");
    }
    let past = GetOptions::new().with_range(Some(GetRange::Bounded(3_000_000..3_000_001)));
    assert!(served.store.get_opts(&path, past).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_aborted_or_dropped_leaves_nothing() {
    let served = Served::files().await;
    let path = Path::from("upload");
    let part = || PutPayload::from(vec![7; 3_000_000]);
    let mut upload = served.store.put_multipart(&path).await.unwrap();
    upload.put_part(part()).await.unwrap();
    upload.abort().await.unwrap();
    assert!(upload.put_part(part()).await.is_err());
    assert!(upload.complete().await.is_err());
    // Whatever the task that writes is doing.
    for _ in 0..50 {
        let mut upload = served.store.put_multipart(&path).await.unwrap();
        upload.put_part("x".into()).await.unwrap();
        upload.abort().await.unwrap();
    }
    let mut upload = served.store.put_multipart(&path).await.unwrap();
    upload.put_part(part()).await.unwrap();
    drop(upload);
    for _ in 0..100 {
        if std::fs::read_dir(served.root.path()).unwrap().count() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!(
        "{:?}",
        std::fs::read_dir(served.root.path())
            .unwrap()
            .collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_parts_is_seen_only_when_complete_and_goes_on_elsewhere() {
    for served in [Served::files().await, Served::memory().await] {
        let (store, path) = (&served.store, Path::from("a/large"));
        let part = |byte: u8, len: usize| PutPayload::from(vec![byte; len]);
        let id = store.create_multipart(&path).await.unwrap();
        let last = store.put_part(&path, &id, 1, part(2, 5)).await.unwrap();
        store.put_part(&path, &id, 0, part(9, 7)).await.unwrap();
        // As another process would, that knows path and ID.
        let other = NicstripeStore::new(store.client().clone());
        let first = other
            .put_part(&path, &id, 0, part(1, 3_000_000))
            .await
            .unwrap();
        assert_eq!(paths(&served, None, None).await, [""; 0]);
        let listed = other.list_with_delimiter(None).await.unwrap();
        assert!(listed.common_prefixes.is_empty(), "{listed:?}");
        let completed = other
            .complete_multipart(&path, &id, vec![first, last])
            .await
            .unwrap();
        let got = store.get(&path).await.unwrap();
        assert_eq!(got.meta.e_tag, completed.e_tag);
        let bytes = got.bytes().await.unwrap();
        assert!(bytes[..3_000_000] == vec![1; 3_000_000] && bytes[3_000_000..] == [2; 5]);
        assert!(store.abort_multipart(&path, &id).await.is_err());

        let id = store.create_multipart(&path).await.unwrap();
        store.put_part(&path, &id, 0, part(1, 5)).await.unwrap();
        store.abort_multipart(&path, &id).await.unwrap();
        let uploads = nicstripe::Name::parse(b".nicstripe-uploads").unwrap();
        assert_eq!(store.client().list(Some(&uploads)).await.unwrap(), []);
        for wrong in ["../../../../../../../../a", "", "x"] {
            let part = store
                .put_part(&path, &wrong.to_owned(), 0, part(1, 5))
                .await;
            assert!(part.is_err(), "{wrong}");
        }
    }
}
