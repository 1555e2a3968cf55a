//! Simulated driver of the sessions, their connections and files, modelled on
//! `crates/nicstripe/src/session/driver.rs`.

use std::time::Duration;

use nicstripe_proto::{
    Acceptance, ChunkId, ChunkRange, DataHeader, Digest, Event as Wanted, FailCode, Frame, Grid,
    Incoming, Message, PathId, PathLoss, PathState, TransferId, Transmit, hash_tree::zeros_subtree,
    message::Committed, session::failure,
};
use nicstripe_sim::{CloseReason, End};

use crate::{
    disk::Version,
    harness::{Lab, TestTransfer, us},
    peer::{Connection, Outcome, Packet, Work},
};

/// Timeout of a connection attempt, as in the client's connector.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of frames queued for a connection, as in the real driver.
const OUTGOING_QUEUE: usize = 256;

const HASHING_AT_ONCE: u32 = 2;

/// Number of packets into which the payload of a chunk is divided.
const PIECES: u64 = 4;

impl Lab {
    pub(crate) fn on_opened(&mut self, path: PathId, end: End) {
        let now = self.now();
        let peer = self.peer_mut(end);
        peer.connecting.remove(&path);
        peer.connections.insert(path, Connection::default());
        peer.session.handle_path_open(path, now);
    }

    pub(crate) fn on_closed(&mut self, path: PathId, end: End, reason: CloseReason) {
        let now = self.now();
        let peer = self.peer_mut(end);
        let loss = match (peer.connecting.remove(&path), reason) {
            (Some(_), _) => PathLoss::Unreachable,
            (None, CloseReason::CarrierLost) => PathLoss::CarrierLost,
            _ => PathLoss::Reset,
        };
        peer.connections.remove(&path);
        peer.session.handle_path_lost(path, loss, now);
    }

    pub(crate) fn on_packet(&mut self, path: PathId, to: End, packet: Packet) {
        let now = self.now();
        let peer = self.peer_mut(to);
        let session = match packet {
            Packet::Frame { session, .. } | Packet::Chunk { session, .. } => session,
            Packet::Piece { .. } => peer.process,
        };
        if !peer.connections.contains_key(&path) || session != peer.process {
            return;
        }
        match packet {
            Packet::Piece { .. } => peer.session.handle_heard(path, now),
            Packet::Frame { frame, .. } => peer.session.handle_frame(path, frame, now).unwrap(),
            Packet::Chunk {
                header, content, ..
            } => match peer.session.handle_chunk(path, &header, now).unwrap() {
                Incoming::Write { grid, offset } => {
                    assert_eq!(grid.extent_of(header.chunk).unwrap().offset, offset);
                    *peer.writing.entry(path).or_default() += 1;
                    let at = self.net.now();
                    self.arrivals.push((at, path));
                    self.work(
                        to,
                        Work::Write {
                            path,
                            header,
                            grid,
                            content,
                        },
                    );
                }
                Incoming::Drop => {}
                Incoming::Later => panic!(
                    "two versions of {:?}, from a source that does not change",
                    header.chunk
                ),
            },
        }
    }

    /// Schedules disk work of an end, or completes it immediately if the disk has no delay.
    pub(crate) fn work(&mut self, end: End, work: Work) {
        let disk = &self.peer(end).disk;
        let takes = match work {
            Work::Read { .. } | Work::Hash { .. } | Work::Compare { .. } | Work::Zeros { .. } => {
                disk.read_delay
            }
            Work::Write { .. } => disk.write_delay,
            Work::Sync { .. } | Work::Commit { .. } => disk.sync_delay,
            _ => us(50),
        };
        let at = self.net.now().max(disk.stalled_until) + takes;
        self.schedule_work(end, at, work);
    }

    pub(crate) fn schedule_work(&mut self, end: End, at: Duration, work: Work) {
        let process = self.peer(end).process;
        self.schedule(at, TestTransfer::Work { end, process, work });
    }

    pub(crate) fn schedule(&mut self, at: Duration, job: TestTransfer) {
        self.net.set_timer(at, self.next_job);
        self.jobs.insert(self.next_job, job);
        self.next_job += 1;
    }

    pub(crate) fn on_work(&mut self, end: End, work: Work) {
        let stalled_until = self.peer(end).disk.stalled_until;
        if work.is_disk() && stalled_until > self.net.now() {
            return self.schedule_work(end, stalled_until, work);
        }
        let (now, grid) = (self.now(), self.contents.grid);
        match work {
            // The transfer ended before the file was opened.
            Work::OpenTarget(transfer) | Work::OpenSource(transfer)
                if !self.peer(end).session.is_under_way(transfer) => {}
            Work::OpenTarget(transfer) => {
                let have = self
                    .lie
                    .take()
                    .unwrap_or_else(|| self.peer(end).disk.journal.clone());
                let delta = self
                    .old
                    .as_ref()
                    .map(|old| old.keys().last().map_or(0, |last| last.0 + 1));
                let room = self.has_room();
                let how = Acceptance {
                    room,
                    holes: !self.holes.is_empty() && room.is_none(),
                    delta,
                    memory: None,
                };
                let peer = self.peer_mut(end);
                peer.open.insert(transfer);
                peer.session.accept_with(transfer, have, how);
            }
            Work::OpenSource(transfer) => {
                let offer = self.offer(transfer);
                self.peer_mut(end).open.insert(transfer);
                self.peer_mut(end).session.offer(offer).unwrap();
            }
            Work::Read {
                path,
                transfer,
                chunk,
            } => self.on_read(end, path, transfer, chunk),
            Work::Hash { transfer, chunk } => {
                let value = self.contents.value(self.peer(end).source, chunk);
                let peer = self.peer_mut(end);
                peer.hashing -= 1;
                peer.session.handle_chunk_hashed(transfer, chunk, value);
            }
            Work::Zeros {
                transfer,
                grid,
                zeros,
            } => {
                let peer = self.peer_mut(end);
                peer.hashing -= 1;
                peer.session.handle_zeros_hashed(
                    transfer,
                    zeros_subtree(grid, zeros).unwrap(),
                    now,
                );
            }
            Work::MakeHoles(transfer) => {
                let (holes, sent) = (self.contents.holes.clone(), self.offered);
                let peer = self.peer_mut(end);
                peer.disk.written.extend(
                    holes
                        .ranges()
                        .flat_map(ChunkRange::chunks)
                        .map(|chunk| (chunk, sent)),
                );
                peer.session.handle_holes_made(transfer);
            }
            Work::Compare { transfer, chunk } => {
                // Durable chunks that did not fit into the acceptance must not be overwritten by a
                // copy.
                let durable = self
                    .peer(end)
                    .disk
                    .durable
                    .contains(chunk)
                    .then(|| self.peer(end).disk.written[&chunk]);
                let version =
                    durable.or_else(|| self.old.as_ref().and_then(|old| old.get(&chunk).copied()));
                let value = version.map(|version| self.contents.value(version, chunk));
                let peer = self.peer_mut(end);
                peer.hashing -= 1;
                if peer.open.contains(&transfer) {
                    peer.disk
                        .written
                        .extend(version.map(|version| (chunk, version)));
                }
                peer.session.handle_compared(transfer, chunk, value);
            }
            Work::Write {
                path,
                header,
                grid,
                content,
            } => self.on_write(end, path, header, grid, content),
            Work::Sync { transfer, .. } if !self.peer_mut(end).disk.can_sync() => {
                self.fail(end, transfer, FailCode::Io);
            }
            Work::Sync { transfer, subtrees } => {
                let peer = self.peer_mut(end);
                peer.disk.sync(grid, &subtrees);
                peer.session.handle_synced(transfer, now);
            }
            Work::Check(transfer) => {
                if self.peer(end).source == self.offered {
                    self.peer_mut(end).session.complete(transfer, Vec::new());
                } else {
                    self.fail(end, transfer, FailCode::SourceChanged);
                }
            }
            Work::Commit { transfer, .. } if !self.peer_mut(end).disk.can_sync() => {
                self.fail(end, transfer, FailCode::Io);
            }
            Work::Commit { transfer, digest } => {
                if self.is_taken(transfer, digest) {
                    self.on_commit(end, transfer, digest);
                }
            }
            Work::Give(transfer) => self.give(end, transfer),
            Work::Take(transfer) => self.take(end, transfer),
            Work::ConnectTimeout { path, attempt } => {
                if self.peer(end).connecting.get(&path) == Some(&attempt) {
                    self.peer_mut(end).connecting.remove(&path);
                    self.net.close(self.links[path.0 as usize], end);
                    self.peer_mut(end)
                        .session
                        .handle_path_lost(path, PathLoss::Unreachable, now);
                }
            }
            Work::CarrierUp(path) => {
                if !self.peer(end).connections.contains_key(&path) {
                    self.connect(path);
                }
            }
        }
    }

    pub(crate) fn on_read(&mut self, end: End, path: PathId, transfer: TransferId, chunk: ChunkId) {
        let (now, mut content) = (self.now(), self.peer(end).source);
        if self.peer_mut(end).disk.unreadable.remove(&chunk) {
            return self.fail(end, transfer, FailCode::Io);
        }
        let value = self.contents.value(content, chunk);
        let Some(header) = self
            .peer_mut(end)
            .session
            .handle_chunk_read(path, transfer, chunk, value, now)
        else {
            return;
        };
        let damages = self
            .damages
            .get(&path)
            .is_some_and(|one_in| self.chaos.below(*one_in) == 0);
        if self.damage.remove(&chunk) || (damages && !self.contents.holes.contains(chunk)) {
            content = !content;
        }
        let wire_len = (u64::from(header.len) / PIECES).max(1);
        let peer = self.peer_mut(end);
        peer.sent_chunks += 1;
        let Some(connection) = peer.connections.get_mut(&path) else {
            panic!("a chunk for {path:?}, which has no connection")
        };
        connection
            .outbox
            .extend((1..PIECES).map(|_| Packet::Piece { wire_len }));
        connection.outbox.push_back(Packet::Chunk {
            session: peer.process,
            header,
            content,
            wire_len,
        });
    }

    fn on_write(
        &mut self,
        end: End,
        path: PathId,
        header: DataHeader,
        grid: Grid,
        content: Version,
    ) {
        let now = self.now();
        let value = match self.live {
            Some(_) => self
                .contents
                .value_found(grid, content, header.chunk, header.last),
            None => self.contents.value(content, header.chunk),
        };
        let is_kept = self.has_room().is_some();
        let peer = self.peer_mut(end);
        *peer.writing.get_mut(&path).unwrap() -= 1;
        if value != header.value {
            peer.session
                .handle_chunk_damaged(path, header.transfer, header.chunk);
            self.lose(end, path, PathLoss::Damaged);
        } else if peer
            .disk
            .full_at
            .is_some_and(|most| peer.disk.written.len() >= most)
        {
            peer.session
                .handle_chunk_unwritten(path, header.transfer, header.chunk);
            self.fail(end, header.transfer, FailCode::NoSpace);
        } else if peer.disk.unwritable.remove(&header.chunk) {
            peer.session
                .handle_chunk_unwritten(path, header.transfer, header.chunk);
            self.fail(end, header.transfer, FailCode::Io);
        } else {
            if !is_kept && peer.open.contains(&header.transfer) {
                peer.disk.written.insert(header.chunk, content);
            }
            let news = peer.session.handle_chunk_written(path, &header, now);
            self.on_verified(end, header.transfer, header.chunk, content, news);
        }
    }

    pub(crate) fn on_commit(&mut self, end: End, transfer: TransferId, digest: Digest) {
        let (sent, chunks) = (self.offered, self.contents.chunks());
        assert_eq!(
            digest,
            self.contents.digest(sent),
            "committed what was not sent"
        );
        let peer = self.peer_mut(end);
        assert!(
            chunks
                .chunks()
                .all(|chunk| peer.disk.written.get(&chunk) == Some(&sent)),
            "committed with a hole or a wrong chunk"
        );
        assert_eq!(peer.disk.committed.replace(digest), None, "committed twice");
        if !peer.outcomes.contains_key(&transfer) {
            peer.session.committed(Committed { transfer, digest });
            peer.finish(transfer, Outcome::Committed(digest));
        }
    }

    /// Fails a transfer at this end. May be called repeatedly, because each failed write calls it.
    pub(crate) fn fail(&mut self, end: End, transfer: TransferId, code: FailCode) {
        let peer = self.peer_mut(end);
        peer.session
            .fail(failure(transfer, code, "the disk said no", true));
        if !peer.outcomes.contains_key(&transfer) {
            peer.finish(transfer, Outcome::FailedHere(code));
        }
    }

    fn lose(&mut self, end: End, path: PathId, loss: PathLoss) {
        let now = self.now();
        self.disconnect(end, path);
        self.peer_mut(end).session.handle_path_lost(path, loss, now);
    }

    fn disconnect(&mut self, end: End, path: PathId) {
        if self.peer_mut(end).connections.remove(&path).is_some() {
            self.net.close(self.links[path.0 as usize], end);
        }
    }

    pub(crate) fn connect(&mut self, path: PathId) {
        let attempt = self.next_job;
        let client = &mut self.peers[0];
        if client.connections.contains_key(&path) || client.connecting.contains_key(&path) {
            return;
        }
        client.connecting.insert(path, attempt);
        self.net.connect(self.links[path.0 as usize], End::A);
        self.schedule_work(
            End::A,
            self.net.now() + CONNECT_TIMEOUT,
            Work::ConnectTimeout { path, attempt },
        );
    }

    pub(crate) fn pump_both(&mut self) {
        End::BOTH.into_iter().for_each(|end| self.pump(end));
    }

    pub(crate) fn pump(&mut self, end: End) {
        let now = self.now();
        self.handle_events(end);
        while self.peer(end).hashing < HASHING_AT_ONCE {
            let Some((transfer, chunk)) = self.peer_mut(end).session.poll_hash() else {
                break;
            };
            self.peer_mut(end).hashing += 1;
            self.work(end, Work::Hash { transfer, chunk });
        }
        while self.peer(end).hashing < HASHING_AT_ONCE {
            let session = &mut self.peer_mut(end).session;
            let work = if let Some((transfer, grid, zeros)) = session.poll_zeros() {
                Work::Zeros {
                    transfer,
                    grid,
                    zeros,
                }
            } else if let Some((transfer, chunk)) = session.poll_compare() {
                Work::Compare { transfer, chunk }
            } else {
                break;
            };
            self.peer_mut(end).hashing += 1;
            self.work(end, work);
        }
        let paths: Vec<PathId> = self.peer(end).connections.keys().copied().collect();
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            for path in paths.iter().copied() {
                while self.peer(end).connections[&path].outbox.len()
                    < OUTGOING_QUEUE * PIECES as usize
                {
                    match self.peer_mut(end).session.poll_transmit(path, now) {
                        Some(Transmit::Frame(frame)) => self.queue_frame(end, path, frame),
                        Some(Transmit::Load(_)) => panic!("a load without a benchmark"),
                        Some(Transmit::Chunk { transfer, chunk }) => {
                            goes_on = true;
                            if !self.read_given(end, path, transfer, chunk) {
                                self.work(
                                    end,
                                    Work::Read {
                                        path,
                                        transfer,
                                        chunk,
                                    },
                                );
                            }
                        }
                        None => break,
                    }
                }
                self.flush(end, path);
            }
        }
        self.handle_events(end);
    }

    fn queue_frame(&mut self, end: End, path: PathId, frame: Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        if let Frame::Control { body, .. } = &frame {
            let at = self.net.now();
            self.peer_mut(end).control_sent.push((at, path));
            if let Some((_, matches)) = self.cut_after.filter(|(of, _)| *of == end)
                && matches(&message_of(body))
            {
                self.cut_after = None;
                self.net.cut(self.links[path.0 as usize]);
            }
        }
        let wire_len = (bytes.len() as u64 / self.scale).max(1);
        let peer = self.peer_mut(end);
        let packet = Packet::Frame {
            session: peer.process,
            frame,
            wire_len,
        };
        peer.connections
            .get_mut(&path)
            .unwrap()
            .outbox
            .push_back(packet);
    }

    fn flush(&mut self, end: End, path: PathId) {
        let link = self.links[path.0 as usize];
        let peer = &mut self.peers[end as usize];
        let Some(connection) = peer.connections.get_mut(&path) else {
            return;
        };
        while self.net.is_writable(link, end) {
            let Some(packet) = connection.outbox.pop_front() else {
                break;
            };
            let is_chunk = matches!(packet, Packet::Chunk { .. });
            self.net.offer(link, end, packet).unwrap();
            if is_chunk {
                peer.session.handle_chunk_flushed(path);
            }
        }
    }

    fn handle_events(&mut self, end: End) {
        while let Some(wanted) = self.peer_mut(end).session.poll_event() {
            if self.verbose {
                eprintln!("{:?} {end:?} wants {wanted:?}", self.net.now());
            }
            self.handle_event(end, wanted);
        }
    }

    fn handle_event(&mut self, end: End, wanted: Wanted) {
        let at = self.net.now();
        let peer = &mut self.peers[end as usize];
        match wanted {
            Wanted::Connect(path) => self.connect(path),
            Wanted::Disconnect(path) => self.disconnect(end, path),
            Wanted::PathChanged { path, state, loss } => {
                peer.losses.extend(loss.map(|loss| (at, path, loss)));
                peer.suspicions += u64::from(state == PathState::Suspect);
            }
            Wanted::PutRequested(put) => self.work(end, Work::OpenTarget(put.offer.transfer)),
            Wanted::Offered(offer) => self.work(end, Work::OpenTarget(offer.transfer)),
            Wanted::GetRequested(get) => self.work(end, Work::OpenSource(get.transfer)),
            Wanted::Superseded { .. } => peer.superseded += 1,
            Wanted::Sync { transfer, subtrees } => {
                self.work(end, Work::Sync { transfer, subtrees });
            }
            Wanted::Holes { transfer, holes } => {
                assert_eq!(holes, self.holes);
                self.work(end, Work::MakeHoles(transfer));
            }
            Wanted::SourceRead { transfer, .. } => self.work(end, Work::Check(transfer)),
            Wanted::Completed(complete) => peer.completed = Some(complete),
            Wanted::Commit { transfer, digest } => {
                self.work(end, Work::Commit { transfer, digest });
            }
            Wanted::Mismatch {
                transfer,
                received,
                sent,
            } => {
                assert_ne!(received, sent);
                self.fail(end, transfer, FailCode::Digest);
            }
            Wanted::Committed { transfer, digest } => {
                peer.finish(transfer, Outcome::Committed(digest));
                assert_eq!(
                    self.receiver().disk.committed,
                    Some(digest),
                    "reported durable, but is not"
                );
            }
            Wanted::Failed(fail) => {
                peer.finish(fail.transfer, Outcome::FailedThere(fail.code));
                if fail.code == FailCode::Cancelled {
                    self.let_go(end, fail.transfer);
                }
            }
            Wanted::Abandoned => {
                assert!(!peer.abandoned, "abandoned twice");
                peer.abandoned = true;
            }
            Wanted::Damaged { .. } => peer.damages += 1,
            Wanted::Closed(code) => assert_eq!(peer.closed.replace(code), None, "closed twice"),
            live => self.on_live(end, live),
        }
    }
}

fn message_of(body: &[u8]) -> Message {
    minicbor::decode(body).unwrap()
}
