//! Copies of a case from client to daemon or back, traced or not.

#[cfg(target_arch = "x86_64")]
use std::process::Command;

use super::{case::Case, field::Field};
#[cfg(target_arch = "x86_64")]
use super::{
    case::Way,
    tracer::{Plan, Traced},
};
use crate::{Outcome, Process, pair::LINKS};
#[cfg(target_arch = "x86_64")]
use crate::{Side, pair::LOOPBACK, program};

impl Field {
    pub fn start_cp(&self, case: &Case, options: &[&str]) -> Process {
        self.client.start(self.cp_words(case, options))
    }

    pub fn cp(&self, case: &Case) -> Outcome {
        self.start_cp(case, &["--json"]).finish()
    }

    /// Starts a copy and traces its receiver. Restarts the daemon, and also returns the client, if
    /// the daemon is the receiver.
    #[cfg(target_arch = "x86_64")]
    pub fn start_traced(
        &mut self,
        case: &Case,
        plan: Plan,
        options: &[&str],
    ) -> (Traced, Option<Process>) {
        match case.way() {
            Way::Get => {
                self.start_daemon();
                let command = self.command(&self.client, &self.cp_words(case, options));
                (Traced::spawn(command, &self.client.files(), plan), None)
            }
            Way::Put => {
                self.kill_daemon();
                let port = self.port.to_string();
                let words = ["serve", "--port", &port]
                    .into_iter()
                    .chain(LOOPBACK)
                    .map(str::to_owned);
                let daemon = Traced::spawn(
                    self.command(&self.server, &words.collect::<Vec<_>>()),
                    &self.server.files(),
                    plan,
                );
                let client = daemon
                    .await_stderr("listening on")
                    .map(|_| self.start_cp(case, options));
                (daemon, client)
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn command(&self, side: &Side, words: &[String]) -> Command {
        let mut command = side.command(program());
        command.args(words);
        command
    }

    fn cp_words(&self, case: &Case, options: &[&str]) -> Vec<String> {
        let port = self.port.to_string();
        let first = ["cp", "-P", &port, "--link", LINKS[0], "--link", LINKS[1]];
        first
            .iter()
            .chain(options)
            .copied()
            .map(str::to_owned)
            .chain(case.words().into_iter().map(str::to_owned))
            .collect()
    }
}
