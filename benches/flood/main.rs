//! Ten thousand connections of strangers while a file is copied over gigabit cables.
//!
//! `cargo bench --bench flood -- --size 2G --links 2 --strangers 10000`
//!
//! The strangers are on the daemon's own host and connect by its loopback interface, so that they take no room on the cables and have as many
//! addresses as they like; each connects again some seconds after it was turned away. They run in two processes of their own, nice 10: both
//! hosts share the machine's cores, and what the strangers burn themselves is no cost of the daemon's. A quarter of them is idle, a quarter
//! sends a byte a second, a quarter garbage, and a quarter a first message that is in order, which costs the daemon a key exchange, and
//! nothing after that.
//!
//! Rates are those of whole commands. The daemon is a new one when the flood begins: no address is known to it.
#![forbid(unsafe_code)]

mod attack;
#[path = "../bench_support/mod.rs"]
mod bench_support;

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use attack::Force;
use bench_support::{
    Cables, Contender, Place, Process, Result, Sample, Scene, Spread, Table, circumstances, cp, parse_size, serve, start_daemon, time_limit,
};
use clap::Args;
use nicstripe_lab::Host;

#[derive(Debug, Args)]
struct Arguments {
    /// Bytes of the large file
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    /// Copies of it, undisturbed and during the flood
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// The cables: so many of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    /// Connections of strangers
    #[arg(long, default_value_t = 10_000)]
    strangers: usize,

    /// Small copies during the flood
    #[arg(long, default_value_t = 20)]
    clients: u32,

    /// Seconds until a stranger that was turned away connects again
    #[arg(long, default_value_t = 5)]
    pause: u64,
}

fn main() -> ExitCode {
    if let Some(force) = Force::from_env() {
        return force.attack();
    }
    // Outside the lab, where the processes of the bench can still be reached.
    let hello = first_message();
    bench_support::run(|arguments| bench(arguments, &hello?))
}

fn bench(arguments: Arguments, hello: &[u8]) -> Result<()> {
    let place = Place::in_memory(2 * arguments.size)?;
    let mut sample = Sample::incompressible(place.files(Host::A).join("sample.bin"), arguments.size)?;
    let hello_file = place.logs().join("hello");
    fs::write(&hello_file, hello)?;
    let scene = Scene::build(&arguments.links, &place, &mut sample, Host::A)?;
    let small = place.files(Host::A).join("small");
    fs::write(&small, [7; 1000])?;

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
    let clients = (1..=arguments.clients).map(|number| small_copy(&scene, &small, number)).collect::<Result<Vec<_>>>()?;
    let growth = resident(&daemon)?.saturating_sub(before);
    let connections = accepted(&scene)? - opened;
    let seconds = begun.elapsed().as_secs_f64();
    drop(strangers);
    thread::sleep(RECOVERY);
    let after = copies(&scene, &daemon, 1)?;
    let last = small_copy(&scene, &small, arguments.clients + 1)?;

    let (quiet, flooded) = (Spread::of(&quiet, |run| run.rate), Spread::of(&flooded, |run| run.rate));
    let mut table = Table::new(&["what", "value", "bar"]);
    let attempts = format!("{connections} in {seconds:.0} s");
    let mut row = |what: &str, value: String, bar: &str| table.row([what.to_owned(), value, bar.to_owned()]);
    row("connections that the daemon's host took", attempts, "");
    row("undisturbed, MB/s", quiet.print(1), "");
    row("during the flood, MB/s", flooded.print(1), "");
    row("share of it, %", format!("{:.1}", 100.0 * flooded.median() / quiet.median()), "≥ 95");
    row("first small copy, from an address not known, s", format!("{first:.3}"), "≤ 1");
    let spread = Spread::of(&clients, |seconds| *seconds);
    row("small copies, s", spread.print(3), "≤ 1");
    row("daemon's memory more by the strangers alone, MiB", format!("{:.1}", idle_growth as f64 / MIB), "≤ 16");
    row("and by two links and the clients, MiB", format!("{:.1}", growth as f64 / MIB), "≤ 16 + 8 a link");
    row("6 s after it, MB/s", format!("{:.1}", after[0].rate), "");
    row("small copy then, s", format!("{last:.3}"), "");
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!("{}, {} MiB; {} strangers; median (least–greatest).\n\n{table}", arguments.links, arguments.size >> 20, arguments.strangers);
    Ok(())
}

/// One copy of the large file.
struct Copied {
    /// In MB/s.
    rate: f64,
}

/// Copies the large file so many times; each copy is checked and removed.
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
        eprintln!("{rate:.1} MB/s, the daemon had {:.1} MiB at most", peak as f64 / MIB);
        copied.push(Copied { rate });
    }
    Ok(copied)
}

/// Copies a file of 1000 bytes under a name of its own; returns how many seconds the command took.
fn small_copy(scene: &Scene<'_>, small: &PathBuf, number: u32) -> Result<f64> {
    let mut command = scene.lab.command(Host::A, env!("CARGO_BIN_EXE_nicstripe"));
    command.env("NICSTRIPE_HOME", scene.place.home(Host::A).config()).env_remove("RUST_LOG");
    command.args(["cp", "--quiet"]).arg(small).arg(format!("{}:small-{number}", scene.peer));
    let begun = Instant::now();
    let mut client = Process::spawn(command, "small", &scene.place.logs())?;
    client.await_end(begun + Duration::from_secs(60))?;
    let seconds = begun.elapsed().as_secs_f64();
    client.succeeded()?;
    Ok(seconds)
}

/// TCP connections that the daemon's host has taken so far (`PassiveOpens`, RFC 4022).
fn accepted(scene: &Scene<'_>) -> Result<u64> {
    let output = scene.lab.command(Host::B, "cat").arg("/proc/net/snmp").output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (tcp.next().unwrap_or_default(), tcp.next().unwrap_or_default());
    let at = names.split(' ').position(|name| name == "PassiveOpens").ok_or("the kernel counts no connections")?;
    Ok(values.split(' ').nth(at).unwrap_or_default().parse()?)
}

/// Anonymous memory of the daemon, in bytes.
fn resident(daemon: &Process) -> Result<u64> {
    let [_, own] = daemon.memory().ok_or("the daemon has ended")?;
    Ok(own)
}

/// Starts the strangers, in two processes: one may not have file descriptors for all.
fn flood(scene: &Scene<'_>, arguments: &Arguments, hello: &std::path::Path) -> Result<Vec<Process>> {
    let spawn = |number: u8| {
        let mut command: Command = scene.lab.command(Host::B, "nice");
        command.args(["-n", "10"]).arg(std::env::current_exe()?);
        let force = Force {
            daemon: ([127, 0, 0, 1], nicstripe::DEFAULT_PORT).into(),
            network: 100 + number,
            count: arguments.strangers / 2,
            pause: Duration::from_secs(arguments.pause),
            hello: hello.to_owned(),
        };
        force.to_env(&mut command);
        Process::spawn(command, &format!("strangers-{number}"), &scene.place.logs())
    };
    Ok(vec![spawn(0)?, spawn(1)?])
}

/// The first message of a real client: what it would say to any daemon.
fn first_message() -> Result<Vec<u8>> {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let home = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicstripe"));
    command.args(["cp", "--quiet", "-P", &listener.local_addr()?.port().to_string()]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).arg("127.0.0.1:").env("NICSTRIPE_HOME", home.path());
    let mut client = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
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

/// Until most strangers have connected.
const SETTLING: Duration = Duration::from_secs(5);

/// Until what they left is gone: their time is 5 s.
const RECOVERY: Duration = Duration::from_secs(6);

const MIB: f64 = 1048576.0;
