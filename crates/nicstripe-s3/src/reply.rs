//! Responses, whose bodies are read from the daemon while they are sent.

use std::{io, time::Duration};

use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
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

/// Body of a response. An error ends it early, which clients notice from the length that was announced.
pub type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

fn ready(bytes: impl Into<Bytes>) -> ReplyBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Returns the body of an object that is being read. `left` is the number of bytes to send.
fn read(pieces: mpsc::Receiver<io::Result<Bytes>>, left: u64) -> ReplyBody {
    let next = |(mut pieces, mut left): (mpsc::Receiver<_>, u64)| async move {
        if left == 0 {
            return None;
        }
        let piece = counted(pieces.recv().await, &mut left);
        Some((piece.map(Frame::data), (pieces, left)))
    };
    StreamBody::new(stream::unfold((pieces, left), next)).boxed_unsync()
}

/// Returns the result of work that takes long.
fn later(mut pieces: mpsc::Receiver<Bytes>) -> ReplyBody {
    let next = stream::poll_fn(move |context| pieces.poll_recv(context));
    StreamBody::new(stream::StreamExt::map(next, |bytes| Ok(Frame::data(bytes)))).boxed_unsync()
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
    let mut reply = Response::new(ready(Bytes::new()));
    *reply.status_mut() = status;
    if status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED {
        let nothing = HeaderValue::from_static("0");
        reply.headers_mut().insert(CONTENT_LENGTH, nothing);
    }
    reply
}

pub(crate) fn found(document: &str) -> Reply {
    xml(StatusCode::OK, document)
}

pub(crate) fn xml(status: StatusCode, document: &str) -> Reply {
    let text = format!("{DECLARATION}{document}");
    let mut reply = Response::new(ready(text));
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
    *reply.body_mut() = read(pieces, len);
    with_length(reply, len)
}

/// Returns the document of work that may take long. After a while the response begins with spaces, so that
/// the client does not give up; an error is then its document. The work continues without the client.
pub(crate) async fn patient(
    work: impl Future<Output = Result<String, S3Error>> + Send + 'static,
) -> Result<Reply, S3Error> {
    let mut working = tokio::spawn(work);
    match timeout(PATIENCE, &mut working).await {
        Ok(done) => Ok(found(&joined(done)?)),
        Err(_) => {
            let (to, pieces) = mpsc::channel(1);
            tokio::spawn(tell_later(working, to));
            let mut reply = found("");
            *reply.body_mut() = later(pieces);
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
    done.unwrap_or_else(|error| Err(Code::INTERNAL_ERROR.because(error.to_string())))
}

pub(crate) fn error_document(error: &S3Error, resource: &str, id: &str) -> String {
    let mut xml = Xml::plain("Error");
    xml.text("Code", error.word())
        .text("Message", &error.message)
        .text("Resource", resource)
        .text("RequestId", id);
    xml.end()
}

/// Maximum time in which a client takes nothing of an object.
const MOST_STALLED: Duration = Duration::from_secs(60);

/// Chunks that wait for the client, 256 KiB each.
const AHEAD: usize = 4;

/// Time after which a response begins although its work continues, and between two spaces. Clients wait for
/// 30 s and more.
const PATIENCE: Duration = Duration::from_secs(10);
