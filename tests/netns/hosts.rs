//! Client and daemon on the two hosts of a lab.

use std::sync::Arc;

use nicstripe_lab::{Host, Lab, LinkCounters, LinkSpec};
use tempfile::TempDir;

use crate::harness::{Daemon, Outcome, Process, Side};

/// A lab with a daemon on host B that serves its files to host A. Neither end has privileges on its
/// host.
pub(crate) struct Hosts {
    pub(crate) lab: Arc<Lab>,
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) daemon: Daemon,
}

impl Hosts {
    /// Joins the hosts by these cables.
    pub(crate) fn joined_by(links: &[LinkSpec]) -> Self {
        Self::with(links, Rights::None)
    }

    /// Like `joined_by`, with a client that may change its host's routes.
    pub(crate) fn with_rights_of_the_client(links: &[LinkSpec]) -> Self {
        Self::with(links, Rights::All)
    }

    fn with(links: &[LinkSpec], client: Rights) -> Self {
        Self::in_lab(
            Lab::builder().links(links.iter().copied()).build().unwrap(),
            client,
            Rights::None,
        )
    }

    /// Starts the daemon in this lab.
    pub(crate) fn in_lab(lab: Lab, client: Rights, server: Rights) -> Self {
        Self::set_up(lab, client, server, &[])
    }

    /// Starts the daemon with these options, both ends without privileges.
    pub(crate) fn serving_with(lab: Lab, options: &[&str]) -> Self {
        Self::set_up(lab, Rights::None, Rights::None, options)
    }

    fn set_up(lab: Lab, client: Rights, server: Rights, options: &[&str]) -> Self {
        let lab = Arc::new(lab);
        let (client, server) = (side(&lab, Host::A, client), side(&lab, Host::B, server));
        introduce(&client, &server);
        let daemon = Daemon::start(&server, options);
        Self {
            lab,
            client,
            server,
            daemon,
        }
    }

    /// Starts `cp` with these arguments; `--port` is added.
    pub(crate) fn start_cp(&self, arguments: &[&str]) -> Process {
        let port = self.daemon.port.to_string();
        self.client
            .start([&["cp", "--port", &port], arguments].concat())
    }

    /// Runs `cp` with these arguments; `--port` is added.
    pub(crate) fn cp(&self, arguments: &[&str]) -> Outcome {
        self.start_cp(arguments).finish()
    }

    /// Returns the traffic of each cable while `action` ran.
    pub(crate) fn carried<T>(&self, action: impl FnOnce() -> T) -> (T, Vec<LinkCounters>) {
        let before = self.lab.counters().unwrap();
        let result = action();
        let after = self.lab.counters().unwrap();
        (
            result,
            after
                .iter()
                .zip(&before)
                .map(|(after, before)| after.since(before))
                .collect(),
        )
    }
}

/// Privileges of commands on their host.
#[derive(Clone, Copy)]
pub(crate) enum Rights {
    /// Those of root.
    All,
    /// Those of any user.
    None,
}

/// Returns a side whose commands run on a host.
pub(crate) fn side(lab: &Arc<Lab>, host: Host, rights: Rights) -> Side {
    let lab = lab.clone();
    Side::of(folder(), move |program| match rights {
        Rights::All => lab.command(host, program),
        Rights::None => lab.unprivileged_command(host, program),
    })
}

/// Returns a folder for files, in memory if possible, because the tests measure cables and not
/// disks.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Makes two sides trust each other.
pub(crate) fn introduce(client: &Side, server: &Side) {
    client.trust(server, "b", "");
    server.trust(client, "a", "");
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// From A to B.
    Put,
    /// From B to A.
    Get,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Put, Self::Get];

    pub(crate) fn sender(self) -> Host {
        match self {
            Self::Put => Host::A,
            Self::Get => Host::B,
        }
    }

    /// Creates the source; returns the arguments `source` and `target`, the remote one at
    /// 10.77.1.2.
    pub(crate) fn prepare(self, hosts: &Hosts, bytes: &[u8]) -> [&'static str; 2] {
        match self {
            Self::Put => {
                hosts.client.write("source", bytes);
                ["source", "10.77.1.2:target"]
            }
            Self::Get => {
                hosts.server.write("source", bytes);
                ["10.77.1.2:source", "target"]
            }
        }
    }

    /// Panics unless the target equals the source.
    #[track_caller]
    pub(crate) fn check(self, hosts: &Hosts, bytes: &[u8], report: &serde_json::Value) {
        match self {
            Self::Put => hosts.server.check("target", bytes, report),
            Self::Get => hosts.client.check("target", bytes, report),
        }
    }
}

pub(crate) const MIB: usize = 1 << 20;
