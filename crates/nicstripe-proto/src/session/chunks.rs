//! Chunks of a session: selection for each path, arrival, writes, syncs, and memory limits.

use std::time::Instant;

use super::{
    error::PathError,
    event::{Event, Incoming, Transmit},
    state::Session,
    transfers::Transfer,
};
use crate::{
    file::{
        extent::{ChunkId, ChunkRange},
        hash_tree::{ChainingValue, Subtree},
    },
    id::{PathId, TransferId},
    path::machine::{Path, PathState, UNKNOWN_RATE},
    transfer::{receiver::Arrival, sender::Sender},
    wire::frame::DataHeader,
};

impl Session {
    /// Returns the next chunk that the sender must read and hash without sending it; `None` without
    /// such a chunk. The receiver has the chunk already, or compares it with its own. Call
    /// [`Session::handle_chunk_hashed`] afterwards.
    ///
    /// Also returns `None` while no path is connected.
    pub fn poll_hash(&mut self) -> Option<(TransferId, ChunkId)> {
        if !self.is_connected() {
            return None;
        }
        self.transfers
            .senders_mut()
            .find_map(|(id, sender)| Some((id, sender.next_to_hash()?)))
    }

    /// Records the hash of a chunk from [`Session::poll_hash`].
    pub fn handle_chunk_hashed(
        &mut self,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
    ) {
        if let Some(sender) = self.transfers.sender_mut(transfer) {
            sender.on_hashed(chunk, value);
            self.poll_kept(transfer);
            self.poll_read(transfer);
        }
    }

    /// Records that the chunk from [`Transmit::Chunk`] was read. Returns the header of its data
    /// frame; `None` if the chunk need not be sent any more.
    pub fn handle_chunk_read(
        &mut self,
        id: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
        now: Instant,
    ) -> Option<DataHeader> {
        let path = self.paths.get_mut(id)?;
        let is_due = path.flow.on_read(transfer, chunk);
        let sender = self.transfers.sender_mut(transfer)?;
        sender.on_read(chunk, value);
        let is_sent = is_due && path.state() == PathState::Open && sender.on_send(id, chunk);
        if is_sent {
            path.flow.on_begun();
            path.on_sent(now);
        } else if is_due {
            sender.on_not_sent(id, chunk);
        }
        let (len, last) = (sender.chunk_bytes(chunk) as u32, sender.is_last(chunk));
        self.poll_read(transfer);
        is_sent.then_some(DataHeader {
            transfer,
            chunk,
            value,
            len,
            raw_len: 0,
            last,
        })
    }

    /// Records that compression has saved `bytes` of a chunk that was read. The rate limits count
    /// what is sent.
    pub fn handle_chunk_packed(&mut self, id: PathId, bytes: u64) {
        self.paths.on_saved(id, bytes);
    }

    /// Records that the path's socket accepted a whole data frame.
    pub fn handle_chunk_flushed(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id) {
            path.flow.on_flushed();
        }
    }

    /// Handles the header of a data frame that arrived on a path. Returns the action required for
    /// the frame's chunk.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the chunk violates the protocol.
    pub fn handle_chunk(
        &mut self,
        id: PathId,
        header: &DataHeader,
        now: Instant,
    ) -> Result<Incoming, PathError> {
        self.handle_heard(id, now);
        let Some(path) = self.paths.connected_mut(id) else {
            return Ok(Incoming::Drop);
        };
        if !path.flow.on_arrived() {
            return Err(PathError::Credit);
        }
        self.arrive(id, header, now)
    }

    /// Handles the header of a chunk that [`Incoming::Later`] deferred. Returns the action that the
    /// chunk requires now.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the chunk violates the protocol.
    pub fn handle_chunk_again(
        &mut self,
        id: PathId,
        header: &DataHeader,
        now: Instant,
    ) -> Result<Incoming, PathError> {
        if let Some(path) = self.paths.get_mut(id) {
            path.flow.on_released();
        }
        self.arrive(id, header, now)
    }

    fn arrive(
        &mut self,
        id: PathId,
        header: &DataHeader,
        now: Instant,
    ) -> Result<Incoming, PathError> {
        // A chunk that was in flight when its transfer ended is dropped.
        let Some(receiver) = self.transfers.expect_receiver(header.transfer, "data")? else {
            return Ok(Incoming::Drop);
        };
        let incoming = match receiver.on_arrival(id, header, now)? {
            Arrival::Write(extent) => Incoming::Write {
                grid: receiver.grid,
                offset: extent.offset,
            },
            Arrival::Later => Incoming::Later,
            Arrival::Duplicate => return Ok(Incoming::Drop),
        };
        if let Some(path) = self.paths.get_mut(id) {
            path.flow.on_held();
        }
        Ok(incoming)
    }

    /// Records that a chunk was verified and written. Returns false for a duplicate, which the
    /// caller must not pass to a sink.
    pub fn handle_chunk_written(&mut self, id: PathId, header: &DataHeader, now: Instant) -> bool {
        let DataHeader {
            transfer,
            chunk,
            value,
            ..
        } = *header;
        let ack_on = self.paths.get_mut(id).and_then(|path| {
            path.flow.on_released();
            path.state().is_connected().then_some(id)
        });
        let Some(receiver) = self.transfers.receiver_mut(transfer) else {
            return false;
        };
        let news = receiver.on_written(id, ack_on, chunk, header.chunk_len().into(), value, now);
        self.poll_finished(transfer);
        self.poll_syncs(now);
        news
    }

    /// Records that a chunk was not written and must be retransmitted.
    ///
    /// The caller must also end the path with [`PathLoss::Damaged`](crate::PathLoss) if the chunk
    /// did not match the hash in its header. The caller must fail the transfer if the file failed
    /// or is closed.
    pub fn handle_chunk_unwritten(&mut self, id: PathId, transfer: TransferId, chunk: ChunkId) {
        if let Some(path) = self.paths.get_mut(id) {
            path.flow.on_released();
        }
        if let Some(receiver) = self.transfers.receiver_mut(transfer) {
            receiver.on_not_written(chunk);
            self.poll_finished(transfer);
        }
    }

    /// Records the success of the sync that [`Event::Sync`] requested.
    pub fn handle_synced(&mut self, transfer: TransferId, now: Instant) {
        if let Some(receiver) = self.transfers.receiver_mut(transfer) {
            receiver.syncing = false;
            self.poll_finished(transfer);
            self.poll_syncs(now);
        }
    }

    /// Returns and clears the subtrees that are written but not durable; `None` without any. Used
    /// by an orderly shutdown, also after the transfer's end.
    ///
    /// Ignores the sync interval. Excludes subtrees whose sync is in progress.
    pub fn take_unsynced(&mut self, transfer: TransferId) -> Option<Vec<Subtree>> {
        let unsynced = match self.transfers.get_mut(transfer)? {
            Transfer::Receiving(receiver) => receiver.take_fresh(),
            Transfer::Ended { unsynced, .. } => std::mem::take(unsynced),
            _ => return None,
        };
        (!unsynced.is_empty()).then_some(unsynced)
    }

    pub(super) fn handle_acks(
        &mut self,
        id: PathId,
        transfer: TransferId,
        ranges: &[ChunkRange],
        now: Instant,
    ) -> Result<(), PathError> {
        let Some(sender) = self
            .transfers
            .expect_sender(transfer, "an acknowledgement")?
        else {
            return Ok(());
        };
        for range in ranges {
            if let Some(chunk) = sender.never_sent(*range) {
                return Err(PathError::NeverSent {
                    transfer: transfer.0,
                    chunk: chunk.0,
                });
            }
            let acknowledged = sender.on_acknowledged(id, *range);
            for (path, bytes) in acknowledged.delivered {
                if let Some(path) = self.paths.get_mut(path) {
                    path.rate.on_acknowledged(bytes, now);
                }
            }
            self.events.extend(
                acknowledged
                    .released
                    .into_iter()
                    .map(|chunk| Event::Released { transfer, chunk }),
            );
        }
        self.pause_idle_rates();
        self.poll_read(transfer);
        Ok(())
    }

    /// Discards the current rate sample of each path that has no data in flight. Idle time would
    /// lower the rate estimate.
    fn pause_idle_rates(&mut self) {
        for (id, path) in self.paths.iter_mut() {
            let mut senders = self.transfers.senders();
            if senders.all(|sender| sender.in_flight_bytes(id) == 0) {
                path.rate.pause();
            }
        }
    }

    pub(super) fn poll_chunk(&mut self, id: PathId, now: Instant) -> Option<Transmit> {
        if self.paths.is_paced(id, now) {
            return None;
        }
        let has_work = self
            .transfers
            .senders()
            .any(|sender| sender.queued_chunks() > 0);
        if let Some(path) = self.paths.get_mut(id) {
            let starved = has_work && path.flow.is_out_of_credit();
            path.on_credit_checked(starved, now);
        }
        let path = self
            .paths
            .get(id)
            .filter(|path| path.state() == PathState::Open && self.paths.may_carry_data(id, now))?;
        let rate = path.rate.rate;
        let chunk_bytes = self
            .transfers
            .senders()
            .map(|sender| sender.grid.chunk_size.bytes())
            .max()?;
        if !path.flow.may_hand_out(rate, chunk_bytes, self.window()) {
            return None;
        }
        let open = self.paths.open();
        let mut is_left = false;
        let first = self.transfers.in_turn().into_iter().find_map(|transfer| {
            if self.goes_sooner_elsewhere(id, transfer, chunk_bytes, now) {
                is_left = true;
                return None;
            }
            let sender = self.transfers.sender_mut(transfer)?;
            Some((transfer, sender.next_chunk(id, rate, open, now)?))
        });
        if first.is_none() && is_left {
            return None;
        }
        let paths = &self.paths;
        // A chunk is hedged only if all chunks of all transfers have been sent.
        let hedge = |(transfer, sender): (TransferId, &mut Sender)| {
            let chunk = sender.next_hedge(id, |id| paths.rate_of(id), now)?;
            Some((transfer, chunk))
        };
        let Some((transfer, chunk)) =
            first.or_else(|| self.transfers.senders_mut().find_map(hedge))
        else {
            let senders = self.transfers.senders();
            let late = senders
                .filter_map(|sender| sender.hedge_at(id, |id| paths.rate_of(id)))
                .min();
            self.hedge_at = self.hedge_at.into_iter().chain(late).min();
            return None;
        };
        self.transfers.round_robin.on_served(transfer);
        self.paths.get_mut(id)?.flow.on_handed_out(transfer, chunk);
        let bytes = self
            .transfers
            .sender(transfer)
            .map_or(0, |sender| sender.chunk_bytes(chunk));
        self.paths.on_paced(id, bytes, now);
        Some(Transmit::Chunk { transfer, chunk })
    }

    /// Returns true if the next chunk of a stream would arrive earlier on another path that can
    /// send the chunk now.
    ///
    /// An in-order consumer waits for the slowest path and may bound the data in flight (2 MiB for
    /// ssh). Without this check, each chunk would go to the first path with credit. The queue of
    /// that path would grow while other paths are idle. Files of known size need no check, because
    /// they keep all paths busy.
    fn goes_sooner_elsewhere(
        &self,
        id: PathId,
        transfer: TransferId,
        chunk_bytes: u64,
        now: Instant,
    ) -> bool {
        let sender = self
            .transfers
            .sender(transfer)
            .filter(|sender| sender.grid.is_open());
        let Some(bytes) = sender.and_then(Sender::next_bytes) else {
            return false;
        };
        let arrival = |id: PathId, path: &Path| {
            let in_flight: u64 = self
                .transfers
                .senders()
                .map(|sender| sender.in_flight_bytes(id))
                .sum();
            (
                path.rate
                    .rate
                    .unwrap_or(UNKNOWN_RATE)
                    .time_for(in_flight.saturating_add(bytes)),
                id,
            )
        };
        let can_take = |id: PathId, path: &Path| {
            let is_paced = path
                .pace
                .as_ref()
                .is_some_and(|pace| pace.wait(now).is_some());
            let has_room = path
                .flow
                .may_hand_out(path.rate.rate, chunk_bytes, self.window());
            path.state() == PathState::Open
                && has_room
                && !is_paced
                && self.paths.may_carry_data(id, now)
        };
        let Some(own) = self.paths.get(id).map(|path| arrival(id, path)) else {
            return false;
        };
        self.paths
            .iter()
            .any(|(other, path)| arrival(other, path) < own && can_take(other, path))
    }

    /// Emits [`Event::Sync`] for each transfer whose sync is due. A closed session emits no events;
    /// its driver must call [`Session::take_unsynced`].
    pub(super) fn poll_syncs(&mut self, now: Instant) {
        if self.closed.is_some() {
            return;
        }
        let (bytes, interval) = (self.config.sync_bytes, self.config.sync_interval);
        for (transfer, receiver) in self.transfers.receivers_mut() {
            if let Some(subtrees) = receiver.poll_sync(bytes, interval, now) {
                self.events.push_back(Event::Sync { transfer, subtrees });
            }
        }
    }

    /// Returns the maximum number of chunks that each path may have in memory. This is the path's
    /// share of the session's budget, but at least one, so that no path stalls.
    fn window(&self) -> u64 {
        let sharing = self.paths.with_data().max(1);
        (self.chunk_budget / sharing).clamp(1, self.config.credit_window.max(1))
    }

    /// Returns the receive window of each path in chunks. The window is one chunk if the budget is
    /// limited and no transfer receives. This reserves no memory for data that will not arrive.
    pub(super) fn window_to_grant(&self) -> u64 {
        let receives = self.transfers.receivers().next().is_some();
        if receives || self.chunk_budget == u64::MAX {
            self.window()
        } else {
            1
        }
    }

    /// Sets the maximum number of chunks in memory over all paths, in each direction. Each path may
    /// have one chunk regardless of the limit.
    ///
    /// Does not discard chunks or granted credit that exceed a lower limit. The session reads and
    /// grants no more until both are within the limit.
    pub fn set_chunk_budget(&mut self, chunks: u64) {
        self.chunk_budget = chunks;
    }

    /// Returns the number of chunks in memory, plus the chunks for which the peer has unused
    /// credit.
    pub fn committed_chunks(&self) -> u64 {
        let of_path = |(_, path): (PathId, &Path)| {
            if path.state().is_connected() {
                path.flow.committed()
            } else {
                path.held_chunks()
            }
        };
        self.paths.iter().map(of_path).sum()
    }
}
