//! Priority queue of scheduled entries, ordered by time.

use std::{collections::BTreeMap, time::Duration};

/// Key of an agenda entry: its time, and a sequence number that preserves the insertion order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    at: Duration,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    entries: BTreeMap<Key, T>,
    next_number: u64,
}

impl<T> Agenda<T> {
    pub(crate) const fn new() -> Agenda<T> {
        Agenda {
            entries: BTreeMap::new(),
            next_number: 0,
        }
    }

    pub(crate) fn add(&mut self, at: Duration, entry: T) -> Key {
        let key = Key {
            at,
            number: self.next_number,
        };
        self.next_number += 1;
        self.entries.insert(key, entry);
        key
    }

    /// Removes an entry. Does nothing if the entry was already taken or cancelled.
    pub(crate) fn cancel(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// Returns the time of the earliest entry, or `None` if the queue is empty.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.entries.keys().next().map(|key| key.at)
    }

    /// Removes the earliest entry and returns it with its time; `None` if the queue is empty or the
    /// time is after `limit`.
    pub(crate) fn take_until(&mut self, limit: Duration) -> Option<(Duration, T)> {
        let first = self.entries.first_entry()?;
        if first.key().at > limit {
            return None;
        }
        let (key, entry) = first.remove_entry();
        Some((key.at, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_by_time_and_those_of_one_time_in_their_order() {
        let mut agenda = Agenda::new();
        let at = Duration::from_secs;
        for (time, entry) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            agenda.add(at(time), entry);
        }
        let order: String = std::iter::from_fn(|| agenda.take_until(Duration::MAX))
            .map(|(_, entry)| entry)
            .collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn entries_after_the_limit_stay_and_cancelled_ones_are_gone() {
        let mut agenda = Agenda::new();
        let at = Duration::from_secs;
        let first = agenda.add(at(1), 'a');
        agenda.add(at(3), 'b');
        agenda.cancel(first);
        agenda.cancel(first);
        assert_eq!(agenda.take_until(at(2)), None);
        assert_eq!(agenda.take_until(at(3)), Some((at(3), 'b')));
    }
}
