//! Digest of a file, computed in turns.

use std::ops::ControlFlow;

use nicstripe_proto::{
    ChainingValue, ChunkId, Digest, HashTree, Subtree,
    outline::{PIECE, grid_of, value_of},
};

use super::pool::TURN;

/// Digest of the first bytes of a file; each turn hashes a few MiB, so that a large file
/// does not occupy a thread.
#[derive(Debug)]
pub(crate) struct Hashing {
    tree: HashTree,
    /// Values of the pieces that the latest turn has hashed.
    values: Vec<ChainingValue>,
    offset: u64,
    size: u64,
}

impl Hashing {
    /// Begins the digest of the first `size` bytes.
    pub(crate) fn of(size: u64) -> Self {
        Self {
            tree: HashTree::new(grid_of(size)),
            values: Vec::new(),
            offset: 0,
            size,
        }
    }

    pub(crate) fn upto(&self) -> u64 {
        self.offset
    }

    /// Takes the values of the pieces that the latest turn has hashed.
    pub(crate) fn take_values(&mut self) -> Vec<ChainingValue> {
        std::mem::take(&mut self.values)
    }

    /// Hashes the next [`TURN`] bytes, which `read` reads at an offset. Returns the digest at the
    /// end.
    pub(crate) fn turn<E>(
        &mut self,
        read: impl Fn(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<ControlFlow<Digest>, E> {
        self.values.clear();
        let end = self.size.min(self.offset.saturating_add(TURN));
        let mut buffer = vec![0; PIECE.min(end - self.offset) as usize];
        while self.offset < end {
            let (index, len) = (self.offset / PIECE, PIECE.min(end - self.offset));
            let bytes = &mut buffer[..len as usize];
            read(bytes, self.offset)?;
            let value = value_of(self.size, index, bytes);
            // Each piece is hashed once.
            let _ = self.tree.insert(Subtree::of_chunk(ChunkId(index), value));
            self.values.push(value);
            self.offset += len;
        }
        Ok(match self.tree.root() {
            Some(digest) => ControlFlow::Break(digest),
            None => ControlFlow::Continue(()),
        })
    }
}

// A turn ends with a piece.
const _: () = assert!(TURN.is_multiple_of(PIECE));

#[cfg(test)]
mod tests {
    use nicstripe_proto::Outline;

    use super::*;

    #[test]
    fn a_digest_takes_one_turn_for_every_8_mib() {
        for (size, expected) in [(0, 1), (1, 1), (TURN, 1), (TURN + 1, 2), (2 * TURN, 2)] {
            let (mut hashing, mut turns) = (Hashing::of(size), 1);
            let fill = |bytes: &mut [u8], offset: u64| {
                bytes.fill((offset >> 20) as u8);
                Ok::<_, ()>(())
            };
            let mut values = Vec::new();
            let digest = loop {
                let turn = hashing.turn(fill).unwrap();
                values.extend(hashing.take_values());
                match turn {
                    ControlFlow::Continue(()) => turns += 1,
                    ControlFlow::Break(digest) => break digest,
                }
            };
            let outline = Outline::new(size, values).unwrap();
            assert_eq!(outline.digest(), digest);
            let bytes: Vec<u8> = (0..size).map(|offset| (offset >> 20) as u8).collect();
            assert_eq!(digest, Digest(*blake3::hash(&bytes).as_bytes()));
            assert_eq!(turns, expected, "{size}");
        }
    }
}
