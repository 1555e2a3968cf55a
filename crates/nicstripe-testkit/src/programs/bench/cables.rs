//! Simulated cables between the two hosts of a bench.

use std::{fmt, str::FromStr};

use nicstripe_lab::LinkSpec;

/// Cables of one scenario, with their rates.
#[derive(Clone, Debug)]
pub struct Cables {
    name: String,
    pub specs: Vec<LinkSpec>,
}

impl Cables {
    /// Creates cables from link specifications, for scenarios without a command-line syntax.
    pub fn of(name: impl Into<String>, specs: impl Into<Vec<LinkSpec>>) -> Self {
        Self {
            name: name.into(),
            specs: specs.into(),
        }
    }

    /// Creates `count` cables without traffic shaping, limited only by the CPU.
    pub fn unshaped(count: usize) -> Self {
        Self {
            name: format!("{UNSHAPED}{count}"),
            specs: vec![LinkSpec::unshaped(); count],
        }
    }

    /// Returns the display name: the command-line syntax, such as `2` or `1000+100`, if the cables
    /// have one.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn count(&self) -> usize {
        self.specs.len()
    }

    /// Returns true if all cables have the same specification.
    pub fn are_equal(&self) -> bool {
        self.specs.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Returns the theoretical goodput of all cables in bits per second, header overhead
    /// subtracted; `None` if a cable is unshaped.
    pub fn theory(&self) -> Option<f64> {
        self.specs
            .iter()
            .map(|spec| spec.goodput().map(|rate| rate.bits_per_second() as f64))
            .sum()
    }

    /// Divides `size` bytes among the cables in proportion to their rates, or evenly if they are
    /// unshaped.
    pub fn divide(&self, size: u64) -> Vec<u64> {
        let rate = |spec: &LinkSpec| spec.line_rate().map_or(1, |rate| rate.bits_per_second());
        let total: u128 = self.specs.iter().map(|spec| u128::from(rate(spec))).sum();
        let mut rates_before = 0;
        let mut bytes_before = 0;
        let parts = self.specs.iter().map(|spec| {
            rates_before += u128::from(rate(spec));
            let bytes =
                u64::try_from(u128::from(size) * rates_before / total.max(1)).unwrap_or(size);
            bytes - std::mem::replace(&mut bytes_before, bytes)
        });
        parts.collect()
    }
}

impl fmt::Display for Cables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.theory() {
            None => write!(f, "{} × unshaped", self.count()),
            Some(_) if self.are_equal() => write!(f, "{} × 1 Gbit/s", self.name),
            Some(_) => write!(f, "{} Mbit/s", self.name),
        }
    }
}

/// Parses `4` as four cables of 1 Gbit/s, `1000+100` as one of 1000 Mbit/s and one of 100 Mbit/s,
/// and `unshaped-2` as two cables without traffic shaping.
impl FromStr for Cables {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "not cables: {text:?}, expected 1 to {MOST} as a count of 1 Gbit/s each, rates in Mbit/s such as 1000+100, or {UNSHAPED}2"
            )
        };
        if let Some(count) = text.strip_prefix(UNSHAPED) {
            let count = count
                .parse::<u64>()
                .ok()
                .filter(|count| (1..=MOST).contains(count));
            return Ok(Self::unshaped(count.ok_or_else(wrong)? as usize));
        }
        let numbers = text
            .split('+')
            .map(|number| number.parse().ok().filter(|number| *number > 0));
        let specs = match numbers.collect::<Option<Vec<u64>>>().ok_or_else(wrong)?[..] {
            [count @ 1..=MOST] => (0..count).map(|_| LinkSpec::gigabit()).collect(),
            [_] => return Err(wrong()),
            ref rates => rates.iter().copied().map(LinkSpec::mbit).collect(),
        };
        Ok(Self {
            name: text.to_owned(),
            specs,
        })
    }
}

const MOST: u64 = 16;

/// Start of the name of cables without traffic shaping, before their count.
const UNSHAPED: &str = "unshaped-";
