//! HTTP responses, whose bodies are read from the storage while they are sent.

use std::io;

use futures_util::stream::{self, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue},
};

use super::objects::Pieces;

pub(super) type Reply = Response<ReplyBody>;

/// Body of a response. An error ends it early, which the client detects from the announced length.
pub(super) type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn ready(bytes: Bytes) -> ReplyBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Returns a body read from the storage. `left` is the number of bytes to send.
pub(super) fn streamed(pieces: Pieces, left: u64) -> ReplyBody {
    let next = |(mut pieces, mut left): (Pieces, u64)| async move {
        if left == 0 {
            return None;
        }
        let piece = take(pieces.recv().await, &mut left);
        Some((piece.map(Frame::data), (pieces, left)))
    };
    StreamBody::new(stream::unfold((pieces, left), next)).boxed_unsync()
}

/// Returns a list whose length is not known, with its first piece.
pub(super) fn list(first: Bytes, mut rest: Pieces) -> ReplyBody {
    let rest = stream::poll_fn(move |context| rest.poll_recv(context)).map(logged);
    let all = stream::iter([Ok(first)]).chain(rest);
    StreamBody::new(all.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

/// Logs the error that ends a list early.
fn logged(piece: io::Result<Bytes>) -> io::Result<Bytes> {
    piece.inspect_err(|error| {
        tracing::warn!(
            error = nicstripe::chain(error),
            "listing for restic was interrupted"
        );
    })
}

/// Subtracts the length of a piece from `left`, and returns the piece. Logs an error.
fn take(piece: Option<io::Result<Bytes>>, left: &mut u64) -> io::Result<Bytes> {
    let piece = piece.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    let counted = piece.and_then(|bytes| match left.checked_sub(bytes.len() as u64) {
        Some(rest) => Ok((bytes, rest)),
        None => Err(io::Error::other("the file has grown")),
    });
    match counted {
        Ok((bytes, rest)) => {
            *left = rest;
            Ok(bytes)
        }
        Err(error) => {
            tracing::warn!(
                error = nicstripe::chain(&error),
                left,
                "reading for restic was interrupted"
            );
            *left = 0;
            Err(error)
        }
    }
}

pub(super) fn status(status: StatusCode) -> Reply {
    let mut reply = Response::new(ready(Bytes::new()));
    *reply.status_mut() = status;
    with(reply, CONTENT_LENGTH, HeaderValue::from_static("0"))
}

pub(super) fn of(kind: &'static str, body: ReplyBody) -> Reply {
    with(
        Response::new(body),
        CONTENT_TYPE,
        HeaderValue::from_static(kind),
    )
}

pub(super) fn with(mut reply: Reply, name: HeaderName, value: HeaderValue) -> Reply {
    reply.headers_mut().insert(name, value);
    reply
}
