//! Tests of trusted clients that violate the protocol: the daemon ends only their own connection or
//! transfer.

use std::time::Duration;

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkRange, Frame, Message, SessionId, TransferId,
    frame::{EchoHeader, HEADER_LEN, LoadHeader, MAX_PAYLOAD},
    message::{
        AskKind, BenchAdmitted, BenchBody, EntryRef, Get, GetTree, Put, Refusal, RefusalCode,
        RunOrder, VERSION,
    },
    tree::EntryId,
};

use super::{
    Stage, content, name, open_files,
    peer::{Peer, ask, chunk, control, framed, get, hello, put},
    within,
};
use crate::wire::{stream::StreamEnd, tls::TlsError};

/// Encodes a control message and replaces the name `from` in it by `to`, an equally long name that
/// the encoder would reject.
fn misnamed(message: &Message, from: &str, to: &str) -> Vec<u8> {
    let mut body = minicbor::to_vec(message).unwrap();
    assert_eq!(from.len(), to.len());
    let at = body
        .windows(from.len())
        .position(|window| window == from.as_bytes())
        .unwrap();
    body[at..at + to.len()].copy_from_slice(to.as_bytes());
    garbled(body)
}

/// Returns a control frame with this body.
fn garbled(body: Vec<u8>) -> Vec<u8> {
    framed(&Frame::Control { seq: 0, body })
}

fn data(transfer: u32, index: u64, len: usize) -> Vec<u8> {
    let value = ChainingValue([7; 32]);
    chunk(TransferId(transfer), index, &vec![9; len], value)
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

/// Returns the order of a benchmark load over all paths, in both directions or in none.
pub(super) fn run_of(both: bool) -> RunOrder {
    RunOrder {
        run: 1,
        to_daemon: both,
        to_client: both,
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
    [
        Message::Put(Put {
            entry,
            ..put(own, "abcd", 1 << 20)
        }),
        Message::Get(Get {
            entry,
            ..get(own, "abcd")
        }),
    ]
}

/// Returns protocol violations, each as a name and the bytes that a client sends after the
/// handshake. The tests of nicstripe-proto have all lengths and names, and what the session alone
/// detects.
fn breaches() -> Vec<(&'static str, Vec<u8>)> {
    let tree = Message::GetTree(GetTree {
        transfer: TransferId(1),
        sources: Vec::new(),
        walk: Default::default(),
        rules: Default::default(),
        limit_bps: None,
    });
    let never_sent = Frame::Ack {
        transfer: TransferId(9),
        ranges: vec![ChunkRange {
            first: ChunkId(u64::MAX),
            count: u64::MAX,
        }],
    };
    let admitted = Message::Bench(BenchBody::Admitted(BenchAdmitted { seconds: 9 }));
    let string = [0x82, 0, 0x81, 0xa1, 0, 0x5b];
    let endless = |head: &[u8]| [head, &[0xff; 8]].concat();
    let mut breaches = vec![
        ("a frame of no type", vec![0xee; HEADER_LEN]),
        ("data without credit", data(1, 0, 100)),
        ("data of no transfer", data(u32::MAX, u64::MAX, MAX_PAYLOAD)),
        ("a second hello", framed(&Frame::Hello(vec![0xa0]))),
        ("garbage for a message", garbled(vec![0xff; 100])),
        ("an endless array", garbled(endless(&[0x9b]))),
        ("arrays in arrays", garbled(vec![0x81; 60_000])),
        ("a string of 2^64 bytes", garbled(endless(&string))),
        ("not a tree", control(0, &tree)),
        ("acknowledged chunks of no transfer", framed(&never_sent)),
        ("load without leave", load_frame(1, 1000)),
        ("load without a run", load_frame(0, 1000)),
        ("an echo without a bench", echo_frame(100)),
        ("a daemon's leave", control(0, &admitted)),
    ];
    for message in entries_of(1, 1).into_iter().chain(entries_of(1, 99)) {
        let of_none = "an entry of itself or of no transfer";
        breaches.push((of_none, control(0, &message)));
    }
    for message in entries_of(2, 1) {
        let file = Message::Put(put(1, "abcd", 1 << 20));
        let frames = [control(0, &file), control(1, &message)];
        breaches.push(("an entry of a file", frames.concat()));
    }
    let file = Message::Put(put(1, "abcd", 4));
    let rename = ask(AskKind::Rename {
        from: name("ab"),
        to: name("cd"),
        replace: true,
        only_if: None,
    });
    breaches.push(("a name outside", misnamed(&file, "abcd", "../x")));
    breaches.push(("the parent's name", misnamed(&rename, "cd", "..")));
    breaches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_the_protocol_harms_itself_alone() {
    let stage = Stage::new().await;
    // Session of another peer that must survive.
    let mut bystander = Peer::session([127, 0, 0, 1], stage.address(), &stage.other).await;
    let mut bystander = tokio::spawn(async move { bystander.end().await });
    for (what, bytes) in breaches() {
        let mut evil = stage.session(&stage.client).await;
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
        assert!(sent.is_err() || answered.is_ok(), "{answered:?} to {what}");
    }
    let ended = tokio::time::timeout(Duration::from_millis(200), &mut bystander).await;
    assert!(ended.is_err(), "another peer's session ended");
    stage.serves_nothing().await;
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_survives_a_breach_with_more_behind_it_and_not_one_after_another() {
    let stage = Stage::new().await;
    let session = SessionId([7; 16]);
    let mut evil = stage.connect(&stage.client).await;
    assert_eq!(evil.refused(session, true).await, None);
    let breach = framed(&Frame::ControlAck { next: u64::MAX });
    evil.send_bytes(&breach.repeat(20)).await.unwrap();
    evil.end().await;
    let mut again = stage.connect(&stage.client).await;
    assert_eq!(again.refused(session, false).await, None);

    let session = SessionId([3; 16]);
    let mut refused = false;
    for attempt in 0..20 {
        let mut evil = stage.connect(&stage.client).await;
        refused = evil.refused(session, attempt == 0).await.is_some();
        if refused {
            break;
        }
        let _ = evil.send_bytes(&data(9, 9, 9)).await;
        evil.end().await;
    }
    assert!(refused, "it never stops");
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_version_learns_the_daemons_and_unknown_features_are_ignored() {
    let stage = Stage::new().await;
    let answer = async |protocol: &[u8], hello: Vec<u8>| {
        let connected = Peer::connect_as(protocol, [127, 0, 0, 8], stage.address(), &stage.other);
        let mut peer = connected.await.unwrap();
        peer.send(&Frame::Hello(hello)).await.unwrap();
        peer.next().await.unwrap()
    };
    let mut hello = hello(SessionId([9; 16]), true);
    // The map of the hello, with one key more: feature 200.
    let mut more = minicbor::to_vec(&hello).unwrap();
    more[0] += 1;
    more.extend([0x08, 0x81, 0x18, 200]);
    let welcome = answer(&b"nicstripe/1"[..], more).await;
    assert!(matches!(welcome, Frame::Welcome(_)), "{welcome:?}");
    hello.version = 9;
    let later = minicbor::to_vec(&hello).unwrap();
    let Frame::Refuse(body) = answer(&b"nicstripe/9"[..], later).await else {
        panic!("not refused")
    };
    let refusal: Refusal = minicbor::decode(&body).unwrap();
    let expected = (RefusalCode::Version, VERSION);
    assert_eq!((refusal.code, refusal.version), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_a_session_may_have_end_it_and_its_files_are_let_go() {
    let stage = Stage::new().await;
    std::fs::write(stage.served("big"), content(1 << 20)).unwrap();
    let mut evil = stage.session(&stage.client).await;
    let flood = async {
        for transfer in 1..4000 {
            // The client acknowledges and reads nothing.
            let request = Message::Get(get(transfer, "big"));
            if evil.say(&request).await.is_err() {
                return;
            }
        }
        evil.end().await;
    };
    within(flood).await;
    stage.still_serves("file").await;
    let open = async {
        while open_files(|path| path == stage.served("big")) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(open).await;
}
