use nicstripe_testkit::replay;

use super::*;
use crate::{
    ChainingValue, ChunkId, ChunkRange, Digest, ETag, Extent, Frame, Message, Name, SessionId,
    Subtree, TransferId, bootstrap,
    discovery::{Nonce, Question, Response},
    frame::{DataHeader, EchoHeader, LoadHeader},
    grid::{ChunkSize, Grid},
    invitation,
    journal::{Header, JournalId, Record, SourceIdentity, Timestamp},
    message::*,
    tree::{
        self, BatchWriter, Content, Entry, EntryId, Owner, OwnerName, OwnerNames, Reason, Special,
        TreeMessage, TreeRules, Trouble, Verdict, Xattr,
    },
};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn with(first: &[u8], rest: &[u8]) -> Vec<u8> {
    [first, rest].concat()
}

fn frame(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn data(len: u32, raw_len: u32, last: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let header = DataHeader {
        transfer: TransferId(5),
        chunk: ChunkId(6),
        value: ChainingValue([7; 32]),
        len,
        raw_len,
        last,
    };
    header.encode(&mut out);
    out.extend(std::iter::repeat_n(0xda, len as usize));
    out
}

fn load(len: u32) -> Vec<u8> {
    let mut out = Vec::new();
    LoadHeader { run: 1, len }.encode(&mut out);
    with(&out, &vec![0xda; len as usize])
}

fn echo(len: u32, reply: bool) -> Vec<u8> {
    let mut out = Vec::new();
    EchoHeader {
        token: 9,
        reply,
        len,
    }
    .encode(&mut out);
    with(&out, &vec![0xda; len as usize])
}

#[test]
fn frames_corpus() {
    let range = ChunkRange {
        first: ChunkId(2),
        count: 3,
    };
    let ack = |count| {
        frame(&Frame::Ack {
            transfer: TransferId(1),
            ranges: vec![range; count],
        })
    };
    let others = [
        frame(&Frame::Control {
            seq: 1,
            body: vec![9; 20],
        }),
        frame(&Frame::ControlAck { next: 3 }),
        frame(&Frame::Credit { frames: 32 }),
        frame(&Frame::Heartbeat {
            sent_us: 1,
            echo_us: 2,
        }),
        frame(&Frame::Close { code: 1 }),
    ]
    .concat();
    let mut reserved = data(40, 0, true);
    reserved[14] = 0x10;
    let seeds: Seeds = vec![
        (
            "greetings",
            with(
                &[3],
                &[
                    frame(&Frame::Hello(vec![0xa0])),
                    frame(&Frame::Welcome(vec![0xa0])),
                    frame(&Frame::Refuse(vec![0xa0])),
                ]
                .concat(),
            ),
        ),
        ("others", with(&[0], &others)),
        ("acks", with(&[6], &[ack(1), ack(64)].concat())),
        (
            "ack-of-65",
            with(&[6], &with(&[7, 0, 0, 0, 0x18, 4, 0, 0], &[0; 1048])),
        ),
        (
            "ack-of-none",
            with(&[6], &[7, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (
            "data",
            with(
                &[10],
                &[data(1, 0, false), data(40, 0, true), others].concat(),
            ),
        ),
        ("data-packed", with(&[60], &data(40, 41, false))),
        (
            "data-packed-longer",
            with(&[60], &with(&data(1, 0, false)[..12], &[0xff, 0xff, 0, 0])),
        ),
        ("data-reserved", with(&[60], &reserved)),
        (
            "data-empty",
            with(&[60], &with(&[6, 0, 0, 0, 48, 0, 0, 0], &[0; 48])),
        ),
        (
            "data-of-4-gib",
            with(&[60], &[6, 0, 0, 0, 255, 255, 255, 255]),
        ),
        ("control-too-long", with(&[0], &[4, 0, 0, 0, 9, 0, 1, 0])),
        (
            "load",
            with(
                &[7],
                &[load(1), load(3), echo(0, false), echo(20, true)].concat(),
            ),
        ),
        (
            "load-empty",
            with(&[0], &[11, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (
            "load-reserved",
            with(&[3], &[11, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7]),
        ),
        ("echo-too-long", with(&[0], &[12, 0, 0, 0, 17, 0, 1, 0])),
        (
            "echo-flags",
            with(
                &[0],
                &[
                    12, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
                ],
            ),
        ),
        ("unknown-type", with(&[0], &[13, 0, 0, 0, 0, 0, 0, 0])),
        ("flags", with(&[0], &[10, 1, 0, 0, 4, 0, 0, 0])),
        (
            "close-too-short",
            with(&[0], &[10, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3]),
        ),
    ];
    replay("frames", frames, seeds);
}

fn cbor<T: minicbor::Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).unwrap()
}

fn interface() -> PeerInterface {
    let mut interface = PeerInterface::new("bond0", 3);
    interface.addresses = vec![
        PeerAddress {
            ip: [10, 0, 0, 1].into(),
            prefix_len: 24,
        },
        PeerAddress {
            ip: "fe80::1".parse().unwrap(),
            prefix_len: 64,
        },
    ];
    (
        interface.line_rate_bps,
        interface.egress_limit_bps,
        interface.mac,
    ) = (Some(1 << 30), Some(1), Some([2; 6]));
    (interface.members, interface.streams) = (Some(vec!["eth0".into(), String::new()]), Some(4));
    interface.settings = Some(Ipv4Settings {
        arp_ignore: 1,
        arp_announce: 2,
        rp_filter: 1,
    });
    interface
}

fn bootstrap_request() -> bootstrap::Request {
    bootstrap::Request {
        version: 1,
        program: "0.1.0".into(),
        key: [7; 32],
        origin: "me@laptop".into(),
        from_root: true,
        dial: vec!["localhost:22".into()],
        homes: vec!["bob".into()],
        through_ssh: Some(9),
        listen: Vec::new(),
    }
}

fn bootstrap_reply() -> bootstrap::Reply {
    bootstrap::Reply {
        version: 1,
        program: "0.1.0".into(),
        key: [8; 32],
        port: 7748,
        interfaces: vec![interface()],
        reached: Some([10, 0, 0, 2].into()),
        home: b"/home/me".to_vec(),
        homes: vec![bootstrap::Path(b"/home/bob".to_vec())],
        failure: Some("cannot listen".into()),
    }
}

#[test]
fn greetings_corpus() {
    let hello = Hello {
        version: 1,
        session: SessionId([4; 16]),
        new: true,
        path: 0,
        interface: Some("eth0".into()),
        interfaces: Some(vec![interface(), interface()]),
        cap_bps: Some(u64::MAX),
        padding: Some(vec![0; 100]),
        features: Some(Feature::ALL.into_iter().collect()),
        program: Some("0.1.0".into()),
        limit_bps: None,
    };
    let welcome = Welcome {
        version: 1,
        arrival: Some("eth0".into()),
        interfaces: Some(vec![interface()]),
        padding: None,
        root: Some(b"/srv".to_vec()),
        features: Some(Features::default()),
        program: Some("0.1.0".into()),
    };
    let mut huge = cbor(&Hello {
        padding: None,
        ..hello.clone()
    });
    // The list of interfaces declares 2^64 - 1 entries.
    let at = huge
        .windows(2)
        .position(|pair| pair == [0x05, 0x82])
        .unwrap();
    huge.splice(
        at + 1..at + 2,
        [0x9b, 255, 255, 255, 255, 255, 255, 255, 255],
    );
    let seeds: Seeds = vec![
        ("hello", with(&[0], &cbor(&hello))),
        (
            "hello-to-join",
            with(
                &[0],
                &cbor(&Hello {
                    new: false,
                    interface: None,
                    interfaces: None,
                    cap_bps: None,
                    padding: None,
                    features: None,
                    program: None,
                    limit_bps: None,
                    ..hello
                }),
            ),
        ),
        ("hello-of-2-64-interfaces", with(&[0], &huge)),
        ("welcome", with(&[1], &cbor(&welcome))),
        (
            "welcome-bare",
            with(
                &[1],
                &cbor(&Welcome {
                    version: 2,
                    arrival: None,
                    interfaces: None,
                    padding: None,
                    root: None,
                    features: None,
                    program: None,
                }),
            ),
        ),
        (
            "refusal",
            with(
                &[2],
                &cbor(&Refusal {
                    code: RefusalCode::Storage,
                    version: 1,
                    most: None,
                }),
            ),
        ),
        ("refusal-unknown", with(&[2], &[0xa2, 0, 0x18, 99, 1, 1])),
        (
            "bootstrap-request",
            with(&[3], &bootstrap_request().encode()),
        ),
        ("bootstrap-reply", with(&[4], &bootstrap_reply().encode())),
        ("map-without-end", with(&[0], &[0xbf, 0, 1])),
        (
            "keys-unknown",
            with(&[2], &[0xa3, 0, 0, 1, 1, 0x18, 200, 0x82, 1, 0x9f, 0xff]),
        ),
        ("key-twice", with(&[2], &[0xa3, 0, 0, 1, 1, 0, 1])),
        (
            "nested-500",
            with(&[0], &with(&[0xa1, 0x18, 50], &[0x81; 500])),
        ),
    ];
    replay("greetings", greetings, seeds);
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn offer(kind: Option<OfferKind>) -> Offer {
    let source = SourceIdentity {
        size: 1 << 40,
        mtime: Timestamp {
            seconds: -1,
            nanoseconds: 5,
        },
        inode: 7,
        ..SourceIdentity::default()
    };
    Offer {
        transfer: TransferId(1),
        source,
        chunk_log2: 18,
        mode: 0o644,
        kind,
        data: Some(9),
        object: Some(stat()),
    }
}

fn stat() -> ObjectStat {
    ObjectStat {
        kind: ObjectKind::Dir,
        size: u64::MAX,
        mtime: Timestamp {
            seconds: -1,
            nanoseconds: 5,
        },
        etag: Some(tag()),
        digest: None,
        has_attributes: false,
    }
}

fn tag() -> ETag {
    ETag::from_bytes([9; 16])
}

fn every_message() -> Vec<(&'static str, Message)> {
    let transfer = TransferId(1);
    let entry = Some(EntryRef {
        tree: transfer,
        id: EntryId(7),
    });
    let rules = TreeRules {
        update: true,
        filters: vec!["*.o".into(), "!keep.o".into()],
        ..TreeRules::default()
    };
    let walk = WalkRules {
        recursive: true,
        only: Some(vec![name("a/b")]),
        compress: true,
        ..WalkRules::default()
    };
    let failure = tree::EntryFailure {
        id: Some(EntryId(9)),
        code: FailCode::Io,
        text: "cannot".into(),
    };
    let results = TreeMessage::Results {
        done: vec![(EntryId(1), 3)],
        failed: vec![failure],
        deleted: vec![name("x")],
        stripped: None,
    };
    let verdicts = TreeMessage::Verdicts {
        first: EntryId(9),
        verdicts: vec![Verdict::Create, Verdict::Refused],
    };
    let stat = stat();
    let ask = |ask| Message::Ask(Ask { id: 7, ask });
    let answer = |answer| Message::Answer(Answer { id: 7, answer });
    let complete = Complete {
        transfer,
        digest: Digest([3; 32]),
        streams: vec![StreamReport {
            rtt_us: Some(1),
            ..StreamReport::default()
        }],
        end: Some(End { chunks: 2, size: 9 }),
        changing: true,
    };
    vec![
        (
            "put",
            Message::Put(Put {
                name: name("a/b"),
                offer: offer(None),
                options: PutOptions {
                    delta: true,
                    ..PutOptions::default()
                },
                into: Some(name("c")),
                entry,
                attributes: None,
            }),
        ),
        (
            "get",
            Message::Get(Get {
                transfer,
                name: name("a"),
                limit_bps: Some(1),
                entry,
                compress: true,
                allow_changing: true,
                range: None,
            }),
        ),
        ("offer", Message::Offer(offer(Some(OfferKind::Pipe)))),
        (
            "accept",
            Message::Accept(Accept {
                transfer,
                have: vec![Subtree {
                    first: ChunkId(0),
                    level: 3,
                    value: ChainingValue([1; 32]),
                }],
                window: Some(64),
                delta: Some(4),
                memory: None,
            }),
        ),
        ("complete", Message::Complete(complete)),
        (
            "committed",
            Message::Committed(Committed {
                transfer,
                digest: Digest([3; 32]),
                etag: Some(tag()),
            }),
        ),
        (
            "fail",
            Message::Fail(Fail {
                transfer,
                code: FailCode::NotAFile,
                text: "no \u{1b}[31m".into(),
                resumable: true,
            }),
        ),
        (
            "interfaces",
            Message::Interfaces(Interfaces {
                interfaces: vec![interface()],
            }),
        ),
        (
            "expect",
            Message::Expect(Expect {
                connections: vec![Expected {
                    from: [10, 9, 0, 12].into(),
                    interface: 3,
                    port: Some(9),
                    token: None,
                }],
            }),
        ),
        (
            "put-tree",
            Message::PutTree(PutTree {
                transfer,
                target: Some(name("a")),
                as_name: true,
                rules: rules.clone(),
                heeds_memory: false,
            }),
        ),
        (
            "get-tree",
            Message::GetTree(GetTree {
                transfer,
                sources: vec![TreeSource {
                    name: None,
                    content: true,
                }],
                walk,
                rules,
                limit_bps: None,
            }),
        ),
        (
            "tree-verdicts",
            Message::Tree(TreeBody {
                transfer,
                message: verdicts,
            }),
        ),
        (
            "tree-results",
            Message::Tree(TreeBody {
                transfer,
                message: results,
            }),
        ),
        (
            "window",
            Message::Window(Window {
                transfer,
                chunks: 300,
            }),
        ),
        (
            "holes",
            Message::Holes(Holes {
                transfer,
                extents: [(0, 4096), (u64::MAX, u64::MAX)]
                    .map(|(offset, len)| Extent { offset, len })
                    .to_vec(),
                last: true,
            }),
        ),
        (
            "values",
            Message::Values(Values {
                transfer,
                ranges: vec![ChunkRange::new(ChunkId(0), 2)],
                values: vec![5; 64],
            }),
        ),
        (
            "bench-run",
            Message::Bench(BenchBody::Run(RunOrder {
                run: 1,
                to_daemon: true,
                to_client: true,
                paths: vec![0, 1],
                longest_ms: 1,
                interval_ms: 500,
                message_bytes: 1 << 18,
                socket_buffer: Some(1 << 20),
            })),
        ),
        (
            "bench-sample",
            Message::Bench(BenchBody::Sample(BenchSample {
                run: 1,
                at_us: 2,
                paths: vec![
                    PathSample {
                        tcp: Some(TcpSample {
                            rtt_us: Some(9),
                            ..TcpSample::default()
                        }),
                        ..PathSample::default()
                    };
                    2
                ],
                cpu: Some(CpuSample {
                    cores_us: vec![1, 2],
                    ..CpuSample::default()
                }),
                last: true,
                transfers: Some(1),
            })),
        ),
        (
            "bench-facts",
            Message::Bench(BenchBody::Facts(BenchFacts {
                version: "0.1.0".into(),
            })),
        ),
        (
            "bench-refused",
            Message::Bench(BenchBody::Refused(BenchRefused {
                why: BenchRefusal::TimeOver,
                retry_after_ms: Some(1),
            })),
        ),
        (
            "bench-disk",
            Message::Bench(BenchBody::Disk(DiskOrder {
                bytes: 1,
                name: Some(name("a")),
                number: 1,
                read: false,
            })),
        ),
        ("bench-leave", Message::Bench(BenchBody::Leave)),
        (
            "get-range",
            Message::Get(Get {
                transfer,
                name: name("a"),
                limit_bps: None,
                entry: None,
                compress: false,
                allow_changing: false,
                range: Some(GetRange {
                    offset: 7,
                    len: u64::MAX,
                }),
            }),
        ),
        (
            "ask-list",
            ask(AskKind::List {
                dir: Some(name("a/b")),
                after: Some(b"c".to_vec()),
                most: 4096,
                digests: false,
            }),
        ),
        ("ask-stat", ask(AskKind::Stat { name: name("a") })),
        (
            "ask-remove",
            ask(AskKind::Remove {
                name: name("a"),
                only_if: Some(tag()),
                kind: None,
            }),
        ),
        (
            "ask-rename",
            ask(AskKind::Rename {
                from: name("a"),
                to: name("b/c"),
                replace: true,
                only_if: Some(tag()),
            }),
        ),
        ("ask-make-dir", ask(AskKind::MakeDir { name: name("a/b") })),
        ("ask-facts", ask(AskKind::Facts { offset: 0 })),
        (
            "ask-copy",
            ask(AskKind::Copy {
                from: name("a"),
                to: name("b/c"),
                replace: true,
                only_if: Some(tag()),
                offset: 1 << 30,
            }),
        ),
        (
            "ask-walk",
            ask(AskKind::Walk {
                dir: Some(name("a")),
                after: Some(b"b/c".to_vec()),
                most: 4096,
                digests: false,
            }),
        ),
        (
            "ask-concat",
            ask(AskKind::Concat {
                part: Some(name("a/b")),
                from: 1 << 20,
                to: name("c"),
                replace: true,
                only_if: Some(tag()),
                offset: Some(1 << 30),
                attributes: None,
            }),
        ),
        (
            "ask-hash",
            ask(AskKind::Hash {
                name: name("a/b"),
                offset: 1 << 30,
                words: Some(Digest([4; 32])),
            }),
        ),
        (
            "answer-hashed",
            answer(AnswerKind::Hashed {
                upto: 1 << 30,
                file: Some(Box::new(HashedFile {
                    stat,
                    digest: Digest([3; 32]),
                    signed: Some(Signed {
                        at: Timestamp::default(),
                        signature: [5; 64],
                    }),
                })),
                values: vec![ChainingValue([6; 32]); 2],
            }),
        ),
        (
            "ask-remove-many",
            ask(AskKind::RemoveMany {
                names: vec![name("a"), name("b/c")],
                kind: None,
            }),
        ),
        (
            "answer-copied",
            answer(AnswerKind::Copied {
                upto: 1 << 30,
                copy: Some(stat),
            }),
        ),
        (
            "answer-walked",
            answer(AnswerKind::Walked {
                entries: vec![ObjectEntry {
                    name: b"a/b".to_vec(),
                    stat,
                }],
                more: true,
            }),
        ),
        (
            "answer-removed",
            answer(AnswerKind::Removed {
                failed: vec![NotRemoved {
                    index: 1,
                    code: FailCode::NotFound,
                    text: "it is not there".into(),
                }],
            }),
        ),
        (
            "answer-entries",
            answer(AnswerKind::Entries {
                entries: vec![
                    ObjectEntry {
                        name: b"a".to_vec(),
                        stat,
                    },
                    ObjectEntry {
                        name: b"..".to_vec(),
                        stat,
                    },
                ],
                more: true,
            }),
        ),
        (
            "answer-stat",
            answer(AnswerKind::Stat {
                stat,
                attributes: None,
            }),
        ),
        ("answer-done", answer(AnswerKind::Done)),
        (
            "answer-facts",
            answer(AnswerKind::Facts {
                part: b"{}".to_vec(),
                more: false,
            }),
        ),
        (
            "answer-failed",
            answer(AnswerKind::Failed {
                code: FailCode::NotFound,
                text: "no \u{1b}[31m".into(),
            }),
        ),
        (
            "keep",
            Message::Keep(Keep {
                transfer,
                ranges: vec![
                    ChunkRange::new(ChunkId(0), 1),
                    ChunkRange::new(ChunkId(4), 2),
                ],
            }),
        ),
    ]
}

#[test]
fn messages_corpus() {
    let mut seeds: Seeds = every_message()
        .into_iter()
        .map(|(name, message)| (name, cbor(&message)))
        .collect();
    let put = cbor(&every_message()[0].1);
    let at = put
        .windows(3)
        .position(|window| window == [0x82, 0x41, b'a'])
        .unwrap();
    let named = |name: &[u8]| [&put[..at], name, &put[at + 5..]].concat();
    seeds.extend([
        ("name-up", named(&[0x81, 0x42, b'.', b'.'])),
        (
            "name-of-2-64-components",
            named(&[0x9b, 255, 255, 255, 255, 255, 255, 255, 255]),
        ),
        (
            "name-without-end",
            named(&with(&[0x9f], &[0x41, b'a'].repeat(300))),
        ),
        ("variant-unknown", vec![0x82, 0x18, 99, 0x81, 0xa0]),
        ("variant-without-body", vec![0x82, 0]),
        ("nested-1000", vec![0x81; 1000]),
        (
            "tags",
            vec![0xc6, 0xc6, 0xc6, 0x82, 0x0c, 0x81, 0xa2, 0, 3, 1, 5],
        ),
        (
            "integer-negative",
            vec![0x82, 0x0c, 0x81, 0xa2, 0, 0x20, 1, 5],
        ),
        (
            "text-of-2-63",
            vec![
                0x82, 6, 0x81, 0xa4, 0, 1, 1, 0, 2, 0x7b, 0x7f, 255, 255, 255, 255, 255, 255, 255,
            ],
        ),
    ]);
    replay("messages", messages, seeds);
}

#[test]
fn batches_corpus() {
    let entry = |content, xattrs| Entry {
        owner: Some(Owner {
            uid: 1,
            gid: u32::MAX,
        }),
        xattrs,
        ..tree::tests::entry(content)
    };
    let xattr = Xattr {
        name: b"user.x".to_vec().into(),
        value: vec![1; 30].into(),
    };
    let reason = || Reason {
        code: FailCode::Io,
        text: "cannot".into(),
    };
    let batch = |records: &[tree::Record<'_>]| {
        let mut buffer = vec![0; 4096];
        let mut writer = BatchWriter::new(&mut buffer, 0);
        assert!(records.iter().all(|record| writer.push(record)));
        let len = writer.len();
        buffer.truncate(len);
        buffer
    };
    let file = Content::File {
        size: 5,
        alone: false,
        digest: Some(Digest([1; 32])),
    };
    let piece = tree::Record::Piece {
        id: EntryId(7),
        offset: u64::MAX,
        last: true,
        bytes: b"hello",
    };
    let entries = [
        tree::Record::Entry(Box::new(entry(file, Some(vec![xattr])))),
        tree::Record::Entry(Box::new(entry(Content::Directory, None))),
        tree::Record::Entry(Box::new(entry(
            Content::Symlink {
                target: b"../x\xff".to_vec(),
            },
            None,
        ))),
        tree::Record::Entry(Box::new(entry(
            Content::HardLink {
                to: EntryId(1),
                path: name("a/b"),
            },
            None,
        ))),
    ];
    let others = [
        piece.clone(),
        tree::Record::EndDirectory {
            id: EntryId(3),
            complete: true,
        },
        tree::Record::Abandoned {
            id: EntryId(5),
            reason: reason(),
        },
        tree::Record::Trouble(Box::new(Trouble {
            name: Some(name("x")),
            reason: reason(),
            label: Some("x\n".into()),
        })),
        tree::Record::Special(Box::new(Special {
            name: name("fifo"),
            large: None,
        })),
    ];
    let owned = |user, group| {
        let [user, group] =
            [user, group].map(|name: Option<&str>| name.map(|name| OwnerName::new(name).unwrap()));
        let entry = Entry {
            owner_names: Some(OwnerNames {
                user,
                group,
                acl: None,
            }),
            ..entry(Content::Directory, None)
        };
        tree::Record::Entry(Box::new(entry))
    };
    let longest = "x".repeat(OwnerName::MOST);
    let owners = batch(&[
        owned(Some("alice"), Some("DOM\\staff")),
        owned(None, Some(&longest)),
        owned(None, None),
    ]);
    let mut colon = owners.clone();
    let at = colon
        .windows(5)
        .position(|window| window == b"alice")
        .unwrap();
    colon[at] = b':';
    let mut numbers = batch(&entries[..1]);
    numbers[8] = 8;
    let mut long = batch(&[piece]);
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let seeds: Seeds = vec![
        ("entries", batch(&entries)),
        ("others", batch(&others)),
        ("owners-by-name", owners),
        ("owner-with-a-colon", colon),
        ("entry-with-two-numbers", numbers),
        ("piece-of-4-gib", long),
        (
            "piece-without-offset",
            with(&[3, 0, 0, 0, 7, 0, 0, 0], &[0; 15]),
        ),
        ("end-with-a-body", with(&[2, 1, 0, 0, 1, 0, 0, 0], &[0; 9])),
        ("kind-unknown", with(&[7, 0, 0, 0, 0, 0, 0, 0], &[0; 8])),
        ("flag-of-an-entry", with(&[1, 1, 0, 0, 0, 0, 0, 0], &[0; 8])),
        ("header-cut", vec![1; 15]),
    ];
    replay("batches", batches, seeds);
}

#[test]
fn names_corpus() {
    let encoded = |components: &[&[u8]]| {
        let mut e = minicbor::Encoder::new(Vec::new());
        e.array(components.len() as u64).unwrap();
        components
            .iter()
            .for_each(|component| _ = e.bytes(component).unwrap());
        with(&[0], &e.into_writer())
    };
    let typed = |text: &[u8]| with(&[1], text);
    let shown = |text: &str| with(&[2], text.as_bytes());
    let seeds: Seeds = vec![
        ("encoded", encoded(&[b"a", b"b c", b"\xff.bin"])),
        ("encoded-up", encoded(&[b"a", b".."])),
        ("encoded-empty", encoded(&[])),
        ("encoded-empty-component", encoded(&[b"a", b""])),
        ("encoded-slash", encoded(&[b"a/b"])),
        ("encoded-nul", encoded(&[b"a\0b"])),
        ("encoded-257", encoded(&[&b"a"[..]; 257])),
        ("encoded-256-bytes", encoded(&[&[b'x'; 256]])),
        (
            "encoded-indefinite",
            with(&[0], &[0x9f, 0x5f, 0x41, b'a', 0xff, 0xff]),
        ),
        ("encoded-text", with(&[0], &[0x81, 0x61, b'a'])),
        ("typed", typed(b"a//b c/\xff.bin")),
        ("typed-absolute", typed(b"/etc/passwd")),
        ("typed-up", typed(b"a/../b")),
        ("typed-dot", typed(b"./a")),
        ("typed-backslashes", typed(b"..\\..\\a")),
        ("shown-escape", shown("a\u{1b}[31m\u{7}\n\u{9b}b\\")),
        ("shown-bidirectional", shown("\u{202e}\u{2066}\u{200f}abc")),
        (
            "shown-not-utf8",
            with(&[2], b"\xc3(\xed\xa0\x80\xf4\x90\x80\x80"),
        ),
    ];
    replay("names", names, seeds);
}

#[test]
fn discovery_corpus() {
    let address = |last| std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    let question = Question {
        nonce: Nonce([1; 32]),
        key: [2; 32],
        address: address(1),
        invitation: None,
    };
    let answer = Response {
        nonce: Nonce([1; 32]),
        key: [3; 32],
        address: address(2),
        port: 7747,
        index: 3,
        interface: b"eth0".to_vec(),
        host: b"nas".to_vec(),
        asker_key: [2; 32],
        asker_address: address(1),
        invitation: false,
    };
    let asked = question.encode(|_| Some([9; 64])).unwrap().to_vec();
    let answered = answer.encode(|_| Some([9; 64])).unwrap().to_vec();
    let changed = |at: usize, byte: u8| {
        let mut bytes = answered.clone();
        bytes[at] = byte;
        bytes
    };
    let mut invited = asked.clone();
    invited[9..11].copy_from_slice(&[3, 7]);
    let full = Response {
        interface: vec![b'i'; 16],
        host: vec![b'h'; 64],
        ..answer
    }
    .encode(|_| Some([9; 64]))
    .unwrap()
    .to_vec();
    let seeds: Seeds = vec![
        ("question", asked.clone()),
        ("answer", answered.clone()),
        ("answer-full", full),
        ("answer-from-elsewhere", changed(80, 0x20)),
        ("answer-with-text-behind-its-end", changed(170, b'x')),
        ("answer-without-interface", changed(144, 0)),
        ("answer-of-version-2", changed(8, 2)),
        ("question-and-a-byte", with(&asked, &[0])),
        ("question-cut", asked[..287].to_vec()),
        ("question-for-an-invitation", invited),
        ("answer-of-an-inviter", changed(9, 4)),
    ];
    replay("discovery", discovery, seeds);
}

#[test]
fn invitations_corpus() {
    let messages = [
        invitation::Message::Pake(invitation::Pake {
            number: 7,
            message: [0x41; invitation::PAKE_LEN],
        }),
        invitation::Message::Confirm(invitation::Confirm { mac: [9; 32] }),
        invitation::Message::Card(invitation::Card {
            purpose: 1,
            host: "nas".to_owned(),
            port: 7747,
        }),
        invitation::Message::Done(invitation::Done {
            name: "laptop".into(),
        }),
        invitation::Message::Offer(invitation::Offer {
            request: vec![1, 2],
            items: vec![invitation::Item {
                name: b"a".to_vec(),
                is_dir: false,
                is_link: false,
                files: 1,
                bytes: 99,
            }],
        }),
        invitation::Message::Accept(invitation::Accept { reply: vec![3] }),
        invitation::Refusal::WrongCode.into(),
    ];
    let all: Vec<u8> = messages.iter().flat_map(invitation::encode).collect();
    let mut huge = with(&[9], &all);
    huge.extend([0xff; 9]);
    let seeds: Seeds = vec![
        ("messages", with(&[200], &all)),
        ("messages-by-bytes", with(&[1], &all)),
        ("messages-and-a-huge-one", huge),
        ("message-cut", with(&[4], &all[..20])),
        ("message-of-another-kind", with(&[4], b"\x03\0\x82\x09\x80")),
        ("message-empty", with(&[4], &[0, 0])),
        ("code", with(&[0], b"7-crossover-violin")),
        ("code-typed", with(&[0], b" 007 CrossOver_violin \n")),
        ("code-misspelled", with(&[0], b"7-crosover-violine")),
        ("code-escapes", with(&[0], b"\x1b[31m-\xff-\xc3\x84")),
    ];
    replay("invitations", invitations, seeds);
}

#[test]
fn journal_corpus() {
    let header = |size| Header {
        grid: Grid::new(size, ChunkSize::DEFAULT),
        source: SourceIdentity {
            size,
            ..SourceIdentity::default()
        },
        peer_key: [5; 32],
        id: JournalId([6; 16]),
    };
    let subtree = |first, level, value| Subtree {
        first: ChunkId(first),
        level,
        value: ChainingValue([value; 32]),
    };
    let journal_of = |size, subtrees: &[Subtree]| {
        let records = subtrees
            .iter()
            .flat_map(|subtree| Record { subtree: *subtree }.encode(JournalId([6; 16])));
        with(
            &[0, 99],
            &with(&header(size).encode(), &records.collect::<Vec<u8>>()),
        )
    };
    let some = journal_of(
        10 << 18,
        &[
            subtree(0, 1, 1),
            subtree(4, 2, 2),
            subtree(2, 1, 3),
            subtree(8, 1, 4),
        ],
    );
    let mut zeros = some.clone();
    zeros.extend([0; 128]);
    let mut damaged = some.clone();
    damaged[2 + 128 + 64 + 20] ^= 1;
    let mut repaired = damaged.clone();
    repaired[0] = 3;
    let seeds: Seeds = vec![
        ("whole", some.clone()),
        ("torn", some[..some.len() - 10].to_vec()),
        ("header-torn", some[..100].to_vec()),
        ("zeros-behind-it", zeros),
        ("record-damaged", damaged),
        ("record-damaged-before-its-checksum", repaired),
        ("empty-file", journal_of(0, &[subtree(0, 0, 1)])),
        ("one-chunk", journal_of(1, &[subtree(0, 0, 1)])),
        (
            "largest-file",
            journal_of(
                u64::MAX,
                &[
                    subtree(0, 46, 1),
                    subtree(1 << 45, 45, 1),
                    subtree(u64::MAX, 255, 1),
                ],
            ),
        ),
        (
            "overlap",
            journal_of(
                10 << 18,
                &[subtree(0, 3, 1), subtree(2, 1, 2), subtree(0, 0, 3)],
            ),
        ),
        (
            "conflict",
            journal_of(10 << 18, &[subtree(0, 0, 1), subtree(0, 0, 2)]),
        ),
        ("misaligned", journal_of(10 << 18, &[subtree(1, 1, 1)])),
    ];
    replay("journal", journal, seeds);
}

#[test]
fn extents_corpus() {
    let seeds: Seeds = vec![
        (
            "chunks",
            vec![
                0, 0, 0, 4, 1, 4, 0, 2, 1, 9, 1, 3, 1, 1, 2, 0, 1, 3, 3, 0, 1, 90,
            ],
        ),
        (
            "chunks-at-the-end-of-numbers",
            vec![0, 1, 0, 90, 0, 240, 1, 95, 0, 255, 3, 0, 0, 255, 2, 9, 1, 3],
        ),
        ("holes", vec![1, 10, 1, 1, 0, 1, 0, 2, 1, 0, 4, 0, 9]),
        (
            "holes-beyond-the-end",
            vec![1, 10, 1, 1, 1, 255, 1, 255, 1, 0, 4, 1, 240, 2],
        ),
    ];
    replay("extents", extents, seeds);
}

/// Runs the fuzz target on its corpus. The inputs are decisions, because a session has no encoding.
#[test]
fn session_corpus() {
    let noise = |seed: u8, len| {
        let mut bytes = vec![0; len];
        blake3::Hasher::new()
            .update(&[seed])
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    };
    // Decisions: client or daemon; a file is uploaded; data arrives and is written.
    let put = [0, 31, 0, 0, 0, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds: Seeds = vec![("nothing", Vec::new()), ("put", put.to_vec())];
    let names = [
        "noise-1", "noise-2", "noise-3", "noise-4", "noise-5", "noise-6", "noise-7", "noise-8",
    ];
    seeds.extend(
        names
            .into_iter()
            .enumerate()
            .map(|(seed, name)| (name, noise(seed as u8, 200 + 200 * seed))),
    );
    replay("session", session, seeds);
}

#[test]
fn mux_corpus() {
    let record = |kind: u8, code: u8, conn: u8, body: &[u8]| {
        [
            &[kind, code, 0, 0, conn, 0, 0, 0][..],
            &(body.len() as u32).to_le_bytes(),
            body,
        ]
        .concat()
    };
    let all = [
        record(1, 0, 0, b"\0\0\x01\0host:22"),
        record(2, 0, 0, &[0, 16, 0, 0]),
        record(3, 2, 0, b"why"),
        record(4, 0, 0, b"bytes"),
        record(5, 0, 0, b""),
        record(6, 0, 0, b""),
        record(7, 0, 0, &[1, 0, 0, 0]),
        record(8, 0, 0, b""),
    ];
    let seeds: Seeds = vec![
        ("every-kind", all.concat()),
        (
            "data-of-4-gib",
            vec![4, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255],
        ),
        ("target-too-long", record(1, 0, 0, &[b'a'; 275])),
        ("kind-unknown", record(9, 0, 0, b"")),
        ("code-of-no-refusal", record(4, 1, 0, b"bytes")),
        (
            "reserved-byte",
            [&[4, 0, 1][..], &record(4, 0, 0, b"bytes")[3..]].concat(),
        ),
        ("header-cut-short", record(5, 0, 0, b"")[..11].to_vec()),
    ];
    replay("mux", mux, seeds);
}

#[test]
fn tunnels_corpus() {
    let noise = |seed: u8, len| {
        let mut bytes = vec![seed; len];
        blake3::Hasher::new()
            .update(&[seed])
            .finalize_xof()
            .fill(&mut bytes[1..]);
        bytes
    };
    let mut seeds: Seeds = vec![
        // A peer opens connections, sends all permitted bytes and more. Nothing is read.
        (
            "beyond-the-window",
            vec![
                0, 0, 8, 0, 0, 0, 0, 6, 0, 8, 196, 0, 0, 4, 0, 8, 255, 0, 0, 4,
            ],
        ),
        (
            "opened-read-and-closed",
            vec![
                1, 0, 0, 0, 6, 0, 8, 0, 200, 0, 2, 0, 1, 9, 0, 6, 0, 8, 9, 0, 0, 4, 0, 2, 99, 0, 4,
                0, 6, 0, 5,
            ],
        ),
    ];
    let names = [
        "noise-1", "noise-2", "noise-3", "noise-4", "noise-5", "noise-6", "noise-7", "noise-8",
    ];
    seeds.extend(
        names
            .into_iter()
            .enumerate()
            .map(|(seed, name)| (name, noise(seed as u8, 200 + 100 * seed))),
    );
    replay("tunnels", tunnels, seeds);
}

/// Runs the fuzz target briefly on random bytes. No input may violate its assertions.
#[test]
fn tunnels_survive_noise() {
    let rounds = if cfg!(miri) { 1 } else { 300 };
    for round in 0_u32..rounds {
        let mut bytes = vec![round as u8; 300];
        blake3::Hasher::new()
            .update(&round.to_le_bytes())
            .finalize_xof()
            .fill(&mut bytes[1..]);
        tunnels(&bytes);
    }
}
