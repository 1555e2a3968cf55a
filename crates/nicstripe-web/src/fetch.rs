//! A whole fetch, from the first answer to the name of the file.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use nicstripe::{Event, Report};
use nicstripe_proto::BitRate;
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

use crate::{
    answer::Version,
    ask::Link,
    blocking::blocking,
    clock::now,
    contact::{Agreed, agree, ask_all, causes},
    error::WebError,
    fetched::Fetched,
    links::Links,
    moving::Tell,
    options::FetchOptions,
    parts::{Brought, Destination, Parts, Wrong},
    proof::{Expected, Hashing, Proof},
    sums,
    url::WebUrl,
    whole::Whole,
};

/// Fetch of one file.
#[derive(Debug)]
pub struct Fetch {
    url: WebUrl,
    options: FetchOptions,
}

impl Fetch {
    /// Prepares to fetch `url`.
    pub fn new(url: WebUrl, options: FetchOptions) -> Self {
        let patience = options.patience.min(LONGEST_PATIENCE);
        Self {
            url,
            options: FetchOptions {
                patience,
                ..options
            },
        }
    }

    /// Fetches into the file `target`, which gets its name once it is complete, proved and durable.
    /// `tell` hears what happens, about ten times a second. `stop` ends the fetch: what arrived is kept
    /// for the next fetch of the same version.
    ///
    /// Needs a tokio runtime with time and I/O.
    ///
    /// # Errors
    ///
    /// See [`WebError`].
    pub async fn into_file(
        self,
        target: &Path,
        stop: CancellationToken,
        tell: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Fetched, WebError> {
        let target = Destination::File(target.to_owned(), self.options.copy);
        self.run(target, stop, Arc::new(tell)).await
    }

    /// Fetches into a stream, in order, with at most 64 MiB in memory. Bytes are in the stream before
    /// they are proved: after an error, what it has must not be used. Nothing can be resumed.
    ///
    /// # Errors
    ///
    /// See [`WebError`].
    pub async fn into_stream(
        self,
        output: &mut (dyn AsyncWrite + Send + Unpin),
        stop: CancellationToken,
        tell: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Fetched, WebError> {
        let target = Destination::Stream(output);
        self.run(target, stop, Arc::new(tell)).await
    }

    async fn run(
        mut self,
        to: Destination<'_>,
        stop: CancellationToken,
        tell: Tell,
    ) -> Result<Fetched, WebError> {
        let started = now();
        if !self.options.mirrors.is_empty()
            && self.options.expected.is_none()
            && self.options.sums.is_none()
        {
            return Err(WebError::NoDigest);
        }
        let Links { links, left_out } = self.options.links(&self.url).await?;
        for (name, why) in left_out {
            tracing::debug!(interface = name, why, "not used");
        }
        let contact = async {
            let answers = ask_all(&links, self.options.patience).await;
            let expected = self.expected(&links).await?;
            Ok::<_, WebError>((answers, expected))
        };
        let (answers, mut expected) = tokio::select! {
            contact = contact => contact?,
            () = stop.cancelled() => return Err(WebError::Cancelled { resumable: false }),
        };
        let Some(agreed) = agree(&links, &answers) else {
            return Err(WebError::NoAnswer {
                url: self.url.to_string(),
                causes: causes(&links, answers),
                resumable: false,
            });
        };
        self.options.expected = expected.as_ref().map(|(expected, _)| expected.clone());
        if let Destination::File(target, _) = &to
            && let Some(proof) = self.is_present(target, &agreed.found.version).await?
        {
            let mut report = Report::default();
            report.size = agreed.found.version.size.unwrap_or_default();
            (report.resumed_bytes, report.elapsed) = (report.size, now() - started);
            return Ok(Fetched::new(report, proof));
        }
        if expected.is_none() {
            expected = promised(&links, &agreed).await;
        }
        let mut fetched = match agreed.found.can_be_dealt() {
            true => {
                let parts = Parts {
                    url: &self.url,
                    options: &self.options,
                    links,
                    answers,
                    agreed,
                    expected,
                    stop,
                    tell,
                };
                self.in_parts(to, parts).await
            }
            false => {
                let whole = Whole {
                    link: &links[agreed.link],
                    found: &agreed.found,
                    preserve: self.options.preserve,
                    expected,
                    stop,
                    tell,
                };
                whole.fetch(to).await
            }
        }?;
        fetched.report.elapsed = now() - started;
        for link in &mut fetched.report.links {
            link.goodput = BitRate::from_bytes_over(link.bytes, fetched.report.elapsed);
        }
        Ok(fetched)
    }

    /// Returns the digest that the caller expects, or the one of the file of checksums.
    async fn expected(&self, links: &[Link]) -> Result<Option<(Expected, Proof)>, WebError> {
        if let Some(expected) = &self.options.expected {
            let proof = Proof::Expected(expected.algorithm);
            return Ok(Some((expected.clone(), proof)));
        }
        let Some(url) = &self.options.sums else {
            return Ok(None);
        };
        let name = self.url.file_name().unwrap_or_default();
        let first: Vec<Link> = links
            .iter()
            .filter(|link| link.source == 0)
            .cloned()
            .collect();
        let expected = sums::look_up(&first, url, &name).await?;
        let file = url.file_name().unwrap_or_default();
        let file = nicstripe::printable(&file);
        Ok(Some((expected, Proof::Sums { file })))
    }

    /// Returns what proves that the target is the file already; `None` if it must be fetched.
    async fn is_present(
        &self,
        target: &Path,
        version: &Version,
    ) -> Result<Option<Proof>, WebError> {
        let (Some(size), Some(modified), true) = (
            version.size,
            version.modified_at(),
            self.options.unless_same,
        ) else {
            return Ok(None);
        };
        let (target, expected) = (target.to_owned(), self.options.expected.clone());
        blocking(move || {
            let found = std::fs::symlink_metadata(&target)
                .ok()
                .filter(std::fs::Metadata::is_file);
            let found = found.filter(|found| {
                found.len() == size && found.modified().is_ok_and(|time| time == modified)
            });
            let Some((_, expected)) = found.map(|found| (found, expected)) else {
                return Ok(None);
            };
            let Some(expected) = expected else {
                return Ok(Some(Proof::Present));
            };
            let mut hashing = Hashing::new(expected.algorithm);
            let hashed = std::fs::File::open(&target)
                .and_then(|mut file| std::io::copy(&mut file, &mut hashing));
            Ok((hashed.is_ok() && hashing.finish() == expected.value)
                .then_some(Proof::Expected(expected.algorithm)))
        })
        .await
    }

    /// Fetches in parts from all URLs. If the digest is wrong, each URL is tried alone, and those that
    /// sent other bytes before are named.
    async fn in_parts(&self, to: Destination<'_>, parts: Parts<'_>) -> Result<Fetched, WebError> {
        let sources = parts.agreed.versions.len();
        let Destination::File(path, copy) = to else {
            let complete = parts.fetch(None, to).await;
            return complete
                .map(|(fetched, _)| fetched)
                .map_err(|wrong| wrong.error);
        };
        let file = || Destination::File(path.clone(), copy);
        let wrong = match parts.fetch(None, file()).await {
            Ok((fetched, _)) => return Ok(fetched),
            Err(wrong) if sources > 1 && matches!(wrong.error, WebError::Digest { .. }) => wrong,
            Err(wrong) => return Err(wrong.error),
        };
        for source in 0..sources {
            if parts.agreed.versions[source].is_none() {
                continue;
            }
            tracing::warn!(source, "the digest is wrong, one URL is tried alone");
            match parts.fetch(Some(source), file()).await {
                Ok((mut fetched, brought)) => {
                    let urls = self.urls();
                    fetched.liars = liars(&wrong.brought, &brought)
                        .into_iter()
                        .map(|liar| urls[liar].to_string())
                        .collect();
                    return Ok(fetched);
                }
                Err(Wrong {
                    error: WebError::Cancelled { .. } | WebError::File(_),
                    ..
                }) if parts.stop.is_cancelled() => {
                    return Err(WebError::Cancelled { resumable: false });
                }
                Err(_) => {}
            }
        }
        Err(wrong.error)
    }

    fn urls(&self) -> Vec<&WebUrl> {
        std::iter::once(&self.url)
            .chain(&self.options.mirrors)
            .collect()
    }
}

/// Returns the URLs that brought a chunk with another value than the right one.
fn liars(brought: &Brought, right: &Brought) -> BTreeSet<usize> {
    let right: std::collections::BTreeMap<_, _> = right
        .iter()
        .map(|(chunk, _, value)| (*chunk, *value))
        .collect();
    let is_wrong = |(chunk, source, value): &(_, usize, _)| {
        right
            .get(chunk)
            .is_some_and(|right| right != value)
            .then_some(*source)
    };
    brought.iter().filter_map(is_wrong).collect()
}

/// Returns the digest that the server promises, in its first answer or for the whole file.
async fn promised(links: &[Link], agreed: &Agreed) -> Option<(Expected, Proof)> {
    let found = &agreed.found;
    let link = &links[agreed.link];
    let promised = match (&found.promised, found.can_be_dealt()) {
        (Some(promised), _) => promised.clone(),
        (None, true) => link.asked.promise(link, found).await?,
        // The one answer will have its own.
        (None, false) => return None,
    };
    let proof = Proof::Promised(promised.algorithm);
    Some((promised, proof))
}

const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
