//! Paths of a session: connecting, loss and reconnection.

use std::time::{Duration, Instant};

use nicstripe_proto::{PathId, PathLoss, PathState, pairing::Obstacle};
use tracing::field::display;

use super::{Driver, MOST_BREACHES};
use crate::{
    report::{
        error::{Error, obstacle_to},
        event::{Event, LinkState},
    },
    session::{
        inbox::{Input, LinkNews, PathSink},
        path_connection::{Established, PathConnection, PathPlan},
        tally::REPLACED,
    },
    text::logged::{logged, logged_error},
    wire::stream::{Loads, Stream},
};

impl Driver {
    /// Adds a path. Reuses a retired path with the same identifier, which keeps its byte counts.
    pub(super) fn add_connection(&mut self, path: PathId, plan: PathPlan) {
        let Some(connection) = self
            .connections
            .get_mut(&path)
            .filter(|connection| connection.retired)
        else {
            self.connections.insert(path, PathConnection::new(plan));
            return;
        };
        // A new generation, so that late events of the previous connection are ignored.
        self.next_generation += 1;
        connection.generation = self.next_generation;
        (connection.plan, connection.retired) = (plan, false);
        if matches!(connection.state, LinkState::LeftOut(_)) {
            connection.state = LinkState::Connecting;
        }
    }

    pub(super) fn connect(&mut self, path: PathId) {
        let (Some(connector), Some(connection)) =
            (&self.config.connector, self.connections.get_mut(&path))
        else {
            return;
        };
        if connection.retired
            || connection.is_open()
            || std::mem::replace(&mut connection.connecting, true)
        {
            return;
        }
        let (connector, plan) = (connector.clone(), connection.plan.clone());
        let first = connection.state == LinkState::Connecting;
        self.jobs.spawn(async move {
            match connector.join(path, &plan, first).await {
                Ok(established) => Input::Connected {
                    path,
                    plan: None,
                    established: Box::new(established),
                },
                Err((loss, error)) => Input::NotConnected {
                    path,
                    loss,
                    error: Box::new(error),
                },
            }
        });
    }

    pub(super) fn on_connected(
        &mut self,
        path: PathId,
        plan: Option<PathPlan>,
        established: Established,
        now: Instant,
    ) {
        if let Some(plan) = plan {
            match self.connections.get_mut(&path) {
                Some(connection) => connection.plan = plan,
                None => _ = self.connections.insert(path, PathConnection::new(plan)),
            }
        }
        let Some(connection) = self.connections.get_mut(&path) else {
            return;
        };
        connection.connecting = false;
        self.hung_up_at = None;
        // A path retired meanwhile may be added again later.
        if connection.retired {
            return;
        }
        connection.close();
        self.next_generation += 1;
        connection.generation = self.next_generation;
        (connection.verified, connection.path_mtu) = (established.verified, established.path_mtu);
        connection.plan.local = established.local.or(connection.plan.local);
        let (outgoing, queue) = PathConnection::queue();
        let sink = PathSink {
            path,
            generation: connection.generation,
            inputs: self.jobs.inputs(),
        };
        let loads = Loads {
            gate: self.gate.subscribe(),
            counters: connection.load_counters.clone(),
        };
        let task = self.streams.spawn(
            Stream::new(
                established.greeted,
                self.config.buffers.clone(),
                queue,
                loads,
                sink,
            )
            .run(),
        );
        connection.open(outgoing, task.abort_handle(), established.probe);
        self.session.handle_path_open(path, now);
        drop(established.arriving);
        self.session.limit_path(path, connection.plan.cap, now);
        if connection.plan.no_data {
            self.session.exclude_from_data(path);
        }
        self.plan(LinkNews::Opened {
            path,
            verified: established.verified,
            path_mtu: established.path_mtu,
        });
    }

    pub(super) fn on_not_connected(
        &mut self,
        path: PathId,
        loss: PathLoss,
        error: Error,
        now: Instant,
    ) {
        let Some(connection) = self.connections.get_mut(&path) else {
            return;
        };
        connection.connecting = false;
        let reason = crate::text::chain(&error);
        let first = connection.generation == 0;
        if connection.plan.named && first {
            let link = connection.plan.interface.clone();
            self.give_up(Error::Link { link, why: reason });
            return;
        }
        if let Some(arrived) = stray(&error, self.session.is_connected()) {
            self.report_link(path, LinkState::LeftOut(reason.clone()));
            self.retire(path, loss, now);
            self.plan(LinkNews::Astray {
                path,
                arrived,
                why: reason,
            });
        } else if matches!(
            error,
            Error::Refused { .. }
                | Error::Version { .. }
                | Error::Untrusted { .. }
                | Error::UntrustedPeer { .. }
        ) {
            // The daemon has restarted and forgotten the session. The owner creates a new one.
            let host = self.config.host.clone();
            let why = match error {
                Error::Refused { why, .. } => why,
                _ => reason,
            };
            self.give_up(Error::Ended { host, why });
        } else {
            let state = if first {
                LinkState::LeftOut(reason.clone())
            } else {
                LinkState::Down(reason.clone())
            };
            // A link already reported as lost gains nothing from a timeout.
            if first || !is_unanswered(&error) || !matches!(connection.state, LinkState::Down(_)) {
                self.report_link(path, state);
            }
            self.session.handle_path_lost(path, loss, now);
            self.plan(LinkNews::Lost {
                path,
                why: reason,
                obstacle: obstacle_of(&error),
            });
        }
    }

    pub(super) fn on_carrier(&mut self, interface: &str, up: bool, now: Instant) {
        let on_it = |(path, connection): (&PathId, &PathConnection)| {
            (connection.plan.interface == interface).then_some(*path)
        };
        let paths: Vec<PathId> = self.connections.iter().filter_map(on_it).collect();
        for path in paths {
            if !up {
                self.lose(path, PathLoss::CarrierLost, now);
            } else if self
                .connections
                .get(&path)
                .is_some_and(|connection| !connection.is_open() && !connection.retired)
            {
                self.connect(path);
            }
        }
    }

    /// Retires a path on the owner's command and reports the reason, unless a loss or a failure to
    /// connect is already reported, which is more informative.
    pub(super) fn on_retired(&mut self, path: PathId, now: Instant) {
        if let Some(connection) = self.connections.get(&path)
            && !matches!(connection.state, LinkState::Down(_) | LinkState::LeftOut(_))
        {
            let why = if connection.plan.contact_only {
                "used for the first contact only"
            } else {
                REPLACED
            };
            self.report_link(path, LinkState::LeftOut(why.into()));
        }
        self.retire(path, PathLoss::Reset, now);
    }

    /// Retires a path whose interface has vanished. Reports a lost carrier in any case: the kernel
    /// may or may not have reported it before.
    pub(super) fn on_gone(&mut self, path: PathId, now: Instant) {
        let lost = PathState::Failed { retry_at: None };
        self.on_path_changed(path, lost, Some(PathLoss::CarrierLost));
        self.retire(path, PathLoss::CarrierLost, now);
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
            && let Some(connection) = self.connections.get(&path)
        {
            self.give_up(Error::Protocol {
                address: connection.plan.remote,
                why,
            });
        }
    }

    pub(super) fn lose(&mut self, path: PathId, loss: PathLoss, now: Instant) {
        self.disconnect(path, loss);
        self.session.handle_path_lost(path, loss, now);
    }

    /// Closes a lost connection and reports it to the planner at once, since a reconnect takes a
    /// second to fail.
    pub(super) fn disconnect(&mut self, path: PathId, loss: PathLoss) {
        self.hung_up_at = None;
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.close();
        }
        self.plan(LinkNews::Lost {
            path,
            why: loss_text(loss).into(),
            obstacle: Obstacle::Silence,
        });
    }

    /// Closes a path after flushing its queue, and does not reconnect it.
    pub(super) fn retire(&mut self, path: PathId, loss: PathLoss, now: Instant) {
        let Some(connection) = self
            .connections
            .get_mut(&path)
            .filter(|connection| !connection.retired)
        else {
            return;
        };
        connection.retired = true;
        connection.release();
        self.session.retire_path(path, loss, now);
    }

    pub(super) fn on_damaged(&self, path: PathId, times: u32, pause: Duration) {
        let Some(connection) = self.connections.get(&path) else {
            return;
        };
        let seconds = pause.as_secs();
        tracing::warn!(interface = %connection.plan.interface, times, seconds, "link delivered damaged data: not used for some seconds");
    }

    pub(super) fn on_path_changed(
        &mut self,
        path: PathId,
        state: PathState,
        loss: Option<PathLoss>,
    ) {
        let state = match (state, loss) {
            (PathState::Open, _) => LinkState::Up,
            (PathState::Suspect, _) => LinkState::Suspect,
            (PathState::Failed { .. }, Some(loss)) => {
                if let Some(connection) = self.connections.get(&path)
                    && matches!(connection.state, LinkState::Up | LinkState::Suspect)
                    && !connection.retired
                {
                    self.running.failed_over();
                    self.account_mut(|account| account.path_lost(loss));
                }
                LinkState::Down(loss_text(loss).into())
            }
            _ => return,
        };
        // A failed reconnect must not replace the reason for the loss.
        let is_down = self
            .connections
            .get(&path)
            .is_some_and(|connection| matches!(connection.state, LinkState::Down(_)));
        if !(is_down && loss == Some(PathLoss::Unreachable)) {
            self.report_link(path, state);
        }
    }

    pub(super) fn report_link(&mut self, path: PathId, state: LinkState) {
        let Some(connection) = self.connections.get_mut(&path) else {
            return;
        };
        if connection.retired || connection.state == state {
            return;
        }
        connection.state = state.clone();
        // The record of the session's end covers its connections.
        if !self.is_taking_leave {
            log_link(&self.config.host, connection, &state);
        }
        let link = connection.plan.link();
        self.config.audience.tell(&Event::Link { link, state });
    }

    /// Sends an event to the path planner, unless its queue is full.
    pub(super) fn plan(&self, news: LinkNews) {
        if let Some(planner) = &self.config.planner {
            let _ = planner.try_send(news);
        }
    }
}

/// Returns where a misdirected connection arrived: `Some(Some(interface))` for another interface of
/// the peer, `Some(None)` for another machine. Returns `None` for any other error.
///
/// An unexpected key counts as another machine only if the session is connected. Otherwise the peer
/// itself may have been replaced.
fn stray(error: &Error, is_connected: bool) -> Option<Option<String>> {
    match error {
        Error::Astray { arrived, .. } => Some(Some(arrived.clone())),
        Error::UntrustedPeer { .. } if is_connected => Some(None),
        _ => None,
    }
}

fn log_link(peer: &str, connection: &PathConnection, state: &LinkState) {
    let (interface, remote) = (&connection.plan.interface, &connection.plan.remote);
    let (state, why) = match state {
        LinkState::Connecting => ("connecting", None),
        LinkState::Up => ("up", None),
        LinkState::Suspect => ("suspect", None),
        LinkState::Down(why) => ("down", Some(why)),
        LinkState::LeftOut(why) => ("left_out", Some(why)),
    };
    let why = why.map(|why| display(logged(why).to_string()));
    tracing::info!(peer, %interface, %remote, state, why, "link");
}

fn obstacle_of(error: &Error) -> Obstacle {
    match error {
        Error::Connect { source, .. } => obstacle_to(source),
        _ => Obstacle::Silence,
    }
}

/// Returns true if a connection attempt failed without any answer from the peer.
fn is_unanswered(error: &Error) -> bool {
    use std::io::ErrorKind::{
        AddrNotAvailable, HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut,
    };
    let kinds = [
        AddrNotAvailable,
        HostUnreachable,
        NetworkDown,
        NetworkUnreachable,
        TimedOut,
    ];
    matches!(error, Error::Connect { source, .. } if kinds.contains(&source.kind()))
}

fn loss_text(loss: PathLoss) -> &'static str {
    match loss {
        PathLoss::Unreachable => "could not connect",
        PathLoss::CarrierLost => "no carrier: cable unplugged or peer's port down",
        PathLoss::Silent => "nothing heard for 1.5 s",
        PathLoss::Reset => "connection closed",
        PathLoss::Protocol => "peer violated the protocol",
        PathLoss::Damaged => "damaged data: check cable, card and switch",
        PathLoss::WrongInterface => "arrives on another interface of the peer (ARP flux)",
        _ => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Identity;

    #[test]
    fn another_machine_at_one_address_costs_a_path_and_not_the_session() {
        let key = Identity::generate().unwrap().public_key();
        let error = Error::UntrustedPeer {
            host: "nas".into(),
            key,
        };
        assert_eq!(stray(&error, true), Some(None));
        assert_eq!(
            stray(&error, false),
            None,
            "without a path left, the peer itself has changed"
        );
        let refused = Error::Refused {
            host: "nas".into(),
            why: "it does not know the session".into(),
        };
        assert_eq!(
            stray(&refused, true),
            None,
            "a restarted daemon does not know the session"
        );
    }

    #[test]
    fn a_wrong_interface_is_named() {
        let error = Error::Astray {
            aimed_at: "enp2".into(),
            arrived: "enp1".into(),
        };
        assert_eq!(stray(&error, true), Some(Some("enp1".into())));
    }
}
