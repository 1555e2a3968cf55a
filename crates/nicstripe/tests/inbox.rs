//! Tests of a daemon that only takes what was offered to it.

use std::{fs, path::PathBuf};

use nicstripe::{Client, CopyOptions, Error, FailCode, TreeOptions, invitation::Item};

use crate::harness::{PLAIN, Served, name, within};

/// Starts a daemon in a directory that has a file and a directory, which takes `new` and `dir`.
async fn served() -> Served {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("kept"), "kept").unwrap();
    fs::create_dir(root.path().join("others")).unwrap();
    let item = |name: &str, is_dir| Item {
        name: name.into(),
        is_dir,
        is_link: false,
        files: 1,
        bytes: 6,
    };
    let items = [item("new", false), item("dir", true)];
    Served::start_built(root, |builder| builder.inbox(items, false)).await
}

async fn put_tree(client: &Client, sources: &[&str], target: Option<&str>) -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let make = |source: &&str| -> PathBuf {
        let path = folder.path().join(source.trim_end_matches('/'));
        match source.starts_with("dir") {
            true => {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("inside"), "inside").unwrap();
            }
            false => fs::write(&path, "bytes").unwrap(),
        }
        folder.path().join(source)
    };
    let options = TreeOptions {
        recursive: true,
        ..TreeOptions::default()
    };
    let sources = sources.iter().map(make);
    let copy = client.put_tree(sources, target.map(name), options);
    within(copy.finish()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_offered_names_are_taken() {
    let served = served().await;
    let client = served.client(1).await;
    let write = async |file: &str| {
        let options = CopyOptions {
            replace: true,
            parents: true,
            ..PLAIN
        };
        let source = tempfile::NamedTempFile::new().unwrap();
        fs::write(source.path(), "bytes").unwrap();
        let copy = client.put(source.path(), Some(name(file)), options);
        within(copy.finish())
            .await
            .err()
            .and_then(|error| error.fail_code())
    };
    assert_eq!(write("new").await, None);
    assert_eq!(write("new").await, Some(FailCode::NotPermitted), "again");
    for other in [
        "kept", "other", ".profile", "others/x", "news", "dir/x", "dir",
    ] {
        assert_eq!(write(other).await, Some(FailCode::Refused), "{other}");
    }
    // Its size is unknown before its end.
    let piped = within(client.write(&name("new"), "bytes", PLAIN)).await;
    assert_eq!(
        piped.err().and_then(|error| error.fail_code()),
        Some(FailCode::Refused)
    );
    let (kept, new) = (name("kept"), name("new"));
    let refused = |result: Result<(), Error>| {
        let code = result.err().and_then(|error| error.fail_code());
        assert_eq!(code, Some(FailCode::Refused));
    };
    for name in [&kept, &new] {
        refused(within(client.read(name, None)).await.map(drop));
        refused(within(client.stat(name)).await.map(drop));
        refused(within(client.remove(name)).await);
        refused(within(client.rename(name, &new, nicstripe::RenameOptions::replacing())).await);
    }
    refused(within(client.list(None)).await.map(drop));
    refused(within(client.make_dir(&name("others/new"))).await);
    let options = TreeOptions::default();
    let folder = tempfile::tempdir().unwrap();
    let all = client.get_tree(
        vec![nicstripe::TreeSource::content_of(None)],
        folder.path(),
        options,
    );
    refused(within(all.finish()).await.map(drop));
    assert_eq!(fs::read(served.path("kept")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(served.path("others")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_has_the_offered_names_at_its_top() {
    for (sources, target) in [
        (&["new", "dir", "other"][..], None),
        (&["new"], None),
        (&["dir/"], None),
        (&["new", "dir"], Some("others")),
        (&["new", "dir"], Some("dir")),
    ] {
        let served = served().await;
        let client = served.client(1).await;
        let error = put_tree(&client, sources, target).await;
        assert!(error.is_err(), "{sources:?} {target:?}");
        assert_eq!(fs::read_dir(served.path("others")).unwrap().count(), 0);
        assert!(!served.path("other").exists() && !served.path("inside").exists());
    }
    let served = served().await;
    let client = served.client(1).await;
    put_tree(&client, &["new", "dir"], None).await.unwrap();
    assert_eq!(fs::read(served.path("dir/inside")).unwrap(), b"inside");
}
