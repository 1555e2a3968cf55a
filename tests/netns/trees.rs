//! Tests of trees and pipes over cables that are cut, and with clients and daemons that are killed.

use std::time::Duration;

use nicstripe_lab::LinkSpec;
use nicstripe_testkit::{
    Daemon, Process, Side, content, is_same, number, tests,
    tree::{Aspects, Tree, assert_same_tree, plant},
    trial::Test,
};

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![
    a_tree_is_whole_although_a_cable_is_cut_in_the_middle,
    a_tree_whose_client_was_killed_is_finished_by_a_rerun,
    a_tree_goes_on_when_its_daemon_is_back,
    a_reader_that_pauses_loses_no_link_of_a_pipe,
];

fn links() -> [LinkSpec; 2] {
    [LinkSpec::mbit(200); 2]
}

fn a_tree_is_whole_although_a_cable_is_cut_in_the_middle() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        let cp = hosts.start_cp(&way.plant(&hosts));
        cp.await_bytes(HALF);
        hosts.lab.cut(1).unwrap();
        let report = cp.finish().expect(0).document();
        assert!(number(&report, "failovers") >= 1, "{report:#}");
        assert_eq!(
            number(&report["tree"], "files"),
            SMALL + LARGE,
            "{report:#}"
        );
        way.check_tree(&hosts);
    }
}

fn a_tree_whose_client_was_killed_is_finished_by_a_rerun() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        let words = way.plant(&hosts);
        let cp = hosts.start_cp(&words);
        cp.await_bytes(HALF);
        cp.kill();
        let report = hosts.cp(&words).expect(0).document();
        // Completed files are unchanged and are not retransmitted.
        assert!(
            number(&report["tree"], "files") < SMALL + LARGE,
            "{report:#}"
        );
        way.check_tree(&hosts);
    }
}

fn a_tree_goes_on_when_its_daemon_is_back() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        let cp = hosts.start_cp(&way.plant(&hosts));
        cp.await_bytes(HALF);
        let hosts = with_daemon_killed_and_started(hosts);
        cp.finish().expect(0);
        way.check_tree(&hosts);
    }
}

fn a_reader_that_pauses_loses_no_link_of_a_pipe() {
    let hosts = Hosts::joined_by(&links());
    let bytes = content(40 * MIB);
    hosts.server.write("source", &bytes);
    let mut command = hosts.client.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.args([
        "cp",
        "-v",
        "--port",
        &hosts.daemon.port.to_string(),
        "10.77.1.2:source",
        "-",
    ]);
    // Longer than the period of silence after which a path counts as lost.
    let (outcome, stdout) =
        Process::spawn_read_with_pauses(command, 16 * MIB, Duration::from_secs(3)).finish_raw();
    let outcome = outcome.expect(0);
    assert!(
        is_same(&stdout, &bytes),
        "{} bytes came\n{outcome}",
        stdout.len()
    );
    let links = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with("  eth") && line.trim_end().ends_with("  up"));
    assert_eq!(links.count(), 2, "{outcome}");
}

impl Way {
    /// Creates a tree on the sending side. Returns the `cp` arguments for a copy of the tree.
    fn plant(self, hosts: &Hosts) -> [&'static str; 4] {
        let root = self.source(hosts).path("tree");
        for index in 0..SMALL {
            plant(
                &root,
                &format!("{:02}/{index}", index % 10),
                content(10_000),
            );
        }
        for index in 0..LARGE {
            plant(&root, &format!("large/{index}"), content(8 * MIB));
        }
        match self {
            Self::Put => ["-a", "--json-stream", "tree", "10.77.1.2:"],
            Self::Get => ["-a", "--json-stream", "10.77.1.2:tree", "."],
        }
    }

    /// Panics unless the copy equals the tree and no temporary file remains in the copy or next to
    /// it.
    #[track_caller]
    fn check_tree(self, hosts: &Hosts) {
        let copy = self.target(hosts);
        assert_same_tree(
            &self.source(hosts).path("tree"),
            &copy.path("tree"),
            Aspects::ALL,
        );
        let paths = Tree::read(&copy.files(), Aspects::NONE).paths();
        assert!(
            paths
                .iter()
                .all(|path| path.starts_with("tree") && !path.contains("nicstripe")),
            "{paths:?}"
        );
    }

    fn source(self, hosts: &Hosts) -> &Side {
        match self {
            Self::Put => &hosts.client,
            Self::Get => &hosts.server,
        }
    }

    fn target(self, hosts: &Hosts) -> &Side {
        match self {
            Self::Put => &hosts.server,
            Self::Get => &hosts.client,
        }
    }
}

fn with_daemon_killed_and_started(hosts: Hosts) -> Hosts {
    let Hosts {
        lab,
        client,
        server,
        daemon: Daemon { process, port },
    } = hosts;
    process.kill();
    let daemon = Daemon::start_on(&server, port, &[]);
    Hosts {
        lab,
        client,
        server,
        daemon,
    }
}

/// Number of files of 10 kB in the tree.
const SMALL: u64 = 400;
/// Number of files of 8 MiB in the tree.
const LARGE: u64 = 4;
/// Half of the tree's size of 36 MiB, in bytes.
const HALF: u64 = 18 << 20;
