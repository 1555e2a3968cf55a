//! Low water of a connection: while long chunks arrive, it is woken once for most of a chunk and not
//! for every few packets.

use std::time::{Duration, Instant};

use nicstripe_proto::DataHeader;

use crate::wire::{clock, tls::TlsStream};

/// Low water of a connection's socket, raised while a long chunk arrives.
#[derive(Debug, Default)]
pub(super) struct LowWater {
    /// Time at which the connection receives what there is; `None` while any byte wakes it.
    lull_at: Option<Instant>,
}

impl LowWater {
    /// Returns the time at which the connection must receive although its socket is not readable.
    pub(super) fn lull_at(&self) -> Option<Instant> {
        self.lull_at
    }

    /// Adapts the low water after the connection has received bytes, maybe none. `chunk` is the one
    /// that has arrived in part.
    pub(super) fn on_received(
        &mut self,
        received: usize,
        chunk: Option<&DataHeader>,
        tls: &TlsStream,
    ) {
        let is_long = received > 0 && chunk.is_some_and(|header| header.len >= RAISED);
        let is_raised = self.lull_at.take().is_some();
        if is_raised && !is_long {
            tls.set_low_water(1);
        }
        if is_long && (is_raised || tls.set_low_water(RAISED)) {
            self.lull_at = Some(clock::now() + PATIENCE);
        }
    }
}

/// Low water while a long chunk arrives, in bytes: three quarters of what one call receives. The
/// kernel takes packets meanwhile.
const RAISED: u32 = 192 * 1024;

/// Maximum wait for [`RAISED`] bytes, which take 1.6 ms at 1 Gbit/s. It may delay the end of a file.
const PATIENCE: Duration = Duration::from_millis(3);
