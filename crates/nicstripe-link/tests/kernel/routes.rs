//! Tests of host routes: ownership, protection of other routes, and cleanup after an owner is
//! killed.

use std::{
    env,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt as _;
use nicstripe_link::{
    HostRoute, InterfaceIndex, MAX_ROUTES, Refusal, RouteError, Routes, Surroundings, may_install,
    route_to,
};
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::route::{RouteMessage, RouteProtocol, RouteScope},
};
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
    thread::{CapabilitySet, capabilities, set_capabilities},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::lab::Lab;

crate::tests![
    a_route_is_added_listed_used_and_removed,
    a_route_that_is_not_ours_is_never_replaced,
    a_killed_owner_leaves_nothing_and_decoys_stay,
    a_route_without_a_record_is_left_over,
    a_route_with_two_owners_goes_with_the_last,
    another_owners_way_stands_and_a_dead_ones_does_not,
    a_route_is_restored_after_the_interface_was_down,
    without_the_right_the_error_names_it,
    a_process_has_a_limited_number_of_routes,
    all_processes_together_have_a_limited_number_of_routes,
    records_of_another_namespace_do_not_count,
    the_locks_of_other_users_are_not_waited_for,
    a_route_that_another_user_needs_stays,
    a_missing_interface_is_named_and_leaves_no_record,
    the_surroundings_are_read_from_the_kernel,
];

fn a_route_is_added_listed_used_and_removed() {
    let bench = RouteLab::new();
    for destination in ["10.9.9.9", "fd09::9"] {
        let route = bench.route(destination, "a1");
        bench.run(|routes| {
            routes.add(&route).unwrap();
            assert_eq!(routes.list_ours().unwrap(), [route]);
            assert_eq!(routes.owners(&route).unwrap(), [std::process::id()]);
            assert_eq!(
                route_to(route.destination).unwrap().interface,
                route.interface
            );
            assert!(routes.clean().unwrap().is_empty(), "its owner is alive");
            assert!(routes.remove(&route).unwrap());
            assert_eq!(routes.list_ours().unwrap(), []);
            assert!(!routes.remove(&route).unwrap(), "it is gone");
        });
    }
    let preferring = HostRoute {
        prefer_source: Some("10.1.0.1".parse().unwrap()),
        ..bench.route("10.9.9.9", "a1")
    };
    bench.run(|routes| {
        routes.add(&preferring).unwrap();
        assert_eq!(routes.list_ours().unwrap(), [preferring]);
        assert_eq!(
            route_to(preferring.destination).unwrap().local,
            preferring.prefer_source
        );
        assert!(routes.remove(&preferring).unwrap());
    });
}

fn a_route_that_is_not_ours_is_never_replaced() {
    let bench = RouteLab::new();
    bench.add_foreign("10.9.9.9", 32, "a0", RouteProtocol::Static, 50);
    let before = bench.table();
    let route = bench.route("10.9.9.9", "a1");
    bench.run(|routes| {
        let error = routes.add(&route).unwrap_err();
        assert!(matches!(error, RouteError::Occupied { .. }), "{error:?}");
        assert_eq!(error.to_string(), "cannot add a route to 10.9.9.9 with metric 50: a foreign route (protocol static) exists");
        assert!(!routes.remove(&route).unwrap());
        assert!(routes.owners(&route).unwrap().is_empty(), "a refused route leaves no record");
    });
    assert_eq!(bench.table(), before);
}

fn a_killed_owner_leaves_nothing_and_decoys_stay() {
    let bench = RouteLab::new();
    for (destination, prefix_len, protocol) in [
        ("10.8.0.1", 32, RouteProtocol::Static),
        ("10.8.0.2", 32, RouteProtocol::Bird),
        ("10.8.0.3", 32, RouteProtocol::Other(84)),
        // nicstripe's protocol number, but not a route that nicstripe would install.
        ("10.8.1.0", 24, RouteProtocol::Other(83)),
    ] {
        bench.add_foreign(destination, prefix_len, "a0", protocol, 50);
    }
    let mine = bench.route("10.7.0.1", "a0");
    bench.run(|routes| routes.add(&mine).unwrap());
    let before = bench.table();

    let routes =
        ["10.9.9.1", "10.9.9.2", "fd09::3"].map(|destination| bench.route(destination, "a1"));
    let mut owner = bench.owner(&routes);
    bench.run(|local| {
        assert_eq!(local.owners(&routes[0]).unwrap(), [owner.id()]);
        assert!(local.clean().unwrap().is_empty(), "the owner is alive");
        owner.kill().unwrap();
        // The process is a zombie until it is reaped. A zombie counts as dead.
        wait_for_death(owner.id());
        assert_eq!(local.clean().unwrap(), routes);
        assert!(local.clean().unwrap().is_empty());
    });
    owner.wait().unwrap();
    assert_eq!(bench.table(), before);
    bench.run(|routes| assert!(routes.remove(&mine).unwrap()));
}

fn a_route_without_a_record_is_left_over() {
    let bench = RouteLab::new();
    bench.add_foreign("10.9.9.9", 32, "a1", RouteProtocol::Other(83), 50);
    let route = bench.route("10.9.9.9", "a1");
    bench.run(|routes| {
        assert_eq!(routes.list_ours().unwrap(), [route]);
        assert_eq!(routes.clean().unwrap(), [route]);
    });
}

fn a_route_with_two_owners_goes_with_the_last() {
    let bench = RouteLab::new();
    let route = bench.route("10.9.9.9", "a1");
    let mut owner = bench.owner(&[route]);
    bench.run(|routes| {
        routes.add(&route).unwrap();
        routes.add(&route).unwrap();
        assert_eq!(routes.list_ours().unwrap(), [route]);
        assert!(
            !routes.remove(&route).unwrap(),
            "this process wants it twice"
        );
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(
            routes.clean().unwrap().is_empty(),
            "this process still wants it"
        );
        assert!(routes.remove(&route).unwrap());
    });
}

fn another_owners_way_stands_and_a_dead_ones_does_not() {
    let bench = RouteLab::new();
    let (theirs, ours) = (bench.route("10.9.9.9", "a0"), bench.route("10.9.9.9", "a1"));
    let mut owner = bench.owner(&[theirs]);
    bench.run(|routes| {
        let error = routes.add(&ours).unwrap_err();
        let RouteError::HeldElsewhere { wanted, held, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((wanted, held), (ours.interface, theirs.interface));
        owner.kill().unwrap();
        owner.wait().unwrap();
        routes.add(&ours).unwrap();
        assert_eq!(routes.list_ours().unwrap(), [ours]);
    });
}

fn a_route_is_restored_after_the_interface_was_down() {
    let bench = RouteLab::new();
    let route = bench.route("10.9.9.9", "a1");
    bench.run(|routes| {
        assert!(!routes.restore(&route).unwrap(), "it was never added");
        routes.add(&route).unwrap();
    });
    bench.lab.near.down("a1");
    bench.run(|routes| {
        assert_eq!(routes.list_ours().unwrap(), [], "the kernel drops it");
        assert!(matches!(
            routes.restore(&route),
            Err(RouteError::NoInterface { .. })
        ));
    });
    bench.lab.near.up("a1");
    bench.run(|routes| {
        assert!(routes.restore(&route).unwrap());
        assert!(routes.restore(&route).unwrap(), "twice is once");
        assert_eq!(routes.list_ours().unwrap(), [route]);
        assert!(routes.remove(&route).unwrap());
    });
}

fn without_the_right_the_error_names_it() {
    let bench = RouteLab::new();
    let route = bench.route("10.9.9.9", "a1");
    bench.add_foreign("10.9.9.8", 32, "a1", RouteProtocol::Other(83), 50);
    bench.run(|routes| {
        drop_rights();
        let error = routes.add(&route).unwrap_err();
        assert!(
            matches!(error, RouteError::NotPermitted { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("CAP_NET_ADMIN")
                && error.to_string().contains("administrator"),
            "{error}"
        );
        assert!(
            routes.owners(&route).unwrap().is_empty(),
            "a refused route leaves no record"
        );
        assert_eq!(
            routes.list_ours().unwrap().len(),
            1,
            "listing needs no rights"
        );
        assert!(matches!(
            routes.clean(),
            Err(RouteError::NotPermitted { .. })
        ));
    });
}

fn a_process_has_a_limited_number_of_routes() {
    let bench = RouteLab::new();
    let route = |last: usize| HostRoute {
        destination: Ipv4Addr::new(10, 9, 9, last as u8).into(),
        ..bench.route("10.9.9.9", "a1")
    };
    bench.run(|routes| {
        let start = Instant::now();
        (0..MAX_ROUTES).for_each(|last| routes.add(&route(last)).unwrap());
        eprintln!(
            "Routes::add(): {:?} each",
            start.elapsed() / MAX_ROUTES as u32
        );
        let error = routes.add(&route(MAX_ROUTES)).unwrap_err();
        assert!(matches!(error, RouteError::TooMany { .. }), "{error:?}");
        assert_eq!(routes.list_ours().unwrap().len(), MAX_ROUTES);
    });
}

fn all_processes_together_have_a_limited_number_of_routes() {
    let bench = RouteLab::new();
    let (first, second) = (bench.route("10.9.9.1", "a1"), bench.route("10.9.9.2", "a1"));
    bench.run(|routes| routes.add(&first).unwrap());
    let records = bench.records_of(geteuid().as_raw());
    let fill_with = |owner| {
        let record = record_of(&records, owner);
        fs::write(&records, format!("{record}\n").repeat(256)).unwrap();
    };
    fill_with(PROCESS_1);
    bench.run(|routes| {
        assert!(matches!(
            routes.add(&second),
            Err(RouteError::TooMany { .. })
        ));
    });
    fill_with(NO_PROCESS);
    bench.run(|routes| {
        routes.add(&second).unwrap();
        assert_eq!(
            routes.clean().unwrap(),
            [first],
            "its record was among those of dead processes"
        );
    });
}

fn records_of_another_namespace_do_not_count() {
    let bench = RouteLab::new();
    let route = bench.route("10.9.9.9", "a1");
    let elsewhere = RouteLab::new();
    assert_eq!(
        elsewhere.route("10.9.9.9", "a1"),
        route,
        "both labs number their interfaces alike"
    );
    elsewhere.add_foreign("10.9.9.9", 32, "a1", RouteProtocol::Other(83), 50);
    bench.run(|routes| routes.add(&route).unwrap());
    let directory = bench.state.path();
    elsewhere.lab.near.run(|| {
        let routes = Routes::open(directory).unwrap();
        assert!(routes.owners(&route).unwrap().is_empty());
        assert_eq!(routes.clean().unwrap(), [route]);
    });
    bench.run(|routes| assert!(routes.remove(&route).unwrap()));
}

fn the_locks_of_other_users_are_not_waited_for() {
    let bench = RouteLab::new();
    let route = bench.route("10.9.9.9", "a1");
    bench.run(|routes| {
        // Another user can stop a process that holds any of these: the lock of all users, which
        // earlier versions had, and its own.
        let _held = ["routes.lock", "12345.lock"].map(|name| {
            let lock = File::create(bench.state.path().join(name)).unwrap();
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            lock
        });
        let begun = Instant::now();
        routes.add(&route).unwrap();
        assert!(routes.restore(&route).unwrap());
        assert_eq!(routes.owners(&route).unwrap(), [std::process::id()]);
        assert_eq!(routes.clean().unwrap(), []);
        assert!(routes.remove(&route).unwrap());
        // A lock is waited for for 2 s. Each of the five calls takes a few milliseconds.
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    });
}

fn a_route_that_another_user_needs_stays() {
    let bench = RouteLab::new();
    let (route, other_way) = (bench.route("10.9.9.9", "a1"), bench.route("10.9.9.9", "a0"));
    bench.run(|routes| {
        routes.add(&route).unwrap();
        let own = bench.records_of(geteuid().as_raw());
        let others = bench.records_of(12345);
        let record = record_of(&own, PROCESS_1);
        fs::write(&others, format!("{record}\n")).unwrap();
        assert_eq!(routes.owners(&route).unwrap(), [1, std::process::id()]);

        assert!(!routes.remove(&route).unwrap(), "the other user needs it");
        assert_eq!(routes.clean().unwrap(), []);
        assert_eq!(routes.list_ours().unwrap(), [route]);
        let error = routes.add(&other_way).unwrap_err();
        assert!(
            matches!(error, RouteError::HeldElsewhere { .. }),
            "{error:?}"
        );

        let record = record_of(&others, NO_PROCESS);
        fs::write(&others, format!("{record}\n")).unwrap();
        assert_eq!(routes.clean().unwrap(), [route], "its process has ended");
        assert_eq!(routes.list_ours().unwrap(), []);
    });
}

fn a_missing_interface_is_named_and_leaves_no_record() {
    let bench = RouteLab::new();
    let route = HostRoute {
        interface: InterfaceIndex(4242),
        ..bench.route("10.9.9.9", "a1")
    };
    bench.run(|routes| {
        let error = routes.add(&route).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot add a route to 10.9.9.9: interface 4242 is down or gone"
        );
        assert!(routes.owners(&route).unwrap().is_empty());
    });
}

fn the_surroundings_are_read_from_the_kernel() {
    let bench = RouteLab::new();
    let (gateway, neighbour, routed) = (
        [10, 2, 0, 254].into(),
        [10, 2, 0, 2].into(),
        [10, 2, 0, 77].into(),
    );
    bench.lab.near.netlink(|handle| async move {
        let default = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(Ipv4Addr::new(10, 2, 0, 254))
            .build();
        handle.route().add(default).execute().await.unwrap();
    });
    bench.add_foreign("10.2.0.77", 32, "a1", RouteProtocol::Static, 7);
    let interfaces = bench.lab.near.interfaces();
    let surroundings = bench.lab.near.run(|| Surroundings::read().unwrap());
    let decide = |destination: IpAddr| {
        may_install(destination, bench.index("a1"), &interfaces, &surroundings)
    };
    assert_eq!(decide(neighbour), Ok(()));
    assert_eq!(decide(gateway), Err(Refusal::Gateway(gateway)));
    assert_eq!(
        decide(routed),
        Err(Refusal::Routed {
            destination: routed,
            protocol: "static".to_owned()
        })
    );
    assert!(
        matches!(decide([10, 1, 0, 2].into()), Err(Refusal::NotOnLink { .. })),
        "that is the other cable"
    );
}

/// Lab with two cables, and a state directory for route records.
pub(crate) struct RouteLab {
    pub(crate) lab: Lab,
    pub(crate) state: TempDir,
}

impl RouteLab {
    pub(crate) fn new() -> Self {
        Self {
            lab: Lab::two_cables(),
            state: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn run<T: Send>(&self, body: impl FnOnce(&Routes) -> T + Send) -> T {
        self.lab
            .near
            .run(|| body(&Routes::open(self.state.path()).unwrap()))
    }

    /// Returns the path of a user's records of routes.
    fn records_of(&self, user: u32) -> PathBuf {
        self.state.path().join(format!("routes.{user}.jsonl"))
    }

    pub(crate) fn index(&self, interface: &str) -> InterfaceIndex {
        self.lab.near.index(interface)
    }

    pub(crate) fn route(&self, destination: &str, interface: &str) -> HostRoute {
        HostRoute {
            destination: destination.parse().unwrap(),
            interface: self.index(interface),
            prefer_source: None,
            metric: HostRoute::DEFAULT_METRIC,
        }
    }

    /// Adds a route as another program would, without nicstripe-link.
    pub(crate) fn add_foreign(
        &self,
        to: &str,
        prefix_len: u8,
        interface: &str,
        protocol: RouteProtocol,
        metric: u32,
    ) {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to.parse().unwrap(), prefix_len)
            .output_interface(self.index(interface).0)
            .protocol(protocol)
            .priority(metric)
            .scope(RouteScope::Link)
            .build();
        self.lab
            .near
            .netlink(|handle| async move { handle.route().add(route).execute().await.unwrap() });
    }

    /// Reads the kernel's IPv4 routes without nicstripe-link.
    pub(crate) fn table(&self) -> Vec<RouteMessage> {
        self.lab.near.netlink(|handle| async move {
            let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
            handle
                .route()
                .get(all)
                .execute()
                .try_collect()
                .await
                .unwrap()
        })
    }

    /// Starts another process that adds `routes` and keeps them until the process is killed or the
    /// test ends.
    fn owner(&self, routes: &[HostRoute]) -> Owner {
        let arguments = routes
            .iter()
            .map(|route| format!("{} {}", route.destination, route.interface));
        let arguments = arguments.collect::<Vec<_>>().join("\n");
        let state = self.state.path();
        let mut child = self.lab.near.run(|| spawn_owner(&arguments, state));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Owner(child)
    }
}

/// Returns the first record of a file, with another process as owner.
fn record_of(records: &Path, pid: u32) -> Value {
    let text = fs::read_to_string(records).unwrap();
    let mut record: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let start_time: u64 = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.split(' ').nth(19))
        .map_or(1, |start_time| start_time.parse().unwrap());
    (record["owner"]["pid"], record["owner"]["start_time"]) = (pid.into(), start_time.into());
    record
}

/// Process that lives until the machine shuts down.
const PROCESS_1: u32 = 1;
/// Above the maximum process ID on Linux.
const NO_PROCESS: u32 = 5_000_000;

/// Child process that owns routes. Killed when the test ends, at the latest.
struct Owner(Child);

impl std::ops::Deref for Owner {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Owner {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn_owner(routes: &str, state: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .env(OWNER_ROUTES, routes)
        .env(OWNER_STATE, state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Acts as an owner of routes if `Owner` started this process; otherwise returns `None`.
pub(crate) fn act_as_owner() -> Option<ExitCode> {
    let (wanted, state) = (env::var(OWNER_ROUTES).ok()?, env::var(OWNER_STATE).ok()?);
    let routes = Routes::open(Path::new(&state)).unwrap();
    for line in wanted.lines() {
        let (destination, interface) = line.split_once(' ').unwrap();
        let route = HostRoute {
            destination: destination.parse().unwrap(),
            interface: InterfaceIndex(interface.parse().unwrap()),
            prefer_source: None,
            metric: HostRoute::DEFAULT_METRIC,
        };
        routes.add(&route).unwrap();
    }
    println!("ready");
    // The read returns when the pipe closes, at the latest at the end of the test.
    let _ = std::io::stdin().read(&mut [0]);
    Some(ExitCode::SUCCESS)
}

/// Waits until a killed child process is a zombie.
pub(crate) fn wait_for_death(pid: u32) {
    let start = Instant::now();
    while !fs::read_to_string(format!("/proc/{pid}/stat"))
        .unwrap()
        .contains(") Z ")
    {
        assert!(start.elapsed().as_secs() < 5, "process {pid} does not die");
        thread::sleep(Duration::from_millis(1));
    }
}

fn drop_rights() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::NET_ADMIN);
    set_capabilities(None, sets).unwrap();
}

const OWNER_ROUTES: &str = "NICSTRIPE_LINK_TEST_ROUTES";
const OWNER_STATE: &str = "NICSTRIPE_LINK_TEST_STATE";
