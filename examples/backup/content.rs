//! Ordered reads of the chunks of backed-up files from the daemon.

use std::collections::VecDeque;

use minicbor::Decoder;
use tokio::task::JoinHandle;

use crate::{
    Result,
    format::{Hash, Node, Place, Places, Snapshot},
    repo::{PACKS, Repo},
    retried,
};

impl Repo {
    pub(crate) async fn manifest(&self, places: &Places, snapshot: &Snapshot) -> Result<Vec<Node>> {
        let mut content = Content::new(self, places, snapshot.manifest.iter())?;
        let mut bytes = Vec::new();
        for hash in &snapshot.manifest {
            bytes.extend_from_slice(content.next(hash).await?);
        }
        let mut decoder = Decoder::new(&bytes);
        std::iter::from_fn(|| (decoder.position() < bytes.len()).then(|| Ok(decoder.decode()?)))
            .collect()
    }
}

/// Stream of chunks in the requested order. Reads adjacent chunks of a pack as one part, and
/// several parts concurrently.
#[derive(Debug)]
pub(crate) struct Content {
    repo: Repo,
    parts: VecDeque<(Place, Vec<u32>)>,
    reading: VecDeque<Reading>,
    part: Vec<u8>,
    /// Offset of the next chunk in the current part. `lens` has the lengths of the remaining chunks
    /// in bytes, the last one first.
    at: usize,
    lens: Vec<u32>,
}

/// Read in progress: the task that reads a part, and the lengths of the part's chunks in bytes.
type Reading = (JoinHandle<Result<Vec<u8>>>, Vec<u32>);

impl Content {
    pub(crate) fn new<'a>(
        repo: &Repo,
        places: &Places,
        chunks: impl Iterator<Item = &'a Hash>,
    ) -> Result<Self> {
        let mut parts: VecDeque<(Place, Vec<u32>)> = VecDeque::new();
        for chunk in chunks {
            let place = places
                .get(chunk)
                .ok_or_else(|| format!("chunk {} is missing", chunk.hex()))?;
            let len = (place.bytes.end - place.bytes.start) as u32;
            match parts.back_mut() {
                Some((last, lens))
                    if last.pack == place.pack
                        && last.bytes.end == place.bytes.start
                        && last.bytes.end < last.bytes.start + PART =>
                {
                    last.bytes.end = place.bytes.end;
                    lens.push(len);
                }
                _ => parts.push_back((place.clone(), vec![len])),
            }
        }
        Ok(Self {
            repo: repo.clone(),
            parts,
            reading: VecDeque::new(),
            part: Vec::new(),
            at: 0,
            lens: Vec::new(),
        })
    }

    /// Returns the next chunk, or an error if its hash is not `expected`.
    pub(crate) async fn next(&mut self, expected: &Hash) -> Result<&[u8]> {
        while self.lens.is_empty() {
            self.read_ahead()?;
            let (reading, mut lens) = self
                .reading
                .pop_front()
                .ok_or("more chunks than requested")?;
            lens.reverse();
            (self.part, self.at, self.lens) = (reading.await??, 0, lens);
        }
        let len = self.lens.pop().unwrap_or_default() as usize;
        let chunk = self
            .part
            .get(self.at..self.at + len)
            .filter(|chunk| Hash::of(chunk) == *expected);
        self.at += len;
        chunk.ok_or_else(|| format!("chunk {} is damaged", expected.hex()).into())
    }

    fn read_ahead(&mut self) -> Result<()> {
        while self.reading.len() < PARTS_AT_ONCE
            && let Some((place, lens)) = self.parts.pop_front()
        {
            let (client, name) = (
                self.repo.client.clone(),
                self.repo.name(PACKS, &place.pack)?,
            );
            let read =
                async move { Ok(retried(|| client.read(&name, Some(place.bytes.clone()))).await?) };
            self.reading.push_back((tokio::spawn(read), lens));
        }
        Ok(())
    }
}

/// Approximate size of a part in bytes, and number of parts read concurrently.
const PART: u64 = 4 << 20;
const PARTS_AT_ONCE: usize = 8;
