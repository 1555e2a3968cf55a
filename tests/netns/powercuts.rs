//! A few simulated power cuts, of one copy of each kind; `benches/powercuts` has thousands.
//!
//! Needs root, FUSE, a loop device and mkfs.ext4; elsewhere the test is ignored. The test runs this program again in namespaces with which
//! all mounts end.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use nicstripe_sim::Rng;

use self::{
    bench_support::Place,
    cuts::Plan,
    room::{Room, Skipped},
    volume::Kind,
    workload::Amount,
};

#[path = "../../benches/bench_support/mod.rs"]
mod bench_support;
#[allow(dead_code, reason = "shared with the bench, which uses more of it")]
#[path = "../../benches/powercuts/cuts.rs"]
mod cuts;
#[path = "../../benches/powercuts/disk.rs"]
mod disk;
#[path = "../../benches/powercuts/history.rs"]
mod history;
#[path = "../../benches/powercuts/inspection.rs"]
mod inspection;
#[path = "../../benches/powercuts/namespaces.rs"]
mod namespaces;
#[path = "../../benches/powercuts/room.rs"]
mod room;
#[path = "../../benches/powercuts/volume.rs"]
mod volume;
#[allow(dead_code, reason = "shared with the bench, which uses more of it")]
#[path = "../../benches/powercuts/workload.rs"]
mod workload;

pub(crate) const TESTS: &[(&str, fn())] = tests![a_power_cut_takes_nothing_that_was_acknowledged];

/// Why these tests cannot run here.
pub(crate) fn obstacle() -> Option<String> {
    namespaces::obstacle(&[Kind::Ext4], None)
}

/// The folder that is for this process, if it is the one that cuts the power.
pub(crate) fn base() -> Option<PathBuf> {
    env::var_os(BASE).map(PathBuf::from)
}

fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let place = Place::in_memory(256 << 20).unwrap();
    let mut command = namespaces::command(&env::current_exe().unwrap());
    command.env(BASE, place.base()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the test does in its namespaces. Panics when anything is wrong.
pub(crate) fn cut_power(base: &Path) {
    let plan = Plan {
        room: &Room::at(base),
        kind: Kind::Ext4,
        skipped: Skipped::None,
        // Twice the copies: one cut right behind each, and as many anywhere.
        cuts: 12,
        per_log: 12,
        amount: Amount::EachOnce,
        again_every: 0,
    };
    let outcome = plan.carry_out(&mut Rng::new(SEED)).unwrap();
    assert!(outcome.findings.is_clean() && outcome.bad_cuts == 0, "{:#?}", outcome.findings);
    assert!(outcome.findings.acknowledged > 0 && outcome.blocks[0] > 0, "nothing was at stake: {outcome:?}");
}

/// Of a worker that makes no large file, which would take seconds.
const SEED: u64 = 1;

const BASE: &str = "NICSTRIPE_POWER_CUTS";
