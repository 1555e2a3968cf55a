//! State machine of one end of the tunnel multiplexer.

use std::collections::{BTreeMap, VecDeque};

use super::{
    connection::{Connection, Pool, Stage},
    limits::{MOST_CONNECTIONS, MOST_WINDOW},
    record::{
        ConnId, MAX_TARGET, MAX_WHY, Record, RecordError, RecordReader, RecordWriter, TargetRefusal,
    },
};
use crate::{failure::truncate, id::Role};

/// State machine of one end of the tunnel multiplexer.
///
/// Poll events until `None` after each call that may change the state. [Fill](Tunnels::fill) a
/// batch whenever [`Tunnels::is_due`] is true and the transfer can take a batch. Records of closed
/// connections are ignored, because they may have been in flight at the close.
#[derive(Debug)]
pub struct Tunnels {
    role: Role,
    pub(super) connections: BTreeMap<ConnId, Connection>,
    /// Highest connection ID used so far; `None` before the first connection.
    last: Option<ConnId>,
    /// Connections that have something to send, in round-robin order. Each occurs once.
    round_robin: VecDeque<ConnId>,
    pub(super) pool: Pool,
    events: VecDeque<TunnelEvent>,
    has_ended: bool,
}

/// Event of a tunnelled connection, for the program that uses the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEvent {
    /// Daemon: request of the client for a connection. Connect to the target, then call
    /// [`Tunnels::accept`] or [`Tunnels::refuse`].
    Asked {
        /// ID of the new connection.
        conn: ConnId,
        /// Target of the connection, as written by the client.
        target: String,
    },
    /// Client: the daemon opened the connection.
    Opened(ConnId),
    /// Client: the daemon rejected the connection.
    Refused {
        /// ID of the rejected connection. The client must [close](Tunnels::close) it.
        conn: ConnId,
        /// Machine-readable reason for the rejection.
        code: TargetRefusal,
        /// Human-readable reason in one line. The program that displays the text must escape it.
        why: String,
    },
    /// Bytes, or the end of the stream, are available for a waiting reader.
    Readable(ConnId),
    /// The send queue has space for a waiting writer.
    Writable(ConnId),
    /// The connection has failed. The caller must [close](Tunnels::close) it.
    Reset(ConnId),
}

/// Error of a call on a connection that has failed or is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("connection lost")]
pub struct Broken;

/// Reason why [`Tunnels::open`] fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The session already has [`MOST_CONNECTIONS`] connections.
    #[error("{MOST_CONNECTIONS} connections are open, the limit of a session")]
    TooMany,
    /// The target is empty or longer than [`MAX_TARGET`]. Contains its length in bytes.
    #[error("a target of {0} bytes, expected 1 to {MAX_TARGET}")]
    Target(usize),
    /// The tunnel multiplexer has ended.
    #[error("the session has ended")]
    Ended,
}

/// Protocol violation by the peer. Ends the tunnel multiplexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// A batch cannot be decoded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The ID of a new connection is not above all earlier IDs.
    #[error("peer opened tunnel {0}, which is not new")]
    NotNew(u32),
    /// The peer exceeded the limit of [`MOST_CONNECTIONS`] connections.
    #[error("peer exceeded the limit of {MOST_CONNECTIONS} tunnels")]
    TooMany,
    /// The connection's state does not allow the record.
    #[error("peer sent {what} for tunnel {conn} in the wrong state")]
    Unexpected {
        /// Kind of record, for the error text.
        what: &'static str,
        /// ID of the connection.
        conn: u32,
    },
    /// Received data exceeds the connection's receive window.
    #[error("peer sent {len} bytes on tunnel {conn}, beyond its window")]
    Window {
        /// ID of the connection.
        conn: u32,
        /// Number of bytes received.
        len: usize,
    },
    /// A window update would raise the window above `MOST_WINDOW` bytes. Contains the ID of the
    /// connection.
    #[error("peer raised the window of tunnel {0} above {MOST_WINDOW} bytes")]
    TooWide(u32),
}

/// Result of a connection's turn, in which the connection writes records into a batch.
enum Turn {
    /// The batch has no space for the connection's next record.
    Full,
    /// The connection has more to send in its next turn.
    More,
    /// The connection has nothing more to send.
    Done,
    /// The connection has ended and can be removed.
    Over,
}

impl Tunnels {
    /// Returns one end of a tunnel multiplexer, without connections.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            connections: BTreeMap::new(),
            last: None,
            round_robin: VecDeque::new(),
            pool: Pool::default(),
            events: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Requests a connection from the daemon to `target`; client only. Returns the connection's ID.
    ///
    /// [`TunnelEvent::Opened`], [`TunnelEvent::Refused`] or [`TunnelEvent::Reset`] follows.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the target is invalid, the limit of connections is reached, or the
    /// multiplexer has ended.
    pub fn open(&mut self, target: &str) -> Result<ConnId, OpenError> {
        if self.has_ended {
            return Err(OpenError::Ended);
        }
        if !(1..=MAX_TARGET).contains(&target.len()) {
            return Err(OpenError::Target(target.len()));
        }
        let next = self
            .last
            .map_or(Some(0), |last| last.0.checked_add(1))
            .ok_or(OpenError::TooMany)?;
        if self.connections.len() >= MOST_CONNECTIONS {
            return Err(OpenError::TooMany);
        }
        let conn = ConnId(next);
        self.last = Some(conn);
        self.connections.insert(
            conn,
            Connection::new(
                Stage::Opening {
                    target: target.to_owned(),
                },
                0,
                &mut self.pool,
            ),
        );
        self.touch(conn);
        Ok(conn)
    }

    /// Accepts a connection in response to [`TunnelEvent::Asked`]; daemon only.
    pub fn accept(&mut self, conn: ConnId) {
        self.answer(conn, Stage::Accepting);
    }

    /// Rejects a connection in response to [`TunnelEvent::Asked`]; daemon only. Truncates the text
    /// to `MAX_WHY` bytes.
    pub fn refuse(&mut self, conn: ConnId, code: TargetRefusal, why: &str) {
        let mut why = why.to_owned();
        truncate(&mut why, MAX_WHY);
        self.answer(conn, Stage::Refusing { code, why });
    }

    fn answer(&mut self, conn: ConnId, stage: Stage) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.stage == Stage::Asked
            && !connection.is_let_go
        {
            connection.stage = stage;
            self.touch(conn);
        }
    }

    /// Returns the number of bytes that may be written now. A result of 0 is followed by
    /// [`TunnelEvent::Writable`] as soon as the number rises.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the connection has failed or is unknown.
    pub fn room(&mut self, conn: ConnId) -> Result<usize, Broken> {
        let connection = self.connections.get_mut(&conn).ok_or(Broken)?;
        if connection.is_broken || connection.is_finishing || connection.is_let_go {
            return Err(Broken);
        }
        let room = connection.room(&self.pool);
        connection.wants_room = room == 0;
        Ok(room)
    }

    /// Queues bytes that [`room`](Self::room) permitted earlier, even if other connections have
    /// used up the memory since. The caller must not write to this connection between the two
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the connection has failed or is unknown, or if the bytes exceed the
    /// peer's window.
    pub fn push(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Broken> {
        let connection = self
            .connections
            .get_mut(&conn)
            .filter(|connection| !connection.is_broken)
            .ok_or(Broken)?;
        connection.credit = connection
            .credit
            .checked_sub(bytes.len() as u64)
            .ok_or(Broken)?;
        connection.unsent.push(bytes);
        self.pool.unsent += bytes.len() as u64;
        self.touch(conn);
        Ok(())
    }

    /// Returns true if a connection has failed or is unknown. Received bytes may still be readable
    /// after a failure.
    pub fn is_gone(&self, conn: ConnId) -> bool {
        self.connections
            .get(&conn)
            .is_none_or(|connection| connection.is_broken)
    }

    /// Ends the local stream of a connection. Queued bytes are still sent.
    pub fn finish(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.is_finishing = true;
            self.touch(conn);
        }
    }

    /// Copies received bytes into `into` without removing them; see [`Tunnels::consume`].
    ///
    /// Returns `None` if no bytes have arrived; [`TunnelEvent::Readable`] follows. Returns
    /// `Some(0)` at the end of the stream.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the connection has failed or is unknown.
    pub fn peek(&mut self, conn: ConnId, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        let connection = self.connections.get_mut(&conn).ok_or(Broken)?;
        match connection.unread.peek(into) {
            0 if connection.unread.is_empty() && connection.has_ended => Ok(Some(0)),
            0 if connection.unread.is_empty() && connection.is_broken => Err(Broken),
            0 if connection.unread.is_empty() => {
                connection.wants_bytes = true;
                Ok(None)
            }
            count => Ok(Some(count)),
        }
    }

    /// Removes the first `count` received bytes of a connection. This extends the peer's window.
    pub fn consume(&mut self, conn: ConnId, count: usize) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        let count = count.min(connection.unread.len());
        connection.unread.consume(count);
        // A peer that has ended its stream needs no more window.
        let inbound = &mut connection.inbound;
        if connection.has_ended || connection.is_broken {
            inbound.release(count as u64, &mut self.pool);
        } else {
            inbound.on_read(count as u64, connection.unread.len(), &mut self.pool);
        }
        self.touch(conn);
    }

    /// Closes a connection for reading and writing.
    ///
    /// Sends queued bytes if the local stream has [ended](Self::finish); otherwise discards them.
    /// The peer receives a reset unless both streams have ended.
    pub fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        connection.is_let_go = true;
        connection.discard_unread(&mut self.pool);
        let never_asked = matches!(connection.stage, Stage::Opening { .. });
        let is_over = connection.has_ended && connection.end_sent;
        if connection.is_broken || never_asked || is_over {
            return self.forget(conn);
        }
        let is_answered = !matches!(connection.stage, Stage::Refusing { .. });
        connection.reset_due = is_answered && !(connection.is_finishing && connection.has_ended);
        if !connection.is_finishing {
            connection.discard_unsent(&mut self.pool);
        }
        self.touch(conn);
    }

    /// Returns true if any connection has something to send.
    pub fn is_due(&self) -> bool {
        !self.round_robin.is_empty()
    }

    /// Returns the number of connections, including connections that are closing.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Fills a batch round-robin over the connections. Returns the length in bytes. The batch must
    /// have at least 2048 bytes, so that each record except data fits.
    pub fn fill(&mut self, batch: &mut [u8]) -> usize {
        let mut writer = RecordWriter::new(batch);
        while let Some(conn) = self.round_robin.pop_front() {
            let Some(connection) = self.connections.get_mut(&conn) else {
                continue;
            };
            match connection.serve_next(conn, &mut writer, &mut self.pool) {
                Turn::Full => {
                    self.round_robin.push_front(conn);
                    break;
                }
                Turn::More => self.round_robin.push_back(conn),
                Turn::Done => connection.is_queued = false,
                Turn::Over => {
                    self.forget(conn);
                    continue;
                }
            }
            self.wake_writer(conn);
        }
        writer.len()
    }

    /// Handles a batch from the peer. Batches must be passed in order.
    ///
    /// # Errors
    ///
    /// Returns [`TunnelError`] if the batch violates the protocol.
    pub fn handle_batch(&mut self, batch: &[u8]) -> Result<(), TunnelError> {
        RecordReader::new(batch).try_for_each(|record| {
            let (conn, record) = record?;
            self.handle(conn, record)
        })
    }

    fn handle(&mut self, conn: ConnId, record: Record<'_>) -> Result<(), TunnelError> {
        let is_open = |stage: &Stage| *stage == Stage::Open;
        match record {
            Record::Open { window, target } => self.on_open(conn, window, target)?,
            Record::Opened(window) => self.on_opened(conn, window)?,
            Record::Refused { code, why } => {
                let is_asking = |stage: &Stage| *stage == Stage::Asking;
                if let Some(connection) = self.known(conn, "a refusal", is_asking)? {
                    connection.is_broken = true;
                    let why = why.to_owned();
                    self.events
                        .push_back(TunnelEvent::Refused { conn, code, why });
                    self.forget_if_let_go(conn);
                }
            }
            Record::Data(bytes) => self.on_data(conn, bytes)?,
            Record::End => self.on_end(conn)?,
            Record::Reset => {
                let is_asked = |stage: &Stage| !matches!(stage, Stage::Opening { .. });
                if self.known(conn, "a reset", is_asked)?.is_some() {
                    self.break_off(conn);
                }
            }
            Record::UsedUp => {
                if let Some(connection) = self.known(conn, "that its window is used up", is_open)? {
                    connection.inbound.is_used_up = true;
                }
            }
            Record::Window(bytes) => self.on_window(conn, bytes)?,
        }
        Ok(())
    }

    fn on_end(&mut self, conn: ConnId) -> Result<(), TunnelError> {
        let Some(connection) = self.known(conn, "an end", |stage| *stage == Stage::Open)? else {
            return Ok(());
        };
        if std::mem::replace(&mut connection.has_ended, true) {
            return Err(TunnelError::Unexpected {
                what: "a second end",
                conn: conn.0,
            });
        }
        if connection.is_let_go && connection.end_sent && !connection.reset_due {
            self.forget(conn);
        } else if std::mem::take(&mut connection.wants_bytes) {
            self.events.push_back(TunnelEvent::Readable(conn));
        }
        Ok(())
    }

    fn on_open(&mut self, conn: ConnId, window: u32, target: &str) -> Result<(), TunnelError> {
        if self.role != Role::Daemon {
            return Err(TunnelError::Unexpected {
                what: "an open",
                conn: conn.0,
            });
        }
        if self.last >= Some(conn) {
            return Err(TunnelError::NotNew(conn.0));
        }
        if window > MOST_WINDOW {
            return Err(TunnelError::TooWide(conn.0));
        }
        // Twice the limit, because the client's closes may be in flight and rejected connections
        // await their answer.
        let count = self.connections.len();
        if count >= 2 * MOST_CONNECTIONS {
            return Err(TunnelError::TooMany);
        }
        self.last = Some(conn);
        let stage = match count < MOST_CONNECTIONS {
            true => Stage::Asked,
            false => Stage::Refusing {
                code: TargetRefusal::TooMany,
                why: OpenError::TooMany.to_string(),
            },
        };
        if stage == Stage::Asked {
            self.events.push_back(TunnelEvent::Asked {
                conn,
                target: target.to_owned(),
            });
        }
        self.connections
            .insert(conn, Connection::new(stage, window.into(), &mut self.pool));
        self.touch(conn);
        Ok(())
    }

    fn on_opened(&mut self, conn: ConnId, window: u32) -> Result<(), TunnelError> {
        let Some(connection) =
            self.known(conn, "that it is open", |stage| *stage == Stage::Asking)?
        else {
            return Ok(());
        };
        if window > MOST_WINDOW {
            return Err(TunnelError::TooWide(conn.0));
        }
        connection.stage = Stage::Open;
        connection.credit = window.into();
        // The request for the connection contained this window.
        self.events.push_back(TunnelEvent::Opened(conn));
        self.wake_writer(conn);
        self.touch(conn);
        Ok(())
    }

    fn on_data(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), TunnelError> {
        let Some(connection) = self.known(conn, "data", |stage| *stage == Stage::Open)? else {
            return Ok(());
        };
        if connection.has_ended {
            return Err(TunnelError::Unexpected {
                what: "data after the end",
                conn: conn.0,
            });
        }
        if !connection.inbound.on_received(bytes.len() as u64) {
            return Err(TunnelError::Window {
                conn: conn.0,
                len: bytes.len(),
            });
        }
        if connection.is_let_go {
            return Ok(());
        }
        connection.unread.push(bytes);
        if std::mem::take(&mut connection.wants_bytes) {
            self.events.push_back(TunnelEvent::Readable(conn));
        }
        Ok(())
    }

    fn on_window(&mut self, conn: ConnId, bytes: u32) -> Result<(), TunnelError> {
        let Some(connection) = self.known(conn, "a window", |stage| *stage == Stage::Open)? else {
            return Ok(());
        };
        connection.credit += u64::from(bytes);
        if connection.credit > u64::from(MOST_WINDOW) {
            return Err(TunnelError::TooWide(conn.0));
        }
        self.wake_writer(conn);
        Ok(())
    }

    /// Returns the connection of a received record; `None` if the connection has ended or failed.
    ///
    /// # Errors
    ///
    /// Returns [`TunnelError::Unexpected`] if the connection's state does not allow the record.
    fn known(
        &mut self,
        conn: ConnId,
        what: &'static str,
        may_have: impl Fn(&Stage) -> bool,
    ) -> Result<Option<&mut Connection>, TunnelError> {
        let is_past = self.last >= Some(conn);
        match self.connections.get_mut(&conn) {
            Some(connection) if connection.is_broken => Ok(None),
            Some(connection) if may_have(&connection.stage) => Ok(Some(connection)),
            None if is_past => Ok(None),
            _ => Err(TunnelError::Unexpected { what, conn: conn.0 }),
        }
    }

    /// Marks a connection as failed. Received bytes stay readable if the peer has ended its stream.
    fn break_off(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        connection.is_broken = true;
        connection.discard_unsent(&mut self.pool);
        if !connection.has_ended {
            connection.discard_unread(&mut self.pool);
        }
        self.events.push_back(TunnelEvent::Reset(conn));
        self.forget_if_let_go(conn);
    }

    /// Ends the multiplexer. All connections fail.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.round_robin.clear();
        let whole: Vec<ConnId> = self
            .connections
            .iter()
            .filter(|(_, known)| !known.is_broken)
            .map(|(conn, _)| *conn)
            .collect();
        whole.into_iter().for_each(|conn| self.break_off(conn));
    }

    /// Returns the next event; `None` if no event is pending.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    fn wake_writer(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.take_room_wish(&self.pool)
        {
            self.events.push_back(TunnelEvent::Writable(conn));
        }
    }

    /// Adds a connection to the round-robin queue if it has something to send.
    fn touch(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.is_due()
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.round_robin.push_back(conn);
        }
    }

    fn forget_if_let_go(&mut self, conn: ConnId) {
        if self.connections.get(&conn).is_some_and(|connection| {
            connection.is_let_go || matches!(connection.stage, Stage::Refusing { .. })
        }) {
            self.forget(conn);
        }
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(mut connection) = self.connections.remove(&conn) {
            connection.discard_unsent(&mut self.pool);
            let held = connection.inbound.held();
            connection.inbound.release(held, &mut self.pool);
        }
    }
}

impl Connection {
    /// Writes the connection's pending records into a batch, with at most [`QUANTUM`] bytes of
    /// data.
    fn serve_next(&mut self, conn: ConnId, writer: &mut RecordWriter<'_>, pool: &mut Pool) -> Turn {
        if !self.is_due() {
            return Turn::Done;
        }
        let window = self.inbound.due;
        let fits = match &self.stage {
            Stage::Opening { target } => writer.push(conn, Record::Open { window, target }),
            Stage::Accepting => writer.push(conn, Record::Opened(window)),
            Stage::Refusing { code, why } => {
                return if writer.push(conn, Record::Refused { code: *code, why }) {
                    Turn::Over
                } else {
                    Turn::Full
                };
            }
            Stage::Open if window > 0 && !self.is_let_go => {
                writer.push(conn, Record::Window(window))
            }
            _ => true,
        };
        if !fits {
            return Turn::Full;
        }
        match self.stage {
            Stage::Opening { .. } => self.stage = Stage::Asking,
            Stage::Accepting => self.stage = Stage::Open,
            _ => {}
        }
        self.inbound.due = 0;
        self.send_data(conn, writer, pool)
    }

    fn send_data(&mut self, conn: ConnId, writer: &mut RecordWriter<'_>, pool: &mut Pool) -> Turn {
        let has_data = !self.unsent.is_empty();
        if has_data {
            let len = self.unsent.len().min(QUANTUM);
            // A few bytes of data at the end of a batch are not worth a record header.
            if writer.room() < len.min(LEAST_DATA) {
                return Turn::Full;
            }
            let len = len.min(writer.room());
            writer.push_data(conn, len, |body| _ = self.unsent.peek(body));
            self.unsent.consume(len);
            pool.unsent -= len as u64;
        }
        if !self.unsent.is_empty() {
            return Turn::More;
        }
        // A later batch contains the record if this one has no space for it.
        if has_data && self.credit == 0 && !self.is_finishing {
            writer.push(conn, Record::UsedUp);
        }
        if self.stage == Stage::Open && self.is_finishing && !self.end_sent {
            if !writer.push(conn, Record::End) {
                return Turn::Full;
            }
            self.end_sent = true;
        }
        if self.reset_due {
            return if writer.push(conn, Record::Reset) {
                Turn::Over
            } else {
                Turn::Full
            };
        }
        if self.is_let_go && self.end_sent && self.has_ended {
            Turn::Over
        } else {
            Turn::Done
        }
    }
}

/// Maximum number of data bytes that a connection sends in one turn.
const QUANTUM: usize = 16 << 10;

/// Minimum length in bytes of a data record that is shortened to fit into a batch.
const LEAST_DATA: usize = 1024;
