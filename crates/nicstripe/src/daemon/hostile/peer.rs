//! Scripted peer: the client or daemon end of a connection over which a test sends arbitrary frames,
//! and the messages and frames that the scripts have in common.

use std::{
    collections::VecDeque,
    future::ready,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Decoder, FailCode, Frame, Message, Offer, Piece, SessionId,
    SourceIdentity, TransferId,
    message::{
        Accept, Answer, AnswerKind, Ask, AskKind, Fail, Get, Hello, Put, PutOptions, Refusal,
        RefusalCode, VERSION, Welcome,
    },
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{name, within};
use crate::{
    trust::{Identity, random::random_bytes},
    wire::{
        stream::StreamEnd,
        tls::{ClientTls, ServerTls, TlsError, TlsStream},
    },
};

/// Connection after its TLS handshake, over which a test sends arbitrary frames.
pub(super) struct Peer {
    tls: TlsStream,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    pub(super) chunks: u64,
    /// Number of data frames that the other end permits on this connection.
    pub(super) credit: u64,
    seq: u64,
}

impl Peer {
    /// Connects from the loopback address `from` with the key of `identity`; trusts any server.
    pub(super) async fn connect(
        from: [u8; 4],
        to: SocketAddr,
        identity: &Identity,
    ) -> Result<Self, TlsError> {
        Self::connect_as(b"nicstripe/1", from, to, identity).await
    }

    /// Like `connect`, with another ALPN name.
    pub(super) async fn connect_as(
        protocol: &[u8],
        from: [u8; 4],
        to: SocketAddr,
        identity: &Identity,
    ) -> Result<Self, TlsError> {
        let tls = ClientTls::new(identity, std::sync::Arc::new(|_| true)).offering(protocol);
        TlsStream::connect(tcp(from, to).await, &tls, soon())
            .await
            .map(Self::new)
    }

    /// Accepts the next connection with the key of `identity`; trusts any client.
    pub(super) async fn accept(
        listener: &TcpListener,
        identity: &Identity,
    ) -> Result<Self, TlsError> {
        let (tcp, _) = listener.accept().await.unwrap();
        let tls = ServerTls::new(identity, std::sync::Arc::new(|_| true));
        TlsStream::accept(tcp, &tls, soon(), ready(()))
            .await
            .map(Self::new)
    }

    fn new(tls: TlsStream) -> Self {
        Self {
            tls,
            decoder: Decoder::new(),
            frames: VecDeque::new(),
            chunks: 0,
            credit: 0,
            seq: 0,
        }
    }

    /// Sends a hello for a session, and returns the daemon's answer.
    pub(super) async fn greet(
        &mut self,
        session: SessionId,
        new: bool,
    ) -> Result<Result<Welcome, RefusalCode>, StreamEnd> {
        self.send(&Frame::Hello(
            minicbor::to_vec(hello(session, new)).unwrap(),
        ))
        .await?;
        match self.next().await? {
            Frame::Welcome(body) => Ok(Ok(minicbor::decode(&body).unwrap())),
            Frame::Refuse(body) => Ok(Err(minicbor::decode::<Refusal>(&body).unwrap().code)),
            frame => panic!("{frame:?} in answer to a hello"),
        }
    }

    /// Sends a hello for a session. Returns the daemon's refusal, or `None` if it is welcome.
    pub(super) async fn refused(&mut self, session: SessionId, new: bool) -> Option<RefusalCode> {
        self.greet(session, new).await.unwrap().err()
    }

    pub(super) async fn session(from: [u8; 4], to: SocketAddr, identity: &Identity) -> Self {
        let mut peer = Self::connect(from, to, identity).await.unwrap();
        assert_eq!(peer.refused(SessionId(random_bytes()), true).await, None);
        peer
    }

    /// Waits for a client's hello and answers it with `answer`.
    pub(super) async fn answer(&mut self, answer: &Frame) -> Result<(), StreamEnd> {
        let frame = self.next().await?;
        assert!(matches!(frame, Frame::Hello(_)), "{frame:?}");
        self.send(answer).await
    }

    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), StreamEnd> {
        self.send_bytes(&framed(frame)).await
    }

    /// Sends a control message with the next sequence number.
    pub(super) async fn say(&mut self, message: &Message) -> Result<(), StreamEnd> {
        self.seq += 1;
        self.send_bytes(&control(self.seq - 1, message)).await
    }

    pub(super) async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), StreamEnd> {
        self.tls.queue(&[bytes])?;
        while self.tls.queued() > 0 {
            self.tls.ready(false, true).await?;
            self.tls.try_flush()?;
        }
        Ok(())
    }

    /// Returns the next frame other than data. Fails at the end of the connection, or after 20 s
    /// without a frame.
    pub(super) async fn next(&mut self) -> Result<Frame, StreamEnd> {
        tokio::time::timeout(Duration::from_secs(20), self.receive())
            .await
            .unwrap_or(Err(StreamEnd::Tls(TlsError::TimedOut)))
    }

    /// Returns and acknowledges the next control message. Answers heartbeats in the meantime.
    pub(super) async fn message(&mut self) -> Result<Message, StreamEnd> {
        loop {
            let frame = self.next().await?;
            if let Some(message) = self.react(&frame).await? {
                return Ok(message);
            }
        }
    }

    /// Answers a heartbeat, or acknowledges a control message and returns it.
    pub(super) async fn react(&mut self, frame: &Frame) -> Result<Option<Message>, StreamEnd> {
        match frame {
            Frame::Control { seq, body } => {
                self.send(&Frame::ControlAck { next: seq + 1 }).await?;
                Ok(Some(minicbor::decode(body).unwrap()))
            }
            Frame::Heartbeat { sent_us, .. } => {
                let answer = Frame::Heartbeat {
                    sent_us: 1,
                    echo_us: *sent_us,
                };
                self.send(&answer).await.map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Waits for a message from which `pick` returns a value, and skips others.
    pub(super) async fn told<T>(&mut self, pick: impl Fn(Message) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(within(self.message()).await.unwrap()) {
                return picked;
            }
        }
    }

    pub(super) async fn accepted(&mut self) -> Accept {
        self.told(|message| match message {
            Message::Accept(accept) => Some(accept),
            _ => None,
        })
        .await
    }

    /// Sends a request to the daemon, and returns its answer.
    pub(super) async fn asked(&mut self, kind: AskKind) -> AnswerKind {
        self.say(&ask(kind)).await.unwrap();
        self.told(|message| match message {
            Message::Answer(Answer { id: 1, answer }) => Some(answer),
            _ => None,
        })
        .await
    }

    /// Answers heartbeats until the peer ends the connection. Returns the kind of end.
    pub(super) async fn end(&mut self) -> StreamEnd {
        loop {
            if let Err(end) = self.message().await {
                return end;
            }
        }
    }

    async fn receive(&mut self) -> Result<Frame, StreamEnd> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                if let Frame::Credit { frames } = frame {
                    self.credit = frames;
                }
                return Ok(frame);
            }
            self.tls.ready(true, false).await?;
            let (decoder, frames, chunks) = (&mut self.decoder, &mut self.frames, &mut self.chunks);
            let received = self.tls.try_receive(|mut plaintext: &[u8]| {
                while let Some(piece) = decoder.next(&mut plaintext)? {
                    match piece {
                        Piece::Frame(frame) => frames.push_back(frame),
                        Piece::DataEnd => *chunks += 1,
                        _ => {}
                    }
                }
                Ok::<(), StreamEnd>(())
            })?;
            if received.peer_closed && self.frames.is_empty() {
                return Err(StreamEnd::Closed);
            }
        }
    }
}

pub(super) fn framed(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

pub(super) fn control(seq: u64, message: &Message) -> Vec<u8> {
    let body = minicbor::to_vec(message).unwrap();
    framed(&Frame::Control { seq, body })
}

/// Returns a data frame with one uncompressed chunk.
pub(super) fn chunk(
    transfer: TransferId,
    index: u64,
    bytes: &[u8],
    value: ChainingValue,
) -> Vec<u8> {
    let mut framed = Vec::new();
    DataHeader {
        transfer,
        chunk: ChunkId(index),
        value,
        len: bytes.len() as u32,
        raw_len: 0,
        last: false,
    }
    .encode(&mut framed);
    framed.extend_from_slice(bytes);
    framed
}

pub(super) fn offer(transfer: TransferId, size: u64) -> Offer {
    let source = SourceIdentity {
        size,
        ..SourceIdentity::default()
    };
    Offer {
        transfer,
        source,
        chunk_log2: 18,
        mode: 0o644,
        kind: None,
        data: None,
        object: None,
    }
}

pub(super) fn put(transfer: u32, file: &str, size: u64) -> Put {
    Put {
        name: name(file),
        offer: offer(TransferId(transfer), size),
        options: PutOptions::default(),
        into: None,
        entry: None,
        attributes: None,
    }
}

pub(super) fn get(transfer: u32, file: &str) -> Get {
    Get {
        transfer: TransferId(transfer),
        name: name(file),
        limit_bps: Some(1),
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    }
}

pub(super) fn ask(ask: AskKind) -> Message {
    Message::Ask(Ask { id: 1, ask })
}

pub(super) fn cancel(transfer: TransferId) -> Message {
    Message::Fail(Fail {
        transfer,
        code: FailCode::Cancelled,
        text: String::new(),
        resumable: false,
    })
}

pub(super) fn hello(session: SessionId, new: bool) -> Hello {
    Hello {
        version: VERSION,
        session,
        new,
        path: 0,
        interface: None,
        interfaces: None,
        cap_bps: None,
        padding: None,
        features: None,
        program: None,
        limit_bps: None,
    }
}

/// Returns the welcome of an honest daemon on loopback.
pub(super) fn plain_welcome() -> Welcome {
    Welcome {
        version: VERSION,
        arrival: Some("lo".into()),
        interfaces: Some(Vec::new()),
        padding: None,
        root: None,
        features: None,
        program: None,
    }
}

/// Opens a TCP connection to `to` from the loopback address `from`.
pub(super) async fn tcp(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
