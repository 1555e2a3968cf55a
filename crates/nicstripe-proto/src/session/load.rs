//! Benchmark state of a session: admission, current run, and paths under load.
//!
//! Load frames bypass the session. It only tells connections to send them ([`Transmit::Load`]) and
//! defines which ones count ([`Session::load_gate`]).

use super::{Event, PathError, Role, Session, Transmit};
use crate::{
    load::{LoadGate, LoadOrder},
    message::{BenchAdmitted, BenchBody, BenchRefused, Message, RunNumber, RunOrder, RunReady},
    path::{PathId, PathState},
    units::BitRate,
};

#[derive(Debug, Default)]
pub(super) struct BenchState {
    standing: Standing,
    run: Option<UnderWay>,
    /// Highest run ID so far.
    latest: u32,
    /// True if the daemon has ever admitted the client to a benchmark.
    was_admitted: bool,
}

/// Admission state of the client, at either end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The client has not requested a benchmark, or has left. To: `Asked`.
    #[default]
    Outside,
    /// The client has requested a benchmark. To: `Admitted`, `Outside`.
    Asked,
    /// The client may begin runs. To: `Outside`.
    Admitted,
}

#[derive(Debug)]
struct UnderWay {
    order: RunOrder,
    /// True if both ends count received load frames.
    is_ready: bool,
}

impl Session {
    /// Sends a benchmark message to the peer and applies its effects. Returns false if the message
    /// is not allowed now.
    ///
    /// A client needs admission. A run needs an ID above all earlier ones, and no other current
    /// run.
    pub fn send_bench_message(&mut self, body: BenchBody) -> bool {
        if body.is_clients() != (self.role == Role::Client) || !body.is_bounded() {
            return false;
        }
        let bench = &mut self.bench;
        let is_admitted = bench.standing == Standing::Admitted;
        let may = match &body {
            BenchBody::Ask(_) => bench.standing == Standing::Outside,
            BenchBody::Run(order) => is_admitted && bench.run.is_none() && order.run > bench.latest,
            BenchBody::Stop(RunNumber { run }) => bench.is_under_way(*run),
            BenchBody::Disk(_) | BenchBody::Facts(_) | BenchBody::DiskDone(_) => is_admitted,
            BenchBody::Leave | BenchBody::Refused(_) => bench.standing != Standing::Outside,
            BenchBody::Admitted(_) | BenchBody::Queued(_) => bench.standing == Standing::Asked,
            BenchBody::Ready(RunReady { run, .. }) => bench.is_under_way(*run),
            BenchBody::Sample(_) | BenchBody::Stopped(_) => is_admitted,
        };
        if may {
            bench.on_said(&body);
            self.send(&Message::Bench(body));
        }
        may
    }

    /// Ends the current run locally: stops sending load and counting received load. The caller must
    /// inform the peer.
    pub fn end_run(&mut self) {
        self.bench.run = None;
    }

    /// Returns the current run, and true if both ends count received load frames.
    pub fn run(&self) -> Option<(&RunOrder, bool)> {
        self.bench
            .run
            .as_ref()
            .map(|run| (&run.order, run.is_ready))
    }

    /// Returns the benchmark traffic that the session permits on its connections.
    pub fn load_gate(&self) -> LoadGate {
        let counted = self.bench.run.as_ref().map(|run| run.order.run);
        LoadGate {
            counted,
            latest: self.bench.latest,
            is_open: self.bench.was_admitted,
        }
    }

    pub(super) fn handle_bench(&mut self, body: BenchBody) -> Result<(), PathError> {
        if body.is_clients() != (self.role == Role::Daemon) {
            return Err(PathError::Unexpected("the other end's part of a bench"));
        }
        if !body.is_bounded() {
            return Err(PathError::Unexpected("a bench beyond its bounds"));
        }
        let bench = &mut self.bench;
        let is_admitted = bench.standing == Standing::Admitted;
        let is_expected = match &body {
            BenchBody::Ask(_) => bench.standing == Standing::Outside,
            BenchBody::Run(order) => {
                bench.run.is_none() && order.run > bench.latest && bench.was_admitted
            }
            BenchBody::Stop(RunNumber { run }) | BenchBody::Ready(RunReady { run, .. }) => {
                *run <= bench.latest
            }
            BenchBody::Disk(_) => bench.was_admitted,
            BenchBody::Leave => true,
            // Messages in flight when a client leaves arrive late.
            BenchBody::Admitted(_) | BenchBody::Queued(_) => {
                bench.standing == Standing::Asked || !bench.is_fresh()
            }
            BenchBody::Refused(_) | BenchBody::Facts(_) | BenchBody::DiskDone(_) => {
                !bench.is_fresh()
            }
            BenchBody::Sample(sample) => sample.run <= bench.latest,
            BenchBody::Stopped(RunNumber { run }) => *run <= bench.latest,
        };
        if !is_expected {
            return Err(PathError::Unexpected("a bench out of its order"));
        }
        // Messages that crossed the end of a bench or run are ignored.
        let is_late = match &body {
            BenchBody::Run(_)
            | BenchBody::Disk(_)
            | BenchBody::Facts(_)
            | BenchBody::DiskDone(_) => !is_admitted,
            BenchBody::Stop(RunNumber { run }) | BenchBody::Ready(RunReady { run, .. }) => {
                !bench.is_under_way(*run)
            }
            BenchBody::Admitted(_) | BenchBody::Queued(_) => bench.standing != Standing::Asked,
            BenchBody::Refused(_) => bench.standing == Standing::Outside,
            _ => false,
        };
        if let BenchBody::Run(order) = &body {
            bench.latest = bench.latest.max(order.run);
        }
        if !is_late {
            bench.on_heard(&body);
            self.events.push_back(Event::Bench(body));
        }
        Ok(())
    }

    /// Returns the load to start or stop on a path, once after each change.
    pub(super) fn poll_load(&mut self, id: PathId) -> Option<Transmit> {
        let wanted = self.wanted_load(id);
        let path = self.paths.get_mut(&id)?;
        if path.loading == wanted {
            return None;
        }
        path.loading = wanted;
        Some(Transmit::Load(wanted))
    }

    fn wanted_load(&self, id: PathId) -> Option<LoadOrder> {
        let UnderWay { order, is_ready } = self.bench.run.as_ref()?;
        let sends = if self.role == Role::Client {
            order.to_daemon && *is_ready
        } else {
            order.to_client
        };
        let path = self
            .paths
            .get(&id)
            .filter(|path| path.state() == PathState::Open && path.carries_data)?;
        if !sends || !order.paths.contains(&id.0) {
            return None;
        }
        // The session's limit is divided equally among the paths.
        let share = self
            .config
            .rate_limit
            .map(|limit| BitRate((limit.0 / order.paths.len() as u64).max(1)));
        let rate = path
            .pace
            .as_ref()
            .map(|pace| pace.rate())
            .into_iter()
            .chain(share)
            .min();
        Some(LoadOrder {
            run: order.run,
            message_bytes: order.message_bytes,
            rate,
        })
    }
}

impl BenchState {
    fn is_under_way(&self, number: u32) -> bool {
        self.run.as_ref().is_some_and(|run| run.order.run == number)
    }

    /// Returns true if the client has never requested a benchmark.
    fn is_fresh(&self) -> bool {
        self.standing == Standing::Outside && !self.was_asked()
    }

    fn was_asked(&self) -> bool {
        self.was_admitted || self.latest > 0 || self.standing != Standing::Outside
    }

    fn begin(&mut self, order: &RunOrder, is_ready: bool) {
        self.latest = order.run;
        self.run = Some(UnderWay {
            order: order.clone(),
            is_ready,
        });
    }

    fn on_said(&mut self, body: &BenchBody) {
        match body {
            BenchBody::Ask(_) => self.standing = Standing::Asked,
            BenchBody::Admitted(_) => self.admit(),
            BenchBody::Refused(_) | BenchBody::Leave => self.leave(),
            BenchBody::Run(order) => self.begin(order, false),
            _ => {}
        }
    }

    fn on_heard(&mut self, body: &BenchBody) {
        match body {
            BenchBody::Ask(_) => self.standing = Standing::Asked,
            BenchBody::Admitted(BenchAdmitted { .. }) => self.admit(),
            BenchBody::Refused(BenchRefused { .. }) | BenchBody::Leave => self.leave(),
            BenchBody::Run(order) => self.begin(order, true),
            BenchBody::Ready(_) => {
                if let Some(run) = &mut self.run {
                    run.is_ready = true;
                }
            }
            BenchBody::Stopped(RunNumber { run }) if self.is_under_way(*run) => self.run = None,
            _ => {}
        }
    }

    fn admit(&mut self) {
        (self.standing, self.was_admitted) = (Standing::Admitted, true);
    }

    fn leave(&mut self) {
        (self.standing, self.run) = (Standing::Outside, None);
    }
}
