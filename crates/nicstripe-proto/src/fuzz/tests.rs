use nicstripe_testkit::replay;

use super::*;

#[test]
fn the_targets_accept_every_file_of_their_corpora() {
    replay(&[
        ("frames", frames),
        ("greetings", greetings),
        ("messages", messages),
        ("batches", batches),
        ("names", names),
        ("discovery", discovery),
        ("invitations", invitations),
        ("journal", journal),
        ("extents", extents),
        ("session", session),
        ("mux", mux),
        ("tunnels", tunnels),
    ]);
}

/// Calls the target on `rounds` inputs of `len` random bytes, which begin with the round's number.
fn survives_noise(target: fn(&[u8]), rounds: u32, len: usize) {
    for round in 0..if cfg!(miri) { 1 } else { rounds } {
        let mut bytes = vec![round as u8; len];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&round.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes[1..]);
        target(&bytes);
    }
}

#[test]
fn no_noise_breaks_what_the_targets_of_state_machines_assert() {
    survives_noise(tunnels, 300, 300);
    survives_noise(extents, 3000, 200);
    survives_noise(session, 1000, 600);
}
