//! Platform-independent pseudo-random number generator.

/// SplitMix64, a small pseudo-random number generator. The output depends only on the seed.
///
/// After Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
/// with the constants of Vigna's `splitmix64.c` (prng.di.unimi.it). All seeds are equally good,
/// including 0. Not suitable for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator from a seed. Equal seeds produce equal sequences.
    pub const fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0.
    ///
    /// Multiplies without rejection: the probabilities of two numbers may differ by `bound` ÷ 2⁶⁴.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut rng = Rng::new(1_234_567);
        let numbers = [(); 5].map(|()| rng.next_u64());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn bounded_numbers_stay_below_and_reach_every_value() {
        let mut rng = Rng::new(0);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[rng.below(7) as usize] += 1;
        }
        // The expected count is 1000, with a standard deviation of 29.
        assert!(
            seen.iter().all(|count| (850..1150).contains(count)),
            "{seen:?}"
        );
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
