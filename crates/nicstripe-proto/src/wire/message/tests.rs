use std::{collections::BTreeSet, net::IpAddr};

use minicbor::Decode;
use nicstripe_testkit::corpus;

use super::*;
use crate::{
    file::{
        etag::ETag,
        extent::{ChunkId, ChunkRange, Extent},
        hash_tree::{ChainingValue, Digest, Subtree},
        journal::Timestamp,
        name::Name,
    },
    fuzz::samples::{brief, bytes_of, pinned},
    id::TransferId,
    tree::{EntryFailure, EntryId, TreeMessage, TreeRules},
    wire::frame::MAX_CONTROL,
};

/// Asserts that these bytes are the value that [`brief`] shows so, and no other bytes are.
#[track_caller]
fn is_pinned<T: for<'b> Decode<'b, ()> + Encode<()> + std::fmt::Debug>(hex: &str, shown: &str) {
    let bytes = bytes_of(hex);
    let value: T = minicbor::decode(&bytes).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(brief(&value), shown);
    assert_eq!(minicbor::to_vec(&value).unwrap(), bytes, "{shown}");
}

#[test]
fn messages_are_pinned_byte_for_byte() {
    for (hex, shown) in pinned() {
        is_pinned::<Message>(hex, shown);
    }
}

/// Returns the name of a message's variant, and of the variant within it.
fn kind(message: &Message) -> (String, String) {
    let variant = |shown: String| {
        let name = shown.split(|c: char| !c.is_alphanumeric()).next();
        name.unwrap().to_owned()
    };
    let within = match message {
        Message::Ask(ask) => variant(format!("{:?}", ask.ask)),
        Message::Answer(answer) => variant(format!("{:?}", answer.answer)),
        Message::Bench(body) => variant(format!("{body:?}")),
        Message::Tree(body) => variant(format!("{:?}", body.message)),
        _ => String::new(),
    };
    (variant(format!("{message:?}")), within)
}

#[test]
fn every_kind_of_message_has_a_sample_and_a_file_in_the_corpus() {
    let samples: Vec<Vec<u8>> = pinned().map(|(hex, _)| bytes_of(hex)).collect();
    let files = corpus("messages").into_iter().map(|(_, bytes)| bytes);
    let kinds = |all: Vec<Vec<u8>>| -> BTreeSet<(String, String)> {
        let decoded = all.iter().filter_map(|bytes| minicbor::decode(bytes).ok());
        decoded.map(|message| kind(&message)).collect()
    };
    let (samples, files) = (kinds(samples), kinds(files.collect()));
    assert_eq!(
        samples.difference(&files).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "write the bytes of their samples to files in fuzz/corpus/messages"
    );
    // The decoder knows as many variants as have samples.
    let known = |begin: &str| {
        let is_known = |variant: &u8| {
            let number = minicbor::to_vec(variant).unwrap();
            let bytes = [&bytes_of(begin)[..], &number, &[0x80]].concat();
            !minicbor::decode::<Message>(&bytes).is_err_and(|error| error.is_unknown_variant())
        };
        (0..=u8::MAX).filter(is_known).count()
    };
    let outer: BTreeSet<&String> = samples.iter().map(|(outer, _)| outer).collect();
    assert_eq!(outer.len(), known("82"));
    for (outer, begin) in [
        ("Ask", "8211 81a2 0005 0182"),
        ("Answer", "8212 81a2 0005 0182"),
        ("Bench", "8210 8182"),
        ("Tree", "820b 81a2 0003 0182"),
    ] {
        let within = samples.iter().filter(|(its, _)| its == outer);
        assert_eq!(within.count(), known(begin), "{outer}");
    }
}

#[test]
fn greetings_and_parts_of_messages_are_pinned_byte_for_byte() {
    is_pinned::<PeerInterface>(
        "ad00646574683101020281a2008200440a000001011818031905dc0401050206f507460202020202020881616109040aa30000010102020b010c6465746830",
        r#"PeerInterface { name: "eth1", index: 2, addresses: [PeerAddress { ip: 10.0.0.1, prefix_len: 24 }], mtu: 1500, line_rate_bps: Some(1), egress_limit_bps: Some(2), candidate: true, mac: Some([2, 2, 2]), members: Some(["a"]), streams: Some(4), settings: Some(Ipv4Settings { arp_announce: 1, rp_filter: 2 }), idle: Some(NoCarrier), card: Some("eth0") }"#,
    );
    for (hex, shown) in [
        ("00", "Down"),
        ("01", "NoCarrier"),
        ("02", "NoAddress"),
        ("18ff", "Other"),
    ] {
        is_pinned::<Idle>(hex, shown);
    }
    assert_eq!(minicbor::decode::<Idle>(&[3]).unwrap(), Idle::Other);
    is_pinned::<Hello>(
        "a400010150 04*16 02f50300",
        "Hello { version: 1, session: SessionId([4, 4, 4]), new: true }",
    );
    is_pinned::<Welcome>(
        "a500010342000004442f7372760581020663302e31",
        r#"Welcome { version: 1, padding: Some([0, 0]), root: Some([47, 115, 114, 118]), features: Some(Features(4)), program: Some("0.1") }"#,
    );
    is_pinned::<Refusal>("a200010101", "Refusal { code: UnknownSession, version: 1 }");
    is_pinned::<PutOptions>("a500f401f402f403f407f5", "PutOptions { parents: true }");
    is_pinned::<PutOptions>(
        "a500f501f402f403f408f5",
        "PutOptions { replace: true, force: true }",
    );
    is_pinned::<PutOptions>(
        "a500f401f402f403f40950 ee*16",
        "PutOptions { only_if: Some(ETag(eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee)) }",
    );
    is_pinned::<PutOptions>(
        "a600f401f402f403f404f505f5",
        "PutOptions { delta: true, in_place: true }",
    );
    is_pinned::<PutOptions>("a500f401f402f403f406f5", "PutOptions { trial: true }");
    is_pinned::<PutOptions>(
        "a500f401f402f403f40aa3000101020303",
        "PutOptions { slice: Some(Slice { offset: 1, size: 2, mode: Some(3) }) }",
    );
}

#[test]
fn a_token_is_pinned_and_other_bytes_are_none() {
    assert_eq!(
        Token(0x0102).encode()[..],
        bytes_of("6e69637374726970 0000000000000102")
    );
    assert_eq!(Token::decode(&Token(7).encode()), Some(Token(7)));
    let longer = [&Token(7).encode()[..], b"x"].concat();
    for other in [&b""[..], b"nicstrip", &[0; 16], &longer] {
        assert_eq!(Token::decode(other), None, "{other:?}");
    }
}

#[test]
fn a_map_with_a_key_from_the_future_is_read() {
    // {0: 2 (code), 1: 1 (version), 9: "new"}
    let bytes = [0xa3, 0x00, 0x02, 0x01, 0x01, 0x09, 0x63, b'n', b'e', b'w'];
    let refusal: Refusal = minicbor::decode(&bytes).unwrap();
    assert_eq!(refusal.code, RefusalCode::TooManySessions);
}

#[test]
fn the_longest_messages_fit_in_a_control_message() {
    let (transfer, most) = (TransferId(u32::MAX), Some(u64::MAX));
    let value = ChainingValue([0xff; 32]);
    let have = Subtree {
        first: ChunkId(u64::MAX),
        level: 63,
        value,
    };
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
    let sample = BenchBody::Sample(BenchSample {
        run: u32::MAX,
        at_us: u64::MAX,
        paths: vec![path; 64],
        cpu: Some(cpu),
        last: true,
        transfers: Some(u32::MAX),
    });
    assert!(sample.is_bounded());
    let extent = Extent {
        offset: u64::MAX,
        len: u64::MAX,
    };
    let range = ChunkRange::new(ChunkId(u64::MAX), u64::MAX);
    let deepest = Name::new(vec![vec![b'a'; 1]; crate::file::name::MAX_COMPONENTS]).unwrap();
    let rename = AskKind::Rename {
        from: deepest.clone(),
        to: deepest,
        replace: true,
        only_if: Some(ETag::from_bytes([0xff; 16])),
    };
    let address = PeerAddress {
        ip: IpAddr::from([0xff; 16]),
        prefix_len: 128,
    };
    let name = "fifteen_letters";
    let interface = PeerInterface {
        addresses: vec![address; crate::pairing::MOST_ADDRESSES],
        mtu: u32::MAX,
        line_rate_bps: most,
        egress_limit_bps: most,
        mac: Some([0xff; 6]),
        members: Some(vec![name.into(); 8]),
        streams: Some(u8::MAX),
        settings: Some(Ipv4Settings {
            arp_ignore: 255,
            arp_announce: 255,
            rp_filter: 255,
        }),
        idle: Some(Idle::NoCarrier),
        card: Some(name.into()),
        ..PeerInterface::new(name, u32::MAX)
    };
    let source = TreeSource {
        name: Some(Name::new([vec![b'x'; 255]]).unwrap()),
        content: true,
    };
    let failure = EntryFailure {
        id: Some(EntryId(u64::MAX)),
        code: FailCode::Io,
        text: "ä".repeat(512),
    };
    const { assert!(MOST_SOURCES >= 200) };
    for (what, most, message) in [
        (
            "accept",
            MAX_CONTROL,
            Message::Accept(Accept {
                transfer,
                have: vec![have; MAX_HAVE],
                window: None,
                delta: Some(1),
                memory: None,
            }),
        ),
        ("sample", MAX_CONTROL, Message::Bench(sample)),
        (
            "holes",
            60 * 1024,
            Message::Holes(Holes {
                transfer,
                extents: vec![extent; crate::file::hole::HOLES_PER_MESSAGE],
                last: true,
            }),
        ),
        (
            "values",
            60 * 1024,
            Message::Values(Values {
                transfer,
                ranges: vec![range; MAX_VALUES],
                values: vec![0xff; 32 * MAX_VALUES],
            }),
        ),
        (
            "keep",
            60 * 1024,
            Message::Keep(Keep {
                transfer,
                ranges: vec![range; MAX_KEEP],
            }),
        ),
        (
            "rename",
            MAX_CONTROL,
            Message::Ask(Ask { id: 1, ask: rename }),
        ),
        (
            "interfaces",
            MAX_CONTROL,
            Message::Interfaces(Interfaces {
                interfaces: vec![interface; crate::pairing::MOST_INTERFACES],
            }),
        ),
        (
            "sources",
            MAX_CONTROL,
            Message::GetTree(GetTree {
                transfer,
                sources: vec![source; 200],
                walk: WalkRules::default(),
                rules: TreeRules::default(),
                limit_bps: None,
            }),
        ),
        (
            "results",
            MAX_CONTROL,
            Message::Tree(TreeBody {
                transfer,
                message: TreeMessage::Results {
                    done: Vec::new(),
                    failed: vec![failure; 57],
                    deleted: Vec::new(),
                    stripped: None,
                },
            }),
        ),
    ] {
        let len = minicbor::to_vec(message).unwrap().len();
        assert!(len <= most, "{what}: {len} bytes");
    }
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
        assert!(message.len() <= MAX_CONTROL, "{words}: {}", message.len());
    }
    assert!(!command(MOST_WORDS + 1, 1).is_valid());
}
