//! Exchanges with the peer outside of transfers and requests: benchmarks and interfaces.

use super::{
    error::PathError,
    event::{Event, Transmit},
    state::Session,
};
use crate::{
    id::{PathId, Role},
    wire::{
        load::LoadGate,
        message::{
            BenchBody, Expect, Expected, Interfaces, MAX_EXPECTED, Message, PeerInterface, RunOrder,
        },
    },
};

impl Session {
    /// Sends a benchmark message to the peer and applies the message's effects. Returns false
    /// without sending if the message is not allowed now.
    ///
    /// Runs and disk requests need admission. A run needs a higher ID than all earlier runs, and no
    /// other run may be active.
    pub fn send_bench_message(&mut self, body: BenchBody) -> bool {
        let may = self.bench.say(self.role, &body);
        if may {
            self.send(&Message::Bench(body));
        }
        may
    }

    pub(super) fn handle_bench(&mut self, body: BenchBody) -> Result<(), PathError> {
        if self.bench.hear(self.role, &body)? {
            self.events.push_back(Event::Bench(body));
        }
        Ok(())
    }

    /// Ends the current run at this end: stops sending load and stops counting received load. The
    /// caller must inform the peer.
    pub fn end_run(&mut self) {
        self.bench.run = None;
    }

    /// Returns the current run, and true if both ends count received load frames; `None` without a
    /// run.
    pub fn run(&self) -> Option<(&RunOrder, bool)> {
        let run = self.bench.run.as_ref();
        run.map(|run| (&run.order, run.is_ready))
    }

    /// Returns the benchmark traffic that the session accepts on its connections.
    pub fn load_gate(&self) -> LoadGate {
        self.bench.load_gate()
    }

    /// Returns the load to start or stop on a path; `None` if the load has not changed since the
    /// last call.
    pub(super) fn poll_load(&mut self, id: PathId) -> Option<Transmit> {
        let path = self.paths.get_mut(id)?;
        let load = self
            .bench
            .load_on(self.role, id, path, self.config.rate_limit);
        let old = std::mem::replace(&mut path.loading, load);
        (old != load).then_some(Transmit::Load(load))
    }

    /// Sends the daemon's current interfaces to the client; daemon only.
    pub fn send_interfaces(&mut self, interfaces: Vec<PeerInterface>) {
        self.send(&Message::Interfaces(Interfaces { interfaces }));
    }

    /// Announces connections to the daemon that the client is about to make; client only. Sends at
    /// most the first [`MAX_EXPECTED`].
    pub fn expect_connections(&mut self, mut connections: Vec<Expected>) {
        connections.truncate(MAX_EXPECTED);
        self.send(&Message::Expect(Expect { connections }));
    }

    pub(super) fn handle_interface_list(&mut self, list: Interfaces) -> Result<(), PathError> {
        if self.role == Role::Daemon {
            return Err(PathError::Unexpected("its interfaces to a daemon"));
        }
        self.events
            .push_back(Event::PeerInterfaces(list.interfaces));
        Ok(())
    }

    pub(super) fn handle_expect(&mut self, expect: Expect) -> Result<(), PathError> {
        if self.role == Role::Client {
            return Err(PathError::Unexpected("a client's message"));
        }
        let mut connections = expect.connections;
        connections.truncate(MAX_EXPECTED);
        self.events.push_back(Event::Expected(connections));
        Ok(())
    }
}
