//! Copies to and from S3 stores that others wrote (versitygw, s3s-fs), over every interface of a host.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Process, content, number, program, tests,
    trial::{Test, is_installed},
};
use tempfile::TempDir;

use crate::hosts::{BEHIND as ADDRESS, Hosts, MIB, lead_behind};

pub(crate) const TESTS: &[Test] = tests![
    an_object_goes_and_comes_over_every_cable,
    a_cable_that_is_pulled_during_an_upload_costs_its_share,
];

pub(crate) const TESTS_WITH_S3S: &[Test] = tests![another_store_keeps_what_was_sent];

pub(crate) fn obstacle() -> Option<String> {
    missing(&["versitygw", "ip"])
}

pub(crate) fn obstacle_to_s3s() -> Option<String> {
    missing(&["s3s-fs", "ip"])
}

fn missing(tools: &[&str]) -> Option<String> {
    let missing = tools.iter().find(|tool| !is_installed(tool));
    missing.map(|tool| format!("{tool} is not installed"))
}

/// Program that stores the objects of a folder's folders.
#[derive(Clone, Copy)]
enum Server {
    Versity,
    S3s,
}

impl Server {
    fn start(self, lab: &Lab, folder: &Path) -> Process {
        let mut command = match self {
            Self::Versity => {
                let mut command = lab.command(Host::B, "versitygw");
                command
                    .env("ROOT_ACCESS_KEY", KEYS.0)
                    .env("ROOT_SECRET_KEY", KEYS.1)
                    .args(["--port", &format!("{ADDRESS}:{PORT}"), "posix"]);
                command
            }
            Self::S3s => {
                let mut command = lab.command(Host::B, "s3s-fs");
                command
                    .args(["--host", ADDRESS, "--port", &PORT.to_string()])
                    .args(["--access-key", KEYS.0, "--secret-key", KEYS.1]);
                command
            }
        };
        command.arg(folder);
        Process::spawn(command)
    }
}

const KEYS: (&str, &str) = ("AKIDTEST", "secretsecret");

const PORT: u16 = 7070;

/// Store on host B, at an address to which each cable of host A has a route.
struct Site {
    hosts: Hosts,
    /// Folder of the store; the bucket is a folder in it.
    folder: TempDir,
    _store: Process,
}

impl Site {
    fn joined_by(links: &[LinkSpec]) -> Self {
        Self::of(Server::Versity, links)
    }

    fn of(server: Server, links: &[LinkSpec]) -> Self {
        let hosts = Hosts::joined_by(links);
        let lab: &Lab = &hosts.lab;
        lead_behind(lab);
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        let store = server.start(lab, folder.path());
        let site = Self {
            hosts,
            folder,
            _store: store,
        };
        // It says nothing once it listens.
        for _ in 0..100 {
            let mut command = site.command(&["ls", "s3://bucket"]);
            if command.output().unwrap().status.success() {
                return site;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the store does not answer");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.hosts.client.command(program());
        command
            .args(arguments)
            .env("AWS_ENDPOINT_URL", format!("http://{ADDRESS}:{PORT}"))
            .env("AWS_ACCESS_KEY_ID", KEYS.0)
            .env("AWS_SECRET_ACCESS_KEY", KEYS.1);
        command
    }

    fn cp(&self, arguments: &[&str]) -> Process {
        let first = ["cp", "--json-stream", "--timeout", "20"];
        Process::spawn(self.command(&[&first, arguments].concat()))
    }

    fn stored(&self, key: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("bucket").join(key)).unwrap()
    }

    /// Returns the number of files that belong to unfinished uploads.
    fn unfinished(&self) -> usize {
        fn files(folder: &Path) -> usize {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let count = |entry: fs::DirEntry| match entry.path().is_dir() {
                true => files(&entry.path()),
                false => 1,
            };
            entries.map(count).sum()
        }
        files(&self.folder.path().join("bucket/.sgwtmp"))
    }
}

fn an_object_goes_and_comes_over_every_cable() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(64 * MIB);
    site.hosts.client.write("file", &bytes);
    let (outcome, carried) = site
        .hosts
        .carried(|| site.cp(&["file", "s3://bucket/key"]).finish());
    let report = outcome.expect(0).document();
    assert_eq!(
        report["proof"], "verified by the server's crc64nvme",
        "{report:#}"
    );
    assert!(site.stored("key") == bytes);
    for counters in &carried {
        let part = counters.at(Host::A).sent_bytes as f64 / bytes.len() as f64;
        assert!(part > 0.25, "{part}: {report:#}");
    }
    let (outcome, carried) = site
        .hosts
        .carried(|| site.cp(&["s3://bucket/key", "back"]).finish());
    let report = outcome.expect(0).document();
    assert_eq!(
        report["proof"], "verified by the server's blake3",
        "{report:#}"
    );
    site.hosts.client.check("back", &bytes, &report);
    for counters in &carried {
        let part = counters.at(Host::A).received_bytes as f64 / bytes.len() as f64;
        assert!(part > 0.25, "{part}: {report:#}");
    }
    // Wrong keys are refused by the store, and named by its word.
    let mut command = site.command(&["cp", "file", "s3://bucket/other"]);
    command.env("AWS_SECRET_ACCESS_KEY", "another");
    Process::spawn(command)
        .finish()
        .expect(5)
        .error(&["SignatureDoesNotMatch"]);
}

fn a_cable_that_is_pulled_during_an_upload_costs_its_share() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(192 * MIB);
    site.hosts.client.write("file", &bytes);
    let cp = site.cp(&["file", "s3://bucket/key"]);
    cp.await_event("progress", |event| number(event, "bytes") > 40 * MIB as u64);
    site.hosts.lab.cut(0).unwrap();
    let report = cp.finish().expect(0).document();
    assert!(site.stored("key") == bytes);
    assert!(
        number(&report, "resent_bytes") <= 32 * MIB as u64,
        "{report:#}"
    );
    assert_eq!(site.unfinished(), 0);
}

fn another_store_keeps_what_was_sent() {
    let site = Site::of(Server::S3s, &[LinkSpec::mbit(200); 2]);
    let bytes = content(32 * MIB);
    for dir in ["tree", "tree/a b+c&d"] {
        site.hosts.client.make_dir(dir);
    }
    site.hosts.client.write("tree/large", &bytes);
    site.hosts.client.write("tree/a b+c&d/small", b"small");
    let copy = |arguments: &[&str]| site.cp(arguments).finish().expect(0).document();
    copy(&["-r", "tree", "s3://bucket/"]);
    assert!(site.stored("tree/large") == bytes);
    assert_eq!(site.stored("tree/a b+c&d/small"), b"small");
    let again = copy(&["-r", "tree", "s3://bucket/"]);
    assert_eq!(number(&again, "wire_bytes"), 0, "{again:#}");
    let report = copy(&["s3://bucket/tree/large", "back"]);
    assert_eq!(
        report["proof"], "verified by the server's blake3",
        "{report:#}"
    );
    site.hosts.client.check("back", &bytes, &report);
    copy(&["-r", "s3://bucket/tree", "copy"]);
    site.hosts.client.check("copy/large", &bytes, &report);
    let refused = site.cp(&["--no-replace", "back", "s3://bucket/tree/large"]);
    let report = refused.finish().expect(11).document();
    assert!(
        report["error"].as_str().unwrap().contains("exists"),
        "{report:#}"
    );
    assert_eq!(report.get("bytes"), None, "{report:#}");
}
