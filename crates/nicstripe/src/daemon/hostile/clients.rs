//! Tests of trusted clients that violate the protocol: the daemon ends only their own connection or
//! transfer.

use std::time::Duration;

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkRange, DataHeader, Frame, Message, Offer, SessionId,
    SourceIdentity, TransferId,
    frame::{EchoHeader, HEADER_LEN, LoadHeader, MAX_PAYLOAD},
    message::{
        Answer, AnswerKind, Ask, AskKind, BenchAdmitted, BenchBody, Complete, EntryRef, Get,
        GetTree, Hello, Put, PutOptions, Refusal, RefusalCode, RunNumber, RunOrder, VERSION,
    },
    tree::EntryId,
};

use super::{
    Stage, content, name,
    wire::{Wire, hello},
    within,
};
use crate::{
    Digest,
    wire::{stream::StreamEnd, tls::TlsError},
};

pub(super) fn put(file: &str, size: u64, chunk_log2: u8) -> Message {
    let source = SourceIdentity {
        size,
        ..SourceIdentity::default()
    };
    let offer = Offer {
        transfer: TransferId(1),
        source,
        chunk_log2,
        mode: 0o644,
        kind: None,
        data: None,
    };
    Message::Put(Put {
        name: name(file),
        offer,
        options: PutOptions::default(),
        into: None,
        entry: None,
    })
}

fn get(transfer: u32, file: &str) -> Message {
    Message::Get(Get {
        transfer: TransferId(transfer),
        name: name(file),
        limit_bps: Some(1),
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    })
}

/// Encodes a control message and replaces the name `from` in it by `to`, an equally long name that
/// the encoder would reject.
fn renamed(message: &Message, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = minicbor::to_vec(message).unwrap();
    assert_eq!(from.len(), to.len());
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

fn framed(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn control(body: Vec<u8>) -> Vec<u8> {
    framed(&Frame::Control { seq: 0, body })
}

fn data(transfer: u32, chunk: u64, len: usize) -> Vec<u8> {
    let header = DataHeader {
        transfer: TransferId(transfer),
        chunk: ChunkId(chunk),
        value: ChainingValue([7; 32]),
        len: len as u32,
        raw_len: 0,
        last: false,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.resize(bytes.len() + len, 9);
    bytes
}

pub(super) fn load_frame(run: u32, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    LoadHeader {
        run,
        len: len as u32,
    }
    .encode(&mut bytes);
    bytes.resize(bytes.len() + len, 9);
    bytes
}

pub(super) fn echo_frame(len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    EchoHeader {
        token: 7,
        reply: false,
        len: len as u32,
    }
    .encode(&mut bytes);
    bytes.resize(bytes.len() + len, 9);
    bytes
}

/// Returns the order of a benchmark load in which no side sends.
pub(super) fn run_of_none() -> RunOrder {
    RunOrder {
        to_daemon: false,
        to_client: false,
        ..run_of_all()
    }
}

/// Returns the order of a benchmark load over all paths in both directions.
pub(super) fn run_of_all() -> RunOrder {
    RunOrder {
        run: 1,
        to_daemon: true,
        to_client: true,
        paths: (0..64).collect(),
        longest_ms: u32::MAX,
        interval_ms: 20,
        message_bytes: 1 << 18,
        socket_buffer: None,
    }
}

/// Returns a put and a get of transfer `own` that claim to be entries of transfer `tree`.
fn entries_of(own: u32, tree: u32) -> [Message; 2] {
    let entry = Some(EntryRef {
        tree: TransferId(tree),
        id: EntryId(0),
    });
    let (Message::Put(mut put), Message::Get(get)) = (put("abcd", 1 << 20, 18), get(own, "abcd"))
    else {
        unreachable!("these are a put and a get")
    };
    put.offer.transfer = TransferId(own);
    [
        Message::Put(Put { entry, ..put }),
        Message::Get(Get { entry, ..get }),
    ]
}

/// Returns protocol violations, each as a name and the bytes that a client sends after the
/// handshake.
fn breaches() -> Vec<(&'static str, Vec<u8>)> {
    let mut heads = Vec::new();
    for kind in 0..=255_u8 {
        // The type, and a length of all ones.
        heads.push((
            "a length beyond all limits",
            [&[kind], &[0xff; HEADER_LEN - 1][..]].concat(),
        ));
    }
    let tree = Message::GetTree(GetTree {
        transfer: TransferId(1),
        sources: Vec::new(),
        walk: Default::default(),
        rules: Default::default(),
        limit_bps: None,
    });
    let mut breaches = vec![
        ("data without credit", data(1, 0, 100)),
        (
            "data without a transfer",
            data(u32::MAX, u64::MAX, MAX_PAYLOAD),
        ),
        ("a second hello", framed(&Frame::Hello(vec![0xa0]))),
        ("a welcome", framed(&Frame::Welcome(vec![0xa0]))),
        ("a refusal", framed(&Frame::Refuse(vec![0xa0]))),
        ("garbage for a message", control(vec![0xff; 100])),
        (
            "an endless array",
            control(vec![0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("arrays in arrays", control(vec![0x81; 60_000])),
        (
            "a string of 2^64 bytes",
            control(vec![
                0x82, 0, 0x81, 0xa1, 0, 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ]),
        ),
        (
            "a message too far ahead",
            framed(&Frame::Control {
                seq: 1 << 40,
                body: vec![0x80],
            }),
        ),
        (
            "an acknowledgement of messages never sent",
            framed(&Frame::ControlAck { next: u64::MAX }),
        ),
        (
            "chunks of 2^63 bytes",
            control(minicbor::to_vec(put("file", 1 << 20, 63)).unwrap()),
        ),
        (
            "chunks of one byte",
            control(minicbor::to_vec(put("file", 1 << 62, 0)).unwrap()),
        ),
        (
            "a file of 2^64 - 1 bytes",
            control(minicbor::to_vec(put("file", u64::MAX, 18)).unwrap()),
        ),
        ("not a tree", control(minicbor::to_vec(tree).unwrap())),
        (
            "acknowledged chunks without a transfer",
            framed(&Frame::Ack {
                transfer: TransferId(9),
                ranges: vec![ChunkRange {
                    first: ChunkId(u64::MAX),
                    count: u64::MAX,
                }],
            }),
        ),
        (
            "an end without a transfer",
            control(
                minicbor::to_vec(Message::Complete(Complete {
                    transfer: TransferId(5),
                    digest: Digest([0; 32]),
                    streams: Vec::new(),
                    end: None,
                    changing: false,
                }))
                .unwrap(),
            ),
        ),
        (
            "an answer",
            control(
                minicbor::to_vec(Message::Answer(Answer {
                    id: 0,
                    answer: AnswerKind::Done,
                }))
                .unwrap(),
            ),
        ),
        ("load without leave", load_frame(1, 1000)),
        ("load without a run", load_frame(0, 1000)),
        ("an echo without a bench", echo_frame(100)),
        (
            "a run without leave",
            control(minicbor::to_vec(Message::Bench(BenchBody::Run(run_of_all()))).unwrap()),
        ),
        (
            "a daemon's leave",
            control(
                minicbor::to_vec(Message::Bench(BenchBody::Admitted(BenchAdmitted {
                    seconds: 9,
                })))
                .unwrap(),
            ),
        ),
        (
            "an end without a run",
            control(
                minicbor::to_vec(Message::Bench(BenchBody::Stop(RunNumber { run: 1 }))).unwrap(),
            ),
        ),
    ];
    for message in entries_of(1, 1).into_iter().chain(entries_of(1, 99)) {
        let body = minicbor::to_vec(message).unwrap();
        breaches.push(("an entry of itself or of no transfer", control(body)));
    }
    for message in entries_of(2, 1) {
        let frames = [put("abcd", 1 << 20, 18), message].into_iter().enumerate();
        let frames = frames.map(|(seq, message)| {
            framed(&Frame::Control {
                seq: seq as u64,
                body: minicbor::to_vec(message).unwrap(),
            })
        });
        breaches.push(("an entry of a file", frames.collect::<Vec<_>>().concat()));
    }
    for bad in [&b"../x"[..], b"/etc", b"a\0bc", b"a/bc"] {
        breaches.push((
            "a name outside the root",
            control(renamed(&put("abcd", 4, 18), b"abcd", bad)),
        ));
        breaches.push((
            "a name outside the root",
            control(renamed(&get(1, "abcd"), b"abcd", bad)),
        ));
    }
    let remove = Message::Ask(Ask {
        id: 0,
        ask: AskKind::Remove {
            name: name("served"),
        },
    });
    breaches.push((
        "a name outside the root, to be removed",
        control(renamed(&remove, b"served", b"../etc")),
    ));
    let rename = Message::Ask(Ask {
        id: 0,
        ask: AskKind::Rename {
            from: name("ab"),
            to: name("cd"),
            replace: true,
        },
    });
    breaches.push((
        "the parent's name, for a file",
        control(renamed(&rename, b"cd", b"..")),
    ));
    breaches.push((
        "the parent's name",
        control(renamed(&put("ab", 4, 18), b"ab", b"..")),
    ));
    breaches.push((
        "the folder's own name",
        control(renamed(&get(1, "a"), b"Aa", b"A.")),
    ));
    breaches.extend(heads);
    breaches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_queued_behind_a_breach_does_not_end_the_session() {
    let stage = Stage::new().await;
    let session = SessionId([7; 16]);
    let mut evil = Wire::connect([127, 0, 3, 1], stage.address(), &stage.client)
        .await
        .unwrap();
    evil.greet(session, true).await.unwrap().unwrap();
    let breach = framed(&Frame::ControlAck { next: u64::MAX });
    evil.send_bytes(&breach.repeat(20)).await.unwrap();
    evil.end().await;
    let mut again = Wire::connect([127, 0, 3, 1], stage.address(), &stage.client)
        .await
        .unwrap();
    again.greet(session, false).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_the_protocol_harms_itself_alone() {
    let stage = Stage::new().await;
    // Session of another peer that must survive.
    let bystander = Wire::session([127, 0, 0, 1], stage.address(), &stage.other).await;
    let mut bystander = tokio::spawn(async move {
        let mut bystander = bystander;
        bystander.end().await
    });
    for (what, bytes) in breaches() {
        let mut evil = Wire::session([127, 0, 3, 1], stage.address(), &stage.client).await;
        let sent = evil.send_bytes(&bytes).await;
        let answered = async {
            loop {
                match evil.message().await {
                    Ok(Message::Fail(_)) => return Ok(()),
                    Ok(Message::Interfaces(_)) => {}
                    Ok(message) => return Err(format!("{message:?}")),
                    Err(StreamEnd::Tls(TlsError::TimedOut)) => return Err("silence".into()),
                    Err(_) => return Ok(()),
                }
            }
        };
        let answered: Result<(), String> = tokio::time::timeout(Duration::from_secs(5), answered)
            .await
            .unwrap_or_else(|_| Err("nothing".into()));
        // If a type permits this length, the daemon waits for the rest.
        let waits = matches!(&answered, Err(why) if why == "nothing")
            && what == "a length beyond all limits";
        assert!(
            sent.is_err() || answered.is_ok() || waits,
            "{answered:?} to {what}"
        );
    }
    assert!(
        tokio::time::timeout(Duration::from_millis(200), &mut bystander)
            .await
            .is_err(),
        "another peer's session ended"
    );
    assert_eq!(
        super::names(&stage.root.path().join("served")),
        Vec::<String>::new()
    );
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_version_learns_the_daemons_and_unknown_features_are_ignored() {
    let stage = Stage::new().await;
    let answer = async |protocol: &str, hello: Vec<u8>| {
        let protocol = protocol.as_bytes();
        let wire = Wire::connect_as(protocol, [127, 0, 0, 8], stage.address(), &stage.other).await;
        let mut wire = wire.unwrap();
        wire.send(&Frame::Hello(hello)).await.unwrap();
        wire.next().await.unwrap()
    };
    let hello = hello(SessionId([9; 16]), true);
    let later = Hello {
        version: 9,
        ..hello.clone()
    };
    let Frame::Refuse(body) = answer("nicstripe/9", minicbor::to_vec(later).unwrap()).await else {
        panic!("not refused")
    };
    let refusal: Refusal = minicbor::decode(&body).unwrap();
    assert_eq!(
        (refusal.code, refusal.version),
        (RefusalCode::Version, VERSION)
    );
    // The map of the hello, with one key more: feature 200.
    let mut more = minicbor::to_vec(hello).unwrap();
    more[0] += 1;
    more.extend([0x08, 0x81, 0x18, 200]);
    let answer = answer("nicstripe/1", more).await;
    assert!(matches!(answer, Frame::Welcome(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_breaks_the_protocol_loses_its_session() {
    let stage = Stage::new().await;
    let session = SessionId([3; 16]);
    let mut refused = false;
    for attempt in 0..20 {
        let mut evil = Wire::connect([127, 0, 3, 1], stage.address(), &stage.client)
            .await
            .unwrap();
        if evil.greet(session, attempt == 0).await.unwrap().is_err() {
            refused = true;
            break;
        }
        let _ = evil.send_bytes(&data(9, 9, 9)).await;
        evil.end().await;
    }
    assert!(refused, "it never stops");
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_a_session_may_have_end_it_and_its_files_are_let_go() {
    let stage = Stage::new().await;
    std::fs::write(stage.served("big"), content(1 << 20)).unwrap();
    let mut evil = Wire::session([127, 0, 3, 1], stage.address(), &stage.client).await;
    let flood = async {
        for transfer in 1..4000 {
            // The client acknowledges and reads nothing.
            if evil.say(&get(transfer, "big")).await.is_err() {
                return;
            }
        }
        evil.end().await;
    };
    within(flood).await;
    stage.still_serves("file").await;
    let open = async {
        while open_files(&stage.served("big")) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(open).await;
}

/// Returns the number of descriptors that this process has open for a file.
fn open_files(path: &std::path::Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link == path).count()
}
