//! One file from several daemons that have it. Each gives as much as it is fast; one that dies or lies costs
//! its share only.
//!
//! - this module: which daemons have the same file, the copy, and who lied
//! - [`draw`]: the pieces under way
//!
//! The digest of the file is what the daemons keep or compute. If what arrived has another one, a daemon
//! that has the file right sends its [outline](Outline): no other outline makes that digest, so it names the
//! pieces that are wrong, whatever its source. They are fetched again from others than those that sent them.

mod draw;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, ChunkSize, Digest, FailCode, Name, Outline, Subtree, outline::PIECE,
};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use self::draw::{Draw, Source};
use super::{Client, Kind, Stat, outline_of};
use crate::{
    file::{FileError, options::CopyOptions},
    report::{Report, error::Error, event::Event},
    storage::{LocalPart, LocalRequest},
};

/// File at a daemon that has the same content as others.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Client of the daemon.
    pub client: Client,
    /// Name of the file there.
    pub name: Name,
}

/// Copy that was drawn from replicas.
#[derive(Debug)]
#[non_exhaustive]
pub struct Drawn {
    /// Report of the whole, as of a [`Client::get`].
    pub report: Report,
    /// Replicas that gave nothing, or no more, by their index.
    pub left: Vec<(usize, LeftReplica)>,
}

/// Why a replica gave nothing, or no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeftReplica {
    /// Its file has another digest or size than that of the first replica.
    #[error("it is another file")]
    Differs,
    /// It sent bytes that are not those of the file. They were not used.
    #[error("it sent other bytes, which were not used")]
    Lied,
    /// It stopped answering.
    #[error("it stopped answering")]
    Silent,
    /// It could not be asked, or was lost.
    #[error(transparent)]
    Failed(Error),
}

pub(crate) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

struct Agreed {
    digest: Digest,
    stat: Stat,
    /// Known if a daemon had to read the file.
    outline: Option<Arc<Outline>>,
}

/// Draws a file from daemons that have the same one, into the file `target`, which gets its name once it is
/// complete, has the digest of the first replica, and is durable. `tell` hears what happens, about ten times
/// a second. `stop` ends it: what arrived is kept, and the next call for a file of the same digest continues.
///
/// Of the options `replace`, `force`, `restart`, `parents` and `times` count.
///
/// ```no_run
/// # async fn example(a: nicstripe::Client, b: nicstripe::Client) -> Result<(), nicstripe::Error> {
/// use nicstripe::{CancellationToken, CopyOptions, Name, replicas::{Replica, draw}};
///
/// let name = Name::parse(b"disk.img")?;
/// let replicas = [a, b].map(|client| Replica { client, name: name.clone() });
/// let stop = CancellationToken::new();
/// let drawn = draw(&replicas, "disk.img".as_ref(), CopyOptions::default(), stop, |_| {}).await?;
/// for (index, why) in drawn.left {
///     eprintln!("replica {index}: {why}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// No replica can be asked; the last one is lost; the target exists and must not be replaced, or cannot be
/// written; no replica has what it says ([`Error::Digest`]).
pub async fn draw(
    replicas: &[Replica],
    target: &Path,
    options: CopyOptions,
    stop: CancellationToken,
    tell: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Drawn, Error> {
    let begun = Instant::now();
    let (agreed, used, mut left) = agree(replicas, &stop).await?;
    let size = agreed.stat.size;
    let mut report = Report {
        size,
        digest: Some(agreed.digest),
        ..Report::default()
    };
    if has(target, &agreed).await? {
        (report.resumed_bytes, report.elapsed) = (size, begun.elapsed());
        return Ok(Drawn { report, left });
    }
    let (part, have) = begin(target.to_owned(), &agreed, options).await?;
    let part = Arc::new(part);
    let sources: Vec<Source> = used
        .iter()
        .map(|index| Source::of(*index, &replicas[*index]))
        .collect();
    let mut draw = Draw::new(
        part.clone(),
        sources,
        have,
        (agreed.outline.clone(), stop.clone()),
        Arc::new(tell),
    );
    let resumed = draw.bytes_stored();
    let mut drawn = draw.run().await;
    if let Ok(Some(found)) = &drawn.result
        && *found != agreed.digest
    {
        let outline = match agreed.outline {
            Some(outline) => outline,
            None => outline_of_any(replicas, &used, &agreed).await?,
        };
        draw = draw.again(outline).await?;
        drawn = draw.run().await;
    }
    left.extend(draw.take_left());
    report.resumed_bytes = resumed;
    draw.add_to(&mut report);
    match drawn.result? {
        Some(found) if found == agreed.digest => {}
        Some(found) => return Err(other_digest(&replicas[used[0]], agreed.digest, found)),
        None => return Err(Error::Cancelled { resumable: true }),
    }
    let digest = Some(agreed.digest);
    let committed = spawn_blocking(move || part.commit(digest)).await;
    report.etag = committed.map_err(ended)??;
    report.elapsed = begun.elapsed();
    report.moving = report.elapsed;
    for link in &mut report.links {
        link.goodput = BitRate::from_bytes_over(link.bytes, report.elapsed);
    }
    Ok(Drawn { report, left })
}

/// Asks all replicas what they have. Returns what the first has that can be asked, and the indices of those
/// that have the same.
async fn agree(
    replicas: &[Replica],
    stop: &CancellationToken,
) -> Result<(Agreed, Vec<usize>, Vec<(usize, LeftReplica)>), Error> {
    let mut looks = JoinSet::new();
    for (index, replica) in replicas.iter().cloned().enumerate() {
        looks.spawn(async move { (index, replica.look().await) });
    }
    let mut looked = BTreeMap::new();
    loop {
        tokio::select! {
            ended = looks.join_next() => match ended {
                Some(ended) => looked.extend([ended.map_err(self::ended)?]),
                None => break,
            },
            () = stop.cancelled() => return Err(Error::Cancelled { resumable: true }),
        }
    }
    let (mut agreed, mut used, mut left) = (None::<Agreed>, Vec::new(), Vec::new());
    for (index, looked) in looked {
        match looked {
            Err(error) => left.push((index, LeftReplica::Failed(error))),
            Ok(of_it) => {
                let first = agreed.get_or_insert(of_it.clone());
                let is_same = (first.digest, first.stat.size) == (of_it.digest, of_it.stat.size);
                match is_same {
                    true => {
                        first.outline = first.outline.take().or(of_it.outline);
                        used.push(index);
                    }
                    false => left.push((index, LeftReplica::Differs)),
                }
            }
        }
    }
    if let Some(agreed) = agreed {
        return Ok((agreed, used, left));
    }
    match left.into_iter().next() {
        Some((_, LeftReplica::Failed(error))) => Err(error),
        _ => Err(FileError::refused("draw", "a file", "there is no replica").into()),
    }
}

impl Agreed {
    /// Returns true if an outline is that of the file. With another size, inner nodes of the hash tree
    /// could pass for pieces, and make the same digest.
    fn is_of(&self, outline: &Outline) -> bool {
        (outline.size(), outline.digest()) == (self.stat.size, self.digest)
    }
}

impl Clone for Agreed {
    fn clone(&self) -> Self {
        Self {
            digest: self.digest,
            stat: self.stat,
            outline: self.outline.clone(),
        }
    }
}

impl Replica {
    /// Returns what the daemon has. It reads the file unless it keeps the digest.
    async fn look(&self) -> Result<Agreed, Error> {
        let stat = self.client.stat(&self.name).await?;
        if stat.kind != Kind::File {
            let why = "it is no file";
            let error = FileError::refused("draw", &self.name, why);
            return Err(error.with_code(FailCode::NotAFile).into());
        }
        if let Some(digest) = stat.digest {
            let outline = None;
            return Ok(Agreed {
                digest,
                stat,
                outline,
            });
        }
        let (stat, outline) = self.client.outline(&self.name).await?;
        Ok(Agreed {
            digest: outline.digest(),
            stat,
            outline: Some(Arc::new(outline)),
        })
    }
}

/// Returns true if the target is the file already.
async fn has(target: &Path, agreed: &Agreed) -> Result<bool, Error> {
    let (target, size, digest) = (target.to_owned(), agreed.stat.size, agreed.digest);
    let looked = spawn_blocking(move || {
        let found = fs::symlink_metadata(&target).ok();
        if !found.is_some_and(|found| found.is_file() && found.len() == size) {
            return false;
        }
        // A file that cannot be read is no copy of it.
        let file = fs::File::open(&target).and_then(|file| outline_of(&file, size));
        file.is_ok_and(|outline| outline.digest() == digest)
    });
    looked.await.map_err(ended)
}

async fn begin(
    target: PathBuf,
    agreed: &Agreed,
    options: CopyOptions,
) -> Result<(LocalPart, Vec<Subtree>), Error> {
    let mut request = LocalRequest::new(agreed.stat.size, agreed.digest.0);
    request.chunk_size = ChunkSize::from_log2(PIECE.ilog2() as u8).unwrap_or_default();
    request.modified = options.times.then_some(agreed.stat.modified);
    let begun = spawn_blocking(move || LocalPart::begin(&target, request, options)).await;
    Ok(begun.map_err(ended)??)
}

/// Returns the outline that makes the digest, of the first replica that has it.
async fn outline_of_any(
    replicas: &[Replica],
    used: &[usize],
    agreed: &Agreed,
) -> Result<Arc<Outline>, Error> {
    let mut last = None;
    for index in used {
        let replica = &replicas[*index];
        match replica.client.outline(&replica.name).await {
            Ok((_, outline)) if agreed.is_of(&outline) => return Ok(Arc::new(outline)),
            Ok((_, outline)) => {
                last = Some(other_digest(replica, agreed.digest, outline.digest()));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::ended("replicas", "none is left")))
}

fn other_digest(replica: &Replica, expected: Digest, found: Digest) -> Error {
    Error::Damaged {
        host: replica.client.host().to_owned(),
        name: replica.name.clone(),
        found,
        kept: expected,
    }
}

fn ended(error: tokio::task::JoinError) -> Error {
    Error::failed("draw a file", std::io::Error::other(error))
}

/// Bytes and time between two records of durable pieces: a kill loses at most these.
const SYNC_BYTES: u64 = 16 << 20;
const SYNC_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use nicstripe_proto::{ChainingValue, outline::value_of};

    use super::*;

    #[test]
    fn inner_nodes_of_the_hash_tree_are_no_pieces() {
        let size = 2 * PIECE;
        let piece = vec![7; PIECE as usize];
        let values = (0..2).map(|index| value_of(size, index, &piece));
        let outline = Outline::new(size, values.collect()).unwrap();
        let agreed = Agreed {
            digest: outline.digest(),
            stat: Stat::new(Kind::File, size, SystemTime::UNIX_EPOCH),
            outline: None,
        };
        assert!(agreed.is_of(&outline));
        let root = vec![ChainingValue(agreed.digest.0)];
        let forged = Outline::new(PIECE, root).unwrap();
        assert_eq!(forged.digest(), agreed.digest);
        assert!(!agreed.is_of(&forged));
    }
}
