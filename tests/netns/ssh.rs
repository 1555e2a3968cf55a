//! Tests of copies that a real ssh starts, over simulated cables.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, Process, Side, Sshd, content, number, program, tests, trial::Test,
};

use crate::hosts::{MIB, Rights, ip, side};

pub(crate) const TESTS: &[Test] = tests![
    a_copy_that_ssh_starts_takes_every_cable_and_leaves_nothing,
    with_the_cable_of_ssh_unplugged_the_copy_goes_on_over_the_others,
    blocked_data_is_told_by_port_and_goes_through_ssh_only_on_request,
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
    let on_b = |arguments: &str| ip(&machines.lab, Host::B, arguments);
    for setting in [
        "ipv4/conf/all",
        "ipv4/conf/eth1",
        "ipv4/conf/eth2",
        "ipv6/conf/all",
    ] {
        let name = format!("net/{setting}/forwarding");
        machines.lab.set_sysctl(Host::B, &name, "1").unwrap();
    }
    for family in ["-4", "-6"] {
        on_b(&format!("{family} rule add pref 100 lookup local"));
        on_b(&format!("{family} rule del pref 0"));
        for (interface, ports) in [
            ("eth1", "1024-2221"),
            ("eth1", "2223-65534"),
            ("eth2", "1024-65534"),
        ] {
            on_b(&format!(
                "{family} rule add pref 50 iif {interface} ipproto tcp dport {ports} prohibit"
            ));
        }
    }
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
