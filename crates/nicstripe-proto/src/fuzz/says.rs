//! Random messages of a hostile peer: messages of every type, usually with plausible numbers.

use std::net::Ipv4Addr;

use super::tape::Tape;
use crate::{
    TransferId,
    frame::{DataHeader, MAX_PAYLOAD},
    hash_tree::{ChainingValue, Digest, Subtree},
    journal::{SourceIdentity, Timestamp},
    message::{
        Accept, Answer, AnswerKind, Ask, AskKind, BenchAdmitted, BenchAsk, BenchBody, BenchFacts,
        BenchQueued, BenchRefusal, BenchRefused, BenchSample, Committed, Complete, DiskOrder, End,
        EntryRef, Exec, Expect, Expected, Fail, FailCode, Fetch, Get, GetTree, HashedFile, Holes,
        Interfaces, Keep, Message, NotRemoved, ObjectEntry, ObjectKind, ObjectStat, Offer,
        OfferKind, OpenTunnels, PathSample, PeerInterface, Put, PutOptions, PutTree, RunNumber,
        RunOrder, RunReady, StreamReport, TreeBody, TreeSource, Values, WalkRules, Window, Word,
    },
    name::Name,
    tree::{EntryId, TreeMessage, TreeRules, Verdict},
    {ChunkId, ChunkRange, Extent},
};

impl Tape<'_> {
    pub(super) fn transfer(&mut self) -> TransferId {
        match self.byte() {
            small @ 0..=249 => TransferId(u32::from(small % 8)),
            _ => TransferId(self.number() as u32),
        }
    }

    pub(super) fn option(&mut self) -> Option<u64> {
        self.is().then(|| self.number())
    }

    pub(super) fn value(&mut self) -> ChainingValue {
        ChainingValue([self.byte() % 4; 32])
    }

    pub(super) fn range(&mut self) -> ChunkRange {
        ChunkRange {
            first: ChunkId(self.number()),
            count: self.number(),
        }
    }

    /// Returns the header of a data frame that the decoder accepts, usually for a chunk of 4 KiB.
    pub(super) fn header(&mut self) -> DataHeader {
        let (transfer, chunk, value) = (self.transfer(), ChunkId(self.number()), self.value());
        let last = self.byte() > 200;
        let len = match self.byte() {
            0..=200 => 4096,
            _ => (1 + self.number() % MAX_PAYLOAD as u64) as u32,
        };
        let header = DataHeader {
            transfer,
            chunk,
            value,
            len,
            raw_len: 0,
            last,
        };
        if self.byte() > 200 && len > 1 {
            header.packed(1 + self.below(u64::from(len) - 1) as u32)
        } else {
            header
        }
    }

    pub(super) fn offer(&mut self, transfer: TransferId) -> Offer {
        let kinds = [
            None,
            Some(OfferKind::File),
            Some(OfferKind::Pipe),
            Some(OfferKind::Batches),
        ];
        let kind = kinds[self.below(4) as usize];
        let size = if self.is() {
            4096 * self.below(20)
        } else {
            self.number()
        };
        let chunk_log2 = if self.byte() < 240 { 12 } else { self.byte() };
        let data = self.option();
        Offer {
            transfer,
            source: SourceIdentity {
                size,
                ..SourceIdentity::default()
            },
            chunk_log2,
            mode: 0o644,
            kind,
            data,
            object: None,
        }
    }

    fn entry(&mut self) -> Option<EntryRef> {
        self.is().then(|| EntryRef {
            tree: self.transfer(),
            id: EntryId(self.number()),
        })
    }

    fn put(&mut self, transfer: TransferId) -> Put {
        Put {
            name: name(),
            offer: self.offer(transfer),
            options: PutOptions::default(),
            into: None,
            entry: self.entry(),
            attributes: None,
        }
    }

    pub(super) fn message(&mut self) -> Message {
        let (kind, transfer) = (self.below(18), self.transfer());
        match kind {
            0 => Message::Put(self.put(transfer)),
            1 => Message::Get(Get {
                transfer,
                name: name(),
                limit_bps: self.option(),
                entry: self.entry(),
                compress: self.is(),
                allow_changing: self.is(),
                range: None,
            }),
            2 => Message::Offer(self.offer(transfer)),
            3 => Message::Accept(Accept {
                transfer,
                have: self.haves(),
                window: self.option(),
                delta: self.option(),
                memory: None,
            }),
            4 => Message::Complete(self.complete(transfer)),
            5 => Message::Committed(Committed {
                transfer,
                digest: Digest(self.value().0),
                etag: None,
            }),
            6 => Message::Fail(Fail {
                transfer,
                code: FailCode::Cancelled,
                text: String::new(),
                resumable: self.is(),
            }),
            7 => Message::Interfaces(Interfaces {
                interfaces: vec![PeerInterface::new("eth0", 1); self.below(3) as usize],
            }),
            8 => {
                let expected = Expected {
                    from: [10, 0, 0, 1].into(),
                    interface: 1,
                    port: None,
                    token: None,
                };
                Message::Expect(Expect {
                    connections: vec![expected; self.number().min(200) as usize],
                })
            }
            9 => Message::PutTree(PutTree {
                transfer,
                target: None,
                as_name: self.is(),
                rules: TreeRules::default(),
                heeds_memory: false,
            }),
            10 => Message::GetTree(GetTree {
                transfer,
                sources: vec![
                    TreeSource {
                        name: None,
                        content: true
                    };
                    self.below(3) as usize
                ],
                walk: WalkRules::default(),
                rules: TreeRules::default(),
                limit_bps: self.option(),
            }),
            11 => Message::Tree(TreeBody {
                transfer,
                message: self.tree_message(),
            }),
            12 => Message::Window(Window {
                transfer,
                chunks: self.number(),
            }),
            13 => Message::Holes(Holes {
                transfer,
                extents: self.extents(),
                last: self.is(),
            }),
            14 => {
                let (ranges, mut len) = (self.ranges(), 32 * self.below(20) as usize);
                if self.byte() > 240 {
                    len += 1;
                }
                Message::Values(Values {
                    transfer,
                    ranges,
                    values: vec![self.byte() % 4; len],
                })
            }
            15 => Message::Keep(Keep {
                transfer,
                ranges: self.ranges(),
            }),
            16 if self.byte() > 200 => match self.is() {
                true => Message::Ask(self.ask()),
                false => Message::Answer(Answer {
                    id: self.below(6) as u32,
                    answer: self.answer(),
                }),
            },
            16 => Message::Bench(self.bench()),
            _ if self.byte() > 128 => Message::Exec(Exec {
                first: transfer,
                words: vec![Word(b"id".to_vec()); self.below(3) as usize],
            }),
            _ => Message::OpenTunnels(OpenTunnels {
                up: transfer,
                down: self.transfer(),
            }),
        }
    }

    pub(super) fn ask(&mut self) -> Ask {
        let id = if self.byte() > 100 {
            self.below(6) as u32
        } else {
            self.byte().into()
        };
        let ask = match self.below(14) {
            0 => AskKind::List {
                dir: None,
                after: self.is().then(|| vec![b'a' + self.byte() % 4]),
                most: self.number() as u32,
                digests: false,
            },
            1 => AskKind::Stat { name: name() },
            2 => AskKind::Remove {
                name: name(),
                only_if: None,
                kind: None,
            },
            3 => AskKind::Rename {
                from: name(),
                to: name(),
                replace: self.is(),
                only_if: None,
            },
            4 => AskKind::MakeDir { name: name() },
            5 => AskKind::Copy {
                from: name(),
                to: name(),
                replace: self.is(),
                only_if: None,
                offset: self.number(),
            },
            6 => AskKind::Walk {
                dir: None,
                after: self.is().then(|| vec![b'a' + self.byte() % 4]),
                most: self.number() as u32,
                digests: false,
            },
            7 => AskKind::RemoveMany {
                names: (0..self.below(4)).map(|_| name()).collect(),
                kind: None,
            },
            9 => AskKind::Concat {
                part: self.is().then(name),
                from: self.number(),
                to: name(),
                replace: self.is(),
                only_if: None,
                offset: self.is().then(|| self.number()),
                attributes: None,
            },
            11 => AskKind::FetchKey,
            12 => AskKind::Admit {
                key: [self.byte(); 32],
                names: (0..self.below(4)).map(|_| name()).collect(),
            },
            13 => AskKind::Fetch(Box::new(Fetch {
                key: [self.byte(); 32],
                addresses: vec![Ipv4Addr::LOCALHOST.into(); self.below(3) as usize],
                port: self.number() as u16,
                name: name(),
                at: self.number(),
                len: self.number(),
                digest: Digest([self.byte(); 32]),
                put: self.put(TransferId(0)),
                offset: self.number(),
            })),
            8 => AskKind::Hash {
                name: name(),
                offset: self.number(),
                words: self.is().then_some(Digest::NONE),
            },
            _ => AskKind::Facts {
                offset: self.number() as u32,
            },
        };
        Ask { id, ask }
    }

    pub(super) fn answer(&mut self) -> AnswerKind {
        let stat = ObjectStat {
            kind: ObjectKind::File,
            size: self.number(),
            mtime: Timestamp::default(),
            etag: None,
            digest: None,
            has_attributes: false,
        };
        match self.below(9) {
            0 => {
                let names: [&[u8]; 6] = [b"a", b"b", b"c", b"..", b"d/e", b""];
                let entry = |tape: &mut Self| ObjectEntry {
                    name: names[tape.below(6) as usize].to_vec(),
                    stat,
                };
                AnswerKind::Entries {
                    entries: (0..self.below(4)).map(|_| entry(self)).collect(),
                    more: self.is(),
                }
            }
            1 => AnswerKind::Stat {
                stat,
                attributes: None,
            },
            2 => AnswerKind::Done,
            8 => AnswerKind::Hashed {
                upto: self.number(),
                file: self.is().then_some(Box::new(HashedFile {
                    stat,
                    digest: Digest([1; 32]),
                    signed: None,
                })),
                values: vec![ChainingValue([1; 32]); self.below(3) as usize],
            },
            4 => AnswerKind::Copied {
                upto: self.number(),
                copy: self.is().then_some(stat),
            },
            5 => {
                let names: [&[u8]; 4] = [b"a", b"a/b", b"c/..", b"d"];
                let entry = |tape: &mut Self| ObjectEntry {
                    name: names[tape.below(4) as usize].to_vec(),
                    stat,
                };
                AnswerKind::Walked {
                    entries: (0..self.below(4)).map(|_| entry(self)).collect(),
                    more: self.is(),
                }
            }
            6 => AnswerKind::Removed {
                failed: (0..self.below(3))
                    .map(|_| NotRemoved {
                        index: self.below(4) as u32,
                        code: FailCode::Io,
                        text: String::new(),
                    })
                    .collect(),
            },
            3 => AnswerKind::Facts {
                part: vec![b'{'; self.below(3) as usize],
                more: self.is(),
            },
            _ => AnswerKind::Failed {
                code: FailCode::NotFound,
                text: "it is not there".into(),
            },
        }
    }

    pub(super) fn bench(&mut self) -> BenchBody {
        let run = self.below(6) as u32;
        match self.below(13) {
            0 => BenchBody::Ask(BenchAsk {
                id: [self.byte(); 16],
                seconds: 1,
            }),
            1 => BenchBody::Admitted(BenchAdmitted { seconds: 1 }),
            2 => BenchBody::Queued(BenchQueued {
                ahead: 1,
                wait_ms: self.number(),
                transfers: 0,
            }),
            3 => BenchBody::Refused(BenchRefused {
                why: BenchRefusal::Busy,
                retry_after_ms: self.option(),
            }),
            4 => BenchBody::Facts(BenchFacts::default()),
            5 | 6 => BenchBody::Run(RunOrder {
                run,
                to_daemon: self.is(),
                to_client: self.is(),
                paths: (0..self.below(4)).map(|_| self.below(70) as u16).collect(),
                longest_ms: self.number() as u32,
                interval_ms: if self.is() { 500 } else { self.number() as u32 },
                message_bytes: if self.is() {
                    4096
                } else {
                    self.number() as u32
                },
                socket_buffer: self.option(),
            }),
            7 => BenchBody::Ready(RunReady {
                run,
                ..RunReady::default()
            }),
            8 => {
                let paths = vec![PathSample::default(); self.below(70) as usize];
                BenchBody::Sample(BenchSample {
                    run,
                    paths,
                    ..BenchSample::default()
                })
            }
            9 => BenchBody::Stop(RunNumber { run }),
            10 => BenchBody::Stopped(RunNumber { run }),
            11 => BenchBody::Disk(DiskOrder {
                bytes: self.number(),
                name: None,
                number: run,
                read: run.is_multiple_of(2),
            }),
            _ => BenchBody::Leave,
        }
    }

    fn complete(&mut self, transfer: TransferId) -> Complete {
        let digest = Digest(self.value().0);
        let streams = vec![StreamReport::default(); self.below(3) as usize];
        let end = self.is().then(|| End {
            chunks: self.number(),
            size: if self.is() {
                4096 * self.below(20)
            } else {
                self.number()
            },
        });
        Complete {
            transfer,
            digest,
            streams,
            end,
            changing: self.is(),
        }
    }

    fn haves(&mut self) -> Vec<Subtree> {
        (0..self.below(4))
            .map(|_| Subtree {
                first: ChunkId(self.number()),
                level: self.byte() % 80,
                value: self.value(),
            })
            .collect()
    }

    fn extents(&mut self) -> Vec<Extent> {
        let unit = if self.is() { 4096 } else { 1 };
        (0..self.below(4))
            .map(|_| Extent {
                offset: self.number().wrapping_mul(unit),
                len: self.number().wrapping_mul(unit),
            })
            .collect()
    }

    fn ranges(&mut self) -> Vec<ChunkRange> {
        let ranges = self.extents().into_iter();
        ranges
            .map(|extent| ChunkRange::new(ChunkId(extent.offset), extent.len))
            .collect()
    }

    fn tree_message(&mut self) -> TreeMessage {
        match self.is() {
            true => TreeMessage::Verdicts {
                first: EntryId(self.number()),
                verdicts: vec![Verdict::Create; self.below(4) as usize],
            },
            false => TreeMessage::Results {
                done: vec![(EntryId(self.number()), self.number())],
                failed: Vec::new(),
                deleted: Vec::new(),
                stripped: None,
            },
        }
    }
}

pub(super) fn name() -> Name {
    Name::new(["a"]).expect("a name")
}
