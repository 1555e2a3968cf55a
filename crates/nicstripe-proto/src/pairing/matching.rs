//! Selection of candidates with the greatest total rate, each interface used at most once on either
//! side.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Add, Sub},
};

use super::{
    candidate::{Candidate, PathEnd, Preference},
    hungarian::{Weight, heaviest},
};

/// Assumed rate of a candidate in bit/s if neither end knows its line rate: that of the most common
/// cable.
pub(crate) const UNKNOWN_RATE_BPS: u64 = 1_000_000_000;

/// Upper limit of a candidate's rate in bit/s: 281 Tbit/s. Only an invalid announcement exceeds it,
/// and sums of it do not overflow.
const MOST_RATE_BPS: u64 = 1 << 48;

/// Candidate that may be selected, with its state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) is_in_use: bool,
    /// True if the candidate's peer interface has answered a probe or accepted a connection.
    pub(super) was_reached: bool,
}

impl Offer<'_> {
    /// Returns the value of selecting this candidate, given the sequence numbers of its interfaces.
    /// Always above zero, because of the preference.
    pub(super) fn worth(&self, ours: usize, theirs: usize) -> Worth {
        let mut preferences = [0; Preference::COUNT];
        preferences[self.candidate.preference as usize] = 1;
        let [own_subnet, link_local, own_prefix, shared_subnet] = preferences;
        let rate = rate(self.candidate) as i64;
        let (in_use, reached) = (i64::from(self.is_in_use), i64::from(self.was_reached));
        let askew = ours.abs_diff(theirs) as i64;
        Worth([
            rate,
            in_use,
            own_subnet,
            link_local,
            own_prefix,
            shared_subnet,
            reached,
            -askew * askew,
        ])
    }
}

/// Value of a selection, most important part first.
///
/// 1. Total rate in bit/s.
/// 2. Candidates in use: a working link is not replaced by another of the same rate.
/// 3. Candidates of each [`Preference`], the best first.
/// 4. Candidates that a probe reached.
/// 5. Minus the squared differences of the ends' sequence numbers, so that equal interfaces pair in
///    order. Of two ways to pair two interfaces with two others, the one without crossing has the
///    smaller sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth([i64; Preference::COUNT + 4]);

impl Add for Worth {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(part, other)| *part += other);
        self
    }
}

impl Sub for Worth {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(part, other)| *part -= other);
        self
    }
}

impl Weight for Worth {
    const ZERO: Self = Self([0; Preference::COUNT + 4]);
}

/// Selects from untried `candidates` for the greatest total rate, excluding the interface pairs
/// `taken` (local name, remote name).
///
/// Keeps the given order. Uses each interface at most once on either side. Ties go to the better
/// preferences, then to the order of interface indices and names.
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
    candidate
        .rate_bps
        .unwrap_or(UNKNOWN_RATE_BPS)
        .min(MOST_RATE_BPS)
}

/// Returns true unless one of the candidate's interfaces is in a pair of `taken`.
pub(super) fn is_free(candidate: &Candidate, taken: &[(String, String)]) -> bool {
    taken.iter().all(|(ours, theirs)| {
        *ours != candidate.local.interface && *theirs != candidate.remote.interface
    })
}

/// Returns the selection from `offers` with the greatest value, in the given order. `all`
/// determines the sequence numbers of interfaces, independent of the offers.
pub(super) fn best<'a>(all: &[Candidate], offers: &[Offer<'a>]) -> Vec<Offer<'a>> {
    let ours = numbered(all.iter().map(|candidate| &candidate.local));
    let theirs = numbered(all.iter().map(|candidate| &candidate.remote));
    let mut table: Vec<Vec<Option<(Worth, usize)>>> = vec![vec![None; theirs.len()]; ours.len()];
    for (index, offer) in offers.iter().enumerate() {
        let (row, column) = (
            ours.get(offer.candidate.local.interface.as_str()),
            theirs.get(offer.candidate.remote.interface.as_str()),
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
    let chosen = heaviest(ours.len(), theirs.len(), |row, column| {
        table[row][column].map(|(worth, _)| worth)
    });
    let cells = chosen
        .into_iter()
        .zip(&table)
        .filter_map(|(column, cells)| cells[column?]);
    let mut indices: Vec<usize> = cells.map(|(_, index)| index).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| offers[index]).collect()
}

/// Returns the sum of the candidates' rates in bit/s.
pub(super) fn total_rate(choice: &[Offer<'_>]) -> u64 {
    choice.iter().map(|offer| rate(offer.candidate)).sum()
}

/// Assigns a sequence number to each interface name, by interface index and then by name.
fn numbered<'a>(ends: impl Iterator<Item = &'a PathEnd>) -> BTreeMap<&'a str, usize> {
    let all: BTreeSet<(u32, &str)> = ends
        .map(|end| (end.index, end.interface.as_str()))
        .collect();
    let mut numbers = BTreeMap::new();
    for (_, name) in all {
        let next = numbers.len();
        numbers.entry(name).or_insert(next);
    }
    numbers
}
