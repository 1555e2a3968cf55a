//! Selection of candidates with the maximum total rate. An interface takes several links if its rate
//! suffices for all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    candidate::{Candidate, End, PathEnd, Preference},
    hungarian::heaviest,
};

/// Rate in bit/s that is assumed for a candidate if neither end knows its line rate. This is the
/// rate of the most common cable.
pub(crate) const UNKNOWN_RATE_BPS: u64 = 1_000_000_000;

/// Maximum rate of a candidate in bit/s: 281 Tbit/s. Only an invalid announcement exceeds this, and
/// sums of this rate do not overflow.
const MOST_RATE_BPS: u64 = 1 << 48;

/// Candidate that can be selected, with its state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) is_in_use: bool,
    /// True if the candidate's interface at the peer has answered a probe or accepted a connection.
    pub(super) was_reached: bool,
}

impl Offer<'_> {
    /// Returns the value of selecting this candidate, for the sequence numbers of its interfaces.
    /// The preference makes the value always greater than zero.
    ///
    /// The value consists of these parts, most important first. Each part has enough bits that its
    /// sum over all interfaces stays below the next more important part.
    ///
    /// 1. Total rate in bit/s.
    /// 2. Candidates in use: a working link is not replaced by another of the same rate.
    /// 3. Candidates of each [`Preference`], the best first.
    /// 4. Candidates that a probe reached.
    /// 5. Minus the squared difference of the ends' sequence numbers, so that equal interfaces are
    ///    paired in order. The pairing of two interfaces with two others has the smaller sum if it
    ///    has no crossing.
    pub(super) fn worth(&self, ours: usize, theirs: usize) -> i128 {
        let rank = Preference::COUNT - 1 - self.candidate.preference as usize;
        let parts = [
            (i128::from(rate(self.candidate)), RATE_AT),
            (i128::from(self.is_in_use), IN_USE_AT),
            (1, PREFERENCES_AT + COUNT_BITS * rank),
            (i128::from(self.was_reached), REACHED_AT),
        ];
        let askew = ours.abs_diff(theirs) as i128;
        parts.into_iter().map(|(part, at)| part << at).sum::<i128>() - askew * askew
    }
}

/// Number of bits that count candidates: at most [`MOST_SLOTS`] are selected.
const COUNT_BITS: usize = 8;

/// Lowest bits of the parts of [`Offer::worth`].
const REACHED_AT: usize = 20;
const PREFERENCES_AT: usize = REACHED_AT + COUNT_BITS;
const IN_USE_AT: usize = PREFERENCES_AT + COUNT_BITS * Preference::COUNT;
const RATE_AT: usize = IN_USE_AT + COUNT_BITS;

/// Selects the untried `candidates` with the maximum total rate. Excludes the interface pairs
/// `taken` (local name, remote name).
///
/// Keeps the given order. Ties are decided by the better preferences, then by the order of interface
/// indices and names.
pub fn choose(candidates: &[Candidate], taken: &[(String, String)]) -> Vec<Candidate> {
    let offer = |candidate| Offer {
        candidate,
        is_in_use: false,
        was_reached: false,
    };
    let offers: Vec<Offer<'_>> = candidates
        .iter()
        .filter(|candidate| is_free(candidate, taken))
        .map(offer)
        .collect();
    best(candidates, &offers)
        .into_iter()
        .map(|offer| offer.candidate.clone())
        .collect()
}

/// Returns the expected rate of a candidate in bit/s.
fn rate(candidate: &Candidate) -> u64 {
    counted(candidate.rate_bps)
}

fn counted(rate_bps: Option<u64>) -> u64 {
    rate_bps.unwrap_or(UNKNOWN_RATE_BPS).min(MOST_RATE_BPS)
}

/// Returns the number of links at the rate `fastest` that an interface can serve; at least 1.
fn slots(end: &PathEnd, fastest: u64) -> u64 {
    (counted(end.rate_bps) / fastest.max(1)).max(1)
}

/// Returns true if both interfaces of the candidate can serve it in addition to `links`. Interfaces
/// that share a cable count as one.
///
/// An interface without a link can serve any candidate. Another one serves as many links as its
/// rate is a multiple of the rate of the fastest. The slower end of a link has no room for another.
pub(crate) fn has_room<'a>(
    candidate: &Candidate,
    links: impl Iterator<Item = &'a Candidate> + Clone,
) -> bool {
    End::BOTH.iter().all(|end| {
        let own = end.of(candidate);
        let at_it = links
            .clone()
            .filter(|link| end.of(link).cable() == own.cable());
        let count = at_it.clone().count() as u64;
        let fastest = at_it.map(rate).max().unwrap_or(0).max(rate(candidate));
        count < slots(own, fastest)
    })
}

/// Returns true unless one of the candidate's interfaces occurs in a pair of `taken`.
pub(super) fn is_free(candidate: &Candidate, taken: &[(String, String)]) -> bool {
    taken.iter().all(|(ours, theirs)| {
        *ours != candidate.local.interface && *theirs != candidate.remote.interface
    })
}

/// Returns the selection from `offers` with the maximum value, in the given order. `all` determines
/// the sequence numbers of interfaces, so that they do not depend on the offers.
pub(super) fn best<'a>(all: &[Candidate], offers: &[Offer<'a>]) -> Vec<Offer<'a>> {
    let (ours, theirs) = (
        Side::new(End::Local, all, offers),
        Side::new(End::Remote, all, offers),
    );
    let mut table: Vec<Vec<Option<(i128, usize)>>> =
        vec![vec![None; theirs.numbers.len()]; ours.numbers.len()];
    for (index, offer) in offers.iter().enumerate() {
        let (row, column) = (
            ours.numbers.get(offer.candidate.local.cable()),
            theirs.numbers.get(offer.candidate.remote.cable()),
        );
        let (Some(&row), Some(&column)) = (row, column) else {
            continue;
        };
        let worth = offer.worth(row, column);
        let cell = &mut table[row][column];
        if cell.is_none_or(|(other, _)| other < worth) {
            *cell = Some((worth, index));
        }
    }
    let cell = |row: usize, column: usize| table[ours.slots[row]][theirs.slots[column]];
    let chosen = heaviest(ours.slots.len(), theirs.slots.len(), |row, column| {
        cell(row, column).map(|(worth, _)| worth)
    });
    let cells = chosen
        .into_iter()
        .enumerate()
        .filter_map(|(row, column)| cell(row, column?));
    let mut indices: Vec<usize> = cells.map(|(_, index)| index).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| offers[index]).collect()
}

/// Interfaces of one machine in the table of a matching. Those that share a cable are one.
struct Side<'a> {
    /// Sequence numbers by the name of the interface that has the cable.
    numbers: BTreeMap<&'a str, usize>,
    /// Sequence number of the interface of each row or column.
    slots: Vec<usize>,
}

impl<'a> Side<'a> {
    fn new(end: End, all: &'a [Candidate], offers: &[Offer<'_>]) -> Self {
        let numbers = numbered(all.iter().map(|candidate| end.of(candidate)));
        let mut fastest: BTreeMap<&str, (&PathEnd, u64)> = BTreeMap::new();
        for offer in offers {
            let own = end.of(offer.candidate);
            let entry = fastest.entry(own.cable()).or_insert((own, 0));
            entry.1 = entry.1.max(rate(offer.candidate));
        }
        let most = (MOST_SLOTS / numbers.len().max(1)).max(1);
        let mut repeated = Vec::new();
        for (name, number) in &numbers {
            let count = fastest
                .get(name)
                .map_or(1, |(own, fastest)| slots(own, *fastest).min(most as u64));
            repeated.extend(std::iter::repeat_n(*number, count as usize));
        }
        repeated.sort_unstable();
        Self {
            numbers,
            slots: repeated,
        }
    }
}

/// Maximum number of rows or columns of a table. Bounds the time of a matching, because the peer
/// announces the rates of its interfaces.
const MOST_SLOTS: usize = 128;

/// Returns the sum of the candidates' rates in bit/s.
pub(super) fn total_rate(choice: &[Offer<'_>]) -> u64 {
    choice.iter().map(|offer| rate(offer.candidate)).sum()
}

/// Assigns a sequence number to each interface with a cable, by the least index of those that share
/// it and then by name.
fn numbered<'a>(ends: impl Iterator<Item = &'a PathEnd>) -> BTreeMap<&'a str, usize> {
    let all: BTreeSet<(u32, &str)> = ends.map(|end| (end.index, end.cable())).collect();
    let mut numbers = BTreeMap::new();
    for (_, name) in all {
        let next = numbers.len();
        numbers.entry(name).or_insert(next);
    }
    numbers
}
