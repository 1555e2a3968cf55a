//! Measures the rates of the links between two machines, alone and together, through the sessions
//! and paths that copies use.
//!
//! [`crate::Client::bench`] runs a [`BenchPlan`] and returns a [`BenchReport`]; a [`crate::Daemon`]
//! takes part within its [`BenchLimits`]. The crate `nicstripe-bench` measures; this module
//! connects it to the client.

pub(crate) mod blocking;
mod client;
mod handle;
mod packets;

#[doc(inline)]
pub use nicstripe_bench::{
    BaselineVerdict, BenchEvent, BenchLimits, BenchLink, BenchPlan, BenchReport, Comparison,
    CpuUse, Direction, DiskPlan, DiskReport, Ends, Flow, HostFacts, InterfaceFacts, Interval,
    Known, Limiter, LinkSummary, Phase, PlanSummary, RoundTrips, Run, SCHEMA, Spread, Summary,
    Sweep, SweepKind, SweepPoint, TcpUse, TheoryInputs, compare, conclude, median, summarise,
};

pub use self::handle::Bench;
