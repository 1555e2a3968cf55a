use std::net::IpAddr;

use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    file::{
        attributes::ObjectAttributes,
        etag::ETag,
        extent::{ChunkId, ChunkRange, Extent},
        hash_tree::{ChainingValue, Digest, Subtree},
        journal::{SourceIdentity, Timestamp},
        name::Name,
    },
    id::{SessionId, TransferId},
    tree::{EntryId, TreeMessage, TreeRules, Verdict},
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn extent(offset: u64, len: u64) -> Extent {
    Extent { offset, len }
}

fn range(first: u64, count: u64) -> ChunkRange {
    ChunkRange::new(ChunkId(first), count)
}

#[test]
fn messages_are_pinned_byte_for_byte() {
    let get = Message::Get(Get {
        transfer: TransferId(1),
        name: Name::new(["a"]).unwrap(),
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    });
    assert_eq!(
        hex(&minicbor::to_vec(&get).unwrap()),
        "820181a2000101814161"
    );
    let committed = Message::Committed(Committed {
        transfer: TransferId(2),
        digest: Digest([3; 32]),
        etag: None,
    });
    assert_eq!(
        hex(&minicbor::to_vec(committed).unwrap()),
        format!("820581a20002015820{}", "03".repeat(32))
    );
    let hello = Hello {
        version: 1,
        session: SessionId([4; 16]),
        new: true,
        path: 0,
        interface: None,
        interfaces: None,
        cap_bps: None,
        padding: None,
        features: None,
        program: None,
        limit_bps: None,
    };
    assert_eq!(
        hex(&minicbor::to_vec(hello).unwrap()),
        format!("a400010150{}02f50300", "04".repeat(16))
    );
    let expected = Expected {
        from: IpAddr::from([10, 9, 0, 12]),
        interface: 3,
        port: None,
        token: None,
    };
    let expect = Message::Expect(Expect {
        connections: vec![expected],
    });
    assert_eq!(
        hex(&minicbor::to_vec(expect).unwrap()),
        "820881a10081a2008200440a09000c0103"
    );
    let asked = Message::Expect(Expect {
        connections: vec![Expected {
            port: Some(7),
            token: Some(9),
            ..expected
        }],
    });
    assert_eq!(
        hex(&minicbor::to_vec(asked).unwrap()),
        "820881a10081a4008200440a09000c010302070309"
    );
    assert_eq!(
        hex(&Token(0x0102).encode()),
        "6e696373747269700000000000000102"
    );
    assert_eq!(Token::decode(&Token(7).encode()), Some(Token(7)));
    assert!(
        [
            &b""[..],
            &b"nicstrip"[..],
            &[0; 16],
            &[&Token(7).encode()[..], &b"x"[..]].concat()
        ]
        .iter()
        .all(|other| Token::decode(other).is_none())
    );
    let interfaces = Message::Interfaces(Interfaces {
        interfaces: Vec::new(),
    });
    assert_eq!(hex(&minicbor::to_vec(interfaces).unwrap()), "820781a10080");
    let welcome = Welcome {
        version: 1,
        arrival: None,
        interfaces: None,
        padding: Some(vec![0; 2]),
        root: Some(b"/srv".to_vec()),
        features: Some([Feature::Tunnels].into_iter().collect()),
        program: Some("0.1".into()),
    };
    assert_eq!(
        hex(&minicbor::to_vec(welcome).unwrap()),
        "a500010342000004442f7372760581020663302e31"
    );
    let mux = Message::OpenTunnels(OpenTunnels {
        up: TransferId(1),
        down: TransferId(2),
    });
    assert_eq!(hex(&minicbor::to_vec(mux).unwrap()), "821381a200010102");
    let exec = Message::Exec(Exec {
        first: TransferId(1),
        words: vec![Word(b"id".to_vec()), Word(vec![])],
    });
    assert_eq!(
        hex(&minicbor::to_vec(exec).unwrap()),
        "821481a20001018242696440"
    );
    let refusal = Refusal {
        code: RefusalCode::UnknownSession,
        version: 1,
        most: None,
    };
    assert_eq!(hex(&minicbor::to_vec(refusal).unwrap()), "a200010101");
}

fn rules() -> TreeRules {
    TreeRules {
        update: true,
        ..TreeRules::default()
    }
}

#[test]
fn messages_of_trees_and_windows_are_pinned_byte_for_byte() {
    let transfer = TransferId(3);
    let name = || Name::new(["a", "b"]).unwrap();
    let walk = WalkRules {
        recursive: true,
        only: Some(vec![name()]),
        ..WalkRules::default()
    };
    let sources = vec![
        TreeSource {
            name: Some(name()),
            content: false,
        },
        TreeSource {
            name: None,
            content: true,
        },
    ];
    let verdicts = TreeMessage::Verdicts {
        first: EntryId(9),
        verdicts: vec![Verdict::Create, Verdict::Refused],
    };
    let results = TreeMessage::Results {
        done: vec![(EntryId(1), 3)],
        failed: Vec::new(),
        deleted: vec![name()],
        stripped: None,
    };
    let rules_hex = "a900f401f502f403f404f405f406f407f40880";
    let cases = [
        (
            Message::PutTree(PutTree {
                transfer,
                target: Some(name()),
                as_name: true,
                rules: rules(),
                heeds_memory: false,
            }),
            format!("820981a4000301824161416202f503{rules_hex}"),
        ),
        (
            Message::PutTree(PutTree {
                transfer,
                target: None,
                as_name: false,
                rules: rules(),
                heeds_memory: false,
            }),
            format!("820981a3000302f403{rules_hex}"),
        ),
        (
            Message::PutTree(PutTree {
                transfer,
                target: None,
                as_name: false,
                rules: rules(),
                heeds_memory: true,
            }),
            format!("820981a4000302f403{rules_hex}04f5"),
        ),
        (
            Message::GetTree(GetTree {
                transfer,
                sources,
                walk,
                rules: rules(),
                limit_bps: Some(1000),
            }),
            format!(
                "820a81a500030182a200824161416201f4a101f502a500f501f402f40381824161416204f403{rules_hex}041903e8"
            ),
        ),
        (
            Message::Tree(TreeBody {
                transfer,
                message: verdicts,
            }),
            "820b81a200030182008209820005".into(),
        ),
        (
            Message::Tree(TreeBody {
                transfer,
                message: results,
            }),
            "820b81a20003018201838182010380818241614162".into(),
        ),
        (
            Message::Window(Window {
                transfer,
                chunks: 300,
            }),
            "820c81a200030119012c".into(),
        ),
    ];
    for (message, expected) in cases {
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(hex(&bytes), expected, "{message:?}");
        assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), message);
    }
}

#[test]
fn what_pipes_windows_and_entries_add_to_messages_is_pinned() {
    let (transfer, name) = (TransferId(1), Name::new(["a"]).unwrap());
    let entry = Some(EntryRef {
        tree: TransferId(2),
        id: EntryId(300),
    });
    let source = SourceIdentity::default();
    let offer = |kind| Offer {
        transfer,
        source,
        chunk_log2: 18,
        mode: 0,
        kind,
        data: None,
        object: None,
    };
    let offer_hex = "000101a5000001820000028200000300040002120300";
    let options_hex = "a400f401f402f403f4";
    let digest = Digest([3; 32]);
    let complete = |end| {
        Message::Complete(Complete {
            transfer,
            digest,
            streams: Vec::new(),
            end,
            changing: false,
        })
    };
    let complete_hex = format!("0001015820{}0280", "03".repeat(32));
    let put = Put {
        name: name.clone(),
        offer: offer(None),
        options: PutOptions::default(),
        into: None,
        entry,
        attributes: None,
    };
    let mut attributes = ObjectAttributes::new();
    attributes.set("a", "b").unwrap();
    let described = Put {
        attributes: Some(attributes),
        ..put.clone()
    };
    let cases = [
        (Message::Offer(offer(None)), format!("820281a4{offer_hex}")),
        (
            Message::Offer(offer(Some(OfferKind::File))),
            format!("820281a5{offer_hex}0400"),
        ),
        (
            Message::Offer(offer(Some(OfferKind::Pipe))),
            format!("820281a5{offer_hex}0401"),
        ),
        (
            Message::Offer(offer(Some(OfferKind::Batches))),
            format!("820281a5{offer_hex}0402"),
        ),
        (
            Message::Put(put),
            format!("820081a40081416101a4{offer_hex}02{options_hex}04820219012c"),
        ),
        (
            Message::Put(described),
            format!("820081a50081416101a4{offer_hex}02{options_hex}04820219012c05a161616162"),
        ),
        (
            Message::Get(Get {
                transfer,
                name,
                limit_bps: None,
                entry,
                compress: false,
                allow_changing: false,
                range: None,
            }),
            "820181a300010181416103820219012c".into(),
        ),
        (
            Message::Accept(Accept {
                transfer,
                have: Vec::new(),
                window: Some(64),
                delta: None,
                memory: None,
            }),
            "820381a300010180021840".into(),
        ),
        (
            Message::Accept(Accept {
                transfer,
                have: Vec::new(),
                window: Some(64),
                delta: None,
                memory: Some(1 << 20),
            }),
            "820381a400010180021840041a00100000".into(),
        ),
        (complete(None), format!("820481a3{complete_hex}")),
        (
            complete(Some(End {
                chunks: 3,
                size: 600_000,
            })),
            format!("820481a4{complete_hex}03a20003011a000927c0"),
        ),
    ];
    for (message, expected) in cases {
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(hex(&bytes), expected, "{message:?}");
        assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), message);
    }
}

#[test]
fn what_a_peer_without_trees_sends_is_read_as_it_was_meant() {
    // An acceptance without the optional keys.
    let bytes = [0x82, 0x03, 0x81, 0xa2, 0x00, 0x01, 0x01, 0x80];
    let expected = Message::Accept(Accept {
        transfer: TransferId(1),
        have: Vec::new(),
        window: None,
        delta: None,
        memory: None,
    });
    assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), expected);
}

#[test]
fn a_map_with_a_key_from_the_future_is_read() {
    // {0: 2 (code), 1: 1 (version), 9: "new"}
    let bytes = [0xa3, 0x00, 0x02, 0x01, 0x01, 0x09, 0x63, b'n', b'e', b'w'];
    let refusal: Refusal = minicbor::decode(&bytes).unwrap();
    assert_eq!(refusal.code, RefusalCode::TooManySessions);
}

#[test]
fn the_longest_accept_fits_in_a_control_message() {
    let have = Subtree {
        first: ChunkId(u64::MAX),
        level: 63,
        value: ChainingValue([0xff; 32]),
    };
    let accept = Message::Accept(Accept {
        transfer: TransferId(u32::MAX),
        have: vec![have; MAX_HAVE],
        window: None,
        delta: Some(1),
        memory: None,
    });
    let len = minicbor::to_vec(accept).unwrap().len();
    assert!(len <= crate::wire::frame::MAX_CONTROL, "{len}");
}

#[test]
fn what_benches_say_is_pinned_byte_for_byte() {
    let pinned = |body: BenchBody, expected: &str| {
        let message = Message::Bench(body);
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(hex(&bytes), expected.replace(' ', ""));
        assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), message);
    };
    let id = "07".repeat(16);
    pinned(
        BenchBody::Ask(BenchAsk {
            id: [7; 16],
            seconds: 60,
        }),
        &format!("82 10 81 82 00 81 a2 0050{id} 01183c"),
    );
    pinned(
        BenchBody::Queued(BenchQueued {
            ahead: 1,
            wait_ms: 5000,
            transfers: 0,
        }),
        "82 10 81 82 02 81 a3 0001 01191388 0200",
    );
    let run = RunOrder {
        run: 1,
        to_daemon: true,
        to_client: false,
        paths: vec![0, 1],
        longest_ms: 15_000,
        interval_ms: 500,
        message_bytes: 1 << 18,
        socket_buffer: None,
    };
    pinned(
        BenchBody::Run(run),
        "82 10 81 82 05 81 a7 0001 01f5 02f4 03820001 04193a98 051901f4 061a00040000",
    );
    let tcp = TcpSample {
        retransmitted: Some(7),
        rtt_us: Some(8),
        send_buffer: Some(9),
        receive_buffer: Some(10),
        ..TcpSample::default()
    };
    let path = PathSample {
        received: 5,
        sent: 6,
        tcp: Some(tcp),
        ..PathSample::default()
    };
    let sample = BenchSample {
        run: 1,
        at_us: 1000,
        paths: vec![path],
        last: true,
        ..BenchSample::default()
    };
    pinned(
        BenchBody::Sample(sample),
        "82 10 81 82 07 81 a4 0001 011903e8 0281 a3 0005 0106 04a4 0107 0608 0709 080a 04f5",
    );
    let disturbed = BenchSample {
        run: 1,
        at_us: 1000,
        transfers: Some(2),
        ..BenchSample::default()
    };
    pinned(
        BenchBody::Sample(disturbed),
        "82 10 81 82 07 81 a4 0001 011903e8 0280 0502",
    );
    pinned(
        BenchBody::Stop(RunNumber { run: 1 }),
        "82 10 81 82 08 81 a1 0001",
    );
    let disk = DiskOrder {
        bytes: 2,
        name: Some(Name::new(["a"]).unwrap()),
        number: 3,
        read: true,
    };
    pinned(
        BenchBody::Disk(disk),
        "82 10 81 82 0a 81 a4 0002 018141 61 0203 03f5",
    );
    pinned(BenchBody::Leave, "82 10 81 82 0c 80");
}

#[test]
fn the_largest_sample_fits_in_a_message() {
    let most = Some(u64::MAX);
    let tcp = TcpSample {
        sent: most,
        retransmitted: most,
        busy_us: most,
        rwnd_limited_us: most,
        sndbuf_limited_us: most,
        cwnd_bytes: most,
        rtt_us: most,
        send_buffer: most,
        receive_buffer: most,
    };
    let path = PathSample {
        received: u64::MAX,
        sent: u64::MAX,
        interface_received: most,
        interface_sent: most,
        tcp: Some(tcp),
    };
    let cpu = CpuSample {
        throttled_us: most,
        cores_us: vec![u64::MAX; MAX_CORES],
        ..CpuSample::default()
    };
    let sample = BenchSample {
        run: u32::MAX,
        at_us: u64::MAX,
        paths: vec![path; 64],
        cpu: Some(cpu),
        last: true,
        transfers: Some(u32::MAX),
    };
    let body = BenchBody::Sample(sample);
    assert!(body.is_bounded());
    assert!(
        minicbor::to_vec(Message::Bench(body)).unwrap().len() <= crate::wire::frame::MAX_CONTROL
    );
}

#[test]
fn what_spares_bytes_is_pinned_byte_for_byte() {
    let transfer = TransferId(1);
    let pinned = |message: Message, expected: &str| {
        assert_eq!(hex(&minicbor::to_vec(&message).unwrap()), expected);
    };
    let holes = Holes {
        transfer,
        extents: vec![extent(0, 4096), extent(1 << 18, 5)],
        last: true,
    };
    pinned(
        Message::Holes(holes),
        "820d81a300010182820019100082 1a00040000 0502f5"
            .replace(' ', "")
            .as_str(),
    );
    let values = Values {
        transfer,
        ranges: vec![range(2, 1)],
        values: vec![7; 32],
    };
    pinned(
        Message::Values(values),
        &format!("820e81a300010181820201025820{}", "07".repeat(32)),
    );
    pinned(
        Message::Keep(Keep {
            transfer,
            ranges: vec![range(2, 3)],
        }),
        "820f81a2000101818202 03".replace(' ', "").as_str(),
    );
    let name = Name::new(["a"]).unwrap();
    let get = Get {
        transfer,
        name,
        limit_bps: None,
        entry: None,
        compress: true,
        allow_changing: true,
        range: None,
    };
    pinned(Message::Get(get), "820181a400010181416104f505f5");
    let options = PutOptions {
        delta: true,
        in_place: true,
        ..PutOptions::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(options).unwrap()),
        "a600f401f402f403f404f505f5"
    );
    let trial = PutOptions {
        trial: true,
        ..PutOptions::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(trial).unwrap()),
        "a500f401f402f403f406f5"
    );
    assert_eq!(
        minicbor::decode::<PutOptions>(&[0xa4, 0, 0xf4, 1, 0xf4, 2, 0xf4, 3, 0xf4]).unwrap(),
        PutOptions::default()
    );
    let slice = PutOptions {
        slice: Some(Slice {
            offset: 1,
            size: 2,
            mtime: None,
            mode: Some(3),
        }),
        ..PutOptions::default()
    };
    let bytes = minicbor::to_vec(slice).unwrap();
    assert_eq!(hex(&bytes), "a500f401f402f403f40aa3000101020303");
    assert_eq!(minicbor::decode::<PutOptions>(&bytes).unwrap(), slice);
}

#[test]
fn what_is_said_of_names_is_pinned_byte_for_byte() {
    let pinned = |message: Message, expected: &str| {
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(hex(&bytes), expected.replace(' ', ""), "{message:?}");
        assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), message);
    };
    let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
    let ask = |ask| Message::Ask(Ask { id: 5, ask });
    let answer = |answer| Message::Answer(Answer { id: 5, answer });
    pinned(
        ask(AskKind::List {
            dir: None,
            after: None,
            most: 9,
            digests: false,
        }),
        "82 11 81 a2 0005 01 82 00 a1 0209",
    );
    let rest = AskKind::List {
        dir: Some(name("a")),
        after: Some(b"b".to_vec()),
        most: 9,
        digests: false,
    };
    pinned(
        ask(rest),
        "82 11 81 a2 0005 01 82 00 a3 00814161 014162 0209",
    );
    pinned(
        ask(AskKind::Stat { name: name("a/b") }),
        "82 11 81 a2 0005 01 82 01 a1 008241614162",
    );
    pinned(
        ask(AskKind::Remove {
            name: name("a"),
            only_if: None,
            kind: None,
        }),
        "82 11 81 a2 0005 01 82 02 a1 00814161",
    );
    let rename = AskKind::Rename {
        from: name("a"),
        to: name("b"),
        replace: true,
        only_if: None,
    };
    pinned(
        ask(rename),
        "82 11 81 a2 0005 01 82 03 a3 00814161 01814162 02f5",
    );
    pinned(
        ask(AskKind::MakeDir { name: name("a") }),
        "82 11 81 a2 0005 01 82 04 a1 00814161",
    );
    pinned(
        ask(AskKind::Facts { offset: 300 }),
        "82 11 81 a2 0005 01 82 05 a1 0019012c",
    );
    let stat = ObjectStat {
        kind: ObjectKind::Dir,
        size: 300,
        mtime: Timestamp {
            seconds: -1,
            nanoseconds: 2,
        },
        etag: None,
        digest: None,
        has_attributes: false,
    };
    let entries = vec![ObjectEntry {
        name: b"a".to_vec(),
        stat,
    }];
    pinned(
        answer(AnswerKind::Entries {
            entries,
            more: true,
        }),
        "82 12 81 a2 0005 01 82 00 a2 00 81 a2 004161 01 a3 0001 0119012c 02822002 01f5",
    );
    pinned(
        answer(AnswerKind::Stat {
            stat,
            attributes: None,
        }),
        "82 12 81 a2 0005 01 82 01 a1 00 a3 0001 0119012c 02822002",
    );
    pinned(answer(AnswerKind::Done), "82 12 81 a2 0005 01 82 02 a0");
    let facts = AnswerKind::Facts {
        part: b"{}".to_vec(),
        more: true,
    };
    pinned(answer(facts), "82 12 81 a2 0005 01 82 04 a2 00427b7d 01f5");
    let failed = AnswerKind::Failed {
        code: FailCode::NotFound,
        text: "no".into(),
    };
    pinned(answer(failed), "82 12 81 a2 0005 01 82 03 a2 0001 01626e6f");
    let (transfer, range) = (
        TransferId(1),
        Some(GetRange {
            offset: 1,
            len: 300,
        }),
    );
    let get = Get {
        transfer,
        name: name("a"),
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range,
    };
    pinned(Message::Get(get), "82 01 81 a3 0001 01814161 06820119012c");
    let parents = PutOptions {
        parents: true,
        ..PutOptions::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(parents).unwrap()),
        "a500f401f402f403f407f5"
    );
    let force = PutOptions {
        replace: true,
        force: true,
        ..PutOptions::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(force).unwrap()),
        "a500f501f402f403f408f5"
    );
    let tag = ETag::from_bytes([0xee; 16]);
    let only_if = PutOptions {
        only_if: Some(tag),
        ..PutOptions::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(only_if).unwrap()),
        format!("a500f401f402f403f40950{}", "ee".repeat(16))
    );
    pinned(
        ask(AskKind::Remove {
            name: name("a"),
            only_if: Some(tag),
            kind: None,
        }),
        &format!(
            "82 11 81 a2 0005 01 82 02 a2 00814161 0150{}",
            "ee".repeat(16)
        ),
    );
    let copy = AskKind::Copy {
        from: name("a"),
        to: name("b"),
        replace: true,
        only_if: None,
        offset: 300,
    };
    pinned(
        ask(copy),
        "82 11 81 a2 0005 01 82 06 a4 00814161 01814162 02f5 0419012c",
    );
    let walk = AskKind::Walk {
        dir: Some(name("a")),
        after: Some(b"b/".to_vec()),
        most: 9,
        digests: false,
    };
    pinned(
        ask(walk),
        "82 11 81 a2 0005 01 82 07 a3 00814161 0142622f 0209",
    );
    let names = vec![name("a"), name("b")];
    pinned(
        ask(AskKind::RemoveMany { names, kind: None }),
        "82 11 81 a2 0005 01 82 08 a1 00 82 814161 814162",
    );
    let mut attributes = ObjectAttributes::new();
    attributes.set("a", "b").unwrap();
    pinned(
        ask(AskKind::Concat {
            part: None,
            from: 0,
            to: name("b"),
            replace: false,
            only_if: None,
            offset: None,
            attributes: Some(attributes),
        }),
        "82 11 81 a2 0005 01 82 0a a4 0100 02814162 03f4 06 a1 6161 6162",
    );
    let concat = |part, offset| AskKind::Concat {
        part,
        from: 1,
        to: name("b"),
        replace: true,
        only_if: None,
        offset,
        attributes: None,
    };
    pinned(
        ask(concat(Some(name("a")), Some(300))),
        "82 11 81 a2 0005 01 82 0a a5 00814161 0101 02814162 03f5 0519012c",
    );
    pinned(
        ask(concat(None, None)),
        "82 11 81 a2 0005 01 82 0a a3 0101 02814162 03f5",
    );
    let hash = AskKind::Hash {
        name: name("a"),
        offset: 300,
        words: None,
    };
    pinned(ask(hash), "82 11 81 a2 0005 01 82 09 a2 00814161 0119012c");
    let hash = AskKind::Hash {
        name: name("a"),
        offset: 300,
        words: Some(Digest([0xdd; 32])),
    };
    let words = format!("025820{}", "dd".repeat(32));
    pinned(
        ask(hash),
        &format!("82 11 81 a2 0005 01 82 09 a3 00814161 0119012c {words}"),
    );
    let digest = Digest([0xee; 32]);
    let hashed = AnswerKind::Hashed {
        upto: 300,
        file: Some(Box::new(HashedFile {
            stat,
            digest,
            signed: None,
        })),
        values: Vec::new(),
    };
    pinned(
        answer(hashed),
        &format!(
            "82 12 81 a2 0005 01 82 08 a2 0019012c 01 a2 00 a3 0001 0119012c 02822002 01 5820{}",
            "ee".repeat(32)
        ),
    );
    let hashed = AnswerKind::Hashed {
        upto: 300,
        file: Some(Box::new(HashedFile {
            stat,
            digest,
            signed: Some(Signed {
                at: Timestamp {
                    seconds: 7,
                    nanoseconds: 8,
                },
                signature: [0xcc; 64],
            }),
        })),
        values: vec![ChainingValue([0xbb; 32])],
    };
    pinned(
        answer(hashed),
        &format!(
            "82 12 81 a2 0005 01 82 08 a3 0019012c 01 a3 00 a3 0001 0119012c 02822002 01 5820{} \
             02 a2 00820708 015840{} 02815820{}",
            "ee".repeat(32),
            "cc".repeat(64),
            "bb".repeat(32)
        ),
    );
    let list = AskKind::List {
        dir: None,
        after: None,
        most: 9,
        digests: true,
    };
    pinned(ask(list), "82 11 81 a2 0005 01 82 00 a2 0209 03f5");
    let copied = |copy| answer(AnswerKind::Copied { upto: 300, copy });
    pinned(copied(None), "82 12 81 a2 0005 01 82 05 a1 0019012c");
    pinned(
        copied(Some(stat)),
        "82 12 81 a2 0005 01 82 05 a2 0019012c 01 a3 0001 0119012c 02822002",
    );
    let entries = vec![ObjectEntry {
        name: b"a/b".to_vec(),
        stat,
    }];
    pinned(
        answer(AnswerKind::Walked {
            entries,
            more: false,
        }),
        "82 12 81 a2 0005 01 82 06 a2 00 81 a2 0043612f62 01 a3 0001 0119012c 02822002 01f4",
    );
    let failed = vec![NotRemoved {
        index: 1,
        code: FailCode::NotFound,
        text: "no".into(),
    }];
    pinned(
        answer(AnswerKind::Removed { failed }),
        "82 12 81 a2 0005 01 82 07 a1 00 81 a3 0001 0101 02626e6f",
    );
    let stat = ObjectStat {
        etag: Some(tag),
        digest: None,
        ..stat
    };
    pinned(
        answer(AnswerKind::Stat {
            stat,
            attributes: None,
        }),
        &format!(
            "82 12 81 a2 0005 01 82 01 a1 00 a4 0001 0119012c 02822002 0350{}",
            "ee".repeat(16)
        ),
    );
}

#[test]
fn an_answer_that_weighs_what_it_may_fits_in_a_message() {
    let stat = ObjectStat {
        kind: ObjectKind::Other,
        size: u64::MAX,
        mtime: Timestamp {
            seconds: i64::MIN,
            nanoseconds: u32::MAX,
        },
        etag: Some(ETag::from_bytes([0xff; 16])),
        digest: Some(Digest([0xff; 32])),
        has_attributes: false,
    };
    for len in [1, 20, 64, 255] {
        let entry = ObjectEntry {
            name: vec![b'a'; len],
            stat,
        };
        let count = (MOST_ANSWER / entry.weight()).min(MOST_ENTRIES as usize);
        let answer = Answer {
            id: u32::MAX,
            answer: AnswerKind::Entries {
                entries: vec![entry; count],
                more: true,
            },
        };
        let bytes = minicbor::to_vec(Message::Answer(answer)).unwrap().len();
        assert!(
            bytes <= MOST_ANSWER + 64,
            "{bytes} bytes of {count} names of {len}"
        );
    }
    let name = Name::new(vec![vec![b'a'; 1]; crate::file::name::MAX_COMPONENTS]).unwrap();
    let longest = AskKind::Rename {
        from: name.clone(),
        to: name,
        replace: true,
        only_if: Some(ETag::from_bytes([0xff; 16])),
    };
    assert!(
        minicbor::to_vec(Message::Ask(Ask {
            id: 1,
            ask: longest
        }))
        .unwrap()
        .len()
            <= crate::wire::frame::MAX_CONTROL
    );
}

#[test]
fn the_longest_of_what_spares_bytes_fit_in_a_control_message() {
    let transfer = TransferId(u32::MAX);
    let longest = [
        Message::Holes(Holes {
            transfer,
            extents: vec![extent(u64::MAX, u64::MAX); crate::file::hole::HOLES_PER_MESSAGE],
            last: true,
        }),
        Message::Values(Values {
            transfer,
            ranges: vec![range(u64::MAX, u64::MAX); MAX_VALUES],
            values: vec![0xff; 32 * MAX_VALUES],
        }),
        Message::Keep(Keep {
            transfer,
            ranges: vec![range(u64::MAX, u64::MAX); MAX_KEEP],
        }),
    ];
    for message in longest {
        let len = minicbor::to_vec(&message).unwrap().len();
        assert!(len <= 60 * 1024, "{len}");
    }
}

#[test]
fn cut_or_garbled_messages_are_errors_not_panics() {
    let name = Name::new(["dir", "file"]).unwrap();
    let bytes = minicbor::to_vec(Message::Get(Get {
        transfer: TransferId(1),
        name,
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    }))
    .unwrap();
    for len in 0..bytes.len() {
        assert!(minicbor::decode::<Message>(&bytes[..len]).is_err());
    }
    for (index, bit) in (0..bytes.len()).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
        let mut garbled = bytes.clone();
        garbled[index] ^= 1 << bit;
        let _ = minicbor::decode::<Message>(&garbled);
    }
}

fn any_interface() -> impl Strategy<Value = PeerInterface> {
    let address =
        (any::<IpAddr>(), any::<u8>()).prop_map(|(ip, prefix_len)| PeerAddress { ip, prefix_len });
    let settings =
        any::<[u8; 3]>().prop_map(|[arp_ignore, arp_announce, rp_filter]| Ipv4Settings {
            arp_ignore,
            arp_announce,
            rp_filter,
        });
    let seen = (
        ".{0,20}",
        any::<u32>(),
        vec(address, 0..4),
        any::<u32>(),
        any::<bool>(),
    );
    let known = (
        any::<[Option<u64>; 2]>(),
        any::<Option<[u8; 6]>>(),
        option::of(vec(".{0,9}", 0..3)),
        any::<Option<u8>>(),
        option::of(settings),
    );
    let idle = prop_oneof![
        Just(None),
        Just(Some(Idle::Down)),
        Just(Some(Idle::NoCarrier)),
        Just(Some(Idle::NoAddress)),
        Just(Some(Idle::Other)),
    ];
    (seen, known, idle, option::of(".{0,9}")).prop_map(
        |(
            (name, index, addresses, mtu, candidate),
            (rates, mac, members, streams, settings),
            idle,
            card,
        )| {
            PeerInterface {
                name,
                index,
                addresses,
                mtu,
                line_rate_bps: rates[0],
                egress_limit_bps: rates[1],
                candidate,
                mac,
                members,
                streams,
                settings,
                idle,
                card,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_told_of_interfaces_and_connections_comes_back_as_it_was(
        interfaces in vec(any_interface(), 0..4),
        connections in vec((any::<IpAddr>(), any::<u32>(), any::<Option<u16>>(), any::<Option<u64>>()), 0..4),
    ) {
        let connections = connections.into_iter().map(|(from, interface, port, token)| Expected { from, interface, port, token }).collect();
        for message in [Message::Interfaces(Interfaces { interfaces }), Message::Expect(Expect { connections })] {
            let bytes = minicbor::to_vec(&message).unwrap();
            prop_assert_eq!(minicbor::decode::<Message>(&bytes).unwrap(), message);
        }
    }

    #[test]
    fn greetings_come_back_as_they_were(
        interfaces in option::of(vec(any_interface(), 0..3)),
        words in any::<([u8; 16], bool, u16, Option<u64>)>(),
        name in option::of(".{0,20}"),
        padding in option::of(vec(any::<u8>(), 0..40)),
    ) {
        let (session, new, path, cap_bps) = words;
        let hello = Hello {
            version: VERSION,
            session: SessionId(session),
            new,
            path,
            interface: name.clone(),
            interfaces: interfaces.clone(),
            cap_bps,
            padding: padding.clone(),
            features: Some(Features::default()),
            program: name.clone(),
            limit_bps: cap_bps,
        };
        prop_assert_eq!(minicbor::decode::<Hello>(&minicbor::to_vec(&hello).unwrap()).unwrap(), hello);
        let welcome = Welcome { version: VERSION, arrival: name, interfaces, root: padding.clone(), padding, features: None, program: None };
        prop_assert_eq!(minicbor::decode::<Welcome>(&minicbor::to_vec(&welcome).unwrap()).unwrap(), welcome);
    }
}

#[test]
fn an_interface_with_everything_is_pinned_and_the_most_of_them_fit_in_a_message() {
    let interface = PeerInterface {
        name: "eth1".into(),
        index: 2,
        addresses: vec![PeerAddress {
            ip: IpAddr::from([10, 0, 0, 1]),
            prefix_len: 24,
        }],
        mtu: 1500,
        line_rate_bps: Some(1),
        egress_limit_bps: Some(2),
        candidate: true,
        mac: Some([2; 6]),
        members: Some(vec!["a".into()]),
        streams: Some(4),
        settings: Some(Ipv4Settings {
            arp_ignore: 0,
            arp_announce: 1,
            rp_filter: 2,
        }),
        idle: Some(Idle::NoCarrier),
        card: Some("eth0".into()),
    };
    assert_eq!(
        hex(&minicbor::to_vec(&interface).unwrap()),
        "ad00646574683101020281a2008200440a000001011818031905dc0401050206f507460202020202020881616109040aa30000010102020b010c6465746830"
    );
    let long = PeerAddress {
        ip: IpAddr::from([0xff; 16]),
        prefix_len: 128,
    };
    let largest = PeerInterface {
        name: "fifteen_letters".into(),
        index: u32::MAX,
        addresses: vec![long; crate::pairing::MOST_ADDRESSES],
        mtu: u32::MAX,
        line_rate_bps: Some(u64::MAX),
        egress_limit_bps: Some(u64::MAX),
        members: Some(vec!["fifteen_letters".into(); 8]),
        card: Some("fifteen_letters".into()),
        ..interface
    };
    let message = Message::Interfaces(Interfaces {
        interfaces: vec![largest; crate::pairing::MOST_INTERFACES],
    });
    let len = minicbor::to_vec(message).unwrap().len();
    assert!(len <= crate::wire::frame::MAX_CONTROL, "{len}");
}

#[test]
fn the_longest_commands_fit_into_one_message() {
    let command = |words: usize, len: usize| Exec {
        first: TransferId(u32::MAX - 3),
        words: vec![Word(vec![b'a'; len]); words],
    };
    for (words, len) in [(1, MOST_WORD_BYTES - 3), (MOST_WORDS, 12), (200, 324)] {
        let longest = command(words, len);
        assert!(longest.is_valid(), "{words}");
        assert!(!command(words, len + 1).is_valid(), "{words}");
        let message = minicbor::to_vec(Message::Exec(longest)).unwrap();
        assert!(
            message.len() <= crate::wire::frame::MAX_CONTROL,
            "{words}: {}",
            message.len()
        );
    }
    assert!(!command(MOST_WORDS + 1, 1).is_valid());
}
