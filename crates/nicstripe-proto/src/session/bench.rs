//! Benchmark state of a session: admission, current run, and paths under load.
//!
//! Load frames bypass the session. The session only instructs connections to send load frames
//! ([`Transmit::Load`](super::event::Transmit::Load)) and determines which received frames count
//! ([`Session::load_gate`](crate::Session::load_gate)).

use super::error::PathError;
use crate::{
    id::{PathId, Role},
    path::machine::{Path, PathState},
    units::BitRate,
    wire::{
        load::{LoadGate, LoadOrder},
        message::{BenchBody, BenchSample, RunNumber, RunOrder, RunReady},
    },
};

#[derive(Debug, Default)]
pub(super) struct BenchState {
    standing: Standing,
    pub(super) run: Option<UnderWay>,
    /// Highest run ID in this session so far.
    latest: u32,
    /// True if the daemon has ever admitted the client to a benchmark.
    was_admitted: bool,
}

/// Admission state of the client. Both ends keep it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The client has not requested a benchmark, or has left it. Next state: `Asked`.
    #[default]
    Outside,
    /// The client has requested a benchmark. Next states: `Admitted`, `Outside`.
    Asked,
    /// The client may begin runs. Next state: `Outside`.
    Admitted,
}

/// Benchmark run that has not ended.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) order: RunOrder,
    /// True if both ends count received load frames.
    pub(super) is_ready: bool,
}

impl BenchState {
    /// Applies the effects of a message that this end is about to send. Returns false if the
    /// message is not allowed now.
    ///
    /// Runs and disk requests need admission. A run needs a higher ID than all earlier runs, and no
    /// other run may be active.
    pub(super) fn say(&mut self, role: Role, body: &BenchBody) -> bool {
        if body.is_clients() != (role == Role::Client) || !body.is_bounded() {
            return false;
        }
        let is_admitted = self.standing == Standing::Admitted;
        let may = match body {
            BenchBody::Ask(_) => self.standing == Standing::Outside,
            BenchBody::Run(order) => is_admitted && self.run.is_none() && order.run > self.latest,
            BenchBody::Stop(RunNumber { run }) => self.is_under_way(*run),
            BenchBody::Disk(_) | BenchBody::Facts(_) | BenchBody::DiskDone(_) => is_admitted,
            BenchBody::Leave | BenchBody::Refused(_) => self.standing != Standing::Outside,
            BenchBody::Admitted(_) | BenchBody::Queued(_) => self.standing == Standing::Asked,
            BenchBody::Ready(RunReady { run, .. }) => self.is_under_way(*run),
            BenchBody::Sample(_) | BenchBody::Stopped(_) => is_admitted,
        };
        if may {
            self.apply(body, false);
        }
        may
    }

    /// Applies the effects of a message from the peer. Returns false and ignores the message if it
    /// is late: the peer had not yet learned of the end of the benchmark or run.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the message violates the protocol.
    pub(super) fn hear(&mut self, role: Role, body: &BenchBody) -> Result<bool, PathError> {
        if body.is_clients() != (role == Role::Daemon) {
            return Err(PathError::Unexpected("the other end's part of a bench"));
        }
        if !body.is_bounded() {
            return Err(PathError::Unexpected("a bench beyond its bounds"));
        }
        let is_admitted = self.standing == Standing::Admitted;
        let is_asked = self.standing == Standing::Asked;
        // Messages that are in flight when a client leaves or a run ends arrive late.
        let (is_expected, is_late) = match body {
            BenchBody::Ask(_) => (self.standing == Standing::Outside, false),
            BenchBody::Run(order) => (
                self.run.is_none() && order.run > self.latest && self.was_admitted,
                !is_admitted,
            ),
            BenchBody::Stop(RunNumber { run }) | BenchBody::Ready(RunReady { run, .. }) => {
                (*run <= self.latest, !self.is_under_way(*run))
            }
            BenchBody::Disk(_) => (self.was_admitted, !is_admitted),
            BenchBody::Leave => (true, false),
            BenchBody::Admitted(_) | BenchBody::Queued(_) => {
                (is_asked || !self.is_fresh(), !is_asked)
            }
            BenchBody::Refused(_) => (!self.is_fresh(), self.standing == Standing::Outside),
            BenchBody::Facts(_) | BenchBody::DiskDone(_) => (!self.is_fresh(), !is_admitted),
            BenchBody::Sample(BenchSample { run, .. }) | BenchBody::Stopped(RunNumber { run }) => {
                (*run <= self.latest, false)
            }
        };
        if !is_expected {
            return Err(PathError::Unexpected("a bench out of its order"));
        }
        if let BenchBody::Run(order) = body {
            self.latest = self.latest.max(order.run);
        }
        if !is_late {
            self.apply(body, true);
        }
        Ok(!is_late)
    }

    pub(super) fn load_gate(&self) -> LoadGate {
        LoadGate {
            counted: self.run.as_ref().map(|run| run.order.run),
            latest: self.latest,
            is_open: self.was_admitted,
        }
    }

    /// Returns the load that this end sends on a path; `None` without one. `rate_limit` is the
    /// limit of all paths together, and is divided equally among the run's paths.
    pub(super) fn load_on(
        &self,
        role: Role,
        id: PathId,
        path: &Path,
        rate_limit: Option<BitRate>,
    ) -> Option<LoadOrder> {
        let UnderWay { order, is_ready } = self.run.as_ref()?;
        let sends = match role {
            Role::Client => order.to_daemon && *is_ready,
            Role::Daemon => order.to_client,
        };
        let is_usable = path.state() == PathState::Open && path.carries_data;
        if !sends || !is_usable || !order.paths.contains(&id.0) {
            return None;
        }
        let share = rate_limit.map(|limit| BitRate((limit.0 / order.paths.len() as u64).max(1)));
        let own = path.pace.as_ref().map(|pace| pace.rate);
        Some(LoadOrder {
            run: order.run,
            message_bytes: order.message_bytes,
            rate: own.into_iter().chain(share).min(),
        })
    }

    fn is_under_way(&self, number: u32) -> bool {
        self.run.as_ref().is_some_and(|run| run.order.run == number)
    }

    /// Returns true if the client has never requested a benchmark.
    fn is_fresh(&self) -> bool {
        self.standing == Standing::Outside && !self.was_admitted && self.latest == 0
    }

    /// Applies the effects of a sent or received message.
    fn apply(&mut self, body: &BenchBody, has_arrived: bool) {
        match body {
            BenchBody::Ask(_) => self.standing = Standing::Asked,
            BenchBody::Admitted(_) => {
                (self.standing, self.was_admitted) = (Standing::Admitted, true);
            }
            BenchBody::Refused(_) | BenchBody::Leave => {
                (self.standing, self.run) = (Standing::Outside, None);
            }
            BenchBody::Run(order) => {
                self.latest = order.run;
                self.run = Some(UnderWay {
                    order: order.clone(),
                    is_ready: has_arrived,
                });
            }
            BenchBody::Ready(_) => {
                if let Some(run) = &mut self.run {
                    run.is_ready = true;
                }
            }
            BenchBody::Stopped(RunNumber { run }) if self.is_under_way(*run) => self.run = None,
            _ => {}
        }
    }
}
