//! Client and daemon on the two simulated hosts of a lab.

use std::{cell::Cell, process::Command, sync::Arc};

use nicstripe_lab::{Host, Lab, LinkCounters, LinkSpec};
use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, program,
    trial::{Completion, is_installed},
};
use tempfile::TempDir;

/// Lab with a daemon on host B that serves files to a client on host A.
pub(crate) struct Hosts {
    pub(crate) lab: Arc<Lab>,
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) daemon: Daemon,
}

impl Hosts {
    /// Creates hosts that the cables `links` join. Client and daemon have no privileges.
    pub(crate) fn joined_by(links: &[LinkSpec]) -> Self {
        Self::with(links, Rights::None)
    }

    /// Like `joined_by`, but with a client that may change the routes of its host.
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

    /// Starts the daemon on host B of `lab`. The argument `client` is the client's privileges, and
    /// `server` the daemon's.
    pub(crate) fn in_lab(lab: Lab, client: Rights, server: Rights) -> Self {
        Self::set_up(lab, client, server, &[])
    }

    /// Starts the daemon with `options` of `serve`. Client and daemon have no privileges.
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

    /// Returns a command for `nicstripe cp` with these arguments and the daemon's port, without
    /// starting it.
    pub(crate) fn cp_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.client.command(program());
        let port = self.daemon.port.to_string();
        let arguments = arguments.iter().map(|word| match BY_NAME.get() {
            true => word.replace(FIRST, "b:"),
            false => (*word).to_owned(),
        });
        command.args(["cp", "--port", &port]).args(arguments);
        command
    }

    /// Starts `nicstripe cp` with these arguments and the daemon's port.
    pub(crate) fn start_cp(&self, arguments: &[&str]) -> Process {
        Process::spawn(self.cp_command(arguments))
    }

    /// Runs `nicstripe cp` with these arguments and the daemon's port, and waits until it exits.
    pub(crate) fn cp(&self, arguments: &[&str]) -> Outcome {
        self.start_cp(arguments).finish()
    }

    /// Runs `action`. Returns its result and the traffic of each cable during the call.
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

/// Runs a test whose copies begin by the peer's name in place of its first address.
pub(crate) fn begun_by_name(test: fn() -> Completion) -> Completion {
    BY_NAME.set(true);
    let completion = std::panic::catch_unwind(test);
    BY_NAME.set(false);
    completion.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

thread_local! {
    static BY_NAME: Cell<bool> = const { Cell::new(false) };
}

/// Tests that are about an address, whose hosts have no IPv6, by which a name is found, or that begin
/// by both.
pub(crate) const BY_ADDRESS: &[&str] = &[
    "::packets_that_vanish_cost_a_second_and_are_told",
    "::a_named_interface_is_listened_on_again_when_it_is_back",
    "::a_link_whose_addresses_change_carries_on_with_the_new_ones",
];

/// Begin of the argument of a copy to or from host B, by the address of its first interface.
const FIRST: &str = "10.77.1.2:";

/// Address of host B that no cable has.
pub(crate) const BEHIND: &str = "10.99.0.1";

/// Gives host B one address, and host A a route to it over each cable, as two routers to the Internet
/// would.
pub(crate) fn lead_behind(lab: &Lab) {
    ip(lab, Host::B, &format!("addr add {BEHIND}/32 dev lo"));
    for index in 0..lab.links().len() {
        let (via, device) = (lab.address(Host::B, index), lab.interface(index));
        let metric = 10 + index;
        let route = format!("route add {BEHIND}/32 via {via} dev {device} metric {metric}");
        ip(lab, Host::A, &route);
    }
}

/// Runs `ip` with `arguments`, separated by spaces, on a host of the lab.
pub(crate) fn ip(lab: &Lab, host: Host, arguments: &str) {
    let mut command = lab.command(host, "ip");
    let done = command.args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {done:?}");
}

/// Makes the kernel of host B reject TCP connections by ICMP, as a firewall with a `reject` rule does: those
/// that one of `rules` selects.
pub(crate) fn prohibit(lab: &Lab, rules: &[&str]) {
    // Without forwarding the kernel reports an unreachable host instead.
    for setting in [
        "ipv4/conf/all",
        "ipv4/conf/eth1",
        "ipv4/conf/eth2",
        "ipv6/conf/all",
    ] {
        let name = format!("net/{setting}/forwarding");
        lab.set_sysctl(Host::B, &name, "1").unwrap();
    }
    for family in ["-4", "-6"] {
        let rule = |change: &str| ip(lab, Host::B, &format!("{family} rule {change}"));
        rule("add pref 100 lookup local");
        rule("del pref 0");
        for selected in rules {
            rule(&format!("add pref 50 {selected} prohibit"));
        }
    }
}

/// Returns the reason why tests that run [`ip`] cannot run here.
pub(crate) fn obstacle_to_ip() -> Option<String> {
    (!is_installed("ip")).then(|| "ip is not installed".to_owned())
}

/// Privileges of commands on their simulated host.
#[derive(Clone, Copy)]
pub(crate) enum Rights {
    /// All privileges, like root.
    All,
    /// No privileges, like an ordinary user.
    None,
}

/// Creates a side whose commands run on a host of the lab.
pub(crate) fn side(lab: &Arc<Lab>, host: Host, rights: Rights) -> Side {
    let lab = lab.clone();
    Side::of(folder(), move |program| match rights {
        Rights::All => lab.command(host, program),
        Rights::None => lab.unprivileged_command(host, program),
    })
}

/// Creates a directory for files, in memory if possible, because the tests measure cables rather
/// than disks.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Adds the keys of two sides to each other's peers file.
pub(crate) fn introduce(client: &Side, server: &Side) {
    client.trust(server, "b", "");
    server.trust(client, "a", "");
}

/// Creates a client on host A and a server on host B that trust each other and have no privileges.
pub(crate) fn acquainted(lab: &Arc<Lab>) -> (Side, Side) {
    let [client, server] = Host::ALL.map(|host| side(lab, host, Rights::None));
    introduce(&client, &server);
    (client, server)
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Copy from host A to host B.
    Put,
    /// Copy from host B to host A.
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

    /// Creates the source file. Returns the `cp` arguments for source and target. They contain the
    /// daemon's address 10.77.1.2.
    pub(crate) fn prepare(self, hosts: &Hosts, bytes: &[u8]) -> [&'static str; 2] {
        self.source(hosts).write("source", bytes);
        match self {
            Self::Put => ["source", "10.77.1.2:target"],
            Self::Get => ["10.77.1.2:source", "target"],
        }
    }

    pub(crate) fn source(self, hosts: &Hosts) -> &Side {
        match self {
            Self::Put => &hosts.client,
            Self::Get => &hosts.server,
        }
    }

    pub(crate) fn target(self, hosts: &Hosts) -> &Side {
        match self {
            Self::Put => &hosts.server,
            Self::Get => &hosts.client,
        }
    }

    /// Panics unless the target has the content `bytes` and the report has its digest.
    #[track_caller]
    pub(crate) fn check(self, hosts: &Hosts, bytes: &[u8], report: &serde_json::Value) {
        self.target(hosts).check("target", bytes, report);
    }
}

pub(crate) const MIB: usize = 1 << 20;
