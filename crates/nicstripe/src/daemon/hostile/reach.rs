//! Tests of trusted peers that exceed their rights: through symbolic links they created, and with
//! the names of unfinished copies.

use std::{fs, os::unix::fs::symlink};

use nicstripe_proto::{
    Message, Offer, SourceIdentity, TransferId,
    message::{AnswerKind, Ask, AskKind, DiskOrder, Get, Put, PutOptions},
};

use super::{Stage, name, names, wire::Wire, within};
use crate::{Client, Error, FailCode, TreeOptions, file::options::CopyOptions};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const JOURNAL: &str = ".x.01234567.nicstripe-journal";

fn code<T>(result: Result<T, Error>) -> Option<FailCode> {
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
    within(
        client
            .put_tree(vec![tree], None, false, recursive())
            .finish(),
    )
    .await
    .unwrap();
}

async fn honest(stage: &Stage) -> Client {
    within(stage.client(&["127.0.0.9=127.0.1.1"]).connect("127.0.1.1"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_may_only_append_reaches_nothing_through_links_that_it_made() {
    let stage = Stage::built(|builder| builder.append_only(true)).await;
    fs::create_dir_all(stage.served("repo/snapshots")).unwrap();
    fs::write(stage.served("repo/config"), "config").unwrap();
    let snapshot = stage.served("repo/snapshots").join(ID);
    fs::write(&snapshot, "snapshot").unwrap();
    let client = honest(&stage).await;
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
        let lock = name(&lock);
        assert_eq!(
            code(within(client.remove(&lock)).await),
            Some(FailCode::Refused),
            "{lock}"
        );
        assert!(snapshot.exists(), "{lock}: the snapshot is gone");
    }
    let through = name(&format!("evil/a/locks/{ID}"));
    let new = name("evil/a/locks/new");
    let parents = CopyOptions {
        parents: true,
        replace: true,
        ..CopyOptions::default()
    };
    let tree = stage.files.path().join("evil");
    let answers = [
        (
            "list",
            code(within(client.list(Some(&name("evil/repo")))).await),
        ),
        ("stat", code(within(client.stat(&through)).await)),
        ("read", code(within(client.read(&through, None)).await)),
        (
            "rename",
            code(within(client.rename(&through, &name("gone"), false)).await),
        ),
        (
            "rename to",
            code(within(client.rename(&name("evil"), &name("evil/repo/evil"), false)).await),
        ),
        (
            "make a directory",
            code(within(client.make_dir(&new)).await),
        ),
        (
            "write",
            code(within(client.write(&new, "new", CopyOptions::default())).await),
        ),
        (
            "write beneath",
            code(within(client.write(&name("evil/repo/new/file"), "new", parents)).await),
        ),
        (
            "write into",
            code(
                within(
                    client
                        .put(&stage.file("new", b"new"), Some(name("evil/repo")), parents)
                        .finish(),
                )
                .await,
            ),
        ),
        (
            "write a tree",
            code(
                within(
                    client
                        .put_tree(vec![tree], Some(name("evil/repo")), false, recursive())
                        .finish(),
                )
                .await,
            ),
        ),
    ];
    for (verb, answer) in answers {
        assert!(
            matches!(answer, Some(FailCode::Refused | FailCode::Exists)),
            "{verb}: {answer:?}"
        );
    }
    assert_eq!(
        (
            names(&stage.served("repo")),
            names(&stage.served("repo/snapshots"))
        ),
        (vec!["config".into(), "snapshots".into()], vec![ID.into()])
    );
    assert_eq!(fs::read(&snapshot).unwrap(), b"snapshot");
    // Permitted operations still work.
    within(client.write(&name(&format!("repo/locks/{ID}")), "lock", parents))
        .await
        .unwrap();
    within(client.remove(&name(&format!("repo/locks/{ID}"))))
        .await
        .unwrap();
}

fn offer() -> Offer {
    let source = SourceIdentity {
        size: 4,
        ..SourceIdentity::default()
    };
    Offer {
        transfer: TransferId(1),
        source,
        chunk_log2: 18,
        mode: 0o600,
        kind: None,
        data: None,
    }
}

fn put(to: &str, into: Option<&str>, options: PutOptions) -> Message {
    Message::Put(Put {
        name: name(to),
        offer: offer(),
        options,
        into: into.map(name),
        entry: None,
    })
}

fn get(from: &str) -> Message {
    let (limit_bps, entry, range) = (None, None, None);
    Message::Get(Get {
        transfer: TransferId(1),
        name: name(from),
        limit_bps,
        entry,
        compress: false,
        allow_changing: false,
        range,
    })
}

fn ask(ask: AskKind) -> Message {
    Message::Ask(Ask { id: 0, ask })
}

/// Returns the code with which the daemon rejects an operation; `None` if it performs the
/// operation.
async fn refusal(wire: &mut Wire) -> Option<FailCode> {
    loop {
        match within(wire.message()).await.unwrap() {
            Message::Interfaces(_) => {}
            Message::Fail(fail) => return Some(fail.code),
            Message::Answer(answer) => match answer.answer {
                AnswerKind::Failed { code, .. } => return Some(code),
                _ => return None,
            },
            _ => return None,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_unfinished_copies_are_nobodys_in_every_verb() {
    let stage = Stage::new().await;
    fs::create_dir_all(stage.served(".d.01234567.nicstripe-part")).unwrap();
    fs::create_dir_all(stage.served("dir")).unwrap();
    for file in [
        JOURNAL,
        "dir/.x.01234567.nicstripe-part",
        ".d.01234567.nicstripe-part/file",
    ] {
        fs::write(stage.served(file), "kept").unwrap();
    }
    // Further names through symbolic links.
    symlink(JOURNAL, stage.served("peek")).unwrap();
    symlink("dir/../.d.01234567.nicstripe-part", stage.served("way")).unwrap();
    let replace = PutOptions {
        replace: true,
        ..PutOptions::default()
    };
    let (parents, trial) = (
        PutOptions {
            parents: true,
            ..replace
        },
        PutOptions {
            trial: true,
            ..PutOptions::default()
        },
    );
    let (delta, in_place) = (
        PutOptions {
            delta: true,
            ..PutOptions::default()
        },
        PutOptions {
            in_place: true,
            ..PutOptions::default()
        },
    );
    let beneath = ".d.01234567.nicstripe-part/file";
    let (refused, missing) = (FailCode::Refused, FailCode::NotFound);
    let messages = [
        (put(JOURNAL, None, replace), refused),
        (put(JOURNAL, None, delta), refused),
        (put(JOURNAL, None, in_place), refused),
        (put(JOURNAL, None, trial), refused),
        (
            put(".new.01234567.nicstripe-part", None, PutOptions::default()),
            refused,
        ),
        (put(beneath, None, replace), refused),
        (
            put(".p.01234567.nicstripe-part/file", None, parents),
            refused,
        ),
        (
            put("dir", Some(".x.01234567.nicstripe-part"), replace),
            refused,
        ),
        (
            put(".d.01234567.nicstripe-part", Some("new"), replace),
            refused,
        ),
        (put("way/new", None, replace), missing),
        (get(JOURNAL), missing),
        (get(beneath), missing),
        (get("peek"), missing),
        (get("way/file"), missing),
        (
            ask(AskKind::List {
                dir: Some(name(".d.01234567.nicstripe-part")),
                after: None,
                most: 9,
            }),
            missing,
        ),
        (
            ask(AskKind::List {
                dir: Some(name("way")),
                after: None,
                most: 9,
            }),
            missing,
        ),
        (
            ask(AskKind::Stat {
                name: name(beneath),
            }),
            missing,
        ),
        (
            ask(AskKind::Stat {
                name: name("way/file"),
            }),
            missing,
        ),
        (
            ask(AskKind::Remove {
                name: name(JOURNAL),
            }),
            missing,
        ),
        (
            ask(AskKind::Remove {
                name: name("way/file"),
            }),
            missing,
        ),
        (
            ask(AskKind::Rename {
                from: name(JOURNAL),
                to: name("mine"),
                replace: true,
            }),
            missing,
        ),
        (
            ask(AskKind::Rename {
                from: name("dir"),
                to: name(beneath),
                replace: true,
            }),
            refused,
        ),
        (
            ask(AskKind::MakeDir {
                name: name(".d.01234567.nicstripe-part/new"),
            }),
            refused,
        ),
    ];
    for (message, expected) in messages {
        let mut wire = Wire::session([127, 0, 3, 1], stage.address(), &stage.client).await;
        wire.say(&message).await.unwrap();
        assert_eq!(refusal(&mut wire).await, Some(expected), "{message:?}");
    }
    let order = |name: &str, read| DiskOrder {
        bytes: 4,
        name: Some(super::name(name)),
        number: 1,
        read,
    };
    let root = crate::file::Root::open(&stage.served("")).unwrap();
    for order in [
        order(JOURNAL, true),
        order("peek", true),
        order(beneath, false),
    ] {
        let done = crate::file::stages::serve(&root, [7; 32], &order, &Default::default());
        assert!(
            matches!(
                done.unwrap_err().code,
                FailCode::Refused | FailCode::NotFound
            ),
            "{order:?}"
        );
    }
    let client = honest(&stage).await;
    let into = stage.files.path().join("into");
    within(
        client
            .get_tree(vec![(None, true)], &into, false, recursive())
            .finish(),
    )
    .await
    .unwrap();
    assert_eq!(
        (names(&into), names(&into.join("dir"))),
        (vec!["dir".into(), "peek".into(), "way".into()], vec![])
    );
    for source in [JOURNAL, beneath, "way/file"] {
        let got = within(
            client
                .get_tree(vec![(Some(name(source)), false)], &into, false, recursive())
                .finish(),
        )
        .await;
        assert!(
            got.is_err() || got.is_ok_and(|report| report.tree.unwrap().failed == 1),
            "{source}"
        );
    }
    let list = TreeOptions {
        files_from: Some(vec![name(JOURNAL)]),
        ..recursive()
    };
    let listed = within(
        client
            .get_tree(vec![(None, true)], &into, false, list)
            .finish(),
    )
    .await;
    assert!(listed.is_err() || listed.is_ok_and(|report| report.tree.unwrap().failed == 1));
    assert_eq!(names(&into), ["dir", "peek", "way"]);
    assert_eq!(fs::read(stage.served(JOURNAL)).unwrap(), b"kept");
    assert_eq!(
        names(&stage.served("")),
        [".d.01234567.nicstripe-part", JOURNAL, "dir", "peek", "way"]
    );
    assert_eq!(names(&stage.served(".d.01234567.nicstripe-part")), ["file"]);
}
