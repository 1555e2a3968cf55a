//! Fetch by one request over one link, for servers without ranges or without a version.

use std::{path::PathBuf, sync::Arc, time::Duration};

use nicstripe::{
    CopyOptions, Digest, ETag, Event, FileError, LinkName, LinkProgress, LinkReport, LinkState,
    Progress, Report,
    storage::{LocalPart, LocalRequest},
};
use nicstripe_proto::BitRate;
use reqwest::{Response, header::HeaderMap};
use tokio::{io::AsyncWriteExt as _, time::timeout};
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use crate::{
    answer::{Answer, Version},
    ask::{Found, Link, Wish},
    blocking::blocking,
    clock::now,
    error::{Breach, LinkError, WebError},
    fetched::Fetched,
    moving::{Pauses, Tell, UNKNOWN},
    parts::{Destination, check},
    proof::{Algorithm, Expected, Hashing, Proof},
    target::Output,
};

/// Fetch of a file that nothing can continue.
pub(crate) struct Whole<'a> {
    pub(crate) link: &'a Link,
    pub(crate) found: &'a Found,
    pub(crate) preserve: bool,
    /// Digest that the caller expects, and the proof that it is.
    pub(crate) expected: Option<(Expected, Proof)>,
    pub(crate) stop: CancellationToken,
    pub(crate) tell: Tell,
}

/// Where the bytes of one attempt go.
enum Sink<'a> {
    File(Arc<LocalPart>),
    Stream(Output<'a>),
}

/// Why an attempt failed.
enum Failed {
    /// Another attempt may help.
    Link(LinkError),
    All(WebError),
}

impl From<WebError> for Failed {
    fn from(error: WebError) -> Self {
        Self::All(error)
    }
}

impl From<LinkError> for Failed {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Breach> for Failed {
    fn from(breach: Breach) -> Self {
        Self::Link(breach.into())
    }
}

impl Whole<'_> {
    pub(crate) async fn fetch(&self, mut target: Destination<'_>) -> Result<Fetched, WebError> {
        let mut pauses = Pauses::default();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut at = 0;
            let error = match self.attempt(&mut target, &mut at).await {
                Ok(fetched) => return Ok(fetched),
                Err(Failed::All(error)) => return Err(error),
                Err(Failed::Link(error)) => error,
            };
            // Bytes cannot be taken back from a stream.
            let is_over = at > 0 && matches!(target, Destination::Stream(_));
            if is_over || error.is_final() || attempt == MOST_ATTEMPTS {
                return Err(WebError::NoAnswer {
                    url: self.link.asked.url.to_string(),
                    causes: vec![(self.link.shown(), error)],
                    resumable: false,
                });
            }
            tracing::info!(interface = self.link.interface, %error, "begins again");
            let pausing = tokio::time::sleep(pauses.after(&error));
            self.unless_stopped(pausing).await?;
        }
    }

    /// Fetches from the first byte on. `at` becomes the number of bytes that were written.
    async fn attempt(&self, target: &mut Destination<'_>, at: &mut u64) -> Result<Fetched, Failed> {
        let sending = self
            .link
            .asked
            .send(self.link, &self.found.location, Wish::Whole);
        let response = self.unless_stopped(sending).await??;
        let version = match Answer::of(response.status(), response.headers())? {
            Answer::Whole(version) => version,
            Answer::Part { .. } => return Err(Breach::Range("unasked".to_owned()).into()),
        };
        let sink = match target {
            Destination::File(path, copy) => Sink::File(Arc::new(
                begin(path.clone(), *copy, &version, self.preserve).await?,
            )),
            Destination::Stream(output) => Sink::Stream(&mut **output),
        };
        (self.tell)(Event::Started {
            size: version.size.unwrap_or_default(),
            resumed: 0,
        });
        self.receive(response, version.size, sink, at).await
    }

    async fn receive(
        &self,
        mut response: Response,
        size: Option<u64>,
        mut sink: Sink<'_>,
        at: &mut u64,
    ) -> Result<Fetched, Failed> {
        let expected = self
            .expected
            .clone()
            .or_else(|| promised(response.headers()));
        let began = now();
        let mut hashing = (
            Hashing::new(Algorithm::Blake3),
            expected
                .as_ref()
                .map(|(expected, _)| Hashing::new(expected.algorithm)),
        );
        let mut told = began;
        loop {
            let arriving = timeout(SILENCE, response.chunk());
            let piece = match self.unless_stopped(arriving).await? {
                Ok(piece) => piece.map_err(LinkError::of_request)?,
                Err(_) => return Err(LinkError::Silent(SILENCE.as_secs()).into()),
            };
            let Some(piece) = piece else { break };
            let end = *at + piece.len() as u64;
            if size.is_some_and(|size| end > size) {
                return Err(Breach::Long.into());
            }
            hashing = sink.write(piece, *at, hashing).await?;
            *at = end;
            if now() - told >= Duration::from_millis(100) {
                told = now();
                let rate = BitRate::from_bytes_over(end, told - began);
                (self.tell)(Event::Progress(self.progress(end, size, rate)));
            }
        }
        if let Some(missing) = size.map(|size| size - *at).filter(|missing| *missing > 0) {
            return Err(Breach::Short { missing }.into());
        }
        let digest = hashing.0.finish().try_into().map(Digest).ok();
        let proof = match (expected, hashing.1) {
            (Some((expected, proof)), Some(found)) => {
                let checked = check(&expected, &found.finish(), &self.link.asked.url);
                checked.inspect_err(|_| sink.discard())?;
                proof
            }
            _ if size.is_some() => Proof::Length,
            _ => Proof::None,
        };
        let etag = sink.commit(digest).await?;
        let mut report = Report::default();
        (report.size, report.wire_bytes, report.digest, report.etag) = (*at, *at, digest, etag);
        report.moving = now() - began;
        let mut of_link = LinkReport::new(self.name());
        (of_link.bytes, of_link.wire_bytes, of_link.state) = (*at, *at, LinkState::Up);
        report.links.push(of_link);
        Ok(Fetched::new(report, proof))
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, WebError> {
        tokio::select! {
            done = work => Ok(done),
            () = self.stop.cancelled() => Err(WebError::Cancelled { resumable: false }),
        }
    }

    fn progress(&self, bytes: u64, size: Option<u64>, rate: BitRate) -> Progress {
        let mut progress = Progress::default();
        (progress.bytes, progress.size, progress.open, progress.rate) =
            (bytes, size.unwrap_or(bytes), size.is_none(), rate);
        let mut of_link = LinkProgress::new(self.name());
        (of_link.bytes, of_link.rate, of_link.state) = (bytes, rate, LinkState::Up);
        progress.links.push(of_link);
        progress
    }

    fn name(&self) -> LinkName {
        let remote = self.found.remote.unwrap_or(UNKNOWN);
        LinkName::new(self.link.interface.clone(), remote)
    }
}

/// Opens a file that is begun from zero.
async fn begin(
    path: PathBuf,
    mut copy: CopyOptions,
    version: &Version,
    preserve: bool,
) -> Result<LocalPart, WebError> {
    let mut request = LocalRequest::new(0, [0; 32]);
    request.size = version.size;
    request.modified = version.modified_at();
    request.mode = version.mode.filter(|_| preserve);
    copy.restart = true;
    blocking(move || Ok(LocalPart::begin(&path, request, copy)?.0)).await
}

/// Returns the digest of the content that the headers of a whole answer promise.
fn promised(headers: &HeaderMap) -> Option<(Expected, Proof)> {
    let expected = Expected::of_headers(headers)?;
    let proof = Proof::Promised(expected.algorithm);
    Some((expected, proof))
}

type Hashes = (Hashing, Option<Hashing>);

impl Sink<'_> {
    async fn write(&mut self, piece: Bytes, at: u64, mut hashes: Hashes) -> Result<Hashes, Failed> {
        let update = move |piece: &Bytes| {
            hashes.0.update(piece);
            if let Some(other) = &mut hashes.1 {
                other.update(piece);
            }
            hashes
        };
        match self {
            Self::Stream(output) => {
                let hashes = update(&piece);
                output.write_all(&piece).await.map_err(WebError::Output)?;
                Ok(hashes)
            }
            Self::File(part) => {
                let part = part.clone();
                let written = blocking(move || {
                    let hashes = update(&piece);
                    let written = part.write_all_at(&piece, at);
                    written.map_err(|error| FileError::new("write", "the file", error))?;
                    Ok(hashes)
                });
                Ok(written.await?)
            }
        }
    }

    fn discard(&self) {
        if let Self::File(part) = self {
            part.discard();
        }
    }

    async fn commit(&mut self, digest: Option<Digest>) -> Result<Option<ETag>, WebError> {
        match self {
            Self::File(part) => {
                let part = part.clone();
                blocking(move || Ok(part.commit(digest)?)).await
            }
            Self::Stream(output) => output
                .flush()
                .await
                .map(|()| None)
                .map_err(WebError::Output),
        }
    }
}

/// Downloads from the first byte on after which a server is given up.
const MOST_ATTEMPTS: u32 = 6;

/// Silence after which the only request is given up, and begun again.
const SILENCE: Duration = Duration::from_secs(30);
