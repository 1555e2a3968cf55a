//! Connections of a session's paths: opened, silent, lost, retired.

use std::time::Instant;

use super::{event::Event, state::Session};
use crate::{
    id::{PathId, Role},
    pairing::{Failure, Obstacle},
    path::{
        machine::{Arrival, Cause, NotConnected, Path, PathLoss, PathState},
        pace::Pace,
        plan::{Origin, PathPlan},
    },
    units::BitRate,
};

impl Session {
    /// Iterates over all paths in ascending order of their IDs.
    pub fn paths(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.paths.iter()
    }

    /// Returns the state and measurements of a path; `None` if the ID is unknown.
    pub fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id)
    }

    /// Adds a path whose connection begins at once.
    ///
    /// Returns its ID, which is that of a retired path of the same link if it has one; `None` if
    /// the session has used all IDs.
    pub fn add_path(&mut self, plan: PathPlan, now: Instant) -> Option<PathId> {
        let id = self.paths.id_for(&plan)?;
        match self.paths.get_mut(id) {
            Some(path) => _ = path.on_planned(plan, PathState::Connecting, now),
            None => self.paths.insert(id, Path::new(plan, now)),
        }
        self.events.push_back(Event::Connect(id));
        Some(id)
    }

    /// Limits the total rate of all paths. Keeps a lower limit that was set earlier.
    pub fn limit_rate(&mut self, limit: BitRate, now: Instant) {
        let limit = self
            .config
            .rate_limit
            .map_or(limit, |other| BitRate(other.0.min(limit.0)));
        self.config.rate_limit = Some(limit);
        self.paths.pace = Some(Pace::new(limit, now));
    }

    /// Returns the rate limit of all paths together; `None` if unlimited.
    pub fn rate_limit(&self) -> Option<BitRate> {
        self.config.rate_limit
    }

    /// Records a connection that has exchanged `Hello` and `Welcome`, of a path that the caller has
    /// planned: the first one of a client, or any one of a daemon. Replaces the path's previous
    /// connection and plan.
    pub fn handle_arrived(&mut self, id: PathId, plan: PathPlan, arrived: &Arrival, now: Instant) {
        match self.paths.get_mut(id) {
            Some(path) => path.replan(plan, now),
            None => self.paths.insert(id, Path::new(plan, now)),
        }
        self.open(id, arrived, now);
    }

    /// Records that a path of the client is connected and has exchanged `Hello` and `Welcome`.
    /// Replaces the path's previous connection.
    ///
    /// Returns false if the connection must be closed: the path is retired, or the connection arrived
    /// at another interface of the peer than meant, so that the path is no link.
    pub fn handle_connected(&mut self, id: PathId, arrived: &Arrival, now: Instant) -> bool {
        let Some(path) = self.paths.get(id).filter(|path| !path.is_retired()) else {
            return false;
        };
        if let Some(interface) = &arrived.interface
            && self.is_astray(path.plan(), interface)
        {
            self.end_astray(id, interface.clone(), now);
            return false;
        }
        self.open(id, arrived, now);
        true
    }

    pub(super) fn end_astray(&mut self, id: PathId, arrived: String, now: Instant) {
        let cause = Cause::WrongInterface {
            arrived: arrived.clone(),
        };
        let why = Failure::WrongInterface { arrived };
        self.on_link_astray(id, why, cause, now);
    }

    fn open(&mut self, id: PathId, arrived: &Arrival, now: Instant) {
        if self.paths.connected_mut(id).is_some() {
            self.handle_path_lost(id, PathLoss::Reset, now);
        }
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        path.on_arrived(arrived);
        if path.state() != PathState::Connecting {
            path.on_retry(now);
        }
        if path.on_opened(now) {
            // `alone_since` stays set until data is received. A peer that accepts connections but
            // sends nothing counts as unreachable.
            self.changed(id, None);
            self.on_link_open(id, now);
        }
    }

    /// Records that a connection attempt of the client failed. `text` is that of its error, for
    /// people.
    pub fn handle_not_connected(
        &mut self,
        id: PathId,
        why: NotConnected,
        text: String,
        now: Instant,
    ) {
        let Some(path) = self.paths.get_mut(id).filter(|path| !path.is_retired()) else {
            return;
        };
        let is_first = path.connections() == 0;
        let cause = Cause::NotConnected(text);
        let obstacle = match why {
            NotConnected::Stranger => {
                return self.on_link_astray(id, Failure::Stranger, cause, now);
            }
            NotConnected::Obstacle(obstacle) => obstacle,
            NotConnected::Other => Obstacle::Silence,
        };
        // A link already reported as lost gains nothing from a timeout.
        let is_silence = why == NotConnected::Obstacle(Obstacle::Silence);
        path.set_cause(cause, is_first || !is_silence);
        if is_first && path.plan().origin == Origin::Named {
            self.events.push_back(Event::GivenUp(id));
        }
        self.lose(id, PathLoss::Unreachable, obstacle, now);
    }

    /// Records that a path has lost its connection.
    pub fn handle_path_lost(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        if let Some(path) = self.paths.get_mut(id).filter(|path| !path.is_retired()) {
            path.set_cause(Cause::Lost(loss), path.state().is_connected());
            self.lose(id, loss, Obstacle::Silence, now);
        }
    }

    fn lose(&mut self, id: PathId, loss: PathLoss, obstacle: Obstacle, now: Instant) {
        let is_only = self.paths.is_only_connected(id);
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let was_connected = path.state().is_connected();
        if path.on_lost(now, self.role == Role::Client, is_only) {
            if loss == PathLoss::Damaged && was_connected {
                let pause = path.on_damaged(now);
                self.events.push_back(Event::Damaged {
                    path: id,
                    times: path.damages,
                    pause,
                });
            }
            self.on_path_lost(id, was_connected.then_some(loss), now);
            self.on_link_lost(id, was_connected, obstacle, now);
            if is_only && was_connected {
                // Until one of them connects, nothing moves. A peer that drops each connection does
                // not thereby shorten the pause between two attempts at one path.
                self.retry_at_once(|other, path| other != id && path.has_paused(now), now);
            }
        }
    }

    /// Tries the paths that wait for their next attempt now.
    fn retry_at_once(&mut self, is_meant: impl Fn(PathId, &Path) -> bool, now: Instant) {
        let waits = |path: &Path| matches!(path.state(), PathState::Failed { retry_at: Some(_) });
        for id in self.paths.ids(waits) {
            if let Some(path) = self.paths.get_mut(id).filter(|path| is_meant(id, path)) {
                path.on_retry(now);
                self.events.push_back(Event::Connect(id));
            }
        }
    }

    /// Records that an interface of this machine has lost or regained its carrier.
    pub fn handle_carrier(&mut self, interface: &str, up: bool, now: Instant) {
        let is_on_it = |path: &Path| path.plan().interface == interface;
        if up {
            return self.retry_at_once(|_, path| is_on_it(path), now);
        }
        self.on_carrier_lost(interface, now);
        let is_lost = |path: &Path| is_on_it(path) && path.state().is_connected();
        for id in self.paths.ids(is_lost) {
            self.events.push_back(Event::Disconnect(id));
            self.handle_path_lost(id, PathLoss::CarrierLost, now);
        }
    }

    /// Ends a path that is no longer wanted, for this reason, unless a loss or a failure to connect
    /// is already known, with more detail. This is no failure of the path.
    pub fn retire_path(&mut self, id: PathId, cause: Cause, now: Instant) {
        self.retire(id, cause, false, now);
    }

    /// Ends a path whose interface is gone. The kernel may or may not have reported the lost carrier
    /// before.
    pub(super) fn lose_for_good(&mut self, id: PathId, now: Instant) {
        self.retire(id, Cause::Lost(PathLoss::CarrierLost), true, now);
    }

    fn retire(&mut self, id: PathId, cause: Cause, is_loss: bool, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let was_connected = path.state().is_connected();
        path.set_cause(cause, is_loss);
        let is_failure = is_loss && was_connected;
        if is_failure {
            path.on_lost(now, false, false);
        }
        if path.on_retired() {
            self.events.push_back(Event::Retire(id));
            let loss = is_failure.then_some(PathLoss::CarrierLost);
            self.on_path_lost(id, loss, now);
        }
    }

    /// Records that bytes were received on a path, even if they are only part of a frame.
    pub fn handle_heard(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let recovered = path.on_heard(now);
        if path.state().is_connected() {
            self.alone_since = None;
        }
        if recovered {
            self.changed(id, None);
        }
    }

    /// Returns the measured rate of a path; `None` before the first measurement.
    pub fn path_rate(&self, id: PathId) -> Option<BitRate> {
        self.paths.get(id)?.rate.rate
    }

    /// Applies the state changes that are due because of silence or an expired retry timer.
    pub(super) fn judge_paths(&mut self, now: Instant) {
        let is_due = |path: &Path| path.verdict_at().is_some_and(|at| now >= at);
        let due = self.paths.iter().filter(|(_, path)| is_due(path));
        for id in due.map(|(id, _)| id).collect::<Vec<_>>() {
            self.judge(id, now);
        }
    }

    fn judge(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        match path.state() {
            PathState::Open => {
                path.on_suspect(now);
                self.reliable.on_path_doubtful(id);
                self.changed(id, None);
            }
            PathState::Suspect => {
                self.events.push_back(Event::Disconnect(id));
                self.handle_path_lost(id, PathLoss::Silent, now);
            }
            PathState::Failed { .. } => {
                path.on_retry(now);
                self.events.push_back(Event::Connect(id));
            }
            PathState::Routing
            | PathState::Announced
            | PathState::Connecting
            | PathState::Retired => {}
        }
    }

    /// Continues after a path has ended or could not connect; `loss` is that of its connection.
    fn on_path_lost(&mut self, id: PathId, loss: Option<PathLoss>, now: Instant) {
        self.reliable.on_path_doubtful(id);
        self.transfers.on_path_lost(id);
        if !self.is_connected() {
            self.alone_since.get_or_insert(now);
        }
        self.changed(id, loss);
    }

    /// Tells the status of a path, if it has changed, or if its connection was lost.
    fn changed(&mut self, id: PathId, loss: Option<PathLoss>) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let status = path.status();
        if status != path.told || loss.is_some() {
            path.told = status.clone();
            self.events.push_back(Event::PathChanged {
                path: id,
                status,
                loss,
            });
        }
    }

    /// Tells of the links that the user named and that have never connected: they are left of a
    /// transfer that ends now.
    pub fn leave_out_late_paths(&mut self) {
        let is_late = |path: &Path| {
            let is_named = path.plan().origin == Origin::Named;
            is_named && path.connections() == 0 && !path.is_retired()
        };
        for id in self.paths.ids(is_late) {
            if let Some(path) = self.paths.get_mut(id) {
                path.set_cause(Cause::NotInTime, true);
            }
            self.changed(id, None);
        }
    }
}
