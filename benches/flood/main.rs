//! Copies over gigabit cables while 10,000 strangers (peers without a trusted key) hold connections
//! to the daemon.
//!
//! `cargo bench --bench flood -- --size 2G --links 2 --strangers 10000`
//!
//! The strangers run on the daemon's host and connect over its loopback interface. They therefore
//! use no capacity of the cables and can have any number of addresses. Each stranger reconnects
//! some seconds after the daemon rejected it. The strangers run in two separate processes with nice
//! 10: both hosts share the machine's cores, and the strangers' CPU time must not count as the
//! daemon's. A quarter of the strangers is idle, a quarter sends a byte per second, and a quarter
//! sends garbage. The last quarter sends only a valid first message, which costs the daemon a key
//! exchange.
//!
//! Rates are averages over whole commands. The daemon is restarted before the flood, so that it has
//! no record of client addresses.
//!
//! `cargo bench --bench flood -- --size 300M --attack
//! connections,unsaid,sessions,unread,puts,holes,trees,checksums`
//!
//! measures a **trusted** peer that exhausts the daemon's resources instead. The peer runs in one
//! process a key on the daemon's host, with nice 10.
//!
//! `cargo bench --bench flood -- --size 1M --crowd 40,200 --crowd-size 50M`
//!
//! measures honest clients that copy concurrently, over loopback from one address; `--crowd-keys`
//! sets their number of keys, `--crowd-sessions` the daemon's session limit.
#![forbid(unsafe_code)]

mod crowd;
mod part;
mod strangers;
mod trusted;

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use crowd::Crowd;
use nicstripe::trust::{Home, Identity, Peers, PublicLine};
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{
    Cables, Contender, Place, Process, Result, Sample, Scene, Spread, Table, circumstances, cp,
    parse_size, serve, start_daemon, time_limit,
};
use part::Part;
use strangers::Strangers;
use trusted::{Attacker, Greed};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the large file in bytes
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    /// Number of copies of the large file without, and then during the flood
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    /// Number of concurrent connections from strangers
    #[arg(long, default_value_t = 10_000)]
    strangers: usize,

    /// Number of copies of a small file during the flood
    #[arg(long, default_value_t = 20)]
    clients: u32,

    /// Seconds until a rejected stranger reconnects
    #[arg(long, default_value_t = 5)]
    pause: u64,

    /// Instead of the flood: attacks of a trusted peer, one after the other
    #[arg(long, value_enum, value_delimiter = ',')]
    attack: Vec<Greed>,

    /// Instead of the flood, or after --attack: numbers of concurrent honest clients, one after the
    /// other
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    crowd: Vec<u32>,

    /// Bytes that each client of --crowd copies
    #[arg(long, default_value = "1000", value_parser = parse_size)]
    crowd_size: u64,

    /// Number of keys that the clients of --crowd share
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    crowd_keys: u32,

    /// Session limit of the daemon for --crowd [default: the daemon's]
    #[arg(long)]
    crowd_sessions: Option<u32>,
}

fn main() -> ExitCode {
    if let Some(part) = Part::of_this_process() {
        return part.play();
    }
    // Must run before the bench enters the lab, because the client could not reach this process
    // from there.
    let hello = first_message();
    nicstripe_testkit::bench::run(|arguments| bench(arguments, &hello?))
}

fn bench(arguments: Arguments, hello: &[u8]) -> Result<()> {
    let crowd =
        u64::from(arguments.crowd.iter().copied().max().unwrap_or(0)) * arguments.crowd_size;
    let place = Place::in_memory(2 * arguments.size + crowd)?;
    let mut sample =
        Sample::incompressible(place.files(Host::A).join("sample.bin"), arguments.size)?;
    let hello_file = place.logs().join("hello");
    fs::write(&hello_file, hello)?;
    let scene = Scene::build(&arguments.links, &place, &mut sample, Host::A)?;
    let small = place.files(Host::A).join("small");
    fs::write(&small, [7; 1000])?;
    if !arguments.attack.is_empty() {
        greedy_peers(&arguments, &scene, &small)?;
    }
    if !arguments.crowd.is_empty() {
        crowds(&arguments, &scene)?;
    }
    if !arguments.attack.is_empty() || !arguments.crowd.is_empty() {
        return Ok(());
    }

    let quiet = {
        let daemon = start_daemon(serve(&scene), &place)?;
        copies(&scene, &daemon, arguments.runs)?
    };
    let daemon = start_daemon(serve(&scene), &place)?;
    let before = resident(&daemon)?;
    let (opened, begun) = (accepted(&scene)?, Instant::now());
    let strangers = flood(&scene, &arguments, &hello_file)?;
    thread::sleep(SETTLING);
    let first = small_copy(&scene, &small, 0)?;
    let idle_growth = resident(&daemon)?.saturating_sub(before);
    let flooded = copies(&scene, &daemon, arguments.runs)?;
    let clients = (1..=arguments.clients)
        .map(|number| small_copy(&scene, &small, number))
        .collect::<Result<Vec<_>>>()?;
    let growth = resident(&daemon)?.saturating_sub(before);
    let connections = accepted(&scene)? - opened;
    let seconds = begun.elapsed().as_secs_f64();
    drop(strangers);
    thread::sleep(RECOVERY);
    let after = copies(&scene, &daemon, 1)?;
    let last = small_copy(&scene, &small, arguments.clients + 1)?;

    let (quiet, flooded) = (
        Spread::of(&quiet, |run| run.rate),
        Spread::of(&flooded, |run| run.rate),
    );
    let mut table = Table::new(&["what", "value", "bar"]);
    let attempts = format!("{connections} in {seconds:.0} s");
    let mut row =
        |what: &str, value: String, bar: &str| table.row([what.to_owned(), value, bar.to_owned()]);
    row("connections accepted by the daemon's host", attempts, "");
    row("undisturbed, MB/s", quiet.print(1), "");
    row("during the flood, MB/s", flooded.print(1), "");
    row(
        "share of it, %",
        format!("{:.1}", 100.0 * flooded.median() / quiet.median()),
        "≥ 95",
    );
    row(
        "first small copy, from a new address, s",
        format!("{first:.3}"),
        "≤ 1",
    );
    let spread = Spread::of(&clients, |seconds| *seconds);
    row("small copies, s", spread.print(3), "≤ 1");
    row(
        "daemon's memory growth, strangers only, MiB",
        format!("{:.1}", idle_growth as f64 / MIB),
        "≤ 16",
    );
    row(
        "with two links and clients, MiB",
        format!("{:.1}", growth as f64 / MIB),
        "≤ 16 + 8 a link",
    );
    row("6 s after it, MB/s", format!("{:.1}", after[0].rate), "");
    row("small copy then, s", format!("{last:.3}"), "");
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!(
        "{}, {} MiB; {} strangers; median (least–greatest).\n\n{table}",
        arguments.links,
        arguments.size >> 20,
        arguments.strangers
    );
    Ok(())
}

/// Measures copies during each attack of a trusted peer, and prints a table.
fn greedy_peers(arguments: &Arguments, scene: &Scene<'_>, small: &PathBuf) -> Result<()> {
    let place = scene.place;
    let mut table = Table::new(&[
        "beside",
        "large, MB/s",
        "share, %",
        "small, s",
        "failed",
        "daemon, MiB",
        "its CPU, s",
        "attacker's",
    ]);
    let homes = [befriend(scene, "attacker")?, befriend(scene, "another")?];
    let alone = {
        let daemon = start_daemon(serve(scene), place)?;
        Spread::of(&copies(scene, &daemon, arguments.runs)?, |run| run.rate)
    };
    table.row(["nobody".to_owned(), alone.print(1), "100".to_owned()]);
    for greed in &arguments.attack {
        let homes = &homes[..greed.keys()];
        for home in homes {
            Attacker::prepare(*greed, home, &place.files(Host::B))?;
        }
        let daemon = start_daemon(serve(scene), place)?;
        let daemon_address = ([127, 0, 0, 1], nicstripe::DEFAULT_PORT).into();
        let name = format!("{greed:?}").to_lowercase();
        let attack = |(number, home): (usize, &PathBuf)| {
            let attacker = Part::Attacker(Attacker {
                greed: *greed,
                daemon: daemon_address,
                home: home.clone(),
            });
            let log = format!("{name}-{number}");
            Process::spawn(attacker.command(&scene.lab)?, &log, &place.logs())
        };
        let attackers = homes
            .iter()
            .enumerate()
            .map(attack)
            .collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLING);
        let rate = Spread::of(&copies(scene, &daemon, arguments.runs)?, |run| run.rate);
        let small = (0..arguments.clients)
            .map(|number| small_copy(scene, small, number))
            .collect::<Vec<_>>();
        let failed = small
            .iter()
            .filter_map(|copied| copied.as_ref().err())
            .inspect(|error| eprintln!("{error}"))
            .count();
        let seconds = Spread::of(&small.iter().flatten().collect::<Vec<_>>(), |seconds| {
            **seconds
        });
        let share = format!("{:.1}", 100.0 * rate.median() / alone.median());
        let memory = daemon.memory().map_or(0.0, |[peak, _]| peak as f64 / MIB);
        let mut own_cpu = Duration::ZERO;
        for attacker in &attackers {
            own_cpu += attacker.cpu()?;
        }
        let [daemon_cpu, own_cpu] =
            [daemon.cpu()?, own_cpu].map(|cpu| format!("{:.1}", cpu.as_secs_f64()));
        table.row([
            name,
            rate.print(1),
            share,
            seconds.print(3),
            failed.to_string(),
            format!("{memory:.1}"),
            daemon_cpu,
            own_cpu,
        ]);
    }
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!(
        "{}, {} MiB; median (least–greatest). Bars: share ≥ 40, small ≤ 1 s, none failed.\n\n{table}",
        arguments.links,
        arguments.size >> 20
    );
    Ok(())
}

/// Measures the load of each `--crowd` of honest clients, and prints a table.
fn crowds(arguments: &Arguments, scene: &Scene<'_>) -> Result<()> {
    let (size, keys, sessions) = (
        arguments.crowd_size,
        arguments.crowd_keys,
        arguments.crowd_sessions,
    );
    let sample = Sample::incompressible(scene.place.base().join("crowd"), size)?;
    let homes = (0..keys)
        .map(|key| befriend(scene, &format!("client-{key}")))
        .collect::<Result<Vec<_>>>()?;
    let mut table = Table::new(&[
        "clients",
        "keys",
        "seconds",
        "failed",
        "waited > 2 s",
        "silently",
        "sessions",
        "daemon, MiB",
        "bar",
    ]);
    for clients in arguments.crowd.iter().copied() {
        let served = Crowd {
            clients,
            homes: &homes,
            sessions,
        }
        .measure(scene, &sample)?;
        let seconds = format!("{:.1}", served.seconds);
        let counts = [served.failed, served.late, served.silent, served.sessions]
            .map(|count| count.to_string());
        let memory = [
            served.memory as f64 / MIB,
            96.0 + served.sessions as f64 / 2.0,
        ]
        .map(|mib| format!("{mib:.1}"));
        table.row(
            [clients.to_string(), keys.to_string(), seconds]
                .into_iter()
                .chain(counts)
                .chain(memory),
        );
    }
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!(
        "{size} bytes each, over loopback. Bars: none failed, no silent wait, the daemon's memory.\n\n{table}"
    );
    Ok(())
}

/// Creates a client identity that the daemon trusts. Returns the identity's `NICSTRIPE_HOME`
/// folder.
fn befriend(scene: &Scene<'_>, name: &str) -> Result<PathBuf> {
    let folder = scene.place.base().join(name);
    fs::create_dir_all(&folder)?;
    let home = Home::at(&folder);
    let key = Identity::load_or_create(home.identity_file())?.public_key();
    fs::copy(scene.place.home(Host::A).peers_file(), home.peers_file())?;
    let daemon = scene.place.home(Host::B).peers_file();
    Peers::edit(&daemon, |peers| {
        peers.add(&PublicLine::new(key, ""), Some(name)).map(|_| ())
    })?;
    Ok(folder)
}

/// Result of one copy of the large file.
struct Copied {
    /// Goodput of the copy in MB/s.
    rate: f64,
}

/// Measures `runs` copies of the large file. Compares each copy with its source, then removes the
/// copy.
fn copies(scene: &Scene<'_>, daemon: &Process, runs: u32) -> Result<Vec<Copied>> {
    let size = scene.sample.size;
    let mut copied = Vec::new();
    for _ in 0..runs {
        let begun = Instant::now();
        let mut client = Process::spawn(cp(scene)?, "cp", &scene.place.logs())?;
        client.await_end(begun + time_limit(size))?;
        let rate = size as f64 / begun.elapsed().as_secs_f64() / 1e6;
        client.succeeded()?;
        scene.sample.check(&scene.received()?)?;
        scene.discard()?;
        let peak = daemon.memory().map_or(0, |[peak, _]| peak);
        eprintln!("{rate:.1} MB/s, daemon peak {:.1} MiB", peak as f64 / MIB);
        copied.push(Copied { rate });
    }
    Ok(copied)
}

/// Copies a file of 1000 bytes to the name `small-{number}`. Returns the command's time in seconds.
fn small_copy(scene: &Scene<'_>, small: &PathBuf, number: u32) -> Result<f64> {
    let begun = Instant::now();
    let mut client = Process::spawn(
        small_cp(scene, small, &format!("small-{number}")),
        "small",
        &scene.place.logs(),
    )?;
    client.await_end(begun + Duration::from_secs(60))?;
    let seconds = begun.elapsed().as_secs_f64();
    client.succeeded()?;
    Ok(seconds)
}

fn small_cp(scene: &Scene<'_>, small: &PathBuf, name: &str) -> Command {
    let mut command = scene.lab.command(Host::A, env!("CARGO_BIN_EXE_nicstripe"));
    command
        .env("NICSTRIPE_HOME", scene.place.home(Host::A).config())
        .env_remove("RUST_LOG");
    command
        .args(["cp", "--quiet", "--force"])
        .arg(small)
        .arg(format!("{}:{name}", scene.peer));
    command
}

/// Returns the number of TCP connections that the daemon's host has accepted (`PassiveOpens`, RFC
/// 4022).
fn accepted(scene: &Scene<'_>) -> Result<u64> {
    let output = scene
        .lab
        .command(Host::B, "cat")
        .arg("/proc/net/snmp")
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (
        tcp.next().unwrap_or_default(),
        tcp.next().unwrap_or_default(),
    );
    let at = names
        .split(' ')
        .position(|name| name == "PassiveOpens")
        .ok_or("the kernel counts no connections")?;
    Ok(values.split(' ').nth(at).unwrap_or_default().parse()?)
}

/// Returns the current anonymous memory of the daemon (RssAnon) in bytes.
fn resident(daemon: &Process) -> Result<u64> {
    let [_, own] = daemon.memory().ok_or("the daemon has ended")?;
    Ok(own)
}

/// Starts the strangers in two processes, because a single process may lack file descriptors for
/// all connections.
fn flood(
    scene: &Scene<'_>,
    arguments: &Arguments,
    hello: &std::path::Path,
) -> Result<Vec<Process>> {
    let spawn = |number: u8| {
        let strangers = Part::Strangers(Strangers {
            daemon: ([127, 0, 0, 1], nicstripe::DEFAULT_PORT).into(),
            network: 100 + number,
            count: arguments.strangers / 2,
            pause: Duration::from_secs(arguments.pause),
            hello: hello.to_owned(),
        });
        Process::spawn(
            strangers.command(&scene.lab)?,
            &format!("strangers-{number}"),
            &scene.place.logs(),
        )
    };
    Ok(vec![spawn(0)?, spawn(1)?])
}

/// Captures the first TLS record of a real client. The record is the same for every daemon.
fn first_message() -> Result<Vec<u8>> {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let home = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicstripe"));
    command.args([
        "cp",
        "--quiet",
        "-P",
        &listener.local_addr()?.port().to_string(),
    ]);
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("127.0.0.1:")
        .env("NICSTRIPE_HOME", home.path());
    let mut client = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let (mut tcp, _) = listener.accept()?;
    tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut hello = vec![0; 5];
    tcp.read_exact(&mut hello)?;
    hello.resize(5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])), 0);
    tcp.read_exact(&mut hello[5..])?;
    client.kill()?;
    client.wait()?;
    Ok(hello)
}

/// Time in which most strangers connect, before the measurements.
const SETTLING: Duration = Duration::from_secs(5);

/// Time in which the daemon drops the last strangers. Their timeout is 5 s.
const RECOVERY: Duration = Duration::from_secs(6);

const MIB: f64 = 1048576.0;
