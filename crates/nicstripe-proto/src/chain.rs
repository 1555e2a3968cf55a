//! One source and many receivers: which receiver gets which item from whom.
//!
//! The source sends each item about once. The other receivers fetch it from a receiver that has it
//! already: at first each from the one before it, in the order given. [`Chain`] decides, the caller
//! moves the bytes and reports how that went. All changes of the order are moves towards the source, so
//! it never has a circle:
//!
//! | event | change |
//! | --- | --- |
//! | a receiver is gone | those that it feeds get a new feed: its own |
//! | it gave wrong bytes | the same, and it feeds no one any more |
//! | it is slow | the same, and it continues as a separate branch |
//! | a receiver cannot reach its feed | it gets the feed of its feed |

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

#[cfg(test)]
mod simulated;

/// Where a receiver gets its items from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feed {
    /// The source itself.
    Source,
    /// The receiver with this index.
    Receiver(usize),
}

/// Order to the caller: let a receiver get an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Index of the receiver that gets it.
    pub receiver: usize,
    /// Index of the item.
    pub item: usize,
    /// Where the receiver gets it from.
    pub feed: Feed,
}

/// Why a receiver did not get an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes of the feed are not those of the source.
    Wrong,
    /// The receiver did not get them from its feed.
    Unreached,
    /// The receiver cannot have the item from any feeder.
    Refused,
}

/// Change of the order of receivers, for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A receiver has ended before it had everything.
    Gone {
        /// Index of the receiver.
        receiver: usize,
    },
    /// A receiver gave others bytes that are not those of the source.
    Wrong {
        /// Index of the receiver.
        receiver: usize,
    },
    /// A receiver is slower than those after it, and no longer before them.
    Slow {
        /// Index of the receiver.
        receiver: usize,
    },
    /// A receiver does not reach its feed.
    Unreached {
        /// Index of the receiver.
        receiver: usize,
        /// Index of its feed.
        feed: usize,
    },
}

/// Whether a receiver needs an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It gets the item.
    Missing,
    /// It has the item, and can give it to others.
    There,
    /// It neither gets nor gives the item.
    Never,
}

/// Plan of the items that each receiver gets, and from whom.
#[derive(Debug)]
pub struct Chain {
    /// Sizes of the items in bytes.
    sizes: Vec<u64>,
    receivers: Vec<Receiver>,
    changes: VecDeque<Change>,
    /// Receiver that is asked first for the next order.
    turn: usize,
}

#[derive(Debug)]
struct Receiver {
    feed: Feed,
    state: State,
    items: Vec<Item>,
    /// Number of leading items that it has or will never have.
    settled: usize,
    in_flight: usize,
    /// Rate in bytes a second at which it could get items, by its cables; `None` if unknown.
    expected: Option<u64>,
    /// False if it must feed no one.
    may_feed: bool,
    /// True once it was found to be slow.
    is_slow: bool,
    pace: Pace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Missing {
        tries: u8,
    },
    InFlight {
        tries: u8,
    },
    There,
    /// It does not get the item.
    Left,
}

/// Bytes that a receiver got while its feed always had more for it.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    since: Option<Instant>,
    bytes: u64,
}

impl Chain {
    /// Returns the plan for items of these sizes in bytes, and receivers in the order in which they feed
    /// each other, the fastest first: for each whether it needs each item, and the rate in bytes a second
    /// at which its cables could carry them, if that is known.
    ///
    /// # Panics
    ///
    /// A receiver's list has not the length of `sizes`.
    pub fn new(sizes: Vec<u64>, receivers: Vec<(Vec<Need>, Option<u64>)>) -> Self {
        let receivers = receivers.into_iter().enumerate();
        let receivers = receivers.map(|(index, (needed, expected))| {
            assert_eq!(needed.len(), sizes.len(), "one word for each item");
            let item = |need| match need {
                Need::Missing => Item::Missing { tries: 0 },
                Need::There => Item::There,
                Need::Never => Item::Left,
            };
            let items: Vec<Item> = needed.into_iter().map(item).collect();
            Receiver {
                feed: index.checked_sub(1).map_or(Feed::Source, Feed::Receiver),
                state: State::Running,
                settled: settled_of(&items),
                items,
                in_flight: 0,
                expected,
                may_feed: true,
                is_slow: false,
                pace: Pace::default(),
            }
        });
        Self {
            receivers: receivers.collect(),
            sizes,
            changes: VecDeque::new(),
            turn: 0,
        }
    }

    /// Returns the next item that a receiver shall get now; `None` if none can before another report.
    pub fn next_order(&mut self) -> Option<Order> {
        let count = self.receivers.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if let Some((item, tries, feed)) = self.item_for(index) {
                self.turn = index + 1;
                let receiver = &mut self.receivers[index];
                receiver.items[item] = Item::InFlight { tries };
                receiver.in_flight += 1;
                return Some(Order {
                    receiver: index,
                    item,
                    feed,
                });
            }
        }
        None
    }

    /// Returns the first item that a receiver lacks and its feed has, how often it was tried, and who
    /// has it.
    fn item_for(&self, index: usize) -> Option<(usize, u8, Feed)> {
        let receiver = &self.receivers[index];
        let most = match receiver.feed {
            _ if receiver.is_slow => OF_SLOW,
            Feed::Source => FROM_SOURCE,
            Feed::Receiver(_) => AT_ONCE,
        };
        if receiver.state != State::Running || receiver.in_flight >= most {
            return None;
        }
        let missing = receiver.items[receiver.settled..].iter().enumerate();
        let lacked = missing.filter_map(|(offset, item)| match item {
            Item::Missing { tries } => Some((receiver.settled + offset, *tries)),
            _ => None,
        });
        let mut first = lacked.take(LOOKED_AT);
        first.find_map(|(item, tries)| Some((item, tries, self.giver(receiver.feed, item)?)))
    }

    /// Returns who can give an item to those that `feed` feeds: it, or if it does not get the item, the
    /// next one towards the source.
    fn giver(&self, mut feed: Feed, item: usize) -> Option<Feed> {
        while let Feed::Receiver(index) = feed {
            match self.receivers[index].items[item] {
                Item::There => break,
                Item::Left => feed = self.feed_beyond(index),
                Item::Missing { .. } | Item::InFlight { .. } => return None,
            }
        }
        Some(feed)
    }

    /// Reports that a receiver has an item durably.
    pub fn on_done(&mut self, receiver: usize, item: usize, now: Instant) {
        if self.settle(receiver, item, Item::There) {
            self.note_pace(receiver, item, now);
        }
    }

    /// Reports that an order failed.
    pub fn on_failed(&mut self, order: Order, fault: Fault) {
        let Order { receiver, item, .. } = order;
        let Item::InFlight { tries } = self.receivers[receiver].items[item] else {
            return;
        };
        let tries = tries + 1;
        // The feed of a branch is exchanged below; another one, and the source, can only be tried again.
        let is_own = order.feed == self.receivers[receiver].feed && order.feed != Feed::Source;
        let next = match fault {
            Fault::Refused => Item::Left,
            Fault::Wrong | Fault::Unreached if tries >= MOST_TRIES && !is_own => Item::Left,
            Fault::Wrong | Fault::Unreached => Item::Missing { tries },
        };
        self.settle(receiver, item, next);
        match (order.feed, fault) {
            (Feed::Source, _) | (_, Fault::Refused) => {}
            (Feed::Receiver(feed), Fault::Wrong) => {
                if std::mem::replace(&mut self.receivers[feed].may_feed, false) {
                    self.changes.push_back(Change::Wrong { receiver: feed });
                    self.pass_on(feed);
                }
            }
            // Otherwise it has another feed by now.
            (Feed::Receiver(feed), Fault::Unreached)
                if self.receivers[receiver].feed == order.feed =>
            {
                self.changes.push_back(Change::Unreached { receiver, feed });
                self.receivers[receiver].feed = self.feed_beyond(feed);
                self.receivers[receiver].pace = Pace::default();
            }
            (Feed::Receiver(_), Fault::Unreached) => {}
        }
    }

    /// Reports that a receiver can be reached no more.
    pub fn on_gone(&mut self, receiver: usize) {
        if std::mem::replace(&mut self.receivers[receiver].state, State::Gone) == State::Gone {
            return;
        }
        self.receivers[receiver].may_feed = false;
        self.changes.push_back(Change::Gone { receiver });
        self.pass_on(receiver);
    }

    /// Returns the next change of the order, for the user.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Returns where a receiver gets its items from.
    pub fn feed(&self, receiver: usize) -> Feed {
        self.receivers[receiver].feed
    }

    /// Returns true once no receiver gets anything more.
    pub fn has_ended(&self) -> bool {
        (0..self.receivers.len()).all(|receiver| self.is_done(receiver))
    }

    /// Returns true once a receiver gets nothing more: it is gone, or has all that it will have.
    pub fn is_done(&self, receiver: usize) -> bool {
        let receiver = &self.receivers[receiver];
        receiver.state == State::Gone
            || (receiver.in_flight == 0 && receiver.settled == self.sizes.len())
    }

    /// Returns true if a receiver was found to be slow. The others need not wait for it.
    pub fn is_slow(&self, receiver: usize) -> bool {
        self.receivers[receiver].is_slow
    }

    /// Marks an item that was in flight. Returns false if it was not.
    fn settle(&mut self, receiver: usize, item: usize, next: Item) -> bool {
        let receiver = &mut self.receivers[receiver];
        if !matches!(receiver.items[item], Item::InFlight { .. }) {
            return false;
        }
        receiver.items[item] = next;
        receiver.in_flight -= 1;
        receiver.settled += settled_of(&receiver.items[receiver.settled..]);
        true
    }

    /// Gives those that a receiver feeds its own feed.
    fn pass_on(&mut self, from: usize) {
        let to = self.feed_beyond(from);
        for receiver in &mut self.receivers {
            if receiver.feed == Feed::Receiver(from) {
                receiver.feed = to;
                receiver.pace = Pace::default();
            }
        }
    }

    /// Returns the nearest feed of a receiver that may feed others.
    fn feed_beyond(&self, receiver: usize) -> Feed {
        let mut feed = self.receivers[receiver].feed;
        while let Feed::Receiver(index) = feed {
            if self.receivers[index].may_feed {
                break;
            }
            feed = self.receivers[index].feed;
        }
        feed
    }

    /// Measures how fast a receiver is while its feed has enough for it, and passes on those that it
    /// feeds if they could be much faster.
    fn note_pace(&mut self, index: usize, item: usize, now: Instant) {
        let size = self.sizes[item];
        let is_fed = self.lag(index) >= AT_ONCE;
        let pace = &mut self.receivers[index].pace;
        if !is_fed {
            *pace = Pace::default();
            return;
        }
        let Some(since) = pace.since else {
            pace.since = Some(now);
            return;
        };
        pace.bytes += size;
        let (bytes, took) = (pace.bytes, now.saturating_duration_since(since));
        if took < PACE_TIME {
            return;
        }
        *pace = Pace::default();
        let rate = bytes as f64 / took.as_secs_f64();
        let fed = self.fed_by(Feed::Receiver(index));
        let expected = fed.filter_map(|receiver| receiver.expected).max();
        let share = self.share_of(index);
        if expected.is_some_and(|expected| rate < SLOW * share.min(expected as f64)) {
            self.changes.push_back(Change::Slow { receiver: index });
            self.receivers[index].is_slow = true;
            self.pass_on(index);
        }
    }

    fn fed_by(&self, feed: Feed) -> impl Iterator<Item = &Receiver> {
        let is_fed = move |receiver: &&Receiver| receiver.feed == feed;
        self.receivers.iter().filter(is_fed)
    }

    /// Returns the rate in bytes a second that a receiver's feed has for it: those that it feeds share
    /// its cables.
    fn share_of(&self, index: usize) -> f64 {
        let feed = self.receivers[index].feed;
        let expected = match feed {
            Feed::Source => {
                let fed = self.fed_by(feed);
                fed.filter_map(|receiver| receiver.expected).max()
            }
            Feed::Receiver(feed) => self.receivers[feed].expected,
        };
        let running = |receiver: &&Receiver| receiver.state == State::Running;
        let others = self.fed_by(feed).filter(running).count().max(1);
        expected.map_or(f64::INFINITY, |expected| expected as f64 / others as f64)
    }

    /// Returns how many items a receiver lacks that its feed has, counted to [`AT_ONCE`].
    fn lag(&self, index: usize) -> usize {
        let receiver = &self.receivers[index];
        let rest = receiver.items.iter().enumerate().skip(receiver.settled);
        let is_lacked = |(_, state): &(usize, &Item)| {
            matches!(state, Item::Missing { .. } | Item::InFlight { .. })
        };
        rest.filter(is_lacked)
            .take(LOOKED_AT)
            .filter(|(item, _)| self.giver(receiver.feed, *item).is_some())
            .take(AT_ONCE)
            .count()
    }
}

/// Returns how many leading items a receiver has or never gets.
fn settled_of(items: &[Item]) -> usize {
    let settled = |item: &&Item| matches!(item, Item::There | Item::Left);
    items.iter().take_while(settled).count()
}

/// Maximum number of items that a receiver gets at a time from another. It has this number under way only if it
/// is behind: usually it waits for the next one of its feed. They end together, and each receiver after it
/// gets them as one: with 8, a hundred runs of 64 receivers take up to 1.24 times the bound, with 4 up to
/// 1.12, and with 2 the cables stand still between them.
const AT_ONCE: usize = 4;

/// Number of items that a receiver gets at a time from the source: enough to fill the cables while others
/// are made durable.
const FROM_SOURCE: usize = 5;

/// Number of items that a slow receiver gets at a time: its feed gives a file its name between two.
const OF_SLOW: usize = 2;

/// Returns the size in bytes of the next item, with `before` items before it, for items of at most
/// `most` bytes. Items that begin together and share the cables end together, and then so does all that
/// follows from receiver to receiver. So the first ones are of different sizes.
pub fn item_size(most: u64, before: usize) -> u64 {
    match before {
        0..FIRST => (most / FIRST as u64 * (before as u64 + 1)).max(1),
        _ => most,
    }
}

/// Number of the first items that are of different sizes.
const FIRST: usize = 8;

/// Number of items that a receiver lacks among which its next one is looked for.
const LOOKED_AT: usize = 8 * AT_ONCE;

/// Number of times that a receiver tries to get an item.
const MOST_TRIES: u8 = 3;

/// Time over which a receiver's rate is measured, and the part of the rate of those after it below which
/// it is slow: at half, its branch takes no more of its feed's cables than it left idle before.
const PACE_TIME: Duration = Duration::from_secs(2);
const SLOW: f64 = 0.5;
