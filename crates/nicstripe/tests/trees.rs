//! Tests of tree copies between a client and a daemon in one process.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::harness::{PLAIN, Served, content, done, finished, leftovers, name};
use nicstripe::{BitRate, Client, CopyOptions, Report, TreeOptions, TreeSource};

fn under_name() -> TreeOptions {
    TreeOptions {
        as_name: true,
        ..everything()
    }
}

/// Copies a tree to the daemon under the name `copy`.
async fn put(client: &Client, tree: PathBuf) -> Report {
    let copied = client.put_tree([tree], Some(name("copy")), under_name());
    done(copied).await.unwrap()
}

fn everything() -> TreeOptions {
    TreeOptions {
        recursive: true,
        owners: true,
        xattrs: true,
        hard_links: true,
        files: CopyOptions {
            preserve: true,
            ..PLAIN
        },
        ..TreeOptions::default()
    }
}

/// Creates a tree of files of many sizes, symbolic links, hard links and an empty directory.
fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("sub/deeper/empty")).unwrap();
    for (file, size) in [
        ("empty", 0),
        ("small", 10),
        ("sub/chunk", 256 << 10),
        ("sub/over", (256 << 10) + 1),
        ("sub/deeper/packed", 3 << 20),
        ("large", 9 << 20),
    ] {
        fs::write(tree.join(file), content(size)).unwrap();
    }
    for number in 0..300 {
        fs::write(
            tree.join(format!("sub/file-{number}")),
            content(number * 37),
        )
        .unwrap();
    }
    symlink("sub/chunk", tree.join("link")).unwrap();
    symlink("/nowhere", tree.join("sub/dangling")).unwrap();
    fs::hard_link(tree.join("small"), tree.join("sub/same")).unwrap();
    fs::hard_link(tree.join("large"), tree.join("sub/same-large")).unwrap();
    fs::File::open(tree.join("sub/deeper/empty"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
}

/// Returns the differences between two trees by `diff -r` and find(1). Empty if the trees are
/// equal.
fn difference(a: &Path, b: &Path) -> String {
    let list = |tree: &Path| {
        let script = "find . -printf '%P %y %m %T@ %n %l %s\\n' | sed -E 's/^([^ ]* d [^ ]* [^ ]*) .*/\\1/' | sort";
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(tree)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let diff = Command::new("diff")
        .arg("-r")
        .args([a, b])
        .output()
        .unwrap();
    let listed = if list(a) == list(b) {
        String::new()
    } else {
        format!("{}\n--\n{}", list(a), list(b))
    };
    format!("{}{listed}", String::from_utf8_lossy(&diff.stdout))
}

fn counts(report: &Report) -> (u64, u64, u64) {
    let tree = report.tree.as_ref().unwrap();
    assert_eq!(tree.failures, []);
    (tree.files, tree.unchanged, tree.directories)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_goes_there_and_back_and_is_the_same_and_a_second_run_sends_nothing() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    plant(&tree);

    let report = put(&client, tree.clone()).await;
    assert_eq!(difference(&tree, &served.path("copy")), "");
    assert_eq!(counts(&report), (306, 0, 4));
    let report = put(&client, tree.clone()).await;
    assert_eq!(
        difference(&tree, &served.path("copy/tree")),
        "",
        "into the directory, since it exists"
    );
    assert_eq!(counts(&report), (306, 0, 4));
    let report = put(&client, tree.join("")).await;
    assert_eq!(counts(&report).0, 0);

    let back = here.path().join("back");
    let sources = vec![TreeSource::named(name("copy/tree"))];
    let report = finished(client.get_tree(sources.clone(), &back, under_name())).await;
    assert_eq!(difference(&tree, &back), "");
    assert_eq!(counts(&report), (306, 0, 4));
    let sources = vec![TreeSource::content_of(Some(name("copy/tree")))];
    let report = finished(client.get_tree(sources, &back, under_name())).await;
    assert_eq!(counts(&report).0, 0);
    for dir in [served.root.path(), &served.path("copy"), &back] {
        assert_eq!(leftovers(dir), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sender_has_and_cannot_copy_is_no_surplus() {
    let served = Served::start().await;
    let client = served.client(1).await;
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(tree.join("sub/fifo"))
            .status()
            .unwrap()
            .success()
    );
    fs::create_dir_all(served.path("tree/sub")).unwrap();
    for name in ["fifo", "surplus"] {
        fs::write(served.path("tree/sub").join(name), name).unwrap();
    }
    let options = TreeOptions {
        delete: true,
        ..everything()
    };
    let report = finished(client.put_tree(vec![tree], None, options))
        .await
        .tree
        .unwrap();
    assert_eq!(
        (report.special, report.deleted, report.failures),
        (1, 1, vec![])
    );
    assert!(served.path("tree/sub/fifo").exists() && !served.path("tree/sub/surplus").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_four_trees_at_once() {
    let served = Served::start().await;
    // Slow enough that no transfer completes.
    let client = served.client_at(1, BitRate(1_000_000)).await;
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), content(3 << 20)).unwrap();
    let put = |number| {
        client.put_tree(
            vec![here.path().join("file")],
            Some(name(&format!("copy-{number}"))),
            under_name(),
        )
    };
    let mut trees = tokio::task::JoinSet::new();
    for number in 0..5 {
        trees.spawn(put(number).finish());
    }
    let error = trees.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("limit of 4 concurrent trees"),
        "{error}"
    );
    // The other transfers are not affected.
    assert!(
        tokio::time::timeout(Duration::from_millis(300), trees.join_next())
            .await
            .is_err()
    );
}
