//! Child processes of the bench: the same executable, with its role in an environment variable.

use std::process::{Command, ExitCode};

use nicstripe_lab::{Host, Lab};
use nicstripe_testkit::bench::Result;
use serde::{Deserialize, Serialize};

use crate::{strangers::Strangers, trusted::Attacker};

/// Role of a child process of this bench.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    Strangers(Strangers),
    Attacker(Attacker),
}

/// Environment variable with a [`Part`] as JSON.
const PART: &str = "NICSTRIPE_BENCH_PART";

impl Part {
    /// Returns the role of this process; `None` if the process is the bench itself.
    pub(crate) fn of_this_process() -> Option<Self> {
        serde_json::from_str(&std::env::var(PART).ok()?).ok()
    }

    /// Returns the command that runs this role on the daemon's host, with nice 10.
    pub(crate) fn command(&self, lab: &Lab) -> Result<Command> {
        let mut command = lab.command(Host::B, "nice");
        command
            .args(["-n", "10"])
            .arg(std::env::current_exe()?)
            .env(PART, serde_json::to_string(self)?);
        Ok(command)
    }

    /// Runs the role until the process is killed. Returns only after an error.
    pub(crate) fn play(self) -> ExitCode {
        let played = match self {
            Self::Strangers(strangers) => strangers.run(),
            Self::Attacker(attacker) => attacker.run(),
        };
        if let Err(error) = played {
            eprintln!("error: {error}");
        }
        ExitCode::FAILURE
    }
}
