//! HTTP responses, whose bodies are read from the storage while they are sent.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    Response, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue},
};

use super::objects::Pieces;

pub(super) type Reply = Response<ReplyBody>;

#[derive(Debug)]
pub(super) enum ReplyBody {
    /// Body in memory; `None` once it was sent.
    Ready(Option<Bytes>),
    /// Body read from the storage. `left` is the number of bytes still to send.
    Stream { pieces: Pieces, left: u64 },
    /// List whose length is not known. `first` is `None` once it was sent.
    List { first: Option<Bytes>, rest: Pieces },
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    /// Returns the next bytes of the body. An error ends the response early, which the client
    /// detects from the announced length.
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match self.get_mut() {
            Self::Ready(bytes) => bytes.take().map(Ok),
            Self::Stream { left: 0, .. } => None,
            Self::List { first, rest } => match first.take() {
                Some(first) => Some(Ok(first)),
                None => ready!(rest.poll_recv(context)).map(logged),
            },
            Self::Stream { pieces, left } => Some(take(ready!(pieces.poll_recv(context)), left)),
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ready(bytes) => bytes.is_none(),
            Self::Stream { left, .. } => *left == 0,
            Self::List { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ready(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream { left, .. } => SizeHint::with_exact(*left),
            Self::List { .. } => SizeHint::default(),
        }
    }
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
    let mut reply = Response::new(ReplyBody::Ready(None));
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
