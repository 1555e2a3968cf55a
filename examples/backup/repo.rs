//! Access to a repository at a daemon. Each file's name is the hash of its content.

use std::collections::HashMap;

use nicstripe::{Client, CopyOptions, FailCode, Name};

use crate::{
    Result,
    format::{Hash, Index, Node, Place, Places, Snapshot},
    retried,
};

/// Repository in the directory `dir` at a daemon. Clones share the session.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    pub(crate) client: Client,
    pub(crate) dir: Name,
}

impl Repo {
    pub(crate) async fn init(&self) -> Result<()> {
        for kind in [PACKS, INDEXES, SNAPSHOTS] {
            let dir = self.dir.join(kind)?;
            retried(|| self.client.make_dir(&dir)).await?;
        }
        let config = self.dir.join(CONFIG)?;
        match retried(|| self.client.write(&config, FORMAT, CopyOptions::default())).await {
            Err(error) if error.fail_code() == Some(FailCode::Exists) => {
                Err("repository exists".into())
            }
            written => written.map(drop).map_err(Into::into),
        }
    }

    pub(crate) async fn list(&self) -> Result<()> {
        for (
            name,
            Snapshot {
                time, files, bytes, ..
            },
        ) in self.snapshots().await?
        {
            println!("{} at {time}: {files} files, {bytes} bytes", name.hex());
        }
        Ok(())
    }

    pub(crate) async fn check(&self, read_data: bool) -> Result<()> {
        let mut packs: HashMap<Hash, u64> = self.names(PACKS).await?.into_iter().collect();
        let indexes = self.indexes().await?;
        for (pack, chunks) in indexes.iter().flat_map(|index| &index.packs) {
            let len: u64 = chunks.iter().map(|(_, len)| u64::from(*len)).sum();
            if packs.remove(pack) != Some(len) {
                return Err(format!("pack {} of {len} bytes is missing", pack.hex()).into());
            }
            if read_data {
                self.get(PACKS, pack).await?;
            }
        }
        let places = places_in(&indexes);
        let snapshots = self.snapshots().await?;
        for (name, snapshot) in &snapshots {
            let nodes = self.manifest(&places, snapshot).await?;
            let lens = nodes.iter().flat_map(Node::chunks).map(|chunk| {
                places
                    .get(chunk)
                    .map(|place| place.bytes.end - place.bytes.start)
            });
            if lens.sum::<Option<u64>>() != Some(snapshot.bytes) {
                return Err(format!("chunks of snapshot {} are missing", name.hex()).into());
            }
        }
        println!(
            "{} snapshots, {} chunks: no errors",
            snapshots.len(),
            places.len()
        );
        if !packs.is_empty() {
            println!(
                "{} unreferenced packs, of an interrupted or running backup",
                packs.len()
            );
        }
        Ok(())
    }

    /// Writes a file. Returns the hash of its content, which is also its name. An existing file of
    /// that name counts as success.
    pub(crate) async fn put(&self, kind: &[u8], bytes: Vec<u8>) -> Result<Hash> {
        let hash = Hash::of(&bytes);
        let name = self.name(kind, &hash)?;
        match retried(|| self.client.write(&name, &bytes, CopyOptions::default())).await {
            Err(error) if error.fail_code() != Some(FailCode::Exists) => Err(error.into()),
            _ => Ok(hash),
        }
    }

    /// Reads a file. Returns an error if the hash of the content differs from the name.
    pub(crate) async fn get(&self, kind: &[u8], hash: &Hash) -> Result<Vec<u8>> {
        let name = self.name(kind, hash)?;
        let bytes = retried(|| self.client.read(&name, None)).await?;
        if Hash::of(&bytes) != *hash {
            return Err(format!("{name} is damaged").into());
        }
        Ok(bytes)
    }

    pub(crate) fn name(&self, kind: &[u8], hash: &Hash) -> Result<Name> {
        Ok(self.dir.join(kind)?.join(hash.hex().as_bytes())?)
    }

    /// Returns the hash and the size in bytes of each file in a directory of the repository.
    pub(crate) async fn names(&self, kind: &[u8]) -> Result<Vec<(Hash, u64)>> {
        let dir = self.dir.join(kind)?;
        let entries = retried(|| self.client.list(Some(&dir))).await?;
        entries
            .iter()
            .map(|entry| Ok((Hash::named(entry.name.file_name())?, entry.stat.size)))
            .collect()
    }

    async fn indexes(&self) -> Result<Vec<Index>> {
        let config = self.dir.join(CONFIG)?;
        if retried(|| self.client.read(&config, None)).await? != FORMAT {
            return Err("unknown repository format".into());
        }
        let mut indexes = Vec::new();
        for (name, _) in self.names(INDEXES).await? {
            indexes.push(minicbor::decode(&self.get(INDEXES, &name).await?)?);
        }
        Ok(indexes)
    }

    pub(crate) async fn places(&self) -> Result<Places> {
        Ok(places_in(&self.indexes().await?))
    }

    /// Returns all snapshots, the oldest first.
    pub(crate) async fn snapshots(&self) -> Result<Vec<(Hash, Snapshot)>> {
        let mut snapshots = Vec::new();
        for (name, _) in self.names(SNAPSHOTS).await? {
            snapshots.push((
                name,
                minicbor::decode::<Snapshot>(&self.get(SNAPSHOTS, &name).await?)?,
            ));
        }
        snapshots.sort_by_key(|(_, snapshot)| snapshot.time);
        Ok(snapshots)
    }
}

fn places_in(indexes: &[Index]) -> Places {
    let mut places = Places::new();
    for (pack, chunks) in indexes.iter().flat_map(|index| &index.packs) {
        let mut start = 0;
        for (chunk, len) in chunks {
            let end = start + u64::from(*len);
            places.insert(
                *chunk,
                Place {
                    pack: *pack,
                    bytes: start..end,
                },
            );
            start = end;
        }
    }
    places
}

pub(crate) const PACKS: &[u8] = b"packs";
pub(crate) const INDEXES: &[u8] = b"indexes";
pub(crate) const SNAPSHOTS: &[u8] = b"snapshots";
const CONFIG: &[u8] = b"config";
const FORMAT: &[u8] = b"nicstripe example backup 1\n";
