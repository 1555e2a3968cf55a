//! Path changes of a session: connection, silence, loss, rate limit, retirement.

use std::time::Instant;

use super::{event::Event, state::Session};
use crate::{
    id::{PathId, Role},
    path::{
        machine::{Path, PathLoss, PathState},
        pace::Pace,
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

    /// Adds a path that is being connected, or reopens a path that was
    /// [retired](Self::retire_path).
    pub fn add_path(&mut self, path: PathId, now: Instant) {
        let path = self.paths.entry(path, now);
        if path.state() == (PathState::Failed { retry_at: None }) {
            path.on_retry(now);
        }
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

    /// Excludes a path from data in both directions. The path then carries only control messages.
    pub fn exclude_from_data(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id) {
            path.carries_data = false;
        }
    }

    /// Sets or removes the rate limit of one path.
    pub fn limit_path(&mut self, id: PathId, limit: Option<BitRate>, now: Instant) {
        if let Some(path) = self.paths.get_mut(id) {
            path.pace = limit.map(|rate| Pace::new(rate, now));
        }
    }

    /// Records that a path is connected and has exchanged `Hello` and `Welcome`. Replaces the
    /// path's previous connection.
    pub fn handle_path_open(&mut self, id: PathId, now: Instant) {
        if self
            .paths
            .get(id)
            .is_some_and(|path| path.state().is_connected())
        {
            self.handle_path_lost(id, PathLoss::Reset, now);
        }
        let path = self.paths.entry(id, now);
        if matches!(path.state(), PathState::Failed { .. }) {
            path.on_retry(now);
        }
        if path.on_opened(now) {
            // `alone_since` stays set until data is received. A peer that accepts connections but
            // sends nothing counts as unreachable.
            self.changed(id, None);
        }
    }

    /// Records that a path has lost its connection, or could not connect.
    pub fn handle_path_lost(&mut self, id: PathId, loss: PathLoss, now: Instant) {
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
            self.on_path_lost(id, loss, now);
        }
    }

    /// Ends a path without further connection attempts. The caller must close the path's
    /// connection. A [`PathLoss::Reset`] is a planned end, and no failure of the path.
    pub fn retire_path(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let has_ended = match loss {
            PathLoss::Reset => path.on_ended(),
            _ => path.on_lost(now, false, false),
        };
        if has_ended {
            self.on_path_lost(id, loss, now);
        } else {
            path.on_retired();
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
        let is_only = self.paths.is_only_connected(id);
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
                path.on_lost(now, self.role == Role::Client, is_only);
                self.events.push_back(Event::Disconnect(id));
                self.on_path_lost(id, PathLoss::Silent, now);
            }
            PathState::Failed { .. } => {
                path.on_retry(now);
                self.changed(id, None);
                self.events.push_back(Event::Connect(id));
            }
            PathState::Probing => {}
        }
    }

    fn on_path_lost(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        self.reliable.on_path_doubtful(id);
        self.transfers.on_path_lost(id);
        if !self.is_connected() {
            self.alone_since.get_or_insert(now);
        }
        self.changed(id, Some(loss));
    }

    fn changed(&mut self, id: PathId, loss: Option<PathLoss>) {
        if let Some(path) = self.paths.get(id) {
            self.events.push_back(Event::PathChanged {
                path: id,
                state: path.state(),
                loss,
            });
        }
    }
}
