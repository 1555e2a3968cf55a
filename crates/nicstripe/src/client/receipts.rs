//! Outlines of files, and what receivers state about files that they have read.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::SystemTime,
};

use nicstripe_proto::{
    ChainingValue, Digest, Name, Outline, Statement,
    message::{AnswerKind, AskKind, Feature, HashedFile},
    outline::{PIECE, count_of, value_of},
};

use super::{Client, objects::Stat};
use crate::{
    file::{FileError, timestamp_of},
    report::error::Error,
    trust::{Identity, PublicKey, is_by, sign},
};

/// Statement of a machine, signed by its key, that it has read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Name of the file at the receiver: at a daemon relative to its root.
    pub name: Name,
    /// Size of the file, the values of its pieces, and its digest, which is signed.
    pub outline: Outline,
    /// Modification time.
    pub modified: SystemTime,
    /// When the file was read, by the receiver's clock.
    pub at: SystemTime,
    /// Key of the machine that the file is from.
    pub sender: PublicKey,
    /// Digest of what the sender adds, for which the receiver does not answer.
    pub words: Digest,
    /// Ed25519 signature (RFC 8032) of the statement in PROTOCOL.md, section 16.1 (Hash), by the receiver's key.
    pub signature: [u8; 64],
}

impl Receipt {
    /// States that this machine has read a file.
    ///
    /// # Errors
    ///
    /// The key cannot sign, which does not occur.
    pub fn signed_by(
        identity: &Identity,
        (name, modified): (Name, SystemTime),
        outline: Outline,
        (sender, words): (PublicKey, Digest),
    ) -> Result<Self, Error> {
        let mut receipt = Self {
            name,
            outline,
            modified,
            at: SystemTime::now(),
            sender,
            words,
            signature: [0; 64],
        };
        let signature = sign(identity, &receipt.statement().text());
        let cannot = || Error::failed("sign a receipt", io::Error::other("this key cannot sign"));
        receipt.signature = signature.ok_or_else(cannot)?;
        Ok(receipt)
    }

    /// Returns true if the machine with this key has signed all of it.
    pub fn is_by(&self, receiver: &PublicKey) -> bool {
        is_by(
            receiver.as_bytes(),
            &self.statement().text(),
            &self.signature,
        )
    }

    fn statement(&self) -> Statement {
        Statement {
            name: self.name.clone(),
            size: self.outline.size(),
            modified: timestamp_of(self.modified),
            digest: self.outline.digest(),
            at: timestamp_of(self.at),
            sender: *self.sender.as_bytes(),
            words: self.words,
        }
    }
}

/// Returns the outline of the first `size` bytes of a file, which as many threads as there are processors
/// read. Blocks.
///
/// # Errors
///
/// The file cannot be read, or is shorter.
pub fn outline_of(file: &File, size: u64) -> io::Result<Outline> {
    let count = count_of(size);
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let each = count.div_ceil(threads).max(1);
    let values = |first: u64| {
        let mut buffer = vec![0; PIECE.min(size) as usize];
        let value = |index: u64| {
            let start = index * PIECE;
            let bytes = &mut buffer[..PIECE.min(size - start) as usize];
            file.read_exact_at(bytes, start)?;
            Ok(value_of(size, index, bytes))
        };
        (first..count.min(first + each))
            .map(value)
            .collect::<io::Result<Vec<ChainingValue>>>()
    };
    let all = thread::scope(|scope| {
        let firsts = (0..count).step_by(each as usize);
        let running: Vec<_> = firsts
            .map(|first| scope.spawn(move || values(first)))
            .collect();
        let mut all = Vec::with_capacity(count as usize);
        for thread in running {
            let values = thread.join();
            all.extend(values.map_err(|_| io::Error::other("a thread has ended"))??);
        }
        Ok::<_, io::Error>(all)
    })?;
    Outline::new(size, all).ok_or_else(|| io::Error::other("it has no outline"))
}

impl Client {
    /// Has the daemon read a file, and returns its metadata and its outline. No data crosses the links.
    ///
    /// # Errors
    ///
    /// As for [`verify`](Self::verify); the file has more than 8 TiB; the daemon does not support it ([`Error::Unsupported`]).
    pub async fn outline(&self, name: &Name) -> Result<(Stat, Outline), Error> {
        let (file, outline) = self.read_there(name, Digest::NONE).await?;
        let mut stat = Stat::of_wire(file.stat);
        stat.digest = Some(outline.digest());
        Ok((stat, outline))
    }

    /// Has the daemon read a file and state what it has read, signed by its key. `words` is the BLAKE3
    /// digest of what this program adds, for which the daemon does not answer. No data crosses the links.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// use nicstripe::{Digest, Name};
    ///
    /// let receipt = client.receipt(&Name::parse(b"disk.img")?, Digest([0; 32])).await?;
    /// assert!(receipt.is_by(&client.peer().await?.key));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`outline`](Self::outline).
    pub async fn receipt(&self, name: &Name, words: Digest) -> Result<Receipt, Error> {
        let (file, outline) = self.read_there(name, words).await?;
        let signed = file.signed.ok_or_else(|| self.nonsense())?;
        let receipt = Receipt {
            name: name.clone(),
            outline,
            modified: Stat::of_wire(file.stat).modified,
            at: signed.at.to_system_time().ok_or_else(|| self.nonsense())?,
            sender: self.inner.identity.public_key(),
            words,
            signature: signed.signature,
        };
        match receipt.is_by(&self.peer().await?.key) {
            true => Ok(receipt),
            false => Err(self.nonsense()),
        }
    }

    async fn read_there(&self, name: &Name, words: Digest) -> Result<(HashedFile, Outline), Error> {
        let moved = AtomicU64::new(0);
        let once = || self.hash_once(name, Some(words), &moved);
        let (file, values) = self.in_parts(None, &moved, once).await?;
        let outline = Outline::new(file.stat.size, values);
        match outline.filter(|outline| outline.digest() == file.digest) {
            Some(outline) => Ok((file, outline)),
            None => Err(self.nonsense()),
        }
    }

    /// Has the daemon read a file in one session, part by part. `moved` is how far any attempt came.
    pub(super) async fn hash_once(
        &self,
        name: &Name,
        words: Option<Digest>,
        moved: &AtomicU64,
    ) -> Result<(HashedFile, Vec<ChainingValue>), Error> {
        let feature = match words {
            Some(_) => Feature::Receipts,
            None => Feature::Objects,
        };
        let session = self.session_with(feature).await?;
        let (mut offset, mut all) = (0, Vec::new());
        let file = loop {
            let part = AskKind::Hash {
                name: name.clone(),
                offset,
                words,
            };
            let answer = self.ask_on(&session, part).await?;
            let AnswerKind::Hashed { upto, file, values } = answer else {
                return Err(self.nonsense());
            };
            all.extend(values);
            if all.len() > MOST_PIECES {
                let why = "it has more than 8 TiB";
                return Err(FileError::refused("tell the outline of", name, why).into());
            }
            if let Some(file) = file {
                break *file;
            }
            // As many as the daemon says that it has read.
            if words.is_some() && all.len() as u64 != upto.div_ceil(PIECE) {
                return Err(self.nonsense());
            }
            moved.fetch_max(upto, Ordering::Relaxed);
            offset = upto;
        };
        match file.stat.digest {
            Some(kept) if kept != file.digest => Err(Error::Damaged {
                host: self.host().to_owned(),
                name: name.clone(),
                found: file.digest,
                kept,
            }),
            _ => Ok((file, all)),
        }
    }
}

/// Most pieces of an outline, which a hostile daemon could tell without an end: 256 MiB of memory.
const MOST_PIECES: usize = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_of_a_file_is_that_of_its_bytes() {
        for size in [0, 1, PIECE, PIECE + 1, 9 * PIECE + 3] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 239) as u8).collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let outline = outline_of(file.as_file(), size).unwrap();
            assert_eq!(outline.digest().0, *blake3::hash(&bytes).as_bytes());
            assert!(outline_of(file.as_file(), size + 1).is_err());
        }
    }

    #[test]
    fn a_receipt_is_by_its_signer_and_only_as_it_was_signed() {
        let (ours, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "content").unwrap();
        let outline = outline_of(file.as_file(), 7).unwrap();
        let from = (other.public_key(), Digest([1; 32]));
        let name = Name::parse(b"a").unwrap();
        let file = (name, SystemTime::UNIX_EPOCH);
        let receipt = Receipt::signed_by(&ours, file, outline, from).unwrap();
        assert!(receipt.is_by(&ours.public_key()) && !receipt.is_by(&other.public_key()));
        let words = Digest([2; 32]);
        let altered = Receipt { words, ..receipt };
        assert!(!altered.is_by(&ours.public_key()));
    }
}
