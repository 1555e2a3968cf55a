//! Tests of trusted peers that exceed their rights: through symbolic links they created, and with
//! the names of unfinished copies.

use std::{fs, os::unix::fs::symlink};

use nicstripe_proto::{
    FailCode, Message,
    message::{AnswerKind, AskKind, DiskOrder, Put, PutOptions},
};

use super::{
    Stage, name, names,
    peer::{self, Peer, ask},
    within,
};
use crate::{client::Client, file::options::CopyOptions, report::error::Error, tree::TreeOptions};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const JOURNAL: &str = ".x.01234567.nicstripe-journal";
const PART: &str = ".x.01234567.nicstripe-part";
const PART_DIR: &str = ".d.01234567.nicstripe-part";
const BENEATH: &str = ".d.01234567.nicstripe-part/file";

/// Returns the code with which a call fails, or `None` if it succeeds.
async fn code<T>(call: impl Future<Output = Result<T, Error>>) -> Option<FailCode> {
    let result = within(call).await;
    result.err().and_then(|error| error.fail_code())
}

fn recursive() -> TreeOptions {
    TreeOptions {
        recursive: true,
        ..TreeOptions::default()
    }
}

/// Copies a tree with these symbolic links (name and target) to the daemon. Any peer with write
/// access can do this.
async fn plant(stage: &Stage, client: &Client, tree: &str, links: &[(&str, &str)]) {
    let tree = stage.files.path().join(tree);
    for (link, target) in links {
        let link = tree.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }
    let copied = client.put_tree(vec![tree], None, recursive());
    within(copied.finish()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_may_only_append_reaches_nothing_through_links_that_it_made() {
    let stage = Stage::built(|builder| builder.append_only(true)).await;
    fs::create_dir_all(stage.served("repo/snapshots")).unwrap();
    fs::write(stage.served("repo/config"), "config").unwrap();
    let snapshot = stage.served("repo/snapshots").join(ID);
    fs::write(&snapshot, "snapshot").unwrap();
    let client = stage.honest().await;
    let links = [
        ("a/locks", "../../repo/snapshots"),
        ("repo", "../repo"),
        (
            &format!("b/locks/{ID}"),
            &format!("../../../repo/snapshots/{ID}"),
        ),
    ];
    plant(&stage, &client, "evil", &links).await;
    // A link with the name of a lock is not a lock.
    for lock in [format!("evil/a/locks/{ID}"), format!("evil/b/locks/{ID}")] {
        let removed = code(client.remove(&name(&lock))).await;
        assert_eq!(removed, Some(FailCode::NotPermitted), "{lock}");
        assert!(snapshot.exists(), "{lock}: the snapshot is gone");
    }
    let through = name(&format!("evil/a/locks/{ID}"));
    let (evil, repo, new) = (name("evil"), name("evil/repo"), name("evil/a/locks/new"));
    let (inside, beneath) = (name("evil/repo/evil"), name("evil/repo/new/file"));
    let parents = CopyOptions {
        parents: true,
        replace: true,
        ..CopyOptions::default()
    };
    let file = stage.file("new", b"new");
    let tree = vec![stage.files.path().join("evil")];
    let write_into = || client.put(&file, Some(repo.clone()), parents).finish();
    let write_tree = || client.put_tree(tree.clone(), Some(repo.clone()), recursive());
    let plain = CopyOptions::default();
    let gone = name("gone");
    let answers = [
        ("list", code(client.list(Some(&repo))).await),
        ("stat", code(client.stat(&through)).await),
        ("read", code(client.read(&through, None)).await),
        (
            "rename",
            code(client.rename(&through, &gone, crate::RenameOptions::default())).await,
        ),
        (
            "rename to",
            code(client.rename(&evil, &inside, crate::RenameOptions::default())).await,
        ),
        ("make a directory", code(client.make_dir(&new)).await),
        ("write", code(client.write(&new, "new", plain)).await),
        (
            "beneath",
            code(client.write(&beneath, "new", parents)).await,
        ),
        ("write into", code(write_into()).await),
        ("write a tree", code(write_tree().finish()).await),
    ];
    for (verb, answer) in answers {
        assert!(
            matches!(answer, Some(FailCode::NotPermitted | FailCode::Exists)),
            "{verb}: {answer:?}"
        );
    }
    assert_eq!(names(&stage.served("repo")), ["config", "snapshots"]);
    assert_eq!(names(&stage.served("repo/snapshots")), [ID]);
    assert_eq!(fs::read(&snapshot).unwrap(), b"snapshot");
    // Permitted operations still work.
    let lock = name(&format!("repo/locks/{ID}"));
    within(client.write(&lock, "lock", parents)).await.unwrap();
    within(client.remove(&lock)).await.unwrap();
}

fn put(to: &str, into: Option<&str>, options: PutOptions) -> Message {
    Message::Put(Put {
        options,
        into: into.map(name),
        ..peer::put(1, to, 4)
    })
}

fn get(from: &str) -> Message {
    Message::Get(peer::get(1, from))
}

fn list(dir: &str) -> Message {
    ask(AskKind::List {
        dir: Some(name(dir)),
        after: None,
        most: 9,
        digests: false,
    })
}

fn stat(of: &str) -> Message {
    ask(AskKind::Stat { name: name(of) })
}

fn remove(of: &str) -> Message {
    ask(AskKind::Remove {
        name: name(of),
        only_if: None,
        kind: None,
    })
}

fn make_dir(of: &str) -> Message {
    ask(AskKind::MakeDir { name: name(of) })
}

fn rename(from: &str, to: &str) -> Message {
    ask(AskKind::Rename {
        from: name(from),
        to: name(to),
        replace: true,
        only_if: None,
    })
}

/// Returns the code with which the daemon rejects an operation; `None` if it performs the
/// operation.
async fn refusal(peer: &mut Peer) -> Option<FailCode> {
    peer.told(|message| match message {
        Message::Interfaces(_) => None,
        Message::Fail(fail) => Some(Some(fail.code)),
        Message::Answer(answer) => Some(match answer.answer {
            AnswerKind::Failed { code, .. } => Some(code),
            _ => None,
        }),
        _ => Some(None),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_unfinished_copies_are_nobodys_in_every_verb() {
    let stage = Stage::new().await;
    fs::create_dir_all(stage.served(PART_DIR)).unwrap();
    fs::create_dir_all(stage.served("dir")).unwrap();
    for file in [JOURNAL, "dir/.x.01234567.nicstripe-part", BENEATH] {
        fs::write(stage.served(file), "kept").unwrap();
    }
    // Further names through symbolic links.
    symlink(JOURNAL, stage.served("peek")).unwrap();
    symlink(format!("dir/../{PART_DIR}"), stage.served("way")).unwrap();
    let plain = PutOptions::default();
    let options = |change: fn(&mut PutOptions)| {
        let mut options = plain;
        change(&mut options);
        options
    };
    let replace = options(|options| options.replace = true);
    let delta = options(|options| options.delta = true);
    let in_place = options(|options| options.in_place = true);
    let trial = options(|options| options.trial = true);
    let parents = PutOptions {
        parents: true,
        ..replace
    };
    let new_part = ".new.01234567.nicstripe-part";
    let refused = [
        put(JOURNAL, None, replace),
        put(JOURNAL, None, delta),
        put(JOURNAL, None, in_place),
        put(JOURNAL, None, trial),
        put(new_part, None, plain),
        put(BENEATH, None, replace),
        put(".p.01234567.nicstripe-part/file", None, parents),
        put("dir", Some(PART), replace),
        put(PART_DIR, Some("new"), replace),
        rename("dir", BENEATH),
        make_dir(".d.01234567.nicstripe-part/new"),
    ];
    let missing = [
        put("way/new", None, replace),
        get(JOURNAL),
        get(BENEATH),
        get("peek"),
        get("way/file"),
        list(PART_DIR),
        list("way"),
        stat(BENEATH),
        stat("way/file"),
        remove(JOURNAL),
        remove("way/file"),
        rename(JOURNAL, "mine"),
    ];
    let refused = refused.map(|message| (message, FailCode::Refused));
    let missing = missing.map(|message| (message, FailCode::NotFound));
    for (message, expected) in refused.into_iter().chain(missing) {
        let mut peer = stage.session(&stage.client).await;
        peer.say(&message).await.unwrap();
        assert_eq!(refusal(&mut peer).await, Some(expected), "{message:?}");
    }
    let root = crate::file::Root::open(&stage.served("")).unwrap();
    for (file, read) in [(JOURNAL, true), ("peek", true), (BENEATH, false)] {
        let order = DiskOrder {
            bytes: 4,
            name: Some(name(file)),
            number: 1,
            read,
        };
        let done = crate::file::stages::serve(&root, [7; 32], &order, &Default::default());
        assert!(
            matches!(
                done.unwrap_err().code,
                FailCode::Refused | FailCode::NotFound
            ),
            "{order:?}"
        );
    }
    let client = stage.honest().await;
    let into = stage.files.path().join("into");
    let get_tree = async |sources, options| {
        let copied = client.get_tree(sources, &into, options);
        within(copied.finish()).await
    };
    let got = get_tree(vec![crate::TreeSource::content_of(None)], recursive())
        .await
        .unwrap();
    let got = got.tree.unwrap();
    assert_eq!((got.special, got.failed), (3, 0));
    assert_eq!(names(&into), ["dir", "peek", "way"]);
    assert_eq!(names(&into.join("dir")), Vec::<String>::new());
    let from_list = TreeOptions {
        files_from: Some(vec![name(JOURNAL)]),
        ..recursive()
    };
    for (source, options) in [
        (crate::TreeSource::named(name(JOURNAL)), recursive()),
        (crate::TreeSource::named(name(BENEATH)), recursive()),
        (crate::TreeSource::named(name("way/file")), recursive()),
        (crate::TreeSource::content_of(None), from_list),
    ] {
        let shown = format!("{source:?}");
        let got = get_tree(vec![source], options).await;
        assert!(
            got.is_err() || got.is_ok_and(|report| report.tree.unwrap().failed == 1),
            "{shown}"
        );
    }
    assert_eq!(names(&into), ["dir", "peek", "way"]);
    assert_eq!(fs::read(stage.served(JOURNAL)).unwrap(), b"kept");
    assert_eq!(
        names(&stage.served("")),
        [PART_DIR, JOURNAL, "dir", "peek", "way"]
    );
    assert_eq!(names(&stage.served(PART_DIR)), ["file"]);
}
