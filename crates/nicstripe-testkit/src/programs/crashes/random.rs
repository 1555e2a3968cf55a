//! Pseudo-random choices, reproducible from a seed.

use std::hash::{BuildHasher, RandomState};

use nicstripe_sim::Rng;

/// Returns a seed that differs in each run.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0) >> 16
}

/// Returns a pseudo-random item of the slice `among`.
pub fn choose<T: Copy>(random: &mut Rng, among: &[T]) -> T {
    among[random.below(among.len() as u64) as usize]
}
