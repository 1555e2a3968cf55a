//! Support for tests and benches that run real processes, labs and simulated disks.

pub mod bench;
pub mod crashes;
mod example;
pub mod kernel_routes;
pub mod odd_disk;
mod outcome;
pub mod pair;
pub mod powercuts;
mod process;
mod program;
pub mod restic;
mod schema;
mod side;
mod sshd;
mod stand_ins;
pub mod traffic;
pub mod tree;
mod unit_filters;

pub use self::{
    example::{cargo, example},
    outcome::Outcome,
    pair::Pair,
    process::Process,
    program::{other_program, program},
    schema::Schema,
    side::{Daemon, Side, link, number, text},
    sshd::Sshd,
    stand_ins::StandIns,
    unit_filters::under_the_filters_of_the_unit,
};
