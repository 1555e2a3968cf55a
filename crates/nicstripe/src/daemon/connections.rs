//! Limit on authenticated connections, with fair shares per key. Each connection holds a lease from
//! its handshake to its end.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::shares::{Share, Shares};
use crate::{trust::PublicKey, wire::stream::Lease};

#[derive(Debug)]
pub(super) struct Connections {
    shares: Shares,
    held: Mutex<Leases>,
}

#[derive(Debug, Default)]
struct Leases {
    next_id: u64,
    /// Leases of authenticated connections, oldest first.
    leased: Vec<Leased>,
}

#[derive(Debug)]
struct Leased {
    id: u64,
    key: PublicKey,
    /// True once the connection belongs to a session, that is, after its hello.
    has_session: bool,
    evicted: CancellationToken,
}

/// Lease of one authenticated connection, which counts towards the limit; released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    connections: Arc<Connections>,
    id: u64,
    evicted: CancellationToken,
}

impl Connections {
    /// Creates a limit of `all` connections. One key may have half of them.
    pub(super) fn new(all: usize) -> Self {
        Self {
            shares: Shares {
                all,
                each: all.div_ceil(2),
            },
            held: Mutex::default(),
        }
    }

    /// Takes a lease for a connection of this key. At the limit, evicts a connection of the key
    /// with the most. Returns `None` if the key already has its share.
    pub(super) fn take(self: &Arc<Self>, key: PublicKey) -> Option<ConnectionLease> {
        let mut held = self.held.lock();
        match self
            .shares
            .decide(&key, held.leased.iter().map(|taken| taken.key))
        {
            Share::Free => {}
            Share::Of(greatest) => held.take_from(&greatest),
            Share::None(_) => return None,
        }
        let (id, evicted) = (held.next_id, CancellationToken::new());
        held.next_id += 1;
        held.leased.push(Leased {
            id,
            key,
            has_session: false,
            evicted: evicted.clone(),
        });
        Some(ConnectionLease {
            connections: self.clone(),
            id,
            evicted,
        })
    }
}

impl Leases {
    /// Evicts a connection of this key: the oldest without a hello, otherwise the youngest.
    fn take_from(&mut self, key: &PublicKey) {
        let is_of_key = |taken: &Leased| taken.key == *key;
        let silent = self
            .leased
            .iter()
            .position(|taken| is_of_key(taken) && !taken.has_session);
        if let Some(index) = silent.or_else(|| self.leased.iter().rposition(is_of_key)) {
            self.leased.remove(index).evicted.cancel();
        }
    }
}

impl ConnectionLease {
    /// Marks the connection as part of a session. Connections of the key without a session are
    /// evicted first.
    pub(super) fn has_session(&self) {
        if let Some(taken) = self
            .connections
            .held
            .lock()
            .leased
            .iter_mut()
            .find(|taken| taken.id == self.id)
        {
            taken.has_session = true;
        }
    }
}

impl Lease for ConnectionLease {
    fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.connections
            .held
            .lock()
            .leased
            .retain(|taken| taken.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    fn is_evicted(lease: &ConnectionLease) -> bool {
        lease.evicted.is_cancelled()
    }

    #[test]
    fn one_key_takes_half_and_gives_back() {
        let connections = Arc::new(Connections::new(4));
        let greedy: Vec<ConnectionLease> =
            std::iter::from_fn(|| connections.take(key(1))).collect();
        assert_eq!(greedy.len(), 2);
        assert!(connections.take(key(2)).is_some());
        drop(greedy);
        assert!(connections.held.lock().leased.is_empty());
    }

    #[test]
    fn the_key_with_most_gives_way_with_what_has_no_session_first() {
        let connections = Arc::new(Connections::new(8));
        let take = |number| connections.take(key(number));
        let first: Vec<ConnectionLease> = std::iter::from_fn(|| take(1)).collect();
        let _second: Vec<ConnectionLease> = std::iter::from_fn(|| take(2)).collect();
        first
            .iter()
            .filter(|lease| lease.id != 1)
            .for_each(ConnectionLease::has_session);
        connections
            .held
            .lock()
            .leased
            .iter_mut()
            .filter(|taken| taken.key == key(2))
            .for_each(|taken| taken.has_session = true);
        // With two keys of equal count, either may lose one.
        let _third = [take(3).unwrap(), take(3).unwrap()];
        let left = |number| {
            connections
                .held
                .lock()
                .leased
                .iter()
                .filter(|taken| taken.key == key(number))
                .count()
        };
        assert_eq!((left(1) + left(2), left(3)), (6, 2));
        if left(1) < 4 {
            assert!(is_evicted(&first[1]), "it had sent nothing");
        }
        assert!(take(3).is_none(), "four are less than twice three");
    }
}
