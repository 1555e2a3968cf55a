//! Decisions derived from the fuzzer's bytes. Changing one byte changes one decision and leaves all
//! others unchanged.

/// Reader of decisions from the fuzzer's bytes. Returns zeros after the last byte.
pub(super) struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Returns a number below `end` and below 256, derived from one byte.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte()) % end.max(1)
    }

    pub(super) fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a number that is usually small, and otherwise close to a limit at which arithmetic
    /// may overflow.
    pub(super) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=191 => small.into(),
            bit @ 192..=240 => (1_u64 << (bit - 180))
                .wrapping_sub(1)
                .wrapping_add(self.below(3)),
            less => u64::MAX - u64::from(250_u8.saturating_sub(less)),
        }
    }

    /// Removes and returns the next bytes of the input, at most `most`.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
