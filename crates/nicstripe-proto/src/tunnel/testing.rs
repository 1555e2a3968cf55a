//! Access of tests and fuzz targets to the memory accounting of a multiplexer.

use super::{
    Broken, ConnId, MOST_CONNECTIONS, MOST_RECEIVED, MOST_UNSENT, MOST_WINDOW, Tunnels,
    connection::extra,
};

impl Tunnels {
    /// Queues the bytes that [`room`](Self::room) permits. Returns the number of queued bytes.
    pub(crate) fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Result<usize, Broken> {
        let count = self.room(conn)?.min(bytes.len());
        self.push(conn, &bytes[..count])?;
        Ok(count)
    }

    /// Returns the number of bytes that are queued to send, or received and unread.
    #[cfg(test)]
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.pool.unsent
            + self
                .connections
                .values()
                .map(|connection| connection.unread.len() as u64)
                .sum::<u64>()
    }

    /// Checks the memory accounting.
    ///
    /// # Panics
    ///
    /// Panics if the accounting is inconsistent or exceeds its limits.
    #[track_caller]
    pub(crate) fn check(&self) {
        let connections = self.connections.values();
        assert_eq!(
            self.pool.extra,
            connections
                .clone()
                .map(|connection| extra(connection.inbound.held()))
                .sum::<u64>()
        );
        assert_eq!(
            self.pool.unsent,
            connections
                .clone()
                .map(|connection| connection.unsent.len() as u64)
                .sum::<u64>()
        );
        assert!(
            connections
                .clone()
                .map(|connection| connection.unread.len() as u64)
                .sum::<u64>()
                <= MOST_RECEIVED
        );
        assert!(
            self.pool.unsent <= MOST_UNSENT + crate::wire::frame::MAX_PAYLOAD as u64
                && self.connections.len() <= 2 * MOST_CONNECTIONS
        );
        for (conn, connection) in &self.connections {
            assert!(
                connection.unread.len() as u64 <= connection.inbound.held(),
                "{conn:?}"
            );
            assert!(
                connection.inbound.held() <= u64::from(MOST_WINDOW) || connection.is_let_go,
                "{conn:?}"
            );
        }
    }
}
