//! HTTP request bodies as byte streams.

use std::{future::poll_fn, pin::Pin};

use hyper::body::{Body, Bytes};

/// Trait bounds of an HTTP request body.
pub(super) trait RequestBody: Body<Data = Bytes, Error: std::error::Error> + Unpin {}

impl<B: Body<Data = Bytes, Error: std::error::Error> + Unpin> RequestBody for B {}

/// Returns the next bytes of a request body; `None` at its end. Skips trailers.
pub(super) async fn next_bytes<B: RequestBody>(body: &mut B) -> Option<Result<Bytes, B::Error>> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await? {
            Ok(frame) => match frame.into_data() {
                Ok(bytes) => return Some(Ok(bytes)),
                Err(_trailers) => {}
            },
            Err(error) => return Some(Err(error)),
        }
    }
}
