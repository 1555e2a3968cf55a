//! FIFO queue of bytes that frees its memory as it drains.

use std::collections::VecDeque;

/// FIFO queue of bytes. The allocation is at most twice the content, plus a small constant.
#[derive(Debug, Default)]
pub(super) struct ByteQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes of the first piece that have been consumed.
    taken: usize,
    len: usize,
}

impl ByteQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = self
                .pieces
                .back()
                .map_or(0, |last| last.capacity() - last.len());
            if spare == 0 {
                let capacity = bytes.len().max(self.len).clamp(LEAST_PIECE, MOST_PIECE);
                self.pieces.push_back(Vec::with_capacity(capacity));
                continue;
            }
            let (now, rest) = bytes.split_at(spare.min(bytes.len()));
            if let Some(last) = self.pieces.back_mut() {
                last.extend_from_slice(now);
            }
            self.len += now.len();
            bytes = rest;
        }
    }

    pub(super) fn peek(&self, into: &mut [u8]) -> usize {
        let (mut len, mut skip) = (0, self.taken);
        for piece in &self.pieces {
            let piece = &piece[skip..];
            skip = 0;
            let now = piece.len().min(into.len() - len);
            into[len..len + now].copy_from_slice(&piece[..now]);
            len += now;
            if len == into.len() {
                break;
            }
        }
        len
    }

    /// Removes the first `count` bytes, or all if the queue has fewer.
    pub(super) fn consume(&mut self, count: usize) {
        let mut count = count.min(self.len);
        self.len -= count;
        while let Some(first) = self.pieces.front() {
            let left = first.len() - self.taken;
            if count < left {
                self.taken += count;
                return;
            }
            count -= left;
            self.taken = 0;
            self.pieces.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Minimum and maximum length of a piece in bytes. A piece is small for a keystroke, and holds
/// several packets at full rate.
const LEAST_PIECE: usize = 512;
const MOST_PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_and_leave_nothing_behind() {
        let (mut queue, mut expected) = (ByteQueue::default(), VecDeque::new());
        let mut next = 0u8;
        for step in 0..2000usize {
            let bytes: Vec<u8> = (0..step * 7919 % 40_000)
                .map(|_| {
                    next = next.wrapping_mul(31).wrapping_add(7);
                    next
                })
                .collect();
            queue.push(&bytes);
            expected.extend(bytes);
            let mut into = vec![0; step * 104_729 % 50_000];
            let len = queue.peek(&mut into);
            queue.consume(len);
            assert!(
                into[..len].iter().copied().eq(expected.drain(..len)),
                "step {step}"
            );
            assert_eq!(queue.len(), expected.len());
        }
        queue.consume(usize::MAX);
        assert!(queue.is_empty() && queue.pieces.is_empty());
    }

    #[test]
    fn memory_follows_what_is_in_it() {
        let mut queue = ByteQueue::default();
        for _ in 0..100_000 {
            queue.push(&[1]);
        }
        let memory: usize = queue.pieces.iter().map(Vec::capacity).sum();
        assert!(memory < 2 * 100_000 + MOST_PIECE, "{memory} bytes");
    }
}
