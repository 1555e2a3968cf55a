//! Client or daemon end of a connection whose frames a test scripts.

use std::{
    collections::VecDeque,
    future::ready,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Decoder, Frame, Message, Piece, SessionId,
    message::{Hello, Refusal, RefusalCode, VERSION, Welcome},
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{
    trust::Identity,
    wire::{
        stream::StreamEnd,
        tls::{ClientTls, ServerTls, TlsError, TlsStream},
    },
};

/// Connection after its TLS handshake, over which a test sends arbitrary frames.
pub(super) struct Wire {
    tls: TlsStream,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    pub(super) chunks: u64,
    seq: u64,
}

impl Wire {
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

    pub(super) async fn session(from: [u8; 4], to: SocketAddr, identity: &Identity) -> Self {
        let mut wire = Self::connect(from, to, identity).await.unwrap();
        wire.greet(SessionId(crate::trust::random::random_bytes()), true)
            .await
            .unwrap()
            .unwrap();
        wire
    }

    /// Waits for a client's hello and answers it with `welcome`.
    pub(super) async fn welcome(&mut self, welcome: &Welcome) -> Result<(), StreamEnd> {
        self.answer(&Frame::Welcome(minicbor::to_vec(welcome).unwrap()))
            .await
    }

    /// Waits for a client's hello and answers it with `answer`.
    pub(super) async fn answer(&mut self, answer: &Frame) -> Result<(), StreamEnd> {
        let frame = self.next().await?;
        assert!(matches!(frame, Frame::Hello(_)), "{frame:?}");
        self.send(answer).await
    }

    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), StreamEnd> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes).await
    }

    /// Sends a control message with the next sequence number.
    pub(super) async fn say(&mut self, message: &Message) -> Result<(), StreamEnd> {
        self.say_bytes(minicbor::to_vec(message).unwrap()).await
    }

    pub(super) async fn say_bytes(&mut self, body: Vec<u8>) -> Result<(), StreamEnd> {
        self.seq += 1;
        self.send(&Frame::Control {
            seq: self.seq - 1,
            body,
        })
        .await
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
            match self.next().await? {
                Frame::Control { seq, body } => {
                    self.send(&Frame::ControlAck { next: seq + 1 }).await?;
                    return Ok(minicbor::decode(&body).unwrap());
                }
                Frame::Heartbeat { sent_us, .. } => {
                    self.send(&Frame::Heartbeat {
                        sent_us: 1,
                        echo_us: sent_us,
                    })
                    .await?;
                }
                _ => {}
            }
        }
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
                return Ok(frame);
            }
            self.tls.ready(true, false).await?;
            let (decoder, frames, chunks) = (&mut self.decoder, &mut self.frames, &mut self.chunks);
            let received = self.tls.try_receive(|mut plaintext| {
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
