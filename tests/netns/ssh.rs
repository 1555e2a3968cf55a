//! Tests of copies that a real ssh starts, over simulated cables.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, Process, Side, Sshd, content, number, program, tests, trial::Test,
};

use rustix::process::Signal;

use crate::hosts::{MIB, Rights, prohibit, side};

pub(crate) const TESTS: &[Test] = tests![
    a_copy_that_ssh_starts_takes_every_cable_and_leaves_nothing,
    with_the_cable_of_ssh_unplugged_the_copy_goes_on_over_the_others,
    blocked_data_is_told_by_port_and_goes_through_ssh_only_on_request,
    each_line_of_the_manual_for_a_key_gives_what_it_says,
];

/// Two hosts without nicstripe keys; host B has an sshd.
struct Machines {
    lab: Arc<Lab>,
    here: Side,
    there: Side,
    /// Command that connects to it.
    ssh: String,
    sshd: Process,
}

impl Machines {
    fn joined_by(links: &[LinkSpec]) -> Self {
        let lab = Arc::new(Lab::builder().links(links.iter().copied()).build().unwrap());
        let (here, there) = (
            side(&lab, Host::A, Rights::All),
            side(&lab, Host::B, Rights::All),
        );
        let sshd = Sshd::in_folder(&here.home(), &there.home(), &there.files());
        let ssh = sshd.client();
        let sshd = Process::spawn(sshd.command(|program| there.command(program)));
        sshd.await_stderr(Sshd::READY);
        Self {
            lab,
            here,
            there,
            ssh,
            sshd,
        }
    }

    fn start_cp(&self, arguments: &[&str]) -> Process {
        let mut command = self.here.command(program());
        command
            .env("NICSTRIPE_SSH", &self.ssh)
            .env("PATH", "/usr/bin:/bin");
        command.arg("cp").args(arguments);
        Process::spawn(command)
    }

    fn cp(&self, arguments: &[&str]) -> Outcome {
        self.start_cp(arguments).finish()
    }

    /// Returns the argument for a file in the folder of host B.
    fn remote(&self, name: &str) -> String {
        format!("root@10.77.1.2:{}", self.there.path(name).display())
    }

    /// Asserts that nothing of nicstripe is left on host B.
    fn expect_nothing_left(&self) {
        let begun = Instant::now();
        let keys = format!("NICSTRIPE_HOME={}", self.there.home().display());
        let is_there = |id: u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let has = environment
                .split(|byte| *byte == 0)
                .any(|word| word == keys.as_bytes());
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            has && name.starts_with("nicstripe")
        };
        let ids = || fs::read_dir("/proc").unwrap();
        let ids = || ids().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        while ids().any(is_there) {
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "a process is left"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(fs::read_dir(self.there.home()).unwrap().count(), 0);
    }

    fn end(self) {
        self.sshd.kill();
    }
}

fn a_copy_that_ssh_starts_takes_every_cable_and_leaves_nothing() {
    let machines = Machines::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(32 * MIB);
    machines.here.write("source", &bytes);
    let report = machines
        .cp(&["--json", "source", &machines.remote("target")])
        .expect(0)
        .document();
    machines.there.check("target", &bytes, &report);
    assert_eq!(number(&report, "size_bytes"), bytes.len() as u64);
    let links = report["links"].as_array().unwrap();
    let moved = |link: &serde_json::Value| number(link, "bytes");
    assert_eq!(links.len(), 2, "{report:#}");
    assert!(links.iter().all(|link| moved(link) > 8 << 20), "{report:#}");
    machines.expect_nothing_left();
    machines.end();
}

fn with_the_cable_of_ssh_unplugged_the_copy_goes_on_over_the_others() {
    let machines = Machines::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(64 * MIB);
    machines.here.write("source", &bytes);
    let copy = machines.start_cp(&["--json-stream", "source", &machines.remote("target")]);
    copy.await_bytes(8 << 20);
    machines.lab.set_plugged_at(Host::B, 0, false).unwrap();
    let report = copy.finish().expect(0).document();
    machines.there.check("target", &bytes, &report);
    // Although sshd does not know that its connection is lost.
    machines.expect_nothing_left();
    machines.lab.set_plugged_at(Host::B, 0, true).unwrap();
    machines.end();
}

fn blocked_data_is_told_by_port_and_goes_through_ssh_only_on_request() {
    let machines = Machines::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(2 * MIB);
    machines.here.write("source", &bytes);
    let rules = ["eth1 1024-2221", "eth1 2223-65534", "eth2 1024-65534"];
    let rules = rules.map(|rule| format!("iif {}", rule.replace(' ', " ipproto tcp dport ")));
    prohibit(&machines.lab, &rules.each_ref().map(String::as_str));
    let target = machines.remote("target");
    machines
        .cp(&["source", &target])
        .expect(10)
        .error(&["ssh reaches root@10.77.1.2", "on TCP port 7748"])
        .hint(&["open TCP port 7748 on eth1, eth2 in the firewall of root@10.77.1.2"]);
    let through = machines
        .cp(&["--allow-ssh-data", "source", &target])
        .expect(0);
    assert!(
        through.stderr.contains("sending it through ssh"),
        "{through}"
    );
    assert_eq!(machines.there.read("target"), bytes);
    machines.expect_nothing_left();
    machines.end();
}

/// Each `authorized_keys` line of the manual, in its order, with what its key may do.
fn each_line_of_the_manual_for_a_key_gives_what_it_says() {
    let manual = include_str!("../../docs/MANUAL.md");
    let lines = manual.lines();
    let lines: Vec<&str> = lines
        .filter(|line| line.starts_with("command=\""))
        .collect();
    // May add a file, replace one, read one, reach the service, listen, run a command.
    let rights = [
        [true, false, true, false, false, false],
        [false, false, true, false, false, false],
        [true, true, true, false, false, false],
        [false, false, false, true, false, false],
        [false, false, false, false, true, false],
        [true, true, true, true, true, true],
    ];
    assert_eq!(lines.len(), rights.len());
    let machines = Machines::joined_by(&[LinkSpec::mbit(200)]);
    let folder = machines.there.files();
    let keys = machines.here.home().join("user.pub");
    let key = fs::read_to_string(&keys).unwrap();
    let service = machines
        .lab
        .on(Host::B, || TcpListener::bind("127.0.0.1:5432").unwrap());
    let service = service.unwrap();
    std::thread::spawn(move || {
        for stream in service.incoming() {
            let _ = stream.unwrap().write_all(b"served");
        }
    });
    machines.here.write("new", "newer");
    for (line, may) in lines.iter().zip(rights) {
        let (command, _) = line.split_once(" ssh-ed25519 AAAA… ").unwrap();
        let served = folder.join("served");
        let _ = fs::remove_dir_all(&served);
        fs::create_dir(&served).unwrap();
        fs::write(served.join("old"), "old").unwrap();
        let mut command = command.to_owned();
        for root in ["/srv/in", "/srv/out", "/srv/both"] {
            command = command.replace(root, served.to_str().unwrap());
        }
        fs::write(&keys, format!("{command} {key}")).unwrap();
        let remote = |name: &str| match command.contains("ssh-server\"") {
            true => format!("root@10.77.1.2:served/{name}"),
            false => format!("root@10.77.1.2:{name}"),
        };
        let start = |words: &[&str]| {
            let mut command = machines.here.command(program());
            command
                .env("NICSTRIPE_SSH", &machines.ssh)
                .env("PATH", "/usr/bin:/bin");
            command.args(words);
            Process::spawn(command)
        };
        let is_done = |ended: Outcome, done: i32| {
            let code = ended.status.code();
            assert!(code == Some(5) || code == Some(done), "{line}\n{ended}");
            code == Some(done)
        };
        let ran = |words: &[&str]| is_done(start(words).finish(), 0);
        let adds = ran(&["cp", "new", &remote("new")]);
        let replaces = ran(&["cp", "new", &remote("old")]);
        let reads = ran(&["cp", &remote("old"), "read"]);
        let _ = fs::remove_file(machines.here.path("read"));
        let dials = ran(&["dial", "root@10.77.1.2", "localhost:5432"]);
        let forward = start(&[
            "forward",
            "-R",
            "127.0.0.1:8080:localhost:1",
            "root@10.77.1.2",
        ]);
        let begun = Instant::now();
        while !forward.has_ended() && begun.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(50));
        }
        forward.signal(Signal::TERM);
        let listens = is_done(forward.finish(), 143);
        let commands = ran(&["exec", "root@10.77.1.2", "true"]);
        let found = [adds, replaces, reads, dials, listens, commands];
        assert_eq!(found, may, "{line}");
        assert_eq!(served.join("new").exists(), may[0], "{line}");
        let old = fs::read_to_string(served.join("old")).unwrap();
        assert_eq!(old == "newer", may[1], "{line}");
    }
    machines.end();
}
