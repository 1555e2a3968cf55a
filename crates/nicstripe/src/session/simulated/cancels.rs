//! Tests of copies that are cancelled at random times, one after the other in one session: they
//! leave nothing behind, and the next one resumes.

use nicstripe_proto::{ChunkSize, FailCode};
use nicstripe_sim::{End, LinkConfig, Rng};
use nicstripe_testkit::trial::amount;
use tokio::time::sleep;

use super::lab::{Copy, Direction, Lab, in_virtual_time, link, secs, us};
use crate::{report::error::Error, session::Command};

#[test]
fn copies_cancelled_at_any_moment_leave_nothing_behind_and_the_next_resumes() {
    for seed in 0..amount(2, 40) {
        in_virtual_time(run(seed));
    }
}

async fn run(seed: u64) {
    println!("seed {seed}");
    let mut rng = Rng::new(seed ^ 0xca9ce1);
    let direction = Direction::BOTH[seed as usize % 2];
    // A daemon sends full chunks.
    let (chunk_size, chunks, cancels, longest) = match direction {
        Direction::Put => (ChunkSize::MIN, 1 + rng.below(150), 200, 200),
        Direction::Get => (ChunkSize::DEFAULT, 1 + rng.below(4), 140, 1_000),
    };
    let far = LinkConfig::new(100_000_000, us(rng.below(3_000))).jitter(us(rng.below(300)));
    let mut lab = Lab::over_paths(seed, vec![link(10), far]).await;
    lab.chunk_size = chunk_size;
    let mut copy = lab.copy(direction, chunks * chunk_size.bytes()).await;
    let (mut first, mut known) = (0, 0);
    for cancel in 0..cancels {
        let most = longest * (1 + rng.below(60));
        sleep(us(rng.below(most))).await;
        known = lab.cancel(direction, copy, known).await;
        if rng.below(8) == 0 {
            sleep(us(rng.below(20_000))).await;
        }
        copy = lab.copy_again(direction).await;
        if cancel == cancels / 2 {
            first = lab.state_len().await;
        }
    }
    let last = lab.state_len().await;
    assert!(!lab.is_cancelled(direction, copy, known).await);
    // State that is kept for ended transfers is bounded; otherwise it would double.
    assert!(
        last <= first + first / 2 + 4096,
        "{first} bytes describe the sessions after {} transfers, {last} after {cancels}",
        cancels / 2
    );
    sleep(secs(1)).await;
    for end in End::BOTH {
        let held = lab.inspect(end, |session| {
            session
                .paths()
                .map(|(_, path)| path.held_chunks())
                .sum::<u64>()
        });
        assert_eq!(held.await, 0, "{end:?}");
    }
    assert_eq!(lab.open_files(), Vec::<std::path::PathBuf>::new());
}

impl Lab {
    /// Cancels a copy. Returns the number of durable bytes, from which the next copy resumes.
    /// `known` is that number for this copy.
    async fn cancel(&self, direction: Direction, copy: Copy, known: u64) -> u64 {
        let transfer = copy.transfer;
        let stats = self
            .inspect(End::A, move |session| session.stats(transfer))
            .await;
        self.command(Command::Cancel(transfer)).await;
        if self.is_cancelled(direction, copy, known).await {
            known.max(stats.resumed_bytes + stats.delivered_bytes)
        } else {
            0
        }
    }

    /// Waits for the end of a copy, which resumes from `known` bytes or more. Returns false if the
    /// file was delivered, and removes it.
    async fn is_cancelled(&self, direction: Direction, copy: Copy, known: u64) -> bool {
        match copy.end(secs(60)).await {
            Err(Error::Cancelled { .. }) => return true,
            Ok((_, tally)) => assert!(tally.stats.resumed_bytes >= known, "{known} {tally:?}"),
            // The copy before this one was committed although the client cancelled it.
            Err(error) => assert_eq!(error.fail_code(), Some(FailCode::Exists), "{error:?}"),
        }
        self.assert_delivered();
        std::fs::remove_file(self.file(direction.sender().other())).unwrap();
        false
    }

    /// Returns the length of both sessions' debug output in bytes, as a measure of their state.
    async fn state_len(&self) -> usize {
        let [client, daemon] =
            End::BOTH.map(|end| self.inspect(end, |session| format!("{session:?}").len()));
        client.await + daemon.await
    }
}
