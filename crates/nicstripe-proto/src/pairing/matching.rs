//! The choice: which candidates together carry most, each interface used at most once on either side.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Add, Sub},
};

use super::{
    candidate::{Candidate, PathEnd, Preference},
    hungarian::{Weight, heaviest},
};

/// Rate of a candidate neither of whose ends knows its own, in bit/s: the commonest cable's.
pub const UNKNOWN_RATE_BPS: u64 = 1_000_000_000;

/// Most that a candidate counts for, in bit/s: 281 Tbit/s. Only nonsense from a peer is more, and sums of this much stay far from overflow.
const MOST_RATE_BPS: u64 = 1 << 48;

/// A candidate to choose from, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) is_in_use: bool,
    /// Whether a probe was answered or a connection made.
    pub(super) was_reached: bool,
    /// What it would carry, in bit/s.
    pub(super) rate_bps: u64,
}

impl Offer<'_> {
    /// How much it adds to a choice in which it joins interfaces number `ours` and `theirs`. Above zero at any rate, for its preference.
    pub(super) fn worth(&self, ours: usize, theirs: usize) -> Worth {
        let mut preferences = [0; Preference::COUNT];
        preferences[self.candidate.preference as usize] = 1;
        let [own_subnet, link_local, own_prefix, shared_subnet] = preferences;
        let rate = self.rate_bps.min(MOST_RATE_BPS) as i64;
        let (in_use, reached) = (i64::from(self.is_in_use), i64::from(self.was_reached));
        let askew = ours.abs_diff(theirs) as i64;
        Worth([rate, in_use, own_subnet, link_local, own_prefix, shared_subnet, reached, -askew * askew])
    }
}

/// What a choice is worth, its most important part first.
///
/// 1. Bit/s in all.
/// 2. How many of its candidates are in use: a link that works is not taken down for another of the same rate.
/// 3. How many are of each [`Preference`], the best first.
/// 4. How many were reached by a probe.
/// 5. How little it crosses over, so that equal interfaces pair in their order: minus the squares of how far apart the two ends' numbers
///    are. Of two ways to pair two interfaces with two others, the one that does not cross always has the lesser sum of squares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth([i64; Preference::COUNT + 4]);

impl Add for Worth {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(part, other)| *part += other);
        self
    }
}

impl Sub for Worth {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(part, other)| *part -= other);
        self
    }
}

impl Weight for Worth {
    const ZERO: Self = Self([0; Preference::COUNT + 4]);
}

/// Chooses from `candidates`, none of which anything is known of, so that the total rate is greatest beside the interfaces `taken` already.
///
/// Returns them in the order given. Each interface is used at most once on either side; of equal choices, the one with more of the better
/// preferences is taken, then the one that pairs interfaces in the order of their indices and names.
pub fn choose(candidates: &[Candidate], taken: &[(String, String)]) -> Vec<Candidate> {
    let offer = |candidate| Offer { candidate, is_in_use: false, was_reached: false, rate_bps: rate(candidate) };
    let offers: Vec<Offer<'_>> = candidates.iter().filter(|candidate| is_free(candidate, taken)).map(offer).collect();
    best(candidates, &offers).into_iter().map(|offer| offer.candidate.clone()).collect()
}

/// Returns what a candidate would carry, in bit/s.
pub(super) fn rate(candidate: &Candidate) -> u64 {
    candidate.rate_bps.unwrap_or(UNKNOWN_RATE_BPS)
}

/// Whether neither end is among those `taken`.
pub(super) fn is_free(candidate: &Candidate, taken: &[(String, String)]) -> bool {
    taken.iter().all(|(ours, theirs)| *ours != candidate.local.interface && *theirs != candidate.remote.interface)
}

/// Returns the choice from `offers` that is worth most, in the order given.
///
/// Interfaces are numbered by `all`, so that their order does not depend on which of their candidates can be had.
pub(super) fn best<'a>(all: &[Candidate], offers: &[Offer<'a>]) -> Vec<Offer<'a>> {
    let ours = numbered(all.iter().map(|candidate| &candidate.local));
    let theirs = numbered(all.iter().map(|candidate| &candidate.remote));
    let mut table: Vec<Vec<Option<(Worth, usize)>>> = vec![vec![None; theirs.len()]; ours.len()];
    for (index, offer) in offers.iter().enumerate() {
        let (row, column) = (ours.get(offer.candidate.local.interface.as_str()), theirs.get(offer.candidate.remote.interface.as_str()));
        let (Some(&row), Some(&column)) = (row, column) else { continue };
        let worth = offer.worth(row, column);
        let cell = &mut table[row][column];
        if cell.is_none_or(|(other, _)| other < worth) {
            *cell = Some((worth, index));
        }
    }
    let chosen = heaviest(ours.len(), theirs.len(), |row, column| table[row][column].map(|(worth, _)| worth));
    let cells = chosen.into_iter().zip(&table).filter_map(|(column, cells)| cells[column?]);
    let mut indices: Vec<usize> = cells.map(|(_, index)| index).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| offers[index]).collect()
}

/// Returns how much a choice would carry, in bit/s.
pub(super) fn total_rate(choice: &[Offer<'_>]) -> u64 {
    choice.iter().map(|offer| offer.rate_bps.min(MOST_RATE_BPS)).sum()
}

/// Numbers interfaces by their indices, then by their names.
fn numbered<'a>(ends: impl Iterator<Item = &'a PathEnd>) -> BTreeMap<&'a str, usize> {
    let all: BTreeSet<(u32, &str)> = ends.map(|end| (end.index, end.interface.as_str())).collect();
    let mut numbers = BTreeMap::new();
    for (_, name) in all {
        let next = numbers.len();
        numbers.entry(name).or_insert(next);
    }
    numbers
}
