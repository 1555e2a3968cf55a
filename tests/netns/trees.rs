//! Tests of trees and pipes over cables that are cut, and with clients and daemons that are killed.

use nicstripe_lab::LinkSpec;
use nicstripe_testkit::{
    content, number, tests,
    tree::{Aspects, Tree, assert_same_tree, plant},
    trial::Test,
};

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![a_tree_is_whole_although_a_cable_is_cut_in_the_middle,];

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
}

/// Number of files of 10 kB in the tree.
const SMALL: u64 = 400;
/// Number of files of 8 MiB in the tree.
const LARGE: u64 = 4;
/// Half of the tree's size of 36 MiB, in bytes.
const HALF: u64 = 18 << 20;
