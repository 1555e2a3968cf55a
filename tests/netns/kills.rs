//! Tests that kill the client, the daemon or both by SIGKILL while their host routes are installed.
//! The next start must remove all of these routes.
//!
//! `NICSTRIPE_KILLS` sets the number of kills, and `NICSTRIPE_SEED` the seed. A failure prints the
//! seed that reproduces it.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec};
use nicstripe_sim::Rng;
use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, content,
    kernel_routes::{self, KernelRoute, NICSTRIPE},
    tests,
    trial::{Test, amount},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    hosts::{Hosts, MIB, Rights},
    routes::helper_of,
};

pub(crate) const TESTS: &[Test] = tests![
    after_kills_at_random_the_routes_are_as_before_the_first_start,
    what_a_daemon_holds_for_a_client_that_vanished_goes_when_it_is_back,
];

fn after_kills_at_random_the_routes_are_as_before_the_first_start() {
    let (kills, seed) = (
        number("NICSTRIPE_KILLS").unwrap_or_else(|| amount(25, 200)),
        number("NICSTRIPE_SEED").unwrap_or_else(random_seed),
    );
    let mut stage = Stage::new();
    let mut random = Rng::new(seed);
    let mut figures = Figures::default();
    let begun = Instant::now();
    for round in 0..kills {
        let plan = Kill::chosen_by(&mut random);
        stage.context = format!("NICSTRIPE_SEED={seed}, kill {round} of {kills}: {plan:?}");
        stage.round(plan, &mut figures);
    }
    eprintln!(
        "{kills} kills in {:.1?}, seed {seed}: {figures:?}",
        begun.elapsed()
    );
    assert!(
        figures.with_routes * 2 >= kills,
        "most kills are to hit routes: {figures:?}, NICSTRIPE_SEED={seed}"
    );
}

/// Kills a client on a disconnected host. The daemon can detect the client's end only by the
/// timeout of a silent connection.
fn what_a_daemon_holds_for_a_client_that_vanished_goes_when_it_is_back() {
    let mut stage = Stage::new();
    "vanished".clone_into(&mut stage.context);
    let cp = stage.start();
    stage.await_that("both ends have routes", || {
        stage.has_routes(Host::A) && stage.has_routes(Host::B)
    });
    for link in 0..2 {
        stage.lab.drop_silently(link, Direction::Both).unwrap();
    }
    cp.kill();
    assert!(
        !stage.has_routes(Host::A) && stage.has_routes(Host::B),
        "its own are gone, the daemon's not yet"
    );
    // The client returns before the timeout of the other cable.
    stage.lab.pass(0).unwrap();
    stage.start_again(None);
}

/// Processes to kill, and the moment of the kill.
#[derive(Debug, Clone, Copy)]
struct Kill {
    client: bool,
    daemon: bool,
    /// True if the route helpers of these processes are killed as well.
    helpers: bool,
    moment: Moment,
}

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Time after the start of the client: before or during the installation of its routes.
    Started(Duration),
    /// Time after client and daemon have installed their routes.
    Routed(Duration),
}

impl Kill {
    fn chosen_by(random: &mut Rng) -> Self {
        let (client, daemon) =
            [(true, false), (false, true), (true, true)][random.below(3) as usize];
        let moment = match random.below(4) {
            0 => Moment::Started(Duration::from_micros(random.below(300_000))),
            _ => Moment::Routed(Duration::from_micros(random.below(100_000))),
        };
        Self {
            client,
            daemon,
            helpers: random.below(2) == 0,
            moment,
        }
    }
}

#[derive(Debug, Default)]
struct Figures {
    client: u64,
    daemon: u64,
    both: u64,
    /// Number of kills while nicstripe had routes installed on at least one host.
    with_routes: u64,
    /// Number of kills that left routes installed until the next start.
    left_over: u64,
}

/// Two hosts in one subnet, with a daemon. Strict reverse-path filtering forces both ends to
/// install host routes.
struct Stage {
    lab: Arc<Lab>,
    client: Side,
    server: Side,
    /// Running daemon; `None` after it has been killed.
    daemon: Option<Daemon>,
    port: u16,
    /// All routes of both hosts before the first copy.
    before: [Vec<Vec<u8>>; 2],
    context: String,
}

impl Stage {
    fn new() -> Self {
        let strict = Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .one_subnet()
            .without_ipv6();
        let strict = Host::ALL.into_iter().fold(strict, |lab, host| {
            lab.sysctl(host, "net/ipv4/conf/all/rp_filter", "1")
        });
        let Hosts {
            lab,
            client,
            server,
            daemon,
        } = Hosts::in_lab(strict.build().unwrap(), Rights::All, Rights::All);
        for host in Host::ALL {
            for number in 0..DECOYS {
                let interface = lab.interface_index(host, usize::from(number % 2));
                let decoy = KernelRoute {
                    destination: [10, 9, 0, 100 + number].into(),
                    interface,
                    protocol: 100 + number,
                };
                lab.on(host, || kernel_routes::add(decoy)).unwrap();
            }
        }
        client.write("large", content(64 * MIB));
        client.write("small", b"small");
        let before = tables(&lab);
        let port = daemon.port;
        Self {
            lab,
            client,
            server,
            daemon: Some(daemon),
            port,
            before,
            context: String::new(),
        }
    }

    /// Starts a copy that takes longer than the test.
    fn start(&self) -> Process {
        self.client.start([
            "cp",
            "-f",
            "--no-resume",
            "--port",
            &self.port.to_string(),
            "large",
            TARGET,
        ])
    }

    fn has_routes(&self, host: Host) -> bool {
        !self.ours(host).is_empty()
    }

    fn round(&mut self, plan: Kill, figures: &mut Figures) {
        let cp = self.start();
        match plan.moment {
            Moment::Started(after) => thread::sleep(after),
            Moment::Routed(after) => {
                self.await_that("both ends have routes", || {
                    Host::ALL.into_iter().all(|host| self.has_routes(host))
                });
                thread::sleep(after);
            }
        }
        let had_routes = Host::ALL.into_iter().any(|host| self.has_routes(host));
        let cp = self.kill(plan, cp);
        let left_over = Host::ALL.map(|host| self.has_routes(host));
        self.check_that_helpers_removed_theirs(plan, left_over);

        match (plan.client, plan.daemon) {
            (true, true) => figures.both += 1,
            (true, false) => figures.client += 1,
            _ => figures.daemon += 1,
        }
        figures.with_routes += u64::from(had_routes);
        figures.left_over +=
            u64::from(plan.helpers && (plan.client && left_over[0] || plan.daemon && left_over[1]));
        self.start_again(cp);
    }

    /// Kills the planned processes. Returns the client; `None` if it was killed.
    fn kill(&mut self, plan: Kill, cp: Process) -> Option<Process> {
        let killed_daemon = self.daemon.take_if(|_| plan.daemon);
        let victims = plan
            .client
            .then_some(&cp)
            .into_iter()
            .chain(killed_daemon.as_ref().map(|daemon| &daemon.process));
        for victim in victims {
            let helper = helper_of(victim).filter(|_| plan.helpers);
            victim.signal(Signal::KILL);
            if let Some(helper) = helper {
                // The helper may have detected the end of its user and exited.
                let _ = kill_process(Pid::from_raw(helper.cast_signed()).unwrap(), Signal::KILL);
            }
        }
        // Each `finish` returns once standard error is closed, by the process and by its helper.
        killed_daemon.map(|daemon| daemon.process.finish());
        if plan.client {
            cp.finish();
            return None;
        }
        Some(cp)
    }

    /// Panics if a route helper that was not killed left routes installed.
    fn check_that_helpers_removed_theirs(&self, plan: Kill, left_over: [bool; 2]) {
        if !plan.helpers {
            let left_over = [plan.client && left_over[0], plan.daemon && left_over[1]];
            assert_eq!(
                left_over, [false; 2],
                "{}: helpers leave routes",
                self.context
            );
        }
    }

    /// Restarts the daemon if it was killed, interrupts the running copy `cp`, and runs a small
    /// copy. Panics unless all routes are then the same as before the first copy.
    fn start_again(&mut self, cp: Option<Process>) {
        if self.daemon.is_none() {
            self.daemon = Some(Daemon::start_on(&self.server, self.port, &[]));
        }
        if let Some(cp) = cp {
            cp.signal(Signal::INT);
            let outcome = cp.finish();
            // The copy may already be complete, or may have no session yet.
            assert!(
                matches!(outcome.status.code(), Some(0 | 10 | 130)),
                "{}: {:?} {outcome}",
                self.context,
                outcome.status
            );
        }
        let outcome = self.copy_small();
        assert_eq!(
            outcome.status.code(),
            Some(0),
            "{}: {outcome}",
            self.context
        );
        assert_eq!(self.server.read("small"), b"small", "{}", self.context);
        self.await_that("the routes are as before", || {
            tables(&self.lab) == self.before
        });
    }

    fn copy_small(&self) -> Outcome {
        self.client.run([
            "cp",
            "-f",
            "--port",
            &self.port.to_string(),
            "small",
            &TARGET.replace("large", "small"),
        ])
    }

    fn ours(&self, host: Host) -> Vec<KernelRoute> {
        let routes = self.lab.on(host, kernel_routes::host_routes).unwrap();
        routes
            .into_iter()
            .filter(|route| route.protocol == NICSTRIPE)
            .collect()
    }

    #[track_caller]
    fn await_that(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            let ours = || Host::ALL.map(|host| self.ours(host));
            let neighbours = || {
                Host::ALL.map(|host| {
                    self.lab
                        .on(host, || fs::read_to_string("/proc/thread-self/net/arp"))
                        .unwrap()
                })
            };
            let is_late = Instant::now() >= deadline;
            assert!(
                !is_late,
                "{}: not within {PATIENCE:?}: {what}; ours: {:?}, neighbours: {:#?}",
                self.context,
                ours(),
                neighbours()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns all IPv4 routes of both hosts, with all tables and attributes, in the kernel's format.
fn tables(lab: &Lab) -> [Vec<Vec<u8>>; 2] {
    Host::ALL.map(|host| lab.on(host, kernel_routes::tables).unwrap())
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}"))
    })
}

fn random_seed() -> u64 {
    RandomState::new().hash_one(fs::read("/proc/sys/kernel/random/uuid").unwrap_or_default())
}

/// Number of foreign routes on each host. Each has a different routing protocol number, and
/// nicstripe must remove none of them.
const DECOYS: u8 = 50;
/// Timeout for routes to appear or disappear.
const PATIENCE: Duration = Duration::from_secs(10);
const TARGET: &str = "10.9.0.21:large";
