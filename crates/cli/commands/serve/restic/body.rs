//! HTTP request bodies as byte streams.

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame};

pub(super) trait RequestBody: Body<Data = Bytes, Error: std::error::Error> + Unpin {}

impl<B: Body<Data = Bytes, Error: std::error::Error> + Unpin> RequestBody for B {}

/// Returns the next bytes of a request body; `None` at its end. Skips trailers.
pub(super) async fn next_bytes<B: RequestBody>(body: &mut B) -> Option<Result<Bytes, B::Error>> {
    loop {
        match body.frame().await?.map(Frame::into_data) {
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
            Ok(Err(_trailers)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}
