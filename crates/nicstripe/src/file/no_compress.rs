//! Stand-in for `compress.rs` without the feature `compress`.

use nicstripe_proto::BitRate;

use super::buffer::{BufferPool, ChunkBuffer};

/// Connections end at a compressed chunk.
pub(crate) const UNPACKS: bool = false;

#[derive(Debug)]
pub(crate) struct Packer;

impl Packer {
    pub(crate) fn new(_enabled: bool) -> Self {
        Self
    }

    pub(crate) fn pack(
        &self,
        _bytes: &[u8],
        _buffers: &BufferPool,
        _rate: Option<BitRate>,
        _has_zeros: bool,
    ) -> Option<ChunkBuffer> {
        None
    }
}

pub(crate) fn unpack(_frame: &[u8], _raw_len: u32, _into: ChunkBuffer) -> Option<ChunkBuffer> {
    None
}
