//! Decisions from bytes, so that a changed byte changes one decision and not the meaning of all that follow.

/// Reads decisions off bytes; zeros follow the last.
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

    /// A number below `end`, at most 256.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte()) % end.max(1)
    }

    pub(super) fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number that is mostly small, and else one at which arithmetic goes wrong.
    pub(super) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=191 => small.into(),
            bit @ 192..=240 => (1_u64 << (bit - 180)).wrapping_sub(1).wrapping_add(self.below(3)),
            less => u64::MAX - u64::from(250_u8.saturating_sub(less)),
        }
    }

    /// The next bytes, at most so many.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
