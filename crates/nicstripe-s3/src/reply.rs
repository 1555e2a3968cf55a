//! Responses, whose bodies are read from the daemon while they are sent.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{
    Response, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue},
};
use nicstripe::ObjectReader;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::protocol::{
    error::{Code, S3Error},
    xml::{DECLARATION, Xml},
};

/// Response to a request.
pub type Reply = Response<ReplyBody>;

/// Body of a response.
#[derive(Debug)]
pub struct ReplyBody(Content);

#[derive(Debug)]
enum Content {
    /// Body in memory; `None` once it was sent.
    Ready(Option<Bytes>),
    /// Object that is being read. `left` is the number of bytes still to send.
    Object {
        pieces: mpsc::Receiver<io::Result<Bytes>>,
        left: u64,
    },
    /// Result of work that takes long.
    Later(mpsc::Receiver<Bytes>),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    /// Returns the next bytes. An error ends the response early, which clients notice from the length
    /// that was announced.
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut self.get_mut().0 {
            Content::Ready(bytes) => bytes.take().map(Ok),
            Content::Object { left: 0, .. } => None,
            Content::Object { pieces, left } => {
                Some(counted(ready!(pieces.poll_recv(context)), left))
            }
            Content::Later(pieces) => ready!(pieces.poll_recv(context)).map(Ok),
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Ready(bytes) => bytes.is_none(),
            Content::Object { left, .. } => *left == 0,
            Content::Later(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Ready(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Object { left, .. } => SizeHint::with_exact(*left),
            Content::Later(_) => SizeHint::default(),
        }
    }
}

fn counted(piece: Option<io::Result<Bytes>>, left: &mut u64) -> io::Result<Bytes> {
    let piece = piece.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    let counted = piece.and_then(|bytes| match left.checked_sub(bytes.len() as u64) {
        Some(rest) => Ok((bytes, rest)),
        None => Err(io::Error::other("the object has grown")),
    });
    match counted {
        Ok((bytes, rest)) => {
            *left = rest;
            Ok(bytes)
        }
        Err(error) => {
            let why = nicstripe::chain(&error);
            tracing::warn!(error = why, left, "reading for S3 was interrupted");
            *left = 0;
            Err(error)
        }
    }
}

pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(ReplyBody(Content::Ready(None)));
    *reply.status_mut() = status;
    if status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED {
        let nothing = HeaderValue::from_static("0");
        reply.headers_mut().insert(CONTENT_LENGTH, nothing);
    }
    reply
}

/// Returns a document.
pub(crate) fn xml(status: StatusCode, document: &str) -> Reply {
    let text = format!("{DECLARATION}{document}");
    let mut reply = Response::new(ReplyBody(Content::Ready(Some(text.into()))));
    *reply.status_mut() = status;
    let kind = HeaderValue::from_static("application/xml");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

/// Sets the length of the body, which is that of the object for a request without one.
pub(crate) fn with_length(mut reply: Reply, len: u64) -> Reply {
    reply.headers_mut().insert(CONTENT_LENGTH, len.into());
    reply
}

/// Sends an object as it is read, with its memory. It is read no more once the response is dropped, or
/// the client takes nothing of it for a while.
pub(crate) fn object(
    mut reply: Reply,
    mut reader: ObjectReader,
    len: u64,
    memory: Option<OwnedSemaphorePermit>,
) -> Reply {
    let (to, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let _memory = memory;
        loop {
            let next = tokio::select! {
                next = reader.next_chunk() => next,
                // The client has gone.
                () = to.closed() => return,
            };
            let piece = match next {
                Ok(None) => return,
                Ok(Some(chunk)) => Ok(Bytes::from_owner(chunk)),
                Err(error) => Err(io::Error::from(error)),
            };
            let is_last = piece.is_err();
            let sent = timeout(MOST_STALLED, to.send(piece)).await;
            if !matches!(sent, Ok(Ok(()))) || is_last {
                return;
            }
        }
    });
    *reply.body_mut() = ReplyBody(Content::Object { pieces, left: len });
    with_length(reply, len)
}

/// Returns the document of work that may take long. After a while the response begins with spaces, so that
/// the client does not give up; an error is then its document. The work goes on without the client.
pub(crate) async fn patient(
    work: impl Future<Output = Result<String, S3Error>> + Send + 'static,
) -> Result<Reply, S3Error> {
    let mut working = tokio::spawn(work);
    match timeout(PATIENCE, &mut working).await {
        Ok(done) => Ok(xml(StatusCode::OK, &joined(done)?)),
        Err(_) => {
            let (to, pieces) = mpsc::channel(1);
            tokio::spawn(tell_later(working, to));
            let mut reply = xml(StatusCode::OK, "");
            *reply.body_mut() = ReplyBody(Content::Later(pieces));
            Ok(reply)
        }
    }
}

async fn tell_later(mut working: JoinHandle<Result<String, S3Error>>, to: mpsc::Sender<Bytes>) {
    // Nobody may wait for it any more.
    let _ = to.send(DECLARATION.into()).await;
    loop {
        match timeout(PATIENCE, &mut working).await {
            Ok(done) => {
                let document = joined(done).unwrap_or_else(|error| error_document(&error, "", ""));
                let _ = to.send(document.into()).await;
                return;
            }
            Err(_) => drop(to.try_send(" ".into())),
        }
    }
}

fn joined(
    done: Result<Result<String, S3Error>, tokio::task::JoinError>,
) -> Result<String, S3Error> {
    done.unwrap_or_else(|error| Err(S3Error::new(Code::InternalError, error.to_string())))
}

/// Returns the document of an error.
pub(crate) fn error_document(error: &S3Error, resource: &str, id: &str) -> String {
    let mut xml = Xml::plain("Error");
    xml.text("Code", error.word())
        .text("Message", &error.message)
        .text("Resource", resource)
        .text("RequestId", id);
    xml.end("Error")
}

/// Maximum time in which a client takes nothing of an object.
const MOST_STALLED: Duration = Duration::from_secs(60);

/// Chunks that wait for the client, 256 KiB each.
const AHEAD: usize = 4;

/// Time after which a response begins although its work goes on, and between two spaces. Clients wait for
/// 30 s and more.
const PATIENCE: Duration = Duration::from_secs(10);
