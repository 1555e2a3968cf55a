//! Progress counters of a transfer.

use std::collections::BTreeMap;

use crate::id::PathId;

/// Progress of a transfer, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// Total size in bytes; 0 while unknown.
    pub size: u64,
    /// Bytes that were durable at the receiver from earlier attempts.
    pub resumed_bytes: u64,
    /// Bytes that arrived, each counted once.
    pub delivered_bytes: u64,
    /// Bytes that the sender retransmitted, or that the receiver received in duplicate chunks.
    pub repeated_bytes: u64,
    /// Bytes that need not be sent: holes, and chunks that equal those in the receiver's file.
    pub unsent_bytes: u64,
    /// Delivered bytes by path.
    pub by_path: BTreeMap<PathId, u64>,
}

impl TransferStats {
    /// Adds the counters of another transfer.
    pub fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.resumed_bytes += other.resumed_bytes;
        self.delivered_bytes += other.delivered_bytes;
        self.repeated_bytes += other.repeated_bytes;
        self.unsent_bytes += other.unsent_bytes;
        for (path, bytes) in &other.by_path {
            *self.by_path.entry(*path).or_default() += bytes;
        }
    }
}
