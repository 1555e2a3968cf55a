//! Tests of requests about names, and of answers from a hostile peer.

use std::net::Ipv4Addr;

use nicstripe_proto::{
    ChainingValue, Digest, Event, FailCode, Message, Name, Offer, PathError, Role, SourceIdentity,
    TransferId,
    journal::Timestamp,
    message::{
        Answer, AnswerKind, Ask, AskKind, Fetch, HashedFile, MOST_ADMITTED, MOST_ASKS,
        MOST_ENTRIES, MOST_FEED_ADDRESSES, MOST_FETCHED, MOST_REASON, MOST_VALUES, NotRemoved,
        ObjectEntry, ObjectKind, ObjectStat, OfferKind, Put, PutOptions,
    },
};

use crate::peer::Victim;

fn stat(size: u64) -> ObjectStat {
    ObjectStat {
        kind: ObjectKind::File,
        size,
        mtime: Timestamp::default(),
        etag: None,
        digest: None,
        has_attributes: false,
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn ask(id: u32) -> Message {
    Message::Ask(Ask {
        id,
        ask: AskKind::Stat { name: name("a") },
    })
}

fn answer(id: u32, answer: AnswerKind) -> Message {
    Message::Answer(Answer { id, answer })
}

fn list(after: Option<&[u8]>, most: u32) -> AskKind {
    AskKind::List {
        dir: None,
        after: after.map(<[u8]>::to_vec),
        most,
        digests: false,
    }
}

/// Creates a client that has asked this with number 3.
fn asking(ask: AskKind) -> Victim {
    let mut client = Victim::new(Role::Client);
    assert!(client.session.ask(Ask { id: 3, ask }));
    client
}

fn entries(names: &[&[u8]], more: bool) -> AnswerKind {
    let entries = names
        .iter()
        .map(|name| ObjectEntry {
            name: name.to_vec(),
            stat: stat(1),
        })
        .collect();
    AnswerKind::Entries { entries, more }
}

#[test]
fn what_only_the_other_end_says_of_names_ends_the_path() {
    let mut client = Victim::new(Role::Client);
    client.refuses(ask(1), "Unexpected");
    let mut daemon = Victim::new(Role::Daemon);
    daemon.say(ask(1)).unwrap();
    daemon.refuses(answer(1, AnswerKind::Done), "Answer");
    assert!(!daemon.session.ask(Ask {
        id: 2,
        ask: list(None, 1)
    }));
    client.is_healthy();
    daemon.is_healthy();
}

#[test]
fn more_asks_than_may_be_open_and_one_that_is_open_end_the_path_and_the_others_are_answered() {
    let mut daemon = Victim::new(Role::Daemon);
    for id in 0..MOST_ASKS as u32 {
        daemon.say(ask(id)).unwrap();
    }
    assert!(matches!(daemon.say(ask(1000)), Err(PathError::Ask { .. })));
    assert!(matches!(daemon.say(ask(5)), Err(PathError::Ask { .. })));
    let mut events = daemon.events();
    events.retain(|event| matches!(event, Event::Asked(_)));
    assert_eq!(events.len(), MOST_ASKS);
    for id in [5, 1000] {
        let answer = AnswerKind::Done;
        daemon.session.answer(Answer { id, answer });
    }
    assert_eq!(daemon.session.open_asks(), MOST_ASKS - 1);
    daemon.say(ask(5)).unwrap();
    daemon.is_healthy();
}

#[test]
fn a_list_is_asked_for_within_bounds_whatever_is_said() {
    for (said, meant) in [
        (0, 1),
        (1, 1),
        (MOST_ENTRIES, MOST_ENTRIES),
        (u32::MAX, MOST_ENTRIES),
    ] {
        let mut daemon = Victim::new(Role::Daemon);
        daemon
            .say(Message::Ask(Ask {
                id: 1,
                ask: list(None, said),
            }))
            .unwrap();
        let Some(Event::Asked(ask)) = daemon.events().pop() else {
            panic!("nothing was asked")
        };
        assert_eq!(ask.ask, list(None, meant));
    }
}

fn copy(offset: u64) -> AskKind {
    AskKind::Copy {
        from: name("a"),
        to: name("b"),
        replace: false,
        only_if: None,
        offset,
    }
}

fn copied(upto: u64) -> AnswerKind {
    AnswerKind::Copied { upto, copy: None }
}

fn concat(offset: Option<u64>) -> AskKind {
    AskKind::Concat {
        part: Some(name("a")),
        from: 0,
        to: name("b"),
        replace: false,
        only_if: None,
        offset,
        attributes: None,
    }
}

fn hash(offset: u64, words: Option<Digest>) -> AskKind {
    AskKind::Hash {
        name: name("a"),
        offset,
        words,
    }
}

fn hashed(upto: u64, values: usize) -> AnswerKind {
    AnswerKind::Hashed {
        upto,
        file: None,
        values: vec![ChainingValue([1; 32]); values],
    }
}

fn fetch(offset: u64, addresses: usize, len: u64) -> AskKind {
    AskKind::Fetch(Box::new(Fetch {
        key: [1; 32],
        addresses: vec![Ipv4Addr::LOCALHOST.into(); addresses],
        port: 7747,
        name: name("a"),
        at: 0,
        len,
        digest: Digest::NONE,
        put: Put {
            name: name("b"),
            offer: Offer {
                transfer: TransferId(0),
                source: SourceIdentity {
                    size: len,
                    ..SourceIdentity::default()
                },
                chunk_log2: 18,
                mode: 0o644,
                kind: None,
                data: None,
                object: None,
            },
            options: PutOptions::default(),
            into: None,
            entry: None,
            attributes: None,
        },
        offset,
    }))
}

/// Returns the request to fetch a file of 9 bytes, with a change.
fn fetch_with(change: impl FnOnce(&mut Fetch)) -> AskKind {
    let AskKind::Fetch(mut request) = fetch(0, 1, 9) else {
        unreachable!()
    };
    change(&mut request);
    AskKind::Fetch(request)
}

fn admit(names: usize) -> AskKind {
    AskKind::Admit {
        key: [1; 32],
        names: vec![name("a"); names],
    }
}

#[test]
fn requests_beyond_the_limits_of_their_kind_are_breaches() {
    for (within, beyond) in [
        (fetch(0, 1, MOST_FETCHED), fetch(0, 1, MOST_FETCHED + 1)),
        (
            fetch(0, MOST_FEED_ADDRESSES, 1),
            fetch(0, MOST_FEED_ADDRESSES + 1, 1),
        ),
        (fetch(0, 1, 0), fetch(0, 0, 0)),
        (
            fetch_with(|fetch| fetch.put.options.replace = true),
            fetch_with(|fetch| fetch.put.options.in_place = true),
        ),
        (
            fetch_with(|fetch| fetch.put.offer.chunk_log2 = 17),
            fetch_with(|fetch| fetch.put.offer.chunk_log2 = 255),
        ),
        (
            fetch_with(|fetch| fetch.put.offer.kind = Some(OfferKind::File)),
            fetch_with(|fetch| fetch.put.offer.kind = Some(OfferKind::Batches)),
        ),
        (
            fetch_with(|fetch| fetch.put.offer.mode = 0),
            fetch_with(|fetch| fetch.put.offer.source.size = u64::MAX),
        ),
        (
            fetch_with(|fetch| fetch.at = u64::MAX),
            fetch_with(|fetch| fetch.put.offer.source.size = 10),
        ),
        (admit(MOST_ADMITTED), admit(MOST_ADMITTED + 1)),
    ] {
        for (ask, is_valid) in [(within, true), (beyond, false)] {
            let mut daemon = Victim::new(Role::Daemon);
            let said = daemon.say(Message::Ask(Ask { id: 1, ask }));
            assert_eq!(said.is_ok(), is_valid, "{said:?}");
        }
    }
}

fn walk(after: Option<&[u8]>, most: u32) -> AskKind {
    AskKind::Walk {
        dir: None,
        after: after.map(<[u8]>::to_vec),
        most,
        digests: false,
    }
}

/// Returns a page of a walk; names that end with a slash are directories.
fn walked(names: &[&str], more: bool) -> AnswerKind {
    let entry = |name: &&str| {
        let (kind, name) = match name.strip_suffix('/') {
            Some(name) => (ObjectKind::Dir, name),
            None => (ObjectKind::File, *name),
        };
        ObjectEntry {
            name: name.as_bytes().to_vec(),
            stat: ObjectStat { kind, ..stat(1) },
        }
    };
    AnswerKind::Walked {
        entries: names.iter().map(entry).collect(),
        more,
    }
}

fn remove() -> AskKind {
    AskKind::Remove {
        name: name("a"),
        only_if: None,
        kind: None,
    }
}

fn remove_many() -> AskKind {
    AskKind::RemoveMany {
        names: vec![name("a"), name("b")],
        kind: None,
    }
}

fn removed(failed: &[u32], text: &str) -> AnswerKind {
    let failed = failed.iter().map(|index| NotRemoved {
        index: *index,
        code: FailCode::Io,
        text: text.into(),
    });
    AnswerKind::Removed {
        failed: failed.collect(),
    }
}

#[test]
fn answers_about_many_objects_reach_whoever_asked() {
    let right = [
        (copy(5), copied(6)),
        (
            copy(5),
            AnswerKind::Copied {
                upto: 5,
                copy: Some(stat(5)),
            },
        ),
        (hash(5, None), hashed(6, 0)),
        (hash(5, Some(Digest::NONE)), hashed(6, MOST_VALUES)),
        (fetch(5, 1, 9), copied(6)),
        (AskKind::FetchKey, AnswerKind::Key { key: [1; 32] }),
        (admit(1), AnswerKind::Done),
        (concat(Some(5)), copied(6)),
        (concat(None), copied(1)),
        (walk(None, 9), walked(&["a-b", "a/", "a/b", "a0"], true)),
        (walk(Some(b"a/"), 9), walked(&["a/b"], false)),
        (walk(None, 9), walked(&[], false)),
        (remove_many(), removed(&[], "")),
        (remove_many(), removed(&[0, 1], "it is there")),
    ];
    for (asked, said) in right {
        let mut client = asking(asked);
        client.say(answer(3, said.clone())).unwrap();
        let told = client.events().pop();
        assert!(
            matches!(&told, Some(Event::Answered(answer)) if answer.answer == said),
            "{told:?}"
        );
    }
}

#[test]
fn answers_that_are_none_end_the_path_and_whoever_asked_hears_of_it() {
    let long = vec![b'a'; 256];
    let (a, stat) = (
        name("a"),
        AnswerKind::Stat {
            stat: stat(1),
            attributes: None,
        },
    );
    let wrong = [
        (fetch(5, 1, 9), copied(5)),
        (hash(5, None), hashed(5, 0)),
        (hash(5, None), hashed(6, 1)),
        (hash(5, Some(Digest::NONE)), hashed(6, MOST_VALUES + 1)),
        (
            hash(5, Some(Digest::NONE)),
            AnswerKind::Hashed {
                upto: 6,
                file: Some(Box::new(HashedFile {
                    stat: self::stat(6),
                    digest: Digest::NONE,
                    signed: None,
                })),
                values: Vec::new(),
            },
        ),
        (fetch(5, 1, 9), copied(10)),
        (AskKind::FetchKey, AnswerKind::Done),
        (list(None, 9), AnswerKind::Done),
        (list(None, 9), entries(&[b"b", b"a"], false)),
        (list(None, 9), entries(&[b"a", b"a"], false)),
        (list(None, 9), entries(&[b".."], false)),
        (list(None, 9), entries(&[b""], false)),
        (list(None, 9), entries(&[b"a/b"], false)),
        (list(None, 9), entries(&[b"a\0"], false)),
        (list(None, 9), entries(&[&long], false)),
        (list(None, 9), entries(&[], true)),
        (list(None, 1), entries(&[b"a", b"b"], false)),
        (list(Some(b"b"), 9), entries(&[b"a", b"c"], false)),
        (list(Some(b"b"), 9), entries(&[b"b"], true)),
        (AskKind::Stat { name: a.clone() }, AnswerKind::Done),
        (remove(), stat),
        (AskKind::MakeDir { name: a.clone() }, entries(&[], false)),
        (copy(5), copied(5)),
        (copy(5), copied(4)),
        (walk(None, 9), entries(&[], false)),
        (walk(None, 9), walked(&["b", "a"], false)),
        (walk(None, 9), walked(&["a/b", "a-b"], false)),
        (walk(None, 9), walked(&["a/", "a/"], false)),
        (walk(None, 9), walked(&["a/../b"], false)),
        (walk(None, 9), walked(&["/a"], false)),
        (walk(None, 9), walked(&["a//b"], false)),
        (walk(None, 9), walked(&[], true)),
        (walk(None, 1), walked(&["a", "b"], false)),
        (walk(Some(b"a/"), 9), walked(&["a/"], false)),
        (remove_many(), AnswerKind::Done),
        (remove_many(), removed(&[2], "")),
        (remove_many(), removed(&[1, 0], "")),
        (remove_many(), removed(&[0, 0], "")),
        (remove_many(), removed(&[0], &"x".repeat(MOST_REASON + 1))),
        (remove(), entries(&[b"a"], false)),
    ];
    for (asked, said) in wrong {
        let mut client = asking(asked.clone());
        // The number of no request.
        client.refuses(answer(4, said.clone()), "Answer");
        let refused = client.say(answer(3, said.clone()));
        assert!(
            matches!(refused, Err(PathError::Answer { .. })),
            "{said:?} to {asked:?}"
        );
        let events = client.events();
        let is_failed = |event: &Event| match event {
            Event::Answered(Answer {
                id: 3,
                answer: AnswerKind::Failed { code, .. },
            }) => *code == FailCode::Protocol,
            _ => false,
        };
        assert!(events.iter().any(is_failed), "{events:?}");
        assert!(client.say(answer(3, said)).is_err(), "answered twice");
        assert_eq!(client.session.open_asks(), 0);
        client.is_healthy();
    }
    let mut client = asking(list(Some(b"b"), 2));
    client.say(answer(3, entries(&[b"c", b"d"], true))).unwrap();
}
