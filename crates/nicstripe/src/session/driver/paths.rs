//! Paths of a session: the protocol's steps for them, and what becomes of their connections.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    PathId, PathLoss,
    pairing::Candidate,
    path::{NotConnected, Origin, Path, PathPlan, PathStatus},
    session::{FIRST_PATH, Routed, TooManyPaths},
};
use tracing::field::display;

use super::{Driver, MOST_BREACHES};
use crate::{
    report::{
        error::{Error, obstacle_to},
        event::{Event, LinkName, LinkState},
        link_text::state_of,
    },
    session::{
        inbox::{Begin, Input, PathSink},
        path_connection::{Established, PathConnection},
    },
    text::logged::{logged, logged_error},
    wire::stream::{Loads, Stream},
};

/// Facts.
impl Driver {
    /// Begins with the first connection, and has the links planned.
    pub(super) fn begin_links(&mut self, begin: Begin, now: Instant) {
        let Begin {
            first: (plan, established),
            terms,
            pairing,
            named,
            reply,
        } = begin;
        self.on_arrived(FIRST_PATH, plan, established, now);
        let has_routes = terms.has_routes;
        match self.session.begin_links(terms, pairing, named, now) {
            Ok(()) if has_routes => self.beginning = Some(reply),
            Ok(()) => _ = reply.send(Ok(())),
            Err(TooManyPaths { interface, count }) => {
                let most = nicstripe_proto::LAST_PATH.0 + 1;
                let why = format!("{count} connections exceed the limit of {most} per session");
                let _ = reply.send(Err(Error::link(interface, why)));
            }
        }
    }

    pub(super) fn on_arrived(
        &mut self,
        path: PathId,
        plan: PathPlan,
        established: Established,
        now: Instant,
    ) {
        let arrival = &established.arrival;
        self.session.handle_arrived(path, plan, arrival, now);
        self.open(path, established);
    }

    /// Handles the end of a connection attempt.
    pub(super) fn on_connected(
        &mut self,
        path: PathId,
        made: Result<Established, Error>,
        now: Instant,
    ) {
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.connecting = false;
        }
        match made {
            Ok(established) => {
                let arrival = &established.arrival;
                if self.session.handle_connected(path, arrival, now) {
                    self.open(path, established);
                }
            }
            Err(error) => self.on_not_connected(path, error, now),
        }
    }

    fn on_not_connected(&mut self, path: PathId, error: Error, now: Instant) {
        let text = crate::text::chain(&error);
        let is_new_named = self
            .session
            .path(path)
            .is_some_and(|path| path.plan().origin == Origin::Named && path.connections() == 0);
        let why = match &error {
            Error::Connect { source, .. } => NotConnected::Obstacle(obstacle_to(source)),
            // Without a path left, the peer itself may have been replaced.
            Error::UntrustedPeer { .. } if self.session.is_connected() => NotConnected::Stranger,
            // The daemon has restarted and forgotten the session. The owner creates a new one.
            Error::Refused { .. }
            | Error::Version { .. }
            | Error::Untrusted { .. }
            | Error::UntrustedPeer { .. }
                if !is_new_named =>
            {
                let why = match error {
                    Error::Refused { why, .. } => why,
                    _ => text,
                };
                return self.give_up(Error::ended(&self.config.host.clone(), &why));
            }
            _ => NotConnected::Other,
        };
        self.session.handle_not_connected(path, why, text, now);
    }

    pub(super) fn on_routed(
        &mut self,
        paths: &[PathId],
        result: Result<Vec<(PathId, Routed)>, Error>,
        now: Instant,
    ) {
        let (routed, begun) = match result {
            Ok(routed) => (routed, Ok(())),
            Err(error) => {
                tracing::warn!(error = %logged_error(&error), "cannot make link");
                let failed = paths.iter().map(|path| (*path, Routed::Failed));
                (failed.collect(), Err(error))
            }
        };
        if let Some(reply) = self.beginning.take() {
            let _ = reply.send(begun);
        }
        self.session.handle_routed(&routed, now);
    }

    pub(super) fn on_misbehaved(
        &mut self,
        path: PathId,
        error: &dyn std::error::Error,
        now: Instant,
    ) {
        tracing::warn!(path = path.0, error = %logged_error(error), peer = self.config.host, "peer misbehaved");
        self.on_breach(path, PathLoss::Protocol, crate::text::chain(error), now);
    }

    /// Closes a connection on which the peer violated the protocol or sent a damaged chunk. Ends
    /// the session at [`MOST_BREACHES`] such connections.
    pub(super) fn on_breach(&mut self, path: PathId, loss: PathLoss, why: String, now: Instant) {
        self.lose(path, loss, now);
        let connection = self.connections.get_mut(&path);
        self.breaches += u32::from(connection.is_some_and(PathConnection::misbehaved));
        if self.breaches >= MOST_BREACHES
            && let Some(path) = self.session.path(path)
        {
            let address = path.plan().remote;
            self.give_up(Error::Protocol { address, why });
        }
    }

    pub(super) fn lose(&mut self, path: PathId, loss: PathLoss, now: Instant) {
        self.disconnect(path);
        self.session.handle_path_lost(path, loss, now);
    }
}

/// Steps.
impl Driver {
    pub(super) fn connect(&mut self, path: PathId) {
        let (Some(steps), Some(known)) = (&self.config.steps, self.session.path(path)) else {
            return;
        };
        let connection = self.connections.entry(path).or_default();
        if connection.is_open() || std::mem::replace(&mut connection.connecting, true) {
            return;
        }
        let (steps, plan) = (steps.clone(), known.plan().clone());
        let first = known.status() == PathStatus::Connecting;
        self.jobs.spawn(async move {
            let made = Box::new(steps.join(path, &plan, first).await);
            Input::Connected { path, made }
        });
    }

    pub(super) fn probe(&self, candidate: Candidate) {
        let Some(steps) = self.config.steps.clone() else {
            return;
        };
        self.jobs.spawn(async move {
            let answer = steps.probe(&candidate).await;
            let candidate = candidate.id();
            Input::Probed { candidate, answer }
        });
    }

    pub(super) fn hold_routes(&self, paths: Vec<PathId>) {
        let Some(steps) = self.config.steps.clone() else {
            return;
        };
        let plan = |id: &PathId| {
            let path = self.session.path(*id)?;
            Some((*id, path.plan().clone(), path.state().is_connected()))
        };
        let plans: Vec<_> = paths.iter().filter_map(plan).collect();
        self.jobs.spawn(async move {
            let result = steps.hold_routes(&plans).await;
            Input::Routed { paths, result }
        });
    }

    pub(super) fn announce(&self, connections: BTreeSet<(IpAddr, u32)>) {
        let Some(steps) = self.config.steps.clone() else {
            return;
        };
        let session = self.jobs.handle();
        self.jobs.spawn(async move {
            let expected = steps.announce(connections, session).await;
            Input::Expected(expected)
        });
    }

    /// Ends the session, which cannot continue without this path.
    pub(super) fn give_up_path(&mut self, path: PathId) {
        let Some(known) = self.session.path(path) else {
            return;
        };
        let why = match (known.plan().origin, known.status()) {
            (Origin::Named, PathStatus::LeftOut(cause) | PathStatus::Down(cause)) => {
                crate::report::link_text::cause_text(known.plan(), &cause)
            }
            _ => "excluded by option, and no other link reaches the peer".to_owned(),
        };
        let link = known.plan().interface.clone();
        self.give_up(Error::Link { link, why });
    }

    /// Starts the task of a new connection.
    fn open(&mut self, path: PathId, established: Established) {
        self.hung_up_at = None;
        self.next_generation += 1;
        let connection = self.connections.entry(path).or_default();
        connection.close();
        connection.generation = self.next_generation;
        let (outgoing, queue) = PathConnection::queue();
        let sink = PathSink::new(path, connection.generation, self.jobs.inputs());
        let loads = Loads {
            gate: self.gate.subscribe(),
            counters: connection.load_counters.clone(),
        };
        let buffers = self.config.buffers.clone();
        let stream = Stream::new(established.greeted, buffers, queue, loads, sink);
        let task = self.streams.spawn(stream.run());
        connection.open(outgoing, task.abort_handle(), established.probe);
        drop(established.arriving);
    }

    /// Closes a lost connection at once.
    pub(super) fn disconnect(&mut self, path: PathId) {
        self.hung_up_at = None;
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.close();
        }
    }

    /// Closes the connection of a retired path after flushing its queue.
    pub(super) fn release(&mut self, path: PathId) {
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.release();
        }
    }

    pub(super) fn on_damaged(&self, path: PathId, times: u32, pause: Duration) {
        let Some(path) = self.session.path(path) else {
            return;
        };
        let seconds = pause.as_secs();
        tracing::warn!(interface = %path.plan().interface, times, seconds, "link delivered damaged data: not used for some seconds");
    }

    pub(super) fn on_path_changed(
        &mut self,
        path: PathId,
        status: &PathStatus,
        loss: Option<PathLoss>,
    ) {
        if let Some(loss) = loss {
            self.running.failed_over();
            self.account_mut(|account| account.path_lost(loss));
        }
        let Some(plan) = self.session.path(path).map(Path::plan) else {
            return;
        };
        let state = state_of(plan, status);
        // The record of the session's end covers its connections.
        if !self.is_taking_leave {
            log_link(&self.config.host, plan, &state);
        }
        let link = LinkName::from(plan);
        self.config.audience.tell(&Event::Link { link, state });
    }
}

fn log_link(peer: &str, plan: &PathPlan, state: &LinkState) {
    let (interface, remote) = (&plan.interface, &plan.remote);
    let why = state.reason().map(|why| display(logged(why).to_string()));
    let state = state.word();
    tracing::info!(peer, %interface, %remote, state, why, "link");
}
