//! Chunks of transfers in a session's event loop, and the results of their I/O jobs.

use std::{sync::Arc, time::Instant};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Grid, Incoming, PathError, PathId, PathLoss, TransferId,
};

use super::Driver;
use crate::{
    file::{self, Arrived, ChunkBuffer, FileError, WriteError},
    session::{
        inbox::{IoResult, Step},
        jobs::{TargetLease, verified},
        kind::retransmit::Produced,
        transfer::Running,
    },
};

impl Driver {
    /// Starts to hash and compare the chunks that the protocol asks for, each kind up to its limit.
    pub(super) fn hash_ahead(&mut self) {
        while self.hashing < HASHING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_hash() else {
                break;
            };
            if let Some(file) = self.file(transfer) {
                self.jobs.hash(transfer, chunk, file.clone());
                self.hashing += 1;
            }
        }
        while self.zeroing < ZEROING_AT_ONCE {
            let Some((transfer, grid, zeros)) = self.session.poll_zeros() else {
                break;
            };
            self.zeroing += 1;
            self.jobs.hash_zeros(transfer, grid, zeros);
        }
        while self.comparing < COMPARING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_compare() else {
                break;
            };
            if let Some(target) = self.target(transfer) {
                self.jobs.compare(transfer, chunk, target);
                self.comparing += 1;
            }
        }
    }

    pub(super) fn file(&self, transfer: TransferId) -> Option<&Arc<file::Source>> {
        self.running.get(transfer)?.kind.file()
    }

    /// Returns the target of a transfer, for an I/O job.
    pub(super) fn target(&self, transfer: TransferId) -> Option<TargetLease> {
        self.running.get(transfer)?.target()
    }

    /// Handles the result of an I/O job. An error ends its transfer.
    pub(super) fn on_io(&mut self, done: IoResult, now: Instant) {
        match done {
            IoResult::Read {
                path,
                transfer,
                chunk,
                result,
            } => self.if_ok(transfer, result, |driver, (value, buffer)| {
                driver.on_read(path, transfer, chunk, value, buffer, now);
            }),
            IoResult::Hashed {
                transfer,
                chunk,
                result,
            } => {
                self.hashing -= 1;
                self.if_ok(transfer, result, |driver, value| {
                    driver.session.handle_chunk_hashed(transfer, chunk, value);
                });
            }
            IoResult::ZerosHashed { transfer, result } => {
                self.zeroing -= 1;
                self.if_ok(transfer, result, |driver, subtree| {
                    driver.session.handle_zeros_hashed(transfer, subtree, now);
                });
            }
            IoResult::Compared {
                transfer,
                chunk,
                result,
            } => {
                self.comparing -= 1;
                self.if_ok(transfer, result, |driver, value| {
                    driver.session.handle_compared(transfer, chunk, value);
                });
            }
            IoResult::Written {
                path,
                header,
                result,
            } => _ = self.on_written(path, &header, result, now),
            IoResult::Verified { arrived, result } => {
                if self.on_written(arrived.path, &arrived.header, result, now) {
                    self.take(arrived);
                }
            }
            IoResult::Step {
                transfer,
                step,
                result,
            } => self.on_step(transfer, step, result, now),
            IoResult::Flushed { transfer, error } => self.end_transfer(transfer, Err(*error)),
        }
    }

    fn on_step(
        &mut self,
        transfer: TransferId,
        step: Step,
        result: Result<(), FileError>,
        now: Instant,
    ) {
        if let Step::Synced = step {
            self.record_mut(transfer, |record, account| record.synced(&account.meters));
        }
        self.if_ok(transfer, result, |driver, ()| match step {
            Step::HolesMade => driver.session.handle_holes_made(transfer),
            Step::Synced => driver.session.handle_synced(transfer, now),
            Step::Checked => driver.complete(transfer),
            Step::Drained => driver.on_drained(transfer),
            Step::Committed(digest) => driver.on_in_place(transfer, digest, None),
        });
    }

    /// Passes a verified chunk of a stream to its kind, followed by later chunks that are now in
    /// order.
    fn take(&mut self, Arrived { header, buffer, .. }: Arrived) {
        let transfer = header.transfer;
        if let Some(running) = self.running.get_mut(transfer) {
            running.reordered.insert(header.chunk, buffer);
        }
        while let Some(chunk) = self
            .running
            .get_mut(transfer)
            .and_then(|running| running.reordered.next())
        {
            self.act(transfer, |kind, at| kind.take(chunk, at));
        }
    }

    /// Continues a transfer with the result of a job, or fails it.
    fn if_ok<T>(
        &mut self,
        transfer: TransferId,
        result: Result<T, FileError>,
        then: impl FnOnce(&mut Self, T),
    ) {
        match result {
            Ok(value) => then(self, value),
            Err(error) => self.fail(transfer, error),
        }
    }

    fn on_read(
        &mut self,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
        buffer: ChunkBuffer,
        now: Instant,
    ) {
        let Some(header) = self
            .session
            .handle_chunk_read(path, transfer, chunk, value, now)
        else {
            return;
        };
        let len = buffer.bytes().len() as u32;
        let header = if len < header.len {
            let saved = u64::from(header.len - len);
            self.session.handle_chunk_packed(path, saved);
            header.packed(len)
        } else {
            header
        };
        self.running.on_wire(path, &header);
        let sent = self
            .connections
            .get_mut(&path)
            .is_some_and(|connection| connection.send_chunk(header, Arc::new(buffer)));
        if !sent {
            self.lose(path, PathLoss::Reset, now);
        }
    }

    pub(super) fn on_produced(&mut self, transfer: TransferId, produced: Produced) {
        let buffer = self.running.get_mut(transfer);
        let buffer = buffer.and_then(Running::buffer_mut);
        match produced {
            Produced::Chunk(chunk) => {
                let len = chunk.buffer.bytes().len() as u32;
                let number = self.session.give(transfer, len, chunk.value, chunk.last);
                if let (Some(buffer), Some(number)) = (buffer, number) {
                    buffer.chunks.insert(number, chunk);
                }
            }
            Produced::End => {
                if let Some(buffer) = buffer {
                    buffer.has_ended = true;
                }
                self.session.close_source(transfer);
            }
            Produced::Failed(error) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_incoming(
        &mut self,
        arrived: Arrived,
        incoming: Result<Incoming, PathError>,
        now: Instant,
    ) {
        match incoming {
            Ok(Incoming::Write { grid, .. }) => self.write(grid, arrived, now),
            Ok(Incoming::Later) => {
                if let Some(running) = self.running.get_mut(arrived.header.transfer) {
                    running.later.push(arrived);
                }
            }
            Ok(Incoming::Drop) => {}
            Err(error) => self.on_misbehaved(arrived.path, &error, now),
        }
    }

    /// Verifies a received chunk, and writes it to its target.
    fn write(&mut self, grid: Grid, arrived: Arrived, now: Instant) {
        let header = arrived.header;
        let Some(running) = self.running.get(header.transfer) else {
            return;
        };
        match running.target() {
            Some(target) => self.jobs.write(target, arrived),
            None if !running.is_received_stream() => {}
            None if header.chunk_len() <= VERIFIED_AT_ONCE => {
                self.on_io(verified(grid, arrived), now);
            }
            None => self.jobs.run(move || verified(grid, arrived)),
        }
    }

    /// Handles the received copies of a chunk that waited for the result of a write.
    pub(super) fn retry_later(&mut self, transfer: TransferId, chunk: ChunkId, now: Instant) {
        let Some(running) = self.running.get_mut(transfer) else {
            return;
        };
        let is_copy = |arrived: &mut Arrived| arrived.header.chunk == chunk;
        for arrived in running.later.extract_if(.., is_copy).collect::<Vec<_>>() {
            let Arrived { path, header, .. } = &arrived;
            let incoming = self.session.handle_chunk_again(*path, header, now);
            self.on_incoming(arrived, incoming, now);
        }
    }

    /// Handles the result of verifying and writing a received chunk. Returns true if the chunk was
    /// valid and not received before.
    pub(super) fn on_written(
        &mut self,
        path: PathId,
        header: &DataHeader,
        result: Result<(), WriteError>,
        now: Instant,
    ) -> bool {
        match result {
            Ok(()) => {
                let is_news = self.session.handle_chunk_written(path, header, now);
                self.retry_later(header.transfer, header.chunk, now);
                if is_news {
                    self.breaches = 0;
                }
                return is_news;
            }
            Err(WriteError::Damaged) => {
                tracing::warn!(
                    path = path.0,
                    chunk = header.chunk.0,
                    "chunk damaged in transit"
                );
                self.account_mut(|account| account.meters.totals().corrupt_chunks += 1);
                self.session
                    .handle_chunk_unwritten(path, header.transfer, header.chunk);
                self.retry_later(header.transfer, header.chunk, now);
                self.on_breach(
                    path,
                    PathLoss::Damaged,
                    "chunk does not match its hash".into(),
                    now,
                );
            }
            Err(WriteError::File(error)) => {
                self.session
                    .handle_chunk_unwritten(path, header.transfer, header.chunk);
                self.fail(header.transfer, error);
            }
        }
        false
    }
}

/// Number of concurrent reads to hash data that the receiver already has. Enough for one disk,
/// without delaying the reads of data to send.
const HASHING_AT_ONCE: u32 = 2;

/// Maximum number of zero extents hashed concurrently. Each takes about one millisecond; four keep
/// two threads busy.
const ZEROING_AT_ONCE: u32 = 4;

/// Number of concurrent chunk reads from an existing file for a delta transfer: enough to keep one
/// disk's queue filled.
const COMPARING_AT_ONCE: u32 = 4;

/// Maximum length of a chunk that the session's task verifies itself, in bytes. Takes about 10 µs,
/// as long as passing it to a thread.
const VERIFIED_AT_ONCE: u32 = 64 << 10;
