//! Tests of the route helper: rejected requests, and the cleanup whichever way the helper's user
//! ends.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use nicstripe_link::{
    HostRoute, InterfaceIndex, MAX_ROUTES, Refusal, RouteError, RouteHelper, counters,
    ipv4_setting, listen, pinned_socket, route_helper_main, route_to,
};
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::{neighbour::NeighbourState, route::RouteProtocol},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    lab::{Lab, name},
    routes::RouteLab,
};

crate::tests![
    a_helper_adds_routes_and_removes_them_when_it_is_dropped,
    a_helper_in_a_thread_does_the_same,
    the_helper_keeps_one_right_alone,
    a_helper_refuses_every_address_that_is_not_a_neighbours,
    a_helper_has_the_kernel_ask_anew_only_for_what_it_doubts,
    a_helper_holds_a_limited_number_of_routes,
    decoys_are_untouched_when_the_user_of_a_helper_is_killed,
    after_a_kill_at_any_moment_nothing_stays_past_the_next_start,
    a_helper_that_is_asked_to_end_ends_with_its_input,
    a_killed_helpers_routes_go_with_the_next,
    routes_come_back_when_their_interface_does,
    a_route_of_a_source_waits_for_the_address,
    what_is_no_request_ends_the_helper_and_its_routes,
    in_one_subnet_with_a_strict_filter_both_cables_work_with_routes_alone,
];

fn a_helper_adds_routes_and_removes_them_when_it_is_dropped() {
    let stage = Stage::new();
    adds_and_removes(&stage, stage.helper());
}

fn a_helper_in_a_thread_does_the_same() {
    let stage = Stage::new();
    let helper = stage
        .bench
        .lab
        .near
        .run(|| RouteHelper::in_process(stage.bench.state.path()).unwrap());
    assert_eq!(helper.id(), None);
    adds_and_removes(&stage, helper);
}

fn adds_and_removes(stage: &Stage, mut helper: RouteHelper) {
    let bench = &stage.bench;
    let (first, second) = (stage.neighbour(2), stage.neighbour(3));
    let before = bench.table();
    helper.add(&first).unwrap();
    helper.add(&first).unwrap();
    helper.add(&second).unwrap();
    assert_eq!(stage.present(), [first, second]);
    bench.run(|routes| {
        assert_eq!(
            routes.owners(&first).unwrap(),
            [helper.id().unwrap_or(std::process::id())]
        );
    });
    assert!(helper.remove(&first).unwrap());
    assert!(!helper.remove(&first).unwrap(), "twice is once");
    assert_eq!(stage.present(), [second]);
    assert_eq!(helper.clean().unwrap(), 0, "its owner is alive");
    drop(helper);
    assert_eq!(bench.table(), before);
    bench.run(|routes| assert!(routes.owners(&second).unwrap().is_empty()));
}

fn the_helper_keeps_one_right_alone() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    helper.add(&stage.neighbour(2)).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", helper.id().unwrap())).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    // CAP_NET_ADMIN is number 12.
    for (set, expected) in [
        ("CapEff:", "1000"),
        ("CapPrm:", "1000"),
        ("CapInh:", "0"),
        ("CapAmb:", "0"),
        ("NoNewPrivs:", "1"),
    ] {
        assert_eq!(
            field(set).trim_start_matches('0'),
            expected.trim_start_matches('0'),
            "{set}\n{status}"
        );
    }
}

fn a_helper_refuses_every_address_that_is_not_a_neighbours() {
    let stage = Stage::new();
    let bench = &stage.bench;
    stage.add_address("fd02::1/64");
    bench.lab.near.netlink(|handle| async move {
        let default = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .gateway([10, 2, 0, 254].into())
            .build();
        handle.route().add(default).execute().await.unwrap();
    });
    bench.add_foreign("10.2.0.77", 32, "a0", RouteProtocol::Bird, 7);
    let before = bench.table();
    let mut helper = stage.helper();
    let mut refused = 0;
    for (destination, why) in [
        ("0.0.0.0", "unicast"),
        ("0.1.2.3", "unicast"),
        ("127.0.0.1", "unicast"),
        ("127.0.0.53", "unicast"),
        ("224.0.0.1", "unicast"),
        ("239.255.255.250", "unicast"),
        ("240.0.0.1", "unicast"),
        ("255.255.255.255", "unicast"),
        ("::", "unicast"),
        ("::1", "unicast"),
        ("ff02::1", "unicast"),
        ("::ffff:10.2.0.2", "unicast"),
        ("::10.2.0.2", "unicast"),
        ("10.2.0.1", "own address on a1"),
        ("10.1.0.1", "own address on a0"),
        ("fd02::1", "own address on a1"),
        ("10.2.0.0", "network or broadcast"),
        ("10.2.0.255", "network or broadcast"),
        ("10.1.0.255", "network or broadcast"),
        ("10.2.0.254", "gateway"),
        ("10.1.0.2", "none of the interface's prefixes"),
        ("8.8.8.8", "none of the interface's prefixes"),
        ("2001:db8::1", "none of the interface's prefixes"),
        ("10.2.0.77", "a foreign route (protocol bird)"),
    ] {
        let destination: IpAddr = destination.parse().unwrap();
        let route = HostRoute {
            destination,
            ..stage.neighbour(2)
        };
        // Runs in the helper's namespace, so that interface names match.
        let error = bench.lab.near.run(|| helper.add(&route)).unwrap_err();
        let is_right = matches!(error, RouteError::Refused(_)) && error.to_string().contains(why);
        assert!(is_right, "{destination}: {error}");
        assert!(
            error.to_string().contains(&destination.to_string()),
            "{error}"
        );
        refused += 1;
    }
    let unknown = helper
        .add(&HostRoute {
            interface: InterfaceIndex(4242),
            ..stage.neighbour(2)
        })
        .unwrap_err();
    assert!(
        matches!(unknown, RouteError::Refused(Refusal::NoInterface { .. })),
        "{unknown:?}"
    );
    let foreign = helper
        .add(&HostRoute {
            prefer_source: Some([10, 1, 0, 1].into()),
            ..stage.neighbour(2)
        })
        .unwrap_err();
    assert!(
        matches!(foreign, RouteError::Refused(Refusal::Source { .. })),
        "{foreign:?}"
    );
    assert!(refused >= 20);
    assert_eq!(bench.table(), before);
    helper.add(&stage.neighbour(2)).unwrap();
}

fn a_helper_has_the_kernel_ask_anew_only_for_what_it_doubts() {
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    let stage = Stage::new();
    let (near, index) = (&stage.bench.lab.near, stage.bench.lab.near.index("a1").0);
    let mut helper = stage.helper();
    for (last, state, is_doubted) in [
        (2, Stale, true),
        (3, Delay, true),
        (4, Probe, true),
        (5, Reachable, false),
        (6, Permanent, false),
    ] {
        let route = stage.neighbour(last);
        near.netlink(|handle| async move {
            let neighbour = handle
                .neighbours()
                .add(index, route.destination)
                .link_layer_address(&[2, 0, 0, 0, 0, last])
                .state(state);
            neighbour.execute().await.unwrap();
        });
        assert_eq!(
            helper.forget_neighbour(&route).unwrap(),
            is_doubted,
            "{state:?}"
        );
        assert!(
            !helper.forget_neighbour(&route).is_ok_and(|again| again),
            "{state:?}: its record is removed"
        );
    }
    let own = HostRoute {
        destination: [10, 2, 0, 1].into(),
        ..stage.neighbour(2)
    };
    assert!(
        matches!(
            helper.forget_neighbour(&own),
            Err(RouteError::Refused(Refusal::Own { .. }))
        ),
        "the rules for routes hold"
    );
}

fn a_helper_holds_a_limited_number_of_routes() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    (0..MAX_ROUTES).for_each(|number| helper.add(&stage.neighbour(number as u8 + 2)).unwrap());
    let one_more = stage.neighbour(MAX_ROUTES as u8 + 2);
    assert!(matches!(
        helper.add(&one_more),
        Err(RouteError::TooMany { .. })
    ));
    assert!(helper.remove(&stage.neighbour(2)).unwrap());
    helper.add(&one_more).unwrap();
}

fn decoys_are_untouched_when_the_user_of_a_helper_is_killed() {
    let stage = Stage::new();
    let bench = &stage.bench;
    for number in 0..50_u8 {
        // Protocol numbers start at 100. Some routes have nicstripe's metric, some use an interface
        // that nicstripe uses.
        let protocol = RouteProtocol::Other(100 + number);
        let metric = if number % 2 == 0 {
            50
        } else {
            u32::from(number)
        };
        bench.add_foreign(
            &format!("10.2.0.{}", 100 + number),
            32,
            if number % 3 == 0 { "a0" } else { "a1" },
            protocol,
            metric,
        );
    }
    let before = bench.table();
    let ours = [stage.neighbour(2), stage.neighbour(3)];
    let mut user = stage.user(&ours);
    assert_eq!(stage.present(), ours);
    user.child.kill().unwrap();
    let killed = Instant::now();
    stage.await_present(&[]);
    eprintln!(
        "routes are gone {:?} after their user was killed",
        killed.elapsed()
    );
    assert_eq!(bench.table(), before);
}

fn after_a_kill_at_any_moment_nothing_stays_past_the_next_start() {
    let stage = Stage::new();
    let bench = &stage.bench;
    bench.add_foreign("10.2.0.200", 32, "a1", RouteProtocol::Bird, 50);
    let before = bench.table();
    let ours: Vec<HostRoute> = (2..8).map(|last| stage.neighbour(last)).collect();
    let mut left = 0;
    for round in 0..60 {
        let mut user = stage.starting_user(&ours);
        // The kills range from before the first route to after the last one. Each installation
        // takes some milliseconds.
        thread::sleep(Duration::from_micros(700 * (round / 3)));
        user.kill_with_helper(round % 3);
        let stay = stage.present().len();
        assert!(
            round % 3 != 0 || stay == 0,
            "round {round}: the helper removes them"
        );
        left += stay;
        drop(stage.helper());
        assert_eq!(bench.table(), before, "round {round}");
    }
    assert!(left > 0, "no kill hit a helper that had routes");
}

fn a_helper_that_is_asked_to_end_ends_with_its_input() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let ours = stage.neighbour(2);
    helper.add(&ours).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(
            Pid::from_raw(helper.id().unwrap().cast_signed()).unwrap(),
            signal,
        )
        .unwrap();
    }
    helper.add(&stage.neighbour(3)).unwrap();
    assert_eq!(stage.present(), [ours, stage.neighbour(3)]);
    drop(helper);
    assert_eq!(stage.present(), []);
}

fn a_killed_helpers_routes_go_with_the_next() {
    let stage = Stage::new();
    let ours = [stage.neighbour(2)];
    let mut user = stage.user(&ours);
    kill(user.helper);
    wait_for_end(user.helper);
    user.child.kill().unwrap();
    user.child.wait().unwrap();
    assert_eq!(stage.present(), ours, "both were killed");
    drop(stage.helper());
    assert_eq!(stage.present(), []);
}

fn routes_come_back_when_their_interface_does() {
    let stage = Stage::new();
    let mut helper = stage.helper();
    let ours = [stage.neighbour(2), stage.neighbour(3)];
    ours.iter().for_each(|route| helper.add(route).unwrap());
    for _ in 0..3 {
        stage.bench.lab.near.down("a1");
        assert_eq!(stage.present(), [], "the kernel drops them");
        stage.bench.lab.near.up("a1");
        stage.await_present(&ours);
    }
    helper.restore(stage.bench.index("a1")).unwrap();
    assert_eq!(stage.present(), ours);
}

/// Covers IPv6 addresses, which the kernel removes when an interface is set down. The
/// administrator's tools add them again later.
fn a_route_of_a_source_waits_for_the_address() {
    let stage = Stage::new();
    let near = &stage.bench.lab.near;
    stage.add_address("fd02::1/64");
    let mut helper = stage.helper();
    let ours = HostRoute {
        destination: "fd02::2".parse().unwrap(),
        prefer_source: Some("fd02::1".parse().unwrap()),
        ..stage.neighbour(2)
    };
    helper.add(&ours).unwrap();
    near.down("a1");
    assert_eq!(stage.present(), []);
    near.up("a1");
    let error = helper.restore(ours.interface).unwrap_err();
    assert!(
        matches!(error, RouteError::Refused(Refusal::NotOnLink { .. })),
        "{error:?}"
    );
    near.add_address("a1", "fd02::1/64");
    stage.await_present(&[ours]);
}

fn what_is_no_request_ends_the_helper_and_its_routes() {
    let stage = Stage::new();
    let state = stage.bench.state.path();
    let start = || {
        let mut command = Command::new(&stage.program);
        command
            .arg(state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = stage.bench.lab.near.run(start);
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // A request to add 10.2.0.2 through a1, in the layout of `route_protocol`.
    let mut add = [0; 44];
    add[..16].copy_from_slice(&[1, 1, 4, 0, 0, 0, 0, 0, 50, 0, 0, 0, 10, 2, 0, 2]);
    add[4..8].copy_from_slice(&stage.bench.index("a1").0.to_le_bytes());
    // Sends the request in two halves with a pause between them.
    input.write_all(&add[..20]).unwrap();
    thread::sleep(Duration::from_millis(20));
    input.write_all(&add[20..]).unwrap();
    let mut answer = [0; 28];
    output.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(stage.present(), [stage.neighbour(2)]);

    input.write_all(&[0xff; 44]).unwrap();
    output.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [1, 19]);
    assert!(child.wait().unwrap().success());
    assert_eq!(stage.present(), []);
}

/// Checks a claim of the design about `--routes auto`: a connection bound only to the device times
/// out, while the routes let both cables carry traffic.
fn in_one_subnet_with_a_strict_filter_both_cables_work_with_routes_alone() {
    let lab = Lab::new()
        .cable(("a0", &["10.9.0.11/24"]), ("b0", &["10.9.0.21/24"]))
        .cable(("a1", &["10.9.0.12/24"]), ("b1", &["10.9.0.22/24"]));
    for side in [&lab.near, &lab.far] {
        side.sysctl("ipv4/conf/all/rp_filter", "1");
    }
    let state = tempfile::tempdir().unwrap();
    let second: SocketAddr = "10.9.0.22:7747".parse().unwrap();
    lab.far.run(|| {
        let listener = listen(Some(&name("b1")), "0.0.0.0:7747".parse().unwrap(), 8).unwrap();
        listener.set_nonblocking(false).unwrap();
        thread::spawn(move || answer(&listener));
    });
    let strict = lab.near.run(|| ipv4_setting(&name("a1"), "rp_filter"));
    assert_eq!(strict, Some(1));
    assert_eq!(
        lab.near.run(|| route_to(second.ip()).unwrap().interface),
        lab.near.index("a0")
    );
    let failed = lab.near.run(|| exchange("a1", second)).unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut, "{failed}");

    let near = Stage::helper_in(
        &lab,
        &lab.near,
        state.path(),
        &[("10.9.0.21", "a0"), ("10.9.0.22", "a1")],
    );
    let far = Stage::helper_in(
        &lab,
        &lab.far,
        state.path(),
        &[("10.9.0.11", "b0"), ("10.9.0.12", "b1")],
    );
    let read = |name| lab.near.run(|| counters(lab.near.index(name)).unwrap());
    let (first_before, second_before) = (read("a0"), read("a1"));
    // The kernel may still be resolving the hardware address for the failed attempt, and give up
    // one second later.
    let carried = || {
        (0..3)
            .map(|_| exchange("a1", second))
            .find(|carried| !is_unreachable(carried))
            .unwrap()
    };
    lab.near.run(carried).unwrap();
    let (first, carried) = (
        read("a0").since(&first_before),
        read("a1").since(&second_before),
    );
    assert!(
        carried.sent > SENT as u64 && carried.received > 0,
        "{carried:?}"
    );
    assert!(first.sent < 10_000, "{first:?}");
    drop((near, far));
}

fn is_unreachable(result: &std::io::Result<()>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::HostUnreachable)
}

/// Accepts connections, and reads each of them to the end.
fn answer(listener: &TcpListener) {
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else {
            return;
        };
        let mut received = Vec::new();
        let _ = connection.read_to_end(&mut received);
        let _ = connection.write_all(&received.len().to_le_bytes());
    }
}

/// Sends [`SENT`] bytes through an interface, and waits until the receiver has read all of them.
fn exchange(interface: &str, remote: SocketAddr) -> std::io::Result<()> {
    let socket = pinned_socket(Some(&name(interface)), None, remote)?;
    socket.set_nonblocking(false)?;
    socket.connect_timeout(&remote.into(), Duration::from_secs(2))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&[7; SENT])?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut len = [0; 8];
    stream.read_exact(&mut len)?;
    assert_eq!(usize::from_le_bytes(len), SENT);
    Ok(())
}

const SENT: usize = 300_000;

/// Lab with a state directory, and a symbolic link to this executable under the helper's name.
pub(crate) struct Stage {
    pub(crate) bench: RouteLab,
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(PROGRAM);
        symlink(env::current_exe().unwrap(), &program).unwrap();
        Self {
            bench: RouteLab::new(),
            program,
            _folder: folder,
        }
    }

    pub(crate) fn helper(&self) -> RouteHelper {
        self.bench
            .lab
            .near
            .run(|| RouteHelper::spawn(&self.program, self.bench.state.path()).unwrap())
    }

    /// Starts a helper thread in a namespace of another lab, and adds routes to `addresses`.
    fn helper_in(
        _: &Lab,
        side: &crate::lab::Namespace,
        state: &Path,
        routes: &[(&str, &str)],
    ) -> RouteHelper {
        let mut helper = side.run(|| RouteHelper::in_process(state).unwrap());
        for (destination, interface) in routes {
            let destination: IpAddr = destination.parse().unwrap();
            let interface = side.index(interface);
            helper
                .add(&HostRoute {
                    destination,
                    interface,
                    prefer_source: None,
                    metric: HostRoute::DEFAULT_METRIC,
                })
                .unwrap();
        }
        helper
    }

    /// Returns a host route to 10.2.0.`last`, in the subnet of a1's cable.
    fn neighbour(&self, last: u8) -> HostRoute {
        HostRoute {
            destination: [10, 2, 0, last].into(),
            ..self.bench.route("10.2.0.2", "a1")
        }
    }

    /// Adds an IPv6 address to a1 and waits until the address is usable. This takes a moment even
    /// without duplicate address detection.
    fn add_address(&self, address: &str) {
        let near = &self.bench.lab.near;
        near.add_address("a1", address);
        let start = Instant::now();
        while !near
            .interface("a1")
            .has_address(address.split_once('/').unwrap().0.parse().unwrap())
        {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{address} is not usable"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn present(&self) -> Vec<HostRoute> {
        self.bench.run(|routes| routes.list_ours().unwrap())
    }

    #[track_caller]
    fn await_present(&self, expected: &[HostRoute]) {
        let start = Instant::now();
        while self.present() != expected {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{:?}, expected {expected:?}",
                self.present()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts a process that uses a helper, and waits until the process has installed `routes`.
    fn user(&self, routes: &[HostRoute]) -> User {
        let user = self.starting_user(routes);
        self.await_present(routes);
        user
    }

    /// Starts a process that installs `routes`. Returns as soon as the process's helper runs.
    fn starting_user(&self, routes: &[HostRoute]) -> User {
        let arguments = routes
            .iter()
            .map(|route| format!("{} {}", route.destination, route.interface));
        self.start_user(&arguments.collect::<Vec<_>>().join("\n"))
    }

    /// Starts a process that passes requests to its own helper, one per line: `ADDRESS INDEX`
    /// adds a route, `mtu INDEX MTU` changes an MTU.
    pub(crate) fn start_user(&self, arguments: &str) -> User {
        let start = || {
            let mut command = Command::new(env::current_exe().unwrap());
            command
                .env(USER_ROUTES, arguments)
                .env(USER_STATE, self.bench.state.path())
                .env(USER_HELPER, &self.program);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut child = self.bench.lab.near.run(start);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        User {
            child,
            helper: line.trim().parse().unwrap(),
        }
    }
}

/// Child process that uses a helper. Killed when the test ends, at the latest.
pub(crate) struct User {
    pub(crate) child: Child,
    pub(crate) helper: u32,
}

impl User {
    /// Kills the process: without its helper if `order` is 0, after the helper if `order` is 1,
    /// before the helper otherwise. Returns when the killed processes have ended.
    pub(crate) fn kill_with_helper(&mut self, order: u64) {
        match order {
            0 => self.child.kill().unwrap(),
            1 => {
                kill(self.helper);
                self.child.kill().unwrap();
            }
            _ => {
                self.child.kill().unwrap();
                kill(self.helper);
            }
        }
        self.child.wait().unwrap();
        wait_for_end(self.helper);
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn kill(pid: u32) {
    // The helper may have exited already, because its user has.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
}

/// Waits until a process has exited or is a zombie.
pub(crate) fn wait_for_end(pid: u32) {
    let start = Instant::now();
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "process {pid} does not end"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Acts as the helper or as the helper's user if a test started this process as one of them;
/// otherwise returns `None`.
pub(crate) fn act() -> Option<ExitCode> {
    let called = env::args_os().next().unwrap_or_default();
    if Path::new(&called)
        .file_name()
        .is_some_and(|name| name == PROGRAM)
    {
        return Some(route_helper_main(env::args_os()));
    }
    let (wanted, state, program) = (
        env::var(USER_ROUTES).ok()?,
        env::var(USER_STATE).ok()?,
        env::var(USER_HELPER).ok()?,
    );
    let mut helper = RouteHelper::spawn(Path::new(&program), Path::new(&state)).unwrap();
    println!("{}", helper.id().unwrap());
    for line in wanted.lines() {
        if let Some((interface, mtu)) = line
            .strip_prefix("mtu ")
            .and_then(|rest| rest.split_once(' '))
        {
            let interface = InterfaceIndex(interface.parse().unwrap());
            helper
                .set_mtu(interface, mtu.parse().unwrap(), Duration::from_secs(60))
                .unwrap();
            continue;
        }
        let (destination, interface) = line.split_once(' ').unwrap();
        let (destination, interface) = (
            destination.parse().unwrap(),
            InterfaceIndex(interface.parse().unwrap()),
        );
        helper
            .add(&HostRoute {
                destination,
                interface,
                prefer_source: None,
                metric: HostRoute::DEFAULT_METRIC,
            })
            .unwrap();
    }
    // The read returns when the pipe closes, at the latest at the end of the test.
    let _ = std::io::stdin().read(&mut [0]);
    Some(ExitCode::SUCCESS)
}

const PROGRAM: &str = "nicstripe-routes";
const USER_ROUTES: &str = "NICSTRIPE_LINK_TEST_USER_ROUTES";
const USER_STATE: &str = "NICSTRIPE_LINK_TEST_USER_STATE";
const USER_HELPER: &str = "NICSTRIPE_LINK_TEST_USER_HELPER";
