//! Samples of every control message: bytes, and what they mean.

use std::sync::OnceLock;

use crate::Message;

/// Returns the samples in encoded and decoded form.
pub(super) fn samples() -> &'static [(Vec<u8>, Message)] {
    static ALL: OnceLock<Vec<(Vec<u8>, Message)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let bytes = pinned().map(|(hex, _)| bytes_of(hex));
        let decoded = |bytes: Vec<u8>| {
            let message = minicbor::decode(&bytes).expect("a message");
            (bytes, message)
        };
        bytes.map(decoded).collect()
    })
}

/// Iterates over the samples: bytes in hexadecimal digits, and the message as [`brief`] shows it.
pub(crate) fn pinned() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines: Vec<&str> = SAMPLES.lines().skip(1).collect();
    let pairs: Vec<_> = lines.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter()
}

/// Returns the bytes of hexadecimal digits. A byte with `*32` behind it is repeated 32 times.
pub(crate) fn bytes_of(hex: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in hex.split_whitespace() {
        let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
        let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
        let some: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits"))
            .collect();
        bytes.extend(some.repeat(times.parse().expect("a number")));
    }
    bytes
}

/// Returns what `Debug` shows of a value, without fields that are `None`, false, 0 or empty, and without
/// repetitions of a list's items.
#[cfg(test)]
pub(crate) fn brief(value: &impl std::fmt::Debug) -> String {
    let without_nothing = |field: &str| {
        for nothing in [": None", ": false", ": []", ": 0"] {
            let Some(at) = field.find(nothing) else {
                continue;
            };
            let rest = &field[at + nothing.len()..];
            if rest.is_empty() || rest.starts_with([' ', ')', '}', ']']) {
                let begin = field[..at].rfind([' ', '(']).map_or(0, |at| at + 1);
                return format!("{}{}", &field[..begin], rest.trim_start());
            }
        }
        field.to_owned()
    };
    let shown = format!("{value:?}");
    let mut fields: Vec<String> = shown.split(", ").map(without_nothing).collect();
    fields.retain(|field| !field.is_empty());
    fields.dedup();
    let shown = fields.join(", ");
    shown.replace("{ , ", "{ ").replace(", }", " }")
}

/// Each sample has two lines: its bytes, and what they mean.
const SAMPLES: &str = r#"
820081a40081416101a4000101a500000182000002820000030004000212030002a400f401f402f403f404820219012c
Put(Put { name: "a", offer: Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18 }, options: PutOptions { }, entry: Some(EntryRef { tree: TransferId(2), id: EntryId(300) }) })
820081a50081416101a4000101a500000182000002820000030004000212030002a400f401f402f403f404820219012c05a161616162
Put(Put { name: "a", offer: Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18 }, options: PutOptions { }, entry: Some(EntryRef { tree: TransferId(2), id: EntryId(300) }), attributes: Some(ObjectAttributes({"a": "b"})) })
820181a2000101814161
Get(Get { transfer: TransferId(1), name: "a" })
820181a300010181416106820119012c
Get(Get { transfer: TransferId(1), name: "a", range: Some(GetRange { offset: 1, len: 300 }) })
820181a300010181416103820219012c
Get(Get { transfer: TransferId(1), name: "a", entry: Some(EntryRef { tree: TransferId(2), id: EntryId(300) }) })
820181a400010181416104f505f5
Get(Get { transfer: TransferId(1), name: "a", compress: true, allow_changing: true })
820281a4000101a5000001820000028200000300040002120300
Offer(Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18 })
820281a5000101a50000018200000282000003000400021203000400
Offer(Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18, kind: Some(File) })
820281a5000101a50000018200000282000003000400021203000401
Offer(Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18, kind: Some(Pipe) })
820281a5000101a50000018200000282000003000400021203000402
Offer(Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18, kind: Some(Batches) })
820381a300010180021840
Accept(Accept { transfer: TransferId(1), window: Some(64) })
820381a400010180021840041a00100000
Accept(Accept { transfer: TransferId(1), window: Some(64), memory: Some(1048576) })
820481a30001015820 03*32 0280
Complete(Complete { transfer: TransferId(1), digest: Digest(0303030303030303030303030303030303030303030303030303030303030303) })
820481a40001015820 03*32 028003a20003011a000927c0
Complete(Complete { transfer: TransferId(1), digest: Digest(0303030303030303030303030303030303030303030303030303030303030303), end: Some(End { chunks: 3, size: 600000 }) })
820581a20002015820 03*32
Committed(Committed { transfer: TransferId(2), digest: Digest(0303030303030303030303030303030303030303030303030303030303030303) })
820681a40001010202626e6f03f5
Fail(Fail { transfer: TransferId(1), code: Exists, text: "no", resumable: true })
820781a10080
Interfaces(Interfaces { })
820881a10081a2008200440a09000c0103
Expect(Expect { connections: [Expected { from: 10.9.0.12, interface: 3 }] })
820881a10081a4008200440a09000c010302070309
Expect(Expect { connections: [Expected { from: 10.9.0.12, interface: 3, port: Some(7), token: Some(9) }] })
820981a4000301824161416202f503a900f401f502f403f404f405f406f407f40880
PutTree(PutTree { transfer: TransferId(3), target: Some("a/b"), as_name: true, rules: TreeRules { update: true } })
820981a3000302f403a900f401f502f403f404f405f406f407f40880
PutTree(PutTree { transfer: TransferId(3), rules: TreeRules { update: true } })
820981a4000302f403a900f401f502f403f404f405f406f407f4088004f5
PutTree(PutTree { transfer: TransferId(3), rules: TreeRules { update: true }, heeds_memory: true })
820a81a500030182a200824161416201f4a101f502a500f501f402f40381824161416204f403a900f401f502f403f404f405f406f407f40880041903e8
GetTree(GetTree { transfer: TransferId(3), sources: [TreeSource { name: Some("a/b") }, TreeSource { content: true }], walk: WalkRules { recursive: true, only: Some(["a/b"]) }, rules: TreeRules { update: true }, limit_bps: Some(1000) })
820b81a200030182008209820005
Tree(TreeBody { transfer: TransferId(3), message: Verdicts { first: EntryId(9), verdicts: [Create, Refused] } })
820b81a20003018201838182010380818241614162
Tree(TreeBody { transfer: TransferId(3), message: Results { done: [(EntryId(1), 3)], deleted: ["a/b"] } })
820c81a200030119012c
Window(Window { transfer: TransferId(3), chunks: 300 })
820d81a3000101828200191000821a000400000502f5
Holes(Holes { transfer: TransferId(1), extents: [Extent { len: 4096 }, Extent { offset: 262144, len: 5 }], last: true })
820e81a300010181820201025820 07*32
Values(Values { transfer: TransferId(1), ranges: [ChunkRange { first: ChunkId(2), count: 1 }], values: [7, 7, 7] })
820f81a200010181820203
Keep(Keep { transfer: TransferId(1), ranges: [ChunkRange { first: ChunkId(2), count: 3 }] })
821081820081a20050 07*16 01183c
Bench(Ask(BenchAsk { id: [7, 7, 7], seconds: 60 }))
821081820281a30001011913880200
Bench(Queued(BenchQueued { ahead: 1, wait_ms: 5000 }))
821081820581a7000101f502f40382000104193a98051901f4061a00040000
Bench(Run(RunOrder { run: 1, to_daemon: true, paths: [0, 1], longest_ms: 15000, interval_ms: 500, message_bytes: 262144 }))
821081820781a40001011903e80281a30005010604a4010706080709080a04f5
Bench(Sample(BenchSample { run: 1, at_us: 1000, paths: [PathSample { received: 5, sent: 6, tcp: Some(TcpSample { retransmitted: Some(7), rtt_us: Some(8), send_buffer: Some(9), receive_buffer: Some(10) }) }], last: true }))
821081820781a40001011903e802800502
Bench(Sample(BenchSample { run: 1, at_us: 1000, transfers: Some(2) }))
821081820881a10001
Bench(Stop(RunNumber { run: 1 }))
821081820a81a4000201814161020303f5
Bench(Disk(DiskOrder { bytes: 2, name: Some("a"), number: 3, read: true }))
821081820c80
Bench(Leave)
821081820181a100183c
Bench(Admitted(BenchAdmitted { seconds: 60 }))
821081820381a200020101
Bench(Refused(BenchRefused { why: Busy, retry_after_ms: Some(1) }))
821081820481a10063302e31
Bench(Facts(BenchFacts { version: "0.1" }))
821081820681a3000101050206
Bench(Ready(RunReady { run: 1, send_buffer: Some(5), receive_buffer: Some(6) }))
821081820981a10001
Bench(Stopped(RunNumber { run: 1 }))
821081820b81a40001010202030363657874
Bench(DiskDone(DiskDone { number: 1, bytes: 2, micros: 3, file_system: Some("ext") }))
821181a20005018200a10209
Ask(Ask { id: 5, ask: List { most: 9 } })
821181a20005018200a3008141610141620209
Ask(Ask { id: 5, ask: List { dir: Some("a"), after: Some([98]), most: 9 } })
821181a20005018201a1008241614162
Ask(Ask { id: 5, ask: Stat { name: "a/b" } })
821181a20005018202a100814161
Ask(Ask { id: 5, ask: Remove { name: "a" } })
821181a20005018203a3008141610181416202f5
Ask(Ask { id: 5, ask: Rename { from: "a", to: "b", replace: true } })
821181a20005018204a100814161
Ask(Ask { id: 5, ask: MakeDir { name: "a" } })
821181a20005018205a10019012c
Ask(Ask { id: 5, ask: Facts { offset: 300 } })
821181a20005018202a2008141610150 ee*16
Ask(Ask { id: 5, ask: Remove { name: "a", only_if: Some(ETag(eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee)) } })
821181a20005018206a4008141610181416202f50419012c
Ask(Ask { id: 5, ask: Copy { from: "a", to: "b", replace: true, offset: 300 } })
821181a20005018207a3008141610142622f0209
Ask(Ask { id: 5, ask: Walk { dir: Some("a"), after: Some([98, 47]), most: 9 } })
821181a20005018208a10082814161814162
Ask(Ask { id: 5, ask: RemoveMany { names: ["a", "b"] } })
821181a2000501820aa401000281416203f406a161616162
Ask(Ask { id: 5, ask: Concat { to: "b", attributes: Some(ObjectAttributes({"a": "b"})) } })
821181a2000501820aa50081416101010281416203f50519012c
Ask(Ask { id: 5, ask: Concat { part: Some("a"), from: 1, to: "b", replace: true, offset: Some(300) } })
821181a2000501820aa301010281416203f5
Ask(Ask { id: 5, ask: Concat { from: 1, to: "b", replace: true } })
821181a20005018209a2008141610119012c
Ask(Ask { id: 5, ask: Hash { name: "a", offset: 300 } })
821181a20005018209a3008141610119012c025820 dd*32
Ask(Ask { id: 5, ask: Hash { name: "a", offset: 300, words: Some(Digest(dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd)) } })
821181a20005018200a2020903f5
Ask(Ask { id: 5, ask: List { most: 9, digests: true } })
821181a2000501820ba0
Ask(Ask { id: 5, ask: FetchKey })
821181a2000501820ca2005820 07*32 0181814161
Ask(Ask { id: 5, ask: Admit { key: [7, 7, 7], names: ["a"] } })
821281a20005018200a20081a200416101a300010119012c0282200201f5
Answer(Answer { id: 5, answer: Entries { entries: [ObjectEntry { name: [97], stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } } }], more: true } })
821281a20005018201a100a300010119012c02822002
Answer(Answer { id: 5, answer: Stat { stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } } } })
821281a20005018202a0
Answer(Answer { id: 5, answer: Done })
821281a20005018204a200427b7d01f5
Answer(Answer { id: 5, answer: Facts { part: [123, 125], more: true } })
821281a20005018203a2000101626e6f
Answer(Answer { id: 5, answer: Failed { code: NotFound, text: "no" } })
821281a20005018208a20019012c01a200a300010119012c02822002015820 ee*32
Answer(Answer { id: 5, answer: Hashed { upto: 300, file: Some(HashedFile { stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } }, digest: Digest(eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee) }) } })
821281a20005018208a30019012c01a300a300010119012c02822002015820 ee*32 02a200820708015840 cc*64 02815820 bb*32
Answer(Answer { id: 5, answer: Hashed { upto: 300, file: Some(HashedFile { stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } }, digest: Digest(eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee), signed: Some(Signed { at: Timestamp { seconds: 7, nanoseconds: 8 }, signature: [204, 204, 204] }) }), values: [ChainingValue(bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)] } })
821281a20005018205a10019012c
Answer(Answer { id: 5, answer: Copied { upto: 300 } })
821281a20005018205a20019012c01a300010119012c02822002
Answer(Answer { id: 5, answer: Copied { upto: 300, copy: Some(ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } }) } })
821281a20005018206a20081a20043612f6201a300010119012c0282200201f4
Answer(Answer { id: 5, answer: Walked { entries: [ObjectEntry { name: [97, 47, 98], stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 } } }] } })
821281a20005018207a10081a30001010102626e6f
Answer(Answer { id: 5, answer: Removed { failed: [NotRemoved { index: 1, code: NotFound, text: "no" }] } })
821281a20005018201a100a400010119012c028220020350 ee*16
Answer(Answer { id: 5, answer: Stat { stat: ObjectStat { kind: Dir, size: 300, mtime: Timestamp { seconds: -1, nanoseconds: 2 }, etag: Some(ETag(eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee)) } } })
821281a20005018209a1005820 07*32
Answer(Answer { id: 5, answer: Key { key: [7, 7, 7] } })
821381a200010102
OpenTunnels(OpenTunnels { up: TransferId(1), down: TransferId(2) })
821481a20001018242696440
Exec(Exec { first: TransferId(1), words: [Word([105, 100]), Word([])] })
821181a2000501820da100a9005820 07*32 01818200440a00000102191e430381416104000509065820 07*33 a30081416101a4000101a500000182000002820000030004000212030002a400f401f402f403f40800
Ask(Ask { id: 5, ask: Fetch(Fetch { key: [7, 7, 7], addresses: [10.0.0.1], port: 7747, name: "a", len: 9, digest: Digest(0707070707070707070707070707070707070707070707070707070707070707), put: Put { name: "a", offer: Offer { transfer: TransferId(1), source: SourceIdentity { mtime: Timestamp { }, ctime: Timestamp { }, chunk_log2: 18 }, options: PutOptions { } }) })"#;
