//! Small files, which requests and answers carry.

use std::time::Instant;

use nicstripe_proto::{
    FailCode, Name, ObjectAttributes, TransferId,
    message::{AnswerKind, AskKind, Carried, Feature, GetRange, MOST_CARRIED, OfferKind, Write},
};

use super::{handle::Client, objects::Content};
use crate::{
    file::options::CopyOptions,
    report::{Report, error::Error},
    session::kind::{Upload, stream_offer},
    storage::Stat,
};

impl Client {
    /// Writes a small file in one round trip. Returns `None` if it takes a transfer: the file is too
    /// long, its options or a rate limit need one, or the daemon accepts no content in requests.
    pub(super) async fn write_at_once(
        &self,
        name: &Name,
        bytes: &[u8],
        options: CopyOptions,
        attributes: &ObjectAttributes,
    ) -> Result<Option<Report>, Error> {
        let started = Instant::now();
        let is_special = options.slice.is_some() || options.delta || options.in_place;
        if bytes.len() > MOST_CARRIED || is_special {
            return Ok(None);
        }
        let upload = Upload {
            name: name.clone(),
            into: None,
            options: options.on_wire(),
            attributes: Some(attributes.clone()).filter(|attributes| !attributes.is_empty()),
        };
        let write = Write {
            put: upload.put(stream_offer(TransferId(0), OfferKind::Pipe, 0o666)),
            content: Carried::new(bytes.to_vec()),
        };
        let (size, digest) = (bytes.len() as u64, write.content.digest);
        let etag = match self.at_once(AskKind::Write(Box::new(write))).await? {
            Some(AnswerKind::Written { etag }) => etag,
            Some(_) => return Err(self.nonsense()),
            None => return Ok(None),
        };
        let elapsed = started.elapsed();
        Ok(Some(Report {
            size,
            digest: Some(digest),
            etag,
            wire_bytes: size,
            elapsed,
            moving: elapsed,
            ..Report::default()
        }))
    }

    /// Reads a small file or range in one round trip. Returns `None` if it takes a transfer.
    pub(super) async fn read_at_once(
        &self,
        name: &Name,
        range: Option<GetRange>,
    ) -> Result<Option<Content>, Error> {
        if range.is_some_and(|range| range.len > MOST_CARRIED as u64) {
            return Ok(None);
        }
        let name = name.clone();
        let file = match self.at_once(AskKind::Read { name, range }).await? {
            Some(AnswerKind::Content { file: Some(file) }) => file,
            Some(AnswerKind::Content { file: None }) | None => return Ok(None),
            Some(_) => return Err(self.nonsense()),
        };
        if !file.content.is_intact() {
            let text = "sent content that differs from its digest";
            return Err(Error::peer(self.host(), FailCode::Digest, text.into()));
        }
        Ok(Some(Content {
            stat: Stat::of_wire(file.stat),
            bytes: file.content.bytes,
        }))
    }

    /// Sends a request that carries content, or whose answer does. Returns `None` without sending it if
    /// there is a rate limit, which only chunks obey, or the daemon does not know it.
    async fn at_once(&self, ask: AskKind) -> Result<Option<AnswerKind>, Error> {
        if self.inner.settings.session.is_limited() {
            return Ok(None);
        }
        match self.ask_for(Feature::Small, ask).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
