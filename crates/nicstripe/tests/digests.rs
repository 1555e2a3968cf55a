//! Tests of hashes that the daemon keeps next to files, and of those that it computes.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
};

use nicstripe::{
    Client, CopyOptions, Digest, Entries, FailCode, OpenOptions, RenameOptions, TreeOptions,
    storage::MemoryStorage,
};
use tokio::io::AsyncWriteExt;

use crate::harness::{PLAIN, Served, code, content, done, finished, name, ok, within};

async fn told(client: &Client, file: &str) -> Option<Digest> {
    within(client.stat(&name(file))).await.unwrap().digest
}

async fn listed(mut entries: Entries) -> Vec<(String, Option<Digest>)> {
    let mut found = Vec::new();
    while let Some(entry) = within(entries.next()).await.unwrap() {
        found.push((entry.name.to_string(), entry.stat.digest));
    }
    found
}

/// Changes the content of a file by another program, which then sets the time back.
fn damage(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"!", 3).unwrap();
    file.set_modified(modified).unwrap();
    file.sync_all().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_what_a_daemon_received_is_told_until_the_file_changes() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let (a, b, c) = (name("a"), name("b"), name("c"));
    let options = CopyOptions::default;
    let digest = ok(client.write(&a, content(700_000), options())).await;
    let digest = digest.digest;
    assert!(digest.is_some());
    let mut writer = client.create(&b, options());
    within(writer.write_all(&content(700_000))).await.unwrap();
    within(writer.finish()).await.unwrap();
    let beside = tempfile::tempdir().unwrap();
    let here = beside.path().join("here");
    fs::write(&here, content(700_000)).unwrap();
    done(client.put(&here, Some(c), options())).await.unwrap();
    ok(client.copy(&a, &name("d"), RenameOptions::default())).await;
    let known = ["a", "b", "c", "d"].map(|file| (file.to_owned(), digest));
    assert_eq!(listed(client.entries(None).with_digests()).await, known);
    assert_eq!(listed(client.walk(None).with_digests()).await, known);
    for file in ["a", "b", "c", "d"] {
        assert_eq!(told(&client, file).await, digest, "{file}");
    }
    let read = ok(client.read_with(&a, OpenOptions::default())).await;
    let reader = within(client.open(&a)).await.unwrap();
    assert_eq!([read.stat.digest, reader.stat().digest], [digest; 2]);
    let unasked = listed(client.entries(None)).await;
    assert!(unasked.iter().all(|(_, digest)| digest.is_none()));

    // The hash goes with the file, and not with its name or a tree.
    ok(client.rename(&a, &name("e"), RenameOptions::default())).await;
    assert_eq!(told(&client, "e").await, digest);
    fs::copy(served.path("e"), served.path("f")).unwrap();
    assert_eq!(told(&client, "f").await, None);
    let mut appended = File::options().append(true).open(served.path("b")).unwrap();
    appended.write_all(b"more").unwrap();
    assert_eq!(told(&client, "b").await, None);
    let xattrs = TreeOptions {
        recursive: true,
        xattrs: true,
        ..TreeOptions::default()
    };
    let sources = [served.path("e"), served.path("b")];
    finished(client.put_tree(sources, Some(name("tree")), xattrs)).await;
    for file in ["tree/e", "tree/b"] {
        assert_eq!(told(&client, file).await, None);
        let found = rustix::fs::listxattr(served.path(file), &mut [0_u8; 0][..]).unwrap();
        assert_eq!(found, 0, "{file}");
    }

    // Written in place, with the size and the time that the file had before.
    fs::write(&here, content(700_001)[1..].as_ref() as &[u8]).unwrap();
    let modified = fs::metadata(served.path("c")).unwrap().modified().unwrap();
    File::options()
        .write(true)
        .open(&here)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    let in_place = CopyOptions {
        in_place: true,
        replace: true,
        preserve: true,
        ..options()
    };
    let put = client.put(&here, Some(name("c")), in_place).finish();
    let other = within(put).await.unwrap().digest;
    assert_ne!(other, digest);
    assert_eq!(told(&client, "c").await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_for_its_hash_and_damage_is_found() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let a = name("a");
    let written = within(client.write(&a, content(700_000), PLAIN));
    let digest = written.await.unwrap().digest;
    let verified = within(client.verify(&a)).await.unwrap();
    assert_eq!(verified, within(client.stat(&a)).await.unwrap());
    assert_eq!(verified.digest, digest);
    damage(&served.path("a"));
    let error = within(client.verify(&a)).await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Digest), "{error}");
    assert!(!error.is_retryable(), "{error}");

    // A file of another program; large enough for several parts.
    let size = 3 << 30;
    File::create(served.path("large"))
        .unwrap()
        .set_len(size)
        .unwrap();
    let mut zeros = blake3::Hasher::new();
    let mebibyte = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        zeros.update(&mebibyte);
    }
    let large = within(client.verify(&name("large"))).await.unwrap();
    assert_eq!(large.digest, Some(Digest(*zeros.finalize().as_bytes())));
    assert_eq!(
        told(&client, "large").await,
        None,
        "a reader changes nothing"
    );

    // Of a call that was given up, the file that the name had then is not read on.
    for polls in 1..20 {
        let (one, other) = (served.path("one"), served.path("other"));
        File::create(&one).unwrap().set_len(100 << 20).unwrap();
        let last = File::create(&other).unwrap();
        last.write_all_at(&[1; 1 << 20], 99 << 20).unwrap();
        let one_name = name("one");
        let mut call = Box::pin(client.verify(&one_name));
        for _ in 0..polls {
            let wait = std::time::Duration::from_millis(2);
            if tokio::time::timeout(wait, &mut call).await.is_ok() {
                break;
            }
        }
        drop(call);
        fs::rename(&other, &one).unwrap();
        let expected = blake3::hash(&fs::read(&one).unwrap());
        let verified = within(client.verify(&one_name)).await.unwrap();
        assert_eq!(verified.digest, Some(Digest(*expected.as_bytes())));
    }

    fs::create_dir(served.path("dir")).unwrap();
    assert_eq!(
        code(within(client.verify(&name("dir"))).await),
        Some(FailCode::NotAFile)
    );
    assert!(
        within(client.verify(&name("missing")))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_keeps_no_hashes_is_read() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start_built(root, |builder| builder.storage(MemoryStorage::new())).await;
    let client = served.client(1).await;
    let a = name("a");
    let written = within(client.write(&a, content(700_000), PLAIN));
    let digest = written.await.unwrap().digest;
    assert_eq!(told(&client, "a").await, None);
    assert_eq!(within(client.verify(&a)).await.unwrap().digest, digest);
}
