//! Tests of a few simulated power cuts, during one copy of each kind. `benches/powercuts` runs
//! thousands.
//!
//! The test needs root, FUSE, a loop device and mkfs.ext4, and is ignored otherwise. The test runs
//! this program again in namespaces, so that all mounts end with it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use nicstripe_sim::Rng;
use nicstripe_testkit::{
    bench::Place,
    powercuts::{
        cuts::Plan,
        namespaces,
        room::{Room, Skipped},
        volume::Kind,
        workload::Amount,
    },
    tests,
    trial::{Test, amount},
};

pub(crate) const TESTS: &[Test] = tests![a_power_cut_takes_nothing_that_was_acknowledged];

/// Returns the reason why this machine cannot simulate power cuts; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    namespaces::obstacle(&[Kind::Ext4], None)
}

/// Returns the working directory if this process was started to simulate power cuts; `None` in the
/// test process.
pub(crate) fn base() -> Option<PathBuf> {
    env::var_os(BASE).map(PathBuf::from)
}

fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let place = Place::in_memory(256 << 20).unwrap();
    let mut command = namespaces::command(&env::current_exe().unwrap());
    command.env(BASE, place.base()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Simulates the power cuts inside the namespaces. Panics if data is lost or damaged.
pub(crate) fn cut_power(base: &Path) {
    let plan = Plan {
        room: &Room::at(base),
        kind: Kind::Ext4,
        skipped: Skipped::None,
        // Each copy has two cuts: one directly after it, and one at a random point.
        cuts: amount(12, 240),
        per_log: 12,
        amount: Amount::EachOnce,
        again_every: 0,
    };
    let outcome = plan.carry_out(&mut Rng::new(SEED)).unwrap();
    assert!(
        outcome.findings.is_clean() && outcome.bad_cuts == 0,
        "{:#?}",
        outcome.findings
    );
    assert!(
        outcome.findings.acknowledged > 0 && outcome.blocks[0] > 0,
        "nothing was at stake: {outcome:?}"
    );
}

/// Random seed without large files, whose copies would take seconds.
const SEED: u64 = 1;

const BASE: &str = "NICSTRIPE_POWER_CUTS";
