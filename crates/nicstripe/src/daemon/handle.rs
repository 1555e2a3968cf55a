//! Handle of a running daemon: its metrics and adjustable limits.

use std::sync::Arc;

use super::{limits::Limits, shared::Shared};
use crate::report::metrics::{Metrics, RunningSession};

/// Handle to a daemon's metrics and limits. Clones refer to the same daemon, which may have ended.
#[derive(Debug, Clone)]
pub struct DaemonHandle {
    pub(super) shared: Arc<Shared>,
}

impl DaemonHandle {
    /// Returns a snapshot of the metrics. Takes microseconds and blocks no session.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{} sessions", handle.metrics().sessions);
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        let mut metrics = self.shared.meters.read();
        metrics.sessions = self.shared.sessions.lock().len() as u64;
        metrics.greetings = self.shared.gate.waiting() as u64;
        metrics.buffer_bytes = self.shared.buffers.bytes_in_use();
        metrics
    }

    /// Returns the sessions that exist, oldest first, as of the last second. Blocks no session.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// for session in handle.sessions() {
    ///     println!("{}: {} links", session.peer, session.links.len());
    /// }
    /// # }
    /// ```
    pub fn sessions(&self) -> Vec<RunningSession> {
        self.shared.meters.sessions()
    }

    /// Returns the current resource limits.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{:?} to end in", handle.limits().shutdown_time);
    /// # }
    /// ```
    pub fn limits(&self) -> Limits {
        (*self.shared.limits()).clone()
    }

    /// Reads the peers file again, and resolves the paths of all served directories again. Ends
    /// sessions whose key was removed or whose rights were reduced. Blocks while the file is read.
    ///
    /// The daemon also checks the file itself, and ends such sessions within 3 s of a change.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// handle.reload_peers();
    /// # }
    /// ```
    pub fn reload_peers(&self) {
        self.shared.roots.forget();
        self.shared.end_sessions_without_rights();
    }

    /// Changes the limits that can change at run time: those of sessions, the greeting time, and
    /// the shutdown time. The others keep their initial values. Existing sessions continue, even
    /// above the new limits.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// let mut limits = handle.limits();
    /// limits.shutdown_time = std::time::Duration::from_secs(5);
    /// handle.set_limits(limits);
    /// # }
    /// ```
    pub fn set_limits(&self, limits: Limits) {
        let mut current = self.shared.limits.write();
        let limits = Limits {
            greetings: current.greetings,
            greetings_per_address: current.greetings_per_address,
            handshakes_per_second: current.handshakes_per_second,
            paths: current.paths,
            refusals_logged: current.refusals_logged,
            ..limits.usable()
        };
        *current = Arc::new(limits);
    }
}
