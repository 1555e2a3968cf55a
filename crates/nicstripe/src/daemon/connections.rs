//! Limit on authenticated connections, with fair shares per key. Each connection holds a lease from
//! its handshake to its end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    file::{FairShares, Grant},
    trust::PublicKey,
    wire::stream::Lease,
};

#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    /// Authenticated connections, oldest first.
    leased: Mutex<Vec<Arc<Leased>>>,
}

#[derive(Debug)]
struct Leased {
    key: PublicKey,
    /// True once the connection belongs to a session, that is, after its hello.
    has_session: AtomicBool,
    evicted: CancellationToken,
}

/// Lease of one authenticated connection, which counts towards the limit; released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    connections: Arc<Connections>,
    of: Arc<Leased>,
}

impl Connections {
    /// Creates a limit of `most` connections. One key may have half of them.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            leased: Mutex::default(),
        }
    }

    /// Takes a lease for a connection of this key. At the limit, evicts a connection of the key
    /// with the most. Returns `None` if the key already has its share.
    pub(super) fn take(self: &Arc<Self>, key: PublicKey) -> Option<ConnectionLease> {
        let mut leased = self.leased.lock();
        let shares = FairShares::held_by(self.most, leased.iter().map(|taken| taken.key));
        match shares.request(&key, self.most.div_ceil(2)) {
            Grant::Free => {}
            Grant::Evict(greatest) => evict(&mut leased, &greatest),
            Grant::Rejected(_) => return None,
        }
        let of = Arc::new(Leased {
            key,
            has_session: AtomicBool::new(false),
            evicted: CancellationToken::new(),
        });
        leased.push(of.clone());
        Some(ConnectionLease {
            connections: self.clone(),
            of,
        })
    }
}

/// Evicts a connection of this key: the oldest without a hello, otherwise the youngest.
fn evict(leased: &mut Vec<Arc<Leased>>, key: &PublicKey) {
    let is_of_key = |taken: &Arc<Leased>| taken.key == *key;
    let silent = leased
        .iter()
        .position(|taken| is_of_key(taken) && !taken.has_session.load(Ordering::Relaxed));
    if let Some(index) = silent.or_else(|| leased.iter().rposition(is_of_key)) {
        leased.remove(index).evicted.cancel();
    }
}

impl ConnectionLease {
    /// Marks the connection as part of a session. Connections of the key without a session are
    /// evicted first.
    pub(super) fn has_session(&self) {
        self.of.has_session.store(true, Ordering::Relaxed);
    }
}

impl Lease for ConnectionLease {
    fn evicted(&self) -> &CancellationToken {
        &self.of.evicted
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        let mut leased = self.connections.leased.lock();
        leased.retain(|taken| !Arc::ptr_eq(taken, &self.of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32]).unwrap()
    }

    #[test]
    fn the_key_with_most_gives_way_with_what_has_no_session_first() {
        let connections = Arc::new(Connections::new(8));
        let take = |number| connections.take(key(number));
        let [first, second] =
            [1, 2].map(|number| std::iter::from_fn(|| take(number)).collect::<Vec<_>>());
        assert_eq!([first.len(), second.len()], [4, 4], "one key has half");
        let of_first = first.iter().enumerate().filter(|(index, _)| *index != 1);
        of_first
            .map(|(_, lease)| lease)
            .chain(&second)
            .for_each(ConnectionLease::has_session);
        // With two keys of equal count, either may lose one.
        let third = [take(3).unwrap(), take(3).unwrap()];
        let left = |number| {
            let leased = connections.leased.lock();
            leased
                .iter()
                .filter(|taken| taken.key == key(number))
                .count()
        };
        assert_eq!((left(1) + left(2), left(3)), (6, 2));
        if left(1) < 4 {
            assert!(first[1].evicted().is_cancelled(), "it had sent nothing");
        }
        assert!(take(3).is_none(), "four are less than twice three");
        drop((first, second, third));
        assert!(connections.leased.lock().is_empty());
    }
}
