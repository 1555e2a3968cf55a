//! Digest of a file, computed in turns.

use std::ops::ControlFlow;

use nicstripe_proto::Digest;

use super::pool::TURN;

/// Digest of the first bytes of a file, of which each turn hashes a few MiB, so that a large file
/// does not occupy a thread.
#[derive(Debug)]
pub(crate) struct Hashing {
    hasher: blake3::Hasher,
    offset: u64,
    size: u64,
}

impl Hashing {
    /// Begins the digest of the first `size` bytes.
    pub(crate) fn of(size: u64) -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            offset: 0,
            size,
        }
    }

    /// Returns the number of bytes that are hashed.
    pub(crate) fn upto(&self) -> u64 {
        self.offset
    }

    /// Hashes the next [`TURN`] bytes, which `read` reads at an offset. Returns the digest at the
    /// end.
    pub(crate) fn turn<E>(
        &mut self,
        read: impl Fn(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<ControlFlow<Digest>, E> {
        let end = self.size.min(self.offset.saturating_add(TURN));
        let mut buffer = vec![0; READ_LEN.min(end - self.offset) as usize];
        while self.offset < end {
            let len = READ_LEN.min(end - self.offset);
            let bytes = &mut buffer[..len as usize];
            read(bytes, self.offset)?;
            self.hasher.update(bytes);
            self.offset += len;
        }
        Ok(if end == self.size {
            ControlFlow::Break(Digest(*self.hasher.finalize().as_bytes()))
        } else {
            ControlFlow::Continue(())
        })
    }
}

/// Size of a read in bytes.
const READ_LEN: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_takes_one_turn_for_every_8_mib() {
        for (size, expected) in [(0, 1), (1, 1), (TURN, 1), (TURN + 1, 2), (2 * TURN, 2)] {
            let (mut hashing, mut turns) = (Hashing::of(size), 1);
            let fill = |bytes: &mut [u8], offset: u64| {
                bytes.fill((offset >> 18) as u8);
                Ok::<_, ()>(())
            };
            let digest = loop {
                match hashing.turn(fill).unwrap() {
                    ControlFlow::Continue(()) => turns += 1,
                    ControlFlow::Break(digest) => break digest,
                }
            };
            let bytes: Vec<u8> = (0..size).map(|offset| (offset >> 18) as u8).collect();
            assert_eq!(digest, Digest(*blake3::hash(&bytes).as_bytes()));
            assert_eq!(turns, expected, "{size}");
        }
    }
}
