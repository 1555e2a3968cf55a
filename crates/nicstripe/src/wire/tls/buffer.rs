//! Encrypted bytes queued for the kernel.

/// Queue of encrypted bytes in one allocation: appended at its end, sent from its front.
///
/// The allocation grows only if the queue exceeds it. Bytes move to the front only if the space
/// behind them is too small. A caller that sends everything before it queues more never pays for a
/// move.
#[derive(Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Total number of bytes removed from the front since creation.
    gone: u64,
}

impl SendBuffer {
    /// Creates an empty buffer of `capacity` bytes, which the kernel zeroes page by page on first
    /// use.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity],
            start: 0,
            end: 0,
            gone: 0,
        }
    }

    /// Returns the unsent bytes.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes `sent` bytes, at most [`SendBuffer::len`], from the front.
    pub(crate) fn advance(&mut self, sent: usize) {
        let sent = sent.min(self.len());
        self.start += sent;
        self.gone += sent as u64;
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.advance(self.len());
    }

    /// Returns the total number of bytes removed from the queue, sent or dropped. The bytes queued
    /// now have left once this has grown by the current [`SendBuffer::len`].
    pub(crate) fn total_gone(&self) -> u64 {
        self.gone
    }

    /// Returns exactly `len` writable bytes behind the pending ones; [`SendBuffer::commit`] appends
    /// them.
    pub(crate) fn spare(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < len {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let needed = self.end + len;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        &mut self.bytes[self.end..needed]
    }

    /// Appends the first `len` bytes of the last [`SendBuffer::spare`] to the queue.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffer: &mut SendBuffer, bytes: &[u8]) {
        buffer.spare(bytes.len()).copy_from_slice(bytes);
        buffer.commit(bytes.len());
    }

    #[test]
    fn bytes_leave_in_the_order_they_came_across_moves_and_growth() {
        let mut buffer = SendBuffer::with_capacity(8);
        push(&mut buffer, b"abcdef");
        buffer.advance(4);
        push(&mut buffer, b"ghij");
        assert_eq!(buffer.pending(), b"efghij");
        push(&mut buffer, b"klmnop");
        assert_eq!(buffer.pending(), b"efghijklmnop");
        buffer.advance(usize::MAX);
        assert!(buffer.is_empty());
        assert_eq!(buffer.total_gone(), 16);
    }
}
