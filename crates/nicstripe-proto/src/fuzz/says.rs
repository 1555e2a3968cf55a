//! Random messages of a hostile peer: the samples of every type with changes, and messages of a
//! transfer with plausible numbers.

use minicbor::{Decoder, Encoder, data::Type};

use super::{samples::samples, tape::Tape};
use crate::{
    TransferId,
    frame::{DataHeader, MAX_PAYLOAD},
    hash_tree::{ChainingValue, Digest, Subtree},
    journal::SourceIdentity,
    message::{
        Accept, AnswerKind, Ask, BenchBody, Complete, End, EntryRef, Holes, Keep, Message, Offer,
        OfferKind, Put, PutOptions, StreamReport, Values,
    },
    name::Name,
    tree::EntryId,
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
        let (kind, transfer) = (self.below(12), self.transfer());
        match kind {
            0 => Message::Put(self.put(transfer)),
            1 => Message::Offer(self.offer(transfer)),
            2 => Message::Accept(Accept {
                transfer,
                have: self.haves(),
                window: self.option(),
                delta: self.option(),
                memory: None,
            }),
            3 => Message::Complete(self.complete(transfer)),
            4 => Message::Holes(Holes {
                transfer,
                extents: self.extents(),
                last: self.is(),
            }),
            5 => {
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
            6 => Message::Keep(Keep {
                transfer,
                ranges: self.ranges(),
            }),
            _ => self.like(|_| true),
        }
    }

    pub(super) fn ask(&mut self) -> Ask {
        match self.like(|message| matches!(message, Message::Ask(_))) {
            Message::Ask(ask) => ask,
            _ => unreachable!(),
        }
    }

    pub(super) fn answer(&mut self) -> AnswerKind {
        match self.like(|message| matches!(message, Message::Answer(_))) {
            Message::Answer(answer) => answer.answer,
            _ => unreachable!(),
        }
    }

    pub(super) fn bench(&mut self) -> BenchBody {
        match self.like(|message| matches!(message, Message::Bench(_))) {
            Message::Bench(body) => body,
            _ => unreachable!(),
        }
    }

    /// Returns one of the samples, perhaps with other numbers, flags and lengths of lists.
    fn like(&mut self, is_wanted: fn(&Message) -> bool) -> Message {
        let all: Vec<_> = samples().iter().filter(|(_, one)| is_wanted(one)).collect();
        let (bytes, sample) = all[self.below(all.len() as u64) as usize];
        let (mut from, mut to) = (Decoder::new(bytes), Encoder::new(Vec::new()));
        // The number of the variant stays.
        let variant = from.array().and_then(|_| from.u32()).expect("a message");
        to.array(2)
            .and_then(|to| to.u32(variant))
            .expect("a vector");
        self.vary(&mut from, &mut to).expect("a message");
        // A value that does not decode was changed at a place that permits no other.
        minicbor::decode(to.writer()).unwrap_or_else(|_| sample.clone())
    }

    /// Copies a value of CBOR, with changes.
    fn vary(&mut self, from: &mut Decoder<'_>, to: &mut Encoder<Vec<u8>>) -> Option<()> {
        match from.datatype().ok()? {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => {
                let number = from.u64().ok()?;
                let number = match self.byte() {
                    0..=150 => number,
                    151..=200 => self.below(8),
                    _ => self.number(),
                };
                to.u64(number).ok()?;
            }
            Type::Bool => _ = to.bool(from.bool().ok()? ^ (self.byte() > 200)).ok()?,
            Type::Array => {
                let count = from.array().ok()??;
                let times = if self.byte() > 230 {
                    self.below(200)
                } else {
                    1
                };
                to.array(count * times).ok()?;
                for _ in 0..count {
                    let mut one = Encoder::new(Vec::new());
                    self.vary(from, &mut one)?;
                    let one = one.into_writer();
                    (0..times).for_each(|_| to.writer_mut().extend_from_slice(&one));
                }
            }
            Type::Map => {
                let count = from.map().ok()??;
                to.map(count).ok()?;
                for _ in 0..count {
                    copy(from, to)?;
                    self.vary(from, to)?;
                }
            }
            _ => copy(from, to)?,
        }
        Some(())
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
}

/// Copies a value of CBOR as it is.
fn copy(from: &mut Decoder<'_>, to: &mut Encoder<Vec<u8>>) -> Option<()> {
    let begin = from.position();
    from.skip().ok()?;
    let same = &from.input()[begin..from.position()];
    to.writer_mut().extend_from_slice(same);
    Some(())
}

pub(super) fn name() -> Name {
    Name::new(["a"]).expect("a name")
}
