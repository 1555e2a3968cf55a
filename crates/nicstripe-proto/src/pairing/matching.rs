//! Selection of candidates with the maximum total rate. Each interface is used at most once.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    candidate::{Candidate, PathEnd, Preference},
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

/// Number of bits that count candidates: at most 64 are selected.
const COUNT_BITS: usize = 8;

/// Lowest bits of the parts of [`Offer::worth`].
const REACHED_AT: usize = 20;
const PREFERENCES_AT: usize = REACHED_AT + COUNT_BITS;
const IN_USE_AT: usize = PREFERENCES_AT + COUNT_BITS * Preference::COUNT;
const RATE_AT: usize = IN_USE_AT + COUNT_BITS;

/// Selects the untried `candidates` with the maximum total rate. Excludes the interface pairs
/// `taken` (local name, remote name).
///
/// Keeps the given order. Uses each interface at most once. Ties are decided by the better
/// preferences, then by the order of interface indices and names.
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

/// Returns true unless one of the candidate's interfaces occurs in a pair of `taken`.
pub(super) fn is_free(candidate: &Candidate, taken: &[(String, String)]) -> bool {
    taken.iter().all(|(ours, theirs)| {
        *ours != candidate.local.interface && *theirs != candidate.remote.interface
    })
}

/// Returns the selection from `offers` with the maximum value, in the given order. `all` determines
/// the sequence numbers of interfaces, so that they do not depend on the offers.
pub(super) fn best<'a>(all: &[Candidate], offers: &[Offer<'a>]) -> Vec<Offer<'a>> {
    let ours = numbered(all.iter().map(|candidate| &candidate.local));
    let theirs = numbered(all.iter().map(|candidate| &candidate.remote));
    let mut table: Vec<Vec<Option<(i128, usize)>>> = vec![vec![None; theirs.len()]; ours.len()];
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
